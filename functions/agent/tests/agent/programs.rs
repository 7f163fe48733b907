//! Programs: started, ended, judged by how they end.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rekindle_core::classify::{Exit, SignalSender, Stage};
use rekindle_core::exec::{ExecAction, ExecExit, ExecOrder};
use rekindle_core::spec::CommandLine;
use rekindle_wire::agent::{Notice, NoticeKind, Want, WorkerState};

use crate::cloud::{Cloud, Inner, Worker, is_alive, order, poll, work};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_set_up_released_and_ends_well() {
    let run = r#"
        echo "out $REKINDLE_ATTEMPT"; echo err >&2
        echo "started $(cat setup.count)" >> started
        printf 'resumed_from=4\nstep=5 loss=2.50\nstep=7 loss=1.25 checkpoint=7\n' >> "$REKINDLE_PROGRESS_FILE"
        [ -d "$TPU_LOG_DIR" ] && [ -z "$REKINDLE_API$REKINDLE_HOME" ]"#;
    let cloud = Cloud::start(run).await;
    cloud.set(|inner| {
        let work = inner.order.work.as_mut().unwrap();
        work.setup = Some(CommandLine::Shell("echo prepared; echo x >> setup.count".into()));
    });
    let mut worker = Worker::start(&cloud);
    let ready = cloud.until_state(1, WorkerState::Ready).await;
    assert_eq!((ready.started_at, ready.exit, ready.has_work), (None, None, true));
    assert!(!worker.work().join("started").exists(), "nothing runs before its release");
    let hello = cloud.set(|inner| inner.hellos[0].clone());
    assert_eq!((hello.key.worker, hello.key.slice, hello.address.as_str()), (1, 0, "10.0.0.5"));
    assert_eq!((hello.instance.as_str(), hello.boot_id.as_str()), ("t1v-n-abc-w-1", "boot-1"));

    cloud.want(Want::Run);
    let report = cloud.until_state(1, WorkerState::Exited).await;
    let exit = report.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered, exit.evidence.during), (Exit::Code(0), false, Stage::Run));
    assert_eq!(exit.evidence.tail, "out 1\nerr\n", "what setup said is not the program's");
    assert_eq!((exit.evidence.index, exit.evidence.slice, exit.evidence.last_step), (1, 0, Some(7)));
    assert!(report.started_at.unwrap() <= exit.at && report.output_at.is_some());
    assert!(exit.evidence.disk_free_bytes.is_some() && exit.evidence.memory_free_bytes.is_some());
    let progress = report.progress;
    assert_eq!((progress.step, progress.checkpoint, progress.resumed_from), (Some(7), Some(7), Some(4)));
    assert_eq!(progress.loss.as_deref(), Some("1.25"));
    assert_eq!(worker.line("started").await, "started x");
    cloud
        .until("all output", |inner| {
            (inner.output(1, "stdout")? == b"prepared\nout 1\n" && inner.output(1, "stderr")? == b"err\n").then_some(())
        })
        .await;

    cloud.want(Want::Retire);
    assert_eq!(worker.agent_exit().await, 0);
    let stored = cloud.set(|inner| inner.reports.iter().filter(|r| r.store && r.exit.is_some()).count());
    assert!(stored >= 1, "the exit was to be stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_progress_line_that_cannot_be_read_is_told_once_in_the_output() {
    let run = r#"printf ' 10%%|###' >&2
        for step in 1 2 3; do echo "{\"step\": $step}" >> "$REKINDLE_PROGRESS_FILE"; done; exec sleep 986"#;
    let cloud = Cloud::start(run).await;
    let worker = Worker::start(&cloud);
    cloud.want(Want::Run);
    let told = r#"rekindle: a line of the progress file cannot be read: "{\"step\": 1}""#;
    let output = cloud
        .until("the complaint, while it runs", |inner| {
            let output = String::from_utf8(inner.output(1, "stderr")?.clone()).ok()?;
            output.contains(told).then_some(output)
        })
        .await;
    assert_eq!(output.matches("rekindle:").count(), 1, "{output}");
    assert!(output.starts_with(" 10%|###\nrekindle: "), "a line of its own: {output:?}");
    drop(worker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_attempt_starts_once_and_setup_only_the_first_time() {
    let cloud = Cloud::start("echo 1 >> starts; exit 3").await;
    let setup = CommandLine::Shell("echo x >> setup.count".into());
    cloud.set(|inner| inner.order.work.as_mut().unwrap().setup = Some(setup.clone()));
    let worker = Worker::start(&cloud);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(3), false));

    for (attempt, program, expected) in [
        (2, "echo 2 >> starts; kill -SEGV $$", Exit::Signal(11)),
        (3, "echo 3 >> starts; no-such-command", Exit::Code(127)),
    ] {
        cloud.set(|inner| {
            inner.order = order(attempt, Want::Prepare, Some(work(attempt, program)));
            inner.order.work.as_mut().unwrap().setup = Some(setup.clone());
        });
        cloud.until_state(attempt, WorkerState::Ready).await;
        cloud.want(Want::Run);
        let exit = cloud.until_state(attempt, WorkerState::Exited).await.exit.unwrap();
        assert_eq!((exit.evidence.exit, exit.ordered), (expected, false), "{:?}", exit.evidence);
    }
    cloud.set(|inner| {
        inner.order = order(4, Want::Run, Some(work(4, "")));
        inner.order.work.as_mut().unwrap().run = CommandLine::Argv(vec!["no-such-program".into()]);
    });
    let exit = cloud.until_state(4, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(127));
    assert!(exit.evidence.tail.contains("cannot start \"no-such-program\""), "{}", exit.evidence.tail);
    assert_eq!(worker.line("starts").await, "1\n2\n3");
    assert_eq!(worker.line("setup.count").await, "x");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_leaves_nothing_alive() {
    let run = r#"
        trap '' TERM
        setsid bash -c 'trap "" TERM; echo $$ > session; sleep 1000' &
        setsid env -i /bin/sleep 1000 & echo $! > cleared
        (setsid sleep 1001 & echo $! > orphan)
        echo $$ > program
        while :; do sleep 0.05; done"#;
    let cloud = Cloud::start(run).await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let pids = [
        worker.line("session").await,
        worker.line("cleared").await,
        worker.line("orphan").await,
        worker.line("program").await,
    ];
    assert!(pids.iter().all(|pid| is_alive(pid)));
    cloud.set(|inner| {
        inner.order.want = Want::Stop;
        inner.order.kill_at = Some(Timestamp::now() + Duration::from_millis(400));
    });
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert!(!pids.iter().any(|pid| is_alive(pid)), "the exit is told only when nothing lives");
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Signal(9), true));
    assert_eq!(exit.evidence.signal_sender, Some(SignalSender::Ourselves));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_the_program_save_and_a_later_attempt_ends_an_older_program() {
    let run = "trap 'echo saved; exit 0' TERM; echo $$ > program; while :; do sleep 0.02; done";
    let cloud = Cloud::start(run).await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    worker.line("program").await;
    cloud.want(Want::Stop);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(0), true));
    assert!(exit.evidence.tail.contains("saved\n"), "{}", exit.evidence.tail);

    let second = "echo $$ > program; exec sleep 1000";
    cloud.set(|inner| inner.order = order(2, Want::Run, Some(work(2, second))));
    cloud.until_state(2, WorkerState::Running).await;
    let older = worker.line("program").await;
    cloud.set(|inner| inner.order = order(3, Want::Prepare, Some(work(3, "exit 0"))));
    cloud.until_state(3, WorkerState::Ready).await;
    assert!(!is_alive(&older));
    let told = cloud.set(|inner| inner.reports.iter().find(|r| r.attempt == 2 && r.exit.is_some()).cloned().unwrap());
    assert_eq!(told.exit.unwrap().evidence.exit, Exit::Signal(15));

    cloud.want(Want::Stop);
    let exit = cloud.until_state(3, WorkerState::Exited).await.exit.unwrap();
    assert!(exit.ordered, "a stop before the start is told too: {exit:?}");
    assert_eq!(exit.evidence.during, Stage::Setup);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_setup_is_told_and_nothing_runs() {
    let cloud = Cloud::start("touch ran").await;
    cloud.set(|inner| {
        inner.order.want = Want::Run;
        let work = inner.order.work.as_mut().unwrap();
        work.setup = Some(CommandLine::Shell("echo 'No matching distribution found for foo' >&2; exit 4".into()));
    });
    let worker = Worker::start(&cloud);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.evidence.during, exit.ordered), (Exit::Code(4), Stage::Setup, false));
    assert_eq!(exit.evidence.tail, "No matching distribution found for foo\n");
    assert!(!worker.work().join("ran").exists());

    // The next attempt tries again, and a bundle that cannot be had is a failure of the preparation.
    cloud.set(|inner| {
        inner.order = order(2, Want::Run, Some(work(2, "touch ran")));
        inner.order.work.as_mut().unwrap().code = Some("file:///tmp/not-a-digest.tar.zst".into());
    });
    let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.evidence.during), (Exit::Code(1), Stage::Setup));
    assert!(exit.evidence.tail.contains("is not named <sha256>.tar.zst"), "{}", exit.evidence.tail);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_reaches_program_and_api_and_only_an_urgent_one_ends_it() {
    let run = r#"
        trap 'cat "$REKINDLE_NOTICE_FILE"; echo; echo saved; exit 5' TERM
        echo up > up
        until grep -s maintenance "$REKINDLE_NOTICE_FILE"; do sleep 0.02; done
        echo warned > warned
        while :; do sleep 0.02; done"#;
    let cloud = Cloud::start(run).await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    worker.line("up").await;
    let window = Timestamp::now() + Duration::from_hours(1);
    cloud.set(|inner| {
        let text = format!(r#"{{"maintenance_status":"PENDING","window_start_time":"{window}"}}"#);
        inner.values.insert("upcoming-maintenance".into(), text);
    });
    worker.line("warned").await;
    let report =
        cloud.until("the window is reported", |inner| inner.last().filter(|r| r.notice.is_some()).cloned()).await;
    assert_eq!(report.notice.unwrap().deadline, window);
    assert_eq!(report.state, WorkerState::Running, "an early notice ends nothing");

    let before = Timestamp::now();
    cloud.set(|inner| inner.values.insert("preempted".into(), "TRUE".into()));
    let is_preemption = |kind| kind == NoticeKind::Preemption;
    let first = cloud
        .until("the preemption is reported", |inner| {
            inner.reports.iter().find(|r| r.notice.as_ref().is_some_and(|n| is_preemption(n.kind))).cloned()
        })
        .await;
    assert!(first.store, "a notice is news");
    let notice = first.notice.unwrap();
    assert!(notice.deadline >= before + Duration::from_secs(30));
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(5), true));
    assert!(
        exit.evidence.tail.contains("preemption") && exit.evidence.tail.contains("saved\n"),
        "{}",
        exit.evidence.tail
    );
    cloud.until("the last output", |inner| inner.output(1, "stdout")?.ends_with(b"saved\n").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preemption_is_told_by_the_clock_of_api() {
    for ahead in [-300, 300].map(SignedDuration::from_secs) {
        let cloud = Cloud::start("trap 'exit 5' TERM; echo up; echo up > up; while :; do sleep 0.02; done").await;
        cloud.set(|inner| inner.ahead = ahead);
        let worker = Worker::start(&cloud);
        cloud.until_running(1).await;
        worker.line("up").await;
        let before = Timestamp::now() + ahead;
        cloud.set(|inner| inner.values.insert("preempted".into(), "TRUE".into()));
        let exit = cloud.until_state(1, WorkerState::Exited).await;
        let output = exit.output_at.unwrap().duration_since(before);
        assert!(output.abs() < SignedDuration::from_secs(60), "{output}");
        assert_eq!(exit.exit.unwrap().evidence.exit, Exit::Code(5), "its grace is not over before it began");
        let told: Vec<_> = cloud.set(|inner| inner.reports.iter().filter_map(|r| r.notice.clone()).collect());
        let off = told[0].seen_at.duration_since(before);
        // Whole seconds in the header, and some time for its way.
        assert!(off.abs() < SignedDuration::from_secs(60), "{off}");
        let left = |notice: &Notice| notice.deadline.duration_since(notice.seen_at);
        assert!(told.iter().all(|notice| left(notice) == left(&told[0])), "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_is_told_and_ends_nothing() {
    let run = r#"
        trap 'cat "$REKINDLE_NOTICE_FILE"; exit 5' TERM
        echo up > up
        while :; do sleep 0.02; done"#;
    let cloud = Cloud::start(run).await;
    cloud.set(|inner| inner.values.insert("scheduling/on-host-maintenance".into(), "TERMINATE".into()));
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    worker.line("up").await;
    let window = Timestamp::now();
    let text = format!(r#"{{"maintenance_status":"ONGOING","window_start_time":"{window}"}}"#);
    cloud.set(|inner| {
        inner.values.insert("maintenance-event".into(), "MIGRATE_ON_HOST_MAINTENANCE".into());
        inner.values.insert("upcoming-maintenance".into(), text.clone());
    });
    let of = |kind: NoticeKind| {
        move |inner: &crate::cloud::Inner| {
            inner.last().filter(|report| report.notice.as_ref().is_some_and(|notice| notice.kind == kind)).cloned()
        }
    };
    let report = cloud.until("the migration is reported", of(NoticeKind::Migration)).await;
    assert_eq!((report.state, report.exit), (WorkerState::Running, None));
    // The event is over, the window is still told of.
    cloud.set(|inner| inner.values.insert("maintenance-event".into(), "NONE".into()));
    cloud.set(|inner| inner.values.insert("preempted".into(), "TRUE".into()));
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(5), true));
    // Its only notice is the preemption, and nothing ended it before.
    assert!(exit.evidence.tail.contains("preemption") && !exit.evidence.tail.contains("migration"), "{exit:?}");
    let kinds: Vec<NoticeKind> = cloud.set(|inner| {
        inner.reports.iter().filter_map(|report| report.notice.as_ref().map(|notice| notice.kind)).collect()
    });
    assert!(!kinds.contains(&NoticeKind::Maintenance), "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_told_in_the_name_of_another_generations_attempt() {
    let cloud = Cloud::start("exit 0").await;
    cloud.set(|inner| inner.order = order(4, Want::Stop, None));
    let _worker = Worker::start(&cloud);
    cloud.until("some reports", |inner| (inner.reports.len() >= 5).then_some(())).await;
    cloud.set(|inner| inner.order = order(5, Want::Prepare, Some(work(5, "exit 0"))));
    cloud.until_state(5, WorkerState::Ready).await;
    let named: Vec<u32> = cloud.set(|inner| inner.reports.iter().map(|r| r.attempt).collect());
    assert!(named.iter().all(|attempt| [0, 5].contains(attempt)), "{named:?}");
}

async fn collected_by_the_next_agent(is_reboot: bool) {
    let cloud = Cloud::start("mkdir results; echo made >results/a; exit 0").await;
    cloud.set(|inner| {
        inner.holds_outputs = true;
        inner.order.work.as_mut().unwrap().outputs = vec!["results".into()];
    });
    let mut worker = Worker::start(&cloud);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    let told = cloud.until_state(1, WorkerState::Exited).await;
    assert_eq!((told.exit.unwrap().evidence.exit, told.is_collecting), (Exit::Code(0), true));
    if is_reboot {
        worker.reboot();
    } else {
        worker.kill_agent();
    }
    let before = cloud.set(|inner| inner.reports.len());
    worker.start_agent();
    cloud
        .until("the next agent goes on with it", |inner| {
            let told = inner.reports[before..].iter().find(|report| report.exit.is_some())?;
            told.is_collecting.then_some(())
        })
        .await;
    cloud.set(|inner| inner.holds_outputs = false);
    cloud.until("all is collected", |inner| inner.last().is_some_and(|last| !last.is_collecting).then_some(())).await;
    assert_eq!(cloud.set(|inner| inner.outputs.clone()), [("a1/results/a".to_owned(), b"made\n".to_vec())].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_is_told_while_its_outputs_are_still_collected_also_by_the_next_agent() {
    collected_by_the_next_agent(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_are_collected_also_after_a_reboot() {
    collected_by_the_next_agent(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_are_given_up_after_the_time_that_the_agent_is_given_for_them() {
    let cloud = Cloud::start("echo made >a; exit 0").await;
    cloud.set(|inner| {
        inner.holds_outputs = true;
        inner.order.work.as_mut().unwrap().outputs = vec!["a".into()];
    });
    let _worker = Worker::start_with(&cloud, vec![("REKINDLE_OUTPUTS_MS", "250".to_owned())]);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    cloud.until_state(1, WorkerState::Exited).await;
    cloud.until("it gives up", |inner| inner.last().is_some_and(|last| !last.is_collecting).then_some(())).await;
    let told = b"rekindle: outputs: not all could be sent within ";
    cloud.until("it says so", |inner| inner.output(1, "stderr")?.starts_with(told).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_is_told_to_end_takes_all_that_it_started_with_it_and_no_other() {
    let cloud = Cloud::start("").await;
    cloud.set(|inner| {
        let work = inner.order.work.as_mut().unwrap();
        (work.run, work.stop_grace_ms) = (CommandLine::Argv(Vec::new()), 300);
    });
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let run = |id, text: &str| {
        let action = ExecAction::Run(CommandLine::Shell(text.to_owned()));
        ExecOrder { id, attempt: 1, worker: None, at: Timestamp::now(), action, stop_at: None }
    };
    let deaf = "trap '' TERM; echo $$ >deaf; while :; do sleep 0.05; done";
    let orders = [run(1, "sleep 1000 & echo $! >child; wait"), run(2, "echo $$ >other; exec sleep 1001"), run(3, deaf)];
    let far = "setsid bash -c 'echo $$ >far; exec sleep 1002' & wait";
    let orders = [&orders[..], &[run(5, far)]].concat();
    let late = ExecOrder { stop_at: Some(Timestamp::now()), ..run(4, "echo >never") };
    cloud.set(|inner| inner.order.exec = [&orders[..], &[late]].concat());
    let (child, other, deaf) = (worker.line("child").await, worker.line("other").await, worker.line("deaf").await);
    let far = worker.line("far").await;
    cloud.set(|inner| {
        inner.order.exec[0].stop_at = Some(Timestamp::now());
        inner.order.exec[2].stop_at = Some(Timestamp::now());
        inner.order.exec[3].stop_at = Some(Timestamp::now());
    });
    let ended = |inner: &Inner, id| inner.brought.get(&(id, "exit".to_owned(), 0)).cloned();
    for (id, code) in [(1, 128 + 15), (3, 128 + 9), (5, 128 + 15), (4, 128 + 15)] {
        let end = cloud.until("it ends", |inner| ended(inner, id)).await;
        let end: ExecExit = serde_json::from_slice(&end).unwrap();
        assert_eq!(end, ExecExit { code, error: None }, "order {id}");
    }
    assert!(!is_alive(&child) && !is_alive(&deaf), "nothing of what was ended lives");
    assert!(!is_alive(&far), "in whatever session");
    assert!(is_alive(&other), "the other command goes on");
    assert!(!worker.work().join("never").exists(), "what was told to end before it began is not begun");
    cloud.want(Want::Stop);
    cloud.until_state(1, WorkerState::Exited).await;
    let end =
        cloud.set(|inner| ended(inner, 2)).expect("told before the end of the attempt, after which the machine goes");
    assert_eq!(serde_json::from_slice::<ExecExit>(&end).unwrap().code, 128 + 15);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_whose_agent_is_started_anew_ends_for_who_gave_it() {
    let cloud = Cloud::start("").await;
    cloud.set(|inner| inner.order.work.as_mut().unwrap().run = CommandLine::Argv(Vec::new()));
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let run = |id, text: &str| {
        let action = ExecAction::Run(CommandLine::Shell(text.to_owned()));
        ExecOrder { id, attempt: 1, worker: None, at: Timestamp::now(), action, stop_at: None }
    };
    cloud.set(|inner| inner.order.exec = vec![run(1, "echo short"), run(2, "echo long; sleep 600")]);
    let said = |inner: &Inner, id| inner.brought.get(&(id, "stdout".to_owned(), 0)).cloned();
    let ended = |inner: &Inner, id| inner.brought.get(&(id, "exit".to_owned(), 0)).cloned();
    cloud.until("the first one ends", |inner| ended(inner, 1)).await;
    cloud.until("the second one runs", |inner| said(inner, 2)).await;
    let paper = worker.home().join("jobs/train/g2/a1/exec-1");
    poll("the first one is done with", || (!paper.exists()).then_some(())).await;
    worker.kill_agent();
    cloud.set(|inner| inner.brought.remove(&(1, "exit".to_owned(), 0)));
    worker.start_agent();
    let end = cloud.until("the second one has ended", |inner| ended(inner, 2)).await;
    let end: ExecExit = serde_json::from_slice(&end).unwrap();
    assert_eq!(end.code, 125);
    assert!(end.error.unwrap().contains("agent was started anew"));
    cloud.set(|inner| inner.order.exec.push(run(3, "echo third")));
    cloud.until("the next one ends", |inner| ended(inner, 3)).await;
    assert!(cloud.set(|inner| ended(inner, 1)).is_none(), "what had ended is not told again");
    // A command without our environment, which the earlier agent began, is no child of this one.
    cloud.set(|inner| inner.order.exec.push(run(4, "exec env -i /bin/bash -c 'echo $$ > cleared; exec sleep 600'")));
    let cleared = worker.line("cleared").await;
    let leader = paper.with_file_name("leader-4");
    poll("it is written down who leads it", || leader.exists().then_some(())).await;
    worker.kill_agent();
    worker.start_agent();
    cloud.until("it has ended for who gave it", |inner| ended(inner, 4)).await;
    assert!(is_alive(&cleared));
    cloud.want(Want::Stop);
    cloud.until_state(1, WorkerState::Exited).await;
    assert!(!is_alive(&cleared), "it ends with its attempt all the same");
}
