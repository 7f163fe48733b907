//! Agents: who is let in, what is stored, what a pass is told of.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use rekindle_core::classify::{Exit, WorkerEvidence};
use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::Phase;
use rekindle_core::observation::{ExitReport, Notice, NoticeKind, WorkerReport, WorkerState};
use rekindle_engine::tokens;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::LivenessDoc;
use rekindle_ports::world::Clock;
use rekindle_rig::Answer;
use rekindle_wire::agent::{Hello, Order, Progress, Report, Want, Welcome};

use super::Served;

mod names;

/// One worker's agent.
pub(super) struct Agent<'a> {
    served: &'a Served,
    pub(super) hello: Hello,
    token: String,
    pub(super) order: Order,
}

fn train() -> JobId {
    JobId::parse("train").unwrap()
}

fn hello_of(served: &Served, worker: u32) -> Hello {
    let secret = &served.rig.engine.installation.secret;
    Hello {
        job: train(),
        generation: 1,
        key: WorkerKey { slice: 0, worker },
        nonce: tokens::nonce(secret, &train(), 1),
        instance: format!("t1v-n-1-w-{worker}"),
        boot_id: format!("boot-{worker}"),
        address: format!("10.0.0.{worker}"),
        version: "0.1.0".into(),
    }
}

pub(super) async fn say(served: &Served, hello: &Hello) -> Answer {
    served.post("/agent/v1/hello", &serde_json::to_value(hello).unwrap()).await
}

/// An agent that was let in.
pub(super) async fn worker(served: &Served, worker: u32) -> Agent<'_> {
    let hello = hello_of(served, worker);
    let answer = say(served, &hello).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let welcome: Welcome = serde_json::from_slice(&answer.body).unwrap();
    Agent { served, hello, token: welcome.token, order: welcome.order }
}

impl Agent<'_> {
    fn now(&self) -> Timestamp {
        self.served.rig.fakes.clock.now()
    }

    pub(super) fn report(&self, state: WorkerState) -> Report {
        Report {
            job: train(),
            generation: 1,
            key: self.hello.key,
            instance: self.hello.instance.clone(),
            boot_id: self.hello.boot_id.clone(),
            attempt: self.order.attempt,
            store: true,
            state,
            started_at: None,
            progress: Progress::default(),
            output_at: None,
            disk_free_bytes: None,
            memory_free_bytes: None,
            notice: None,
            exit: None,
            has_work: false,
            has_bell: false,
            is_collecting: false,
            has_unsent: false,
        }
    }

    pub(super) async fn try_send(&self, report: &impl serde::Serialize) -> Answer {
        let request = http::Request::post("/agent/v1/report")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", self.token))
            .body(serde_json::to_vec(report).unwrap().into())
            .unwrap();
        rekindle_rig::send(&self.served.router, request).await
    }

    pub(super) async fn send(&mut self, report: &Report) -> Order {
        let answer = self.try_send(report).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.order = serde_json::from_slice(&answer.body).unwrap();
        self.order.clone()
    }

    pub(super) async fn stored(&self) -> WorkerReport {
        self.stored_of(self.order.attempt).await.unwrap()
    }

    async fn stored_of(&self, attempt: u32) -> Option<WorkerReport> {
        let kind = Kind::Worker(train(), attempt, self.hello.key);
        self.served.rig.fakes.store().read(&kind).await.unwrap().map(|at| at.value)
    }

    pub(super) fn exit(&self, code: i32) -> ExitReport {
        let evidence =
            WorkerEvidence { index: self.hello.key.worker, exit: Exit::Code(code), ..WorkerEvidence::default() };
        ExitReport { at: self.now(), ordered: false, evidence }
    }
}

/// All four workers, released to run.
/// All four workers, ready and released.
async fn released(served: &Served) -> Vec<Agent<'_>> {
    let mut agents = Vec::new();
    for i in 0..4 {
        agents.push(worker(served, i).await);
    }
    for agent in &mut agents {
        let ready = agent.report(WorkerState::Ready);
        agent.send(&ready).await;
    }
    served.rig.pass("train").await;
    agents
}

