//! From evidence to the kind of failure: which worker died first and why, read from what the workers left behind.

mod evidence;

pub use evidence::{
    CaseAction, Evidence, EvidenceLine, Exit, NodeFact, NoticeFact, Outcome, SignalSender, Stage, Verdict,
    WorkerEvidence,
};
