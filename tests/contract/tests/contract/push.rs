//! Hints: pushed at least once, again after a refusal, and to the dead letters in the end. In process, and from the
//! emulator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rekindle_core::ids::JobId;
use rekindle_fakes::{Emulator, Emulators, MemoryDeadLetters};
use rekindle_gcp::auth::Service;
use rekindle_gcp::pubsub::PubSub;
use rekindle_local::{LocalDeadLetters, LocalHints, LocalTopic, Subscription};
use rekindle_ports::docs::Revision;
use rekindle_ports::world::{DeadLetters, Hint, Hints};
use rekindle_wire::delivery::Via;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::receiver::{Answer, Received, Receiver, eventually};

const PATH: &str = "/functions/reconcile";

fn hint(job: &str) -> Hint {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let job = JobId::parse(job).unwrap();
    Hint { job, after: Some(Revision(7)), news: None, cause: "worker exit".into(), traceparent: Some(trace.into()) }
}

fn read(received: &Received) -> Hint {
    serde_json::from_slice(&received.delivery().data.unwrap()).unwrap()
}

fn id(received: &Received) -> String {
    received.delivery().id.unwrap()
}

fn topic(receiver: &Receiver, change: impl FnOnce(&mut Subscription)) -> Arc<LocalTopic> {
    let mut subscription = Subscription::new("rekindle-hints-push", receiver.url(PATH));
    subscription.backoff_min = Duration::from_millis(2);
    subscription.backoff_max = Duration::from_millis(20);
    change(&mut subscription);
    Arc::new(LocalTopic::new("local", "rekindle-hints", vec![subscription]).unwrap())
}

/// Refuses the first three pushes of each message in three ways.
fn thrice_refused() -> impl Fn(usize, &Received) -> Answer + Send + Sync + 'static {
    let seen = std::sync::Mutex::new(BTreeMap::<String, usize>::new());
    move |_, received| {
        let mut seen = seen.lock().unwrap();
        let times = seen.entry(id(received)).or_default();
        *times += 1;
        Answer::Status([500, 503, 404].get(*times - 1).copied().unwrap_or(204))
    }
}

/// What every implementation of hints does with a server that refuses at first.
async fn comes_again_until_it_is_taken(hints: &dyn Hints, receiver: &Receiver) {
    hints.publish(&hint("one")).await.unwrap();
    hints.publish(&hint("two")).await.unwrap();
    // The same hint again is a message of its own.
    hints.publish(&hint("two")).await.unwrap();
    let all = receiver.wait_for(12).await;
    let mut by_id = BTreeMap::<String, Vec<Hint>>::new();
    for received in &all {
        assert_eq!(received.path, PATH);
        let delivery = received.delivery();
        assert_eq!(delivery.via, Via::PubSub);
        let hint = read(received);
        assert_eq!(delivery.attributes["job"], hint.job.as_str());
        assert_eq!(delivery.attributes["googclient_traceparent"], hint.traceparent.clone().unwrap());
        assert!(delivery.subscription.unwrap().ends_with("/subscriptions/rekindle-hints-push"));
        assert!(delivery.published_at.is_some());
        let body: Value = serde_json::from_slice(&received.body).unwrap();
        assert_eq!(body["message"]["messageId"], body["message"]["message_id"]);
        assert_eq!(body["message"]["publishTime"], body["message"]["publish_time"]);
        by_id.entry(id(received)).or_default().push(hint);
    }
    // Three messages, each pushed four times under one id, with what was published.
    let mut jobs: Vec<_> = by_id.values().map(|hints| (hints.len(), hints[0].clone())).collect();
    jobs.sort_by(|a, b| a.1.job.cmp(&b.1.job));
    assert_eq!(jobs, [(4, hint("one")), (4, hint("two")), (4, hint("two"))]);
    assert!(by_id.values().all(|hints| hints.iter().all(|h| *h == hints[0])));
}

#[tokio::test]
async fn a_hint_comes_again_until_it_is_taken() {
    let receiver = Receiver::start(thrice_refused()).await;
    let topic = topic(&receiver, |_| {});
    comes_again_until_it_is_taken(&LocalHints::new(Arc::clone(&topic)), &receiver).await;
    eventually("taken messages are forgotten", async || topic.pending() == 0).await;
    assert_eq!(receiver.received().len(), 12);
}

#[tokio::test]
async fn a_push_without_an_answer_and_a_redirect_are_no_acknowledgement() {
    let receiver = Receiver::start(|n, _| match n {
        0 => Answer::Never,
        1 => Answer::Status(307),
        2 => Answer::Status(206),
        _ => Answer::Status(204),
    })
    .await;
    let topic = topic(&receiver, |s| s.ack_deadline = Duration::from_millis(200));
    topic.publish("{}", BTreeMap::new());
    let all = receiver.wait_for(4).await;
    assert_eq!(all.iter().map(id).collect::<BTreeSet<_>>().len(), 1);
    eventually("taken", async || topic.pending() == 0).await;
}

