//! What every HTTP function shares: limits on bodies, envelopes, callers, deadlines, problems, and the one table of
//! answers.
//!
//! **Invariant:** a function that a trigger calls answers by [`answer::Answer`] alone: never 202, never a redirect.

pub mod about;
pub mod answer;
pub mod body;
pub mod caller;
pub mod dead;
pub mod etag;
pub mod extract;
pub mod hint;
pub mod layers;
pub mod listen;
pub mod problem;
pub mod room;
pub mod serve;

pub use answer::Answer;
pub use body::{BODY_MAX, Deliveries, Json, Messages, PUSH_MAX, Raw};
pub use caller::{Caller, Door, Machine, Refused, Verifier};
pub use extract::{NoQuery, Path, Query, faulty_query};
pub use problem::{Problem, problem};
pub use serve::{serve, serve_here};

#[cfg(test)]
mod tests;
