//! Every way a slice or a program can be lost.

use serde_json::json;

use rekindle_core::classify::Exit;
use rekindle_core::decide::Command;
use rekindle_core::failure::FailureKind;
use rekindle_core::job::Phase;
use rekindle_core::observation::{CreateError, CreateErrorKind, SliceState};
use rekindle_core::policy::Action;
use rekindle_core::reason::Reason;
use rekindle_fakes::Script;
use rekindle_ports::tpu::TpuError;

use super::rig::Rig;

const GRPC: &str = "Error: all-reduce at step 77 failed: gRPC status UNKNOWN: h2 protocol error: error reading a body from connection: stream closed because of a broken pipe\n";

async fn running() -> Rig {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig
}

#[tokio::test]
async fn each_way_a_slice_is_lost_is_recovered() {
    for state in [SliceState::Preempted, SliceState::Terminated, SliceState::Stopped] {
        let mut rig = running().await;
        rig.power_off(1);
        rig.fakes.tpu.set_state(&Rig::name(1), state.clone());
        let job = rig.until(200, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
        assert_eq!(
            (job.last_generation, job.counters.preemptions, job.counters.infra_failures),
            (2, 1, 0),
            "{state:?}"
        );
        assert!(rig.fakes.tpu.slices().iter().all(|l| l.slice.name != Rig::name(1)), "{state:?}: the husk is deleted");
    }
}

#[tokio::test]
async fn a_vanished_slice_is_recovered_by_ticks_alone_within_75_seconds() {
    let mut rig = running().await;
    rig.events = false;
    rig.power_off(1);
    rig.fakes.tpu.vanish(&Rig::name(1));
    let lost_at = rig.now();
    let creates = rig.creates();
    while rig.creates() == creates {
        rig.second().await;
    }
    let waited = rig.now().duration_since(lost_at).as_secs();
    assert!(waited <= 75, "{waited} s");
}

#[tokio::test]
async fn a_slice_that_lies_ready_is_given_up_after_the_hard_limit() {
    let mut rig = running().await;
    rig.power_off(1);
    let job = rig.until(15 * 60 + 75 + 30, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert_eq!((job.last_generation, job.counters.infra_failures), (2, 1));
    assert_eq!(rig.runs, [(1, 1), (2, 2)]);
}

#[tokio::test]
async fn an_outage_of_our_own_is_not_their_silence() {
    let mut rig = running().await;
    rig.cut_off.insert(1);
    rig.ticks = false;
    rig.fakes.probe.set_answering(false);
    for _ in 0..30 * 60 {
        rig.second().await;
    }
    rig.ticks = true;
    rig.fakes.probe.set_answering(true);
    rig.cut_off.clear();
    for _ in 0..20 * 60 {
        rig.second().await;
    }
    assert_eq!((rig.job().await.last_attempt, rig.creates()), (1, 1));
}

#[tokio::test]
async fn a_notice_hands_over_without_two_copies() {
    let mut rig = running().await;
    rig.notice(1, 30);
    rig.second().await;
    assert_eq!(rig.creates(), 2, "the next slice is asked for at the notice");
    let job = rig.until(120, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert_eq!((job.last_generation, job.counters.preemptions), (2, 1));
    assert!(job.attempt().unwrap().resume);
}

#[tokio::test]
async fn with_quota_for_one_the_next_create_follows_the_404_at_once() {
    let mut rig = running().await;
    let quota = CreateError { kind: CreateErrorKind::Quota, message: "Quota limit".into() };
    rig.fakes.tpu.script_create(rekindle_fakes::Script::Before(rekindle_ports::tpu::TpuError::Refused(quota)));
    rig.notice(1, 30);
    rig.second().await;
    assert_eq!(rig.creates(), 2);
    while rig.fakes.tpu.slices().iter().any(|l| l.slice.name == Rig::name(1)) {
        rig.second().await;
        assert!(rig.creates() == 2 || rig.fakes.tpu.slices().iter().all(|l| l.slice.name != Rig::name(1)));
    }
    let gone_at = rig.now();
    while rig.creates() == 2 {
        rig.second().await;
    }
    assert!(rig.now().duration_since(gone_at).as_secs() <= 1);
    let job = rig.until(60, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert_eq!((job.last_generation, job.counters.stockouts), (2, 0));
    assert!(job.barred.is_empty(), "our own dying node is no stockout");
}

#[tokio::test]
async fn a_grpc_failure_resumes_in_place_and_a_repeat_recreates() {
    let mut rig = running().await;
    rig.steps_per_sec = 0;
    for worker in 0..4 {
        rig.exit(1, worker, Exit::Code(1), GRPC);
    }
    let job = rig.until(60, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert_eq!((job.last_generation, job.counters.infra_failures, rig.creates()), (1, 1, 1));
    for worker in 0..4 {
        rig.exit(2, worker, Exit::Code(1), GRPC);
    }
    let job = rig.until(120, "attempt 3", |j| j.last_attempt == 3 && j.phase == Phase::Running).await;
    assert_eq!((job.last_generation, job.counters.infra_failures), (2, 2));
}

#[tokio::test]
async fn a_slice_whose_runtime_fails_again_without_progress_is_replaced() {
    let busy = "F1127 04:10:00.120 77 tpu_driver.cc:61] open(/dev/accel0): Device or resource busy\n";
    let mut rig = running().await;
    rig.steps_per_sec = 1;
    rig.exit(1, 0, Exit::Code(1), busy);
    let job = rig.until(120, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert_eq!((job.last_generation, job.last_end.unwrap().ended.kind), (1, Some(FailureKind::TpuRuntime)));
    // Steps forward: the count of repeats begins anew, and a slice is scarce.
    rig.seconds(2 * 3600).await;
    rig.steps_per_sec = 0;
    rig.exit(2, 0, Exit::Code(1), busy);
    let job = rig.until(240, "attempt 3", |j| j.last_attempt == 3 && j.phase == Phase::Running).await;
    assert_eq!((job.last_generation, rig.creates()), (1, 1), "the same slice");
    rig.exit(3, 0, Exit::Code(1), busy);
    let job = rig.until(240, "attempt 4", |j| j.last_attempt == 4 && j.phase == Phase::Running).await;
    assert_eq!((job.last_generation, rig.creates()), (2, 2), "a new slice, and the old one is not taken again");
    assert_eq!(job.generations.len(), 1);
}

#[tokio::test]
async fn tries_after_storage_failures_wait_twice_as_long_each_time_and_not_all_alike() {
    let cut =
        "google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage.googleapis.com/b/o: Backend Error\n";
    let mut rig = running().await;
    rig.steps_per_sec = 0;
    let mut spreads = Vec::new();
    for attempt in 1..=4 {
        rig.exit(attempt, 0, Exit::Code(1), cut);
        let ends =
            |j: &rekindle_core::job::Job| j.next.is_some() && j.last_end.as_ref().is_some_and(|e| e.attempt == attempt);
        let job = rig.until(120, "its end", ends).await;
        let end = job.last_end.unwrap().ended;
        assert_eq!(end.kind, Some(FailureKind::StorageNetwork));
        let told = match attempt {
            1 => "before it resumes in place, after storage_network".to_owned(),
            times => {
                format!("before it resumes in place, after storage_network {times} times without progress in between")
            }
        };
        assert!(job.message.ends_with(&told), "{}", job.message);
        let waits = job.next.unwrap().not_before.duration_since(end.at).as_secs_f64();
        let spread = waits / (30.0 * f64::from(1 << (attempt - 1)));
        assert!((0.75..=1.25).contains(&spread), "{waits} s before attempt {}", attempt + 1);
        spreads.push(spread);
        rig.until(600, "the next attempt", |j| j.last_attempt == attempt + 1 && j.phase == Phase::Running).await;
    }
    assert!(spreads.windows(2).any(|pair| (pair[0] - pair[1]).abs() > 1e-6), "{spreads:?}");
}

#[tokio::test]
async fn a_new_beginning_on_the_same_slice_waits_like_a_new_try_when_storage_failed() {
    let cut =
        "google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage.googleapis.com/b/o: Backend Error\n";
    let mut rig = Rig::new().await;
    rig.submit(json!({"recovery": {"overrides": {"storage_network": "restart_in_place"}}})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.exit(1, 0, Exit::Code(1), cut);
    let job = rig.until(120, "its end", |j| j.next.is_some() && j.last_end.is_some()).await;
    let (next, end) = (job.next.clone().unwrap(), job.last_end.clone().unwrap().ended);
    assert_eq!((next.why, next.resume, next.new_generation), (Reason::RestartInPlace, false, false));
    assert!(next.not_before.duration_since(end.at).as_secs_f64() >= 22.5, "{next:?}");
    let job = rig.until(600, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert_eq!((job.line, job.last_generation, rig.creates()), (1, 1, 1));
}

#[tokio::test]
async fn one_worker_of_four_killed_stops_the_others_and_starts_again() {
    let mut rig = running().await;
    rig.exit(1, 2, Exit::Signal(9), "");
    let job = rig.until(120, "attempt 2", |j| j.last_attempt == 2 && j.phase == Phase::Running).await;
    assert!(job.last_end.is_some());
}

#[tokio::test]
async fn a_machine_started_anew_is_no_fault_of_the_program_however_often() {
    let mut rig = running().await;
    // It writes no progress, so that nothing resets what is counted.
    rig.steps_per_sec = 0;
    for attempt in 1..=5 {
        rig.exit(attempt, 2, Exit::Silent, "");
        let job = rig.until(300, "the next attempt", |j| j.last_attempt > attempt && j.phase == Phase::Running).await;
        let end = job.last_end.unwrap().ended;
        assert_eq!((end.kind, end.action), (Some(FailureKind::Lost), Some(Action::ResumeInPlace)), "{}", end.summary);
    }
    assert_eq!((rig.job().await.counters.infra_failures, rig.creates()), (5, 1));
}

#[tokio::test]
async fn an_exit_first_and_the_preemption_shortly_after_is_a_preemption() {
    let mut rig = running().await;
    rig.steps_per_sec = 0;
    for worker in 0..4 {
        rig.exit(1, worker, Exit::Code(1), GRPC);
    }
    rig.until(30, "charged", |j| j.counters.infra_failures == 1).await;
    for _ in 0..20 {
        rig.second().await;
    }
    rig.power_off(1);
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Preempted);
    let job = rig.until(200, "generation 2", |j| j.last_generation == 2 && j.phase == Phase::Running).await;
    assert_eq!((job.counters.infra_failures, job.counters.preemptions), (0, 1));
}

#[tokio::test]
async fn a_worker_cut_off_is_never_doubled() {
    let mut rig = running().await;
    // Alive, but cannot reach `api`; the rig's own check fails if another attempt runs while this one may.
    rig.cut_off.insert(1);
    for _ in 0..14 * 60 {
        rig.second().await;
    }
    assert_eq!(rig.job().await.last_attempt, 1);
    rig.cut_off.clear();
    for _ in 0..120 {
        rig.second().await;
    }
    assert_eq!(rig.job().await.last_attempt, 1, "heard again: nothing is lost");
}

#[tokio::test]
async fn a_create_whose_answer_is_lost_is_claimed() {
    let mut rig = Rig::new().await;
    rig.fakes.tpu.script_create(rekindle_fakes::Script::After(rekindle_ports::tpu::TpuError::Unclear("503".into())));
    rig.submit(json!({})).await;
    let job = rig.until_phase(Phase::Running, 100).await;
    assert_eq!((job.last_generation, rig.fakes.tpu.slices().len()), (1, 1));
}

#[tokio::test]
async fn a_stockout_in_the_operation_goes_elsewhere() {
    let mut rig = Rig::new().await;
    let stockout = CreateError { kind: CreateErrorKind::Stockout, message: "no more capacity".into() };
    rig.fakes.tpu.script_create(rekindle_fakes::Script::Operation(stockout));
    rig.submit(json!({})).await;
    let job = rig.until_phase(Phase::Running, 120).await;
    assert_eq!((job.last_generation, job.counters.stockouts, rig.creates()), (1, 1, 2));
}

#[tokio::test]
async fn preempted_while_creating_is_a_lost_generation() {
    let mut rig = Rig::new().await;
    rig.create_secs = 30;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Provisioning, 70).await;
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Preempted);
    let job = rig.until(200, "running", |j| j.phase == Phase::Running).await;
    assert_eq!((job.last_generation, job.counters.preemptions), (2, 1));
    assert_eq!(rig.fakes.tpu.slices().len(), 1);
}

/// A READY node with this installation's label, so many seconds old.
fn put(rig: &Rig, name: &str, installation: &str, age: i64) {
    use rekindle_core::observation::{Health, SliceLabels, SliceView};
    use rekindle_ports::tpu::{Listed, SliceRef};
    let view = SliceView {
        state: SliceState::Ready,
        ended: false,
        health: Health::Healthy,
        addresses: vec![vec!["10.9.9.9".into()]].into(),
        labels: SliceLabels { installation: installation.into(), ..SliceLabels::default() },
        created_at: None,
        error: None,
        note: None,
        made: Vec::new(),
    };
    rig.fakes.tpu.insert(Listed {
        slice: SliceRef { zone: "us-central1-a".into(), name: name.into(), via: rekindle_core::job::Via::Node },
        accelerator: "v5litepod-4".into(),
        preemptible: true,
        reserved: false,
        view,
        owned_by: None,
        created_at: Some(rig.now() - jiff::SignedDuration::from_secs(age)),
    });
}

#[tokio::test]
async fn an_orphan_is_swept_and_a_foreign_node_never() {
    let mut rig = running().await;
    put(&rig, "rk-abcdef-gone-g1", "abcdef", 0);
    for _ in 0..590 {
        rig.second().await;
    }
    put(&rig, "rk-abcdef-young-g1", "abcdef", 300);
    put(&rig, "rk-abcdef-train-g9", "zzzzzz", 1200);
    put(&rig, "somebody-else", "", 99_999);
    for _ in 0..70 {
        rig.second().await;
    }
    let names: Vec<String> = rig.fakes.tpu.slices().into_iter().map(|l| l.slice.name.clone()).collect();
    assert!(!names.contains(&"rk-abcdef-gone-g1".to_owned()), "{names:?}");
    for kept in ["rk-abcdef-young-g1", "rk-abcdef-train-g9", "somebody-else"] {
        assert!(names.contains(&kept.to_owned()), "{kept}");
    }
}

#[tokio::test]
async fn a_create_that_meets_its_name_takes_what_has_all_its_labels_and_nothing_else() {
    let central = json!({"tpu": {"accelerator": "v5litepod-16", "zones": ["us-central1-a"]}});
    // Somebody else's, which reads show.
    let mut rig = Rig::new().await;
    put(&rig, &Rig::name(1), "zzzzzz", 1200);
    rig.submit(central.clone()).await;
    let job = rig.until(70, "the name is taken", |j| !j.barred.is_empty()).await;
    assert_eq!(job.barred[0].error.kind, CreateErrorKind::NameTaken, "{}", job.message);
    let job = rig.until_phase(Phase::Running, 300).await;
    assert_eq!((job.last_generation, rig.deletes()), (2, 0));
    // Made by a create whose answer was lost; the one that is sent again meets it.
    let mut rig = Rig::new().await;
    rig.fakes.tpu.script_create(Script::After(TpuError::Unclear("the connection broke".into())));
    rig.fakes.tpu.set_hidden(&Rig::name(1), true);
    rig.submit(central).await;
    rig.until(60, "asked again", |j| j.generations.first().is_some_and(|g| g.create_tries > 1)).await;
    rig.fakes.tpu.set_hidden(&Rig::name(1), false);
    let job = rig.until_phase(Phase::Running, 120).await;
    assert_eq!((job.last_generation, rig.fakes.tpu.slices().len(), rig.deletes()), (1, 1, 0));
}

#[tokio::test]
async fn what_has_the_name_of_a_slice_and_no_read_shows_is_not_deleted_by_its_name() {
    let elsewhere = json!({"tpu": {"accelerator": "v5litepod-16", "zones": ["us-central1-a"]}});
    for end in ["limit", "cancel"] {
        let mut rig = Rig::new().await;
        put(&rig, &Rig::name(1), "zzzzzz", 1200);
        rig.fakes.tpu.set_hidden(&Rig::name(1), true);
        rig.submit(elsewhere.clone()).await;
        rig.until(60, "asked again", |j| j.generations.first().is_some_and(|g| g.create_tries > 1)).await;
        if end == "cancel" {
            rig.command(Command::Cancel, "a").await;
            rig.until_phase(Phase::Cancelled, 300).await;
        } else {
            // After the limit of a create it goes on under another name.
            let job = rig.until_phase(Phase::Running, 1500).await;
            assert_eq!((job.last_generation, job.last_attempt), (2, 2));
        }
        assert_eq!(rig.deletes(), 0, "{end}");
        let names: Vec<String> = rig.fakes.tpu.slices().into_iter().map(|l| l.slice.name.clone()).collect();
        assert!(names.contains(&Rig::name(1)), "{end}: {names:?}");
    }
}

#[tokio::test]
async fn what_a_create_without_an_answer_made_is_deleted_once_a_read_shows_that_it_is_ours() {
    let mut rig = Rig::new().await;
    rig.create_secs = 10_000;
    rig.fakes.tpu.script_create(Script::After(TpuError::Unclear("the connection broke".into())));
    rig.fakes.tpu.set_hidden(&Rig::name(1), true);
    rig.submit(json!({})).await;
    rig.until(30, "not answered", |j| j.generations.first().is_some_and(|g| g.create_tries > 0)).await;
    rig.command(Command::Cancel, "a").await;
    rig.seconds(5).await;
    assert_eq!((rig.deletes(), rig.fakes.tpu.slices().len()), (0, 1));
    rig.fakes.tpu.set_hidden(&Rig::name(1), false);
    rig.until_phase(Phase::Cancelled, 300).await;
    assert_eq!((rig.deletes(), rig.fakes.tpu.slices().len()), (1, 0));
}

#[tokio::test]
async fn a_delete_without_a_proof_looks_whose_the_name_is_at_the_last_moment() {
    use rekindle_core::decide::EffectOutcome;
    use rekindle_core::effect::Effect;
    for is_ours in [false, true] {
        let mut rig = Rig::new().await;
        rig.create_secs = 10_000;
        rig.fakes.tpu.set_hidden(&Rig::name(1), true);
        if is_ours {
            rig.fakes.tpu.script_create(Script::After(TpuError::Unclear("the connection broke".into())));
        } else {
            put(&rig, &Rig::name(1), "zzzzzz", 1200);
        }
        rig.submit(json!({"tpu": {"accelerator": "v5litepod-16", "zones": ["us-central1-a"]}})).await;
        let job = rig.until(30, "sent", |j| j.generations.first().is_some_and(|g| g.create_tries > 0)).await;
        // No pass has seen it.
        rig.fakes.tpu.set_hidden(&Rig::name(1), false);
        let done = rig.engine.act(&job, &[Effect::DeleteGeneration { generation: 1 }], rig.now()).await;
        let is_sent = matches!(done[..], [EffectOutcome::DeleteSent { generation: 1 }]);
        let is_refused =
            matches!(&done[..], [EffectOutcome::DeleteFailed { why, .. }] if why.contains("not this job's"));
        assert_eq!((is_sent, is_refused, rig.deletes()), (is_ours, !is_ours, usize::from(is_ours)), "{done:?}");
    }
}

#[tokio::test]
async fn a_preemption_does_not_explain_an_exit_that_was_got_over() {
    let mut rig = running().await;
    for worker in 0..4 {
        rig.exit(1, worker, Exit::Code(1), GRPC);
    }
    rig.until(60, "progress", |j| j.last_attempt == 2 && j.attempt().is_some_and(|a| a.progressed)).await;
    rig.power_off(1);
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Preempted);
    let job = rig.until(200, "generation 2", |j| j.last_generation == 2 && j.phase == Phase::Running).await;
    assert_eq!((job.counters.infra_failures, job.counters.preemptions), (1, 1));
}

#[tokio::test]
async fn a_grpc_failure_that_repeats_within_its_window_recreates_in_spite_of_progress() {
    let mut rig = running().await;
    for attempt in 1..=2 {
        for worker in 0..4 {
            rig.exit(attempt, worker, Exit::Code(1), GRPC);
        }
        let next = attempt + 1;
        rig.until(120, "progress", |j| j.last_attempt == next && j.attempt().is_some_and(|a| a.progressed)).await;
    }
    assert_eq!(rig.runs, [(1, 1), (2, 1), (3, 2)]);
}

#[tokio::test]
async fn an_operation_whose_name_is_stored_late_still_tells_why_nothing_came() {
    use rekindle_core::job::Create;
    let mut rig = Rig::new().await;
    let stockout = CreateError { kind: CreateErrorKind::Stockout, message: "no more capacity".into() };
    rig.fakes.tpu.script_create(rekindle_fakes::Script::Operation(stockout));
    rig.submit(json!({})).await;
    // Another pass finds the resource between the create and the note of its operation.
    let id = rekindle_core::ids::JobId::parse("train").unwrap();
    rig.engine.pass(&id, "test", None).await.unwrap();
    let before = rig.fakes.store().job(&id).await.unwrap().unwrap();
    assert!(matches!(before.value.generations[0].create, Create::Sent { .. }));
    let mut adopted = rekindle_core::job::Job::clone(&before.value);
    adopted.generations[0].create = Create::Sent { operation: String::new() };
    let sent = rekindle_core::decide::EffectOutcome::CreateSent { generation: 1, operation: "op".into() };
    assert!(sent.is_of(&before.value, &adopted));
    let (after, _) = rekindle_core::decide::record(&adopted, &[sent], rig.now());
    assert_eq!(after.generations[0].create, Create::Sent { operation: "op".into() });
    let job = rig.until_phase(Phase::Running, 120).await;
    assert_eq!((job.counters.stockouts, job.counters.preemptions), (1, 0));
}

#[tokio::test]
async fn a_slice_that_lies_ready_is_replaced_by_ticks_alone_within_the_limit_and_75_seconds() {
    // At each second of a tick's minute.
    for offset in (0..60).step_by(7) {
        let mut rig = running().await;
        for _ in 0..offset {
            rig.second().await;
        }
        rig.events = false;
        rig.power_off(1);
        let silent_since = rig.now();
        while rig.creates() == 1 {
            rig.second().await;
        }
        let waited = rig.now().duration_since(silent_since).as_secs();
        let limit = i64::try_from(rig.engine.settings.silence_hard.as_secs()).unwrap();
        assert!(waited <= limit + 75, "{waited} s, {offset} s into the minute");
        assert!(waited >= limit - 60, "{waited} s, {offset} s into the minute");
    }
}

#[tokio::test]
async fn whatever_time_a_worker_tells_of_its_end_a_cancel_ends_the_job_within_an_hour_or_so() {
    use jiff::{SignedDuration, Timestamp};
    use rekindle_core::observation::{Notice, NoticeKind};
    let year = SignedDuration::from_hours(365 * 24);
    for kind in [NoticeKind::Preemption, NoticeKind::Maintenance, NoticeKind::Migration] {
        let now = running().await.now();
        let far = [(now, now + year), (now, Timestamp::MAX), (now, Timestamp::MIN), (Timestamp::MAX, now)];
        for (seen_at, deadline) in far.into_iter().chain([(Timestamp::MIN, Timestamp::MAX)]) {
            let mut rig = running().await;
            rig.notices.insert(1, Notice { kind, seen_at, deadline });
            rig.seconds(5).await;
            // And nothing is heard of it any more.
            rig.cut_off.insert(1);
            rig.command(Command::Cancel, "a").await;
            for _ in 0..140 {
                rig.seconds(30).await;
            }
            let job = rig.job().await;
            assert_eq!(job.phase, Phase::Cancelled, "{kind:?} {seen_at} {deadline}: {}", job.message);
            assert!(rig.fakes.tpu.slices().is_empty());
        }
    }
}
