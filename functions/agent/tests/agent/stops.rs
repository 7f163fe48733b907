//! The end of an attempt: who has how long, and that nothing lives after it.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rekindle_core::classify::Exit;
use rekindle_core::spec::CommandLine;
use rekindle_wire::agent::{Want, WorkerState};

use crate::cloud::{Cloud, Worker, is_alive, order, poll, work};

/// A shell that dies at once, and in it a program that saves until it may end, for which it starts a helper.
const UNDER_A_SHELL: &str = r#"
    bash -c 'trap "echo term >>terms; is_told=1" TERM; echo $$ >program
        until [ "$is_told" ]; do sleep 0.02; done
        until [ -e go ]; do sleep 0.02; done
        sleep 0.3; echo $? >copied'
    echo never"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_under_a_shell_has_the_whole_notice_to_save_also_when_the_agent_is_started_anew() {
    for is_restarted in [false, true] {
        let cloud = Cloud::start(UNDER_A_SHELL).await;
        cloud.set(|inner| inner.order.work.as_mut().unwrap().stop_grace_ms = 15_000);
        let mut worker = Worker::start(&cloud);
        cloud.until_running(1).await;
        let program = worker.line("program").await;
        cloud.set(|inner| inner.values.insert("preempted".into(), "TRUE".into()));
        worker.line("terms").await;
        let told = Instant::now();
        if is_restarted {
            worker.kill_agent();
            worker.start_agent();
        }
        let is_long = |_: &_| (told.elapsed() > Duration::from_millis(3500)).then_some(());
        cloud.until("longer than what a dead program leaves would have", is_long).await;
        assert!(is_alive(&program), "it saves; restarted: {is_restarted}");
        std::fs::write(worker.work().join("go"), "").unwrap();
        let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
        assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Signal(15), true));
        assert!(!is_alive(&program), "the exit is told only when nothing lives");
        assert_eq!(worker.line("terms").await, "term", "SIGTERM is sent once; restarted: {is_restarted}");
        assert_eq!(worker.line("copied").await, "0", "what is started in order to save is left in peace");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_program_under_a_shell_does_ends_with_the_time_that_the_order_gives() {
    let cloud = Cloud::start(UNDER_A_SHELL).await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let program = worker.line("program").await;
    let kill_at = Timestamp::now() + Duration::from_secs(3);
    cloud.set(|inner| {
        inner.order.want = Want::Stop;
        inner.order.kill_at = Some(kill_at);
    });
    cloud.until_state(1, WorkerState::Exited).await;
    assert!(!is_alive(&program));
    let late = Timestamp::now().duration_since(kill_at).as_secs_f64();
    assert!((0.0..2.0).contains(&late), "{late}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_programs_own_end_what_it_leaves_has_two_seconds() {
    let run = r#"
        setsid bash -c 'trap "echo term >>terms" TERM; echo $$ >left; while :; do sleep 0.02; done' &
        until [ -s left ]; do sleep 0.02; done; exit 3"#;
    let cloud = Cloud::start(run).await;
    let worker = Worker::start(&cloud);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(3), false));
    assert!(!is_alive(&worker.line("left").await));
    let passed = Timestamp::now().duration_since(exit.at).as_secs_f64();
    assert!((1.9..4.9).contains(&passed), "{passed}");
    assert_eq!(worker.line("terms").await, "term");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shim_that_is_on_the_way_to_a_start_lives_no_longer_than_the_attempt() {
    let cloud = Cloud::start("exec sleep 1000").await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    // As a shim that has claimed its program, and that a disk holds up.
    let mut shim = Command::new("setsid").args(["sleep", "60"]).stdin(Stdio::null()).spawn().unwrap();
    let pid = shim.id().to_string();
    let stat = poll("it has a session", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let words: Vec<String> = stat.rsplit(')').next()?.split_whitespace().map(str::to_owned).collect();
        (words.get(3) == Some(&pid)).then_some(words)
    })
    .await;
    let claim = format!(r#"{{"attempt":1,"pid":{pid},"start":{}}}"#, stat[19]);
    std::fs::write(worker.home().join("jobs/train/g2/a1/setup.claim.json"), claim).unwrap();
    cloud.want(Want::Stop);
    cloud.until_state(1, WorkerState::Exited).await;
    assert!(!is_alive(&pid), "it would start its program beside the next attempt's");
    shim.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_whose_start_a_full_disk_forgot_is_adopted() {
    let cloud = Cloud::start("echo x >>\"$TMPDIR/starts\"; exec sleep 1000").await;
    let buffer = tempfile::tempdir().unwrap();
    let starts = buffer.path().join("starts");
    let place = buffer.path().display().to_string();
    cloud.set(|inner| {
        let env = &mut inner.order.work.as_mut().unwrap().env;
        // A state of more than a page is not written over in its place.
        env.extend([("TMPDIR".into(), place), ("LONG".into(), "x".repeat(5000))]);
    });
    let Some(mut worker) = Worker::with_small_disk(&cloud, Some(buffer.path()), Vec::new()) else { return };
    cloud.until_state(1, WorkerState::Ready).await;
    let filler = std::fs::File::create(worker.home().join("filler")).unwrap();
    std::io::copy(&mut std::io::repeat(0), &mut &filler).expect_err("the disk is full");
    cloud.until_running(1).await;
    poll("it runs", || std::fs::read_to_string(&starts).ok().filter(|text| text == "x\n")).await;
    worker.kill_agent();
    let reports = cloud.set(|inner| inner.reports.len());
    worker.start_agent();
    let after = |inner: &crate::cloud::Inner| {
        inner.reports.get(reports..)?.iter().find(|report| report.state != WorkerState::Ready).cloned()
    };
    let after = cloud.until("the next agent reports", after).await;
    assert_eq!((after.state, after.attempt, after.exit), (WorkerState::Running, 1, None));
    assert_eq!(std::fs::read_to_string(&starts).unwrap(), "x\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_setup_left_without_a_mark_ends_with_its_attempt_also_when_the_agent_was_started_anew() {
    let cloud = Cloud::start("exec sleep 1000").await;
    // Neither our environment nor our session, and its parent is no more.
    let setup =
        "env -i /usr/bin/setsid /bin/sh -c 'echo $$ >left; exec /bin/sleep 990' & until [ -s left ]; do :; done";
    cloud.set(|inner| inner.order.work.as_mut().unwrap().setup = Some(CommandLine::Shell(setup.into())));
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let left = worker.line("left").await;
    worker.kill_agent();
    let before = cloud.set(|inner| inner.reports.len());
    worker.start_agent();
    cloud.until("the next agent reports", |inner| inner.reports.get(before).map(drop)).await;
    assert!(is_alive(&left), "the program may need it");
    cloud.want(Want::Stop);
    cloud.until_state(1, WorkerState::Exited).await;
    assert!(!is_alive(&left), "an exit is told only when nothing lives");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_a_full_disk_forgot_is_adopted_and_not_ended_with_the_one_before() {
    let buffer = tempfile::tempdir().unwrap();
    let first = "echo >\"$TMPDIR/up\"; until [ -e \"$TMPDIR/go\" ]; do sleep 0.02; done; exit 3";
    let second = "echo $$ >>\"$TMPDIR/starts\"; exec sleep 1000";
    let in_buffer = |attempt, run: &str| {
        let mut work = work(attempt, run);
        work.env.insert("TMPDIR".into(), buffer.path().display().to_string());
        work.env.insert("LONG".into(), "x".repeat(5000));
        Some(work)
    };
    let cloud = Cloud::start(first).await;
    cloud.set(|inner| inner.order = order(1, Want::Prepare, in_buffer(1, first)));
    let Some(mut worker) = Worker::with_small_disk(&cloud, Some(buffer.path()), Vec::new()) else { return };
    cloud.until_running(1).await;
    poll("it runs", || buffer.path().join("up").exists().then_some(())).await;
    let filler = std::fs::File::create(worker.home().join("filler")).unwrap();
    std::io::copy(&mut std::io::repeat(0), &mut &filler).expect_err("the disk is full");
    std::fs::write(buffer.path().join("go"), "").unwrap();
    cloud.until_state(1, WorkerState::Exited).await;
    cloud.set(|inner| inner.order = order(2, Want::Run, in_buffer(2, second)));
    cloud.until_state(2, WorkerState::Running).await;
    let starts = buffer.path().join("starts");
    let program = poll("it runs", || std::fs::read_to_string(&starts).ok().filter(|text| text.ends_with('\n'))).await;
    let program = program.trim();
    worker.kill_agent();
    let reports = cloud.set(|inner| inner.reports.len());
    worker.start_agent();
    let after = cloud.until("the next agent reports", |inner| inner.reports.get(reports).cloned()).await;
    assert_eq!((after.attempt, after.exit), (2, None));
    cloud.until("it knows what it runs", |inner| inner.last().filter(|last| last.has_work).map(drop)).await;
    assert_eq!(cloud.until_state(2, WorkerState::Running).await.attempt, 2);
    assert!(is_alive(program), "what runs is adopted");
    assert_eq!(std::fs::read_to_string(&starts).unwrap().trim(), program, "and was started once");
    cloud.want(Want::Stop);
    let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Signal(15), true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_whose_time_is_over_before_it_was_told_is_told_first() {
    let cloud = Cloud::start("echo up >up; exec sleep 1000").await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    worker.line("up").await;
    cloud.set(|inner| {
        inner.order.want = Want::Stop;
        inner.order.kill_at = Some(Timestamp::now() - Duration::from_mins(1));
    });
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Signal(15), true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_of_a_program_that_saves_is_moved_by_the_order_later_and_by_a_notice_sooner() {
    let run = "trap 'echo term >>terms; is_told=1' TERM; echo up >up; until [ \"$is_told\" ]; do sleep 0.02; done
        trap '' TERM; until [ -e go ]; do sleep 0.02; done; exit 5";
    for is_notice in [false, true] {
        let cloud = Cloud::start(run).await;
        let notice = ("REKINDLE_PREEMPTION_NOTICE_MS", "4000".to_owned());
        let worker = Worker::start_with(&cloud, vec![notice]);
        cloud.until_running(1).await;
        worker.line("up").await;
        let first = Duration::from_secs(if is_notice { 600 } else { 15 });
        let kill_at = Timestamp::now() + first;
        cloud.set(|inner| {
            inner.order.want = Want::Stop;
            inner.order.kill_at = Some(kill_at);
        });
        worker.line("terms").await;
        if is_notice {
            cloud.set(|inner| inner.values.insert("preempted".into(), "TRUE".into()));
        } else {
            cloud.set(|inner| inner.order.kill_at = Some(kill_at + Duration::from_mins(10)));
            let is_over = |_: &_| (Timestamp::now() > kill_at + Duration::from_secs(1)).then_some(());
            cloud.until("the first moment is over", is_over).await;
            std::fs::write(worker.work().join("go"), "").unwrap();
        }
        let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
        let due = if is_notice { Exit::Signal(9) } else { Exit::Code(5) };
        assert_eq!((exit.evidence.exit, exit.ordered), (due, true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_a_notice_no_end_waits_for_outputs_that_were_begun_before() {
    let cloud =
        Cloud::start("trap 'mkdir out; echo made >out/a; exit 0' TERM; echo up >up; while :; do sleep 0.02; done")
            .await;
    cloud.set(|inner| {
        inner.holds_outputs = true;
        inner.order.work.as_mut().unwrap().outputs = vec!["out".into()];
    });
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    worker.line("up").await;
    cloud.set(|inner| {
        inner.order.want = Want::Stop;
        inner.order.kill_at = Some(Timestamp::now() + Duration::from_mins(10));
    });
    worker.line("out/a").await;
    cloud.set(|inner| inner.values.insert("preempted".into(), "TRUE".into()));
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(0), true));
}