pub(super) async fn running(served: &Served) -> Vec<Agent<'_>> {
    let mut agents = released(served).await;
    for agent in &mut agents {
        let report = agent.report(WorkerState::Running);
        assert_eq!(agent.send(&report).await.want, Want::Run);
    }
    served.rig.pass("train").await;
    served.rig.take_causes();
    assert_eq!(served.rig.job("train").await.unwrap().phase, Phase::Running);
    agents
}

#[tokio::test]
async fn a_first_hello_is_bound_and_stored() {
    let served = Served::with_job().await;
    let agent = worker(&served, 1).await;
    assert_eq!((agent.order.attempt, agent.order.want), (1, Want::Prepare));
    assert!(agent.order.work.is_some());
    let stored = agent.stored().await;
    assert_eq!((stored.state, stored.boot_id.as_str()), (WorkerState::Preparing, "boot-1"));
    assert_eq!((stored.instance.as_str(), stored.address.as_str()), ("t1v-n-1-w-1", "10.0.0.1"));
    let instances = served.rig.fakes.docs.dump().into_iter().filter(|d| d.path.starts_with("instances/")).count();
    assert_eq!(instances, 2, "the VM's name, and who the worker is");
    assert!(served.rig.take_causes().is_empty(), "one hello of four is no news");
}

#[tokio::test]
async fn an_agent_of_a_later_version_is_understood_as_far_as_this_one_goes() {
    let served = Served::with_job().await;
    let hello = serde_json::to_value(hello_of(&served, 0)).unwrap();
    let answer = served.post("/agent/v1/hello", &later(hello)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let welcome: Welcome = serde_json::from_slice(&answer.body).unwrap();
    let agent = Agent { served: &served, hello: hello_of(&served, 0), token: welcome.token, order: welcome.order };
    let report = later(serde_json::to_value(agent.report(WorkerState::Ready)).unwrap());
    let answer = agent.try_send(&report).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(agent.stored().await.state, WorkerState::Ready);
}

/// With fields that this version does not know, at every depth.
fn later(mut document: Value) -> Value {
    if let Value::Object(fields) = &mut document {
        for value in fields.values_mut() {
            *value = later(value.take());
        }
        fields.insert("of_a_later_version".into(), json!({"deep": [1]}));
    }
    document
}

#[tokio::test]
async fn strangers_are_refused() {
    let served = Served::with_job().await;
    let mut hello = hello_of(&served, 0);
    hello.nonce = "wrong".into();
    assert_eq!(say(&served, &hello).await.status, 401);
    hello.nonce = tokens::nonce("secret", &train(), 2);
    assert_eq!(say(&served, &hello).await.status, 401, "another generation's nonce");
    let mut hello = hello_of(&served, 4);
    assert_eq!(say(&served, &hello).await.status, 400, "there is no fifth worker");
    hello = hello_of(&served, 0);
    hello.boot_id.clear();
    assert_eq!(say(&served, &hello).await.status, 400);
    hello = hello_of(&served, 0);
    hello.job = JobId::parse("other").unwrap();
    hello.nonce = tokens::nonce("secret", &hello.job, 1);
    assert_eq!(say(&served, &hello).await.status, 410, "no such job");
    let agent = worker(&served, 0).await;
    hello = hello_of(&served, 0);
    hello.instance = "t1v-n-2-w-0".into();
    assert_eq!(say(&served, &hello).await.status, 409, "another VM for a worker that is bound");
    for bad in [json!({}), json!({"job": "train"}), json!([])] {
        assert_eq!(served.post("/agent/v1/hello", &bad).await.status, 400);
    }
    drop(agent);
}

#[tokio::test]
async fn tokens_are_one_workers() {
    let served = Served::with_job().await;
    let (first, second) = (worker(&served, 0).await, worker(&served, 1).await);
    let theirs = second.report(WorkerState::Ready);
    assert_eq!(first.try_send(&theirs).await.status, 401);
    let mut report = first.report(WorkerState::Ready);
    report.generation = 2;
    assert_eq!(first.try_send(&report).await.status, 401);
    report = first.report(WorkerState::Ready);
    report.instance = "other".into();
    assert_eq!(first.try_send(&report).await.status, 401);
    let bare = served.post("/agent/v1/report", &serde_json::to_value(first.report(WorkerState::Ready)).unwrap()).await;
    assert_eq!(bare.status, 401);
    assert_eq!(first.stored().await.state, WorkerState::Preparing);
}

#[tokio::test]
async fn only_the_last_ready_worker_is_news() {
    let served = Served::with_job().await;
    for i in 0..4 {
        let mut agent = worker(&served, i).await;
        let report = agent.report(WorkerState::Ready);
        agent.send(&report).await;
        let want: &[&str] = if i == 3 { &["workers ready"] } else { &[] };
        assert_eq!(served.rig.take_causes(), want, "worker {i}");
    }
}

#[tokio::test]
async fn heartbeats_are_no_news_and_calls_without_store_write_nothing() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    let agent = &mut agents[0];
    let before = agent.stored().await.heard_at;
    served.rig.advance(5);
    let mut report = agent.report(WorkerState::Running);
    report.store = false;
    let commits = served.rig.fakes.docs.commits();
    agent.send(&report).await;
    assert_eq!((served.rig.fakes.docs.commits(), agent.stored().await.heard_at), (commits, before));
    report.store = true;
    agent.send(&report).await;
    assert!(agent.stored().await.heard_at > before);
    assert!(served.rig.take_causes().is_empty());
}

