//! The startup script, with the clients of this machine and with none of them.

use std::io::BufRead as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rekindle_core::classify::Exit;
use rekindle_wire::agent::{Want, WorkerState};
use sha2::{Digest as _, Sha256};

use crate::cloud::{Cloud, Worker, order, work};
use crate::evidence::skipped;

/// What every Linux has, and no HTTP client.
const TOOLS: [&str; 10] = ["bash", "cat", "chmod", "cp", "mkdir", "mv", "rm", "sha256sum", "sleep", "env"];

async fn bring_up(path: Option<&Path>, cuts: usize) {
    let cloud = Cloud::start("exit 0").await;
    let url = format!("http://{}/agent-binary", cloud.address);
    let downloads = bring_up_for(&cloud, &url, "exit 0", Exit::Code(0), path, cuts).await;
    let goes_on = downloads.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(downloads.len() == cuts + 1 && downloads[0] == 0 && goes_on, "where the last was cut: {downloads:?}");
}

/// The script runs until its program has ended so. Where each download began.
async fn bring_up_for(cloud: &Cloud, url: &str, run: &str, exit: Exit, path: Option<&Path>, cuts: usize) -> Vec<usize> {
    let worker = Worker::bare(cloud);
    let binary = std::fs::read(env!("CARGO_BIN_EXE_rekindle-agent")).unwrap();
    cloud.set(|inner| {
        let values = [
            ("attributes/rekindle-agent-url", url.to_owned()),
            ("attributes/rekindle-agent-sha256", hex::encode(Sha256::digest(&binary))),
        ];
        inner.values.extend(values.map(|(key, value)| (key.to_owned(), value)));
        (inner.binary, inner.cuts) = (binary, cuts);
        inner.order = order(1, Want::Run, Some(work(1, run)));
    });
    let mut command = Command::new("bash");
    command.arg("-c").arg(rekindle_agent::STARTUP_SCRIPT).env("TPU_EMULATOR", "1");
    command.env("STORAGE_EMULATOR_HOST", &cloud.address);
    worker.environment(&mut command);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let mut script = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let told = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((told.evidence.exit, told.evidence.rebooted), (exit, false));
    cloud.want(Want::Retire);
    let ended = tokio::task::spawn_blocking(move || script.wait().unwrap());
    let status = tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the script ends").unwrap();
    assert_eq!(status.code(), Some(0));
    cloud.set(|inner| inner.downloads.clone())
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
async fn an_agent_that_was_removed_is_fetched_again_once_it_is_to_be_started() {
    // Its shim makes the papers again, and is a child of the agent.
    let run = "rm -rf \"${REKINDLE_PROGRESS_FILE%/*/*/*/*/*}\"
        until [ -e \"${REKINDLE_PROGRESS_FILE%/*}/run.started.json\" ]; do sleep 0.02; done
        read -r pid name state agent rest </proc/$PPID/stat; kill -9 $agent; exit 3";
    let cloud = Cloud::start(run).await;
    let url = format!("http://{}/agent-binary", cloud.address);
    assert_eq!(bring_up_for(&cloud, &url, run, Exit::Code(3), None, 0).await, [0, 0]);
}

/// A folder with what every Linux has.
fn tools() -> tempfile::TempDir {
    let tools = tempfile::tempdir().unwrap();
    for tool in TOOLS {
        let found =
            std::env::split_paths(&std::env::var_os("PATH").unwrap()).map(|dir| dir.join(tool)).find(|p| p.exists());
        symlink(found.unwrap(), tools.path().join(tool)).unwrap();
    }
    tools
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_startup_script_needs_no_http_client() {
    bring_up(Some(tools().path()), 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_in_a_bucket_is_fetched_by_its_name_with_the_machines_token() {
    let tools = tools();
    let digest = hex::encode(Sha256::digest(std::fs::read(env!("CARGO_BIN_EXE_rekindle-agent")).unwrap()));
    for path in [None, Some(tools.path())] {
        let cloud = Cloud::start("exit 0").await;
        bring_up_for(&cloud, &format!("gs://b/agents/{digest}"), "exit 0", Exit::Code(0), path, 0).await;
        let address = format!("/storage/v1/b/b/o/agents%2F{digest}?alt=media");
        assert_eq!(cloud.set(|inner| inner.objects.clone()), [(address, "Bearer the-machines".to_owned())]);
    }
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

/// In a mount namespace of its own: a machine that was booted with systemd, and a `systemctl` that writes down what it is told.
const WITH_SYSTEMD: &str = r#"
set -euo pipefail
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /etc/systemd
mkdir -p /run/systemd/system /etc/systemd/system
bash -c "$SCRIPT"
cat /etc/systemd/system/rekindle-agent.service >"$OUT/unit"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_systemd_each_boot_installs_the_unit_anew_and_the_agent_is_fetched_once() {
    const NAME: &str = "with_systemd_each_boot_installs_the_unit_anew_and_the_agent_is_fetched_once";
    let is_possible = Path::new("/etc/systemd").is_dir()
        && Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success());
    if !is_possible {
        return skipped(NAME, "nothing may be mounted here, or there is no /etc/systemd");
    }
    let cloud = Cloud::start("exit 0").await;
    let worker = Worker::bare(&cloud);
    let binary = b"an agent".to_vec();
    let digest = hex::encode(Sha256::digest(&binary));
    cloud.set(|inner| {
        let values = [
            ("attributes/rekindle-agent-url", format!("http://{}/agent-binary", cloud.address)),
            ("attributes/rekindle-agent-sha256", digest.clone()),
            ("attributes/rekindle-agent-args", "__agent".to_owned()),
        ];
        inner.values.extend(values.map(|(key, value)| (key.to_owned(), value)));
        inner.binary = binary;
    });
    let out = tempfile::tempdir().unwrap();
    let systemctl = out.path().join("systemctl");
    std::fs::write(&systemctl, "#!/bin/bash\necho \"$*\" >>\"$OUT/told\"\n").unwrap();
    std::fs::set_permissions(&systemctl, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for boot in 1..=2 {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "bash", "-c", WITH_SYSTEMD]);
        worker.environment(&mut command);
        command.env("SCRIPT", rekindle_agent::STARTUP_SCRIPT).env("OUT", out.path());
        command.env("PATH", format!("{}:{}", out.path().display(), std::env::var("PATH").unwrap()));
        let ended = tokio::task::spawn_blocking(move || command.output().unwrap());
        let output = tokio::time::timeout(Duration::from_mins(1), ended).await.expect("the script ends").unwrap();
        assert!(output.status.success(), "boot {boot}: {}", String::from_utf8_lossy(&output.stderr));
        let unit = std::fs::read_to_string(out.path().join("unit")).unwrap();
        let agent = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let (agent, words) = agent.split_once(' ').unwrap();
        assert!(agent.ends_with(&format!("/bin/rekindle-agent-{digest}")) && words == "__agent", "{unit}");
        assert_eq!(std::fs::read(agent).unwrap(), b"an agent");
        for line in [
            "Restart=always",
            "KillMode=process",
            "OOMPolicy=continue",
            "Environment=REKINDLE_BUFFER_DIR=/dev/shm/rekindle",
        ] {
            assert!(unit.lines().any(|one| one == line), "{line}: {unit}");
        }
        // What is the agent's, a program has removed.
        std::fs::remove_dir_all(worker.home()).unwrap();
        let before = unit.lines().find_map(|line| line.strip_prefix("ExecStartPre=-")).unwrap();
        for _ in 0..2 {
            assert!(Command::new("bash").args(["-c", before]).status().unwrap().success(), "{before}");
            assert_eq!(std::fs::read(agent).unwrap(), b"an agent");
        }
        // What is kept is half of one, or an older one.
        let kept = PathBuf::from(format!("{}.agent", worker.home().display()));
        std::fs::remove_file(&kept).and_then(|()| std::fs::write(&kept, b"an ag")).unwrap();
        std::fs::rename(agent, out.path().join("whole")).unwrap();
        assert!(!Command::new("bash").args(["-c", before]).status().unwrap().success() && !Path::new(agent).exists());
        std::fs::rename(out.path().join("whole"), agent).unwrap();
        let told = std::fs::read_to_string(out.path().join("told")).unwrap();
        let due = "daemon-reload\nrestart rekindle-agent.service\n".repeat(boot);
        assert_eq!(told, due, "boot {boot}");
        assert_eq!(cloud.set(|inner| inner.downloads.len()), 1, "boot {boot}");
    }
    std::fs::remove_file(format!("{}.agent", worker.home().display())).unwrap();
    // What holds its lock right after boot is not asked for anything.
    let script = rekindle_agent::STARTUP_SCRIPT;
    let words = script.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(str::split_whitespace);
    assert!(!words.into_iter().any(|word| ["apt", "apt-get", "dpkg", "snap"].contains(&word)));
}
