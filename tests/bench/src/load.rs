//! Load on `events`: each process is one thread, and the clients are others, so that two cores are enough to measure.
//!
//! The function decodes a push of the Logging sink, checks the caller and publishes a hint; the route beside it only
//! answers 204. Both get the same requests over the same kept-alive connections.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use axum::Router;
use axum::routing::post;
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::InstanceDoc;
use rekindle_rig::Rig;
use rekindle_web::{Door, layers};

use crate::AT_LEAST;

/// Connections at once. Pub/Sub pushes far fewer to one instance.
const CONNECTIONS: usize = 32;
/// A preemption as the sink pushes it, and the VM that it names.
const SAMPLE: &str = include_str!("../../samples/tpu/logsink-pubsub-push-preempted.json");
const VM: &str = "t1v-n-9472280f-w-0";
const PATH: &str = "/functions/tpu-events";

/// How one server did.
struct Run {
    answered: u64,
    shed: u64,
    per_second: f64,
}

/// `events` against the bare route, and under more connections than it takes at once.
pub(crate) fn events(out: &mut impl Write) -> anyhow::Result<()> {
    let sample: serde_json::Value = serde_json::from_str(SAMPLE)?;
    let body = &sample["body"].to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rig = runtime.block_on(Rig::new());
    let job = JobId::parse("bench").context("a job id")?;
    let known = InstanceDoc { name: VM.into(), job, generation: 1, key: WorkerKey { slice: 0, worker: 0 } };
    let kind = Kind::Instance(VM.into());
    runtime.block_on(rig.fakes.store().write(&kind, &known, Precondition::None))?;
    let function = rig.mount(rekindle_fn_tpu_events::router(rig.engine.clone()), Door::TpuEvents);
    let deadline = rig.engine.settings.handler_deadline;
    let bare = Router::new().route(PATH, post(async || StatusCode::NO_CONTENT));
    let at = serve(function)?;
    let decoded = runtime.block_on(load(at, body, CONNECTIONS))?;
    let flooded = runtime.block_on(load(at, body, 2 * layers::AT_ONCE_MAX))?;
    let hints = rig.fakes.hints.all().len();
    ensure!(
        hints as u64 == decoded.answered + flooded.answered - flooded.shed,
        "what was acknowledged is not all there"
    );
    let plain = runtime.block_on(load(serve(bare)?, body, CONNECTIONS))?;
    writeln!(
        out,
        "events: {:.0} a second on one core; {:.2} of a route that only answers 204 ({:.0} a second)",
        decoded.per_second,
        decoded.per_second / plain.per_second,
        plain.per_second
    )?;
    writeln!(
        out,
        "events, {} connections: {:.0} a second, {} of {} answered 503 and would come again; deadline {} s",
        2 * layers::AT_ONCE_MAX,
        flooded.per_second,
        flooded.shed,
        flooded.answered,
        deadline.as_secs()
    )?;
    Ok(())
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
            axum::serve(listener, router).await.context("the server ended")
        })
    })?;
    Ok(at)
}

/// The same request over every connection, one after the other on each, for a while.
async fn load(at: SocketAddr, body: &str, connections: usize) -> anyhow::Result<Run> {
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let request: Arc<[u8]> = request.into_bytes().into();
    let began = Instant::now();
    let clients: Vec<_> =
        (0..connections).map(|_| tokio::task::spawn(client(at, Arc::clone(&request), began))).collect();
    let (mut answered, mut shed) = (0, 0);
    for client in clients {
        let (all, refused) = client.await??;
        answered += all;
        shed += refused;
    }
    Ok(Run { answered, shed, per_second: answered as f64 / began.elapsed().as_secs_f64() })
}

async fn client(at: SocketAddr, request: Arc<[u8]>, began: Instant) -> anyhow::Result<(u64, u64)> {
    let mut stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    let (mut answered, mut shed) = (0, 0);
    let mut buffer = Vec::new();
    while began.elapsed() < AT_LEAST {
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