#[tokio::test]
async fn a_server_that_breaks_connections_gets_the_message_once_it_works() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut subscription = Subscription::new("s", format!("http://{address}{PATH}"));
    subscription.backoff_min = Duration::from_millis(2);
    let topic = Arc::new(LocalTopic::new("local", "rekindle-hints", vec![subscription]).unwrap());
    LocalHints::new(Arc::clone(&topic)).publish(&hint("one")).await.unwrap();
    for _ in 0..3 {
        drop(listener.accept().await.unwrap());
    }
    let receiver = Receiver::on(listener, |_, _| Answer::Status(204));
    assert_eq!(read(&receiver.wait_for(1).await[0]), hint("one"));
    eventually("taken", async || topic.pending() == 0).await;
}

#[tokio::test]
async fn pushes_are_bounded_and_nothing_waits_for_a_message_that_is_refused() {
    let receiver = Receiver::start(|_, received| match received.delivery().attributes.get("bad") {
        Some(_) => Answer::Status(500),
        None => Answer::AtTheGate,
    })
    .await;
    let topic = topic(&receiver, |s| s.concurrency = 3);
    topic.publish("bad", BTreeMap::from([("bad".to_owned(), "1".to_owned())]));
    for n in 0..20 {
        topic.publish(format!("{n}"), BTreeMap::new());
    }
    receiver.wait_for_inside(3).await;
    receiver.open_the_gate();
    eventually("all but the bad one are taken", async || topic.pending() == 1).await;
    assert_eq!(receiver.most_inside(), 3);
    let good =
        receiver.received().iter().filter(|r| r.delivery().attributes.is_empty()).map(id).collect::<BTreeSet<_>>();
    assert_eq!(good.len(), 20);
}

#[tokio::test]
async fn closing_waits_for_what_can_be_delivered_and_gives_up_the_rest() {
    let receiver = Receiver::start(thrice_refused()).await;
    let topic_that_works = topic(&receiver, |_| {});
    topic_that_works.publish("1", BTreeMap::new());
    topic_that_works.publish("2", BTreeMap::new());
    assert_eq!(topic_that_works.close(Duration::from_mins(1)).await, 0);
    assert_eq!(receiver.received().len(), 8);

    let refuses = Receiver::start(|_, _| Answer::Status(500)).await;
    let topic_that_does_not = topic(&refuses, |_| {});
    topic_that_does_not.publish("1", BTreeMap::new());
    refuses.wait_for(1).await;
    assert_eq!(topic_that_does_not.close(Duration::ZERO).await, 1);
    assert_eq!(topic_that_does_not.pending(), 0);
}

#[tokio::test]
async fn a_kept_message_that_nobody_took_is_pushed_by_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let kept = |receiver: &Receiver| {
        let subscription = Subscription::new("notify", receiver.url(PATH));
        LocalTopic::new("local", "rekindle-events", vec![subscription]).unwrap().kept_in(folder.path()).unwrap()
    };
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    let refuses = Receiver::start(|_, _| Answer::Status(503)).await;
    let topic = kept(&refuses);
    let attributes = BTreeMap::from([("job".to_owned(), "train".to_owned())]);
    let published = topic.publish(&b"\xffsucceeded"[..], attributes.clone());
    refuses.wait_for(1).await;
    // As a process ends that is killed.
    drop(topic);
    std::fs::write(folder.path().join("torn.json"), "{").unwrap();
    assert_eq!(files(), 2);
    let takes = Receiver::start(|_, _| Answer::Status(204)).await;
    let topic = kept(&takes);
    let delivery = takes.wait_for(1).await[0].delivery();
    assert_eq!((delivery.id.unwrap(), &delivery.data.unwrap()[..]), (published, &b"\xffsucceeded"[..]));
    assert_eq!(delivery.attributes, attributes);
    eventually("it is kept no longer", async || files() == 1).await;
    drop(topic);
    let topic = kept(&takes);
    assert_eq!(topic.pending(), 0, "what is no message is nothing to push");
}

#[tokio::test]
async fn every_subscription_gets_each_message_and_a_topic_without_one_takes_it() {
    let receiver = Receiver::start(|_, _| Answer::Status(204)).await;
    let subscriptions = ["/a", "/b"].map(|path| Subscription::new(path.trim_start_matches('/'), receiver.url(path)));
    let topic = LocalTopic::new("local", "t", subscriptions.into()).unwrap();
    let published = topic.publish("x", BTreeMap::new());
    let all = receiver.wait_for(2).await;
    assert_eq!(all.iter().map(|r| r.path.as_str()).collect::<BTreeSet<_>>(), BTreeSet::from(["/a", "/b"]));
    assert!(all.iter().all(|r| id(r) == published));
    let empty = LocalTopic::new("local", "t", Vec::new()).unwrap();
    empty.publish("x", BTreeMap::new());
    assert_eq!(empty.pending(), 0);
}

