//! How far one stream was sent, and what that comes to where its file is gone, emptied, or cannot be read.
//!
//! **Invariant:** a chunk keeps its number until that is taken. Where its bytes are gone before, the number is asked for once more with
//! the count of the bytes: the first that came has it, so nothing is told twice where only the answer was lost.

use serde::{Deserialize, Serialize};

/// Of a stream to which nothing is added any more, what cannot be read is given up with so many tries: a minute of them while somebody
/// waits, and else one with each flush, which are two.
const TRIES_MAX: u32 = 60;

/// How far one stream was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor {
    /// Everything before this was accepted, or dropped.
    pub(super) offset: u64,
    /// Number of the next chunk.
    pub(super) number: u64,
    /// The chunk under way.
    pub(super) pending: Option<Pending>,
    /// Behind the chunk under way, everything before this was dropped.
    #[serde(default)]
    pub(super) drop_to: u64,
    /// Freed on the disk up to here.
    pub(super) freed: u64,
    /// It goes on after a reboot, and nothing was accepted since: the numbers that were used last may be unknown.
    #[serde(default)]
    pub(super) is_anew: bool,
    /// Bytes that the file had at the last look.
    #[serde(default)]
    pub(super) seen: u64,
    /// Bytes before the place in the file that went with it and are in no chunk that was taken.
    #[serde(default)]
    pub(super) lost: u64,
    /// Rounds in which it could not be read, since something of it was.
    #[serde(skip)]
    pub(super) tries: u32,
}

/// A chunk whose content is fixed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pending {
    /// Bytes of the file that were dropped before it.
    pub(super) dropped: u64,
    /// Length in the file.
    pub(super) len: u64,
    /// Bytes before those that were dropped, which went with their file.
    #[serde(default)]
    pub(super) lost: u64,
}

impl Pending {
    /// All bytes that it stands for.
    fn all(&self) -> u64 {
        self.lost + self.dropped + self.len
    }
}

impl Cursor {
    /// Where what is not under way and not dropped begins.
    pub(super) fn waits_from(&self) -> u64 {
        let under_way = self.pending.as_ref().map_or(0, |p| p.dropped + p.len);
        self.drop_to.max(self.offset + under_way)
    }

    /// A new file behind what was sent: numbers go on, places in the file begin anew.
    pub(super) fn anew(&self) -> Self {
        Self { number: self.number + u64::from(self.pending.is_some()), ..Self::default() }
    }

    /// How far it was sent is not known, and the file holds nothing before `data`: that was freed. It was sent, or dropped, and is in a
    /// chunk, unless there is none with the first number ([`Self::goes_behind`]).
    pub(super) fn beginning_at(self, data: u64) -> Self {
        if data <= self.offset {
            return self;
        }
        Self { pending: None, drop_to: data, freed: data, ..self }
    }

    /// The number is that of a chunk of an earlier agent, or of what was said before a reboot: the same bytes have the next one. What was
    /// freed before this agent began is in a chunk, too, and no gap.
    pub(super) fn goes_behind(&mut self) {
        self.number += 1;
        let known = self.freed.saturating_sub(self.offset);
        self.offset += known;
        if let Some(pending) = &mut self.pending {
            pending.dropped = pending.dropped.saturating_sub(known);
        }
    }

    /// Where what was seen in the file ends.
    pub(super) fn end(&self) -> u64 {
        self.seen.max(self.waits_from())
    }

    /// Somebody emptied the file: what waited in it is lost.
    pub(super) fn emptied(&self) -> Self {
        let pending = self.pending.as_ref().map(|chunk| Pending { lost: chunk.all(), ..Pending::default() });
        let lost = self.lost + self.end() - self.offset;
        Self { number: self.number, pending, is_anew: self.is_anew, lost, tries: self.tries, ..Self::default() }
    }

    /// The file is gone, or cannot be read, and what waited in it is lost. If it comes back as it was, it goes on behind that.
    pub(super) fn removed(&self) -> Self {
        let end = self.end();
        Self { offset: end, seen: end, freed: self.freed, ..self.emptied() }
    }

    /// It could not be read in this round. With the last one, what waits in it is lost: a disk that errs for ever must not hold up the
    /// end of an attempt as long.
    pub(super) fn held(&self) -> Self {
        let tries = self.tries + 1;
        let cursor = if tries >= TRIES_MAX { self.removed() } else { self.clone() };
        Self { tries, ..cursor }
    }

    /// True if it could not be read in any round.
    pub(super) fn is_given_up(&self) -> bool {
        self.tries >= TRIES_MAX
    }

    /// The chunk under way has its place where it is sent to. It was sent as this one; if its file was emptied meanwhile, it is the
    /// count of the same bytes now.
    pub(super) fn taken(&mut self, sent: &Pending) {
        if self.pending.as_ref() == Some(sent) {
            self.lost = self.lost.saturating_sub(sent.lost);
            self.offset += sent.dropped + sent.len;
        } else {
            self.lost = self.lost.saturating_sub(sent.all());
        }
        if sent.len > 0 {
            self.tries = 0;
        }
        self.number += 1;
        self.pending = None;
    }
}
