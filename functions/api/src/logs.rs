//! Output of workers: agents put numbered chunks, people read them as text or follow them.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream, StreamExt as _};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use tokio::time::Instant;

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::Job;
use rekindle_ports::world::WorldError;
use rekindle_web::{Caller, Path, Problem, Query, body, faulty_query, problem};
use rekindle_wire::agent::LogChunk;
use rekindle_wire::v1;

use crate::access::seen;
use crate::jobs::{job_id, load};
use crate::streams::Moment;
use crate::{Api, agents, streams};

mod form;
mod gap;
pub(crate) mod name;
mod reader;
mod tail;
mod turns;

use form::Writer;
use name::Chunk;
use reader::{Filter, Position, Reader, StreamKey};
pub(crate) use turns::Turns;

/// The largest chunk, in bytes.
// Agents cut far below it; it bounds what one call may hold in memory.
const CHUNK_MAX: usize = 8 * 1024 * 1024;

/// When a brief stream comes back, at the earliest and at the latest.
const BRIEF_RETRY: Duration = Duration::from_secs(30);
const BRIEF_RETRY_MAX: Duration = Duration::from_mins(2);
/// The same for each list of objects that its look took: a list costs as much as two seconds of work, and streams of many
/// workers that print take one each.
const BRIEF_RETRY_A_LIST: Duration = Duration::from_secs(10);

