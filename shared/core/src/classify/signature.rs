//! The form of a signature, the one table of them, and the search for all of them at once.
//!
//! **Invariant:** the search is linear in the text. One automaton finds the words of every row; a row's patterns run
//! only on a line that holds one of its words, and the regex engine has no backtracking.

use std::sync::{LazyLock, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind, MatchKind};
use regex::bytes::{Regex, RegexBuilder};

use super::table;
use crate::failure::FailureKind;

/// How far a signature is to be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trust {
    /// Ended by another process: a cause only if there is nothing else at all.
    Last,
    /// A process crashed and did not say why.
    Crash,
    /// The normal echo of a peer's death: a cause only if nobody has a better one.
    Echo,
    /// An echo that says what the peers waited for, which tells a person more.
    Telling,
    /// A connection was cut.
    Cut,
    /// A termination by nobody knows whom.
    Terminated,
    /// A hint: a cause only if nothing specific is known.
    Low,
    /// A kill, which on one worker alone is mostly host memory.
    Killed,
    /// As good as a Python exception that nobody knows.
    Even,
    /// Decides, unless a stronger one stands anywhere.
    Medium,
    /// Practically decides alone.
    High,
}

/// One signature.
#[derive(Debug)]
pub(super) struct Row {
    /// Its name in reports and tests.
    pub(super) id: &'static str,
    /// What it speaks for.
    pub(super) kind: FailureKind,
    /// How loudly.
    pub(super) trust: Trust,
    /// A line must hold one of these, in any case of letters.
    pub(super) words: &'static [&'static str],
    /// And match this, if given.
    pub(super) also: Option<&'static str>,
    /// And not match this, if given.
    pub(super) unless: Option<&'static str>,
    /// True if it looks at frames of native stacks, which all other rows leave out.
    pub(super) native_frame: bool,
    /// True if the line counts even from an informational logger, as notices of the provider do.
    pub(super) any_level: bool,
    /// What it means, for a person.
    pub(super) meaning: &'static str,
    /// Lines as programs print them, that it must find.
    pub(super) examples: &'static [&'static str],
    /// Lines that look alike and mean something else.
    pub(super) counter: &'static [&'static str],
}

impl Row {
    /// A row that needs its words only; the tables change what differs.
    pub(super) const fn new(id: &'static str, kind: FailureKind, trust: Trust, words: &'static [&'static str]) -> Self {
        Self {
            id,
            kind,
            trust,
            words,
            also: None,
            unless: None,
            native_frame: false,
            any_level: false,
            meaning: "",
            examples: &[],
            counter: &[],
        }
    }

    /// Sets what else the line must match.
    pub(super) const fn also(mut self, pattern: &'static str) -> Self {
        self.also = Some(pattern);
        self
    }

    /// Sets what the line must not match.
    pub(super) const fn unless(mut self, pattern: &'static str) -> Self {
        self.unless = Some(pattern);
        self
    }

    /// Makes it look at frames of native stacks only.
    pub(super) const fn native_frame(mut self) -> Self {
        self.native_frame = true;
        self
    }

    /// Lets the line count from informational loggers too.
    pub(super) const fn any_level(mut self) -> Self {
        self.any_level = true;
        self
    }

    /// Sets meaning, examples and counter-examples.
    pub(super) const fn says(
        mut self,
        meaning: &'static str,
        examples: &'static [&'static str],
        counter: &'static [&'static str],
    ) -> Self {
        self.meaning = meaning;
        self.examples = examples;
        self.counter = counter;
        self
    }
}

/// A row with its compiled patterns.
struct Compiled {
    row: &'static Row,
    also: OnceLock<Option<Regex>>,
    unless: OnceLock<Option<Regex>>,
}

/// All rows, and the automaton of their words.
pub(super) struct Signatures {
    rows: Vec<Compiled>,
    words: AhoCorasick,
    /// The rows of each word of the automaton.
    owners: Vec<Vec<u16>>,
}

/// The table, made once.
pub(super) static SIGNATURES: LazyLock<Signatures> = LazyLock::new(Signatures::new);

/// A pattern over bytes, without Unicode tables: tails are any bytes, and what we look for is ASCII.
pub(super) fn pattern(source: &str) -> Option<Regex> {
    RegexBuilder::new(source).unicode(false).build().ok()
}

impl Signatures {
    fn new() -> Self {
        let rows: Vec<Compiled> = table::ALL
            .iter()
            .flat_map(|part| part.iter())
            .map(|row| Compiled { row, also: OnceLock::new(), unless: OnceLock::new() })
            .collect();
        let mut texts: Vec<&'static str> = Vec::new();
        let mut owners: Vec<Vec<u16>> = Vec::new();
        for (index, compiled) in rows.iter().enumerate() {
            for word in compiled.row.words {
                let at = texts.iter().position(|known| known.eq_ignore_ascii_case(word)).unwrap_or_else(|| {
                    texts.push(word);
                    owners.push(Vec::new());
                    texts.len() - 1
                });
                owners[at].push(index as u16);
            }
        }
        let words = AhoCorasickBuilder::new()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::DFA))
            .build(&texts)
            .unwrap_or_else(|error| unreachable!("the words of the table make no automaton: {error}"));
        Self { rows, words, owners }
    }

    /// Calls `found` with the end of each word found and each row that has it, from the start of the text on.
    pub(super) fn each_word(&self, text: &[u8], mut found: impl FnMut(usize, u16)) {
        for hit in self.words.find_overlapping_iter(text) {
            for row in &self.owners[hit.pattern().as_usize()] {
                found(hit.end(), *row);
            }
        }
    }

    /// The row of that number.
    pub(super) fn row(&self, row: u16) -> &'static Row {
        self.rows[usize::from(row)].row
    }

    /// True if the row's patterns accept the line.
    pub(super) fn accepts(&self, row: u16, line: &[u8]) -> bool {
        let compiled = &self.rows[usize::from(row)];
        let also = compiled.also.get_or_init(|| compiled.row.also.and_then(pattern));
        let unless = compiled.unless.get_or_init(|| compiled.row.unless.and_then(pattern));
        also.as_ref().is_none_or(|pattern| pattern.is_match(line))
            && !unless.as_ref().is_some_and(|pattern| pattern.is_match(line))
    }
}
