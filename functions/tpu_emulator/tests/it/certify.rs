//! `infra/certify.sh` against the emulator: it asks everything, leaves nothing, and keeps nothing of the project.

use std::path::Path;

use crate::bench::{Bench, ZONE};

#[tokio::test(flavor = "multi_thread")]
async fn the_certification_asks_everything_and_leaves_nothing() {
    let bench = Bench::with(|config| config.speed = 50.0).await;
    let out = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/certify.sh");
    let run = tokio::process::Command::new("bash")
        .arg(script)
        .arg(out.path())
        .env("PROJECT", "secret-project")
        .env("ZONE", ZONE)
        .env("TPU_API", bench.endpoint())
        .env("ACCELERATOR", "v5litepod-4")
        .env("PAUSE", "0.1")
        .output()
        .await
        .unwrap();
    let told = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{told}");
    for (line, why) in [
        ("wrong runtime version: 400", "a wrong runtime version is refused"),
        ("create: 200, metadata of type", "a create answers an operation"),
        ("the same name again: 200", "a name may be used again"),
        ("READY after", "a node comes up"),
        ("queued resource: ACTIVE", "a queued resource comes up"),
        ("delete without force while ACTIVE: 400", "it is not deleted without force"),
        ("delete with force: 200", "it is deleted with force"),
    ] {
        assert!(told.contains(line), "{why}: {told}");
    }
    for entry in std::fs::read_dir(out.path()).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("secret-project"), "{} keeps the project", path.display());
    }
    bench.end().await;
}
