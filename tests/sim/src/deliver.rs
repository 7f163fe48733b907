//! Delivery: Pub/Sub pushes, Cloud Tasks, Eventarc and the Scheduler, each with its own ways to be late, lost and doubled.
//!
//! A delivery is a task. What is not acknowledged comes again after a growing wait, as Pub/Sub and Cloud Tasks do.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt;

use rekindle_core::ids::JobId;
use rekindle_core::job::Via;
use rekindle_engine::PassError;
use rekindle_ports::tpu::SliceRef;
use rekindle_ports::world::Hint;

use crate::envelope::{self, Envelope, Form};
use crate::exec::{Bounded, Crashing, lock};
use crate::fault::Fault;
use crate::roll::{DAY, For, HOUR, MIN, SEC};
use crate::stage::{Instance, Stage};
use crate::world::{Promise, World, micros};

/// What delivery keeps in mind.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// Names of tasks: the same name again is the same task.
    tasks: BTreeSet<String>,
    numbers: u64,
}

impl Mail {
    /// Another message id.
    pub(crate) fn next(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

/// Something that wakes a function.
#[derive(Debug, Clone)]
pub(crate) enum Parcel {
    /// A hint, or a wake-up with the same content.
    Hint(Hint),
    /// A job message.
    Message {
        /// Message id.
        id: String,
        /// `command`.
        command: String,
        /// Payload.
        data: Vec<u8>,
        /// When it was published.
        published_at: i64,
    },
    /// A log entry for `tpu-events`.
    Event {
        /// Message id.
        id: String,
        /// The entry.
        entry: Value,
        /// As what it comes.
        form: Form,
    },
    /// The tick.
    Tick,
}

impl Parcel {
    /// A job message.
    pub(crate) fn message(id: impl Into<String>, command: &str, data: Vec<u8>, published_at: i64) -> Self {
        Self::Message { id: id.into(), command: command.to_owned(), data, published_at }
    }
}

impl Parcel {
    /// Whether a tick, or a person, wakes somebody by it.
    fn is_of_tick(&self) -> bool {
        match self {
            Self::Hint(hint) => OF_TICKS.contains(&hint.cause.as_str()),
            Self::Event { .. } => false,
            Self::Message { .. } | Self::Tick => true,
        }
    }
}

/// The causes of the hints that ticks publish.
const OF_TICKS: [&str; 3] = ["tick", "create permit granted", "the list shows a change"];

/// Pub/Sub waits for so long for an acknowledgement, as `infra/modules/trigger` says.
const ACK_DEADLINE: i64 = MIN;

/// Pub/Sub gives up after its dead-letter policy's attempts.
const TRIES: u32 = 40;

/// How a delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Got {
    /// Acknowledged.
    Ack,
    /// Refused or not answered: it comes again.
    Nack,
}

/// How often something is delivered: once, or up to five times.
fn copies(world: &World, again: Fault) -> i64 {
    if world.strikes(again, For::Delivery) { world.rolls.between(For::Delivery, 2, 5) } else { 1 }
}

/// Sends a hint on its way.
pub(crate) fn hint(stage: &Arc<Stage>, hint: &Hint) {
    let world = &stage.world;
    world.count("hints");
    if world.strikes(Fault::HintLost, For::Delivery) {
        world.count("messages lost");
        return;
    }
    let copies = copies(world, Fault::HintTwice);
    for _ in 0..copies {
        let late = world.strikes(Fault::HintLate, For::Delivery);
        let wait =
            if late { world.rolls.about(For::Delivery, 20 * MIN) } else { world.rolls.about(For::Delivery, SEC / 10) };
        send(stage, Parcel::Hint(hint.clone()), wait);
    }
}

/// Sets a wake-up.
pub(crate) fn wakeup(stage: &Arc<Stage>, job: &JobId, at: Timestamp, key: &str) {
    let world = &stage.world;
    if !lock(&world.mail).tasks.insert(format!("{job}/{key}")) {
        return;
    }
    if world.strikes(Fault::WakeupLost, For::Delivery) {
        world.count("messages lost");
        return;
    }
    let copies = copies(world, Fault::WakeupTwice);
    for _ in 0..copies {
        let late = world.strikes(Fault::WakeupLate, For::Delivery);
        let more =
            if late { world.rolls.about(For::Delivery, 10 * MIN) } else { world.rolls.about(For::Delivery, SEC / 20) };
        let wait = (micros(at) - world.now()).max(0) + more;
        let hint = Hint { job: job.clone(), after: None, news: None, cause: "wake-up".into(), traceparent: None };
        send(stage, Parcel::Hint(hint), wait);
    }
}

/// The entries of one operation: one when it begins, one when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// It begins.
    First,
    /// It has ended.
    Last,
}

