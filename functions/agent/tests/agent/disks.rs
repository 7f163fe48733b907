//! A disk that hangs holds neither a notice nor an end up, and nothing is done twice for it.

use std::path::PathBuf;

use jiff::Timestamp;
use rekindle_core::classify::Exit;
use rekindle_core::exec::{ExecAction, ExecExit, ExecOrder};
use rekindle_core::spec::CommandLine;
use rekindle_wire::agent::{Want, WorkerState};

use crate::cloud::{Cloud, Worker, poll};

/// From now on, to write this file waits as on a disk that hangs: until somebody reads what is to be written.
async fn hang(worker: &Worker, file: &str) -> PathBuf {
    let pipe = worker.home().join("jobs/train/g2").join(format!("{file}.{}.new", worker.agent_pid()));
    let make = || rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0);
    poll("no write is under way", || make().ok()).await;
    pipe
}

/// The disk takes it.
async fn take(pipe: PathBuf) -> Vec<u8> {
    tokio::task::spawn_blocking(move || std::fs::read(pipe)).await.unwrap().unwrap()
}

/// Waits until what is ordered now is heard: by a second report after one that was answered, one of which may have been dropped.
async fn heard(cloud: &Cloud) {
    let before = cloud.set(|inner| inner.reports.len());
    cloud.until("some reports", |inner| (inner.reports.len() >= before + 3).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_holds_back_neither_the_notice_nor_the_sigterm() {
    for file in ["state.json", "a1/notice"] {
        let cloud = Cloud::start("trap 'exit 5' TERM; echo up >up; while :; do sleep 0.02; done").await;
        let mut worker = Worker::start(&cloud);
        cloud.until_running(1).await;
        worker.line("up").await;
        let pipe = hang(&worker, file).await;
        cloud.set(|inner| inner.values.insert("preempted".into(), "TRUE".into()));
        cloud.until("the notice is told", |inner| inner.reports.iter().find(|r| r.notice.is_some()).map(drop)).await;
        let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
        assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(5), true), "{file}");
        take(pipe).await;
        let state = worker.home().join("jobs/train/g2/state.json");
        poll("the newest state is the one that is kept", || {
            let meta = std::fs::symlink_metadata(&state).ok().filter(std::fs::Metadata::is_file);
            let text = meta.and_then(|_| std::fs::read_to_string(&state).ok())?;
            text.contains("\"exited_at_ms\"").then_some(())
        })
        .await;
        cloud.want(Want::Retire);
        assert_eq!(worker.agent_exit().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_a_hanging_disk_holds_up_is_called_off_by_a_stop() {
    let cloud = Cloud::start("echo >started; exec sleep 1000").await;
    let worker = Worker::start(&cloud);
    cloud.until_state(1, WorkerState::Ready).await;
    let pipe = hang(&worker, "state.json").await;
    cloud.want(Want::Run);
    heard(&cloud).await;
    cloud.want(Want::Stop);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Signal(15), true));
    take(pipe).await;
    heard(&cloud).await;
    assert!(!worker.work().join("started").exists());
    assert!(!worker.home().join("jobs/train/g2/a1/run.started.json").exists(), "it was never begun");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_cannot_be_written_down_yet_waits_and_is_begun_once() {
    for is_restarted in [false, true] {
        let cloud = Cloud::start("").await;
        cloud.set(|inner| inner.order.work.as_mut().unwrap().run = CommandLine::Argv(Vec::new()));
        let mut worker = Worker::start(&cloud);
        cloud.until_running(1).await;
        let pipe = hang(&worker, "state.json").await;
        let action = ExecAction::Run(CommandLine::Shell("echo x >>begun".into()));
        let order = ExecOrder { id: 1, attempt: 1, worker: None, at: Timestamp::now(), action, stop_at: None };
        cloud.set(|inner| inner.order.exec = vec![order]);
        heard(&cloud).await;
        assert!(!worker.work().join("begun").exists(), "an agent that died now would do it again");
        if is_restarted {
            worker.kill_agent();
            worker.start_agent();
        } else {
            take(pipe).await;
        }
        let ended = |inner: &crate::cloud::Inner| inner.brought.get(&(1, "exit".to_owned(), 0)).cloned();
        let exit: ExecExit = serde_json::from_slice(&cloud.until("it ends", ended).await).unwrap();
        assert_eq!((exit, worker.line("begun").await.as_str()), (ExecExit { code: 0, error: None }, "x"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_in_memory_is_sent_while_the_disk_hangs() {
    let cloud = Cloud::start("echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 3").await;
    let buffer = tempfile::tempdir().unwrap();
    let worker = Worker::start_with(&cloud, vec![("REKINDLE_BUFFER_DIR", buffer.path().display().to_string())]);
    cloud.until_running(1).await;
    let said =
        |text: &'static [u8]| move |inner: &crate::cloud::Inner| (inner.output(1, "stdout")? == text).then_some(());
    cloud.until("the first", said(b"one\n")).await;
    let pipe = hang(&worker, "a1.sent.json").await;
    std::fs::write(worker.work().join("go"), "").unwrap();
    cloud.until("the second", said(b"one\ntwo\n")).await;
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(3));
    take(pipe).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_is_told_while_what_setup_made_is_not_written_down_yet() {
    let cloud = Cloud::start("exec sleep 1000").await;
    cloud.set(|inner| {
        let work = inner.order.work.as_mut().unwrap();
        work.setup =
            Some(CommandLine::Shell("echo up >up; until [ -e go ]; do sleep 0.02; done; echo done >done".into()));
    });
    let worker = Worker::start(&cloud);
    worker.line("up").await;
    let pipe = hang(&worker, "setup.done").await;
    std::fs::write(worker.work().join("go"), "").unwrap();
    worker.line("done").await;
    // That its end is heard shows in nothing but this paper.
    let ended = worker.home().join("jobs/train/g2/a1/setup.ended.json");
    poll("setup has ended", || ended.exists().then_some(())).await;
    heard(&cloud).await;
    cloud.set(|inner| inner.values.insert("preempted".into(), "TRUE".into()));
    cloud.until("the notice is told", |inner| inner.reports.iter().find(|r| r.notice.is_some()).map(drop)).await;
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert!(exit.ordered);
    take(pipe).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_other_agent_acts_while_a_write_of_one_that_leaves_is_under_way() {
    let cloud = Cloud::start("exec sleep 1000").await;
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let pipe = hang(&worker, "state.json").await;
    let lock = worker.home().join("agent.lock");
    let other = tokio::task::spawn_blocking(move || {
        let lock = std::fs::File::open(lock).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        // The disk takes what is under way now, if anything is.
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        std::fs::File::from(rustix::fs::open(&pipe, flags, rustix::fs::Mode::empty()).unwrap())
    });
    assert_eq!(worker.terminate_agent().await, 75);
    let mut written = Vec::new();
    std::io::Read::read_to_end(&mut other.await.unwrap(), &mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), "", "an old state in the place of the other agent's");
}

/// Holds a lease on a file: whoever opens it waits, as on a disk that hangs.
struct Lease(std::process::Child);

impl Lease {
    fn on(path: &std::path::Path) -> Self {
        let text = "import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print(flush=True)
sys.stdin.read()";
        let mut command = std::process::Command::new("python3");
        command.args(["-c", text]).arg(path).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut is_held = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut is_held).unwrap();
        Self(child)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exit_is_told_without_what_lies_on_a_disk_that_hangs() {
    let run = "echo of the runtime >\"$TPU_LOG_DIR/log\"; echo said; echo up >up
        until [ -e go ]; do sleep 0.02; done; exit 5";
    let cloud = Cloud::start(run).await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    worker.line("up").await;
    let _hangs = Lease::on(&worker.home().join("jobs/train/g2/tpu_logs/a1/log"));
    std::fs::write(worker.work().join("go"), "").unwrap();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.evidence.tail.as_str()), (Exit::Code(5), "said\n"));
    assert!(exit.evidence.disk_free_bytes.is_some(), "the others are asked all the same");
}
