//! What several write at once: a job under a pass, and the minute of the create permits.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use rekindle_core::decide::Command;
use rekindle_core::ids::JobId;
use rekindle_core::job::{Job, Phase};
use rekindle_core::news::{News, NewsKind};
use rekindle_core::observation::SliceState;
use rekindle_core::reason::Reason;
use rekindle_ports::docs::{Content, Docs as _, Precondition, Write};
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{CreatesDoc, encode, half_of};
use rekindle_ports::world::Hint;

use super::rig::Rig;
use crate::{PassError, PassOutcome};

fn id() -> JobId {
    JobId::parse("train").unwrap()
}

/// The job is written just before the next commit.
async fn race(rig: &Rig, change: impl FnOnce(&mut Job)) {
    let path = Kind::Job(id()).path();
    let doc = rig.fakes.docs.get(&path).await.unwrap().unwrap();
    let mut job = Job::clone(&*rig.job().await);
    job.revision += 1;
    change(&mut job);
    let content = Content { body: encode(Arc::new(job)), index: doc.content.index };
    rig.fakes.docs.race(vec![Write::Put { path, content, when: Precondition::None }]);
}

async fn running() -> Rig {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.seconds(5).await;
    rig
}

#[tokio::test]
async fn who_writes_without_a_look_answers_nobody_elses_hint() {
    // A label, or what acting has shown.
    let rig = running().await;
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Preempted);
    race(&rig, |job| job.spec.notes = Some("second try".into())).await;
    assert_eq!(rig.engine.pass(&id(), "event", None).await.unwrap(), PassOutcome::Done);
    let job = rig.job().await;
    assert_eq!((job.counters.preemptions, job.spec.notes.as_deref()), (1, Some("second try")));

    // A pass that looked no earlier has seen the same.
    let rig = running().await;
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Preempted);
    // Commits of one moment are told apart by their microseconds.
    let now = rig.now().as_microsecond() + 1000;
    race(&rig, |job| job.observed_through_us = now).await;
    assert_eq!(rig.engine.pass(&id(), "event", None).await.unwrap(), PassOutcome::Superseded);
}

#[tokio::test]
async fn news_that_the_job_knows_costs_one_read_and_other_news_a_look() {
    let rig = running().await;
    let told = async |kind: NewsKind| {
        rig.fakes.tpu.take_calls();
        let reads = rig.fakes.docs.reads();
        let news = Some(News { generation: 1, kind });
        let hint = Hint { job: id(), after: None, news, cause: "event".into(), traceparent: None };
        let outcome = rig.engine.pass_for(&hint).await.unwrap();
        (outcome, rig.fakes.tpu.take_calls().len(), rig.fakes.docs.reads() - reads)
    };
    assert_eq!(told(NewsKind::Made).await, (PassOutcome::NothingToDo, 0, 1), "it was seen READY");
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Preempted);
    let (outcome, calls, _) = told(NewsKind::Machine).await;
    assert!(outcome == PassOutcome::Done && calls > 0);
    assert_eq!(rig.job().await.counters.preemptions, 1);
}

#[tokio::test]
async fn a_cancel_whose_pass_loses_a_race_is_carried_out_all_the_same() {
    let rig = running().await;
    rig.command(Command::Cancel, "k").await;
    // Commits of one moment are told apart by their microseconds.
    let now = rig.now().as_microsecond() + 1000;
    // Whatever the winner saw: the job is still due.
    race(&rig, |job| job.observed_through_us = now).await;
    assert_eq!(rig.engine.pass(&id(), "cancel", None).await.unwrap(), PassOutcome::Done);
    assert_eq!(rig.job().await.phase, Phase::Stopping);
}

#[tokio::test]
async fn a_permit_that_is_late_counts_in_the_half_minute_of_its_create_and_one_that_is_early_waits() {
    for (ago, used, creates, then) in
        [(0, 30, 1, 30), (1, 30, 1, 30), (2, 30, 0, 30), (2, 29, 1, 30), (3, 3, 1, 4), (-1, 3, 0, 3)]
    {
        let rig = Rig::new().await;
        rig.submit(json!({})).await;
        let half = half_of(rig.now());
        let grants = BTreeMap::from([(id(), half - ago)]);
        let doc = CreatesDoc { halves: BTreeMap::from([(half, used)]), grants, ..CreatesDoc::default() };
        rig.fakes.store().write(&Kind::Creates, &doc, Precondition::None).await.unwrap();
        rig.engine.pass(&id(), "test", None).await.unwrap();
        let doc = rig.fakes.store().read::<CreatesDoc>(&Kind::Creates).await.unwrap().unwrap().value;
        assert_eq!((rig.creates(), doc.used_in(half)), (creates, then), "{ago} half minutes ago, {used} used");
        assert_eq!(rig.job().await.reason == Reason::CreateBudget, creates == 0);
    }
}

