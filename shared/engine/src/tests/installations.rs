//! Whose a resource is: stores that were lost, and two installations in one project. Nothing is ever deleted but one's own orphans.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;

use rekindle_core::ids::{InstallationId, JobId};
use rekindle_core::job::{Phase, Via};
use rekindle_core::names;
use rekindle_core::observation::{Health, Made, SliceLabels, SliceState, SliceView};
use rekindle_fakes::{Call, Script};
use rekindle_ports::docs::{Content, IndexValue, Precondition, Write};
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{Installation, LivenessDoc, OrphansDoc};
use rekindle_ports::tpu::{Listed, SliceRef, TpuError};

use super::rig::Rig;
use crate::Owner;
use crate::observe::made_else;

const DAY_MINUTES: usize = 24 * 60;

/// A slice of that installation, as old as that, that nobody of this test asked for.
fn put(rig: &Rig, installation: &str, job: &str, via: Via, age: SignedDuration) -> String {
    let id = InstallationId::parse(installation).unwrap();
    let job = JobId::parse(job).unwrap();
    let name = names::generation_name(&id, &job, 1);
    let view = SliceView {
        state: SliceState::Ready,
        ended: false,
        health: Health::Healthy,
        addresses: vec![vec!["10.9.9.9".into()]].into(),
        labels: names::labels(&id, &job, 1, "0123"),
        created_at: None,
        error: None,
        note: None,
        made: Vec::new(),
    };
    rig.fakes.tpu.insert(Listed {
        slice: SliceRef { zone: "us-central1-a".into(), name: name.clone(), via },
        accelerator: "v5litepod-4".into(),
        preemptible: true,
        reserved: false,
        view,
        owned_by: None,
        created_at: Some(rig.now() - age),
    });
    name
}

fn twenty_of_each(rig: &Rig) {
    for n in 0..20 {
        let via = if n % 2 == 0 { Via::Node } else { Via::QueuedResource };
        put(rig, "abcdef", &format!("ours{n}"), via, SignedDuration::from_mins(5 * n));
        put(rig, "zzzzzz", &format!("theirs{n}"), via, SignedDuration::from_mins(5 * n));
    }
}

async fn a_day_of_ticks(rig: &Rig) {
    ticks(rig, DAY_MINUTES).await;
}

async fn ticks(rig: &Rig, minutes: usize) {
    for _ in 0..minutes {
        rig.fakes.clock.advance(SignedDuration::from_mins(1));
        tick(rig).await;
    }
}

async fn tick(rig: &Rig) {
    // What a tick cannot do, it says; the next one runs all the same.
    let _ = rig.engine.tick(rig.now()).await;
    for hint in rig.fakes.hints.take() {
        rig.engine.pass(&hint.job, &hint.cause, hint.after).await.unwrap();
    }
}

fn deleted(rig: &Rig) -> Vec<String> {
    let calls = rig.fakes.tpu.calls();
    let names = calls.into_iter().filter_map(|call| match call {
        Call::Delete(slice) => Some(slice.name),
        Call::Create(_) | Call::Get(_) | Call::Operation(_) | Call::List => None,
    });
    names.collect()
}

#[tokio::test]
async fn a_store_without_its_installation_deletes_nothing_in_a_day() {
    let rig = Rig::new().await;
    twenty_of_each(&rig);
    let path = Kind::Installation.path();
    rig.fakes.store().commit(vec![Write::Delete { path, when: Precondition::None }]).await.unwrap();
    a_day_of_ticks(&rig).await;
    assert_eq!(deleted(&rig), Vec::<String>::new());
    assert_eq!(rig.fakes.tpu.slices().len(), 40);
}

