//! Output: read from the program's files as they grow, and put to `api` in numbered chunks.
//!
//! The shim writes to plain files (in memory, where the machine has a buffer), and the program never waits for us.
//! **Invariant:** what a chunk holds is written down before it is sent, so a number always stands for the same bytes, also after a
//! restart in between. The paper for it is made when the attempt begins, so that a full disk takes it. What was sent is freed (a hole in the file), except for its end, which is evidence. What waits is
//! bounded, over all attempts: above the backlog its oldest part is freed too, and a line with the count of its bytes
//! stands in its place. So it is with what waits in a file that somebody removes or empties: the folder is open to the program. What
//! was written there since the last look is in no count: the shim, which knows how much it wrote, does not know how much of that was sent
//! when it was emptied, and two shims may write to one file. No idiom does that: a program has pipes, so that `: >/dev/stdout`
//! empties nothing. It takes the path of the file in the attempt's folder, on purpose.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::api::{Api, CallError, ChunkName};
use crate::backoff;
use crate::evidence::TAIL_MAX;
use crate::files::{self, Layout};
use crate::keep::Keeper;
use crate::metadata::Node;
use crate::reporter::Snapshot;
use crate::spool;

mod cursor;
mod patience;
mod reading;

use cursor::{Cursor, Pending};
pub(crate) use patience::{Patience, TELLING, all_sent, patience};
pub(crate) use reading::read_at;
use reading::{data_from, hole_from, size_of, size_to_send, unread};

/// In an attempt's folder: how far its output was sent.
const PAPER: &str = "logs.json";
/// Most bytes in one chunk.
// One request must fit into the body limit of `api` and be quick to repeat; a chattier program gets several chunks in
// one flush.
const CHUNK_MAX: u64 = 256 << 10;
/// Of an earlier attempt that waits at least half of this is kept, whatever a later one says: why it ended stands there.
const END_KEPT: u64 = 128 << 10;
/// Freed on the disk in pieces of at least this, so that the file system is not asked for each line.
// On a full disk what is freed is all the room for what follows: less than what the shim keeps free (`shim::RESERVE`).
const HOLE_STEP: u64 = 128 << 10;
/// Between two tries while `api` takes nothing, at most.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// The same while an exit is held back.
const RETRY_ASKED_MAX: Duration = Duration::from_secs(1);
/// Why bytes are missing, where the program was not content with its own folders.
const REMOVED: &str = "somebody removed or emptied the file in which they waited";
/// Between two looks whether what waits is still within its bound, also while `api` is out of reach.
const BOUND_EACH: Duration = Duration::from_millis(500);
/// Names of the streams, of their files and in addresses.
pub(crate) const STREAMS: [&str; 2] = ["stdout", "stderr"];

/// How far the streams of one attempt were sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Cursors {
    /// Whose they are; the former form does not tell.
    #[serde(default)]
    attempt: Option<u32>,
    streams: [Cursor; 2],
    is_complete: bool,
}

impl Cursors {
    fn is_of(&self, attempt: u32) -> bool {
        self.attempt.is_none_or(|of| of == attempt)
    }
}

/// What the shipper needs.
#[derive(Debug, Clone)]
pub(crate) struct Shipper {
    /// Calls.
    pub(crate) api: Api,
    /// Whose output.
    pub(crate) node: Arc<Node>,
    /// Where it is.
    pub(crate) layout: Layout,
    /// Tells the current attempt: what a program calls a later one, a copy of its own folder, is no output.
    pub(crate) snapshots: watch::Receiver<Snapshot>,
    /// Between two looks.
    pub(crate) flush: Duration,
    /// Most bytes that wait, for each stream, of all attempts together.
    pub(crate) backlog_max: u64,
    /// Keeps on the disk how far it was sent, where output waits in memory, which a reboot empties.
    pub(crate) sent: Option<Keeper>,
    /// The machine was started anew since the last agent.
    pub(crate) is_rebooted: bool,
    /// Reads what waits: so many bytes from a place on.
    pub(crate) read: fn(&Path, u64, u64) -> std::io::Result<Vec<u8>>,
}

/// A request to send everything now; answered when that is done.
pub(crate) type Flush = oneshot::Sender<()>;

/// The way to the shipper.
#[derive(Debug, Clone)]
pub(crate) struct Flushes {
    /// Where it is asked.
    pub(crate) ask: mpsc::Sender<Flush>,
    /// To whom it sends.
    pub(crate) api: Api,
}

