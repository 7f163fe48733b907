//! The startup script, with the clients of this machine and with none of them.

use std::io::BufRead as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rekindle_wire::agent::{Want, WorkerState};
use sha2::{Digest as _, Sha256};

use crate::cloud::{Cloud, Worker, order, work};

/// What every Linux has, and no HTTP client.
const TOOLS: [&str; 10] = ["bash", "cat", "chmod", "cp", "mkdir", "mv", "rm", "sha256sum", "sleep", "env"];

async fn bring_up(path: Option<&Path>, cuts: usize) {
    let cloud = Cloud::start("exit 0").await;
    let worker = Worker::bare(&cloud);
    let binary = std::fs::read(env!("CARGO_BIN_EXE_rekindle-agent")).unwrap();
    cloud.set(|inner| {
        let values = [
            ("attributes/rekindle-agent-url", format!("http://{}/agent-binary", cloud.address)),
            ("attributes/rekindle-agent-sha256", hex::encode(Sha256::digest(&binary))),
        ];
        inner.values.extend(values.map(|(key, value)| (key.to_owned(), value)));
        (inner.binary, inner.cuts) = (binary, cuts);
        inner.order = order(1, Want::Run, Some(work(1, "exit 0")));
    });
    let mut command = Command::new("bash");
    command.arg("-c").arg(rekindle_agent::STARTUP_SCRIPT).env("TPU_EMULATOR", "1");
    worker.environment(&mut command);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let mut script = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    cloud.until_state(1, WorkerState::Exited).await;
    cloud.want(Want::Retire);
    let ended = tokio::task::spawn_blocking(move || script.wait().unwrap());
    let status = tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the script ends").unwrap();
    assert_eq!(status.code(), Some(0));
    let downloads = cloud.set(|inner| inner.downloads.clone());
    let goes_on = downloads.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(downloads.len() == cuts + 1 && downloads[0] == 0 && goes_on, "where the last was cut: {downloads:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_startup_script_brings_up_the_agent() {
    bring_up(None, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_that_is_cut_goes_on_where_it_was() {
    bring_up(None, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_startup_script_needs_no_http_client() {
    let tools = tempfile::tempdir().unwrap();
    for tool in TOOLS {
        let found =
            std::env::split_paths(&std::env::var_os("PATH").unwrap()).map(|dir| dir.join(tool)).find(|p| p.exists());
        symlink(found.unwrap(), tools.path().join(tool)).unwrap();
    }
    bring_up(Some(tools.path()), 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_way_out_the_startup_script_says_so_and_fetches_nothing() {
    let cloud = Cloud::start("exit 0").await;
    let worker = Worker::bare(&cloud);
    cloud.set(|inner| {
        let values = [
            ("attributes/rekindle-agent-url", format!("http://{}/agent-binary", cloud.address)),
            ("attributes/rekindle-agent-sha256", "0".repeat(64)),
        ];
        inner.values.extend(values.map(|(key, value)| (key.to_owned(), value)));
    });
    let mut command = Command::new("bash");
    command.arg("-c").arg(rekindle_agent::STARTUP_SCRIPT).env("TPU_EMULATOR", "1").env("TPU_EMULATOR_EGRESS", "none");
    worker.environment(&mut command);
    let mut script = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let said = script.stderr.take().unwrap();
    let said = tokio::task::spawn_blocking(move || {
        std::io::BufReader::new(said).lines().map_while(Result::ok).find(|line| line.contains("no Cloud NAT"))
    });
    let line = tokio::time::timeout(Duration::from_secs(20), said).await.expect("it says why").unwrap();
    script.kill().unwrap();
    script.wait().unwrap();
    assert!(line.unwrap().contains(&format!("http://{}/agent-binary", cloud.address)));
    assert!(cloud.set(|inner| inner.downloads.is_empty()), "nothing was fetched");
}
