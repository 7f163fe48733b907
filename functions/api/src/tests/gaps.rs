//! Output that waits on a machine: the machine is kept for it, and what it took with it is said.

use axum::body::Body;
use http::Request;
use serde_json::json;

use rekindle_core::observation::{SliceState, WorkerState};
use rekindle_wire::agent::Report;

use super::Served;
use super::agents::{Agent, running};

async fn logs(served: &Served, query: &str) -> String {
    let answer = served.get(&format!("/v1/jobs/train/logs{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().to_owned()
}

/// All workers end; worker 2 has sent nothing of what it said.
async fn end(agents: &mut [Agent<'_>]) {
    for (worker, agent) in agents.iter_mut().enumerate() {
        let exit = Some(agent.exit(0));
        agent.send(&Report { exit, has_unsent: worker == 2, ..agent.report(WorkerState::Exited) }).await;
    }
}

#[tokio::test]
async fn a_slice_is_kept_until_its_output_is_sent_which_is_news() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    end(&mut agents).await;
    served.rig.pass("train").await;
    served.rig.take_causes();
    let job = served.get("/v1/jobs/train").await.json();
    assert_eq!((&job["outcome"], &job["resources"][0]["state"]), (&json!("succeeded"), &json!("ready")), "{job}");
    let told = served.get("/v1/jobs/train/explain").await.json()["paragraph"].to_string();
    assert!(told.contains("its workers have been sending the rest of its output"), "{told}");
    let waits = "rekindle: more of this attempt's output waits on its machine; `rekindle logs train --attempt 1` shows";
    assert!(logs(&served, "").await.starts_with(&format!("[w2] {waits}")), "{}", logs(&served, "").await);
    assert_eq!(logs(&served, "?worker=1").await, "");

    let sent = agents[2].report(WorkerState::Exited);
    agents[2].send(&sent).await;
    assert_eq!(served.rig.take_causes(), ["output sent"]);
    served.rig.pass("train").await;
    let job = served.get("/v1/jobs/train").await.json();
    assert_eq!((&job["resources"][0]["state"], logs(&served, "").await), (&json!("deleting"), String::new()), "{job}");
}

#[tokio::test]
async fn what_a_machine_took_with_it_is_said_in_the_output_once() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    end(&mut agents).await;
    served.rig.pass("train").await;
    let name = served.rig.job("train").await.unwrap().generations[0].name.clone();
    served.rig.fakes.tpu.set_state(&name, SliceState::Preempted);
    served.rig.pass("train").await;
    let gone = "rekindle: output is missing here: the machine was gone before all of it was sent";
    assert_eq!(logs(&served, "").await, format!("[w2] {gone}\n"));
    assert_eq!(logs(&served, "?worker=2&stream=stdout&attempt=1").await, format!("{gone}\n"));
    let now = served.rig.engine.ports.clock.now();
    assert_eq!(logs(&served, &format!("?since={}", now + std::time::Duration::from_secs(9))).await, "");
}

#[tokio::test]
async fn a_machine_that_told_no_end_may_have_said_more() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    let said = "jobs/train/logs/000001/0000-0002/stdout/0000000000@1000";
    served.rig.engine.ports.objects.put(said, "step 1\nste".into()).await.unwrap();
    assert_eq!(logs(&served, "").await, "[w2] step 1\n[w2] ste\n", "it runs");
    let ended = Report { exit: Some(agents[1].exit(0)), ..agents[1].report(WorkerState::Exited) };
    agents[1].send(&ended).await;
    let name = served.rig.job("train").await.unwrap().generations[0].name.clone();
    assert!(served.rig.fakes.tpu.vanish(&name));
    for _ in 0..6 {
        served.rig.pass("train").await;
        served.rig.advance(20);
    }
    let lost = "rekindle: output may be missing here: the machine was gone before it told of its program's end";
    let due = format!("[w2] step 1\n[w2] ste\n[w0] {lost}\n[w2] {lost}\n[w3] {lost}\n");
    assert_eq!(logs(&served, "?attempt=1").await, due);
    let object = format!(r#"{{"attempt":1,"workers":4,"worker":"w3","line":"{lost}"}}"#);
    assert_eq!(logs(&served, "?attempt=1&form=lines").await.lines().last(), Some(object.as_str()));

    // Who comes back is not told again.
    let follow = async |from: &str| {
        let request = Request::get("/v1/jobs/train/logs?follow=true&attempt=1").header("last-event-id", from);
        rekindle_rig::send(&served.router, request.body(Body::empty()).unwrap()).await.text().to_owned()
    };
    let told = follow("1").await;
    assert_eq!(told.matches(lost).count(), 3, "{told}");
    let id = told.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let again = follow(id).await;
    assert!(!again.contains("rekindle:") && again.contains("event: end"), "{again}");
}

#[tokio::test]
async fn outputs_that_a_machine_took_with_it_are_told_in_the_output_and_by_the_job() {
    let served = Served::with_outputs().await;
    let mut agents = running(&served).await;
    for (worker, agent) in agents.iter_mut().enumerate() {
        let exit = Some(agent.exit(0));
        agent.send(&Report { exit, is_collecting: worker == 1, ..agent.report(WorkerState::Exited) }).await;
    }
    served.rig.pass("train").await;
    assert_eq!(logs(&served, "").await, "", "they are on their way");
    let name = served.rig.job("train").await.unwrap().generations[0].name.clone();
    served.rig.fakes.tpu.set_state(&name, SliceState::Preempted);
    served.rig.pass("train").await;
    let lost = "rekindle: outputs are missing: the machine was gone before all of them were sent";
    assert_eq!(logs(&served, "").await, format!("[w1] {lost}\n"));
}