/// What became of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// It is there now.
    Taken,
    /// One with its number was there before: itself, as a rule.
    NumberTaken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Nothing can be sent without a token, or with this one.
    NoToken,
    /// Try again later.
    Later,
    /// Its bytes cannot be read now. What else waits goes on.
    Held,
    /// Its bytes are not where they were, or are kept from us.
    Unreadable,
}

/// When the next look is due.
struct Rhythm {
    flush: Duration,
    failures: u32,
    due: Instant,
}

impl Rhythm {
    fn after(&mut self, shipped: Result<(), Stop>, began: Instant, now: Instant, is_asked: bool) {
        self.due = match shipped {
            Ok(()) => {
                self.failures = 0;
                // What was said since it began waits, however long the sending took: a machine that goes without a word takes no
                // more than that with it.
                began + self.flush
            }
            // All else is sent, and goes on as if nothing were.
            Err(Stop::Held) if !is_asked => {
                self.failures = 0;
                began + self.flush
            }
            Err(Stop::NoToken) => now + self.flush.min(Duration::from_millis(200)),
            Err(Stop::Later | Stop::Held | Stop::Unreadable) => {
                self.failures += 1;
                // Somebody waits with the end of a program.
                let most = if is_asked { RETRY_ASKED_MAX } else { RETRY_MAX };
                now + backoff::after(self.failures, Duration::from_millis(200), most)
            }
        };
    }
}

impl Shipper {
    /// Ships for ever. What is there when this is called, before anything of this agent's, was begun by the last one.
    pub(crate) fn run(
        self,
        token: watch::Receiver<Option<String>>,
        flushes: mpsc::Receiver<Flush>,
    ) -> impl Future<Output = ()> {
        let known = self.found();
        self.run_from(known, token, flushes)
    }

