//! Reads the streams of one attempt in turn, whole lines at a time, from a position that a client can come back with.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_ports::world::{Objects, WorldError};

use super::CHUNK_MAX;
use super::name::{Chunk, attempt_folder, stream_folder};

/// A line longer than this is handed out in parts.
const LINE_MAX: usize = 256 * 1024;

/// What is wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    /// Only this worker.
    pub(crate) worker: Option<WorkerKey>,
    /// Only this stream.
    pub(crate) stream: Option<String>,
    /// Only this attempt.
    pub(crate) attempt: Option<u32>,
}

/// A stream of one worker.
type StreamKey = (WorkerKey, String);

/// Where a stream was read to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mark {
    /// The chunk that holds the next byte.
    number: u64,
    /// Its place in it.
    offset: u64,
}

/// Where all streams of an attempt were read to; as text, the id of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// The attempt; 0: none yet.
    pub(crate) attempt: u32,
    marks: BTreeMap<StreamKey, Mark>,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.attempt)?;
        for ((key, stream), mark) in &self.marks {
            write!(f, ";{}-{}/{stream}/{}.{}", key.slice, key.worker, mark.number, mark.offset)?;
        }
        Ok(())
    }
}

impl Position {
    /// The beginning of an attempt.
    pub(crate) fn start(attempt: u32) -> Self {
        Self { attempt, marks: BTreeMap::new() }
    }

    /// Reads an id back.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';');
        let attempt = parts.next()?.parse().ok()?;
        let mut marks = BTreeMap::new();
        for part in parts {
            let fields: Vec<&str> = part.split('/').collect();
            let [worker, stream, mark] = fields.as_slice() else { return None };
            let key = rekindle_wire::v1::worker_key(worker)?;
            let (number, offset) = mark.split_once('.')?;
            let mark = Mark { number: number.parse().ok()?, offset: offset.parse().ok()? };
            marks.insert((key, (*stream).to_owned()), mark);
        }
        Some(Self { attempt, marks })
    }
}

/// One stream as far as it was read.
#[derive(Debug, Default)]
struct Open {
    /// First byte that was not handed out.
    done: Mark,
    /// The chunk to read next.
    next: u64,
    /// Bytes of it that were handed out before.
    skip: u64,
    /// Length of the chunk that was read last.
    end: u64,
    /// Read but not handed out: the beginning of a line.
    partial: Vec<u8>,
}

/// Reads one attempt after the other.
pub(crate) struct Reader {
    objects: Arc<dyn Objects>,
    job: JobId,
    filter: Filter,
    attempt: u32,
    streams: BTreeMap<StreamKey, Open>,
    /// Streams that have their turn in this round.
    turn: Vec<StreamKey>,
}

impl Reader {
    /// From a position on.
    pub(crate) fn new(objects: Arc<dyn Objects>, job: JobId, filter: Filter, from: Position) -> Self {
        let open = |mark: Mark| Open { done: mark, next: mark.number, skip: mark.offset, ..Open::default() };
        let streams = from.marks.into_iter().map(|(key, mark)| (key, open(mark))).collect();
        Self { objects, job, filter, attempt: from.attempt, streams, turn: Vec::new() }
    }

    /// The attempt it reads.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// What is wanted.
    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Where it is.
    pub(crate) fn position(&self) -> Position {
        let marks = self.streams.iter().map(|(key, open)| (key.clone(), open.done)).collect();
        Position { attempt: self.attempt, marks }
    }

    /// The next attempt, from its beginning.
    pub(crate) fn go_on(&mut self) {
        self.attempt += 1;
        self.streams.clear();
        self.turn.clear();
    }

