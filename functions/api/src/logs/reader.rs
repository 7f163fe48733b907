//! Reads the streams of one attempt in the order in which their chunks came in, whole lines at a time, from a position
//! that a client can come back with.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_ports::world::{Objects, WorldError};

use super::CHUNK_MAX;
use super::name::{Chunk, NUMBER_MAX, attempt_folder, before, behind, stream_folder, worker_folder};

/// A line longer than this is handed out in parts.
const LINE_MAX: usize = 256 * 1024;
/// Names of a stream that are kept at once.
const NAMES: usize = 64;
/// Names that one list of all streams gives: the most that the store gives for the price of one.
const PAGE: usize = 1000;
/// Both streams of one flush come in within so long, whichever the agent sends first.
// Agents flush every two seconds: of the next one nothing comes in so soon.
const FLUSH_MS: i64 = 500;

/// What is wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    /// Only this worker.
    pub(crate) worker: Option<WorkerKey>,
    /// Only this stream.
    pub(crate) stream: Option<String>,
    /// Only this attempt.
    pub(crate) attempt: Option<u32>,
    /// Only what came in from then on, in milliseconds since 1970.
    pub(crate) since_ms: Option<i64>,
    /// A carriage return ends a line, too: each is a state of a progress bar, which is not to wait for its last.
    pub(crate) has_bars: bool,
}

impl Filter {
    /// Whether a chunk is of a stream that is wanted.
    fn is_for(&self, chunk: &Chunk) -> bool {
        self.worker.is_none_or(|worker| worker == chunk.key)
            && self.stream.as_ref().is_none_or(|stream| *stream == chunk.stream)
    }
}

/// The first of the streams of a worker, as names are sorted.
const FIRST: &str = "stderr";

/// In a position, the stream of a worker of which it was said what is missing.
const NOTED: &str = "noted";

/// A stream of one worker.
pub(crate) type StreamKey = (WorkerKey, String);

/// Where a stream was read to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// The chunk that holds the next byte.
    pub(super) number: u64,
    /// Its place in it.
    pub(super) offset: u64,
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

    /// A stream goes on from there.
    pub(super) fn put(&mut self, key: StreamKey, mark: Mark) {
        self.marks.insert(key, mark);
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
            // Ids come back from clients; of a stream that was read to its end the next number is one more.
            if mark.number > NUMBER_MAX + 1 || mark.offset > CHUNK_MAX as u64 {
                return None;
            }
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
    /// Chunks that are there and not read.
    heads: VecDeque<Head>,
    /// No further chunk was there when it was last looked for in this round.
    is_dry: bool,
}

impl Open {
    /// Number of the first chunk that is neither read nor known.
    fn wanted(&self) -> u64 {
        self.heads.back().map_or(self.next, |head| head.number + 1)
    }
}

/// A chunk that is there.
#[derive(Debug)]
struct Head {
    number: u64,
    at_ms: i64,
    name: String,
}

/// Reads one attempt after the other.
pub(crate) struct Reader {
    objects: Arc<dyn Objects>,
    job: JobId,
    filter: Filter,
    attempt: u32,
    streams: BTreeMap<StreamKey, Open>,
    /// Streams were looked for, and not all of them are dry.
    in_round: bool,
    /// Lists that the last look at all streams took.
    lists: u32,
}