    async fn run_from(
        self,
        // Kept here too: a full disk keeps nothing, and must not hold up what is sent.
        mut known: BTreeMap<u32, Cursors>,
        token: watch::Receiver<Option<String>>,
        mut flushes: mpsc::Receiver<Flush>,
    ) {
        let mut rhythm = Rhythm { flush: self.flush, failures: 0, due: Instant::now() };
        let mut waiting: Vec<Flush> = Vec::new();
        let mut bounds = tokio::time::interval(BOUND_EACH);
        bounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                flush = flushes.recv() => match flush {
                    Some(flush) => waiting.push(flush),
                    None => return,
                },
                () = tokio::time::sleep_until(rhythm.due.into()) => {}
                _ = bounds.tick() => {
                    self.bound(&mut known);
                    continue;
                }
            }
            while let Ok(flush) = flushes.try_recv() {
                waiting.push(flush);
            }
            let (is_asked, began) = (!waiting.is_empty(), Instant::now());
            let shipped = self.ship_all(&mut known, &token, is_asked).await;
            rhythm.after(shipped, began, Instant::now(), is_asked);
            if shipped.is_ok() {
                for flush in waiting.drain(..) {
                    let _ = flush.send(());
                }
            }
        }
    }

    async fn ship_all(
        &self,
        known: &mut BTreeMap<u32, Cursors>,
        token: &watch::Receiver<Option<String>>,
        is_asked: bool,
    ) -> Result<(), Stop> {
        let attempts = self.attempts();
        known.retain(|attempt, cursors| attempts.contains(attempt) || !cursors.is_complete);
        // All of them first: the later ones are bounded also while an earlier one cannot be sent.
        for attempt in attempts {
            let cursors = known.entry(attempt).or_insert_with(|| self.load(attempt, false));
            // Made while there is room for one, and again where somebody removed it.
            if !self.layout.attempt(attempt).join(PAPER).exists() {
                self.save(attempt, cursors);
            }
        }
        let all: Vec<u32> = known.keys().copied().collect();
        let mut is_held = false;
        for attempt in &all {
            if known.get(attempt).is_some_and(|cursors| !cursors.is_complete) {
                let is_last = all.last() == Some(attempt);
                is_held |= !self.ship_attempt(*attempt, known, token, (is_last, is_asked)).await?;
            }
        }
        if is_held { Err(Stop::Held) } else { Ok(()) }
    }

    /// Sends what waits of one attempt; true where that is all of it. A stream that cannot be read holds up no other.
    async fn ship_attempt(
        &self,
        attempt: u32,
        known: &mut BTreeMap<u32, Cursors>,
        token: &watch::Receiver<Option<String>>,
        (is_last, is_asked): (bool, bool),
    ) -> Result<bool, Stop> {
        // Looked at before the sizes: nothing is written after it. A folder that is older and gone nobody makes again.
        let folder = self.layout.attempt(attempt);
        let is_closed = self.layout.is_closed(attempt) || (!is_last && !folder.exists());
        let Some(cursors) = known.get(&attempt) else { return Ok(true) };
        // What comes meanwhile waits for the next round, or a stream that never ends would keep the other one here.
        let until = [0, 1].map(|index| size_to_send(&folder.join(STREAMS[index]), &cursors.streams[index], is_closed));
        let said = until[0].map_or(0, |size| size.unwrap_or(0).saturating_sub(cursors.streams[0].waits_from()));
        let mut is_all = true;
        // People read them in the order in which they come in. But why a program ended stands in what it said last and least:
        // where the other stream takes more than a moment, that is sent first.
        for index in if said <= CHUNK_MAX { [0, 1] } else { [1, 0] } {
            let shipped = match until[index].map(Option::unwrap_or_default) {
                Ok(until) => {
                    self.ship(attempt, index, known, token, (until, is_closed, is_asked)).await.map(|()| until)
                }
                Err(stop) => Err(stop),
            };
            let Some(cursor) = known.get_mut(&attempt).map(|cursors| &mut cursors.streams[index]) else { continue };
            match shipped {
                // A size that was not told in between is none.
                Ok(until) => is_all &= !(is_closed || is_asked) || cursor.waits_from() >= until,
                Err(Stop::Held) => {
                    is_all = false;
                    if is_closed {
                        *cursor = cursor.held();
                    }
                }
                Err(stop) => return Err(stop),
            }
        }
        if is_closed
            && is_all
            && let Some(cursors) = known.get_mut(&attempt)
        {
            cursors.is_complete = true;
            self.save(attempt, cursors);
        }
        Ok(is_all)
    }

    /// Sends what waits of one stream up to a place; where nothing comes any more or somebody asks, also a line that is not whole
    /// there.
    async fn ship(
        &self,
        attempt: u32,
        index: usize,
        known: &mut BTreeMap<u32, Cursors>,
        token: &watch::Receiver<Option<String>>,
        (until, is_closed, is_asked): (u64, bool, bool),
    ) -> Result<(), Stop> {
        let is_whole = is_closed || is_asked;
        let path = self.layout.attempt(attempt).join(STREAMS[index]);
        loop {
            self.bound(known);
            let Some(cursors) = known.get_mut(&attempt) else { return Ok(()) };
            if size_to_send(&path, &cursors.streams[index], is_closed)?.is_none() {
                // As long as its program runs it is made again.
                if !is_whole {
                    return Ok(());
                }
                cursors.streams[index] = cursors.streams[index].removed();
            }
            let Some(pending) = plan(&path, &cursors.streams[index], until, is_whole) else { return Ok(()) };
            cursors.streams[index].pending = Some(pending.clone());
            self.save(attempt, cursors);
            let cursor = cursors.streams[index].clone();
            let call = self.send(token, attempt, STREAMS[index], &path, &cursor, &pending);
            tokio::pin!(call);
            let sent = loop {
                tokio::select! {
                    sent = &mut call => break sent,
                    () = tokio::time::sleep(BOUND_EACH) => self.bound(known),
                }
            };
            let Some(cursors) = known.get_mut(&attempt) else { return Ok(()) };
            let cursor = &mut cursors.streams[index];
            let sent = match sent {
                // Nobody holds up an end for what the program may still put right.
                Err(Stop::Unreadable) if is_whole => {
                    *cursor = cursor.removed();
                    continue;
                }
                Err(Stop::Unreadable) => return Ok(()),
                sent => sent?,
            };
            if sent == Sent::NumberTaken && cursor.is_anew {
                cursor.goes_behind();
                self.save(attempt, cursors);
                continue;
            }
            cursor.is_anew = false;
            cursor.taken(&pending);
            // Written down before it is gone: an agent that began between the two would send zeros under this number.
            self.save(attempt, cursors);
            free(&path, &mut cursors.streams[index]);
        }
    }

    /// Frees the oldest of what waits above the backlog, over all attempts.
    fn bound(&self, known: &mut BTreeMap<u32, Cursors>) {
        for (index, stream) in STREAMS.iter().enumerate() {
            let mut left = self.backlog_max;
            for (attempt, cursors) in known.iter_mut().rev().filter(|(_, cursors)| !cursors.is_complete) {
                let (path, cursor) = (self.layout.attempt(*attempt).join(stream), &mut cursors.streams[index]);
                let dropped = bound(&path, cursor, left.max(END_KEPT));
                left = left.saturating_sub(waiting(&path, cursor));
                let Some((from, until)) = dropped else { continue };
                // Written down before it is gone, for the next agent.
                self.save(*attempt, cursors);
                punch(&path, from, until);
            }
        }
    }

    /// What is there when the agent begins.
    fn found(&self) -> BTreeMap<u32, Cursors> {
        self.attempts().into_iter().map(|attempt| (attempt, self.load(attempt, true))).collect()
    }

    /// Those that have a folder, up to the current one.
    fn attempts(&self) -> Vec<u32> {
        let current = self.snapshots.borrow().attempt;
        let is_ours = |attempt: &u32| current == 0 || *attempt <= current;
        self.layout.attempts().into_iter().filter(is_ours).collect()
    }

    /// How far the output of an attempt was sent. `is_found`: the last agent may have sent some.
    fn load(&self, attempt: u32, is_found: bool) -> Cursors {
        let here: Option<Cursors> = files::read_json(&self.layout.attempt(attempt).join(PAPER));
        // The program has put that of another attempt there, and nobody knows what was in the place of it.
        let is_lost = here.as_ref().is_some_and(|here| !here.is_of(attempt));
        if let Some(here) = here.filter(|_| !is_lost) {
            return Cursors { attempt: Some(attempt), ..here };
        }
        let before: Option<Cursors> = files::read_json(&self.layout.sent(attempt));
        // A number that is taken need not be that of the same bytes.
        let is_anew = is_found || self.is_rebooted || is_lost || before.is_some();
        // In the same boot the files are still those of which it speaks.
        let folder = self.layout.attempt(attempt);
        let behind = |(cursor, stream): (Cursor, &str)| {
            if self.is_rebooted {
                return cursor.anew();
            }
            let data = data_from(&folder.join(stream), cursor.offset);
            cursor.beginning_at(data)
        };
        let [out, err] = before.unwrap_or_default().streams;
        let streams = [(out, STREAMS[0]), (err, STREAMS[1])].map(|of| Cursor { is_anew, ..behind(of) });
        // Where that could never be written, the numbers begin with those that were used before a reboot.
        Cursors { attempt: Some(attempt), streams, is_complete: false }
    }

    /// Writes down how far the output was sent. Where that fails this agent still knows it.
    fn save(&self, attempt: u32, cursors: &Cursors) {
        let paper = self.layout.attempt(attempt).join(PAPER);
        if let Err(error) = files::rewrite_json(&paper, cursors) {
            tracing::warn!(path = %paper.display(), %error, "cannot write down how far output was sent");
        }
        if let Some(sent) = &self.sent {
            sent.put_json(self.layout.sent(attempt), cursors);
        }
    }

    async fn send(
        &self,
        token: &watch::Receiver<Option<String>>,
        attempt: u32,
        stream: &str,
        path: &Path,
        cursor: &Cursor,
        pending: &Pending,
    ) -> Result<Sent, Stop> {
        let Some(token) = token.borrow().clone() else { return Err(Stop::NoToken) };
        let read = || {
            if pending.len == 0 {
                Ok(Vec::new())
            } else {
                (self.read)(path, cursor.offset + pending.dropped, pending.len)
            }
        };
        let mut bytes = read().map_err(|error| {
            tracing::warn!(path = %path.display(), %error, "cannot read output");
            unread(path, &error)
        })?;
        for (count, why) in [(pending.dropped, "api was out of reach"), (pending.lost, REMOVED)] {
            if count > 0 {
                bytes.splice(0..0, spool::mark(count, why).into_bytes());
            }
        }
        let name = ChunkName { node: &self.node, attempt, stream, number: cursor.number };
        match self.api.put_log(&token, name, bytes).await {
            Ok(()) => Ok(Sent::Taken),
            Err(CallError::Conflict) => Ok(Sent::NumberTaken),
            Err(CallError::Unauthorized(_)) => Err(Stop::NoToken),
            Err(error) => {
                tracing::warn!(error = %crate::chain(&error), stream, number = cursor.number, "cannot send output");
                Err(Stop::Later)
            }
        }
    }
}