#[tokio::test]
async fn work_is_sent_until_the_agent_has_it() {
    let served = Served::with_job().await;
    let mut agent = worker(&served, 0).await;
    let mut report = agent.report(WorkerState::Preparing);
    assert!(agent.send(&report).await.work.is_some());
    report.has_work = true;
    assert!(agent.send(&report).await.work.is_none());
}

#[tokio::test]
async fn an_exit_is_stored_once_hinted_and_kept() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    let agent = &mut agents[2];
    let mut report = agent.report(WorkerState::Exited);
    report.exit = Some(agent.exit(1));
    agent.send(&report).await;
    let hints = served.rig.fakes.hints.take();
    assert_eq!((hints.len(), hints[0].cause.as_str()), (1, "worker exit"));
    assert!(hints[0].after.is_some(), "with the commit time of the fact");
    served.rig.pass("train").await;
    let mut other = report.clone();
    other.exit = Some(agent.exit(99));
    agent.send(&other).await;
    assert_eq!(agent.stored_of(1).await.unwrap().exit, report.exit, "the first word holds");
    other.exit = None;
    other.state = WorkerState::Preparing;
    agent.send(&other).await;
    let stored = agent.stored_of(1).await.unwrap();
    assert_eq!((stored.state, stored.exit), (WorkerState::Exited, report.exit));
    assert!(served.rig.take_causes().is_empty(), "it is no news any more");
}

#[tokio::test]
async fn the_slice_is_kept_until_all_outputs_are_collected_which_is_news() {
    let served = Served::with_outputs().await;
    let mut agents = running(&served).await;
    for agent in &mut agents {
        let report = Report { exit: Some(agent.exit(0)), is_collecting: true, ..agent.report(WorkerState::Exited) };
        agent.send(&report).await;
    }
    served.rig.pass("train").await;
    let job = served.get("/v1/jobs/train").await.json();
    assert_eq!((&job["outcome"], &job["resources"][0]["state"]), (&json!("succeeded"), &json!("ready")), "{job}");
    served.rig.take_causes();
    for agent in &mut agents {
        assert!(served.rig.take_causes().is_empty(), "not all have yet");
        // The exit is stored, and not told again.
        agent.send(&agent.report(WorkerState::Exited)).await;
    }
    assert_eq!(served.rig.take_causes(), ["outputs collected"]);
    served.rig.pass("train").await;
    let job = served.get("/v1/jobs/train").await.json();
    assert_eq!(job["resources"][0]["state"], json!("deleting"), "{job}");
}

#[tokio::test]
async fn a_notice_is_news_once_for_the_job() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    let now = served.rig.fakes.clock.now();
    let notice = Notice { kind: NoticeKind::Preemption, seen_at: now, deadline: now + SignedDuration::from_secs(30) };
    let mut report = agents[1].report(WorkerState::Running);
    report.notice = Some(notice.clone());
    agents[1].send(&report).await;
    assert_eq!(served.rig.take_causes(), ["notice"]);
    served.rig.pass("train").await;
    served.rig.take_causes();
    let mut report = agents[2].report(WorkerState::Running);
    report.notice = Some(notice);
    let order = agents[2].send(&report).await;
    assert!(served.rig.take_causes().is_empty(), "the job knows it already");
    assert_eq!(order.want, Want::Stop);
    assert!(order.notice.is_some());
}

