//! A long job in a world that is only ever late: nothing healthy is taken for lost, and a real loss is not overlooked.

use jiff::SignedDuration;
use serde_json::json;

use rekindle_core::classify::Exit;
use rekindle_core::job::{Job, Phase};
use rekindle_fakes::Script;
use rekindle_ports::tpu::TpuError;

use super::rig::Rig;

/// One step of the world: a tick, and a heartbeat of each worker.
const STEP_SECS: i64 = 60;
const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// What goes wrong at a moment of the week, without any harm to the job.
fn disturb(rig: &mut Rig, second: i64) {
    // Status reads time out every 45 minutes, three in a row, so that a retry within the pass does not help.
    if second % (45 * 60) == 0 {
        for _ in 0..3 {
            rig.fakes.tpu.script_get(Script::Before(TpuError::Unclear("deadline exceeded".into())));
        }
    }
    // Each three hours all agents are late by two and a half minutes: more than three heartbeats.
    let is_late = second % (3 * HOUR) < 150 && second >= 3 * HOUR;
    // On the third day our own service is away for half an hour: no ticks, no calls of agents.
    let is_out = (2 * DAY..2 * DAY + HOUR / 2).contains(&second);
    rig.ticks = !is_out;
    rig.events = !is_out;
    rig.fakes.probe.set_answering(!is_out);
    if is_late || is_out {
        rig.cut_off.insert(1);
    } else {
        rig.cut_off.remove(&1);
    }
}

async fn job_after(rig: &mut Rig, from: i64, to: i64) -> Job {
    for second in (from..to).step_by(STEP_SECS as usize) {
        disturb(rig, second);
        rig.seconds(STEP_SECS).await;
    }
    Job::clone(&*rig.job().await)
}

#[tokio::test]
async fn a_week_of_lateness_recovers_nothing_healthy_and_one_hidden_loss_in_time() {
    let mut rig = Rig::new().await;
    rig.steps_per_sec = 1;
    // The answer to the create takes minutes, and its operation times out once.
    rig.create_secs = 8 * 60;
    rig.fakes.tpu.script_create(Script::After(TpuError::Unclear("deadline exceeded".into())));
    rig.fakes.tpu.script_operation(Script::Before(TpuError::Unclear("deadline exceeded".into())));
    rig.submit(json!({})).await;
    let job = rig.until(20 * 60, "the slow create is waited for", |job| job.phase == Phase::Running).await;
    assert_eq!((job.last_attempt, job.last_generation, rig.creates()), (1, 1, 1));

    let job = job_after(&mut rig, 0, 5 * DAY).await;
    assert_eq!((job.phase, job.last_attempt, job.last_generation), (Phase::Running, 1, 1), "{}", job.message);
    assert_eq!((job.counters.infra_failures, job.counters.preemptions, rig.deletes()), (0, 0, 0));

    // The hidden loss: the machines are gone, and the API goes on saying READY.
    rig.power_off(1);
    let lost_at = rig.now();
    rig.create_secs = 120;
    while rig.creates() == 1 {
        // Finer than the tick, so that what is measured is not the step.
        rig.seconds(20).await;
        let waited = rig.now().duration_since(lost_at);
        assert!(waited < SignedDuration::from_mins(20), "the loss is not seen");
    }
    let hard = SignedDuration::try_from(rig.engine.settings.silence_hard).unwrap();
    assert!(rig.now().duration_since(lost_at) <= hard + SignedDuration::from_secs(90));
    let job = rig.until(10 * 60, "attempt 2", |job| job.phase == Phase::Running && job.last_attempt == 2).await;
    assert_eq!((job.last_generation, job.counters.infra_failures), (2, 1));

    // The rest of the week, on the second slice.
    let from = 5 * DAY + HOUR;
    for second in (from..7 * DAY).step_by(STEP_SECS as usize) {
        if second % (45 * 60) == 0 {
            rig.fakes.tpu.script_get(Script::Before(TpuError::Unclear("deadline exceeded".into())));
        }
        rig.seconds(STEP_SECS).await;
    }
    let job = rig.job().await;
    assert_eq!((job.phase, job.last_attempt, rig.creates()), (Phase::Running, 2, 2));
}

#[tokio::test]
async fn what_may_lie_in_the_working_directory_is_resumed_with_a_clean_one() {
    let busy = "F1127 04:10:00.120 77 tpu_driver.cc:61] open(/dev/accel0): Device or resource busy\n";
    let full = "OSError: [Errno 28] No space left on device\n";
    let grpc = "Error: all-reduce at step 77 failed: status: 'The service is currently unavailable'\n";
    for (tail, is_clean) in [(busy, true), (full, true), (grpc, false)] {
        let mut rig = Rig::new().await;
        rig.submit(json!({})).await;
        rig.until_phase(Phase::Running, 70).await;
        for worker in 0..4 {
            rig.exit(1, worker, Exit::Code(1), tail);
        }
        let job = rig.until(120, "attempt 2", |job| job.last_attempt == 2 && job.phase == Phase::Running).await;
        assert_eq!((job.last_generation, rig.creates()), (1, 1), "in place: {tail}");
        assert_eq!(job.attempt().unwrap().is_clean, is_clean, "{tail}");
        // A person's restart is none of it.
        rig.command(rekindle_core::decide::Command::Restart { new_slice: false, from_scratch: false }, "k").await;
        let job = rig.until(120, "attempt 3", |job| job.last_attempt == 3 && job.phase == Phase::Running).await;
        assert!(!job.attempt().unwrap().is_clean, "{tail}");
    }
}