/// `PUT /agent/v1/logs/…`: 204; 400 a stream or a number that no chunk has, 409 when the chunk is there already (it is
/// never overwritten), 401 a wrong token, 404 an attempt that is not of the worker's generation, 503 while an earlier call
/// with the chunk is still at work.
///
/// Calls with one chunk may meet: a process that stood still finds the call of which nobody heard an answer and the one that came again.
/// Of calls in one process one stores it. Two processes may store it twice, under two times; readers take the first.
pub(crate) async fn put_chunk(
    State(api): State<Api>,
    Path((job, attempt, worker, stream, number)): Path<(String, u32, String, String, u64)>,
    Query(query): Query<LogChunk>,
    headers: HeaderMap,
    request: Request,
) -> Result<StatusCode, Problem> {
    let job = job_id(&job)?;
    let key = v1::worker_key(&worker).ok_or_else(|| Problem::not_found(&format!("worker {worker:?}")))?;
    let who = agents::Named { job: &job, generation: query.generation, key, instance: &query.instance };
    let view = agents::job_of(&api, &headers, who).await?;
    // One that is over may have left the job's document, and its last words come late.
    let of = view.attempts.iter().find(|a| a.number == attempt).map(|a| a.generation);
    if attempt == 0 || attempt > view.last_attempt || of.is_some_and(|generation| generation != query.generation) {
        return Err(Problem::not_found(&format!("attempt {attempt} for this worker")));
    }
    let at_ms = api.engine.ports.clock.now().as_millisecond();
    let folder = name::stream_folder(&job, attempt, key, &stream);
    let chunk = Chunk { attempt, key, stream, number, at_ms };
    let name = chunk.object(&job).ok_or_else(|| {
        problem(StatusCode::BAD_REQUEST, "stream", "a stream is named by 1 to 16 letters a to z and digits")
    })?;
    name::check(number)?;
    let bytes = body::read(request, CHUNK_MAX).await?;
    let unavailable = |e| Problem::unavailable("the object store", &e);
    let Some(turn) = api.turns.begin(format!("{folder}{number}")) else {
        return Err(problem(StatusCode::SERVICE_UNAVAILABLE, "chunk", "this chunk is being stored; try again"));
    };
    let objects = api.engine.ports.objects.clone();
    // A call that is over, or whose time is, does not end what it has begun to store, and the next one must not come in between.
    let stored = tokio::spawn(async move {
        let _turn = turn;
        let there = objects.list(&folder, Some(&name::before(&folder, number)), 1).await?;
        let is_there = there.first().and_then(|name| Chunk::parse(&job, name)).is_some_and(|it| it.number == number);
        if !is_there {
            objects.put(&name, bytes).await?;
        }
        Ok(is_there)
    });
    let stored = stored.await.map_err(|ended| Problem::unavailable("the object store", &ended))?;
    if stored.map_err(|e: WorldError| unavailable(e))? {
        return Err(problem(StatusCode::CONFLICT, "chunk", "this chunk is there already"));
    }
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogsQuery {
    attempt: Option<u32>,
    worker: Option<String>,
    stream: Option<String>,
    follow: Option<String>,
    /// With `follow`, for pages that stay open: see [`streams::is_brief`].
    brief: Option<bool>,
    /// `text` (as it is without), or `lines`: a JSON object ([`v1::OutputLine`]) for each line.
    form: Option<String>,
    /// Only what came in from then on (RFC 3339), to the granularity of a flush.
    since: Option<Moment>,
    /// Begin where about so many bytes are left of the newest output.
    tail: Option<u64>,
}

/// `GET /v1/jobs/{id}/logs`: text, or with `follow` a stream of server-sent events.
pub(crate) async fn read(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<LogsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let job = seen(&api, &caller, &job_id(&id)?).await?;
    let worker = match query.worker.as_deref().filter(|w| !w.is_empty() && *w != "all") {
        Some(text) => Some(worker(&job, text)?),
        None => None,
    };
    let follow = match query.follow.as_deref() {
        None | Some("false" | "0") => false,
        Some("" | "true" | "1") => true,
        Some(other) => return Err(faulty_query("follow", &format!("{other:?} is neither true nor false"))),
    };
    let has_objects = match query.form.as_deref() {
        None | Some("" | "text") => false,
        Some("lines") => true,
        Some(other) => return Err(faulty_query("form", &format!("{other:?} is neither text nor lines"))),
    };
    if let Some(stream) = query.stream.as_deref().filter(|s| !["", "stdout", "stderr"].contains(s)) {
        return Err(faulty_query("stream", &format!("there is no stream {stream:?}; write stdout or stderr")));
    }
    if let Some(attempt) = query.attempt {
        check_attempt(&job, attempt, follow)?;
    }
    let filter = Filter {
        worker,
        stream: query.stream.filter(|s| !s.is_empty()),
        attempt: query.attempt,
        since_ms: query.since.map(|Moment(since)| since.as_millisecond()),
        has_bars: follow,
    };
    let workers = workers_each(&job) * job.spec.tpu.slices;
    let has_slices = job.spec.tpu.slices > 1;
    let writer = Writer { workers, has_slices, has_prefix: worker.is_none() && workers > 1, has_objects, open: None };
    // An attempt that has not been gave nothing out: the store is an older one, and the stream begins again.
    let given = if follow { streams::last_id(&headers, Position::parse)? } else { None };
    let given = given.filter(|from| from.attempt <= job.last_attempt);
    let is_new = given.is_none();
    let from = match (given, query.tail) {
        (Some(from), _) => from,
        (None, None) => Position::start(if follow { 0 } else { query.attempt.unwrap_or(1) }),
        (None, Some(bytes)) => {
            let objects = api.engine.ports.objects.as_ref();
            let begin = tail::begin(objects, &job.id, &filter, job.last_attempt, bytes.min(tail::TAIL_MAX)).await;
            begin.map_err(|error| Problem::unavailable("the object store", &error))?
        }
    };
    if !follow {
        return Ok(text(&api, &job, filter, writer, from));
    }
    let is_brief = streams::is_brief(&api, query.brief);
    // For one that breaks. It has no id: who has been told nothing begins again.
    let hello = is_brief.then(|| Ok(Event::default().retry(BRIEF_RETRY)));
    let events = events(api, job, filter, writer, (from, is_new, is_brief));
    Ok(streams::answer(stream::iter(hello).chain(events)))
}

/// Workers of a slice, of the largest that the spec takes; the generation may be gone.
pub(crate) fn workers_each(job: &Job) -> u32 {
    let known = job.spec.tpu.accelerators.iter().filter_map(|a| rekindle_core::catalog::accelerator(a));
    let each = known.map(|a| a.workers).chain(job.generations.iter().map(|g| g.workers));
    each.max().unwrap_or(1)
}

/// A worker of the job. 400 for one that it does not have.
fn worker(job: &Job, text: &str) -> Result<WorkerKey, Problem> {
    let (slices, workers) = (job.spec.tpu.slices, workers_each(job));
    let range = match (slices, workers) {
        (1, 1) => "the job has w0 alone".to_owned(),
        (1, _) => format!("the job has the workers w0 to w{}", workers - 1),
        _ => format!("the job has the workers s0w0 to s{}w{} (slice, worker)", slices - 1, workers - 1),
    };
    let key = v1::worker_key(text).filter(|key| key.slice < slices && key.worker < workers);
    key.ok_or_else(|| faulty_query("worker", &format!("there is no worker {text:?}; {range}")))
}

/// 400 for an attempt that has not been, unless it is waited for.
fn check_attempt(job: &Job, attempt: u32, follow: bool) -> Result<(), Problem> {
    if attempt > 0 && (follow || attempt <= job.last_attempt) {
        return Ok(());
    }
    let has = match job.last_attempt {
        0 => "the job has had none yet".to_owned(),
        1 => "the job has had attempt 1 alone".to_owned(),
        last => format!("the job has had the attempts 1 to {last}"),
    };
    Err(faulty_query("attempt", &format!("there is no attempt {attempt}; {has}")))
}

/// Everything there is from there on, attempt by attempt, chunk by chunk; memory holds one chunk.
fn text(api: &Api, job: &Job, filter: Filter, writer: Writer, from: Position) -> Response {
    let all = filter.attempt.is_none() && job.last_attempt > 1;
    let reader = Reader::new(api.engine.ports.objects.clone(), job.id.clone(), filter, from);
    let last = job.last_attempt;
    let kind = if writer.has_objects { "application/x-ndjson" } else { "text/plain; charset=utf-8" };
    let (api, job) = (api.clone(), job.clone());
    let whole = Whole { api, job, reader, writer, heading_due: all, looks: 0, is_at_end: false };
    let body = stream::try_unfold(whole, move |mut whole| async move {
        loop {
            if let Some(out) = whole.next().await? {
                return Ok::<_, std::io::Error>(Some((out, whole)));
            }
            if whole.reader.filter().attempt.is_some() || whole.reader.attempt() >= last {
                return Ok(None);
            }
            whole.reader.go_on();
            (whole.heading_due, whole.looks, whole.is_at_end) = (all, 0, false);
        }
    });
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(body)).into_response()
}

