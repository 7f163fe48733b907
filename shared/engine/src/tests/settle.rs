//! What explains an end: losses within the settle window, on capacity that nobody takes back; notices that are called off; fences.

use serde_json::json;

use rekindle_core::classify::Exit;
use rekindle_core::failure::FailureKind;
use rekindle_core::job::{Job, Phase};
use rekindle_core::observation::{Health, Notice, NoticeKind, SliceState};
use rekindle_core::reason::Reason;
use rekindle_fakes::Script;
use rekindle_ports::tpu::TpuError;

use super::rig::Rig;

const ERROR: &str =
    "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\nValueError: bad shape\n";

async fn on_demand(more: serde_json::Value) -> Rig {
    let mut rig = Rig::new().await;
    let mut spec = json!({"tpu": {"accelerator": "v5litepod-16", "capacity": ["on_demand"]}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    rig.submit(spec).await;
    let job = rig.until_phase(Phase::Running, 70).await;
    assert_eq!(job.spec.recovery.preset, rekindle_core::policy::Preset::Resume);
    rig
}

fn fail(rig: &mut Rig, attempt: u32) {
    for worker in 0..4 {
        rig.exit(attempt, worker, Exit::Code(1), ERROR);
    }
}

async fn seconds(rig: &mut Rig, count: u32) {
    for _ in 0..count {
        rig.second().await;
    }
}

#[tokio::test]
async fn a_lost_on_demand_slice_is_replaced_and_charged_to_the_infrastructure() {
    let mut rig = on_demand(json!({})).await;
    rig.power_off(1);
    rig.fakes.tpu.vanish(&Rig::name(1));
    let job = rig.until(120, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert_eq!((job.counters.infra_failures, job.counters.preemptions, job.counters.user_failures), (1, 0, 0));
    assert_eq!(job.last_end.unwrap().ended.kind, Some(FailureKind::Lost));
}

#[tokio::test]
async fn a_failure_is_explained_by_a_loss_within_the_window_and_explain_says_so() {
    for (state, kind, charges) in [
        (None, FailureKind::Lost, (0, 1, 0)),
        (Some(SliceState::Terminated), FailureKind::Maintenance, (1, 0, 0)),
        (Some(SliceState::Failed), FailureKind::Lost, (0, 1, 0)),
    ] {
        let mut rig = on_demand(json!({})).await;
        fail(&mut rig, 1);
        let job = rig.until(30, "settling", |j| j.reason == Reason::Settling).await;
        let waits = "waits up to 60 s to see whether the slice was lost: if so the job goes on, else it fails";
        assert!(job.message.ends_with(waits), "{}", job.message);
        assert!(rig.explain().await.contains("unless a loss of the slice explains the end"), "{}", rig.explain().await);
        seconds(&mut rig, 20).await;
        rig.power_off(1);
        match &state {
            Some(state) => rig.fakes.tpu.set_state(&Rig::name(1), state.clone()),
            None => rig.fakes.tpu.vanish(&Rig::name(1)),
        };
        let job = rig.until(60, "explained", |j| j.settling.is_none()).await;
        assert_eq!(job.outcome, None, "{state:?}");
        let told = rig.explain().await;
        assert!(told.contains(kind.as_str()) && told.contains("generation 1 was lost"), "{state:?}: {told}");
        assert!(told.contains("shortly before") && told.contains("a new slice"), "{state:?}: {told}");
        let job = rig.until(120, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
        let counters = &job.counters;
        assert_eq!((counters.preemptions, counters.infra_failures, counters.user_failures), charges, "{state:?}");
        assert!(job.attempt().unwrap().resume, "{state:?}");
    }
}

#[tokio::test]
async fn a_failure_without_a_loss_in_the_window_is_final_and_a_later_loss_changes_nothing() {
    let mut rig = on_demand(json!({})).await;
    fail(&mut rig, 1);
    rig.until(30, "settling", |j| j.reason == Reason::Settling).await;
    let since = rig.now();
    let job = rig.until(90, "final", |j| j.outcome.is_some()).await;
    let waited = rig.now().duration_since(since).as_secs();
    assert!((59..=61).contains(&waited), "{waited} s");
    rig.power_off(1);
    rig.fakes.tpu.vanish(&Rig::name(1));
    let ended = rig.until_phase(Phase::Failed, 60).await;
    assert_eq!((ended.reason, ended.counters.user_failures, rig.creates()), (job.reason, 1, 1));
    assert!(rig.explain().await.contains("user_error"), "{}", rig.explain().await);
}

#[tokio::test]
async fn a_failed_look_at_the_end_of_the_window_decides_nothing() {
    let mut rig = on_demand(json!({})).await;
    fail(&mut rig, 1);
    rig.until(30, "settling", |j| j.reason == Reason::Settling).await;
    seconds(&mut rig, 30).await;
    rig.power_off(1);
    rig.fakes.tpu.vanish(&Rig::name(1));
    for _ in 0..30 {
        rig.fakes.tpu.script_get(Script::Before(TpuError::Unclear("503".into())));
    }
    seconds(&mut rig, 120).await;
    let job = rig.job().await;
    assert_eq!((job.outcome, job.reason), (None, Reason::Settling));
    let job = rig.until(900, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert_eq!((job.counters.user_failures, job.counters.infra_failures), (0, 1));
}

#[tokio::test]
async fn the_budget_of_what_explains_an_end_holds() {
    let mut rig = on_demand(json!({"budgets": {"infra_failures": 0}})).await;
    fail(&mut rig, 1);
    rig.until(30, "settling", |j| j.reason == Reason::Settling).await;
    rig.power_off(1);
    rig.fakes.tpu.vanish(&Rig::name(1));
    let job = rig.until_phase(Phase::Failed, 120).await;
    assert!(job.message.contains("generation 1 was lost") && job.message.contains("tried again"), "{}", job.message);
    assert_eq!(rig.creates(), 1);
}

#[tokio::test]
async fn a_spot_node_that_a_repair_could_not_save_is_lost_not_preempted() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.power_off(1);
    // A host error: REPAIRING first, UNKNOWN when the repair fails.
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::InTransition("REPAIRING".into()));
    seconds(&mut rig, 30).await;
    assert_eq!(rig.job().await.last_attempt, 1);
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::InTransition("UNKNOWN".into()));
    let job = rig.until(200, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert_eq!((job.counters.preemptions, job.counters.infra_failures), (0, 1));
    assert_eq!(job.last_end.unwrap().ended.kind, Some(FailureKind::Lost));
}

#[tokio::test]
async fn maintenance_that_is_called_off_is_forgotten_and_ends_nothing() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    let in_secs = |rig: &Rig, secs: i64| Notice {
        kind: NoticeKind::Maintenance,
        seen_at: rig.now(),
        deadline: rig.now() + jiff::SignedDuration::from_secs(secs),
    };
    let notice = in_secs(&rig, 600);
    rig.notices.insert(1, notice.clone());
    let job = rig.until(70, "the notice is known", |j| j.generations[0].notice.is_some()).await;
    assert!(rig.explain().await.contains("will be taken away"), "{}", rig.explain().await);
    rig.notices.clear();
    seconds(&mut rig, 130).await;
    assert_eq!(rig.job().await.generations[0].notice, None);
    assert!(!rig.explain().await.contains("will be taken away"), "{}", rig.explain().await);
    while rig.now() < notice.deadline + jiff::SignedDuration::from_secs(120) {
        rig.second().await;
    }
    let after = rig.job().await;
    assert_eq!((after.phase, after.last_attempt, rig.creates()), (Phase::Running, job.last_attempt, 1));

    // What was acted on stands: the program was told to end.
    let notice = in_secs(&rig, 50);
    rig.notices.insert(1, notice);
    rig.until(70, "the next slice is asked for", |j| j.last_generation == 2).await;
    rig.notices.clear();
    let job = rig.until(300, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert_eq!((job.last_generation, job.counters.preemptions), (2, 1));
    seconds(&mut rig, 10).await;
    assert_eq!(rig.fakes.tpu.slices().len(), 1);
}

#[tokio::test]
async fn a_silent_worker_keeps_the_notice_that_nobody_has_called_off() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    let deadline = rig.now() + jiff::SignedDuration::from_secs(900);
    rig.notices.insert(1, Notice { kind: NoticeKind::Maintenance, seen_at: rig.now(), deadline });
    rig.until(70, "the notice is known", |j| j.generations[0].notice.is_some()).await;
    rig.cut_off.insert(1);
    rig.notices.clear();
    seconds(&mut rig, 300).await;
    assert!(rig.job().await.generations[0].notice.is_some());
}

#[tokio::test]
async fn the_word_that_a_slice_has_ended_fences_when_its_machines_have_had_their_time() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.delete_secs = 100_000;
    // No notice came, and the workers are cut off: they may compute for half a minute more.
    rig.cut_off.insert(1);
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Preempted);
    let seen = rig.until(70, "seen", |j| j.last_generation == 2).await;
    seconds(&mut rig, 55).await;
    assert_eq!(rig.runs, [(1, 1)], "READY and prepared, but not released");
    rig.power_off(1);
    let job = rig.until(20, "attempt 2 runs", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert_eq!((seen.counters.preemptions, job.counters.preemptions), (1, 1));

    // A long notice holds longer than that.
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.delete_secs = 100_000;
    rig.notice(1, 120);
    rig.second().await;
    rig.cut_off.insert(1);
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Terminated);
    seconds(&mut rig, 115).await;
    assert_eq!(rig.runs, [(1, 1)], "the notice is not over");
    rig.power_off(1);
    rig.until(70, "attempt 2 runs", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
}

#[tokio::test]
async fn a_slice_that_was_started_again_by_somebody_fences_nothing() {
    let mut rig = on_demand(json!({})).await;
    rig.delete_secs = 100_000;
    for _ in 0..50 {
        rig.fakes.tpu.script_delete(Script::Before(TpuError::Unclear("503".into())));
    }
    rig.cut_off.insert(1);
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Stopped);
    rig.until(70, "lost", |j| j.generations.iter().any(|g| g.lost.is_some())).await;
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Ready);
    seconds(&mut rig, 200).await;
    assert_eq!(rig.runs, [(1, 1)], "{:?}", rig.job().await.attempts);
}