/// A log entry about a resource, by one of both versions of the method that does `what` (such as `Create`): it reaches `tpu-events` by a
/// Logging sink, or by Eventarc.
pub(crate) fn cloud_event(stage: &Arc<Stage>, slice: &SliceRef, what: &str, part: Part) {
    let (collection, noun) = match slice.via {
        Via::Node => ("nodes", "Node"),
        Via::QueuedResource => ("queuedResources", "QueuedResource"),
    };
    let resource = format!("projects/p/locations/{}/{collection}/{}", slice.zone, slice.name);
    let version = if stage.world.rolls.index(For::Delivery, 4) == 0 { "v2alpha1" } else { "v2" };
    let method = format!("google.cloud.tpu.{version}.Tpu.{what}{noun}");
    log_entry(stage, "tpu.googleapis.com", &method, &resource, Some(part));
}

/// A system event about a worker VM.
pub(crate) fn instance_event(stage: &Arc<Stage>, zone: &str, instance: &str, method: &str) {
    let resource = format!("projects/p/zones/{zone}/instances/{instance}");
    log_entry(stage, "compute.googleapis.com", method, &resource, None);
}

fn log_entry(stage: &Arc<Stage>, service: &str, method: &str, resource: &str, part: Option<Part>) {
    let world = &stage.world;
    if world.strikes(Fault::EventLost, For::Delivery) {
        world.count("messages lost");
        return;
    }
    let number = lock(&world.mail).next();
    let mut entry = json!({
        "insertId": format!("e{number}"),
        "logName": "projects/p/logs/cloudaudit.googleapis.com%2Factivity",
        "protoPayload": {
            "serviceName": service,
            "methodName": method,
            "resourceName": resource,
        },
    });
    if let Some(part) = part {
        let which = if part == Part::First { "first" } else { "last" };
        entry["operation"] = json!({"id": format!("{method} of {resource}"), which: true});
    }
    let copies = copies(world, Fault::EventTwice);
    // Where both ways are set up, each tells of the same in a form of its own.
    for _ in 0..copies {
        let late = world.strikes(Fault::EventLate, For::Delivery);
        let wait = if late {
            // Up to a week, and so that most arrive while faults go on.
            world.rolls.between(For::Delivery, HOUR, (world.plan.chaos_us / 4 * 3).clamp(2 * HOUR, 7 * DAY))
        } else {
            world.rolls.about(For::Delivery, 3 * SEC)
        };
        send(
            stage,
            Parcel::Event { id: format!("event-{number}"), entry: entry.clone(), form: Form::draw(&world.rolls) },
            wait,
        );
    }
}

