//! From evidence to the kind of failure: which worker died first and why, read from what the workers left behind.
//!
//! `lines` tells who speaks in a text and how loudly, `table` knows what platforms print, `worker` weighs one worker's
//! causes, `verdict` sets the workers against each other. The order of reasoning, from the most trusted down:
//!
//! 1. The work was done: all left with 0, or the last step and the final checkpoint are proven.
//! 2. The provider's word: a notice, or the node's state.
//! 3. Specific causes before generic ones, the first death before later ones, on whichever worker they stand.
//! 4. Silence and bare signals.
//! 5. What everybody prints when a peer dies (echoes), only if nobody has anything else.
//! 6. Retried errors, warnings, and talk of informational loggers, only if nothing else is there at all.

pub mod case;
mod completion;
mod evidence;
mod exit;
#[cfg(test)]
mod facts_tests;
mod lines;
mod said;
mod shorten;
mod signature;
mod table;
#[cfg(test)]
mod tests;
mod verdict;
mod worker;

pub use evidence::{
    CaseAction, Evidence, EvidenceLine, Exit, NodeFact, NoticeFact, Outcome, SignalSender, Stage, Verdict,
    WorkerEvidence,
};
pub use lines::without_escapes;
pub use shorten::shorten;
pub use verdict::classify;