/// State of one reading of everything.
struct Whole {
    api: Api,
    job: Job,
    reader: Reader,
    writer: Writer,
    heading_due: bool,
    /// So often all was read that was there when it was looked for.
    looks: u32,
    /// Everything of the attempt was read.
    is_at_end: bool,
}

impl Whole {
    /// The next lines of the attempt, and at its end what is missing of it.
    async fn next(&mut self) -> std::io::Result<Option<bytes::Bytes>> {
        if self.is_at_end {
            return Ok(None);
        }
        let attempt = self.reader.attempt();
        let piece = self.piece().await?;
        let mut out = Vec::new();
        if let Some((key, text)) = piece {
            out.extend(self.writer.piece(attempt, &key, &text));
        } else {
            self.is_at_end = true;
            if is_over(&self.job, attempt) {
                let store = &self.api.engine.ports.store;
                let gaps = gap::gaps(store, &self.job, &self.reader).await.map_err(std::io::Error::other)?;
                for (key, line) in gaps {
                    out.extend(self.writer.piece(attempt, &(key, String::new()), line.as_bytes()));
                }
            }
        }
        if out.is_empty() {
            return Ok(None);
        }
        if std::mem::take(&mut self.heading_due) {
            out.splice(0..0, self.writer.heading(attempt));
        }
        Ok(Some(out.into()))
    }

    /// The next lines, and at last the beginnings of those that have no end yet. While the attempt goes on, what came in meanwhile is
    /// looked for once: of streams that say much a part of it was read, and then of the others none. Not for ever: they may say more
    /// than is read.
    async fn piece(&mut self) -> std::io::Result<Option<(StreamKey, Vec<u8>)>> {
        let looks_max = if is_over(&self.job, self.reader.attempt()) { 1 } else { 2 };
        while self.looks < looks_max {
            if let Some(piece) = self.reader.next().await.map_err(std::io::Error::other)? {
                return Ok(Some(piece));
            }
            self.looks += 1;
        }
        Ok(self.reader.rest())
    }
}

/// State of one follow.
struct Follow {
    api: Api,
    id: JobId,
    reader: Reader,
    writer: Writer,
    heading_due: bool,
    heard: Instant,
    ended: bool,
    /// Ends once there is nothing more to tell.
    is_brief: bool,
}

fn events(
    api: Api,
    job: Job,
    filter: Filter,
    writer: Writer,
    (from, is_new, is_brief): (Position, bool, bool),
) -> impl Stream<Item = Result<Event, Infallible>> {
    let attempt = filter.attempt.unwrap_or(from.attempt.max(1));
    let position = if from.attempt == attempt { from } else { Position::start(attempt) };
    let heading_due = filter.attempt.is_none() && is_new;
    let reader = Reader::new(api.engine.ports.objects.clone(), job.id.clone(), filter, position);
    let follow = Follow { id: job.id, api, reader, writer, heading_due, heard: Instant::now(), ended: false, is_brief };
    stream::unfold(follow, |mut follow| async move { follow.next().await.map(|event| (Ok(event), follow)) })
}