/// Delivers after a wait, until it is acknowledged.
pub(crate) fn send(stage: &Arc<Stage>, parcel: Parcel, wait: i64) {
    let stage = stage.clone();
    let exec = stage.world.exec.clone();
    exec.spawn(async move {
        stage.world.exec.sleep(wait).await;
        if stage.world.is_deaf() && !parcel.is_of_tick() {
            stage.world.count("messages lost");
            return;
        }
        let mut pause = SEC;
        let mut tries = 0;
        while tries < TRIES {
            if stage.world.strikes(Fault::Overlap, For::Delivery) {
                // Pub/Sub has waited for long enough; the handler goes on, and its acknowledgement is not heard.
                let (stage, parcel) = (stage.clone(), parcel.clone());
                let (exec, again) = (stage.world.exec.clone(), stage.world.rolls.between(For::Delivery, 0, SEC / 5));
                exec.spawn(async move {
                    deliver(&stage, &parcel).await;
                });
                exec.sleep(again).await;
                continue;
            }
            if deliver(&stage, &parcel).await == Got::Ack {
                return;
            }
            tries += 1;
            stage.world.count("redeliveries");
            stage.world.exec.sleep(stage.world.rolls.between(For::Delivery, pause / 2, pause)).await;
            pause = (pause * 2).min(10 * MIN);
        }
        stage.world.count("given up deliveries");
        // Hints are hints: the tick makes them good.
        if let Parcel::Message { id, .. } | Parcel::Event { id, .. } = &parcel {
            stage.world.broken(Promise::Liveness, "messages", format!("{id} was refused {TRIES} times"));
        }
    });
}

/// One delivery to one instance.
pub(crate) async fn deliver(stage: &Arc<Stage>, parcel: &Parcel) -> Got {
    let began = stage.world.now();
    // A tick has many times the awaits of any other work.
    let most = if matches!(parcel, Parcel::Tick) { 400 } else { 60 };
    let got = crashing(&stage.world, most, handle(stage, parcel)).await.unwrap_or(Got::Nack);
    if stage.world.now() > began + ACK_DEADLINE && !matches!(parcel, Parcel::Tick) {
        stage.world.count("deliveries past their deadline");
    }
    got
}

/// The work of a handler, as long as its service lets it: dropped at the deadline that `layers::common` puts around every role, and then
/// answered with 503. `None`: it was dropped.
async fn in_time<T>(world: &World, instance: &Instance, work: impl Future<Output = T>) -> Option<T> {
    let most = i64::try_from(instance.engine.settings.handler_deadline.as_micros()).unwrap_or(i64::MAX);
    let done = Bounded::new(&world.exec, world.now() + most, work).await;
    if done.is_none() {
        world.trace(|| "a handler was dropped at its deadline".into());
        world.count("handlers out of time");
    }
    done
}

/// The work of an instance that may be dropped at one of its first `most` awaits. `None`: it was.
pub(crate) async fn crashing<T>(world: &World, most: i64, work: impl Future<Output = T>) -> Option<T> {
    if !world.threatens(Fault::Crash, For::Fault) {
        return Some(work.await);
    }
    // Most work is over after few awaits.
    let most = if world.rolls.chance(For::Fault, 0.5) { most / 4 } else { most };
    let polls = u32::try_from(world.rolls.between(For::Fault, 1, most)).unwrap_or(1);
    let done = Crashing::new(work, polls).await;
    if done.is_none() {
        world.count_fault(Fault::Crash);
        world.count("crashes");
    }
    done
}

async fn handle(stage: &Arc<Stage>, parcel: &Parcel) -> Got {
    let instance = stage.any();
    match parcel {
        Parcel::Hint(hint) if !stage.world.plan.by_http => {
            match in_time(&stage.world, instance, instance.engine.pass_for(hint)).await {
                None => Got::Nack,
                Some(Ok(_)) => Got::Ack,
                Some(Err(error)) => refused(&stage.world, &error),
            }
        }
        Parcel::Tick if !stage.world.plan.by_http => {
            let now = instance.engine.ports.clock.now();
            match in_time(&stage.world, instance, instance.engine.tick(now)).await {
                None => Got::Nack,
                Some(Ok(report)) => {
                    crate::check::on_tick(&stage.world, &report);
                    Got::Ack
                }
                Some(Err(error)) => refused(&stage.world, &error),
            }
        }
        Parcel::Hint(_) | Parcel::Tick | Parcel::Message { .. } | Parcel::Event { .. } => {
            Box::pin(by_http(stage, parcel)).await
        }
    }
}