#[tokio::test]
async fn a_store_of_another_installation_deletes_nothing_in_a_day() {
    // The process knows the new id, as a server does that was started on an empty store; or it still knows the old one.
    for knows in ["qqqqqq", "abcdef"] {
        let mut rig = Rig::new().await;
        twenty_of_each(&rig);
        let fresh = |id: &str| Installation {
            id: InstallationId::parse(id).unwrap(),
            secret: "other".into(),
            born_at: rig.now(),
        };
        rig.fakes.store().write(&Kind::Installation, &fresh("qqqqqq"), Precondition::None).await.unwrap();
        let engine = Arc::new(fresh(knows));
        rig.engine.installation = engine;
        a_day_of_ticks(&rig).await;
        assert_eq!(deleted(&rig), Vec::<String>::new(), "{knows}");
    }
}

#[tokio::test]
async fn a_store_that_is_younger_than_its_resources_or_lost_its_jobs_deletes_nothing_in_a_day() {
    for age in [SignedDuration::ZERO, SignedDuration::from_hours(24 * 365)] {
        let rig = Rig::new().await;
        twenty_of_each(&rig);
        let installation = Installation { born_at: rig.now() - age, ..Installation::clone(&rig.engine.installation) };
        rig.fakes.store().write(&Kind::Installation, &installation, Precondition::None).await.unwrap();
        a_day_of_ticks(&rig).await;
        assert_eq!(deleted(&rig), Vec::<String>::new(), "a store that is {age} old");
    }
}

#[tokio::test]
async fn two_installations_in_one_project_never_touch_each_others() {
    let mut ours = Rig::new().await;
    let mut theirs = ours.beside("zzzzzz").await;
    // The same job id in both, so that names differ by the installation alone.
    ours.submit(json!({})).await;
    theirs.submit(json!({})).await;
    tick(&ours).await;
    tick(&theirs).await;
    ours.fakes.clock.advance(SignedDuration::from_secs(1));
    // Made by somebody else while both looked on.
    let orphans = ["abcdef", "zzzzzz", "yyyyyy"].map(|id| put(&ours, id, "gone", Via::Node, SignedDuration::ZERO));
    for minute in 0..DAY_MINUTES {
        ours.fakes.clock.advance(SignedDuration::from_mins(1));
        ours.step().await;
        theirs.step().await;
        let calls = ours.fakes.tpu.take_calls();
        for call in calls {
            let Call::Delete(slice) = call else { continue };
            assert!(slice.name == orphans[0] || slice.name == orphans[1], "minute {minute}: {}", slice.name);
        }
    }
    for rig in [&ours, &theirs] {
        let job = rig.job().await;
        assert_eq!((job.phase, job.last_attempt, job.last_generation), (Phase::Running, 1, 1));
    }
    let mut left: Vec<String> = ours.fakes.tpu.slices().into_iter().map(|l| l.slice.name).collect();
    left.sort();
    assert_eq!(left, ["rk-abcdef-train-g1", "rk-yyyyyy-gone-g1", "rk-zzzzzz-train-g1"]);
}

#[tokio::test]
async fn an_orphan_is_deleted_by_its_owner_alone() {
    let ours = Rig::new().await;
    let theirs = ours.beside("zzzzzz").await;
    tick(&ours).await;
    tick(&theirs).await;
    ours.fakes.clock.advance(SignedDuration::from_secs(1));
    let orphan = put(&ours, "zzzzzz", "gone", Via::QueuedResource, SignedDuration::ZERO);
    let both_for_a_day = async || {
        for _ in 0..DAY_MINUTES {
            ours.fakes.clock.advance(SignedDuration::from_mins(1));
            tick(&ours).await;
            tick(&theirs).await;
        }
    };
    let stranger = SliceLabels { installation: "abcdef".into(), ..SliceLabels::default() };
    ours.fakes.tpu.change(&orphan, |view| view.labels = stranger);
    both_for_a_day().await;
    assert_eq!(deleted(&ours), Vec::<String>::new(), "name and label of different installations are nobody's");
    let label = |view: &mut SliceView| view.labels.installation = "zzzzzz".into();
    ours.fakes.tpu.change(&orphan, label);
    tick(&ours).await;
    assert_eq!(deleted(&ours), Vec::<String>::new());
    let report = theirs.engine.tick(theirs.now()).await.unwrap();
    assert_eq!(report.sweep.unwrap().deleted, [orphan]);
}

