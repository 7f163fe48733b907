//! `demo` for real: every process, every call, every claim.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
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
        .process_group(0)
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
    super::has_the_fields_of_its_example("demo", &line);
    assert_eq!(line["outcome"], "succeeded");
    assert_eq!(line["digest"], line["undisturbed_digest"]);
    assert!(line["digest"].as_str().unwrap().starts_with("sha256:"), "{line}");
    for name in ["reaction_ms", "recovery_ms"] {
        assert_eq!(line[name].as_array().unwrap().len(), 2, "{line}");
    }
    assert!(is_empty(folder.path()));
}

/// Ctrl-C, as a terminal sends it to the whole process group, once a line says this; `None`: right after the start.
async fn interrupted(moment: Option<&str>, processes_then: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), &[]);
    let group = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    if let Some(moment) = moment {
        let said = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains(moment) {
                    return;
                }
            }
            panic!("{moment} was not said");
        };
        tokio::time::timeout(DEADLINE, said).await.expect(moment);
    }
    let alive = processes(folder.path());
    assert!(alive.len() >= processes_then, "{moment:?}: {alive:?}");
    kill_process_group(group, Signal::INT).unwrap();
    let drained = tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let status = end(child).await.status;
    // Before it listens for signals there is nothing to be put in order.
    let is_early = moment.is_none() && status.signal() == Some(Signal::INT.as_raw());
    assert!(is_early || status.code() == Some(130), "{moment:?}: {status}");
    drained.await.unwrap();
    assert_eq!(processes(folder.path()), Vec::<String>::new(), "{moment:?}");
    assert!(is_empty(folder.path()), "{moment:?}");
}

#[tokio::test]
async fn an_interrupted_demonstration_leaves_no_process_and_no_file() {
    interrupted(None, 0).await;
    interrupted(Some("steps on"), 1).await;
    interrupted(Some("starting"), 5).await;
    // The TPU is being taken away, its successor is being made.
    interrupted(Some("FAULT"), 5).await;
}

#[tokio::test]
async fn a_demonstration_without_faults_or_with_one_worker_is_one_too() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        ["--json", "--preemptions", "0", "--grpc-failures", "0", "--workers", "1", "--seed", "18446744073709551615"];
    let output = end(start(folder.path(), &options)).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&line["attempts"], &line["preemptions"]), (&Value::from(1), &Value::from(0)), "{line}");
    assert_eq!((&line["reaction_ms"], &line["steps_repeated"]), (&Value::from(Vec::<u64>::new()), &Value::from(0)));
    assert_eq!(line["digest"], line["undisturbed_digest"]);
    assert!(is_empty(folder.path()));
}

#[tokio::test]
async fn what_cannot_be_demonstrated_is_refused_with_what_can() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (options, code, words) in [
        (&["--workers", "3"][..], 2, "1, 2, 4, 8, 16, 32"),
        (&["--workers", "-4"], 2, "1, 2, 4, 8, 16, 32"),
        (&["--workers", "1"], 1, "--grpc-failures 0"),
        (&["--preemptions", "101"], 2, "0 to 100"),
        (&["--preemptions", "60", "--grpc-failures", "60"], 1, "at most 100"),
        (&["--grpc-failures", "some"], 2, "0 to 100"),
        (&["--seed", "-1"], 2, "0 to 18446744073709551615"),
        (&[], 1, "set TMPDIR"),
    ] {
        let output = end(start(&file, options)).await;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && text.contains(words), "{options:?}: {} {text}", output.status);
    }
}
