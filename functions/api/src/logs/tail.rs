//! Where the newest output begins: a page shows the end of a long output, and need not read what came before.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rekindle_core::ids::JobId;
use rekindle_ports::world::{Objects, WorldError};

use super::name::{Chunk, before, stream_folder};
use super::reader::{self, Filter, Mark, Position, StreamKey};

/// The most bytes of an end.
pub(super) const TAIL_MAX: u64 = 16 << 20;
/// Attempts that are looked into: the newest may have said nothing yet.
const ATTEMPTS: u32 = 5;
/// Chunks of a stream that an end can be of.
const CHUNKS: usize = 64;
/// Chunks whose size is asked for: each is a call.
const SIZES: usize = 256;
/// A line longer than this may be begun in its middle.
const LINE: u64 = 64 * 1024;

/// The position from which about so many bytes are left, of all streams together: those that came in last. It begins
/// with a whole line where one begins in its first chunk.
pub(super) async fn begin(
    objects: &dyn Objects,
    job: &JobId,
    filter: &Filter,
    last_attempt: u32,
    bytes: u64,
) -> Result<Position, WorldError> {
    let newest = filter.attempt.unwrap_or(last_attempt).max(1);
    let oldest = if filter.attempt.is_some() { newest } else { newest.saturating_sub(ATTEMPTS - 1).max(1) };
    for attempt in (oldest..=newest).rev() {
        let streams = reader::streams(objects, job, attempt, filter).await?;
        if !streams.is_empty() {
            return of_attempt(objects, job, attempt, streams, bytes).await;
        }
    }
    Ok(Position::start(newest))
}

async fn of_attempt(
    objects: &dyn Objects,
    job: &JobId,
    attempt: u32,
    streams: Vec<StreamKey>,
    bytes: u64,
) -> Result<Position, WorldError> {
    let mut position = Position::start(attempt);
    let mut chunks: Vec<(Chunk, String)> = Vec::new();
    for key in streams {
        let folder = stream_folder(job, attempt, key.0, &key.1);
        let last = last_chunks(objects, job, &folder).await?;
        // What is not chosen below is not shown: it begins behind its last chunk.
        let number = last.last().map_or(0, |(chunk, _)| chunk.number + 1);
        position.put(key, Mark { number, offset: 0 });
        chunks.extend(last);
    }
    chunks.sort_by_key(|(chunk, _)| Reverse((chunk.at_ms, chunk.number)));
    let mut left = bytes;
    let mut chosen: BTreeMap<StreamKey, (u64, u64, String)> = BTreeMap::new();
    for (chunk, name) in chunks.into_iter().take(SIZES) {
        if left == 0 {
            break;
        }
        let size = objects.size(&name).await?.unwrap_or(0);
        chosen.insert((chunk.key, chunk.stream), (chunk.number, size.saturating_sub(left), name));
        left = left.saturating_sub(size);
    }
    for (key, (number, cut, name)) in chosen {
        let is_whole = number == 0 && cut == 0;
        let offset = if is_whole { 0 } else { line(objects, &name, cut).await? };
        position.put(key, Mark { number, offset });
    }
    Ok(position)
}

/// Where the next line begins, from a place on.
async fn line(objects: &dyn Objects, name: &str, from: u64) -> Result<u64, WorldError> {
    let text = objects.get(name, from, LINE).await?.unwrap_or_default();
    Ok(text.iter().position(|byte| *byte == b'\n').map_or(from, |at| from + at as u64 + 1))
}

/// The last chunks of a stream, found without a list of all.
async fn last_chunks(objects: &dyn Objects, job: &JobId, folder: &str) -> Result<Vec<(Chunk, String)>, WorldError> {
    let from = async |number: u64| -> Result<Vec<(Chunk, String)>, WorldError> {
        let names = objects.list(folder, Some(&before(folder, number)), CHUNKS).await?;
        Ok(names.into_iter().filter_map(|name| Some((Chunk::parse(job, &name)?, name))).collect())
    };
    let mut known = from(0).await?;
    let (mut step, mut behind): (u64, Option<u64>) = (CHUNKS as u64, None);
    while let Some((last, _)) = known.last().filter(|_| known.len() == CHUNKS) {
        let last = last.number;
        let probe = match behind {
            None => last.saturating_add(step),
            Some(behind) if behind <= last + 1 => break,
            Some(behind) => last + (behind - last).div_ceil(2),
        };
        step = step.saturating_mul(2);
        let found = from(probe).await?;
        if found.is_empty() { behind = Some(probe) } else { known = found }
    }
    let Some((last, _)) = known.last() else { return Ok(known) };
    if known.len() == CHUNKS { Ok(known) } else { from((last.number + 1).saturating_sub(CHUNKS as u64)).await }
}