#[tokio::test]
async fn a_store_that_was_brought_back_from_a_copy_deletes_no_live_slice_however_few_there_are() {
    for count in [1, 3] {
        let mut rig = Rig::new().await;
        rig.submit(json!({})).await;
        rig.until_phase(Phase::Running, 70).await;
        // The copy is of this moment. What is made from now on, another store knew of.
        let job = rig.job().await;
        rig.fakes.clock.advance(SignedDuration::from_mins(20));
        for n in 0..count {
            put(&rig, "abcdef", &format!("later{n}"), Via::Node, SignedDuration::from_mins(10 + n));
        }
        let own = rig.fakes.tpu.slices().into_iter().find(|l| l.slice.name == "rk-abcdef-train-g1").unwrap();
        let name = names::generation_name(&rig.engine.installation.id, &job.id, 2);
        let labels = names::labels(&rig.engine.installation.id, &job.id, 2, &job.spec_hash);
        let slice = SliceRef { name: name.clone(), ..own.slice.clone() };
        rig.fakes.tpu.insert(Listed {
            slice,
            view: SliceView { labels, ..own.view.clone() },
            created_at: Some(rig.now() - SignedDuration::from_mins(5)),
            ..Listed::clone(&own)
        });
        ticks(&rig, 120).await;
        let live: Vec<String> = deleted(&rig).into_iter().filter(|name| *name != own.slice.name).collect();
        assert_eq!(live, Vec::<String>::new());
        let report = rig.engine.tick(rig.now()).await.unwrap().sweep.unwrap();
        assert_eq!((report.held, report.deleted), (count as usize + 1, Vec::new()));
    }
}

#[tokio::test]
async fn what_was_made_between_the_birth_of_a_store_and_its_first_tick_is_swept() {
    let rig = Rig::new().await;
    let orphan = put(&rig, "abcdef", "early", Via::Node, SignedDuration::ZERO);
    ticks(&rig, 12).await;
    assert_eq!(deleted(&rig), [orphan]);
}

#[tokio::test]
async fn a_job_of_which_a_history_alone_is_left_was_lost_and_keeps_its_slice() {
    let mut rig = Rig::new().await;
    let id = rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    let path = Kind::Job(id).path();
    rig.fakes.store().commit(vec![Write::Delete { path, when: Precondition::None }]).await.unwrap();
    ticks(&rig, 120).await;
    assert_eq!(deleted(&rig), Vec::<String>::new());
}

#[tokio::test]
async fn what_an_orphan_costs_is_counted_from_tick_to_tick_and_by_week() {
    let rig = Rig::new().await;
    let orphan = put(&rig, "abcdef", "gone", Via::Node, SignedDuration::from_mins(1));
    put(&rig, "zzzzzz", "gone", Via::Node, SignedDuration::from_mins(1));
    let cost = async |at| {
        let kind = Kind::Orphans(rekindle_core::account::week_of(at));
        let doc = rig.fakes.store().read::<OrphansDoc>(&kind).await.unwrap();
        doc.map(|doc| doc.value.jobs.into_values().map(|meter| (meter.chip_secs, meter.usd_micros)).collect::<Vec<_>>())
    };
    rig.engine.tick(rig.now()).await.unwrap();
    assert_eq!(cost(rig.now()).await, None, "nobody knows since when");
    rig.fakes.clock.advance(SignedDuration::from_mins(1));
    rig.engine.tick(rig.now()).await.unwrap();
    let node = rig.fakes.tpu.slices().into_iter().find(|node| node.slice.name == orphan).unwrap();
    let chips = u64::from(rekindle_core::catalog::accelerator(&node.accelerator).unwrap().chips);
    assert_eq!(cost(rig.now()).await, Some(vec![(chips * 60, chips * 300_000 / 60)]));
    rig.fakes.clock.advance(SignedDuration::from_mins(1));
    rig.fakes.tpu.change(&orphan, |view| view.state = SliceState::Preempted);
    rig.engine.tick(rig.now()).await.unwrap();
    assert_eq!(cost(rig.now()).await, Some(vec![(chips * 60, chips * 300_000 / 60)]), "what is off costs nothing");
}

