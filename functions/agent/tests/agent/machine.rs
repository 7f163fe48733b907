//! The agent itself goes away and comes back; so do `api` and the machine.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rekindle_core::classify::Exit;
use rekindle_wire::agent::{Want, WorkerState};

use crate::cloud::{Cloud, Worker, is_alive, order, until_dead, work};

const WAITS: &str = "echo $$ >> starts; until [ -e go ]; do sleep 0.02; done; rm go; exit 7";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agent_is_followed_by_one_that_adopts_the_program() {
    let cloud = Cloud::start(WAITS).await;
    let mut worker = Worker::start(&cloud);
    let before = cloud.until_running(1).await;
    let program = worker.line("starts").await;
    worker.kill_agent();
    assert!(is_alive(&program));
    let reports = cloud.set(|inner| inner.reports.len());
    worker.start_agent();
    let after = cloud.until("the next agent reports", |inner| inner.reports.get(reports).cloned()).await;
    assert_eq!((after.state, after.started_at, after.attempt), (WorkerState::Running, before.started_at, 1));
    std::fs::write(worker.work().join("go"), "").unwrap();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(7), false));

    // The second program ends while no agent is there.
    cloud.set(|inner| inner.order = order(2, Want::Run, Some(work(2, WAITS))));
    cloud.until_state(2, WorkerState::Running).await;
    let program = worker.lines("starts", 2).await[1].clone();
    worker.kill_agent();
    std::fs::write(worker.work().join("go"), "").unwrap();
    until_dead(&program).await;
    worker.start_agent();
    let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(7), false));
    assert_eq!(worker.line("starts").await.lines().count(), 2, "each program was started once");
    assert_eq!(cloud.set(|inner| inner.hellos.len()), 1, "the token was kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_killed_at_any_moment_starts_each_program_once() {
    let run = |attempt| format!("echo {attempt} >> starts; sleep 0.15; exit {attempt}");
    let cloud = Cloud::start(&run(1)).await;
    let mut worker = Worker::start(&cloud);
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(7);
    for attempt in 1..=8 {
        cloud.set(|inner| inner.order = order(attempt, Want::Run, Some(work(attempt, &run(attempt)))));
        let mut longest = 250;
        loop {
            let ended = cloud.until_state(attempt, WorkerState::Exited);
            // Long enough to get somewhere, short enough to be hit at each step on the way.
            let moment = Duration::from_millis(random.random_range(10..longest));
            // However slow the machine is, some agent has the time to bring it to its end.
            longest += longest / 8;
            if let Ok(report) = tokio::time::timeout(moment, ended).await {
                let exit = report.exit.unwrap();
                assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(attempt.cast_signed()), false));
                break;
            }
            worker.kill_agent();
            worker.start_agent();
        }
    }
    assert_eq!(worker.line("starts").await, "1\n2\n3\n4\n5\n6\n7\n8");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_outlives_its_shim_and_its_end_is_still_told() {
    let cloud = Cloud::start(WAITS).await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let program = worker.line("starts").await;
    let stat = std::fs::read_to_string(format!("/proc/{program}/stat")).unwrap();
    let shim: i32 = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    let shim_pid = rustix::process::Pid::from_raw(shim).unwrap();
    rustix::process::kill_process(shim_pid, rustix::process::Signal::TERM).unwrap();
    rustix::process::kill_process(shim_pid, rustix::process::Signal::KILL).unwrap();
    until_dead(&shim.to_string()).await;
    assert!(is_alive(&program));
    std::fs::write(worker.work().join("go"), "").unwrap();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(7), false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_told_to_end_leaves_the_program_alone() {
    let cloud = Cloud::start(WAITS).await;
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let program = worker.line("starts").await;
    assert_eq!(worker.terminate_agent().await, 75);
    assert!(is_alive(&program));
    cloud.set(|inner| inner.token = "another".into());
    worker.start_agent();
    cloud.until("hello with a lost token", |inner| (inner.hellos.len() == 2).then_some(())).await;
    cloud.want(Want::Retire);
    assert_eq!(worker.agent_exit().await, 0);
    assert!(!is_alive(&program), "retired means that nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_goes_on_after_the_agent_was_killed() {
    let run = "trap 'echo term >> terms' TERM; echo $$ > program; while :; do sleep 0.02; done";
    let cloud = Cloud::start(run).await;
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let program = worker.line("program").await;
    cloud.set(|inner| {
        inner.order.want = Want::Stop;
        inner.order.kill_at = Some(jiff::Timestamp::now() + Duration::from_millis(1500));
    });
    worker.line("terms").await;
    worker.kill_agent();
    // Without `api`, only what the first agent wrote down can end the program.
    cloud.set(|inner| inner.is_down = true);
    worker.start_agent();
    until_dead(&program).await;
    cloud.set(|inner| inner.is_down = false);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Signal(9), true));
    assert_eq!(worker.line("terms").await, "term", "SIGTERM is sent once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_lives_while_api_is_out_of_reach() {
    let run = r#"
        echo $$ > program; until [ -e go ]; do sleep 0.02; done
        echo step=9 >> "$REKINDLE_PROGRESS_FILE"; echo bye; exit 3"#;
    let cloud = Cloud::start(run).await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let program = worker.line("program").await;
    let reports = cloud.set(|inner| {
        inner.is_down = true;
        inner.reports.len()
    });
    assert!(is_alive(&program));
    std::fs::write(worker.work().join("go"), "").unwrap();
    until_dead(&program).await;
    assert_eq!(cloud.set(|inner| inner.reports.len()), reports, "nothing was heard");
    cloud.set(|inner| inner.is_down = false);
    let report = cloud.until_state(1, WorkerState::Exited).await;
    assert_eq!((report.exit.unwrap().evidence.exit, report.progress.step), (Exit::Code(3), Some(9)));
    cloud.until("its output", |inner| (inner.output(1, "stdout")? == b"bye\n").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_whose_state_is_lost_does_not_begin_a_running_attempt_again() {
    let cloud = Cloud::start(WAITS).await;
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    worker.line("starts").await;
    worker.reboot();
    std::fs::remove_file(worker.home().join("jobs/train/g2/state.json")).unwrap();
    worker.start_agent();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.evidence.rebooted, exit.ordered), (Exit::Silent, true, false));
    cloud.set(|inner| inner.order = order(2, Want::Run, Some(work(2, "exit 0"))));
    let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.evidence.rebooted), (Exit::Code(0), false));
    assert_eq!(worker.line("starts").await.lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_was_started_anew_has_lost_its_program() {
    let cloud = Cloud::start(WAITS).await;
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    worker.line("starts").await;
    worker.reboot();
    worker.start_agent();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.evidence.rebooted, exit.ordered), (Exit::Silent, true, false));
    let boots: Vec<String> = cloud.set(|inner| inner.hellos.iter().map(|h| h.boot_id.clone()).collect());
    assert_eq!(boots, ["boot-1", "boot-2"]);
    cloud.set(|inner| inner.order = order(2, Want::Run, Some(work(2, "exit 0"))));
    let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.evidence.rebooted), (Exit::Code(0), false));
    assert_eq!(worker.line("starts").await.lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_heard_of_a_program_that_says_more_than_api_answers() {
    let run = r#"
        for i in $(seq 100000); do echo "step=$i checkpoint=$i" >>"$REKINDLE_PROGRESS_FILE"; sleep 0.03; done"#;
    let cloud = Cloud::start(run).await;
    let _worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    cloud.set(|inner| inner.takes = Duration::from_millis(400));
    cloud.want(Want::Stop);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Signal(15), true));
}
