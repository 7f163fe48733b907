//! What is wrong with a command line as it was typed, in the form of all other faults.

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Error};

use crate::args::Cli;
use crate::exit::Exit;
use crate::fault::Fault;

/// The fault that clap found in these words. `None`: it found none, and has help or a version to show.
pub(crate) fn fault(error: &Error, words: &[String]) -> Option<Fault> {
    let is_asked_for = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if is_asked_for {
        return None;
    }
    let text = error.render().to_string();
    let told =
        text.lines().take_while(|line| !line.starts_with("Usage: ") && !line.starts_with("For more information"));
    let mut lines = told.map(str::trim).filter(|line| !line.is_empty());
    let what = lines.next().unwrap_or("this command line cannot be read");
    let what = what.trim_start_matches("error: ").trim_end_matches(':');
    let (mut causes, mut tips) = (Vec::new(), Vec::new());
    for line in lines {
        match line.strip_prefix("tip: ") {
            // What no help shows is not what was meant.
            Some(tip) if hidden().iter().any(|name| tip.contains(&format!("'{name}'"))) => {}
            Some(tip) => tips.push(tip.to_owned()),
            None => causes.push(line.trim_start_matches("error: ").to_owned()),
        }
    }
    tips.push(format!("`{} --help` tells what it takes, with examples", command(words)));
    // The number that shells and clap's users expect for it.
    let fault = causes.into_iter().fold(Fault::input(what), Fault::because).exits(Exit::Unexpected);
    Some(fault.next(tips.join("; ")))
}

/// The command whose help tells more: the first of the words that is one.
fn command(words: &[String]) -> String {
    let all = Cli::command();
    match words.iter().find_map(|word| all.find_subcommand(word)) {
        Some(command) => format!("rekindle {}", command.get_name()),
        None => "rekindle".to_owned(),
    }
}

/// Options that no help shows.
fn hidden() -> Vec<String> {
    let all = Cli::command();
    let commands = std::iter::once(&all).chain(all.get_subcommands());
    let options = commands.flat_map(|command| command.get_arguments().filter(|option| option.is_hide_set()));
    options.filter_map(|option| Some(format!("--{}", option.get_long()?))).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn found(line: &str) -> Option<Fault> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let all = ["rekindle".to_owned()].into_iter().chain(words.clone());
        fault(&Cli::try_parse_from(all).unwrap_err(), &words)
    }

    #[test]
    fn each_fault_of_a_command_line_names_the_cause_and_the_next_step() {
        for (line, causes, next) in [
            ("ps --fase failed", &["unexpected argument '--fase' found"][..], "'--phase'; `rekindle ps --help`"),
            ("pss", &["unrecognized subcommand 'pss'"], "'ps'"),
            ("xyzzy", &["unrecognized subcommand 'xyzzy'"], "`rekindle --help`"),
            ("fleet all", &["unexpected argument 'all' found"], "`rekindle fleet --help`"),
            ("show", &["arguments were not provided", "<JOB>"], "`rekindle show --help`"),
            ("exec box", &["arguments were not provided", "<COMMAND>"], "`rekindle exec --help`"),
            ("tag train-1", &["arguments were not provided", "<TAG>"], "`rekindle tag --help`"),
            ("run --tpu", &["a value is required for '--tpu <TYPE>'"], "`rekindle run --help`"),
            ("ps --phase walking", &["invalid value 'walking' for '--phase", "pending, provisioning"], "ps --help`"),
            ("ps --within soon", &["invalid value 'soon' for '--within <TIME>'"], "ps --help`"),
            ("--color red ps", &["invalid value 'red' for '--color", "auto, always, never"], "`rekindle"),
            ("account --by year", &["invalid value 'year'", "job, owner, tag, week"], "account --help`"),
            ("account --weeks 0", &["invalid value '0'", "0 is not in 1..=520"], "account --help`"),
            ("logs a --grep (", &["invalid value '(' for '--grep <PATTERN>'", "unclosed group"], "logs --help`"),
            (
                "logs a --since soon",
                &["invalid value 'soon' for '--since", "12h, yesterday, 2026-11-27"],
                "logs --help`",
            ),
            ("ps --all -n 3", &["'--all' cannot be used with '--limit <N>'"], "ps --help`"),
            ("ps --all --all", &["'--all' cannot be used multiple times"], "ps --help`"),
            ("doctor --project p", &["arguments were not provided", "--region"], "doctor --help`"),
            ("dev --speed 0", &["invalid value '0' for '--speed", "between 0.01 and 1000"], "dev --help`"),
            ("demo --workers 3", &["invalid value '3'", "1, 2, 4, 8, 16, 32"], "demo --help`"),
        ] {
            let fault = found(line).unwrap();
            let text = anstream::adapter::strip_str(&fault.text()).to_string();
            let step = text.split_once("\nnext: ").map(|(_, step)| step).unwrap_or_default();
            assert!(causes.iter().all(|cause| text.contains(cause)) && step.contains(next), "{line}: {text}");
            assert!(
                text.starts_with("error: ") && !text.contains("Usage") && fault.exit() == Exit::Unexpected,
                "{text}"
            );
        }
    }

    #[test]
    fn an_option_that_no_help_shows_is_not_proposed() {
        let text = anstream::adapter::strip_str(&found("man --to pages").unwrap().text()).to_string();
        assert!(text.contains("'--to'") && !text.contains("--token"), "{text}");
    }

    #[test]
    fn help_and_version_are_no_fault() {
        for line in ["--help", "--version", "ps --help", ""] {
            assert!(found(line).is_none(), "{line}");
        }
    }
}