#[tokio::test]
async fn a_delete_of_what_is_being_deleted_already_has_not_failed() {
    let refusal = || TpuError::State("delete is not supported while in state DELETING".into());
    for (script, error) in [
        (Script::After(refusal()), None),
        (
            Script::Before(refusal()),
            Some("not possible in this state: delete is not supported while in state DELETING"),
        ),
    ] {
        let mut rig = on_demand(json!({})).await;
        rig.delete_secs = 100_000;
        rig.fakes.tpu.script_delete(script);
        rig.power_off(1);
        rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Stopped);
        let is_tried = |j: &Job| j.generation(1).and_then(|g| g.delete.as_ref()).is_some_and(|d| d.tries == 1);
        let job = rig.until(200, "the delete was tried", is_tried).await;
        let delete = job.generation(1).and_then(|g| g.delete.clone()).unwrap();
        assert_eq!(delete.last_error.as_deref(), error);
    }
}

#[tokio::test]
async fn an_unhealthy_spot_slice_is_replaced_as_lost() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.fakes.tpu.change(&Rig::name(1), |view| view.health = Health::Unhealthy("UNHEALTHY_TENSORFLOW".into()));
    let job = rig.until(600, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert_eq!((job.counters.preemptions, job.counters.infra_failures), (0, 1));
}