#[tokio::test]
async fn nobody_takes_a_permit_alone_where_the_half_minutes_about_it_are_used() {
    for (off, used, creates) in
        [(-3, 30, 1), (-2, 30, 0), (-1, 30, 0), (0, 30, 0), (1, 30, 0), (2, 30, 1), (-2, 29, 1), (1, 29, 1)]
    {
        let rig = Rig::new().await;
        rig.submit(json!({})).await;
        let halves = BTreeMap::from([(half_of(rig.now()) + off, used)]);
        let doc = CreatesDoc { halves, ..CreatesDoc::default() };
        rig.fakes.store().write(&Kind::Creates, &doc, Precondition::None).await.unwrap();
        rig.engine.pass(&id(), "test", None).await.unwrap();
        assert_eq!(rig.creates(), creates, "{used} used {off} half minutes off");
    }
}

#[tokio::test]
async fn a_grant_whose_hint_was_lost_is_given_again_by_the_next_tick() {
    let rig = Rig::new().await;
    rig.submit(json!({})).await;
    let half = half_of(rig.now());
    let full = CreatesDoc { halves: BTreeMap::from([(half, 30)]), ..CreatesDoc::default() };
    rig.fakes.store().write(&Kind::Creates, &full, Precondition::None).await.unwrap();
    rig.engine.pass(&id(), "test", None).await.unwrap();
    assert_eq!(rig.job().await.reason, Reason::CreateBudget);
    for (ago, used, granted) in [(1, 30, 0), (2, 30, 1), (2, 0, 1)] {
        let doc = CreatesDoc {
            halves: BTreeMap::from([(half, used)]),
            grants: BTreeMap::from([(id(), half - ago)]),
            ..CreatesDoc::default()
        };
        rig.fakes.store().write(&Kind::Creates, &doc, Precondition::None).await.unwrap();
        assert_eq!(rig.engine.tick(rig.now()).await.unwrap().granted, granted, "{ago} half minutes ago");
        let doc = rig.fakes.store().read::<CreatesDoc>(&Kind::Creates).await.unwrap().unwrap().value;
        let from = if granted == 0 { half - ago } else { half + i64::from(used == 30) };
        assert_eq!(doc.grants[&id()], from, "{ago} half minutes ago, {used} used");
    }
}

#[tokio::test]
async fn a_pass_that_has_lost_every_race_is_not_acknowledged() {
    let rig = running().await;
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Preempted);
    // As often as a pass tries. None of the writers has looked.
    for n in 0..12 {
        race(&rig, |job| job.spec.notes = Some(format!("try {n}"))).await;
    }
    let lost = rig.engine.pass(&id(), "event", None).await;
    assert!(matches!(&lost, Err(PassError::Transient(why)) if why.contains("lost a race")), "{lost:?}");
    assert_eq!(rig.job().await.counters.preemptions, 0, "it has stored nothing");
    assert_eq!(rig.engine.pass(&id(), "event", None).await.unwrap(), PassOutcome::Done);
    assert_eq!(rig.job().await.counters.preemptions, 1);
}

#[tokio::test]
async fn a_pass_that_has_lost_every_race_for_a_permit_is_not_acknowledged() {
    let rig = Rig::new().await;
    rig.submit(json!({})).await;
    let path = Kind::Creates.path();
    for used in 1..=12 {
        let halves = BTreeMap::from([(half_of(rig.now()), used)]);
        let doc = CreatesDoc { halves, ..CreatesDoc::default() };
        let content = Content { body: encode(Arc::new(doc)), index: Arc::default() };
        rig.fakes.docs.race(vec![Write::Put { path: path.clone(), content, when: Precondition::None }]);
    }
    let lost = rig.engine.pass(&id(), "event", None).await;
    assert!(matches!(&lost, Err(PassError::Transient(_))) && rig.creates() == 0, "{lost:?}");
    rig.engine.pass(&id(), "event", None).await.unwrap();
    assert_eq!(rig.creates(), 1);
}

#[tokio::test]
async fn creates_during_a_ticks_count_are_added_and_nothing_is_counted_anew() {
    let mut rig = Rig::new().await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.engine.tick(rig.now()).await.unwrap();
    let count = async || {
        let reads = rig.fakes.docs.reads();
        let report = rig.engine.tick(rig.now()).await.unwrap();
        (report.chips, rig.fakes.docs.reads() - reads)
    };
    let undisturbed = count().await;
    assert_eq!(undisturbed.0, 16);
    // Jobs that the count does not show take a permit before it is stored, three times; one has given back as much.
    let at = rig.fakes.store().read::<CreatesDoc>(&Kind::Creates).await.unwrap().unwrap();
    let mut doc = at.value;
    for _ in 0..3 {
        for uses in [&mut doc.uses, &mut doc.added] {
            *uses.chips.entry("ann@example.com".into()).or_default() += 8;
        }
        *doc.uses.chips.entry("ann@example.com".into()).or_default() -= 8;
        let content = Content { body: encode(Arc::new(doc.clone())), index: Arc::default() };
        rig.fakes.docs.race(vec![Write::Put { path: Kind::Creates.path(), content, when: Precondition::None }]);
    }
    assert_eq!(count().await, (16 + 24, undisturbed.1 + 3), "chips, and reads");
    let doc = rig.fakes.store().read::<CreatesDoc>(&Kind::Creates).await.unwrap().unwrap().value;
    assert!(doc.added.is_empty());
    assert_eq!(count().await, undisturbed, "the next count is right again");
}
