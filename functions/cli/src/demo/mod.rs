//! `demo`: a real job that survives.

use std::process::ExitCode;

use crate::args::Demo;
use crate::fault::{Fault, Result};
use crate::printer::Printer;

/// Runs the demonstration.
pub(crate) fn run(_options: &Demo, _printer: Printer) -> Result<ExitCode> {
    Err(Fault::input("`rekindle demo` is not built in this version"))
}
