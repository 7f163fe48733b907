//! Wake-ups and the tick in process: as Cloud Tasks and Cloud Scheduler send them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rekindle_core::ids::JobId;
use rekindle_local::{LocalTicker, LocalWakeups, ScaledClock, SystemClock};
use rekindle_ports::world::{Clock, Hint, Wakeups};
use rekindle_wire::delivery::Via;

use crate::receiver::{Answer, Receiver, eventually};

const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn job(id: &str) -> JobId {
    JobId::parse(id).unwrap()
}

#[tokio::test]
async fn a_wake_up_comes_when_it_is_due_as_a_task_and_again_until_it_is_taken() {
    let receiver = Receiver::start(|n, _| Answer::Status(if n < 2 { 503 } else { 204 })).await;
    let wakeups = LocalWakeups::start(receiver.url("/functions/reconcile"), Arc::new(SystemClock), 1.0).unwrap();
    let at = Timestamp::now() + SignedDuration::from_millis(120);
    wakeups.schedule(&job("one"), at, "abc-one-3").await.unwrap();
    let all = receiver.wait_for(3).await;
    assert!(Timestamp::now() >= at);
    for (n, received) in all.iter().enumerate() {
        let delivery = received.delivery();
        assert_eq!((delivery.via, delivery.id.as_deref()), (Via::Tasks, Some("rekindle-wakeups/abc-one-3")));
        assert_eq!(delivery.attempt, Some(n as u32 + 1));
        assert_eq!(delivery.published_at.unwrap().as_millisecond(), at.as_millisecond());
        let hint: Hint = serde_json::from_slice(&delivery.data.unwrap()).unwrap();
        assert_eq!((hint.job, hint.after), (job("one"), None));
    }
    assert_eq!(wakeups.waiting(), 0);
}

#[tokio::test]
async fn one_wake_up_for_each_key_and_the_earliest_wins() {
    let receiver = Receiver::start(|_, _| Answer::Status(204)).await;
    let wakeups = LocalWakeups::start(receiver.url("/"), Arc::new(SystemClock), 1.0).unwrap();
    let now = Timestamp::now();
    wakeups.schedule(&job("a"), now + HOUR, "a").await.unwrap();
    wakeups.schedule(&job("b"), now + HOUR, "b").await.unwrap();
    assert_eq!(wakeups.waiting(), 2);
    wakeups.schedule(&job("a"), now + HOUR + HOUR, "a").await.unwrap();
    assert_eq!(wakeups.waiting(), 2);
    wakeups.schedule(&job("a"), now, "a").await.unwrap();
    let first = receiver.wait_for(1).await;
    assert_eq!(first[0].delivery().id.as_deref(), Some("rekindle-wakeups/a"));
    assert_eq!(wakeups.waiting(), 1);
    // Once it has come, the same key is a new wake-up.
    wakeups.schedule(&job("a"), now, "a").await.unwrap();
    receiver.wait_for(2).await;
    assert_eq!(receiver.received().len(), 2);
}

#[tokio::test]
async fn wake_ups_follow_a_clock_that_runs_faster() {
    let receiver = Receiver::start(|_, _| Answer::Status(204)).await;
    let clock = Arc::new(ScaledClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 36_000.0));
    let wakeups = LocalWakeups::start(receiver.url("/"), clock.clone(), 36_000.0).unwrap();
    let at = clock.now() + HOUR;
    wakeups.schedule(&job("a"), at, "a").await.unwrap();
    receiver.wait_for(1).await;
    assert!(clock.now() >= at);
    wakeups.close(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn ticks_come_at_once_then_by_the_period_and_never_two_at_a_time() {
    let receiver = Receiver::start(|n, _| match n {
        0 => Answer::Status(503),
        2 => Answer::AtTheGate,
        _ => Answer::Status(204),
    })
    .await;
    let period = Duration::from_secs(1);
    let ticker = LocalTicker::start(receiver.url("/functions/tick"), period, Arc::new(SystemClock)).unwrap();
    let all = receiver.wait_for(3).await;
    for received in &all {
        assert_eq!((received.path.as_str(), received.body.len()), ("/functions/tick", 0));
        assert_eq!(received.delivery().via, Via::Scheduler);
    }
    let names: Vec<_> = all.iter().map(|r| r.delivery().id.unwrap()).collect();
    // The run that was refused came again under its own name, and the next one has another.
    assert_eq!(names[0], names[1]);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 2);
    // The third is held for more than a period: none comes beside it.
    let held = Instant::now();
    eventually("the next tick is overdue", async || held.elapsed() > period + period / 2).await;
    assert_eq!((receiver.received().len(), receiver.most_inside()), (3, 1));
    receiver.open_the_gate();
    receiver.wait_for(5).await;
    assert_eq!(receiver.most_inside(), 1);
    ticker.close(Duration::from_secs(1)).await;
}