#[tokio::test]
async fn the_first_step_above_the_highest_is_news() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    let agent = &mut agents[0];
    for (step, causes) in [(1, &["first new step"][..]), (2, &[])] {
        let mut report = agent.report(WorkerState::Running);
        report.progress = Progress { step: Some(step), loss: Some("2.5".into()), ..Progress::default() };
        agent.send(&report).await;
        assert_eq!(served.rig.take_causes(), causes, "step {step}");
        served.rig.pass("train").await;
        served.rig.take_causes();
    }
    let mut report = agent.report(WorkerState::Running);
    report.progress = Progress { step: Some(1), loss: Some("9".into()), ..Progress::default() };
    agent.send(&report).await;
    let stored = agent.stored().await;
    assert_eq!((stored.step, stored.loss.as_deref()), (Some(2), Some("2.5")), "steps never go back");
}

#[tokio::test]
async fn a_worker_that_resumed_further_back_than_the_first_is_news_once() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    let rows: [(usize, u64, &[&str]); 4] =
        [(0, 118, &["first new step"]), (1, 117, &["resumed further back"]), (1, 117, &[]), (2, 119, &[])];
    for (worker, from, causes) in rows {
        let mut report = agents[worker].report(WorkerState::Running);
        report.progress = Progress { step: Some(from.min(118)), resumed_from: Some(from), ..Progress::default() };
        agents[worker].send(&report).await;
        assert_eq!(served.rig.take_causes(), causes, "worker {worker}");
        served.rig.pass("train").await;
        served.rig.take_causes();
    }
    assert_eq!(served.rig.job("train").await.unwrap().attempt().and_then(|a| a.resumed_from), Some(117));
}

#[tokio::test]
async fn explain_tells_the_step_that_the_workers_told_last_and_not_that_of_the_last_pass() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    for (step, pass) in [(1, true), (350, false)] {
        let mut report = agents[0].report(WorkerState::Running);
        report.progress = Progress { step: Some(step), ..Progress::default() };
        agents[0].send(&report).await;
        if pass {
            served.rig.pass("train").await;
        }
    }
    let told = served.get("/v1/jobs/train/explain").await.json();
    let paragraph = told["paragraph"].as_str().unwrap();
    assert!(paragraph.contains("at step 350") && !paragraph.contains("at step 1,"), "{paragraph}");
}

#[tokio::test]
async fn an_agent_that_restarts_changes_nothing_but_a_reboot_is_news() {
    let served = Served::with_job().await;
    let agents = running(&served).await;
    assert_eq!(say(&served, &agents[1].hello).await.status, 200);
    assert_eq!(agents[1].stored().await.state, WorkerState::Running, "the program may live");
    assert!(served.rig.take_causes().is_empty());
    let mut rebooted = agents[1].hello.clone();
    rebooted.boot_id = "boot-again".into();
    assert_eq!(say(&served, &rebooted).await.status, 200);
    let stored = agents[1].stored().await;
    assert_eq!((stored.state, stored.boot_id.as_str()), (WorkerState::Preparing, "boot-again"));
    assert_eq!(served.rig.take_causes(), ["worker rebooted"]);
    served.rig.pass("train").await;
    let job = served.rig.job("train").await.unwrap();
    assert_ne!(job.phase, Phase::Running, "its program is lost: {}", job.message);
}

#[tokio::test]
async fn a_worker_that_has_lost_its_program_without_a_boot_is_news_until_the_job_knows() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    served.rig.pass("train").await;
    let mut lost = agents[1].report(WorkerState::Ready);
    assert_eq!(agents[1].send(&lost).await.want, Want::Prepare);
    assert!(served.rig.take_causes().is_empty(), "it may be of an earlier moment");
    lost.started_at = agents[1].stored().await.started_at.or(Some(served.rig.fakes.clock.now()));
    for _ in 0..2 {
        assert_eq!(agents[1].send(&lost).await.want, Want::Prepare);
        assert_eq!(served.rig.take_causes(), ["worker rebooted"]);
    }
    served.rig.pass("train").await;
    let job = served.rig.job("train").await.unwrap();
    assert_ne!(job.phase, Phase::Running, "its program is lost: {}", job.message);
}

