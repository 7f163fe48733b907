//! `demo` for real: every process, every call, every claim.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// A machine that builds beside it may take some times the usual half minute.
const DEADLINE: Duration = Duration::from_mins(8);

/// Starts a demonstration whose state is below `folder`.
fn start(folder: &Path, options: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_rekindle"))
        .arg("demo")
        .args(options)
        .env("TMPDIR", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn end(child: Child) -> Output {
    tokio::time::timeout(DEADLINE, child.wait_with_output()).await.expect("it does not end").unwrap()
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

/// Processes whose environment or command line names the folder, without us.
fn processes(folder: &Path) -> Vec<String> {
    let needle = folder.as_os_str().as_encoded_bytes();
    let ids = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let ids = ids.filter(|id| id.parse::<u32>().is_ok_and(|id| id != std::process::id()));
    let names = |id: &str| {
        let read = |file: &str| std::fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
        let has = |bytes: Vec<u8>| bytes.windows(needle.len()).any(|window| window == needle);
        has(read("environ")) || has(read("cmdline"))
    };
    ids.filter(|id| names(id)).collect()
}

#[tokio::test]
async fn a_job_survives_two_preemptions_and_a_broken_connection_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let output = end(start(folder.path(), &["--json", "--seed", "1"])).await;
    let account = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{account}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let line: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    let numbers = ["attempts", "generations", "preemptions", "infra_failures", "resources_left"];
    assert_eq!(numbers.map(|name| line[name].as_u64().unwrap()), [4, 3, 2, 1, 0], "{line}\n{account}");
    assert_eq!(line["outcome"], "succeeded");
    assert_eq!(line["digest"], line["undisturbed_digest"]);
    assert!(line["digest"].as_str().unwrap().starts_with("sha256:"), "{line}");
    for name in ["reaction_ms", "recovery_ms"] {
        assert_eq!(line[name].as_array().unwrap().len(), 2, "{line}");
    }
    assert!(is_empty(folder.path()));
}

#[tokio::test]
async fn an_interrupted_demonstration_leaves_no_process_and_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), &[]);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // In the middle of it: the TPU is being taken away, its successor is being made.
    let fault = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("FAULT") {
                return;
            }
        }
        panic!("no fault was injected");
    };
    tokio::time::timeout(DEADLINE, fault).await.expect("no fault was injected");
    assert!(processes(folder.path()).len() > 4, "{:?}", processes(folder.path()));
    let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let drained = tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    assert_eq!(end(child).await.status.code(), Some(130));
    drained.await.unwrap();
    assert_eq!(processes(folder.path()), Vec::<String>::new());
    assert!(is_empty(folder.path()));
}