/// Bytes that wait behind the chunk under way.
fn waiting(path: &Path, cursor: &Cursor) -> u64 {
    size_of(path).saturating_sub(cursor.waits_from())
}

/// Moves the beginning of what waits so that it is within the bound; which part is dropped by that.
fn bound(path: &Path, cursor: &mut Cursor, backlog_max: u64) -> Option<(u64, u64)> {
    let size = files::file_at(path)?.len();
    if size < cursor.end() {
        // The program has a pipe, but the folder is open to it: somebody emptied the file in there.
        tracing::warn!(path = %path.display(), "somebody emptied an output file");
        *cursor = cursor.emptied();
    }
    cursor.seen = size;
    let from = cursor.waits_from();
    if size.saturating_sub(from) <= backlog_max {
        return None;
    }
    cursor.drop_to = size - backlog_max / 2;
    Some((from, cursor.drop_to))
}

/// The next chunk of a stream, up to a place. Without `is_whole`, it ends after a line where it can.
fn plan(path: &Path, cursor: &Cursor, until: u64, is_whole: bool) -> Option<Pending> {
    if cursor.pending.is_some() {
        return cursor.pending.clone();
    }
    let (begin, end, lost) = (cursor.waits_from(), size_of(path).min(until), cursor.lost);
    // What was dropped and freed is a hole, also where nobody knows of it any more.
    let from = if begin < end { data_from(path, begin).min(end) } else { begin };
    let dropped = from - cursor.offset;
    let len = end.min(hole_from(path, from)).saturating_sub(from).min(CHUNK_MAX);
    if len == 0 {
        return (lost > 0 || from > begin).then_some(Pending { dropped, len, lost });
    }
    if is_whole && len < CHUNK_MAX {
        return Some(Pending { dropped, len, lost });
    }
    let Ok(bytes) = read_at(path, from, len) else { return is_whole.then_some(Pending { dropped, len, lost }) };
    let line_end = bytes.iter().rposition(|b| *b == b'\n').map(|i| i as u64 + 1);
    Some(Pending { dropped, len: line_end.unwrap_or(len), lost })
}