#[tokio::test]
async fn a_worker_that_comes_back_without_its_disk_is_not_told_to_run_the_attempt_again() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    served.rig.pass("train").await;
    let mut rebooted = agents[1].hello.clone();
    rebooted.boot_id = "boot-again".into();
    let welcome: Welcome = serde_json::from_slice(&say(&served, &rebooted).await.body).unwrap();
    assert_eq!((welcome.order.attempt, welcome.order.want), (1, Want::Prepare));
    for (state, attempt) in [(WorkerState::Preparing, 0), (WorkerState::Preparing, 1), (WorkerState::Ready, 1)] {
        let mut report = agents[1].report(state);
        (report.boot_id, report.attempt) = ("boot-again".into(), attempt);
        assert_eq!(agents[1].send(&report).await.want, Want::Prepare, "{state:?} in attempt {attempt}");
    }
    let running = agents[0].report(WorkerState::Running);
    assert_eq!(agents[0].send(&running).await.want, Want::Run, "the others go on");
}

#[tokio::test]
async fn a_worker_that_boots_between_its_release_and_its_first_word_of_running_is_not_told_to_run_again() {
    let served = Served::with_job().await;
    let mut agents = released(&served).await;
    let told = agents[1].report(WorkerState::Ready);
    assert_eq!(agents[1].send(&told).await.want, Want::Run, "it begins, and its word of that is lost");
    let mut rebooted = agents[1].hello.clone();
    rebooted.boot_id = "boot-again".into();
    // The first answer is lost too: the second comes from a boot that is known by then.
    for _ in 0..2 {
        let welcome: Welcome = serde_json::from_slice(&say(&served, &rebooted).await.body).unwrap();
        assert_eq!((welcome.order.attempt, welcome.order.want), (1, Want::Prepare));
    }
    let mut polls = agents[1].report(WorkerState::Ready);
    (polls.boot_id, polls.store) = ("boot-again".into(), false);
    assert_eq!(agents[1].send(&polls).await.want, Want::Prepare, "an agent without news either");
    served.rig.pass("train").await;
    let job = served.rig.job("train").await.unwrap();
    let end = job.last_end.as_ref().expect("the attempt ends, though it has never run on all workers");
    assert!(end.ended.summary.contains("worker 1 rebooted and lost its program"), "{}", end.ended.summary);
}

/// Makes the stored job look as if attempt 2 were prepared on the same slice while attempt 1 is not proved over.
async fn second_attempt(served: &Served) {
    let store = served.rig.fakes.store();
    let at = store.job(&train()).await.unwrap().unwrap();
    let mut job = std::sync::Arc::unwrap_or_clone(at.value);
    let mut next = job.attempts[0].clone();
    (next.number, next.released_at, next.started_at) = (2, None, None);
    job.attempts.push(next);
    job.last_attempt = 2;
    store.write(&Kind::Job(train()), &job, Precondition::None).await.unwrap();
}

#[tokio::test]
async fn a_late_exit_goes_to_its_own_attempt_and_late_state_nowhere() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    second_attempt(&served).await;
    let late_state = agents[0].report(WorkerState::Preparing);
    let mut late_exit = agents[0].report(WorkerState::Exited);
    late_exit.exit = Some(agents[0].exit(1));
    let before = agents[0].stored_of(1).await.unwrap();
    served.rig.advance(5);
    let order = agents[0].send(&late_state).await;
    assert_eq!((order.attempt, order.want), (2, Want::Prepare), "it is told of the later attempt");
    assert_eq!(agents[0].stored_of(1).await.unwrap(), before, "refused for state");
    agents[0].send(&late_exit).await;
    assert_eq!(agents[0].stored_of(1).await.unwrap().exit, late_exit.exit);
    assert!(agents[0].stored_of(2).await.is_none(), "and never written to the later attempt");
    assert_eq!(served.rig.take_causes(), ["worker exit"]);
    let mut unknown = agents[0].report(WorkerState::Exited);
    (unknown.attempt, unknown.exit) = (9, Some(agents[0].exit(1)));
    agents[0].send(&unknown).await;
    assert!(agents[0].stored_of(9).await.is_none(), "an attempt that the job does not have");
}