    /// The next whole lines of some stream, each stream in turn. `None`: nothing more is there now.
    pub(crate) async fn next(&mut self) -> Result<Option<(WorkerKey, Vec<u8>)>, WorldError> {
        let mut rounds = 0;
        loop {
            if self.turn.is_empty() {
                // A whole round without output ends the search.
                if rounds > 0 {
                    return Ok(None);
                }
                self.discover().await?;
                self.turn = self.streams.keys().cloned().collect();
                // Popped from the end: worker by worker, what it said before what it complained of.
                self.turn.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.cmp(other)));
                rounds += 1;
            }
            let Some(key) = self.turn.pop() else { return Ok(None) };
            while self.read(&key).await? {
                if let Some(text) = self.lines(&key) {
                    return Ok(Some((key.0, text)));
                }
            }
        }
    }

    /// The beginning of a line that nothing will complete.
    pub(crate) fn rest(&mut self) -> Option<(WorkerKey, Vec<u8>)> {
        let (key, open) = self.streams.iter_mut().find(|(_, open)| !open.partial.is_empty())?;
        let mut text = std::mem::take(&mut open.partial);
        open.done = Mark { number: open.next, offset: 0 };
        text.push(b'\n');
        Some((key.0, text))
    }

    /// Finds the streams of the attempt by skipping from one to the next: one list call for each.
    async fn discover(&mut self) -> Result<(), WorldError> {
        let folder = attempt_folder(&self.job, self.attempt);
        let mut after: Option<String> = None;
        loop {
            let found = self.objects.list(&folder, after.as_deref(), 1).await?;
            let Some(name) = found.first() else { return Ok(()) };
            // Behind everything of this stream: digits sort before the tilde.
            after = Some(name.rsplit_once('/').map_or_else(|| name.clone(), |(stream, _)| format!("{stream}/~")));
            let Some(chunk) = Chunk::parse(&self.job, name) else { continue };
            let wanted = self.filter.worker.is_none_or(|w| w == chunk.key)
                && self.filter.stream.as_ref().is_none_or(|s| *s == chunk.stream);
            if wanted {
                self.streams.entry((chunk.key, chunk.stream)).or_default();
            }
        }
    }

    /// Reads one more chunk of a stream. False: there is none now.
    async fn read(&mut self, of: &StreamKey) -> Result<bool, WorldError> {
        let Some(open) = self.streams.get_mut(of) else { return Ok(false) };
        let folder = stream_folder(&self.job, self.attempt, of.0, &of.1);
        let name = format!("{folder}{:010}", open.next);
        let mut chunk = self.objects.get(&name, open.skip, CHUNK_MAX as u64).await?;
        if chunk.is_none() {
            // A lost chunk leaves a gap; a later one closes it.
            let later = self.objects.list(&folder, Some(&name), 1).await?;
            let Some(later) = later.first().and_then(|n| Chunk::parse(&self.job, n)) else { return Ok(false) };
            (open.next, open.skip) = (later.number, 0);
            let name = format!("{folder}{:010}", later.number);
            chunk = self.objects.get(&name, 0, CHUNK_MAX as u64).await?;
        }
        let Some(chunk) = chunk else { return Ok(false) };
        if open.partial.is_empty() {
            open.done = Mark { number: open.next, offset: open.skip };
        }
        open.partial.extend_from_slice(&chunk);
        open.end = open.skip + chunk.len() as u64;
        open.next += 1;
        open.skip = 0;
        Ok(true)
    }

    /// Takes the whole lines of what was read.
    fn lines(&mut self, of: &StreamKey) -> Option<Vec<u8>> {
        let open = self.streams.get_mut(of)?;
        let end = match open.partial.iter().rposition(|b| *b == b'\n') {
            Some(at) => at + 1,
            None if open.partial.len() >= LINE_MAX => open.partial.len(),
            None => return None,
        };
        let rest = open.partial.split_off(end);
        let text = std::mem::replace(&mut open.partial, rest);
        // What is left began behind the last line feed, so in the chunk that was read last.
        let unread = open.partial.len() as u64;
        open.done = if unread == 0 {
            Mark { number: open.next, offset: 0 }
        } else {
            Mark { number: open.next - 1, offset: open.end - unread }
        };
        Some(text)
    }
}