#[tokio::test]
async fn an_idle_cloud_is_looked_at_rarely_and_an_orphan_in_it_dies_on_time_all_the_same() {
    let rig = Rig::new().await;
    let (grace, each) = (rig.engine.settings.orphan_grace, rig.engine.settings.idle_look);
    assert!(each < grace);
    ticks(&rig, 60).await;
    let lists = rig.fakes.tpu.take_calls().len() as u64;
    assert_eq!(lists, 1 + 59 * 60 / each.as_secs(), "of 60 ticks");
    assert_eq!(rig.fakes.probe.take_asked(), 0, "nobody waits for api");
    // Made at every minute of the stretch in which nobody looks.
    for minute in 0..usize::try_from(each.as_secs() / 60).unwrap() {
        ticks(&rig, 30 + minute).await;
        let orphan = put(&rig, "abcdef", "gone", Via::Node, SignedDuration::ZERO);
        ticks(&rig, usize::try_from(grace.as_secs() / 60).unwrap() - 1).await;
        assert_eq!(deleted(&rig), Vec::<String>::new());
        ticks(&rig, 1).await;
        assert_eq!(deleted(&rig), std::slice::from_ref(&orphan), "within a minute after the grace time");
        assert!(rig.fakes.tpu.vanish(&orphan));
        rig.fakes.tpu.take_calls();
    }
}

#[tokio::test]
async fn with_a_live_job_each_tick_looks_and_asks_api() {
    let rig = Rig::new().await;
    ticks(&rig, 1).await;
    rig.submit(json!({})).await;
    rig.fakes.tpu.take_calls();
    rig.fakes.probe.take_asked();
    ticks(&rig, 5).await;
    let lists = rig.fakes.tpu.take_calls().into_iter().filter(|call| matches!(call, Call::List)).count();
    assert_eq!((lists, rig.fakes.probe.take_asked()), (5, 5));
}

#[tokio::test]
async fn only_of_what_is_ours_it_is_told_that_something_else_was_made() {
    let mut rig = Rig::new().await;
    rig.create_secs = 600;
    rig.submit(json!({})).await;
    let job = rig.until_phase(Phase::Provisioning, 70).await;
    let (me, g) = (&rig.engine.installation.id, &job.generations[0]);
    let another = || Made { accelerator: Some("v5litepod-8".into()), ..Made::default() };
    let view = rig.fakes.tpu.slices().into_iter().find(|l| l.slice.name == g.name).unwrap().view.clone();
    let mut view = SliceView { labels: names::labels(me, &job.id, 1, &job.spec_hash), made: vec![another()], ..view };
    let told = made_else(me, &job, g, &view);
    assert!(told.is_some_and(|told| told.starts_with("v5litepod-8 was made")));
    view.labels = SliceLabels::default();
    assert_eq!(made_else(me, &job, g, &view), None, "nobody deletes that");
}

#[tokio::test]
async fn a_job_that_cannot_be_read_keeps_its_slice_and_nobody_elses_orphan() {
    let rig = Rig::new().await;
    ticks(&rig, 1).await;
    let body = json!({"schema": 1, "data": {"id": "broken"}}).into();
    let index = Arc::new([("live".into(), IndexValue::Bool(true)), ("created_us".into(), IndexValue::Int(1))].into());
    let path = Kind::Job(JobId::parse("broken").unwrap()).path();
    let write = Write::Put { path, content: Content { body, index }, when: Precondition::None };
    rig.fakes.store().commit(vec![write]).await.unwrap();
    let kept = put(&rig, "abcdef", "broken", Via::Node, SignedDuration::ZERO);
    let orphan = put(&rig, "abcdef", "gone", Via::Node, SignedDuration::ZERO);
    ticks(&rig, 12).await;
    assert_eq!(deleted(&rig), [orphan]);
    let report = rig.engine.tick(rig.now()).await.unwrap();
    assert!(report.sweep.is_some() && report.troubles.is_empty(), "{:?}", report.troubles);
    assert!(rig.fakes.tpu.slices().iter().any(|listed| listed.slice.name == kept));
    let (fleet, _) = rig.engine.fleet().await.unwrap();
    assert!(fleet.iter().any(|entry| entry.resource.slice.name == kept && matches!(entry.owner, Owner::Job { .. })));
}

