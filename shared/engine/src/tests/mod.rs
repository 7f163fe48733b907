//! Whole jobs through the engine over memory ports: a rig whose slices come up, whose agents obey, and whose clock jumps.

mod lifecycle;
mod losses;
mod rig;