#[tokio::test]
async fn a_restarted_agent_does_not_fence_the_program_it_may_still_run() {
    let served = Served::with_job().await;
    let agents = running(&served).await;
    second_attempt(&served).await;
    assert_eq!(say(&served, &agents[0].hello).await.status, 200);
    assert!(agents[0].stored_of(2).await.is_none(), "its program of attempt 1 may live");
    let mut rebooted = agents[0].hello.clone();
    rebooted.boot_id = "boot-again".into();
    assert_eq!(say(&served, &rebooted).await.status, 200);
    assert!(agents[0].stored_of(2).await.is_some(), "after a boot it cannot");
}

#[tokio::test]
async fn the_first_report_of_a_later_attempt_makes_its_document() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    second_attempt(&served).await;
    let mut report = agents[3].report(WorkerState::Preparing);
    report.attempt = 2;
    agents[3].send(&report).await;
    let stored = agents[3].stored_of(2).await.unwrap();
    let address = served.rig.job("train").await.unwrap().generations[0].addresses[0][3].clone();
    assert_eq!((stored.instance.as_str(), stored.address), ("t1v-n-1-w-3", address));
}

#[tokio::test]
async fn agents_of_a_generation_that_is_gone_are_sent_away() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    served.tell("/v1/jobs/train/cancel").await;
    served.rig.pass("train").await;
    for agent in &mut agents {
        let mut report = agent.report(WorkerState::Exited);
        let mut exit = agent.exit(0);
        exit.ordered = true;
        report.exit = Some(exit);
        agent.send(&report).await;
    }
    for _ in 0..30 {
        served.rig.pass("train").await;
        served.rig.advance(1);
    }
    assert_eq!(served.rig.job("train").await.unwrap().phase, Phase::Cancelled);
    let report = agents[0].report(WorkerState::Exited);
    assert_eq!(agents[0].send(&report).await.want, Want::Retire);
    let answer = say(&served, &agents[0].hello).await;
    let welcome: Welcome = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(welcome.order.want, Want::Retire);
}

#[tokio::test]
async fn races_are_won_in_the_end_and_troubles_are_503() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    let agent = &mut agents[0];
    served.rig.fakes.docs.fail_commit(rekindle_fakes::CommitFault::Conflict);
    let report = agent.report(WorkerState::Running);
    agent.send(&report).await;
    served.rig.fakes.docs.set_down(true);
    assert_eq!(agent.try_send(&report).await.status, 503);
    assert_eq!(say(&served, &agent.hello).await.status, 503);
}

#[tokio::test]
async fn calls_keep_the_liveness_record_going_but_rarely_write_it() {
    let served = Served::with_job().await;
    let mut agent = worker(&served, 0).await;
    let record =
        || async { served.rig.fakes.store().read::<LivenessDoc>(&Kind::Liveness).await.unwrap().unwrap().value };
    let first = record().await;
    assert!(first.api_at.is_some() && first.api_since == first.api_at);
    served.rig.advance(5);
    let report = agent.report(WorkerState::Preparing);
    agent.send(&report).await;
    assert_eq!(record().await, first, "not again within a quarter of the gap");
    served.rig.advance(40);
    agent.send(&report).await;
    let second = record().await;
    assert!(second.api_at > first.api_at && second.api_since == first.api_since);
    served.rig.advance(151);
    agent.send(&report).await;
    assert!(record().await.api_since > second.api_since, "after an outage the clocks start again");
}

#[tokio::test]
async fn bodies_of_agents_are_bounded() {
    let served = Served::with_job().await;
    let big = Value::String("x".repeat(10 << 20));
    assert_eq!(served.post("/agent/v1/hello", &big).await.status, 413);
    assert_eq!(served.post("/agent/v1/report", &big).await.status, 413);
}
