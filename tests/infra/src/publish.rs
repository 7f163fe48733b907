//! `publish.sh` and `certify.sh` with stand-ins for the programs that they call.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::files::{infra, root};

/// Writes what it is called with to `calls`, then does what `body` says.
fn stand_in(folder: &Path, name: &str, body: &str) {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/bash\necho \"{name} $*\" >>\"$CALLS\"\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

const BUILDER: &str = r#"
echo "layers $BUILDAH_LAYERS" >>"$CALLS"
for word in "$@"; do
  case "$word" in type=local,dest=*) printf agent >"${word#type=local,dest=}/rekindle-agent" ;; esac
done"#;

const TERRAFORM: &str = r#"
case "${@: -1}" in registry) printf %s us-docker.pkg.dev/p/rekindle ;; bucket) printf %s p-rekindle ;; esac"#;

struct Ran {
    output: Output,
    calls: String,
    release: Option<Value>,
}

fn publish(digest: &str) -> Ran {
    publish_with(digest, ("buildah", BUILDER), TERRAFORM)
}

fn publish_with(digest: &str, builder: (&str, &str), terraform: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (bin, environment) = (at.join("bin"), at.join("env"));
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir(&environment).unwrap();
    stand_in(&bin, builder.0, builder.1);
    stand_in(&bin, "terraform", terraform);
    stand_in(&bin, "gcloud", &format!("case \"$*\" in artifacts*) echo '{digest}' ;; esac"));
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(infra().join("publish.sh"));
    command.arg(&environment).env("PATH", path).env("CALLS", at.join("calls")).env("BUILDER", builder.0);
    let output = command.output().unwrap();
    let calls = std::fs::read_to_string(at.join("calls")).unwrap();
    let release = std::fs::read_to_string(environment.join("release.auto.tfvars.json")).ok();
    Ran { output, calls, release: release.map(|text| serde_json::from_str(&text).unwrap()) }
}

#[test]
fn both_artefacts_go_where_the_environment_says() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let ran = publish(&digest);
    assert!(ran.output.status.success(), "{}", String::from_utf8_lossy(&ran.output.stderr));
    let release = ran.release.unwrap();
    assert_eq!(release["image"], format!("us-docker.pkg.dev/p/rekindle/server@{digest}"));
    // sha256 of the stand-in's agent.
    let agent = "d4f0bc5a29de06b510f9aa428f1eedba926012b591fef7a518e776a7c9bd1824";
    assert_eq!(release["agent_sha256"], agent);
    let tag = format!("us-docker.pkg.dev/p/rekindle/server:{}", env!("CARGO_PKG_VERSION"));
    for call in [
        format!("--target server --tag {tag} {}", root().display()),
        format!("buildah push {tag}"),
        // Else cargo builds once for the image, and once for the agent.
        "layers true".to_owned(),
        "gcloud auth configure-docker us-docker.pkg.dev --quiet".to_owned(),
        format!("gs://p-rekindle/agents/{agent}"),
    ] {
        assert!(ran.calls.contains(&call), "{call}\n--\n{}", ran.calls);
    }
}

#[test]
fn without_a_digest_nothing_is_told() {
    let ran = publish("");
    assert!(!ran.output.status.success());
    assert!(ran.release.is_none());
    assert!(!ran.calls.contains("storage cp"), "{}", ran.calls);
}

/// What Terraform prints of a state without outputs, and ends well.
const NO_OUTPUTS: &str = r"printf '\e[33m╷\e[0m\n│ Warning: No outputs found\n'";

#[test]
fn nothing_is_built_before_bootstrap_or_without_buildx() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let before = publish_with(&digest, ("buildah", BUILDER), NO_OUTPUTS);
    let without = publish_with(&digest, ("docker", "[[ $1 != buildx ]]"), TERRAFORM);
    for (ran, why) in [(before, "has no outputs: apply it first"), (without, "docker has no buildx")] {
        let said = String::from_utf8_lossy(&ran.output.stderr).into_owned();
        assert!(!ran.output.status.success() && said.contains(why), "{said}");
        assert!(!ran.calls.contains("build --platform") && !ran.calls.contains("gcloud"), "{}", ran.calls);
    }
    let with = publish_with(&digest, ("docker", BUILDER), TERRAFORM);
    assert!(with.output.status.success(), "{}", String::from_utf8_lossy(&with.output.stderr));
}

#[test]
fn a_refused_queued_resource_is_told_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (bin, out) = (folder.path().join("bin"), folder.path().join("out"));
    std::fs::create_dir(&bin).unwrap();
    // Lists are empty, everything else is refused.
    let refusal = r#"case "$*" in
  *"-X GET"*) printf '{}\n200' ;;
  *) printf '{"error": {"message": "no such zone"}}\n403' ;;
esac"#;
    stand_in(&bin, "curl", refusal);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(infra().join("certify.sh"));
    command.arg(&out).env("PATH", path).env("CALLS", folder.path().join("calls"));
    command.env("PROJECT", "p").env("ZONE", "us-west4-z").env("TPU_API", "http://localhost").env("PAUSE", "0.1");
    let output = command.env("LIMIT", "120").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for line in [
        "request-without-force: not asked: no queued resource was made, 403 message \"no such zone\"",
        "operation-details: not asked: what it needs was refused",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("out of time"), "{said}");
}

#[test]
fn what_is_shipped_is_built_small_and_unwinds() {
    let dockerfile = std::fs::read_to_string(infra().join("Dockerfile")).unwrap();
    assert!(dockerfile.contains("cargo build --locked --profile dist "), "{dockerfile}");
    for line in dockerfile.lines().filter(|line| line.starts_with("COPY --from=build /src/")) {
        assert!(line.contains("/src/target/dist/"), "{line}");
    }
    // `image.sh` takes the place of the build stage, and measures the rest.
    let image = std::fs::read_to_string(infra().join("image.sh")).unwrap();
    assert!(image.contains("--profile dist") && image.contains("--file infra/Dockerfile"));
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, profile) = manifest.split_once("[profile.dist]\n").expect("a profile of what is shipped");
    let profile = profile.split("\n[").next().unwrap();
    for line in ["inherits = \"release\"", "lto = \"fat\"", "codegen-units = 1"] {
        assert!(profile.lines().any(|it| it == line), "{line}: {profile}");
    }
    // A panic of a handler answers 500 and is counted.
    assert!(!manifest.contains("panic = \"abort\""));
}
