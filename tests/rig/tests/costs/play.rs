//! One job, second by second: the functions are the real ones, the cloud and the workers are played.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http::Request;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use rekindle_core::catalog;
use rekindle_core::classify::{Exit, WorkerEvidence};
use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::{Job, Phase, Via};
use rekindle_core::observation::{ExitReport, Notice, NoticeKind, SliceState, WorkerState};
use rekindle_core::orders::{Order, Want};
use rekindle_engine::tokens;
use rekindle_fakes::Call;
use rekindle_fn_api::Api;
use rekindle_fn_notify::{Notify, Sender};
use rekindle_ports::store::Store;
use rekindle_ports::world::{Clock, Hint};
use rekindle_rig::{Answer, CALLER, Rig, post, push, raw, send};
use rekindle_web::caller::{Loopback, guard};
use rekindle_web::{Door, layers};
use rekindle_wire::agent::{Hello, Progress, Report, Welcome};
use rekindle_wire::event::JobEvent;

use super::bill::{Bill, Book, Counting, CountingObjects, Kind};
use super::entries::{self, LAG_SECS, MESSAGES_AN_ENTRY};
use super::stream::Stream;

mod view;

/// A create takes three minutes, a delete half of one, a setup a minute and a half.
const CREATE_SECS: i64 = 180;
const DELETE_SECS: i64 = 30;
const SETUP_SECS: i64 = 90;
/// No wait of a test is longer.
const PATIENCE_SECS: u32 = 3600;

/// How all programs end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum End {
    /// Exit 0.
    Success,
}

/// What became of entries of the audit log.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct News {
    /// Entries that came.
    pub(crate) entries: u64,
    /// Hints that they became.
    pub(crate) hints: u64,
    /// Passes of these that looked at the TPU.
    pub(crate) looks: u64,
}

struct Agent {
    key: WorkerKey,
    instance: String,
    generation: u32,
    token: String,
    order: Order,
    began: Timestamp,
    next_at: Timestamp,
    stored_at: Timestamp,
    said: Option<(u32, WorkerState, bool)>,
    step: u64,
    notice: Option<Notice>,
    exit: Option<i32>,
    exit_sent: bool,
}

/// The play.
pub(crate) struct Play {
    rig: Rig,
    router: Router,
    book: Book,
    agents: Vec<Agent>,
    /// The agents of this slice know their bell.
    is_heard: bool,
    /// Bells are not heard: the network is not that of the passes.
    is_deaf: bool,
    seen: BTreeMap<String, (SliceState, Timestamp)>,
    /// Entries of the audit log that are on their way, and when they come.
    entries: Vec<(Timestamp, Request<Body>)>,
    news: News,
    workers: u32,
}

fn train() -> JobId {
    JobId::parse("train").unwrap()
}

/// What a task carries.
fn wake_up() -> Hint {
    Hint { job: train(), after: None, news: None, cause: "wake-up".into(), traceparent: None }
}

/// The functions over counted parts.
async fn stage() -> (Rig, Router, Book) {
    let mut rig = Rig::new().await;
    let book = Book::default();
    book.turn(Kind::Life);
    rig.engine.ports.store = Store::new(Arc::new(Counting { inner: rig.fakes.docs.clone(), book: book.clone() }));
    rig.engine.ports.objects = Arc::new(CountingObjects { inner: rig.fakes.objects.clone(), book: book.clone() });
    rig.fakes.tpu.set_instant(false);
    let verifier = Arc::new(Loopback { identity: CALLER.into() });
    let api = Api::new(rig.engine.clone(), verifier.clone(), None).surveyed(true);
    let people = guard(rekindle_fn_api::people(api.clone()), verifier.clone(), Door::People);
    let secret = rig.engine.installation.secret.clone();
    let notify = Notify { ports: rig.engine.ports.clone(), sender: Arc::new(Sender::new(false)), secret };
    let events = guard(rekindle_fn_tpu_events::router(rig.engine.clone()), verifier.clone(), Door::TpuEvents);
    let told = guard(rekindle_fn_notify::router(notify), verifier, Door::Notify);
    let all = people.merge(rekindle_fn_api::agents(api)).merge(events).merge(told);
    let router = layers::common(all, rig.engine.settings.handler_deadline);
    (rig, router, book)
}