#[tokio::test]
async fn a_message_that_nobody_takes_becomes_a_dead_letter() {
    let receiver = Receiver::start(|_, _| Answer::Status(500)).await;
    let letters = Arc::new(MemoryDeadLetters::default());
    // The first time the grave is closed: the message is kept, and tried again.
    letters.fail_before(1);
    let topic = topic(&receiver, |s| s.dead_letter = Some((5, letters.clone())));
    topic.publish("poison", BTreeMap::new());
    eventually("buried", async || topic.pending() == 0).await;
    let attempts: Vec<_> = receiver.received().iter().map(|r| r.delivery().attempt).collect();
    assert_eq!(attempts, (1..=6).map(Some).collect::<Vec<_>>());
    let letters = letters.all();
    assert_eq!(
        (letters.len(), letters[0].source.as_str(), &letters[0].body[..]),
        (1, "rekindle-hints", &b"poison"[..])
    );
}

#[tokio::test]
async fn dead_letters_are_kept_whole_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dead-letters.jsonl");
    let letters = LocalDeadLetters::new(&file);
    let body = bytes::Bytes::from(vec![0xff; 10_000]);
    letters.send("rekindle-jobs", "no JSON", body.clone()).await.unwrap();
    letters.send("rekindle-jobs", "no JSON", body.clone()).await.unwrap();
    letters.send("rekindle-jobs", "no id", bytes::Bytes::from_static(b"{}")).await.unwrap();
    let lines = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(rekindle_wire::pubsub::decode_base64(lines[0]["data"].as_str().unwrap()).unwrap(), body);
}

/// Pub/Sub's own emulator, with topics and subscriptions in a project of this test. `None`, with a notice: none here.
async fn emulated(receiver: &Receiver, attempts: u32) -> Option<PubSub> {
    static EMULATOR: OnceLock<Option<Emulator>> = OnceLock::new();
    let emulator = tokio::task::spawn_blocking(|| EMULATOR.get_or_init(Emulators::pubsub)).await.unwrap();
    let address = emulator.as_ref()?.address();
    let project = format!("contract-{:08x}", rand::random::<u32>());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let put = async |what: String, body: Value| {
        let sent =
            http.put(format!("http://{address}/v1/projects/{project}/{what}")).body(body.to_string()).send().await;
        sent.unwrap().error_for_status().unwrap();
    };
    let topic = |name: &str| format!("projects/{project}/topics/{name}");
    for name in ["rekindle-hints", "rekindle-dead-letter"] {
        put(format!("topics/{name}"), json!({})).await;
    }
    let pushed = json!({
        "topic": topic("rekindle-hints"),
        "pushConfig": {"pushEndpoint": receiver.url(PATH)},
        "deadLetterPolicy": {"deadLetterTopic": topic("rekindle-dead-letter"), "maxDeliveryAttempts": attempts},
    });
    put("subscriptions/rekindle-hints-push".into(), pushed).await;
    let dead = json!({"topic": topic("rekindle-dead-letter"), "pushConfig": {"pushEndpoint": receiver.url("/dead")}});
    put("subscriptions/dead".into(), dead).await;
    Some(PubSub::connect(&project, &Service::emulator(address)).await.unwrap())
}

#[tokio::test]
async fn a_hint_comes_again_from_the_emulator_until_it_is_taken() {
    let receiver = Receiver::start(thrice_refused()).await;
    if let Some(pubsub) = emulated(&receiver, 100).await {
        comes_again_until_it_is_taken(&pubsub.hints(), &receiver).await;
    }
}

#[tokio::test]
async fn a_hint_that_nobody_takes_becomes_a_dead_letter_of_the_emulator() {
    let refuse = |_, received: &Received| Answer::Status(if received.path == "/dead" { 204 } else { 500 });
    let receiver = Receiver::start(refuse).await;
    let Some(pubsub) = emulated(&receiver, 5).await else { return };
    pubsub.hints().publish(&hint("one")).await.unwrap();
    let all = receiver.wait_for(6).await;
    assert!(all[..5].iter().all(|r| r.path == PATH && read(r) == hint("one")));
    // The forwarded copy has the data, and an id of its own.
    assert_eq!((all[5].path.as_str(), read(&all[5])), ("/dead", hint("one")));
    assert_ne!(id(&all[5]), id(&all[0]));
}