impl Reader {
    /// From a position on.
    pub(crate) fn new(objects: Arc<dyn Objects>, job: JobId, filter: Filter, from: Position) -> Self {
        let open = |mark: Mark| Open { done: mark, next: mark.number, skip: mark.offset, ..Open::default() };
        let streams = from.marks.into_iter().map(|(key, mark)| (key, open(mark))).collect();
        Self { objects, job, filter, attempt: from.attempt, streams, in_round: false, lists: 0 }
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

    /// Lists that the last look at all streams took.
    pub(crate) fn lists(&self) -> u32 {
        self.lists
    }

    /// Whether a worker has said anything in this attempt, as far as it was read.
    pub(crate) fn has_heard(&self, key: WorkerKey) -> bool {
        self.streams.keys().any(|(worker, stream)| *worker == key && stream != NOTED)
    }

    /// It is said what is missing of a worker: a client that comes back is not told again.
    pub(crate) fn note(&mut self, key: WorkerKey) {
        let noted = Open { done: Mark { number: 1, offset: 0 }, next: 1, ..Open::default() };
        self.streams.insert((key, NOTED.to_owned()), noted);
    }

    /// Whether that was said.
    pub(crate) fn has_noted(&self, key: WorkerKey) -> bool {
        self.streams.contains_key(&(key, NOTED.to_owned()))
    }

    /// The next attempt, from its beginning.
    pub(crate) fn go_on(&mut self) {
        self.attempt += 1;
        self.streams.clear();
        self.in_round = false;
    }

    /// The next whole lines: of the chunk that came in first. `None`: all was read that was there when it looked last, which
    /// the next call does anew.
    pub(crate) async fn next(&mut self) -> Result<Option<(StreamKey, Vec<u8>)>, WorldError> {
        if !self.in_round {
            self.gather().await?;
            self.in_round = true;
        }
        while let Some(key) = self.earliest().await? {
            self.read(&key).await?;
            if let Some(text) = self.lines(&key) {
                return Ok(Some((key, text)));
            }
        }
        self.in_round = false;
        Ok(None)
    }

    /// The stream whose next chunk came in first. Of one moment: worker by worker, and what one said before what it
    /// complained of. Where in the other stream a line was said is not known: both are sent flush by flush.
    async fn earliest(&mut self) -> Result<Option<StreamKey>, WorldError> {
        let is_empty = |(key, open): &(&StreamKey, &Open)| open.heads.is_empty() && !open.is_dry && key.1 != NOTED;
        let empty: Vec<StreamKey> = self.streams.iter().filter(is_empty).map(|(key, _)| key.clone()).collect();
        for key in empty {
            self.fill(&key).await?;
        }
        let first = self.streams.iter().filter_map(|(key, open)| Some((key, open.heads.front()?)));
        let first = first.min_by_key(|((worker, stream), head)| (head.at_ms, head.number, *worker, stream != "stdout"));
        let Some((key, head)) = first else { return Ok(None) };
        let said = (key.0, "stdout".to_owned());
        let is_of_flush = |of: &Head| of.at_ms <= head.at_ms.saturating_add(FLUSH_MS);
        let said_with_it = self.streams.get(&said).and_then(|open| open.heads.front()).is_some_and(is_of_flush);
        Ok(Some(if said_with_it { said } else { key.clone() }))
    }

    /// Looks for further chunks of a stream.
    async fn fill(&mut self, of: &StreamKey) -> Result<(), WorldError> {
        let folder = stream_folder(&self.job, self.attempt, of.0, &of.1);
        let Some(open) = self.streams.get_mut(of) else { return Ok(()) };
        let mut after = before(&folder, open.next);
        while open.heads.is_empty() {
            let names = self.objects.list(&folder, Some(&after), NAMES).await?;
            open.is_dry = names.len() < NAMES;
            // Also behind names that are no chunk's, of which a whole list may be.
            after = names.last().cloned().unwrap_or(after);
            let mut wanted = open.wanted();
            for name in names {
                let Some(chunk) = Chunk::parse(&self.job, &name).filter(|chunk| chunk.number >= wanted) else {
                    continue;
                };
                wanted = chunk.number + 1;
                if self.filter.since_ms.is_some_and(|since| chunk.at_ms < since) {
                    (open.next, open.skip) = (wanted, 0);
                    continue;
                }
                open.heads.push_back(Head { number: chunk.number, at_ms: chunk.at_ms, name });
            }
            if open.is_dry {
                break;
            }
        }
        Ok(())
    }

    /// The beginning of a line that nothing will complete.
    pub(crate) fn rest(&mut self) -> Option<(StreamKey, Vec<u8>)> {
        let (key, open) = self.streams.iter_mut().find(|(_, open)| !open.partial.is_empty())?;
        let mut text = std::mem::take(&mut open.partial);
        open.done = Mark { number: open.next, offset: 0 };
        text.push(b'\n');
        Some((key.clone(), text))
    }

    /// Looks for new chunks of all streams, and for new streams. Names are in order of their streams, and a list costs as much
    /// however many it gives: each begins behind what was read of a stream, and goes on into the next ones, so that there are
    /// at most as many lists as streams, and fewer where some said little.
    async fn gather(&mut self) -> Result<(), WorldError> {
        for open in self.streams.values_mut() {
            open.heads.clear();
            open.is_dry = true;
        }
        self.lists = 0;
        let (folder, mut after) = (self.folder(), self.begin());
        loop {
            let names = self.objects.list(&folder, after.as_deref(), PAGE).await?;
            self.lists += 1;
            let more = names.last().filter(|_| names.len() == PAGE).cloned();
            for name in names {
                self.take(name);
            }
            let Some(last) = more else { return Ok(()) };
            after = Some(self.skip(last));
        }
    }

    /// What all names that are wanted begin with.
    fn folder(&self) -> String {
        match (self.filter.worker, &self.filter.stream) {
            (Some(worker), Some(stream)) => stream_folder(&self.job, self.attempt, worker, stream),
            (Some(worker), None) => worker_folder(&self.job, self.attempt, worker),
            (None, _) => attempt_folder(&self.job, self.attempt),
        }
    }

    /// Where the first list begins: no stream is before the first that agents have, nor any other in the folder of one.
    fn begin(&self) -> Option<String> {
        let worker = self.filter.worker.unwrap_or(WorkerKey { slice: 0, worker: 0 });
        let stream = if self.filter.worker.is_some() { self.filter.stream.as_deref() } else { None };
        let first = (worker, stream.unwrap_or(FIRST).to_owned());
        self.streams
            .get(&first)
            .map(|open| before(&stream_folder(&self.job, self.attempt, first.0, &first.1), open.next))
    }

    /// Keeps a name of a chunk that was not read.
    fn take(&mut self, name: String) {
        let Some(chunk) = Chunk::parse(&self.job, &name).filter(|chunk| self.filter.is_for(chunk)) else { return };
        let open = self.streams.entry((chunk.key, chunk.stream.clone())).or_default();
        if chunk.number < open.wanted() {
            return;
        }
        open.is_dry = open.heads.len() < NAMES;
        if !open.is_dry {
            return;
        }
        if self.filter.since_ms.is_none_or(|since| chunk.at_ms >= since) {
            open.heads.push_back(Head { number: chunk.number, at_ms: chunk.at_ms, name });
        } else if open.heads.is_empty() {
            (open.next, open.skip) = (chunk.number + 1, 0);
        }
    }

    /// Where the next list begins after one that ended with that name amid a stream.
    fn skip(&self, last: String) -> String {
        let Some(chunk) = Chunk::parse(&self.job, &last) else { return last };
        let folder = stream_folder(&self.job, self.attempt, chunk.key, &chunk.stream);
        match self.streams.get(&(chunk.key, chunk.stream)) {
            // What was read of it is not listed.
            Some(open) if open.is_dry => before(&folder, open.wanted()).max(last),
            _ => behind(&folder),
        }
    }

    /// Reads the next chunk of a stream. A lost chunk leaves a gap.
    async fn read(&mut self, of: &StreamKey) -> Result<(), WorldError> {
        let Some(open) = self.streams.get_mut(of) else { return Ok(()) };
        let Some(head) = open.heads.pop_front() else { return Ok(()) };
        if head.number != open.next {
            (open.next, open.skip) = (head.number, 0);
        }
        let chunk = match self.objects.get(&head.name, open.skip, CHUNK_MAX as u64).await {
            Ok(chunk) => chunk.unwrap_or_default(),
            Err(error) => {
                open.heads.push_front(head);
                return Err(error);
            }
        };
        if open.partial.is_empty() {
            open.done = Mark { number: open.next, offset: open.skip };
        }
        open.partial.extend_from_slice(&chunk);
        open.end = open.skip + chunk.len() as u64;
        open.next += 1;
        open.skip = 0;
        Ok(())
    }

    /// Takes the whole lines of what was read.
    fn lines(&mut self, of: &StreamKey) -> Option<Vec<u8>> {
        let has_bars = self.filter.has_bars;
        let open = self.streams.get_mut(of)?;
        let end = match end_of_lines(&open.partial, has_bars) {
            Some(end) => end,
            None if open.partial.len() >= LINE_MAX => open.partial.len(),
            None => return None,
        };
        let rest = open.partial.split_off(end);
        let text = std::mem::replace(&mut open.partial, rest);
        // What is left began behind the last end of a line, so in the chunk that was read last.
        let unread = open.partial.len() as u64;
        open.done = if unread == 0 {
            Mark { number: open.next, offset: 0 }
        } else {
            Mark { number: open.next - 1, offset: open.end - unread }
        };
        Some(text)
    }
}

/// The streams of an attempt that are wanted, by skipping from one to the next: one list call for each.
pub(super) async fn streams(
    objects: &dyn Objects,
    job: &JobId,
    attempt: u32,
    filter: &Filter,
) -> Result<Vec<StreamKey>, WorldError> {
    let folder = attempt_folder(job, attempt);
    let mut streams = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let found = objects.list(&folder, after.as_deref(), 1).await?;
        let Some(name) = found.first() else { return Ok(streams) };
        after = Some(name.rsplit_once('/').map_or_else(|| name.clone(), |(of, _)| behind(&format!("{of}/"))));
        let Some(chunk) = Chunk::parse(job, name) else { continue };
        if filter.is_for(&chunk) {
            streams.push((chunk.key, chunk.stream));
        }
    }
}

/// Where the last whole line ends.
fn end_of_lines(text: &[u8], has_bars: bool) -> Option<usize> {
    // At the end of what there is, a carriage return may be the first half of a line end.
    let of_bar = |at: usize| has_bars && text[at] == b'\r' && at + 1 < text.len();
    (0..text.len()).rev().find(|at| text[*at] == b'\n' || of_bar(*at)).map(|at| at + 1)
}
