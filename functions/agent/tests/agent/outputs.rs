//! Outputs are those of the attempt that they are stored under.

use rekindle_core::classify::Exit;
use rekindle_wire::agent::{Want, WorkerState};

use crate::cloud::{Cloud, Inner, Worker, order, work};

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
