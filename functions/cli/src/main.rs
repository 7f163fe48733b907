//! `rekindle`: the command line, and in one binary everything that `dev` and `demo` start as processes.

mod api;
mod args;
mod bundle;
mod commands;
mod config;
mod demo;
mod dev;
mod embedded;
mod fault;
mod human;
mod printer;
mod project;
mod state;
mod table;

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
    let cli = Cli::parse();
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
            ExitCode::from(fault.exit_code())
        }
    }
}
