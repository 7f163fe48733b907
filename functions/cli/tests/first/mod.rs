//! The way to a first job: the last three commands of the example environment's page, word for word, against `dev`.
//!
//! Terraform, gcloud and the TPU's Python are played: each answers what the commands need of it, and keeps what it was asked.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use rekindle_infra_tests::pages;

use super::bundles::{DEADLINE, Dev, text};

/// Prints what an output is.
const TERRAFORM: &str = r#"#!/bin/bash
echo "$*" >>"$(dirname "$0")/terraform.asked"
case "$*" in
  "-chdir=infra/envs/example output -raw server") printf %s "$SERVER" ;;
  "-chdir=infra/envs/example output -raw region") printf us-west4 ;;
  *) echo "terraform does not know $*" >&2; exit 1 ;;
esac
"#;

/// A project that nobody may look into: `doctor` says so of each question.
const GCLOUD: &str = r#"#!/bin/bash
echo "$*" >>"$(dirname "$0")/gcloud.asked"
echo "ERROR: (gcloud.$1.$2) PERMISSION_DENIED: not allowed" >&2
exit 1
"#;

/// JAX is there once pip was asked for it.
const PYTHON: &str = r#"#!/bin/bash
here=$(dirname "$0")
if [ "$*" = "-m pip install -U jax[tpu]" ]; then touch "$here/jax"; exit; fi
if [ "$*" = "-c import jax; print(jax.devices())" ] && [ -e "$here/jax" ]; then echo "[TpuDevice(id=0), TpuDevice(id=1)]"; exit; fi
echo "ModuleNotFoundError: No module named 'jax'" >&2
exit 1
"#;

fn programs(folder: &Path) {
    for (name, text) in [("terraform", TERRAFORM), ("gcloud", GCLOUD), ("python3", PYTHON)] {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rekindle"), folder.join("rekindle")).unwrap();
}

#[tokio::test]
async fn the_last_three_commands_of_the_page_lead_to_a_first_job() {
    let folder = tempfile::tempdir().unwrap();
    programs(folder.path());
    let usual = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{usual}", folder.path().display());
    let dev = Dev::start_with(&path).await;
    let page = "infra/envs/example/README.md";
    let lines: Vec<String> =
        pages::all_lines().into_iter().filter(|(of, _)| of == page).map(|(_, line)| line).collect();
    let [.., doctor, run, logs] = lines.as_slice() else { panic!("{lines:#?}") };
    // One shell, as a person has one: what the first exports holds for the others. `doctor` finds a project with faults.
    let script = format!("{doctor}\n[ $? = 1 ] || exit 9\n{run} || exit 8\n{logs} || exit 7\n");
    let shell = tokio::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder.path())
        .env("PATH", &path)
        .env("PROJECT", "my-project")
        .env("SERVER", &dev.url)
        .env("HOME", "/nonexistent")
        .env_remove("REKINDLE_SERVER")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(DEADLINE, shell).await.expect("the commands hang").unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{:?}: {said}", output.status.code());
    assert!(said.contains("TpuDevice"), "the program ran after its setup: {said}");
    let asked = std::fs::read_to_string(folder.path().join("gcloud.asked")).unwrap();
    assert!(asked.contains("run services list --region=us-west4 --project=my-project"), "{asked}");
    let job = dev.job(folder.path(), "first").await;
    assert_eq!(job["phase"], "succeeded", "{job}");
    dev.stop().await;
}