async fn liveness(rig: &Rig) -> LivenessDoc {
    rig.engine.ports.store.read::<LivenessDoc>(&Kind::Liveness).await.unwrap().unwrap().value
}

/// When the sweep told last of what it leaves alone.
async fn told_at(rig: &Rig) -> Option<jiff::Timestamp> {
    liveness(rig).await.held.map(|held| held.at)
}

#[tokio::test]
async fn what_a_sweep_leaves_alone_is_told_once_an_hour_and_at_once_when_it_changes() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.fakes.clock.advance(SignedDuration::from_mins(20));
    put(&rig, "abcdef", "later", Via::Node, SignedDuration::from_mins(12));
    ticks(&rig, 1).await;
    let first = told_at(&rig).await.unwrap();
    ticks(&rig, 58).await;
    assert_eq!(told_at(&rig).await, Some(first));
    ticks(&rig, 2).await;
    let second = told_at(&rig).await.unwrap();
    assert!(second >= first + SignedDuration::from_hours(1), "{first} {second}");
    put(&rig, "abcdef", "another", Via::Node, SignedDuration::from_mins(90));
    ticks(&rig, 1).await;
    assert!(told_at(&rig).await.unwrap() > second);
}

#[tokio::test]
async fn an_orphan_that_may_not_be_deleted_is_told_once_an_hour_and_goes_when_it_may() {
    let rig = Rig::new().await;
    let orphan = put(&rig, "abcdef", "gone", Via::Node, SignedDuration::ZERO);
    let told = async || liveness(&rig).await.refused.map(|told| told.at);
    for _ in 0..70 {
        rig.fakes.tpu.script_delete(Script::Before(TpuError::Denied("403: no".into())));
    }
    ticks(&rig, 12).await;
    let first = told().await.expect("it is told");
    ticks(&rig, 40).await;
    assert_eq!((told().await, deleted(&rig).contains(&orphan)), (Some(first), true), "it is tried each minute");
    assert!(rig.fakes.tpu.slices().iter().any(|listed| listed.slice.name == orphan));
    ticks(&rig, 30).await;
    assert!(told().await.unwrap() >= first + SignedDuration::from_hours(1));
    let report = rig.engine.tick(rig.now()).await.unwrap().sweep.unwrap();
    assert!(!report.deleted.is_empty() || !rig.fakes.tpu.slices().iter().any(|l| l.view.state == SliceState::Ready));
}

#[tokio::test]
async fn a_list_that_fails_is_told_after_half_an_hour_and_then_once_an_hour() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    ticks(&rig, 1).await;
    let told = async || liveness(&rig).await.unlisted.map(|told| told.at);
    for _ in 0..120 {
        rig.fakes.tpu.script_list(Script::Before(TpuError::Denied("403: no".into())));
    }
    let began = rig.now();
    ticks(&rig, 28).await;
    assert_eq!(told().await, None);
    ticks(&rig, 3).await;
    let first = told().await.expect("it is told");
    assert!(first >= began + SignedDuration::from_mins(29), "{began} {first}");
    ticks(&rig, 40).await;
    assert_eq!(told().await, Some(first));
    ticks(&rig, 30).await;
    assert!(told().await.unwrap() >= first + SignedDuration::from_hours(1));
}
