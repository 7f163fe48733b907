//! The harness of the end-to-end tests: real parts only.
//!
//! A test starts `rekindle dev` on free ports and a state folder of its own, talks to it as people do ([`Dev`]), does to
//! the emulated cloud what a provider does ([`Cloud`]), and lets every program write down its starts and ends
//! ([`Ledger`]). [`scenario`] runs one such test and checks afterwards what must hold after every test: the cloud is
//! empty, no process is left, and no two attempts of a job ever ran at the same time.

mod cloud;
mod dev;
mod disk;
mod ledger;
pub mod measure;
pub mod processes;
mod run;
mod wait;

pub use cloud::{Call, Cloud};
pub use dev::{Answer, Dev, Options, binary};
pub use disk::{is_root, unmount_below};
pub use ledger::{Event, Ledger, Mark};
pub use run::{Part, all, is_ci, part, random_seed, say, scenario};
pub use wait::{LONG, holds, until};
