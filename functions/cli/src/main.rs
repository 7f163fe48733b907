//! `rekindle`: the command line, and in one binary everything that `dev` and `demo` start as processes.

mod answers;
mod api;
mod args;
mod bundle;
mod commands;
mod complete;
mod config;
mod demo;
mod dev;
mod embedded;
mod exit;
mod fault;
mod human;
#[cfg(test)]
mod job_page;
#[cfg(test)]
mod json_page;
mod moment;
mod printer;
mod project;
#[cfg(test)]
mod runbooks;
mod state;
mod table;
mod usage;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Color};
use printer::Printer;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if let Some(word) = arguments.next()
        && let Some(code) = embedded::run(&word, arguments)
    {
        return code;
    }
    complete::answer();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let choice = match cli.global.color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    };
    let printer = Printer::new(cli.global.json, choice);
    match commands::run(cli, printer) {
        Ok(code) => code,
        Err(fault) => {
            printer.fault(&fault);
            fault.exit().into()
        }
    }
}

/// The command line cannot be used, or asks for help alone.
fn refused(error: &clap::Error) -> ExitCode {
    // What was parsed of it is lost; behind `--` are words of another program.
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.take_while(|word| word != "--").collect();
    let Some(fault) = usage::fault(error, &words) else { return shown(error) };
    let is_json = words.iter().any(|word| word == "--json");
    Printer::new(is_json, anstream::ColorChoice::Auto).fault(&fault);
    fault.exit().into()
}

/// Shows the help or the version that was asked for. As with all data: where it cannot be written, that is a fault.
fn shown(error: &clap::Error) -> ExitCode {
    match error.print().and_then(|()| std::io::stdout().flush()) {
        Err(refused) if !error.use_stderr() => {
            let fault = fault::Fault::from(refused);
            Printer::new(false, anstream::ColorChoice::Auto).fault(&fault);
            fault.exit().into()
        }
        // Nobody who listens to talk is no fault.
        Ok(()) | Err(_) if error.use_stderr() => exit::Exit::Unexpected.into(),
        Ok(()) | Err(_) => exit::Exit::Done.into(),
    }
}
