//! Whole jobs through the engine over memory ports: a rig whose slices come up, whose agents obey, and whose clock jumps.

mod fleet;
mod installations;
mod lifecycle;
mod limits;
mod losses;
mod multislice;
mod races;
mod rig;
mod settle;
mod week;
