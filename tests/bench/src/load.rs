//! Load on `events`: the server is one thread, and the clients are another, so that two cores are enough to measure.
//!
//! The function decodes a push of the Logging sink, checks the caller, looks up whose the VM is and publishes a hint, with the
//! layers and the log of the cloud. Beside it stand two routes of axum under the same server: one that answers 204 and does
//! nothing else, not even read the body, and the same one under the layers that every function has (trace, limit, deadline,
//! panics). All get the same requests over the same kept-alive connections, in turn.

use std::io::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use axum::Router;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_engine::Engine;
use rekindle_fakes::Emulators;
use rekindle_fn_notify::Sender;
use rekindle_gcp::auth::Service;
use rekindle_gcp::oidc::{Mode, OidcSettings};
use rekindle_gcp::pubsub::PubSub;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::InstanceDoc;
use rekindle_ports::world::{Clock as _, Hint, Hints, WorldError};
use rekindle_rig::Rig;
use rekindle_server::{Callers, OidcDoors, Parts, Role, routers};
use rekindle_telemetry::CloudLayer;
use rekindle_web::layers;

use crate::AT_LEAST;
use crate::tokens;

/// Connections at once. Pub/Sub pushes far fewer to one instance.
const CONNECTIONS: usize = 32;
/// Each pair is measured so often; the middle ratio counts.
const ROUNDS: usize = 25;
/// And each time for so long: what else a machine has to do comes and goes, and should meet both or neither.
const ROUND: Duration = Duration::from_millis(200);
/// A preemption as the sink pushes it, and the VM that it names.
const SAMPLE: &str = include_str!("../../samples/tpu/logsink-pubsub-push-preempted.json");
const VM: &str = "t1v-n-9472280f-w-0";
const PATH: &str = "/functions/tpu-events";

/// Of the requests that the bare route answers, so many at least in mode `platform`.
const RATIO_MIN: f64 = 0.5;

/// More memory than this, clients and all, is no bound under a flood: a connection takes some 20 KiB on either side.
const FLOOD_KIB_MAX: u64 = 64 << 10;

/// How one server did.
struct Run {
    answered: u64,
    shed: u64,
    per_second: f64,
}

/// Hints in process: made as they would be sent, and counted.
#[derive(Default)]
struct Counted {
    hints: AtomicU64,
    /// What a publish takes.
    wait: Duration,
}

#[async_trait]
impl Hints for Counted {
    async fn publish(&self, hint: &Hint) -> Result<(), WorldError> {
        let text = serde_json::to_vec(hint).map_err(|e| WorldError { what: "hint", why: e.to_string() })?;
        std::hint::black_box(text);
        if !self.wait.is_zero() {
            // Nothing comes: the time is what a publish takes.
            let _over = tokio::time::timeout(self.wait, std::future::pending::<()>()).await;
        }
        self.hints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A parts list, and what stays the same over all measurements.
struct Bench {
    rig: Rig,
    bare: SocketAddr,
    layered: SocketAddr,
    keys_at: String,
}

impl Bench {
    fn new() -> anyhow::Result<Self> {
        let runtime = runtime()?;
        let rig = runtime.block_on(Rig::new());
        let job = JobId::parse("bench").context("a job id")?;
        let known = InstanceDoc { name: VM.into(), job, generation: 1, key: WorkerKey { slice: 0, worker: 0 } };
        runtime.block_on(rig.fakes.store().write(&Kind::Instance(VM.into()), &known, Precondition::None))?;
        let route = || Router::new().route(PATH, post(async || StatusCode::NO_CONTENT));
        let bare = serve(route())?;
        let layered = serve(layers::common(route(), rig.engine.settings.handler_deadline))?;
        let keys_at = format!("http://{}/keys", serve(tokens::router())?);
        Ok(Self { rig, bare, layered, keys_at })
    }

    fn now(&self) -> i64 {
        self.rig.fakes.clock.now().as_second()
    }

    /// `events` as the cloud has it, over these hints.
    fn events(&self, mode: Mode, hints: Arc<dyn Hints>) -> anyhow::Result<SocketAddr> {
        let mut engine: Engine = self.rig.engine.clone();
        engine.ports.hints = hints;
        let google = OidcSettings::google(mode, mode == Mode::Platform);
        let settings = OidcSettings { jwks_url: self.keys_at.clone(), ..google };
        let callers = Callers { push: vec![tokens::PUSH.into()], ..Callers::default() };
        let doors = OidcDoors::new(settings, vec![tokens::AUDIENCE.into()], callers, self.rig.fakes.clock.clone())?;
        serve(routers(
            Role::Events,
            Parts {
                engine,
                verifier: Arc::new(doors),
                sender: Arc::new(Sender::new(false)),
                messages_may: std::collections::BTreeSet::new(),
                uploads: None,
            },
        ))
    }

    /// The middle of some rounds, each with both routes beside it.
    fn beside(&self, at: SocketAddr, token: &str) -> anyhow::Result<Beside> {
        let runtime = runtime()?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let own = runtime.block_on(load(at, token, CONNECTIONS, ROUND))?;
            ensure!(own.shed == 0, "{} were shed below the limit", own.shed);
            let bare = runtime.block_on(load(self.bare, token, CONNECTIONS, ROUND))?;
            let layered = runtime.block_on(load(self.layered, token, CONNECTIONS, ROUND))?;
            rounds.push(Beside { own: own.per_second, bare: bare.per_second, layered: layered.per_second });
        }
        rounds.sort_by(|a, b| (a.own / a.bare).total_cmp(&(b.own / b.bare)));
        Ok(rounds[ROUNDS / 2])
    }
}

/// Requests a second.
#[derive(Clone, Copy)]
struct Beside {
    own: f64,
    bare: f64,
    layered: f64,
}

impl std::fmt::Display for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { own, bare, layered } = self;
        write!(f, "{own:.0} a second on one core; {:.2} of a route that only answers 204 ({bare:.0}), ", own / bare)?;
        write!(f, "{:.2} of that route under the same layers ({layered:.0})", own / layered)
    }
}

