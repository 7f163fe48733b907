//! Against the Pub/Sub emulator, as the local mode uses it: what is published comes as a push to our own server.

use std::sync::{Arc, LazyLock, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use jiff::Timestamp;
use tokio::sync::mpsc;

use rekindle_core::job::Phase;
use rekindle_core::reason::Reason;
use rekindle_fakes::{Emulator, Emulators};
use rekindle_wire::delivery::{Delivery, decode};

use super::admin::{SUBSCRIPTION_DEAD_LETTER, ensure_topics};
use super::*;

/// Generous: the machine may be busy with a build.
const DEADLINE: Duration = Duration::from_mins(1);

/// A push as our server got it.
type Pushed = (String, Delivery);

/// Takes pushes; answers 204, or the status that is set for the path.
#[derive(Clone)]
struct Server {
    pushed: mpsc::UnboundedSender<Pushed>,
    refuse: Arc<Mutex<Option<&'static str>>>,
}

async fn take(State(server): State<Server>, uri: Uri, headers: HeaderMap, body: Bytes) -> StatusCode {
    if server.refuse.lock().unwrap().is_some_and(|path| path == uri.path()) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let delivery = decode(&headers, &body).unwrap().remove(0);
    server.pushed.send((uri.path().to_owned(), delivery)).unwrap();
    StatusCode::NO_CONTENT
}

/// One for all tests of this process, each in a project of its own. It ends with the process.
static EMULATOR: LazyLock<Option<Emulator>> = LazyLock::new(Emulators::pubsub);

struct World {
    service: Service,
    server: Server,
    pushes: mpsc::UnboundedReceiver<Pushed>,
    base: String,
}

impl World {
    /// `None` where no emulator is installed.
    async fn new() -> Option<Self> {
        let emulator = tokio::task::spawn_blocking(|| EMULATOR.as_ref()).await.unwrap()?;
        let (pushed, pushes) = mpsc::unbounded_channel();
        let server = Server { pushed, refuse: Arc::default() };
        let base = serve(&server).await;
        let service = Service::emulator(emulator.address()).with_timeout(DEADLINE);
        Some(Self { service, server, pushes, base })
    }

    async fn pushed(&mut self) -> Pushed {
        tokio::time::timeout(DEADLINE, self.pushes.recv()).await.expect("no push in time").unwrap()
    }
}

async fn serve(server: &Server) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(take).with_state(server.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    base
}

fn hint(job: &str) -> Hint {
    Hint {
        job: JobId::parse(job).unwrap(),
        after: None,
        news: None,
        cause: "test".into(),
        traceparent: Some("00-ab-cd-01".into()),
    }
}

fn event() -> OutEvent {
    OutEvent {
        sequence: 7,
        at: "2026-11-27T12:00:00Z".parse::<Timestamp>().unwrap(),
        phase: Phase::Running,
        reason: Reason::Running,
        message: "the program runs".into(),
        attempt: 2,
        generation: 1,
    }
}

fn body(delivery: &Delivery) -> Vec<u8> {
    delivery.data.clone().unwrap()
}

/// Messages of the dead-letter subscription: pulled over REST, acknowledged, until one comes or the time is up.
async fn dead_letter(world: &World, project: &str) -> serde_json::Value {
    let endpoint = world.service.endpoint.as_deref().unwrap();
    let base = format!("{endpoint}/v1/projects/{project}/subscriptions/{SUBSCRIPTION_DEAD_LETTER}");
    let client = reqwest::Client::new();
    let pull = async {
        loop {
            let request = client.post(format!("{base}:pull")).json(&serde_json::json!({ "maxMessages": 1 }));
            let answer: serde_json::Value = request.send().await.unwrap().json().await.unwrap();
            if let Some(message) = answer.get("receivedMessages").and_then(|messages| messages.get(0)) {
                let ack = serde_json::json!({ "ackIds": [message["ackId"]] });
                client.post(format!("{base}:acknowledge")).json(&ack).send().await.unwrap();
                return message["message"].clone();
            }
        }
    };
    tokio::time::timeout(DEADLINE, pull).await.expect("no dead letter in time")
}

#[tokio::test]
async fn what_is_published_reaches_the_functions() {
    let Some(mut world) = World::new().await else { return };
    ensure_topics("demo-a", &world.service, &world.base).await.unwrap();
    let pubsub = PubSub::connect("demo-a", &world.service).await.unwrap();

    let hint = hint("llama");
    pubsub.hints().publish(&hint).await.unwrap();
    let (path, delivery) = world.pushed().await;
    assert_eq!(path, "/functions/reconcile");
    assert_eq!(serde_json::from_slice::<Hint>(&body(&delivery)).unwrap(), hint);
    assert_eq!(delivery.attributes["job"], "llama");
    assert_eq!(delivery.attributes["googclient_traceparent"], "00-ab-cd-01");

    let installation = InstallationId::parse("abc123").unwrap();
    pubsub.events(installation).publish(&hint.job, &event()).await.unwrap();
    let (path, delivery) = world.pushed().await;
    assert_eq!(path, "/functions/notify");
    let received = JobEvent::from_delivery(&delivery).unwrap();
    assert_eq!(received.ty, "dev.rekindle.job.running.v1");
    assert_eq!((received.subject.as_str(), received.id.as_str()), ("llama", "llama-7"));
    assert_eq!(received.source, "/rekindle/abc123");
    assert_eq!((received.data.sequence, received.data.attempt), (7, 2));
    assert_eq!(delivery.attributes["content-type"], "application/json");

    publish_job(&world, "demo-a").await;
    let (path, delivery) = world.pushed().await;
    assert_eq!(path, "/functions/jobs");
    assert_eq!(body(&delivery), b"{}");

    let long = "x".repeat(5000);
    pubsub.dead_letters().send("jobs", &format!("{long}ä"), Bytes::from_static(b"\xff\x00")).await.unwrap();
    let message = dead_letter(&world, "demo-a").await;
    assert_eq!(message["data"], "/wA=");
    assert_eq!(message["attributes"]["source"], "jobs");
    assert_eq!(message["attributes"]["reason"].as_str().map(str::len), Some(ATTRIBUTE_MAX));
}

/// As a person does.
async fn publish_job(world: &World, project: &str) {
    let endpoint = world.service.endpoint.as_deref().unwrap();
    let url = format!("{endpoint}/v1/projects/{project}/topics/{TOPIC_JOBS}:publish");
    let message = serde_json::json!({ "messages": [{ "data": "e30=", "attributes": { "command": "submit" } }] });
    let answer = reqwest::Client::new().post(url).json(&message).send().await.unwrap();
    assert!(answer.status().is_success(), "{answer:?}");
}

#[tokio::test]
async fn topics_are_made_once_and_pushes_follow_the_server() {
    let Some(mut world) = World::new().await else { return };
    let nowhere = "http://127.0.0.1:9";
    ensure_topics("demo-b", &world.service, nowhere).await.unwrap();
    ensure_topics("demo-b", &world.service, &format!("{}/", world.base)).await.unwrap();
    ensure_topics("demo-b", &world.service, &world.base).await.unwrap();
    let pubsub = PubSub::connect("demo-b", &world.service).await.unwrap();
    pubsub.hints().publish(&hint("llama")).await.unwrap();
    assert_eq!(world.pushed().await.0, "/functions/reconcile");
}

#[tokio::test]
async fn what_is_refused_for_a_moment_comes_again() {
    let Some(mut world) = World::new().await else { return };
    ensure_topics("demo-c", &world.service, &world.base).await.unwrap();
    *world.server.refuse.lock().unwrap() = Some("/functions/reconcile");
    let pubsub = PubSub::connect("demo-c", &world.service).await.unwrap();
    pubsub.hints().publish(&hint("held")).await.unwrap();
    publish_job(&world, "demo-c").await;
    assert_eq!(world.pushed().await.0, "/functions/jobs", "other subscriptions go on");
    *world.server.refuse.lock().unwrap() = None;
    let (path, delivery) = world.pushed().await;
    assert_eq!(path, "/functions/reconcile");
    assert_eq!(serde_json::from_slice::<Hint>(&body(&delivery)).unwrap().job.as_str(), "held");
}

#[tokio::test]
async fn a_topic_that_is_not_there_is_an_error() {
    let Some(world) = World::new().await else { return };
    let service = world.service.clone().with_timeout(Duration::from_secs(10));
    let pubsub = PubSub::connect("demo-none", &service).await.unwrap();
    let error = pubsub.hints().publish(&hint("llama")).await.unwrap_err();
    assert_eq!(error.what, "publish a hint");
    let error = pubsub.dead_letters().send("jobs", "why", Bytes::new()).await.unwrap_err();
    assert!(!error.why.is_empty());
}

#[tokio::test]
async fn no_server_is_an_error_within_the_time() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let service = Service::emulator(&address).with_timeout(Duration::from_millis(300));
    let pubsub = PubSub::connect("demo", &service).await.unwrap();
    assert!(pubsub.hints().publish(&hint("llama")).await.is_err());
    assert!(ensure_topics("demo", &service, "http://127.0.0.1:9").await.is_err());
}

#[test]
fn cuts_fall_between_characters() {
    assert_eq!(cut("aä", 2), "a");
    assert_eq!(cut("aä", 3), "aä");
    assert_eq!(cut("", 3), "");
}
