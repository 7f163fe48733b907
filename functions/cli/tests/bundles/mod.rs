//! From a folder to a finished job: `run` sends the folder, and every attempt runs its bytes, whatever it has become.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rekindle_core::decide::apply_command;
use rekindle_core::ids::JobId;
use rekindle_local::RedbDocs;
use rekindle_ports::store::Store;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{project, server, shell};

/// A machine that builds beside it may take some times the usual half minute.
pub(super) const DEADLINE: Duration = Duration::from_mins(5);

/// What the program of the test prints; it waits to be preempted the first time.
const PROGRAM: &str = r#"
set -e
echo "attempt $REKINDLE_ATTEMPT runs $(cat words/what.txt) by $(readlink latest), mode $(stat -c %a words/tool.sh)"
./words/tool.sh
test ! -e ignored.bin || echo "ignored.bin is here"
if [ "$REKINDLE_ATTEMPT" = 1 ]; then echo "step=1" >>"$REKINDLE_PROGRESS_FILE"; exec sleep 600; fi
"#;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::create_dir(root.join("words")).unwrap();
    for (name, text) in [
        ("train.sh", PROGRAM),
        ("words/what.txt", "the first words"),
        ("words/tool.sh", "#!/bin/bash\necho a tool of the folder\n"),
        (".gitignore", "*.bin\n"),
        ("ignored.bin", "x"),
    ] {
        std::fs::write(root.join(name), text).unwrap();
    }
    std::fs::set_permissions(root.join("words/tool.sh"), std::fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::symlink("train.sh", root.join("latest")).unwrap();
    folder
}

/// A `dev` that ends with its state.
pub(super) struct Dev {
    child: Child,
    pub(super) url: String,
    tpu_url: String,
    state: tempfile::TempDir,
}

impl Dev {
    async fn start() -> Self {
        Self::start_with(&std::env::var("PATH").unwrap_or_default()).await
    }

    /// With this search path for itself and its workers.
    pub(super) async fn start_with(path: &str) -> Self {
        Self::start_as(path, Stdio::null(), "").await
    }

    /// With these places for its log, and what it says there.
    async fn start_as(path: &str, log: Stdio, filter: &str) -> Self {
        Self::start_on(tempfile::tempdir().unwrap(), path, log, filter).await
    }

    /// On what is in that folder.
    async fn start_on(state: tempfile::TempDir, path: &str, log: Stdio, filter: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rekindle"))
            .args(["dev", "--json", "--port", "0", "--tpu-port", "0", "--speed", "10", "--state"])
            .arg(state.path())
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .env("REKINDLE_LOG", filter)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap().unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        super::has_the_fields_of_its_example("dev", &said);
        let text = |name: &str| said[name].as_str().unwrap().to_owned();
        Self { child, url: text("url"), tpu_url: text("tpu_url"), state }
    }

    async fn rekindle(&self, folder: &Path, words: &[&str]) -> Output {
        let run = Command::new(env!("CARGO_BIN_EXE_rekindle"))
            .args(words)
            .current_dir(folder)
            .env("REKINDLE_SERVER", &self.url)
            .env("HOME", "/nonexistent")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        tokio::time::timeout(DEADLINE, run).await.expect("the command hangs").unwrap()
    }

    pub(super) async fn job(&self, folder: &Path, id: &str) -> Value {
        serde_json::from_slice(&self.rekindle(folder, &["show", id, "--json"]).await.stdout).unwrap()
    }

    async fn preempt(&self, job: &Value) {
        let name = job["resources"][0]["name"].as_str().unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let address = format!("{}/emulator/v1/nodes/{name}/preempt", self.tpu_url.trim_end_matches('/'));
        let answer = http.post(address).json(&json!({"notice": "5s", "leave": "PREEMPTED"})).send().await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
    }

    /// Ends it in order, and its state with it.
    pub(super) async fn stop(self) {
        drop(self.end().await);
    }

    /// Ends it in order.
    async fn end(mut self) -> tempfile::TempDir {
        let pid = Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let ended = tokio::time::timeout(DEADLINE, self.child.wait()).await;
        assert!(ended.is_ok(), "it does not end");
        self.state
    }
}

pub(super) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nothing() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let (dev, folder) = (Dev::start_as(&path, full.into(), "debug").await, folder());
    let run = ["run", "--id", "quiet", "--tpu", "v5litepod-8", "--wait", "--", "true"];
    let output = dev.rekindle(folder.path(), &run).await;
    assert!(output.status.success(), "{}", text(&output));
    dev.stop().await;
}