/// Gives back the disk space of what was sent. The program goes on appending: offsets stay as they are.
fn free(path: &Path, cursor: &mut Cursor) {
    let until = cursor.offset.saturating_sub(TAIL_MAX as u64);
    if until < cursor.freed + HOLE_STEP {
        return;
    }
    if punch(path, cursor.freed, until) {
        cursor.freed = until;
    }
}

/// Makes a hole in a file; true if the file system can.
fn punch(path: &Path, from: u64, until: u64) -> bool {
    let dig = || -> std::io::Result<()> {
        let file = files::open_file(File::options().write(true), path)?;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, hole, from, until - from)?;
        Ok(())
    };
    dig().inspect_err(|error| tracing::debug!(path = %path.display(), %error, "cannot give back space")).is_ok()
}

/// Removes folders of older attempts whose output is sent, and all but the newest few whatever they hold.
pub(crate) fn tidy(layout: &Layout, current: u32) {
    // A person who looks at the machine after a failure wants the last few; a job of a thousand attempts must not fill
    // the disk.
    const KEPT: usize = 3;
    let older: Vec<u32> = layout.attempts().into_iter().filter(|a| *a < current).collect();
    for (age, attempt) in older.iter().rev().enumerate() {
        let folder: PathBuf = layout.attempt(*attempt);
        let is_sent =
            files::read_json::<Cursors>(&folder.join(PAPER)).is_some_and(|c| c.is_complete && c.is_of(*attempt));
        if age >= KEPT
            && (is_sent || age >= 2 * KEPT)
            && let Err(error) = std::fs::remove_dir_all(&folder)
        {
            tracing::warn!(path = %folder.display(), %error, "cannot remove an old attempt's folder");
        }
        if !folder.exists() {
            let _ = std::fs::remove_file(layout.sent(*attempt));
            let _ = std::fs::remove_dir_all(layout.tpu_logs(*attempt));
        }
    }
}

#[cfg(test)]
mod tests;
