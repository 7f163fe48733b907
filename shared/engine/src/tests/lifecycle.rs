//! A job without trouble, and people's commands at every point of it.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::SignedDuration;
use serde_json::json;

use rekindle_core::classify::Exit;
use rekindle_core::decide::Command;
use rekindle_core::ids::JobId;
use rekindle_core::job::{Job, OutEvent, Outcome, Phase};
use rekindle_core::reason::Reason;
use rekindle_fakes::FakeClock;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::limits::BODY_BYTES_MAX;
use rekindle_ports::world::{Events, WorldError};

use super::rig::Rig;
use crate::{Commanded, Labels};

fn finish(rig: &mut Rig, attempt: u32) {
    for worker in 0..4 {
        rig.exit(attempt, worker, Exit::Code(0), "done\n");
    }
}

#[tokio::test]
async fn a_job_runs_to_success_and_owns_nothing() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    let job = rig.until_phase(Phase::Running, 70).await;
    assert_eq!((job.last_attempt, job.last_generation, rig.creates()), (1, 1, 1));
    finish(&mut rig, 1);
    let job = rig.until_phase(Phase::Succeeded, 30).await;
    assert_eq!(job.outcome, Some(Outcome::Succeeded));
    assert!(rig.fakes.tpu.slices().is_empty() && job.generations.is_empty());
    assert_eq!(rig.deletes(), 1);
    let phases: Vec<_> = rig.fakes.events.all().iter().map(|(_, e)| e.phase.as_str().to_owned()).collect();
    assert_eq!(phases, ["pending", "provisioning", "starting", "running", "stopping", "succeeded"]);
    assert!(job.outbox.is_empty());
}

#[tokio::test]
async fn the_same_message_five_times_makes_one_job_and_one_tpu() {
    let mut rig = Rig::new().await;
    for _ in 0..5 {
        rig.submit(json!({})).await;
    }
    rig.until_phase(Phase::Running, 70).await;
    assert_eq!(rig.creates(), 1);
}

#[tokio::test]
async fn a_cancel_in_every_phase_ends_cancelled_after_the_last_resource() {
    for phase in [Phase::Pending, Phase::Provisioning, Phase::Starting, Phase::Running] {
        let mut rig = Rig::new().await;
        rig.create_secs = 20;
        rig.submit(json!({})).await;
        rig.until_phase(phase, 120).await;
        assert!(matches!(rig.command(Command::Cancel, "c1").await, Commanded::Accepted(_)));
        assert!(matches!(rig.command(Command::Cancel, "c1").await, Commanded::AlreadyHolds(_)));
        let job = rig.until_phase(Phase::Cancelled, 200).await;
        assert_eq!(job.outcome, Some(Outcome::Cancelled), "from {phase:?}");
        assert!(rig.fakes.tpu.slices().is_empty(), "from {phase:?}");
        let creates = rig.creates();
        for _ in 0..120 {
            rig.second().await;
        }
        assert_eq!(rig.creates(), creates, "a cancelled job creates nothing");
    }
}

#[tokio::test]
async fn a_cancel_between_intent_and_create_finds_the_late_resource() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    // The create takes effect but its answer is lost, and the job is cancelled before the next look.
    rig.fakes.tpu.script_create(rekindle_fakes::Script::After(rekindle_ports::tpu::TpuError::Unclear("cut".into())));
    rig.engine.pass(&rekindle_core::ids::JobId::parse("train").unwrap(), "test", None).await.unwrap();
    assert_eq!(rig.fakes.tpu.slices().len(), 1);
    rig.command(Command::Cancel, "c").await;
    rig.until_phase(Phase::Cancelled, 200).await;
    assert!(rig.fakes.tpu.slices().is_empty());
}

#[tokio::test]
async fn a_pause_lets_go_and_an_unpause_resumes_on_a_new_generation() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.command(Command::Pause, "p").await;
    let job = rig.until_phase(Phase::Paused, 400).await;
    assert!(job.generations.is_empty() && rig.fakes.tpu.slices().is_empty());
    assert_eq!(job.message, "paused by ann@example.com");
    rig.command(Command::Unpause, "u").await;
    let job = rig.until_phase(Phase::Running, 100).await;
    assert_eq!((job.last_attempt, job.last_generation), (2, 2));
    assert!(job.attempt().unwrap().resume);
}

#[tokio::test]
async fn who_cancelled_is_told_by_the_job_by_its_history_and_of_its_attempt() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.command(Command::Cancel, "c").await;
    let job = rig.until_phase(Phase::Stopping, 60).await;
    let ended = job.attempts.last().unwrap().ended.as_ref().unwrap();
    assert_eq!((job.message.as_str(), ended.summary.as_str()), ("cancelled by ann@example.com", job.message.as_str()));
    let job = rig.until_phase(Phase::Cancelled, 400).await;
    assert_eq!(job.message, "cancelled by ann@example.com");
    let history = rig.fakes.store().history(&job.id, 0, 500).await.unwrap();
    let since = history.iter().skip_while(|entry| entry.cause != "cancel").collect::<Vec<_>>();
    assert!(since.len() > 1 && since.iter().all(|entry| !entry.message.contains("a person")), "{since:?}");
}

