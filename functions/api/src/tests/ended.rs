//! Jobs that have ended: what is refused of them, and how another goes on from what they saved.

use http::StatusCode;
use serde_json::{Value, json};

use rekindle_core::observation::WorkerState;
use rekindle_rig::spec;
use rekindle_wire::agent::Report;

use super::Served;
use super::agents::running;

/// Another job under the same id.
fn again() -> Value {
    let mut other = spec("train");
    other["notes"] = json!("again");
    other
}

/// Answers of 409 to a restart, and to a submit under the same id.
async fn refusals(served: &Served) -> [Value; 2] {
    let restart = served.post("/v1/jobs/train/restart", &json!({})).await;
    let submit = served.post("/v1/jobs", &again()).await;
    for answer in [&restart, &submit] {
        assert_eq!(answer.status, StatusCode::CONFLICT, "{}", answer.text());
    }
    [restart.json(), submit.json()]
}

async fn until_it_has_ended(served: &Served) {
    for _ in 0..60 {
        served.rig.pass("train").await;
        served.rig.advance(10);
        if served.rig.job("train").await.unwrap().phase.is_terminal() {
            return;
        }
    }
    panic!("it is still {:?}", served.rig.job("train").await.unwrap().phase);
}

#[tokio::test]
async fn the_refusal_tells_where_the_program_left_its_checkpoints() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    let running = served.post("/v1/jobs", &again()).await.json();
    assert_eq!((&running["phase"], &running["checkpoint"]), (&json!("running"), &Value::Null), "{running}");
    for agent in &mut agents {
        agent.send(&Report { exit: Some(agent.exit(0)), ..agent.report(WorkerState::Exited) }).await;
    }
    until_it_has_ended(&served).await;
    let bucket = &served.rig.engine.deployment.bucket;
    for problem in refusals(&served).await {
        assert_eq!(problem["checkpoint"], json!(format!("{bucket}/jobs/train/checkpoints")), "{problem}");
    }
}

#[tokio::test]
async fn the_refusal_of_a_job_that_is_being_cancelled_tells_its_checkpoints_at_once_and_bids_nobody_wait() {
    let served = Served::with_job().await;
    let _agents = running(&served).await;
    served.tell("/v1/jobs/train/cancel").await;
    let bucket = &served.rig.engine.deployment.bucket;
    // Before the pass that begins with it, and while the program stops.
    for _ in 0..2 {
        for command in ["restart", "unpause"] {
            let answer = served.post(&format!("/v1/jobs/train/{command}"), &json!({})).await;
            assert_eq!(answer.status, StatusCode::CONFLICT, "{}", answer.text());
            let problem = answer.json();
            assert_eq!(problem["phase"], json!("stopping"), "{problem}");
            assert_eq!(problem["checkpoint"], json!(format!("{bucket}/jobs/train/checkpoints")), "{problem}");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("was cancelled, and is stopping: to run it again"), "{detail}");
        }
        served.rig.pass("train").await;
    }
}

#[tokio::test]
async fn a_program_that_never_ran_has_left_none() {
    let served = Served::with_job().await;
    served.tell("/v1/jobs/train/cancel").await;
    until_it_has_ended(&served).await;
    for problem in refusals(&served).await {
        assert_eq!((&problem["phase"], &problem["checkpoint"]), (&json!("cancelled"), &Value::Null), "{problem}");
    }
}