/// Of a worker's word, or a command, that was stored just before the process was killed: neither is a wake-up due, nor a hint left.
#[tokio::test]
async fn a_job_of_which_the_hint_was_lost_goes_on_when_dev_is_started_again() {
    let (dev, folder) = (Dev::start().await, folder());
    for words in [&["freeze"][..], &["run", "--id", "lost", "--tpu", "v5litepod-8", "--no-code", "--", "true"]] {
        let output = dev.rekindle(folder.path(), words).await;
        assert!(output.status.success(), "{}", text(&output));
    }
    let state = dev.end().await;
    {
        let store = Store::new(Arc::new(RedbDocs::open(state.path().join("store.redb")).unwrap()));
        let lost = store.job(&JobId::parse("lost").unwrap()).await.unwrap().unwrap();
        let now = jiff::Timestamp::now();
        let mut job = apply_command(&lost.value, rekindle_core::decide::Command::Cancel, now).unwrap().unwrap();
        job.wake_at = None;
        store.commit_job(lost.revision, &Arc::new(job), None, Vec::new()).await.unwrap();
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let dev = Dev::start_on(state, &path, Stdio::null(), "").await;
    let output = dev.rekindle(folder.path(), &["wait", "lost"]).await;
    assert_eq!(output.status.code(), Some(3), "it is cancelled: {}", text(&output));
    dev.stop().await;
}

#[tokio::test]
async fn every_attempt_runs_the_bytes_that_were_sent_though_the_folder_has_changed() {
    let (dev, folder) = (Dev::start().await, folder());
    let here = folder.path();
    let run = ["run", "--id", "frozen", "--tpu", "v5litepod-8", "--", "bash", "train.sh"];
    let output = dev.rekindle(here, &run).await;
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("sent 4 files and 1 link"), "{}", text(&output));
    let mut job = Value::Null;
    for _ in 0..3000 {
        job = dev.job(here, "frozen").await;
        if job["progress"]["step"] == 1 {
            break;
        }
        assert!(job["outcome"].is_null(), "{job}");
        tokio::time::sleep(Duration::from_millis(100)).await; // between two looks
    }
    assert_eq!(job["progress"]["step"], 1, "{job}");
    std::fs::write(here.join("words/what.txt"), "other words").unwrap();
    std::fs::remove_file(here.join("words/tool.sh")).unwrap();
    dev.preempt(&job).await;
    let output = dev.rekindle(here, &["wait", "frozen"]).await;
    let logs = text(&dev.rekindle(here, &["logs", "frozen"]).await);
    assert!(output.status.success(), "{}{logs}", text(&output));
    for attempt in [1, 2] {
        let line = format!("attempt {attempt} runs the first words by train.sh, mode 750");
        assert!(logs.contains(&line), "{line:?} in {logs}");
    }
    assert_eq!(logs.matches("a tool of the folder").count(), 2, "{logs}");
    assert!(!logs.contains("ignored.bin"), "{logs}");
    let job = dev.job(here, "frozen").await;
    assert_eq!(job["counters"]["preemptions"], 1, "{job}");

    // A changed folder is sent, an equal one is not.
    let output = dev.rekindle(here, &["run", "--tpu", "v5litepod-8", "--dry-run", "--", "true"]).await;
    assert!(text(&output).contains("would send 3 files and 1 link"), "{}", text(&output));
    assert!(text(&output).contains("would ask for"), "{}", text(&output));
    for how in ["sent 3 files and 1 link", "the server has it already: 3 files and 1 link"] {
        let output = dev.rekindle(here, &["run", "--tpu", "v5litepod-8", "--wait", "--", "true"]).await;
        assert!(output.status.success() && text(&output).contains(how), "{how}: {}", text(&output));
    }
    dev.stop().await;
}

#[tokio::test]
async fn an_upload_that_breaks_off_goes_on_where_it_was() {
    let (server, folder) = (server::start().await, folder());
    let run = "rekindle run --tpu v5litepod-8 -- bash train.sh";
    let output = super::rekindle_in(&server, folder.path(), run).await;
    let said = text(&output);
    assert!(output.status.success() && said.contains("503") && said.contains("sent 4 files and 1 link"), "{said}");
    let code = server.bodies()[0]["code"].as_str().unwrap().to_owned();
    assert!(code.starts_with("gs://bucket/bundles/") && code.ends_with(".tar.zst"), "{code}");
    let again = super::rekindle_in(&server, folder.path(), run).await;
    assert!(text(&again).contains("the server has it already"), "{}", text(&again));
    assert_eq!(server.bodies()[1]["code"], code);
}

