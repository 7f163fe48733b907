//! Output arrives byte for byte.

use std::fmt::Write as _;

use std::os::unix::fs::MetadataExt as _;

use rekindle_core::classify::Exit;
use rekindle_core::spec::CommandLine;
use rekindle_wire::agent::{Want, WorkerState};

use crate::cloud::{Cloud, Inner, Worker, order, poll, work};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_of_output_arrives_once_and_in_order() {
    let run = r#"
        for i in $(seq 1 20000); do echo "line $i of a program that says much, and then some more of it"; done
        printf 'no end: \xff\xfe\x00 ' ; until [ -e go ]; do sleep 0.02; done
        for i in $(seq 20001 40000); do echo "line $i"; done; printf 'the end' >&2"#;
    let cloud = Cloud::start(run).await;
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    cloud.until("the first chunks", |inner| (!inner.output(1, "stdout")?.is_empty()).then_some(())).await;
    worker.kill_agent();
    worker.start_agent();
    std::fs::write(worker.work().join("go"), "").unwrap();
    cloud.until_state(1, WorkerState::Exited).await;
    let mut expected = String::new();
    for i in 1..=20000 {
        writeln!(expected, "line {i} of a program that says much, and then some more of it").unwrap();
    }
    let mut expected = expected.into_bytes();
    expected.extend(b"no end: \xff\xfe\x00 ");
    for i in 20001..=40000 {
        expected.extend(format!("line {i}\n").into_bytes());
    }
    cloud
        .until("all output", |inner| {
            (inner.output(1, "stdout")?.len() >= expected.len() && inner.output(1, "stderr")?.len() == 7).then_some(())
        })
        .await;
    let (out, err, changed) = cloud
        .set(|inner| (inner.output(1, "stdout").unwrap(), inner.output(1, "stderr").unwrap(), inner.changed_chunks));
    assert!(out == expected, "{} bytes instead of {}", out.len(), expected.len());
    assert_eq!(err, b"the end");
    assert_eq!(changed, 0, "a number always stands for the same bytes");
    cloud.want(Want::Retire);
    assert_eq!(worker.agent_exit().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exit_while_api_is_away_is_told_after_the_output() {
    // With an exit of its own a program's words are waited for only two seconds.
    let cloud =
        Cloud::start("until [ -e go ]; do sleep 0.02; done; seq 2000; echo the end >&2; touch gone; exit 3").await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    cloud.set(|inner| inner.is_down = true);
    std::fs::write(worker.work().join("go"), "").unwrap();
    let is_over = |since: &std::time::Instant| since.elapsed() > std::time::Duration::from_secs(4);
    let gone = worker.work().join("gone");
    cloud
        .until("an outage that is longer than that", |inner| {
            (gone.exists() && inner.turned_away.first().is_some_and(is_over)).then_some(())
        })
        .await;
    cloud.set(|inner| inner.is_down = false);
    // What is there at the moment in which the exit is known: from then on the machine may go.
    let (out, err) = cloud
        .until("the exit", |inner| {
            let is_told = inner.is(1, WorkerState::Exited).is_some();
            is_told
                .then(|| (inner.output(1, "stdout").unwrap_or_default(), inner.output(1, "stderr").unwrap_or_default()))
        })
        .await;
    assert!(out.ends_with(b"\n2000\n"), "{}", String::from_utf8_lossy(&out));
    assert_eq!(err, b"the end\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_print_of_python_arrives_while_it_runs_and_is_kept_when_it_is_ended() {
    // As most programs are: neither flushes, nor ends by its own exit.
    let program = "import os, signal, time\nprint('step 1')\nwhile True: time.sleep(0.02)";
    let cloud = Cloud::start(&format!("exec python3 -c \"{program}\"")).await;
    cloud.set(|inner| {
        let setup = "python3 -c \"import os; print('set up'); os.kill(os.getpid(), 9)\"; true";
        inner.order.work.as_mut().unwrap().setup = Some(CommandLine::Shell(setup.into()));
    });
    let _worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let said = |inner: &Inner| (inner.output(1, "stdout")? == b"set up\nstep 1\n").then_some(());
    cloud.until("what was printed, with nothing flushed", said).await;
    cloud.want(Want::Stop);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Signal(15), true));
    assert!(exit.evidence.tail.contains("step 1"), "{}", exit.evidence.tail);

    // The job's own word holds, also an empty one.
    let show = "echo \"<${PYTHONUNBUFFERED-unset}>\"";
    for (attempt, own) in [(2, ""), (3, "0")] {
        cloud.set(|inner| {
            let mut work = work(attempt, show);
            work.env.insert("PYTHONUNBUFFERED".into(), own.into());
            inner.order = order(attempt, Want::Run, Some(work));
        });
        let due = format!("<{own}>\n").into_bytes();
        cloud.until("the job's own", |inner| (inner.output(attempt, "stdout")? == due).then_some(())).await;
    }
}

/// Bytes that the marks in an output count. All else must be what was said, in order.
pub(crate) fn marked(out: &[u8], due: &[u8], why: &str) -> usize {
    let (mut rest, mut at, mut marked) = (std::str::from_utf8(out).unwrap(), 0, 0);
    while let Some((before, behind)) = rest.split_once("\nrekindle: ") {
        let (count, behind) = behind.split_once(&format!(" bytes of output were dropped here: {why}\n")).unwrap();
        let count: usize = count.parse().unwrap();
        assert!(due[at..].starts_with(before.as_bytes()), "in order up to the gap");
        (rest, at, marked) = (behind, at + before.len() + count, marked + count);
    }
    assert!(&due[at..] == rest.as_bytes(), "in = out + marked");
    marked
}

/// What `seq` writes.
pub(crate) fn numbers(from: u32, to: u32) -> Vec<u8> {
    (from..=to).fold(String::new(), |text, n| text + &n.to_string() + "\n").into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_while_the_network_is_cut_arrives_when_it_is_back() {
    let cloud = Cloud::start("seq 1 1000; until [ -e go ]; do sleep 0.02; done; seq 1001 300000; touch said").await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    cloud.until("the first chunk", |inner| (inner.output(1, "stdout")? == numbers(1, 1000)).then_some(())).await;
    cloud.set(|inner| inner.is_down = true);
    std::fs::write(worker.work().join("go"), "").unwrap();
    poll("the program was not held up", || worker.work().join("said").exists().then_some(())).await;
    cloud.set(|inner| inner.is_down = false);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(0));
    let due = numbers(1, 300_000);
    let out = cloud.until("all output", |inner| inner.output(1, "stdout").filter(|out| out.len() >= due.len())).await;
    assert!(out == due, "{} bytes instead of {}", out.len(), due.len());
    assert_eq!(cloud.set(|inner| inner.changed_chunks), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn above_the_bound_a_gap_stands_with_its_count_and_holds_no_memory() {
    let run = "seq 1 1000; until [ -e go ]; do sleep 0.02; done; seq 1001 1000000; touch said
        until [ -e end ]; do sleep 0.02; done; echo bye";
    let cloud = Cloud::start(run).await;
    let worker = Worker::start_with(&cloud, vec![("REKINDLE_LOG_BACKLOG_BYTES", (256 << 10).to_string())]);
    cloud.until_running(1).await;
    cloud.until("the first chunk", |inner| (inner.output(1, "stdout")? == numbers(1, 1000)).then_some(())).await;
    cloud.set(|inner| inner.is_down = true);
    std::fs::write(worker.work().join("go"), "").unwrap();
    poll("the program was not held up", || worker.work().join("said").exists().then_some(())).await;
    let file = worker.home().join("jobs/train/g2/a1/stdout");
    poll("what is above the bound is freed", || {
        let held = std::fs::metadata(&file).unwrap().blocks() * 512;
        (held < 1 << 20).then_some(())
    })
    .await;
    cloud.set(|inner| inner.is_down = false);
    std::fs::write(worker.work().join("end"), "").unwrap();
    let out = cloud.until("the end", |inner| inner.output(1, "stdout").filter(|out| out.ends_with(b"\nbye\n"))).await;
    let due = [numbers(1, 1_000_000), b"bye\n".to_vec()].concat();
    let marked = marked(&out, &due, "api was out of reach");
    assert!(marked > 4 << 20, "{marked} of {} bytes", due.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_attempt_is_bounded_while_the_output_of_an_earlier_one_waits() {
    let run = r"seq 1 $((REKINDLE_ATTEMPT * 400000)); touch said-$REKINDLE_ATTEMPT; [ $REKINDLE_ATTEMPT = 2 ] || exit 3
        until [ -e end ]; do sleep 0.02; done; echo bye";
    let cloud = Cloud::start(run).await;
    let worker = Worker::start_with(&cloud, vec![("REKINDLE_LOG_BACKLOG_BYTES", (512 << 10).to_string())]);
    cloud.set(|inner| inner.takes_no_logs = true);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    cloud.until_state(1, WorkerState::Exited).await;
    cloud.set(|inner| inner.order = order(2, Want::Run, Some(work(2, run))));
    poll("attempt 2 was not held up", || worker.work().join("said-2").exists().then_some(())).await;
    poll("what is above the bound is freed, over both attempts", || {
        let held = |attempt| {
            let file = worker.home().join(format!("jobs/train/g2/a{attempt}/stdout"));
            std::fs::metadata(file).unwrap().blocks() * 512
        };
        (held(1) + held(2) < 3 << 19).then_some(())
    })
    .await;
    cloud.set(|inner| inner.takes_no_logs = false);
    std::fs::write(worker.work().join("end"), "").unwrap();
    for (attempt, end) in [(1, "400000\n"), (2, "800000\nbye\n")] {
        let whole = |inner: &Inner| inner.output(attempt, "stdout").filter(|out| out.ends_with(end.as_bytes()));
        let out = cloud.until(&format!("the end of attempt {attempt}"), whole).await;
        let due = [numbers(1, attempt * 400_000), end.as_bytes()[7..].to_vec()].concat();
        let marked = marked(&out, &due, "api was out of reach");
        assert!(marked > 1 << 20, "{marked} of {} bytes", due.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exit_that_is_told_before_its_output_says_so_until_all_is_sent() {
    let cloud = Cloud::start("seq 1 1000; echo the end >&2; exit 3").await;
    let mut worker = Worker::start(&cloud);
    cloud.set(|inner| inner.takes_no_logs = true);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    let told = cloud.until_state(1, WorkerState::Exited).await;
    assert_eq!((told.exit.unwrap().evidence.exit, told.has_unsent), (Exit::Code(3), true));
    // The next agent knows it, and the next attempt in place.
    let state = worker.home().join("jobs/train/g2/state.json");
    let is_kept = || std::fs::read_to_string(&state).ok()?.contains("\"has_unsent\":true").then_some(());
    poll("it is written down", is_kept).await;
    worker.kill_agent();
    let before = cloud.set(|inner| inner.reports.len());
    worker.start_agent();
    let first = cloud.until("the next agent", |inner| inner.reports.get(before).cloned()).await;
    assert!(first.has_unsent);
    let run = "until [ -e end ]; do sleep 0.02; done";
    cloud.set(|inner| inner.order = order(2, Want::Run, Some(work(2, run))));
    assert!(cloud.until_running(2).await.has_unsent);
    cloud.set(|inner| inner.takes_no_logs = false);
    let last = cloud.until("all is sent", |inner| inner.last().filter(|last| !last.has_unsent).cloned()).await;
    assert_eq!((last.attempt, last.state), (2, WorkerState::Running));
    let (out, err) = cloud.set(|inner| (inner.output(1, "stdout").unwrap(), inner.output(1, "stderr").unwrap()));
    assert!(out == numbers(1, 1000) && err == b"the end\n", "{}", String::from_utf8_lossy(&err));
    std::fs::write(worker.work().join("end"), "").unwrap();
    assert!(!cloud.until_state(2, WorkerState::Exited).await.has_unsent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_holds_nothing_up_and_loses_nothing() {
    let run = "cat /dev/zero >fill 2>/dev/null; echo full >&2; seq 1 100000
        until [ -s /dev/shm/$MARK ]; do sleep 0.02; done; seq 100001 200000; exit 3";
    let buffer = tempfile::tempdir_in("/dev/shm").unwrap();
    let mark = buffer.path().file_name().unwrap().to_str().unwrap();
    let cloud = Cloud::start(&run.replace("$MARK", &format!("{mark}/go"))).await;
    let Some(mut worker) = Worker::with_small_disk(&cloud, Some(buffer.path()), Vec::new()) else { return };
    cloud.until_running(1).await;
    cloud.until("the disk is full", |inner| (inner.output(1, "stderr")? == b"full\n").then_some(())).await;
    worker.kill_agent();
    worker.start_agent();
    std::fs::write(buffer.path().join("go"), "go").unwrap();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(3), false));
    let due = numbers(1, 200_000);
    let out = cloud.until("all output", |inner| inner.output(1, "stdout").filter(|out| out.len() >= due.len())).await;
    assert!(out == due, "{} bytes instead of {}", out.len(), due.len());
    assert_eq!(cloud.set(|inner| inner.changed_chunks), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_on_one_stream_arrives_while_the_other_never_rests() {
    let run =
        "(while :; do printf 'bar\\r' >&2; sleep 0.02; done) & until [ -e go ]; do sleep 0.02; done; echo hello; wait";
    let cloud = Cloud::start(run).await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    cloud.set(|inner| inner.takes = std::time::Duration::from_millis(150));
    let has_many = |inner: &Inner| (inner.chunks.len() > 3).then_some(());
    cloud.until("the bar is sent", has_many).await;
    std::fs::write(worker.work().join("go"), "").unwrap();
    cloud.until("the other stream", |inner| (inner.output(1, "stdout")? == b"hello\n").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_program_says_is_sent_before_what_it_complains_of() {
    let cloud = Cloud::start("echo start; echo Traceback >&2; exit 1").await;
    // So long that only the end can have sent it.
    let _worker = Worker::start_with(&cloud, vec![("REKINDLE_LOG_FLUSH_MS", "600000".to_owned())]);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.set(|inner| inner.takes = std::time::Duration::from_millis(150));
    cloud.want(Want::Run);
    let complained =
        |inner: &Inner| inner.output(1, "stderr").filter(|err| !err.is_empty()).map(|_| inner.output(1, "stdout"));
    assert_eq!(cloud.until("the complaint", complained).await.as_deref(), Some(&b"start\n"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_reboot_it_stands_in_the_output_that_some_may_be_missing_whatever_numbers_were_used() {
    after_a_reboot(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_reboot_it_stands_there_also_where_no_number_could_be_written_down() {
    after_a_reboot(true).await;
}

async fn after_a_reboot(was_full: bool) {
    let run = "echo one >&2; until [ -e go ]; do sleep 0.02; done; echo two >&2
        until [ -e on ]; do sleep 0.02; done; echo three >&2; echo >said; exec sleep 1000";
    let cloud = Cloud::start(run).await;
    let buffer = tempfile::tempdir().unwrap();
    let buffered = buffer.path().join("in-memory");
    // On a machine of its own what `setup` made is brought to the disk.
    cloud.set(|inner| inner.order.work.as_mut().unwrap().setup = Some(CommandLine::Shell("echo made >made".into())));
    let settings = vec![("REKINDLE_BUFFER_DIR", buffered.display().to_string())];
    let mut worker = Worker::start_with(&cloud, settings);
    cloud.until_running(1).await;
    let has = |text: &'static [u8]| move |inner: &Inner| (inner.output(1, "stderr")? == text).then_some(());
    cloud.until("the first", has(b"one\n")).await;
    let sent = worker.home().join("jobs/train/g2/a1.sent.json");
    let early = poll("it is written down", || std::fs::read(&sent).ok().filter(|paper| !paper.is_empty())).await;
    std::fs::write(worker.work().join("go"), "").unwrap();
    cloud.until("the second", has(b"one\ntwo\n")).await;
    cloud.set(|inner| inner.takes_no_logs = true);
    std::fs::write(worker.work().join("on"), "").unwrap();
    worker.line("said").await;
    worker.reboot();
    std::fs::remove_dir_all(&buffered).unwrap();
    // The disk did not keep the last seconds either, or was full and took none of it.
    if was_full { std::fs::remove_file(&sent) } else { std::fs::write(&sent, early) }.unwrap();
    cloud.set(|inner| inner.takes_no_logs = false);
    worker.start_agent();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.evidence.rebooted), (Exit::Silent, true));
    let marked = |inner: &Inner| {
        let text = String::from_utf8(inner.output(1, "stderr")?).unwrap();
        text.contains("started anew").then_some(text)
    };
    let text = cloud.until("the mark", marked).await;
    assert_eq!(text.lines().take(2).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(text.matches("started anew").count(), 1, "{text}");
}
