//! Output arrives byte for byte.

use std::fmt::Write as _;

use rekindle_wire::agent::{Want, WorkerState};

use crate::cloud::{Cloud, Worker};

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
