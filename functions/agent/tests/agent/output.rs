//! What a program says reaches the log whatever it does with its streams, and whatever the disk and the shim do.

use std::fs::OpenOptions;
use std::io::Write as _;

use rekindle_core::classify::Exit;
use rekindle_wire::agent::{Want, WorkerState};

use crate::cloud::{Cloud, Worker, poll, until_dead};
use crate::logs::{marked, numbers};

/// Waits for a stream of attempt 1 to have so many bytes at least, and gives all.
async fn output(cloud: &Cloud, stream: &str, len: usize) -> Vec<u8> {
    let whole = |inner: &crate::cloud::Inner| inner.output(1, stream).filter(|out| out.len() >= len);
    cloud.until(&format!("{len} bytes of {stream}"), whole).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_opened_by_its_name_loses_nothing() {
    let run = "seq 1 50000; echo one >/dev/stdout; seq 50001 50100 | tee /dev/stderr; echo two >/dev/stderr; exit 3";
    let cloud = Cloud::start(run).await;
    let _worker = Worker::start(&cloud);
    cloud.set(|inner| inner.takes_no_logs = true);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    cloud.until_state(1, WorkerState::Exited).await;
    cloud.set(|inner| inner.takes_no_logs = false);
    let due = [numbers(1, 50_000), b"one\n".to_vec(), numbers(50_001, 50_100)].concat();
    assert!(output(&cloud, "stdout", due.len()).await == due, "what had waited is gone");
    let due = [numbers(50_001, 50_100), b"two\n".to_vec()].concat();
    assert_eq!(output(&cloud, "stderr", due.len()).await, due);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_is_killed_has_said_all_that_it_said() {
    let cloud = Cloud::start("seq 1 300000; printf 'no end' >&2; kill -9 $$").await;
    let _worker = Worker::start(&cloud);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Signal(9));
    assert!(exit.evidence.tail.ends_with("\n300000\nno end"), "it is evidence, too");
    // Sent before the end is told: the machine may be gone right after it.
    let (out, err) = cloud.set(|inner| (inner.output(1, "stdout").unwrap(), inner.output(1, "stderr").unwrap()));
    assert!(out == numbers(1, 300_000), "{} bytes", out.len());
    assert_eq!(err, b"no end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_without_an_end_is_sent_within_a_short_notice() {
    let run = "trap 'printf \" last words\"; exit 1' TERM; printf 'half a line'; while :; do sleep 0.02; done";
    let cloud = Cloud::start(run).await;
    // So long that only the notice can have sent it.
    let flush = ("REKINDLE_LOG_FLUSH_MS", "600000".to_owned());
    let _worker = Worker::start_with(&cloud, vec![flush, ("REKINDLE_PREEMPTION_NOTICE_MS", "1000".to_owned())]);
    cloud.until_running(1).await;
    cloud.set(|inner| inner.values.insert("preempted".into(), "TRUE".into()));
    cloud.until_state(1, WorkerState::Exited).await;
    let out = cloud.set(|inner| inner.output(1, "stdout").unwrap());
    assert_eq!(String::from_utf8_lossy(&out), "half a line last words");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_disk_that_stays_full_the_last_words_and_the_end_are_told() {
    let run = "cat /dev/zero >fill 2>/dev/null; seq 1 300000; printf 'no end' >&2; exit 3";
    let cloud = Cloud::start(run).await;
    let Some(mut worker) = Worker::with_small_disk(&cloud, None, Vec::new()) else { return };
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(3), false));
    assert!(exit.evidence.tail.ends_with("no end"), "{:?}", exit.evidence.tail);
    assert!(exit.evidence.disk_free_bytes.unwrap() < 1 << 20, "the disk is full to the end");
    // Each part that is sent makes room for the next.
    let due = numbers(1, 300_000);
    assert!(output(&cloud, "stdout", due.len()).await == due, "in = out");
    assert_eq!(output(&cloud, "stderr", 6).await, b"no end");
    assert!(std::fs::metadata(worker.work().join("fill")).unwrap().len() > 6 << 20, "nobody has made room");
    cloud.want(Want::Retire);
    assert_eq!(worker.agent_exit().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_is_told_when_what_the_full_disk_held_up_is_sent() {
    let cloud = Cloud::start("cat /dev/zero >fill 2>/dev/null; seq 1 1000000").await;
    let flush = ("REKINDLE_LOG_FLUSH_MS", "600000".to_owned());
    let Some(_worker) = Worker::with_small_disk(&cloud, None, vec![flush]) else { return };
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    cloud.until_state(1, WorkerState::Exited).await;
    // Ten times the room that there is: each part was sent to make some for the next.
    let out = cloud.set(|inner| inner.output(1, "stdout").unwrap());
    assert!(out == numbers(1, 1_000_000), "{} bytes", out.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_disk_costs_stands_in_the_output_with_its_count() {
    // More than may wait in memory, at once and without waiting for the disk.
    let run = "seq 1 1000; cat /dev/zero >fill 2>/dev/null; seq 1001 3000000; echo said >$MARK/said
        until [ -e $MARK/go ]; do sleep 0.02; done; rm fill; echo bye; exit 3";
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let cloud = Cloud::start(&run.replace("$MARK", &elsewhere.path().display().to_string())).await;
    let Some(_worker) = Worker::with_small_disk(&cloud, None, Vec::new()) else { return };
    // What was sent would make room.
    cloud.set(|inner| inner.takes_no_logs = true);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    poll("the program was not held up", || elsewhere.path().join("said").exists().then_some(())).await;
    cloud.set(|inner| inner.takes_no_logs = false);
    std::fs::write(elsewhere.path().join("go"), "").unwrap();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(3));
    let out = cloud.until("the end", |inner| inner.output(1, "stdout").filter(|out| out.ends_with(b"\nbye\n"))).await;
    let due = [numbers(1, 3_000_000), b"bye\n".to_vec()].concat();
    let marked = marked(&out, &due, "the worker's disk was full");
    assert!(marked > 8 << 20, "{marked} of {} bytes", due.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_a_stream_open_holds_up_no_end() {
    let cloud = Cloud::start("echo $$ >program; until [ -e go ]; do sleep 0.02; done; echo bye").await;
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let program = worker.line("program").await;
    let mut held = OpenOptions::new().write(true).open(format!("/proc/{program}/fd/1")).unwrap();
    held.write_all(b"from elsewhere\n").unwrap();
    std::fs::write(worker.work().join("go"), "").unwrap();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(0));
    assert_eq!(output(&cloud, "stdout", 19).await, b"from elsewhere\nbye\n");
    poll("the output is closed", || worker.home().join("jobs/train/g2/a1/closed").is_symlink().then_some(())).await;
    cloud.want(Want::Retire);
    assert_eq!(worker.agent_exit().await, 0);
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_output_goes_on_when_the_shim_is_killed_and_says_that_some_may_be_missing() {
    let run = "echo $PPID >shim; echo one; until [ -e go ]; do sleep 0.02; done; seq 1 300000; echo bye >&2; exit 7";
    let cloud = Cloud::start(run).await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let shim = worker.line("shim").await;
    output(&cloud, "stdout", 4).await;
    let pid = rustix::process::Pid::from_raw(shim.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until_dead(&shim).await;
    std::fs::write(worker.work().join("go"), "").unwrap();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(7), false), "no signal ends it");
    let cut = b"\nrekindle: output may be missing here: the process that keeps it was killed\n";
    let due = [&b"one\n"[..], cut, &numbers(1, 300_000)].concat();
    let out = output(&cloud, "stdout", due.len()).await;
    assert!(out == due, "{} bytes instead of {}", out.len(), due.len());
    let due = [&cut[..], b"bye\n"].concat();
    assert_eq!(output(&cloud, "stderr", due.len()).await, due);
}

/// Between two looks of the agent, which cannot take its streams over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_output_of_a_program_that_ends_right_after_its_shim_says_that_some_may_be_missing() {
    let run = "echo $PPID $$ >both; echo one; until [ -e go ]; do sleep 0.02; done; echo two; echo bye >&2; exit 7";
    let cloud = Cloud::start(run).await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let both = worker.line("both").await;
    output(&cloud, "stdout", 4).await;
    let pid = |text: &str| rustix::process::Pid::from_raw(text.parse().unwrap()).unwrap();
    let agent = pid(&worker.agent_pid().to_string());
    rustix::process::kill_process(agent, rustix::process::Signal::STOP).unwrap();
    let (shim, program) = both.split_once(' ').unwrap();
    rustix::process::kill_process(pid(shim), rustix::process::Signal::KILL).unwrap();
    until_dead(shim).await;
    std::fs::write(worker.work().join("go"), "").unwrap();
    until_dead(program).await;
    rustix::process::kill_process(agent, rustix::process::Signal::CONT).unwrap();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(7));
    let cut = b"\nrekindle: output may be missing here: the process that keeps it was killed\n";
    let due = [&b"one\n"[..], cut].concat();
    assert_eq!(output(&cloud, "stdout", due.len()).await, due);
    assert_eq!(output(&cloud, "stderr", cut.len()).await, cut);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_outlives_shim_and_agent_runs_on_and_its_output_says_that_some_may_be_missing() {
    let run = "echo $PPID >shim; echo one; until [ -e go ]; do sleep 0.02; done; seq 1 300000; echo bye >&2";
    let cloud = Cloud::start(run).await;
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let shim = worker.line("shim").await;
    output(&cloud, "stdout", 4).await;
    let pid = rustix::process::Pid::from_raw(shim.parse().unwrap()).unwrap();
    worker.kill_agent();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until_dead(&shim).await;
    worker.start_agent();
    let cut = b"\nrekindle: output may be missing here: the process that keeps it was killed\n";
    output(&cloud, "stdout", 4 + cut.len()).await;
    std::fs::write(worker.work().join("go"), "").unwrap();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Silent, false), "it went by itself, and nobody saw how");
    let due = [&b"one\n"[..], cut, &numbers(1, 300_000)].concat();
    let out = output(&cloud, "stdout", due.len()).await;
    assert!(out == due, "{} bytes instead of {}", out.len(), due.len());
    let due = [&cut[..], b"bye\n"].concat();
    assert_eq!(output(&cloud, "stderr", due.len()).await, due);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_output_of_a_program_that_died_with_shim_and_agent_says_that_some_may_be_missing() {
    let cloud = Cloud::start("echo $PPID $$ >both; echo one; sleep 600").await;
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let both = worker.line("both").await;
    output(&cloud, "stdout", 4).await;
    worker.kill_agent();
    for one in both.split(' ') {
        let pid = rustix::process::Pid::from_raw(one.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        until_dead(one).await;
    }
    worker.start_agent();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Silent);
    let said = b"rekindle: output may be missing here: the process that keeps it was killed\n";
    assert_eq!(output(&cloud, "stderr", said.len()).await, said);
    let due = [&b"one\n"[..], said].concat();
    assert_eq!(output(&cloud, "stdout", due.len()).await, due);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_on_a_full_disk_arrives_once_also_when_the_agent_is_started_anew() {
    // Each word has room in what the file has already, and nothing else has any.
    let run = "echo one; until [ -e $MARK/fill ]; do sleep 0.02; done; cat /dev/zero >fill 2>/dev/null; echo two
        until [ -e $MARK/go ]; do sleep 0.02; done; echo three; exec sleep 1000";
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let cloud = Cloud::start(&run.replace("$MARK", &elsewhere.path().display().to_string())).await;
    let Some(mut worker) = Worker::with_small_disk(&cloud, None, Vec::new()) else { return };
    cloud.until_running(1).await;
    let folder = worker.home().join("jobs/train/g2/a1");
    assert_eq!(output(&cloud, "stdout", 4).await, b"one\n");
    poll("that is written down", || {
        let paper = std::fs::read_to_string(folder.join("logs.json")).ok()?;
        paper.contains("\"offset\":4").then_some(())
    })
    .await;
    std::fs::write(elsewhere.path().join("fill"), "").unwrap();
    assert_eq!(output(&cloud, "stdout", 8).await, b"one\ntwo\n");
    worker.kill_agent();
    std::fs::write(elsewhere.path().join("go"), "").unwrap();
    poll("the third is said", || (std::fs::metadata(folder.join("stdout")).ok()?.len() == 14).then_some(())).await;
    worker.start_agent();
    assert_eq!(output(&cloud, "stdout", 14).await, b"one\ntwo\nthree\n");
}