/// Calls of the TPU API since the last look: those of a tick, or of a pass. The adapter lists nodes and queued resources side by side, a
/// pass looks at its generations side by side, and then acts side by side; of one generation calls follow each other.
fn tpu_calls(rig: &Rig) -> Bill {
    let calls = rig.fakes.tpu.take_calls();
    let lists = calls.iter().filter(|call| matches!(call, Call::List)).count() as u64;
    let is_act = |call: &Call| matches!(call, Call::Create(_) | Call::Delete(_));
    let acts = calls.iter().position(is_act).unwrap_or(calls.len());
    let mut looks: BTreeMap<&str, u64> = BTreeMap::new();
    for call in &calls[..acts] {
        if let Call::Get(slice) = call {
            assert_eq!(slice.via, Via::Node, "a queued resource takes a second call for its nodes");
            *looks.entry(&slice.name).or_default() += 1;
        }
    }
    // Whose an operation is does not matter: it comes behind a look, of the generation that takes longest at worst.
    let operations = u64::from(calls[..acts].iter().any(|call| matches!(call, Call::Operation(_))));
    let after = &calls[acts..];
    let seen_after = u64::from(after.iter().any(|call| !is_act(call)));
    let tpu_waits =
        lists + looks.into_values().max().unwrap_or(0) + operations + u64::from(!after.is_empty()) + seen_after;
    Bill { tpu_calls: calls.len() as u64 + lists, tpu_waits, ..Bill::default() }
}

pub(crate) async fn call(router: &Router, book: &Book, request: Request<Body>) -> Answer {
    book.add(Bill { requests: 1, ..Bill::default() });
    let began = Instant::now();
    let answer = send(router, request).await;
    book.took(began.elapsed());
    answer
}

/// One tick, and what it asks of others.
async fn tick(rig: &Rig, book: &Book) {
    book.add(Bill { requests: 1, ..Bill::default() });
    Box::pin(rig.engine.tick(rig.fakes.clock.now())).await.unwrap();
    // A call of `api` on the path of agents.
    let asked = rig.fakes.probe.take_asked();
    book.add(Bill { requests: asked, reads: asked, ..Bill::default() });
    book.add(tpu_calls(rig));
}

/// An hour of ticks in which nothing is.
pub(crate) async fn idle_hour() -> Bill {
    let (rig, _, book) = stage().await;
    book.turn(Kind::Tick);
    let mut first = Bill::default();
    for minute in 0..=60 {
        rig.advance(60);
        tick(&rig, &book).await;
        if minute == 0 {
            first = book.of(&[Kind::Tick]);
        }
    }
    book.of(&[Kind::Tick]).without(&first)
}

/// An hour of an open page, with a job but nothing new.
pub(crate) async fn page_hour() -> Bill {
    let (rig, router, book) = stage().await;
    let spec = json!({"id": "train", "run": ["x"], "tpu": {"accelerator": "v5litepod-4", "zones": ["us-central1-a"]}});
    assert_eq!(call(&router, &book, post("/v1/jobs", &spec)).await.status, 201);
    book.turn(Kind::Page);
    let mut watch = Stream::new(WATCH, rig.fakes.clock.now());
    for _ in 0..3600 {
        watch.look(&router, &book, rig.fakes.clock.now()).await;
        rig.advance(1);
    }
    book.of(&[Kind::Page])
}

/// What a worker's program prints.
pub(crate) const LINE: &str = "a line\n";
const WATCH: &str = "/v1/watch?brief=true";

impl Play {
    /// A job is submitted.
    pub(crate) async fn begin(accelerator: &str) -> Self {
        Self::with(accelerator, json!({"run": ["x"]}), false).await
    }

    /// A workspace is asked for.
    pub(crate) async fn workspace(accelerator: &str, is_deaf: bool) -> Self {
        Self::with(accelerator, json!({"workspace": true}), is_deaf).await
    }

    /// A job whose workers hear no bell.
    pub(crate) async fn deaf(accelerator: &str) -> Self {
        Self::with(accelerator, json!({"run": ["x"]}), true).await
    }