/// `events` against the bare route, in both modes and with the Pub/Sub emulator, and under more than it takes at once.
pub(crate) fn events(out: &mut impl Write) -> anyhow::Result<()> {
    let service = rekindle_telemetry::Service { name: "rekindle-events".into(), version: "0".into() };
    let layer = CloudLayer::new("p".into(), service, std::io::sink as fn() -> std::io::Sink);
    tracing_subscriber::registry().with(tracing_subscriber::EnvFilter::new("info")).with(layer).try_init()?;
    let bench = Bench::new()?;
    let (stripped, signed) = (tokens::stripped(bench.now()), tokens::signed(bench.now()));
    for (name, mode, token) in [("platform", Mode::Platform, &stripped), ("verify", Mode::Verify, &signed)] {
        let hints = Arc::new(Counted::default());
        let figures = bench.beside(bench.events(mode, hints.clone())?, token)?;
        ensure!(hints.hints.load(Ordering::Relaxed) > 0, "no hint came out");
        writeln!(out, "events, mode {name}: {figures}")?;
        // What is promised of the mode that the cloud runs; signatures are reported beside it.
        ensure!(
            mode != Mode::Platform || figures.own >= RATIO_MIN * figures.bare,
            "mode {name} bears {:.2} of the bare route and should bear {RATIO_MIN}: was the machine free of other work?",
            figures.own / figures.bare
        );
    }
    if let Some(emulator) = Emulators::pubsub() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let service = Service::emulator(emulator.address());
        // What nobody takes it would push again and again, and that alone would be measured.
        let takes_all = serve(Router::new().fallback(async || StatusCode::NO_CONTENT))?;
        let hints = runtime.block_on(async {
            rekindle_gcp::pubsub::admin::ensure_topics("bench", &service, &format!("http://{takes_all}")).await?;
            anyhow::Ok(PubSub::connect("bench", &service).await?.hints())
        })?;
        let figures = bench.beside(bench.events(Mode::Platform, Arc::new(hints))?, &stripped)?;
        writeln!(out, "events, mode platform, Pub/Sub emulator: {figures}")?;
    }
    flood(out, &bench, &stripped)
}

/// For how long a publish of the flood takes: so long that also a machine with much other work sends more in this time than the process takes
/// at once.
const HELD: Duration = Duration::from_secs(4);

/// Twice what a process takes at once, with publishes that take their time: the rest is told to come again, memory stays, and
/// whatever was acknowledged is there.
fn flood(out: &mut impl Write, bench: &Bench, token: &str) -> anyhow::Result<()> {
    let hints = Arc::new(Counted { wait: HELD, ..Counted::default() });
    let at = bench.events(Mode::Platform, hints.clone())?;
    let runtime = runtime()?;
    runtime.block_on(load(at, token, layers::AT_ONCE_MAX / 2, AT_LEAST))?;
    let before = resident_kib()?;
    let counted = hints.hints.load(Ordering::Relaxed);
    let flooded = runtime.block_on(load(at, token, 2 * layers::AT_ONCE_MAX, HELD))?;
    let hinted = hints.hints.load(Ordering::Relaxed) - counted;
    ensure!(hinted == flooded.answered - flooded.shed, "what was acknowledged is not all there");
    ensure!(flooded.shed > 0, "nothing was shed");
    let more = resident_kib()?.saturating_sub(before);
    ensure!(more < FLOOD_KIB_MAX, "{more} KiB more memory");
    writeln!(
        out,
        "events, {} at once: {} acknowledged and all of them there, {} answered 503 and would come again; {} KiB more memory",
        2 * layers::AT_ONCE_MAX,
        hinted,
        flooded.shed,
        more
    )?;
    Ok(())
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// What this process, clients and all, has in memory.
fn resident_kib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// Serves on a thread of its own for as long as the process lives.
fn serve(router: Router) -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    std::thread::Builder::new().name("server".into()).spawn(move || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            rekindle_web::serve(listener, router, std::future::pending()).await;
            Ok(())
        })
    })?;
    Ok(at)
}

