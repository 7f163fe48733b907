//! End-to-end tests on real parts: the `rekindle` binary, the Cloud TPU emulator with real processes as workers, the
//! real training program, and Google's emulators of Firestore and Pub/Sub.
//!
//! Each test starts its own `rekindle dev` on free ports and ends every process of it. `REKINDLE_E2E_KILLS=200` makes
//! the test of `kill -9` a long one (a quarter of an hour); `REKINDLE_E2E_SEED` repeats what was drawn.

mod bad_input;
mod commands;
mod emulators;
mod hand_over;
mod in_place;
mod jobs;
mod kills;
mod logs;
mod loopback;
mod losses;
mod page;
mod reaction;
mod seeing;
mod sweep;
mod workspace;
