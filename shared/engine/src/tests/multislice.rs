//! Several slices at once: all or nothing, through queued resources.

use serde_json::json;

use rekindle_core::classify::Exit;
use rekindle_core::failure::FailureKind;
use rekindle_core::job::{Job, Phase, Via};
use rekindle_core::observation::{SliceState, SliceView};
use rekindle_core::policy::Action;
use rekindle_fakes::Call;

use super::rig::Rig;

async fn two_slices() -> Rig {
    let mut rig = Rig::new().await;
    rig.submit(json!({"tpu": {"accelerator": "v5litepod-16", "slices": 2}})).await;
    let job = rig.until_phase(Phase::Running, 70).await;
    assert_eq!((job.generations[0].slices, job.generations[0].chips, rig.running()), (2, 32, 8));
    rig
}

/// What a queued resource shows when one of its nodes is PREEMPTED: the worst state, and that not all have ended.
fn one_preempted(view: &mut SliceView) {
    view.state = SliceState::Preempted;
    view.ended = false;
}

fn all_by_queued_resources(rig: &Rig) -> bool {
    let calls = rig.fakes.tpu.calls();
    calls.iter().all(|call| match call {
        Call::Create(request) => request.via == Via::QueuedResource && request.slices == 2,
        Call::Delete(slice) | Call::Get(slice) => slice.via == Via::QueuedResource,
        Call::Operation(_) | Call::List => true,
    })
}

#[tokio::test]
async fn workers_of_several_slices_are_told_how_many_there_are() {
    let rig = two_slices().await;
    let told = |rig: &Rig| {
        let calls = rig.fakes.tpu.calls();
        let request = calls.into_iter().find_map(|call| match call {
            Call::Create(request) => Some(request),
            Call::Delete(_) | Call::Get(_) | Call::Operation(_) | Call::List => None,
        });
        request.unwrap().metadata.get("rekindle-slices").cloned()
    };
    assert_eq!(told(&rig).as_deref(), Some("2"));
    let mut rig = Rig::new().await;
    rig.submit(json!({"tpu": {"accelerator": "v5litepod-16"}})).await;
    rig.until_phase(Phase::Running, 70).await;
    assert_eq!(told(&rig), None);
}

fn second_runs(job: &Job) -> bool {
    job.last_attempt == 2 && job.phase == Phase::Running
}

#[tokio::test]
async fn nothing_runs_before_all_workers_of_all_slices_are_ready() {
    let mut rig = Rig::new().await;
    rig.dead_slices.insert((1, 1));
    rig.submit(json!({"tpu": {"accelerator": "v5litepod-16", "slices": 2}})).await;
    let job = rig.until_phase(Phase::Starting, 70).await;
    for _ in 0..60 {
        rig.second().await;
    }
    assert_eq!((job.last_attempt, rig.running()), (1, 0));
    assert!(rig.explain().await.contains("4 of 8 workers are ready"), "{}", rig.explain().await);
    rig.dead_slices.clear();
    rig.until_phase(Phase::Running, 30).await;
    assert_eq!(rig.running(), 8);
}

#[tokio::test]
async fn one_lost_slice_ends_the_others_and_the_next_attempt_waits_for_proof_of_all() {
    let mut rig = two_slices().await;
    // The delete does nothing for a while: the other slice's workers are alive, cut off, and may go on computing.
    rig.delete_secs = 500;
    rig.power_off_slice(1, 1);
    rig.cut_off.insert(1);
    rig.fakes.tpu.change(&Rig::name(1), one_preempted);
    let job = rig.until(70, "the loss is seen", |j| j.generations.iter().any(|g| g.lost.is_some())).await;
    assert_eq!(job.counters.preemptions, 1);
    for _ in 0..300 {
        rig.second().await;
    }
    let job = rig.job().await;
    assert_eq!((job.last_attempt, job.phase), (2, Phase::Starting), "READY, but not released: {}", job.message);
    assert_eq!(rig.runs, [(1, 1)], "no second copy while the first slice's programs may run");
    // The queued resource is gone: with it every machine, some seconds later.
    rig.power_off(1);
    rig.fakes.tpu.vanish(&Rig::name(1));
    rig.until(70 + 10, "attempt 2 runs", second_runs).await;
    assert_eq!((rig.runs.clone(), rig.running()), (vec![(1, 1), (2, 2)], 8));
    assert!(all_by_queued_resources(&rig));
}

#[tokio::test]
async fn the_workers_of_the_other_slice_are_told_to_stop_and_their_exits_alone_are_no_proof() {
    let mut rig = two_slices().await;
    rig.delete_secs = 500;
    rig.power_off_slice(1, 1);
    rig.fakes.tpu.change(&Rig::name(1), one_preempted);
    rig.until(70, "slice 0 was ended", |j| j.attempts.iter().any(|a| a.stop.is_some())).await;
    for _ in 0..10 {
        rig.second().await;
    }
    assert_eq!(rig.running(), 0, "the workers that can hear have stopped");
    assert!(rig.job().await.attempts.iter().any(|a| a.number == 1 && a.fenced_at.is_none()), "slice 1 has not spoken");
}

#[tokio::test]
async fn the_next_attempt_starts_though_the_delete_fails_once_all_slices_have_ended() {
    let mut rig = two_slices().await;
    rig.delete_secs = 100_000;
    rig.power_off(1);
    // SUSPENDED by SERVICE: the resources are gone, and the queued resource stays as a husk.
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Preempted);
    rig.until(70, "the loss is seen", |j| j.generations.iter().any(|g| g.ended_since.is_some())).await;
    let lost_at = rig.now();
    rig.until(150, "attempt 2 runs", second_runs).await;
    let waited = rig.now().duration_since(lost_at).as_secs();
    assert!((60..=75).contains(&waited), "after the machines' time to go down: {waited} s");
    assert!(rig.fakes.tpu.slices().iter().any(|l| l.slice.name == Rig::name(1)), "the husk is still being deleted");
}

#[tokio::test]
async fn workers_that_vanish_while_the_others_end_well_are_a_loss() {
    let mut rig = two_slices().await;
    rig.power_off_slice(1, 1);
    for worker in 0..4 {
        rig.exit(1, worker, Exit::Code(0), "done\n");
    }
    let job = rig.until(1000, "attempt 1 has ended", |j| j.last_end.is_some()).await;
    let ended = job.last_end.unwrap().ended;
    assert_eq!((ended.kind, ended.action), (Some(FailureKind::Lost), Some(Action::Recreate)));
    assert!(ended.summary.contains("silent") && ended.summary.contains("never told its end"), "{}", ended.summary);
}

#[tokio::test]
async fn a_notice_hands_over_both_slices() {
    let mut rig = two_slices().await;
    rig.notice(1, 30);
    rig.second().await;
    assert_eq!(rig.creates(), 2, "the next two slices are asked for at the notice");
    let job = rig.until(120, "attempt 2 runs", second_runs).await;
    assert_eq!((job.last_generation, job.counters.preemptions, rig.running()), (2, 1, 8));
    assert_eq!(rig.runs, [(1, 1), (2, 2)]);
    assert!(all_by_queued_resources(&rig));
    for _ in 0..10 {
        rig.second().await;
    }
    assert_eq!(rig.fakes.tpu.slices().len(), 1);
}