/// A push of the entry, and where in it stands what tells one from the next.
struct Template {
    request: Vec<u8>,
    number: Range<usize>,
}

/// Digits of an entry's number. They stand where base64 makes whole groups of them, so that each request costs a client a few bytes.
const DIGITS: usize = 12;

impl Template {
    /// The sample with an operation of its own: one that came before is not hinted again, and that is not what is measured.
    fn new(token: &str) -> anyhow::Result<Self> {
        let mut sample: serde_json::Value = serde_json::from_str(SAMPLE)?;
        let data = sample["body"]["message"]["data"].as_str().context("data of the sample")?;
        let mut entry: serde_json::Value = serde_json::from_slice(&STANDARD.decode(data)?)?;
        let mark = "0".repeat(DIGITS + 2);
        entry["operation"]["id"] = format!("systemevent-{mark}").into();
        let entry = entry.to_string();
        let at = entry.find(&mark).context("the mark")?.next_multiple_of(3);
        sample["body"]["message"]["data"] = STANDARD.encode(&entry).into();
        let body = sample["body"].to_string();
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nauthorization: Bearer {token}\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let data = body.find(&STANDARD.encode(&entry)).context("the data")?;
        let start = head.len() + data + at / 3 * 4;
        Ok(Self { request: (head + &body).into_bytes(), number: start..start + DIGITS / 3 * 4 })
    }

    /// Writes a number that no request had.
    fn renumber(&self, request: &mut [u8]) -> anyhow::Result<()> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let digits = format!("{:0DIGITS$}", LAST.fetch_add(1, Ordering::Relaxed));
        STANDARD.encode_slice(digits, &mut request[self.number.clone()])?;
        Ok(())
    }
}

/// The same entry, but for its number, over every connection, one after the other on each, for a while.
async fn load(at: SocketAddr, token: &str, connections: usize, lasts: Duration) -> anyhow::Result<Run> {
    let template = Arc::new(Template::new(token)?);
    let began = Instant::now();
    let clients: Vec<_> =
        (0..connections).map(|_| tokio::task::spawn(client(at, Arc::clone(&template), began + lasts))).collect();
    // The clients' thread never rests: a server would wake it with each answer, which costs it more, the longer it works on one.
    let restless = tokio::task::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let (mut answered, mut shed) = (0, 0);
    for client in clients {
        let (all, refused) = client.await??;
        answered += all;
        shed += refused;
    }
    restless.abort();
    Ok(Run { answered, shed, per_second: answered as f64 / began.elapsed().as_secs_f64() })
}

async fn client(at: SocketAddr, template: Arc<Template>, until: Instant) -> anyhow::Result<(u64, u64)> {
    let mut stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    let (mut answered, mut shed) = (0, 0);
    let (mut request, mut buffer) = (template.request.clone(), Vec::new());
    while Instant::now() < until {
        template.renumber(&mut request)?;
        stream.write_all(&request).await?;
        match answer(&mut stream, &mut buffer).await? {
            204 => {}
            503 => shed += 1,
            status => anyhow::bail!("answered {status}"),
        }
        answered += 1;
    }
    Ok((answered, shed))
}

/// Reads one whole answer; its status.
async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> anyhow::Result<u16> {
    buffer.clear();
    loop {
        ensure!(stream.read_buf(buffer).await? > 0, "the server closed the connection");
        let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") else { continue };
        let head = std::str::from_utf8(&buffer[..end])?.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(Ok(0), |text| text.trim().parse())?;
        if buffer.len() >= end + 4 + length {
            let status = head.split(' ').nth(1).context("no status")?;
            return Ok(status.parse()?);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_twice_what_it_takes_at_once_it_sheds_and_nothing_acknowledged_is_lost() {
        let bench = Bench::new().unwrap();
        let token = tokens::stripped(bench.now());
        flood(&mut Vec::new(), &bench, &token).unwrap();
    }
}
