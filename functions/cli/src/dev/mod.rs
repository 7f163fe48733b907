//! `dev`: everything on this machine.

use std::process::ExitCode;

use crate::args::Dev;
use crate::fault::{Fault, Result};
use crate::printer::Printer;

/// Runs everything until it is told to stop.
pub(crate) fn run(_options: &Dev, _printer: Printer) -> Result<ExitCode> {
    Err(Fault::input("`rekindle dev` is not built in this version"))
}