impl Follow {
    /// The next event; `None` ends the stream: the job is over, or nothing was heard for a minute.
    async fn next(&mut self) -> Option<Event> {
        let pause = streams::pause_of_output(&self.api);
        while !self.ended {
            if let Some(event) = self.look().await? {
                return Some(event);
            }
            let job = load(&self.api, &self.id).await.ok()?;
            if is_over(&job, self.reader.attempt()) {
                // Once more: it may have put its last chunk before the job was read.
                if let Some(event) = self.look().await? {
                    return Some(event);
                }
                while let Some((key, text)) = self.reader.rest() {
                    if let Some(event) = self.piece(&key, &text) {
                        return Some(event);
                    }
                }
                if let Some(event) = self.gaps(&job).await? {
                    return Some(event);
                }
                if self.reader.filter().attempt.is_none() && self.reader.attempt() < job.last_attempt {
                    self.reader.go_on();
                    self.heading_due = true;
                    continue;
                }
                if job.phase.is_terminal() || self.reader.filter().attempt.is_some() {
                    self.ended = true;
                    return Some(self.event("end", job.phase.as_str()));
                }
            }
            if self.is_brief {
                self.ended = true;
                let wait = (BRIEF_RETRY_A_LIST * self.reader.lists()).clamp(BRIEF_RETRY, BRIEF_RETRY_MAX);
                return Some(Event::default().retry(wait));
            }
            if self.heard.elapsed() >= self.api.silence_max {
                return None;
            }
            tokio::time::sleep(pause).await;
        }
        None
    }

    /// New lines, if there are any; the outer `None` ends the stream.
    async fn look(&mut self) -> Option<Option<Event>> {
        loop {
            match self.reader.next().await {
                Ok(Some((key, text))) => {
                    if let Some(event) = self.piece(&key, &text) {
                        return Some(Some(event));
                    }
                }
                Ok(None) => return Some(None),
                Err(error) => {
                    tracing::warn!(job = %self.id, %error, "output cannot be read; the client comes back");
                    return None;
                }
            }
        }
    }

    /// What is missing of the attempt, which is over; the outer `None` ends the stream.
    async fn gaps(&mut self, job: &Job) -> Option<Option<Event>> {
        let gaps = match gap::gaps(&self.api.engine.ports.store, job, &self.reader).await {
            Ok(gaps) => gaps,
            Err(error) => {
                tracing::warn!(job = %self.id, %error, "reports cannot be read; the client comes back");
                return None;
            }
        };
        let mut out = Vec::new();
        for (key, line) in &gaps {
            self.reader.note(*key);
            let line = line.trim_end_matches('\n');
            out.extend(self.writer.state(self.reader.attempt(), &(*key, String::new()), line.as_bytes(), false));
        }
        if out.is_empty() {
            return Some(None);
        }
        if std::mem::take(&mut self.heading_due) {
            out.splice(0..0, self.writer.heading(self.reader.attempt()));
        }
        let out = String::from_utf8_lossy(&out);
        Some(Some(self.event("", out.strip_suffix('\n').unwrap_or(&out))))
    }

    /// What is to be told of a piece; `None`: nothing is to be seen of it.
    fn piece(&mut self, of: &StreamKey, text: &[u8]) -> Option<Event> {
        self.heard = Instant::now();
        let (attempt, states) = (self.reader.attempt(), form::newest(text));
        if states.is_empty() {
            return None;
        }
        let begins = std::mem::take(&mut self.heading_due);
        let mut out = if begins { self.writer.heading(attempt) } else { Vec::new() };
        for (state, is_open) in states {
            out.extend(self.writer.state(attempt, of, state, is_open));
        }
        // The last line feed is the event's own.
        let out = String::from_utf8_lossy(&out);
        Some(self.event("", out.strip_suffix('\n').unwrap_or(&out)))
    }

    fn event(&self, kind: &str, data: &str) -> Event {
        let event = Event::default().id(self.reader.position().to_string()).data(data);
        if kind.is_empty() { event } else { event.event(kind) }
    }
}

/// Nothing more comes of an attempt: it is fenced (agents flush before they report the exit), or the job has ended.
fn is_over(job: &Job, attempt: u32) -> bool {
    if job.phase.is_terminal() || attempt > job.last_attempt {
        return job.phase.is_terminal();
    }
    job.attempts.iter().find(|a| a.number == attempt).is_none_or(|a| a.fenced_at.is_some())
}
