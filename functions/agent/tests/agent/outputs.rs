//! Outputs are those of the attempt that they are stored under.

use std::time::Duration;

use rekindle_core::classify::Exit;
use rekindle_wire::agent::{Want, WorkerState};
use serde_json::Value;

use crate::cloud::{Cloud, Inner, Worker, order, poll, work};

/// Attempt 1 has failed and left an output that cannot be sent, and attempt 2, which writes to the same file, is ordered.
async fn begun() -> (Cloud, Worker) {
    let cloud = Cloud::start("mkdir -p out; echo one >out/a; exit 3").await;
    let outputs = vec!["out".to_owned()];
    cloud.set(|inner| {
        inner.holds_outputs = true;
        inner.order.work.as_mut().unwrap().outputs.clone_from(&outputs);
    });
    let worker = Worker::start(&cloud);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    let told = cloud.until_state(1, WorkerState::Exited).await;
    assert_eq!((told.exit.unwrap().evidence.exit, told.is_collecting), (Exit::Code(3), true));
    cloud.set(|inner| {
        let mut second = work(2, "echo two >out/a; echo >started; exec sleep 1000");
        second.outputs = outputs;
        inner.order = order(2, Want::Run, Some(second));
    });
    (cloud, worker)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_begins_when_the_outputs_of_the_one_before_are_collected() {
    let (cloud, worker) = begun().await;
    let before = cloud.set(|inner| inner.reports.len());
    let is_heard = |inner: &Inner| (inner.reports.len() >= before + 10).then_some(());
    cloud.until("the order is heard", is_heard).await;
    assert!(!worker.work().join("started").exists());
    cloud.set(|inner| inner.holds_outputs = false);
    cloud.until_state(2, WorkerState::Running).await;
    worker.line("started").await;
    assert_eq!(cloud.set(|inner| inner.outputs.clone()), [("a1/out/a".to_owned(), b"one\n".to_vec())].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_that_hold_the_next_attempt_up_are_given_up_which_is_said() {
    let (cloud, worker) = begun().await;
    let is_given_up = |inner: &Inner| {
        let said = String::from_utf8(inner.output(1, "stderr")?).unwrap();
        (said.contains("outputs: not all could be sent within") && said.ends_with("the next attempt begins\n"))
            .then_some(())
    };
    cloud.until("it is said", is_given_up).await;
    cloud.until_state(2, WorkerState::Running).await;
    worker.line("started").await;
    assert!(cloud.set(|inner| inner.outputs.is_empty()), "none of them is taken for one of the first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_of_an_attempt_that_the_state_forgot_are_collected_also_when_it_ended_meanwhile() {
    let cloud = Cloud::start("exit 0").await;
    let mut worker = Worker::start(&cloud);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    cloud.until_state(1, WorkerState::Exited).await;
    let generation = worker.home().join("jobs/train/g2");
    worker.terminate_agent().await;
    let old = std::fs::read(generation.join("state.json")).unwrap();
    worker.start_agent();
    cloud.set(|inner| {
        let mut second = work(2, "echo up >up; until [ -e go ]; do sleep 0.02; done; mkdir out; echo two >out/a");
        second.outputs = vec!["out".into()];
        inner.order = order(2, Want::Run, Some(second));
    });
    worker.line("up").await;
    worker.kill_agent();
    // A full disk has taken nothing since.
    std::fs::write(generation.join("state.json"), old).unwrap();
    std::fs::write(worker.work().join("go"), "").unwrap();
    let ended = generation.join("a2/run.ended.json");
    poll("it ends", || std::fs::read(&ended).ok().filter(|paper| !paper.trim_ascii().is_empty())).await;
    let before = cloud.set(|inner| {
        inner.is_down = true;
        inner.turned_away.len()
    });
    worker.start_agent();
    let is_turned_away = |inner: &Inner| (inner.turned_away.len() >= before + 2).then_some(());
    cloud.until("the end is found before any order", is_turned_away).await;
    cloud.set(|inner| inner.is_down = false);
    let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(0));
    let is_there = |inner: &Inner| inner.outputs.get("a2/out/a").filter(|bytes| *bytes == b"two\n").map(drop);
    cloud.until("the output", is_there).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_for_which_no_time_is_left_are_said_to_be_left_out() {
    for (pattern, why) in
        [("out", "not all could be sent: no time was left for it"), ("x", "no file of the working directory matches x")]
    {
        let cloud =
            Cloud::start("trap '' TERM; mkdir out; echo one >out/a; echo up >up; while :; do sleep 0.02; done").await;
        cloud.set(|inner| inner.order.work.as_mut().unwrap().outputs = vec![pattern.into()]);
        let worker = Worker::start(&cloud);
        cloud.until_running(1).await;
        worker.line("up").await;
        cloud.set(|inner| {
            inner.order.want = Want::Stop;
            inner.order.kill_at = Some(jiff::Timestamp::now());
        });
        let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
        assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Signal(9), true));
        let said = format!("rekindle: outputs: {why}\n");
        cloud.until("it is said", |inner| inner.output(1, "stderr")?.ends_with(said.as_bytes()).then_some(())).await;
        assert!(cloud.set(|inner| inner.outputs.is_empty()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_that_the_last_agent_has_sent_are_not_said_to_be_left_out() {
    let run = "trap 'echo bye >&2; exit 0' TERM; mkdir out; echo one >out/a; echo up >up; while :; do sleep 0.02; done";
    let cloud = Cloud::start(run).await;
    cloud.set(|inner| inner.order.work.as_mut().unwrap().outputs = vec!["out".into()]);
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    worker.line("up").await;
    // The end waits for its output.
    cloud.set(|inner| {
        inner.takes_no_logs = true;
        inner.order.want = Want::Stop;
        inner.order.kill_at = Some(jiff::Timestamp::now() + Duration::from_mins(1));
    });
    let generation = worker.home().join("jobs/train/g2");
    let done = generation.join("a1/outputs.done.json");
    poll("they are sent", || done.exists().then_some(())).await;
    worker.kill_agent();
    let path = generation.join("state.json");
    let mut state: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let now = jiff::Timestamp::now();
    state["attempt"]["stop"]["kill_at"] = now.to_string().into();
    std::fs::write(&path, state.to_string()).unwrap();
    cloud.set(|inner| {
        inner.takes_no_logs = false;
        inner.order.kill_at = Some(now);
    });
    worker.start_agent();
    cloud.until_state(1, WorkerState::Exited).await;
    cloud
        .until("all of its output", |inner| inner.is(1, WorkerState::Exited).filter(|r| !r.has_unsent).map(drop))
        .await;
    let said = String::from_utf8(cloud.set(|inner| inner.output(1, "stderr")).unwrap()).unwrap();
    assert!(said.contains("bye\n") && !said.contains("outputs"), "{said}");
}