#[tokio::test]
async fn a_restart_stays_on_its_slice_unless_asked() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.command(Command::Restart { new_slice: false, from_scratch: false }, "r1").await;
    let job = rig.until(60, "attempt 2 runs", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert_eq!(job.last_generation, 1);
    rig.command(Command::Restart { new_slice: true, from_scratch: true }, "r2").await;
    let job = rig.until(120, "attempt 3 runs", |j| j.last_attempt == 3 && j.phase == Phase::Running).await;
    assert_eq!((job.last_generation, job.line), (2, 1));
    assert!(!job.attempt().unwrap().resume);
    assert_eq!(rig.runs, [(1, 1), (2, 1), (3, 2)]);
}

#[tokio::test]
async fn a_stockout_tries_every_other_place_in_the_same_pass() {
    use rekindle_core::observation::{CreateError, CreateErrorKind};
    let mut rig = Rig::new().await;
    let error = |kind| CreateError { kind, message: "no".into() };
    for _ in 0..2 {
        rig.fakes.tpu.script_create(rekindle_fakes::Script::Before(rekindle_ports::tpu::TpuError::Refused(error(
            CreateErrorKind::Quota,
        ))));
    }
    rig.submit(json!({})).await;
    rig.engine.pass(&rekindle_core::ids::JobId::parse("train").unwrap(), "test", None).await.unwrap();
    assert_eq!(rig.creates(), 3, "two refused, the third taken, in one pass");
    let job = rig.until_phase(Phase::Running, 70).await;
    assert_eq!((job.last_generation, job.last_attempt), (1, 1), "a refused create uses up no number");
}

#[tokio::test]
async fn a_user_error_fails_after_the_settle_window_and_charges_the_user() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    let text = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\nValueError: bad shape\n";
    for worker in 0..4 {
        rig.exit(1, worker, Exit::Code(1), text);
    }
    let job = rig.until(30, "settling", |j| j.reason == Reason::Settling).await;
    assert_eq!(job.outcome, None);
    let job = rig.until_phase(Phase::Failed, 120).await;
    assert_eq!((job.counters.user_failures, job.counters.infra_failures), (1, 0));
    assert!(rig.fakes.tpu.slices().is_empty());
}

#[tokio::test]
async fn a_cancel_that_all_workers_obey_before_the_next_pass_is_no_success() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.command(Command::Cancel, "c").await;
    finish(&mut rig, 1);
    let job = rig.until_phase(Phase::Cancelled, 60).await;
    assert_eq!(job.outcome, Some(Outcome::Cancelled));
}

#[tokio::test]
async fn a_total_limit_that_passes_in_a_wait_ends_the_job() {
    let mut rig = Rig::new().await;
    rig.submit(json!({"limits": {"total": "2m"}})).await;
    rig.until_phase(Phase::Running, 70).await;
    let stockout = rekindle_core::observation::CreateError {
        kind: rekindle_core::observation::CreateErrorKind::Stockout,
        message: "no more capacity".into(),
    };
    for _ in 0..200 {
        let refused = rekindle_ports::tpu::TpuError::Refused(stockout.clone());
        rig.fakes.tpu.script_create(rekindle_fakes::Script::Before(refused));
    }
    rig.power_off(1);
    rig.fakes.tpu.vanish(&Rig::name(1));
    let job = rig.until_phase(Phase::Failed, 300).await;
    assert_eq!(job.reason, Reason::TotalTimeout);
}

#[tokio::test]
async fn a_grant_after_a_long_queue_is_kept_and_a_failed_look_ends_nothing() {
    use rekindle_core::observation::SliceState;
    let mut rig = Rig::new().await;
    rig.create_secs = 100_000;
    rig.submit(json!({"tpu": {"accelerator": "v5litepod-16", "queued": "always"}})).await;
    rig.until_phase(Phase::Provisioning, 70).await;
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Queued);
    for n in 0..20 * 60 {
        if n % 300 == 0 {
            let unclear = rekindle_ports::tpu::TpuError::Unclear("503".into());
            rig.fakes.tpu.script_get(rekindle_fakes::Script::Before(unclear));
        }
        rig.second().await;
    }
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Creating);
    for _ in 0..120 {
        rig.second().await;
    }
    rig.fakes.tpu.finish(&Rig::name(1));
    let job = rig.until_phase(Phase::Running, 120).await;
    assert_eq!((job.last_generation, rig.creates()), (1, 1));
}

#[tokio::test]
async fn the_queue_limit_holds_in_the_providers_queue() {
    use rekindle_core::observation::SliceState;
    let mut rig = Rig::new().await;
    rig.create_secs = 100_000;
    rig.submit(json!({"tpu": {"accelerator": "v5litepod-16", "queued": "always"}, "limits": {"queue": "5m"}})).await;
    rig.until_phase(Phase::Provisioning, 70).await;
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Queued);
    let job = rig.until_phase(Phase::Failed, 500).await;
    assert_eq!(job.reason, Reason::QueueTimeout);
    assert!(rig.fakes.tpu.slices().is_empty());
}