#[tokio::test]
async fn an_upload_of_which_only_the_answer_was_lost_is_not_sent_again() {
    let (server, folder) = (server::start().await, folder());
    server.lose_answers();
    let output = super::rekindle_in(&server, folder.path(), "rekindle run --tpu v5litepod-8 -- bash train.sh").await;
    let said = text(&output);
    assert!(
        output.status.success() && said.contains("sent 4 files and 1 link") && !said.contains("trying again"),
        "{said}"
    );
    assert_eq!(server.uploads(), ["1: all"], "it is there");
}

#[tokio::test]
async fn an_upload_whose_command_was_killed_is_gone_on_with_by_the_next() {
    let (server, folder, home) = (server::start().await, folder(), tempfile::tempdir().unwrap());
    let temporary = tempfile::tempdir().unwrap();
    server.stall_next_upload();
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rekindle"));
        command.args(["run", "--tpu", "v5litepod-8", "--", "bash", "train.sh"]).current_dir(folder.path());
        command.env("REKINDLE_SERVER", server.url()).env("HOME", home.path()).env_remove("XDG_STATE_HOME");
        command.env("TMPDIR", temporary.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    };
    let mut first = run().spawn().unwrap();
    tokio::time::timeout(DEADLINE, server.stalled()).await.expect("no upload began");
    first.kill().await.unwrap();
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "no bundle is left behind");
    let again = tokio::time::timeout(DEADLINE, run().output()).await.expect("the command hangs").unwrap();
    assert!(again.status.success() && text(&again).contains("sent 4 files and 1 link"), "{}", text(&again));
    // The server checks that the second part goes to the first address, from where that is on.
    assert_eq!(server.uploads(), ["1: all", "1: how far?", "1: the rest"]);
    let left = std::fs::read_dir(home.path().join(".local/state/rekindle/uploads")).unwrap().count();
    assert_eq!(left, 0, "what is done is forgotten");
}

#[tokio::test]
async fn a_job_with_a_wrong_field_is_refused_before_its_folder_is_packed() {
    let (server, folder) = (server::start().await, folder());
    for line in ["run --tpu v5e-16 -- bash train.sh", "up new --tpu v5e-16 --folder ."] {
        // Where nothing can be written, nothing is packed.
        let line = format!("TMPDIR=/nowhere exec \"$REKINDLE\" {line}");
        let output = super::shell(&server, folder.path(), &line).await;
        let said = text(&output);
        assert!(!output.status.success() && said.contains("did you mean v5litepod-16?"), "{line}: {said}");
    }
    assert_eq!((server.addresses(), server.bodies().len()), (0, 0));
}

#[tokio::test]
async fn what_the_user_has_set_holds_anywhere_and_what_this_machine_ignores_does_not() {
    let (server, folder, home) = (server::start().await, folder(), tempfile::tempdir().unwrap());
    let config = format!(
        "folder = \"words\"\n[folders]\nwords = {:?}\n[aliases]\ndepth = \"--mine\"\n",
        folder.path().canonicalize().unwrap()
    );
    std::fs::create_dir_all(home.path().join(".config/rekindle")).unwrap();
    std::fs::write(home.path().join(".config/rekindle/config.toml"), config).unwrap();
    // Rules of this machine, and of search tools.
    std::fs::create_dir_all(home.path().join(".config/git")).unwrap();
    std::fs::write(home.path().join(".config/git/ignore"), "*.sh\n").unwrap();
    std::fs::create_dir(home.path().join("elsewhere")).unwrap();
    let line = "HOME=$PWD/.. \"$REKINDLE\" run --tpu v5litepod-8 depth=a=b -- bash train.sh";
    let output = super::shell(&server, &home.path().join("elsewhere"), line).await;
    let said = text(&output);
    let sent = format!("sent 4 files and 1 link of {}", folder.path().canonicalize().unwrap().display());
    assert!(output.status.success() && said.contains(&sent), "{said}");
    assert_eq!(server.bodies()[0]["run"], json!(["bash", "train.sh", "--mine=a=b"]));
    std::fs::write(folder.path().join(".rekindleignore"), "*\n").unwrap();
    let output = super::shell(&server, &home.path().join("elsewhere"), line).await;
    let said = text(&output);
    assert!(said.contains("no file of ") && said.contains(".rekindleignore name every one"), "{said}");
}