    async fn with(accelerator: &str, mut spec: Value, is_deaf: bool) -> Self {
        let (rig, router, book) = stage().await;
        let workers = catalog::accelerator(accelerator).unwrap().workers;
        spec["id"] = "train".into();
        spec["tpu"] = json!({"accelerator": accelerator, "zones": ["us-central1-a"]});
        assert_eq!(call(&router, &book, post("/v1/jobs", &spec)).await.status, 201);
        Self {
            rig,
            router,
            book,
            agents: Vec::new(),
            is_heard: false,
            is_deaf,
            seen: BTreeMap::new(),
            entries: Vec::new(),
            news: News::default(),
            workers,
        }
    }

    /// How long the requests took, all of them.
    pub(crate) fn times(&self) -> Vec<Duration> {
        self.book.times()
    }

    /// What was counted.
    pub(crate) fn bill(&self, kinds: &[Kind]) -> Bill {
        self.book.of(kinds)
    }

    /// What became of entries of the audit log.
    pub(crate) fn news(&self) -> News {
        self.news
    }

    fn now(&self) -> Timestamp {
        self.rig.fakes.clock.now()
    }

    async fn job(&self) -> Job {
        self.rig.job("train").await.unwrap()
    }

    /// Until the job is in that phase.
    pub(crate) async fn until(&mut self, phase: Phase) {
        for _ in 0..PATIENCE_SECS {
            self.second().await;
            if self.job().await.phase == phase {
                return;
            }
        }
        panic!("never {phase:?}: {:?}", self.job().await);
    }

    /// Some minutes, and what they cost beside the ticks.
    pub(crate) async fn minutes(&mut self, count: u32) -> Bill {
        let before = self.bill(&[Kind::Life, Kind::Heartbeat]);
        for _ in 0..count * 60 {
            self.second().await;
        }
        self.bill(&[Kind::Life, Kind::Heartbeat]).without(&before)
    }

    /// A chunk of output of the first worker, and what it costs.
    pub(crate) async fn upload(&mut self, number: u64) -> Bill {
        let before = self.bill(&[Kind::Output]);
        self.put(0, "stdout", number).await;
        self.bill(&[Kind::Output]).without(&before)
    }

    async fn put(&mut self, index: usize, stream: &str, number: u64) {
        self.book.turn(Kind::Output);
        let agent = &self.agents[index];
        let (attempt, key) = (agent.order.attempt, agent.key);
        let query = format!("generation={}&instance={}", agent.generation, agent.instance);
        let path = format!("/agent/v1/logs/train/{attempt}/{}-{}/{stream}/{number}?{query}", key.slice, key.worker);
        let mut chunk = raw(&path, "", LINE);
        *chunk.method_mut() = http::Method::PUT;
        chunk.headers_mut().insert("authorization", format!("Bearer {}", agent.token).parse().unwrap());
        assert_eq!(call(&self.router, &self.book, chunk).await.status, 204);
    }

    /// The slice is taken away, with notice.
    pub(crate) async fn preempt(&mut self) {
        let now = self.now();
        let deadline = now + jiff::SignedDuration::from_secs(30);
        let generation = self.job().await.last_generation;
        for agent in &mut self.agents {
            agent.notice = Some(Notice { kind: NoticeKind::Preemption, seen_at: now, deadline });
            let at = deadline + SignedDuration::from_secs(LAG_SECS);
            self.entries.extend(entries::preempted(&agent.instance).into_iter().map(|entry| (at, entry)));
        }
        for _ in 0..PATIENCE_SECS {
            self.second().await;
            if self.job().await.last_generation > generation {
                return;
            }
        }
        panic!("no next slice: {:?}", self.job().await);
    }

    /// All programs end, and the job with them.
    pub(crate) async fn end(&mut self, end: End) {
        for agent in &mut self.agents {
            agent.exit = Some(match end {
                End::Success => 0,
            });
        }
        self.until(Phase::Succeeded).await;
        // What is told of the last delete comes after it.
        self.minutes(1).await;
    }