#[tokio::test]
async fn a_job_that_runs_well_is_looked_at_each_five_minutes_and_at_once_when_the_list_shows_a_change() {
    use rekindle_core::observation::Health;
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    let looks = |rig: &Rig| {
        let calls = rig.fakes.tpu.take_calls();
        calls.iter().filter(|c| matches!(c, rekindle_fakes::Call::Get(_))).count()
    };
    // The first look at the running program, and what its first step brings.
    for _ in 0..30 {
        rig.seconds(10).await;
    }
    looks(&rig);
    for _ in 0..180 {
        rig.seconds(10).await;
    }
    let steady = looks(&rig);
    assert!((3..=8).contains(&steady), "{steady} looks in 30 minutes");
    // Unhealthy, and nobody says a word.
    rig.fakes.tpu.change(&Rig::name(1), |view| view.health = Health::Unhealthy("UNHEALTHY_TPU".into()));
    let job = rig.until(75, "the change is seen", |j| j.generations[0].unhealthy_since.is_some()).await;
    assert_eq!(job.phase, Phase::Running);
    rig.fakes.tpu.change(&Rig::name(1), |view| view.health = Health::Healthy);
    let job = rig.until(130, "the slice is well again", |j| j.generations[0].unhealthy_since.is_none()).await;
    assert_eq!(job.last_attempt, 1);
}

#[tokio::test]
async fn a_place_where_creates_hang_is_left_for_another() {
    let mut rig = Rig::new().await;
    let zones = ["us-west4-a", "us-central1-a"];
    rig.hangs_in = Some(zones[0].into());
    rig.submit(json!({"tpu": {"accelerator": "v5litepod-16", "zones": zones, "queued": "never"}})).await;
    let job = rig.until(700, "given up", |job| !job.barred.is_empty()).await;
    assert_eq!((job.phase, job.reason), (Phase::Pending, Reason::CreateTimeout), "{}", job.message);
    let job = rig.until_phase(Phase::Running, 120).await;
    assert_eq!(job.generations[0].placement.zone, zones[1]);
    assert_eq!((rig.creates(), job.counters.infra_failures), (2, 0));
}

/// A topic that takes a second for each event.
struct SlowEvents(Arc<FakeClock>);

#[async_trait]
impl Events for SlowEvents {
    async fn publish(&self, _: &JobId, _: &OutEvent) -> Result<(), WorldError> {
        self.0.advance(SignedDuration::from_secs(1));
        Ok(())
    }
}

#[tokio::test]
async fn of_many_events_a_pass_publishes_and_crosses_off_what_it_has_time_for() {
    let mut rig = Rig::new().await;
    let id = rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    let mut job = Job::clone(&*rig.job().await);
    let event = OutEvent {
        sequence: 0,
        at: rig.now(),
        phase: Phase::Running,
        reason: Reason::Running,
        message: "as always".into(),
        attempt: 1,
        generation: 1,
    };
    job.outbox = (1..=60).map(|sequence| OutEvent { sequence, ..event.clone() }).collect();
    rig.fakes.store().write(&Kind::Job(id.clone()), &job, Precondition::None).await.unwrap();
    rig.engine.ports.events = Arc::new(SlowEvents(rig.fakes.clock.clone()));
    let mut left = Vec::new();
    for _ in 0..3 {
        rig.engine.pass(&id, "test", None).await.unwrap();
        left.push(rig.job().await.outbox.len());
    }
    let each = usize::try_from(rig.engine.settings.handler_deadline.as_secs()).unwrap();
    assert_eq!(left, [60 - each, 60 - 2 * each, 0]);
}

/// What is bounded where it comes from cannot fill a document; were it full all the same, nothing is lost, and room is enough.
#[tokio::test]
async fn a_job_whose_document_is_full_ends_once_there_is_room() {
    let mut rig = Rig::new().await;
    let id = rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    let noted = async |rig: &Rig, text: String| {
        let labels = Labels { notes: Some(text), ..Labels::default() };
        rig.engine.label(&id, &labels, "ann@example.com").await
    };
    let mut room = BODY_BYTES_MAX;
    while noted(&rig, "x".repeat(room)).await.is_err() {
        room -= 50;
    }
    let told = rig.engine.command(&id, Command::Cancel, "ann@example.com", "1", None).await;
    let passed = rig.engine.pass(&id, "test", None).await;
    assert!(told.is_err() || passed.is_err(), "{told:?} {passed:?}");
    assert_eq!((rig.job().await.phase, rig.deletes()), (Phase::Running, 0));
    noted(&rig, String::new()).await.unwrap();
    rig.command(Command::Cancel, "2").await;
    let job = rig.until_phase(Phase::Cancelled, 120).await;
    assert!(job.generations.is_empty() && rig.fakes.tpu.slices().is_empty());
}