fn refused(world: &World, error: &PassError) -> Got {
    match error {
        PassError::Transient(why) => world.trace(|| format!("not now: {why}")),
        PassError::Invariant(why) => world.broken(Promise::Safety, "sound-decisions", why.clone()),
    }
    Got::Nack
}

async fn by_http(stage: &Arc<Stage>, parcel: &Parcel) -> Got {
    let now = stage.world.now();
    let pushed =
        |id: &str, data: &[u8], attributes: &Value, at| Envelope::json(&envelope::push(id, data, attributes, at));
    let (path, sent) = match parcel {
        Parcel::Hint(hint) => {
            let data = serde_json::to_vec(hint).unwrap_or_default();
            let number = lock(&stage.world.mail).next();
            ("/functions/reconcile", pushed(&format!("hint-{number}"), &data, &json!({}), now))
        }
        Parcel::Message { id, command, data, published_at } => {
            ("/functions/jobs", pushed(id, data, &json!({"command": command}), *published_at))
        }
        Parcel::Event { id, entry, form } => ("/functions/tpu-events", envelope::entry(*form, id, entry, now)),
        Parcel::Tick => ("/functions/tick", Envelope { headers: Vec::new(), body: Vec::new() }),
    };
    let (status, text) = send_to(stage, path, sent).await;
    if status == StatusCode::INTERNAL_SERVER_ERROR {
        stage.world.broken(Promise::Safety, "sound-decisions", text);
    }
    if !status.is_success() {
        return Got::Nack;
    }
    if let Parcel::Message { id, command, data, .. } = parcel {
        crate::check::on_message_ack(&stage.world, id, command, data);
    }
    Got::Ack
}

/// A JSON request to any instance, with its answer.
pub(crate) async fn post(stage: &Arc<Stage>, path: &str, bearer: Option<&str>, body: Vec<u8>) -> (StatusCode, String) {
    let mut headers = vec![("content-type", "application/json".to_owned())];
    headers.extend(bearer.map(|token| ("authorization", format!("Bearer {token}"))));
    send_to(stage, path, Envelope { headers, body }).await
}

/// A request to any instance, with its answer.
pub(crate) async fn send_to(stage: &Arc<Stage>, path: &str, sent: Envelope) -> (StatusCode, String) {
    let Envelope { headers, body } = sent;
    let mut request = Request::builder().method(Method::POST).uri(path);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let Ok(request) = request.body(Body::from(body)) else { return (StatusCode::BAD_REQUEST, String::new()) };
    let instance = stage.any();
    let answer = async {
        let response = match instance.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status();
        let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        (status, String::from_utf8_lossy(&body).into_owned())
    };
    in_time(&stage.world, instance, answer).await.unwrap_or((StatusCode::SERVICE_UNAVAILABLE, String::new()))
}

/// The Scheduler: a tick each minute, or not.
pub(crate) async fn schedule(stage: Arc<Stage>) {
    let world = stage.world.clone();
    loop {
        world.exec.sleep(world.plan.tick_us).await;
        if world.goes_on(Fault::TickOutage, None) || world.strikes(Fault::TickSkipped, For::Delivery) {
            continue;
        }
        let copies = 1 + usize::from(world.strikes(Fault::TickTwice, For::Delivery));
        for _ in 0..copies {
            let late = world.strikes(Fault::TickLate, For::Delivery);
            let wait = if late { world.rolls.between(For::Delivery, SEC, 3 * MIN) } else { SEC / 100 };
            let stage = stage.clone();
            world.exec.spawn(async move {
                stage.world.exec.sleep(wait).await;
                stage.world.count("ticks");
                deliver(&stage, &Parcel::Tick).await;
            });
        }
        // Names of tasks are kept for an hour or so.
        if world.now() % (4 * HOUR) < world.plan.tick_us {
            lock(&world.mail).tasks.clear();
        }
    }
}