    async fn second(&mut self) {
        self.rig.advance(1);
        self.provider().await;
        self.audit().await;
        self.agents().await;
        self.book.turn(Kind::Life);
        for _ in self.rig.fakes.wakeups.due(self.now()) {
            self.book.add(Bill { tasks: 1, ..Bill::default() });
            self.pass(&wake_up()).await;
        }
        self.hints().await;
        if self.now().as_second() % 60 == 0 {
            self.book.turn(Kind::Tick);
            tick(&self.rig, &self.book).await;
            self.book.turn(Kind::Life);
            self.hints().await;
        }
        self.events().await;
    }

    /// Our own events are pushed to `notify`. The job names no webhook.
    async fn events(&self) {
        for (job, event) in self.rig.fakes.events.take() {
            self.book.add(Bill { messages: 1, ..Bill::default() });
            let event = JobEvent::new(&self.rig.engine.installation.id, &job, &event);
            let attributes = event.attributes();
            let pairs: Vec<(&str, &str)> = attributes.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let pushed = push("/functions/notify", "1", &pairs, &serde_json::to_vec(&event.data).unwrap());
            assert_eq!(call(&self.router, &self.book, pushed).await.status, 204);
        }
    }

    /// Entries of the audit log that have come are pushed to `tpu-events`, whose hints are for [`Self::hints`].
    async fn audit(&mut self) {
        let now = self.now();
        self.book.turn(Kind::Life);
        for (_, entry) in self.entries.extract_if(.., |(at, _)| *at <= now) {
            self.news.entries += 1;
            self.book.add(Bill { messages: MESSAGES_AN_ENTRY, ..Bill::default() });
            assert_eq!(call(&self.router, &self.book, entry).await.status, 204);
        }
    }

    fn will_come(&mut self, entries: Vec<Request<Body>>) {
        let at = self.now() + SignedDuration::from_secs(LAG_SECS);
        self.entries.extend(entries.into_iter().map(|entry| (at, entry)));
    }

    async fn hints(&mut self) {
        loop {
            let hints = self.rig.fakes.hints.take();
            if hints.is_empty() {
                return;
            }
            for hint in hints {
                self.book.add(Bill { messages: 1, ..Bill::default() });
                self.pass(&hint).await;
            }
        }
    }

    async fn pass(&mut self, hint: &Hint) {
        self.book.add(Bill { requests: 1, ..Bill::default() });
        Box::pin(self.rig.engine.pass_for(hint)).await.unwrap();
        let calls = tpu_calls(&self.rig);
        if hint.news.is_some() {
            self.news.hints += 1;
            self.news.looks += u64::from(calls.tpu_calls > 0);
        }
        self.book.add(calls);
    }

    /// Creates and deletes take their time, and the audit log tells of them; READY machines boot.
    async fn provider(&mut self) {
        let now = self.now();
        for listed in self.rig.fakes.tpu.slices() {
            let name = listed.slice.name.clone();
            let state = listed.view.state.clone();
            let known = self.seen.entry(name.clone()).or_insert_with(|| (state.clone(), now));
            if known.0 != state {
                *known = (state.clone(), now);
            }
            let age = now.duration_since(known.1).as_secs();
            if state == SliceState::Creating && age >= CREATE_SECS {
                assert!(self.rig.fakes.tpu.finish(&name));
                self.will_come(entries::created(&name));
            }
            if state == SliceState::Deleting && age == 0 {
                self.will_come(entries::is_being_deleted(&name));
            }
            if state == SliceState::Deleting && age >= DELETE_SECS {
                assert!(self.rig.fakes.tpu.vanish(&name));
                self.will_come(entries::deleted(&name));
            }
            if state == SliceState::Ready && age == 0 {
                self.boot(&name).await;
            }
        }
    }

    async fn boot(&mut self, name: &str) {
        let generation = rekindle_core::names::parse(name).unwrap().generation;
        self.agents.clear();
        self.is_heard = false;
        self.rig.fakes.bells.take_greeted();
        self.book.turn(Kind::Life);
        for worker in 0..self.workers {
            let key = WorkerKey { slice: 0, worker };
            let instance = format!("t1v-n-{generation}-w-{worker}");
            let nonce = tokens::nonce(&self.rig.engine.installation.secret, &train(), generation);
            let hello = Hello {
                job: train(),
                generation,
                key,
                nonce,
                instance: instance.clone(),
                boot_id: "boot".into(),
                address: format!("10.0.0.{worker}"),
                version: "0.1.0".into(),
            };
            let request = post("/agent/v1/hello", &serde_json::to_value(&hello).unwrap());
            let answer = call(&self.router, &self.book, request).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let welcome: Welcome = serde_json::from_slice(&answer.body).unwrap();
            let now = self.now();
            self.agents.push(Agent {
                key,
                instance,
                generation,
                token: welcome.token,
                order: welcome.order,
                began: now,
                next_at: now,
                stored_at: now,
                said: None,
                step: 0,
                notice: None,
                exit: None,
                exit_sent: false,
            });
        }
    }