#[tokio::test]
async fn the_commit_and_what_differs_from_it_are_submitted() {
    let (server, folder) = (server::start().await, folder());
    let git = "git -c user.name=a -c user.email=a@b.c -c commit.gpgsign=false";
    let commit = format!("git init -q -b main && git add -A && {git} commit -q -m all && git rev-parse HEAD");
    let output = super::shell(&server, folder.path(), &commit).await;
    let commit = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    assert_eq!(commit.len(), 40, "{}", String::from_utf8_lossy(&output.stderr));
    for is_dirty in [false, true] {
        let output =
            super::rekindle_in(&server, folder.path(), "rekindle run --tpu v5litepod-8 -- bash train.sh").await;
        assert!(output.status.success(), "{}", text(&output));
        let source = server.bodies().last().unwrap()["source"].clone();
        let name = folder.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(source, json!({"folder": name, "commit": commit, "branch": "main", "dirty": is_dirty}));
        std::fs::write(folder.path().join("words/what.txt"), "other words").unwrap();
    }
}

#[tokio::test]
async fn a_folder_that_is_too_large_or_no_program_is_refused_with_what_to_do() {
    let (server, folder) = (server::start().await, folder());
    let run = "rekindle run --tpu v5litepod-8 -- true";
    let big = folder.path().join("data");
    std::fs::create_dir(&big).unwrap();
    // Without blocks on the disk.
    std::fs::File::create(big.join("train.rec")).unwrap().set_len(600 << 20).unwrap();
    let output = super::rekindle_in(&server, folder.path(), run).await;
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    let place = folder.path().canonicalize().unwrap();
    let what = format!("the folder {} is too large to send: 600.0 MiB, where 512.0 MiB are allowed", place.display());
    let next = "name what is no program in .rekindleignore (as in .gitignore), and read data from a bucket";
    for word in [&what, "600.0 MiB data/train.rec", next] {
        assert!(said.contains(word), "{word:?} in {said}");
    }
    std::fs::write(folder.path().join(".rekindleignore"), "data/\n").unwrap();
    let output = super::rekindle_in(&server, folder.path(), run).await;
    assert!(output.status.success(), "{}", text(&output));
    let output = super::rekindle_in(&server, Path::new("/"), run).await;
    assert!(text(&output).contains("--folder") && !output.status.success(), "{}", text(&output));
    let line = "HOME=$PWD \"$REKINDLE\" run --tpu v5litepod-8 -- true";
    let output = super::shell(&server, folder.path(), line).await;
    assert!(text(&output).contains("your home folder"), "{}", text(&output));
}

#[tokio::test]
async fn an_environment_stays_here_and_a_secret_goes_along_with_a_word() {
    let server = server::start().await;
    let home = project();
    let folder = home.path().join("project");
    let run = "$REKINDLE run --tpu v5litepod-8 --dry-run --files -- true 2>&1 >/dev/null";
    let script = format!(
        "echo A=1 >.env; mkdir .aws; echo >.aws/credentials; mkdir -p .venv/bin; touch .venv/pyvenv.cfg .venv/bin/python; {run}"
    );
    let said = String::from_utf8(shell(&server, &folder, &script).await.stdout).unwrap();
    assert!(said.contains("warning: the virtual environment .venv is not sent: let `setup` make one"), "{said}");
    assert!(
        said.contains("warning: .aws/credentials, .env may hold secrets, and go along")
            && said.contains("lines in .rekindleignore leave them out"),
        "{said}"
    );
    assert!(said.contains("\n  .env\n") && !said.contains(".venv/bin"), "{said}");
    let said = shell(&server, &folder, &format!("printf '.env\n.aws\n' >>.rekindleignore; {run}")).await.stdout;
    let said = String::from_utf8(said).unwrap();
    assert!(!said.contains(".env may") && !said.contains("\n  .env\n"), "{said}");
}

#[tokio::test]
async fn a_folder_that_is_an_environment_is_refused_and_one_with_a_program_in_it_is_told_of() {
    let server = server::start().await;
    let home = project();
    let run = "$REKINDLE run --tpu v5litepod-8 --dry-run --files -- true 2>&1 >/dev/null";
    let make = "mkdir -p v/bin v/lib; touch v/pyvenv.cfg v/bin/python";
    let output = shell(&server, home.path(), &format!("{make}; cd v; {run}")).await;
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("/v is a virtual environment of Python, which works on this machine alone; it is not"),
        "{said}"
    );
    assert!(said.contains("\nnext: go to the folder of the program, name it with --folder"), "{said}");

    let output = shell(&server, home.path(), &format!("{make}; cd v; echo >train.py; {run}")).await;
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("/v is itself a virtual environment (pyvenv.cfg)") && said.contains("let `setup` make"),
        "{said}"
    );
    assert!(said.contains("\n  train.py\n"), "{said}");

    let output = shell(&server, home.path(), &format!("mkdir only; cd only; {make}; {run}")).await;
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("warning: the virtual environment v is not sent"), "{said}");
    assert!(said.contains("/only is sent: but a virtual environment there is none in it"), "{said}");
}
