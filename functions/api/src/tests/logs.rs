//! Output: chunks in, the same bytes out; follows that go on where they were.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use tokio::sync::watch;
use tower::ServiceExt;

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::Phase;
use rekindle_engine::tokens;
use rekindle_fakes::MemoryObjects;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::world::{Objects, WorldError};
use rekindle_rig::Rig;

use super::Served;

mod chunks;

fn chunk(attempt: u32, worker: u32, stream: &str, number: u64) -> (String, String) {
    let instance = format!("vm-{worker}");
    let key = WorkerKey { slice: 0, worker };
    let token = tokens::token("secret", &JobId::parse("train").unwrap(), 1, key, &instance);
    let path = format!("/agent/v1/logs/train/{attempt}/0-{worker}/{stream}/{number}?generation=1&instance={instance}");
    (path, token)
}

async fn put(served: &Served, attempt: u32, worker: u32, stream: &str, number: u64, text: &str) -> u16 {
    let (path, token) = chunk(attempt, worker, stream, number);
    served.put(&path, &token, text.to_owned()).await.status.as_u16()
}

async fn text(served: &Served, query: &str) -> String {
    let answer = served.get(&format!("/v1/jobs/train/logs{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().to_owned()
}

/// Makes the stored job look as if it were there.
async fn set(served: &Served, phase: Phase, last_attempt: u32) {
    let store = served.rig.fakes.store();
    let id = JobId::parse("train").unwrap();
    let at = store.job(&id).await.unwrap().unwrap();
    let mut job = std::sync::Arc::unwrap_or_clone(at.value);
    job.phase = phase;
    job.last_attempt = last_attempt;
    job.attempts.retain(|a| a.number == last_attempt);
    store.write(&Kind::Job(id), &job, Precondition::None).await.unwrap();
}

#[tokio::test]
async fn chunks_are_stored_once_by_the_worker_alone() {
    let served = Served::with_job().await;
    assert_eq!(put(&served, 1, 0, "stdout", 0, "a\n").await, 204);
    assert_eq!(put(&served, 1, 0, "stdout", 0, "other\n").await, 409, "never overwritten");
    assert_eq!(text(&served, "?worker=0").await, "a\n");
    assert_eq!(put(&served, 2, 0, "stdout", 0, "x").await, 404, "there is no such attempt");
    let (_, token) = chunk(1, 0, "stdout", 1);
    let later = tokens::token("secret", &JobId::parse("train").unwrap(), 2, WorkerKey { slice: 0, worker: 0 }, "vm-0");
    let path = "/agent/v1/logs/train/1/0-0/stdout/1?generation=2&instance=vm-0";
    assert_eq!(served.put(path, &later, "x").await.status, 404, "an attempt of another generation");
    assert_eq!(served.put(path, &token, "x").await.status, 401);
    let (path, _) = chunk(1, 0, "stdout", 1);
    let (_, others) = chunk(1, 1, "stdout", 1);
    assert_eq!(served.put(&path, &others, "x").await.status, 401);
    let (path, token) = chunk(1, 0, "..", 1);
    assert!(served.put(&path, &token, "x").await.status.is_client_error());
    let (path, token) = chunk(1, 0, "St-out", 1);
    assert_eq!(served.put(&path, &token, "x").await.status, 400);
    let (path, token) = chunk(1, 0, "stdout", 1);
    assert_eq!(served.put(&path, &token, vec![b'x'; 9 << 20]).await.status, 413);
}

/// Objects in a store that takes none until it is told to.
#[derive(Default)]
struct Hangs {
    objects: MemoryObjects,
    begun: AtomicUsize,
    goes_on: watch::Sender<bool>,
}

#[async_trait]
impl Objects for Hangs {
    async fn put(&self, name: &str, body: Bytes) -> Result<(), WorldError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.goes_on.subscribe().wait_for(|goes_on| *goes_on).await.unwrap();
        self.objects.put(name, body).await
    }

    async fn get(&self, name: &str, from: u64, len: u64) -> Result<Option<Bytes>, WorldError> {
        self.objects.get(name, from, len).await
    }

    async fn size(&self, name: &str) -> Result<Option<u64>, WorldError> {
        self.objects.size(name).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<String>, WorldError> {
        self.objects.list(prefix, after, limit).await
    }

    async fn upload_address(&self, name: &str) -> Result<String, WorldError> {
        self.objects.upload_address(name).await
    }
}

#[tokio::test]
async fn a_chunk_that_comes_again_while_it_is_stored_is_stored_once() {
    let objects = Arc::new(Hangs::default());
    let mut rig = Rig::new().await;
    rig.engine.ports.objects = objects.clone();
    let served = Served::over(rig, crate::SILENCE_MAX).and_job(&rekindle_rig::spec("train")).await;
    // Nobody hears the answer to this one: its time is over, or its caller has gone.
    let mut first = Box::pin(put(&served, 1, 0, "stdout", 0, "a\n"));
    while objects.begun.load(Ordering::SeqCst) == 0 {
        assert!(futures::poll!(&mut first).is_pending());
        tokio::task::yield_now().await;
    }
    drop(first);
    served.rig.advance(60);
    let mut again = Box::pin(put(&served, 1, 0, "stdout", 0, "a\n"));
    let answer = loop {
        match futures::poll!(&mut again) {
            Poll::Ready(status) => break Some(status),
            Poll::Pending if objects.begun.load(Ordering::SeqCst) > 1 => break None,
            Poll::Pending => tokio::task::yield_now().await,
        }
    };
    assert_eq!(answer, Some(503), "the first is still at it");
    objects.goes_on.send_replace(true);
    while objects.list("jobs/train/logs/", None, 1).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(put(&served, 1, 0, "stdout", 0, "a\n").await, 409);
    assert_eq!(objects.list("jobs/train/logs/", None, 9).await.unwrap().len(), 1);
    assert_eq!(put(&served, 1, 0, "stdout", 1, "b\n").await, 204);
    assert_eq!(text(&served, "?worker=0").await, "a\nb\n");
}

#[tokio::test]
async fn lines_are_whole_prefixed_by_worker_and_taken_in_turn() {
    let served = Served::with_job().await;
    for worker in [0, 1] {
        put(&served, 1, worker, "stdout", 0, &format!("one {worker}\ntw")).await;
        put(&served, 1, worker, "stdout", 1, &format!("o {worker}\nthr")).await;
    }
    served.rig.advance(1);
    put(&served, 1, 1, "stderr", 0, "oops\n").await;
    assert_eq!(
        text(&served, "").await,
        "[w0] one 0\n[w1] one 1\n[w0] two 0\n[w1] two 1\n[w1] oops\n[w0] thr\n[w1] thr\n"
    );
    assert_eq!(text(&served, "?worker=0").await, "one 0\ntwo 0\nthr\n");
    assert_eq!(text(&served, "?worker=0-1&stream=stderr").await, "oops\n");
    for same in ["w1", "s0w1", "1"] {
        assert_eq!(text(&served, &format!("?worker={same}&stream=stderr")).await, "oops\n", "{same}");
    }
    for (bad, says) in [
        ("?worker=x", "workers w0 to w3"),
        ("?worker=9", "workers w0 to w3"),
        ("?worker=9", "there is no worker"),
        ("?attempt=2", "there is no attempt 2"),
        ("?worker=1-0", "workers w0 to w3"),
        ("?follow=maybe", "neither true nor false"),
        ("?attempt=x", "attempt"),
        ("?attempt=2", "attempt 1 alone"),
        ("?attempt=0&follow=true", "attempt 1 alone"),
        ("?form=xml", "neither text nor lines"),
        ("?stream=stdin", "stdout or stderr"),
        ("?wroker=1", "wroker"),
    ] {
        let answer = served.get(&format!("/v1/jobs/train/logs{bad}")).await;
        assert!(answer.status == 400 && answer.text().contains(says), "{bad}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_line_without_end_is_not_glued_to_the_words_of_another_worker() {
    let served = Served::with_job().await;
    let long = "x".repeat(300_000);
    put(&served, 1, 0, "stdout", 0, &long).await;
    served.rig.advance(1);
    put(&served, 1, 1, "stdout", 0, "a\nb\n").await;
    served.rig.advance(1);
    put(&served, 1, 0, "stdout", 1, &long).await;
    served.rig.advance(1);
    put(&served, 1, 0, "stdout", 2, &format!("{long}\nend\n")).await;
    let parts = format!("[w0] {long}\n[w1] a\n[w1] b\n[w0] {long}{long}\n[w0] end\n");
    assert!(text(&served, "").await == parts, "the parts of a long line");
    assert!(text(&served, "?worker=0").await == format!("{long}{long}{long}\nend\n"), "byte for byte");
}

#[tokio::test]
async fn output_is_shown_in_the_order_in_which_it_came_in_and_from_a_time_on() {
    let served = Served::with_job().await;
    put(&served, 1, 1, "stdout", 0, "one\n").await;
    served.rig.advance(5);
    put(&served, 1, 0, "stderr", 0, "two\n").await;
    served.rig.advance(5);
    put(&served, 1, 0, "stdout", 0, "three\n").await;
    put(&served, 1, 0, "stderr", 1, "four\n").await;
    served.rig.advance(5);
    put(&served, 1, 0, "stdout", 1, "five\n").await;
    assert_eq!(text(&served, "").await, "[w1] one\n[w0] two\n[w0] three\n[w0] four\n[w0] five\n");
    assert_eq!(text(&served, "?worker=0&stream=stdout").await, "three\nfive\n");
    let now = served.rig.engine.ports.clock.now();
    let since = (now - Duration::from_secs(6)).to_string();
    assert_eq!(text(&served, &format!("?worker=0&since={since}")).await, "three\nfour\nfive\n");
    assert_eq!(text(&served, &format!("?since={now}")).await, "[w0] five\n");
    for path in ["jobs/train/logs?since=yesterday", "digest?since=yesterday", "watch?since=yesterday"] {
        let answer = served.get(&format!("/v1/{path}")).await;
        let told = "since: \\\"yesterday\\\" is no moment; write it as RFC 3339 does, such as 2026-11-27T18:00:00Z";
        assert!(answer.status == 400 && answer.text().contains(told), "{path}: {}", answer.text());
    }
}

#[tokio::test]
async fn what_a_worker_says_stands_before_what_it_complains_of_in_the_same_flush() {
    let served = Served::with_job().await;
    let later = |ms: i64| served.rig.fakes.clock.advance(jiff::SignedDuration::from_millis(ms));
    for number in 0..2 {
        put(&served, 1, 0, "stderr", number, &format!("Traceback {number}\n")).await;
        later(30);
        put(&served, 1, 1, "stderr", number, &format!("of another {number}\n")).await;
        later(30);
        put(&served, 1, 0, "stdout", number, &format!("start {number}\n")).await;
        later(2000);
    }
    let flush = |number: u64| format!("[w0] start {number}\n[w0] Traceback {number}\n[w1] of another {number}\n");
    assert_eq!(text(&served, "").await, flush(0) + &flush(1));
    assert_eq!(text(&served, "?worker=0&stream=stderr").await, "Traceback 0\nTraceback 1\n");
}

#[tokio::test]
async fn a_tail_begins_with_a_whole_line_near_the_end_and_reads_little() {
    let served = Served::with_job().await;
    put(&served, 1, 0, "stdout", 0, "an earlier attempt\n").await;
    set(&served, Phase::Running, 2).await;
    // Lines lie across chunks, and there are more of them than one list holds.
    let line = |number: u64| format!("line {number:03}\n");
    let all: String = (0..300).map(line).collect();
    let chunks: Vec<&str> = (0..all.len()).step_by(7).map(|at| &all[at..(at + 7).min(all.len())]).collect();
    for (number, part) in (0_u64..).zip(&chunks) {
        served.rig.advance(1);
        assert_eq!(put(&served, 2, 0, "stdout", number, part).await, 204);
    }
    set(&served, Phase::Failed, 2).await;
    let tail = async |query: &str| {
        let told = text(&served, &format!("?follow=true&{query}")).await;
        let data = told.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned);
        data.filter(|line| line != "failed").collect::<Vec<String>>()
    };
    assert_eq!(tail("worker=0&tail=30").await, ["== attempt 2 ==", "line 297", "line 298", "line 299"]);
    assert_eq!(tail("tail=30").await[1], "[w0] line 297");
    let whole = tail("worker=0&tail=99999").await;
    // Of a stream only its last chunks are looked at.
    assert!(whole.len() > 40 && whole[1..].iter().all(|line| line.len() == 8), "{whole:?}");
    assert_eq!(tail("worker=0&attempt=1&tail=9999").await, ["an earlier attempt"]);
    assert_eq!(tail("worker=1&tail=9").await, [""; 0], "a worker without a word");
    let once = text(&served, "?worker=0&tail=30").await;
    assert_eq!(once, "== attempt 2 ==\nline 297\nline 298\nline 299\n", "also without a follow");
    assert_eq!(text(&served, "?attempt=1&tail=99").await, "[w0] an earlier attempt\n");
}

#[tokio::test]
async fn attempts_follow_each_other_and_a_lost_chunk_is_passed_over() {
    let served = Served::with_job().await;
    put(&served, 1, 0, "stdout", 0, "first\n").await;
    set(&served, Phase::Running, 2).await;
    put(&served, 2, 0, "stdout", 0, "second\n").await;
    put(&served, 2, 0, "stdout", 3, "after the gap\n").await;
    set(&served, Phase::Running, 2).await;
    assert_eq!(text(&served, "?worker=0").await, "== attempt 1 ==\nfirst\n== attempt 2 ==\nsecond\nafter the gap\n");
    assert_eq!(text(&served, "?worker=0&attempt=2").await, "second\nafter the gap\n");
}

/// Objects in a store into which workers put more whenever one is read.
#[derive(Default)]
struct Grows {
    objects: MemoryObjects,
    reads: AtomicUsize,
}

impl Grows {
    async fn say(&self, worker: u32, number: usize, text: String) {
        let at_ms = 1000 * number + worker as usize;
        let name = format!("jobs/train/logs/000001/0000-{worker:04}/stdout/{number:010}@{at_ms}");
        self.objects.put(&name, text.into()).await.unwrap();
    }
}

#[async_trait]
impl Objects for Grows {
    async fn put(&self, name: &str, body: Bytes) -> Result<(), WorldError> {
        self.objects.put(name, body).await
    }

    async fn get(&self, name: &str, from: u64, len: u64) -> Result<Option<Bytes>, WorldError> {
        if name.starts_with("jobs/train/logs/") {
            let reads = self.reads.fetch_add(1, Ordering::SeqCst);
            self.say(1, 1, "and ended\n".into()).await;
            self.say(3, reads, format!("{reads} reads\n")).await;
        }
        self.objects.get(name, from, len).await
    }

    async fn size(&self, name: &str) -> Result<Option<u64>, WorldError> {
        self.objects.size(name).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<String>, WorldError> {
        self.objects.list(prefix, after, limit).await
    }

    async fn upload_address(&self, name: &str) -> Result<String, WorldError> {
        self.objects.upload_address(name).await
    }
}

#[tokio::test]
async fn what_comes_in_while_a_running_job_is_read_is_in_it_and_ends_no_line_nor_goes_on_for_ever() {
    let objects = Arc::new(Grows::default());
    let mut rig = Rig::new().await;
    rig.engine.ports.objects = objects.clone();
    let served = Served::over(rig, crate::SILENCE_MAX).and_job(&rekindle_rig::spec("train")).await;
    set(&served, Phase::Running, 1).await;
    for (worker, said) in [(0, "first\nopen"), (1, "begun "), (2, "open, too")] {
        objects.say(worker, 0, said.into()).await;
    }
    let all = "[w0] first\n[w3] 0 reads\n[w1] begun and ended\n[w3] 1 reads\n[w3] 2 reads\n[w0] open\n[w2] open, too\n";
    assert_eq!(text(&served, "").await, all);
}

#[tokio::test]
async fn many_chunks_come_out_byte_for_byte() {
    let served = Served::with_job().await;
    let mut all = String::new();
    for number in 0..300 {
        let part = format!("step={number} loss={}\r\u{e9}\u{4e16}", number * 7 % 13);
        let part = if number % 3 == 0 { format!("{part}\n") } else { part };
        assert_eq!(put(&served, 1, 0, "stdout", number, &part).await, 204);
        all.push_str(&part);
    }
    all.push('\n');
    assert_eq!(text(&served, "?worker=0&attempt=1").await, all);
}

/// Stores a chunk as an upload does, a second after the one before.
async fn lay(served: &Served, worker: u32, stream: &str, number: u64) -> String {
    let line = format!("w{worker} {stream} {number}\n");
    let name = format!("jobs/train/logs/000001/0000-{worker:04}/{stream}/{number:010}@{}", 1000 * (number + 1));
    served.rig.engine.ports.objects.put(&name, line.clone().into()).await.unwrap();
    line
}

#[tokio::test]
async fn streams_longer_than_a_list_come_out_whole_and_new_ones_are_found_between_them() {
    let served = Served::with_job().await;
    let long = [(0, "stderr", 1100), (0, "stdout", 2300), (1, "stdout", 70), (2, "stderr", 1), (3, "stdout", 1001)];
    let mut all: Vec<(u64, String)> = Vec::new();
    for (worker, stream, count) in long {
        for number in 0..count {
            all.push((number, format!("[w{worker}] {}", lay(&served, worker, stream, number).await)));
        }
    }
    // Of one moment, in the order of workers, and what one says first.
    all.sort_by_key(|(number, line)| (*number, line[..4].to_owned(), line.contains("stderr")));
    let wanted =
        |what: &str| all.iter().map(|(_, line)| line.as_str()).filter(|l| l.contains(what)).collect::<String>();
    assert!(text(&served, "").await == wanted(""), "all of all");
    assert!(text(&served, "?stream=stderr").await == wanted("stderr"), "one stream of each");
    let of_one = |what: &str| wanted(what).replace("[w0] ", "");
    assert!(text(&served, "?worker=0").await == of_one("w0] "), "all of one");
    assert!(text(&served, "?worker=0&stream=stdout").await == of_one("w0 stdout"), "one of one");
    let since = "?worker=0&stream=stdout&since=1970-01-01T00:38:20Z";
    assert_eq!(text(&served, since).await, "w0 stdout 2299\n");
    // A client that has it all comes back: what is new is found, wherever it stands.
    set(&served, Phase::Running, 1).await;
    let marks: Vec<String> = long.iter().map(|(w, stream, count)| format!("0-{w}/{stream}/{count}.0")).collect();
    let from = format!("1;{}", marks.join(";"));
    let mut news = Vec::new();
    for (worker, stream, number) in [(0, "stdout", 2300), (1, "stderr", 0), (2, "stderr", 1), (3, "stdout", 1003)] {
        news.push(format!("[w{worker}] {}", lay(&served, worker, stream, number).await.trim_end()));
    }
    let mut told: Vec<String> = follow(&served, "", Some(&from), 4).await.into_iter().map(|(.., data)| data).collect();
    told.sort();
    assert_eq!(told, news);
}

/// Follows until the stream ends, or `stop` events came; gives (id, event, data).
async fn follow(served: &Served, query: &str, from: Option<&str>, stop: usize) -> Vec<(String, String, String)> {
    let mut request = Request::get(format!("/v1/jobs/train/logs?follow=true{query}"));
    if let Some(id) = from {
        request = request.header("last-event-id", id);
    }
    let response = served.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut body, mut rest, mut events) = (response.into_body(), String::new(), Vec::new());
    while events.len() < stop {
        let Some(frame) = body.frame().await else { break };
        rest.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        while let Some((event, left)) = rest.split_once("\n\n").map(|(a, b)| (a.to_owned(), b.to_owned())) {
            rest = left;
            let field = |name: &str| -> String {
                let lines = event.lines().filter_map(|l| l.strip_prefix(&format!("{name}: ")));
                lines.collect::<Vec<_>>().join("\n")
            };
            events.push((field("id"), field("event"), field("data")));
        }
    }
    events
}

#[tokio::test]
async fn a_follow_goes_over_attempts_and_ends_with_the_job() {
    let served = Served::with_job().await;
    put(&served, 1, 0, "stdout", 0, "first\nbegun").await;
    set(&served, Phase::Running, 2).await;
    put(&served, 2, 0, "stdout", 0, "second\n").await;
    set(&served, Phase::Succeeded, 2).await;
    let events = follow(&served, "&worker=0", None, 100).await;
    let data: Vec<&str> = events.iter().map(|(.., data)| data.as_str()).collect();
    assert_eq!(data, ["== attempt 1 ==\nfirst", "begun", "== attempt 2 ==\nsecond", "succeeded"]);
    assert_eq!(events.last().unwrap().1, "end");
}

#[tokio::test]
async fn a_follow_comes_back_with_its_last_id_and_misses_nothing() {
    let served = Served::with_job().await;
    for worker in [0, 1] {
        for number in 0..5 {
            put(&served, 1, worker, "stdout", number, &format!("{worker}.{number}\npart of ")).await;
        }
    }
    set(&served, Phase::Succeeded, 1).await;
    let whole = follow(&served, "", None, 100).await;
    let lines = |events: &[(String, String, String)]| -> Vec<String> {
        let lines = events.iter().filter(|(_, kind, _)| kind.is_empty());
        let mut lines: Vec<String> =
            lines.flat_map(|(.., d)| d.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        lines.sort();
        lines
    };
    assert!(whole.len() > 5);
    for cut in 1..whole.len() {
        let begun = follow(&served, "", None, cut).await[..cut].to_vec();
        let last = begun.last().unwrap().0.clone();
        let rest = follow(&served, "", Some(&last), 100).await;
        assert_eq!(lines(&[begun, rest].concat()), lines(&whole), "cut after {cut} events at {last}");
    }
    let request = Request::get("/v1/jobs/train/logs?follow=1").header("last-event-id", "nonsense");
    let answer = rekindle_rig::send(&served.router, request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn a_silent_follow_ends_itself() {
    let served = Served::with_silence(Duration::from_millis(300)).await;
    put(&served, 1, 0, "stdout", 0, "only\n").await;
    let began = Instant::now();
    let events = follow(&served, "&worker=0", None, 100).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(began.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn what_a_program_says_forges_neither_an_attempt_nor_a_worker() {
    let served = Served::with_job().await;
    put(&served, 1, 0, "stdout", 0, "== attempt 9 ==\n[w3] not w3\n\n").await;
    set(&served, Phase::Running, 2).await;
    put(&served, 2, 1, "stdout", 0, "{\"attempt\":7}\n").await;
    set(&served, Phase::Succeeded, 2).await;
    let due = [
        r#"{"attempt":1,"workers":4}"#,
        r#"{"attempt":1,"workers":4,"worker":"w0","line":"== attempt 9 =="}"#,
        r#"{"attempt":1,"workers":4,"worker":"w0","line":"[w3] not w3"}"#,
        r#"{"attempt":1,"workers":4,"worker":"w0","line":""}"#,
        r#"{"attempt":2,"workers":4}"#,
        r#"{"attempt":2,"workers":4,"worker":"w1","line":"{\"attempt\":7}"}"#,
    ];
    let said = text(&served, "?form=lines").await;
    assert_eq!(said.lines().collect::<Vec<_>>(), due);
    let events = follow(&served, "&form=lines", None, 100).await;
    let lines = events.iter().filter(|(_, kind, _)| kind.is_empty()).flat_map(|(.., data)| data.lines());
    assert_eq!(lines.collect::<Vec<_>>(), due);
}

#[tokio::test]
async fn a_follow_shows_the_newest_state_of_a_bar_before_its_line_ends() {
    let served = Served::with_job().await;
    let said = "begin\r\n\r 1%\r 2%\r 3%";
    put(&served, 1, 0, "stderr", 0, said).await;
    let first = follow(&served, "", None, 1).await;
    assert_eq!(first[0].2, "== attempt 1 ==\n[w0] begin\n[w0]  2%", "what stands behind may not be all of the state");
    let open = follow(&served, "&form=lines&attempt=1&worker=0", None, 1).await;
    let state = r#"{"attempt":1,"workers":4,"worker":"w0","line":" 2%","is_open":true}"#;
    assert_eq!(open[0].2.lines().last(), Some(state));

    // A line end that was cut in two is one line end.
    put(&served, 1, 0, "stderr", 1, "\r100%\r").await;
    put(&served, 1, 0, "stderr", 2, "\nnext\r\n").await;
    set(&served, Phase::Succeeded, 1).await;
    let events = follow(&served, "", Some(&first[0].0), 100).await;
    let data: Vec<&str> = events.iter().map(|(.., data)| data.as_str()).collect();
    assert_eq!(data, ["[w0]  3%", "[w0] 100%\n[w0] next", "succeeded"]);
    assert_eq!(text(&served, "?worker=0").await, format!("{said}\r100%\r\nnext\r\n"), "byte for byte");
}