    async fn agents(&mut self) {
        let rung = !self.rig.fakes.bells.take().is_empty() && !self.is_deaf;
        self.is_heard |= rung || !self.rig.fakes.bells.take_greeted().is_empty() && !self.is_deaf;
        let now = self.now();
        for index in 0..self.agents.len() {
            let agent = &mut self.agents[index];
            if agent.order.want == Want::Retire || agent.exit_sent {
                continue;
            }
            if agent.order.want == Want::Stop || agent.has_saved(now) {
                agent.exit = agent.exit.or(Some(143));
            }
            let state = agent.state(now);
            let has_notice = agent.notice.is_some();
            let is_news = agent.said != Some((agent.order.attempt, state, has_notice));
            if is_news || rung || now >= agent.next_at {
                self.report(index, state, is_news).await;
            }
        }
    }

    async fn report(&mut self, index: usize, state: WorkerState, is_news: bool) {
        let now = self.now();
        let agent = &mut self.agents[index];
        let is_due = now.duration_since(agent.stored_at).as_millis() >= i128::from(agent.order.heartbeat_ms);
        self.book.turn(if is_news { Kind::Life } else { Kind::Heartbeat });
        agent.step += u64::from(state == WorkerState::Running);
        let evidence = WorkerEvidence {
            index: agent.key.worker,
            exit: Exit::Code(agent.exit.unwrap_or_default()),
            ..WorkerEvidence::default()
        };
        let exit = (state == WorkerState::Exited).then(|| ExitReport {
            at: now,
            ordered: agent.order.want == Want::Stop || agent.notice.is_some(),
            evidence,
        });
        let is_running = matches!(state, WorkerState::Running | WorkerState::Exited);
        let report = Report {
            job: train(),
            generation: agent.generation,
            key: agent.key,
            instance: agent.instance.clone(),
            boot_id: "boot".into(),
            attempt: agent.order.attempt,
            store: is_news || is_due,
            state,
            started_at: is_running.then_some(agent.began),
            progress: Progress {
                step: is_running.then_some(agent.step),
                step_at: is_running.then_some(now),
                ..Progress::default()
            },
            output_at: None,
            disk_free_bytes: None,
            memory_free_bytes: None,
            notice: agent.notice.clone(),
            exit,
            has_work: false,
            has_bell: self.is_heard,
            is_collecting: false,
            has_unsent: false,
        };
        let request = Request::post("/agent/v1/report")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", agent.token))
            .body(serde_json::to_vec(&report).unwrap().into())
            .unwrap();
        let answer = call(&self.router, &self.book, request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        agent.order = serde_json::from_slice(&answer.body).unwrap();
        agent.said = Some((report.attempt, state, report.notice.is_some()));
        agent.exit_sent = report.exit.is_some();
        if report.store {
            agent.stored_at = now;
        }
        agent.next_at = now + Duration::from_millis(agent.order.poll_after_ms);
    }
}

impl Agent {
    /// A program saves for three seconds after the notice, then ends.
    fn has_saved(&self, now: Timestamp) -> bool {
        self.notice.as_ref().is_some_and(|notice| now.duration_since(notice.seen_at).as_secs() >= 3)
    }

    fn state(&self, now: Timestamp) -> WorkerState {
        if self.exit.is_some() {
            return WorkerState::Exited;
        }
        match self.order.want {
            Want::Prepare if now.duration_since(self.began).as_secs() < SETUP_SECS => WorkerState::Preparing,
            Want::Prepare => WorkerState::Ready,
            Want::Run => WorkerState::Running,
            Want::Stop | Want::Retire => WorkerState::Exited,
        }
    }
}
