//! What is wrong with a command line as it was typed, in the form of all other faults.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Error};
use rekindle_core::spec::fields::FIELDS;

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
            // What no help shows is not what was meant; nor is what only shares some letters.
            Some(tip) if hidden().iter().any(|name| tip.contains(&format!("'{name}'"))) => {}
            Some(tip) if is_far(error, tip) => {}
            // No word of ours begins with two dashes, and what stands behind `--` in `run` is the program.
            Some(tip) if tip.starts_with("to pass '") && (tip.starts_with("to pass '--") || is_value(error, words)) => {
            }
            Some(tip) => tips.push(tip.to_owned()),
            None => causes.push(line.trim_start_matches("error: ").to_owned()),
        }
    }
    if is_stop(error) {
        // `top` is near it, and not what is meant.
        tips = vec!["`rekindle pause JOB` keeps it, `rekindle cancel JOB` ends it for good".to_owned()];
    }
    tips.extend(lacks_dashes(error, words));
    tips.extend(of_program(error, words));
    tips.extend(of_end(error, words));
    tips.push(format!("`{} --help` tells what it takes, with examples", command(words)));
    // The number that shells and clap's users expect for it.
    let fault = causes.into_iter().fold(Fault::input(what), Fault::because).exits(Exit::Unexpected);
    Some(fault.next(tips.join("; ")))
}

/// Words less similar than this (0 to 1) were not meant: clap itself proposes `--zone` for `--owner`.
const LEAST: f64 = 0.55;

/// Whether a tip proposes a word, and one that is not like what was typed.
fn is_far(error: &Error, tip: &str) -> bool {
    let typed = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue];
    let proposed = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let words = |kind: &ContextKind| match error.get(*kind) {
        Some(ContextValue::String(word)) => vec![word.clone()],
        Some(ContextValue::Strings(words)) => words.clone(),
        _ => Vec::new(),
    };
    let bare = |word: &str| word.trim_start_matches('-').to_owned();
    // Of a value the option stands in the context too, and is no word that was mistyped.
    let typed: Vec<String> = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => vec![value.clone()],
        _ => typed.iter().flat_map(words).collect(),
    };
    let mut near = proposed.iter().flat_map(words).filter(|word| tip.contains(&format!("'{word}'"))).peekable();
    let is_near = |word: String| {
        typed.iter().any(|typed| strsim::normalized_damerau_levenshtein(&bare(typed), &bare(&word)) >= LEAST)
    };
    near.peek().is_some() && !near.any(is_near)
}

/// What is to be typed where `--` before the command of a worker was forgotten.
fn lacks_dashes(error: &Error, words: &[String]) -> Option<String> {
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else { return None };
    let exec = words.iter().position(|word| word == "exec")?;
    // Behind the workspace, which may have the same name.
    let at = (exec + 2..words.len()).find(|at| words[*at] == *found)?;
    (error.kind() == ErrorKind::UnknownArgument && !found.starts_with('-')).then(|| {
        let typed = words[at..].join(" ");
        format!("put `--` before the command: `rekindle {} -- {}`", words[..at].join(" "), crate::human::tame(&typed))
    })
}

/// Whether jobs were to be stopped. That can mean two things, and one of them is final.
fn is_stop(error: &Error) -> bool {
    matches!(error.get(ContextKind::InvalidSubcommand), Some(ContextValue::String(word)) if word == "stop")
}

/// Where an option goes that is the program's, or a field of the job.
fn of_program(error: &Error, words: &[String]) -> Option<String> {
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else { return None };
    let whose = match command(words).as_str() {
        "rekindle run" => "your program",
        "rekindle exec" => "the command",
        _ => return None,
    };
    let is_option = error.kind() == ErrorKind::UnknownArgument && found.starts_with('-');
    let found = crate::human::tame(found);
    let field = found.trim_start_matches('-').split('=').next().unwrap_or_default().replace('-', "_");
    if is_option && whose == "your program" && FIELDS.iter().any(|known| known.name == field) {
        return Some(format!(
            "{found} is no option, and the job has such a field: write --set {field}=…; if it is meant for {whose}, it belongs after `--`, with the whole command"
        ));
    }
    is_option.then(|| {
        format!("{found} belongs after `--` if it is meant for {whose}, with the whole command: `-- COMMAND {found}`")
    })
}

/// What to type for the last lines where a negative number was: as in Python, it seems to count from the end.
fn of_end(error: &Error, words: &[String]) -> Option<String> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_count = |pair: &[String]| {
        let given = pair[1].strip_prefix('-').filter(|_| matches!(pair[0].as_str(), "-n" | "--tail"));
        given.filter(|number| pair[1].starts_with(typed) && number.parse::<usize>().is_ok()).map(str::to_owned)
    };
    let number = words.windows(2).find_map(is_count).filter(|_| command(words) == "rekindle logs")?;
    Some(format!("write -n {number}: it counts from the end"))
}

/// Whether what was not understood was to be the value of the option before it: behind `--` it would be none.
fn is_value(error: &Error, words: &[String]) -> bool {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return false };
    let is_option = |word: &str| word.len() > 2 && word.starts_with("--") || word == "-n";
    words.windows(2).any(|pair| is_option(&pair[0]) && pair[1].starts_with(typed))
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
            (
                "stop train-1",
                &["unrecognized subcommand 'stop'"],
                "`rekindle pause JOB` keeps it, `rekindle cancel JOB` ends it for good; `rekindle --help`",
            ),
            ("run --priority 101 -- a", &["101 is not in 0..=100"], "run --help`"),
            ("xyzzy", &["unrecognized subcommand 'xyzzy'"], "`rekindle --help`"),
            ("fleet all", &["unexpected argument 'all' found"], "`rekindle fleet --help`"),
            ("show", &["arguments were not provided", "<JOB>"], "`rekindle show --help`"),
            (
                "exec dev pwd",
                &["unexpected argument 'pwd' found"],
                "put `--` before the command: `rekindle exec dev -- pwd`",
            ),
            ("exec box", &["arguments were not provided", "<COMMAND>"], "`rekindle exec --help`"),
            ("tag train-1", &["arguments were not provided", "<TAG>"], "`rekindle tag --help`"),
            ("run --tpu", &["a value is required for '--tpu <TYPE>'"], "`rekindle run --help`"),
            ("ps --phase runing", &["invalid value 'runing' for '--phase", "did you mean running?"], "ps --help`"),
            ("ps --phase walking", &["invalid value 'walking' for '--phase", "pending, provisioning"], "ps --help`"),
            ("ps --within 5x", &["invalid value '5x' for '--within <TIME>'", "like 90s, 30m, 24h"], "ps --help`"),
            ("wait a --timeout 5x", &["invalid value '5x'", "like 90s, 30m, 24h"], "wait --help`"),
            ("--color red ps", &["invalid value 'red' for '--color", "auto, always, never"], "`rekindle"),
            ("account --by year", &["invalid value 'year'", "job, owner, tag, week"], "account --help`"),
            ("account --weeks 0", &["invalid value '0'", "0 is not in 1..=520"], "account --help`"),
            ("logs a --grep (", &["invalid value '(' for '--grep <PATTERN>'", "unclosed group"], "logs --help`"),
            (
                "logs a --since soon",
                &["invalid value 'soon' for '--since", "12h, 11:05 (in UTC), yesterday, 2026-11-27"],
                "logs --help`",
            ),
            ("logs a -n -3", &["unexpected argument '-3' found"], "write -n 3: it counts from the end; `rekindle logs"),
            (
                "logs a --tail -20",
                &["unexpected argument '-2' found"],
                "write -n 20: it counts from the end; `rekindle logs",
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
    fn an_option_is_sent_behind_the_dashes_only_where_a_program_takes_it() {
        let text = |line: &str| anstream::adapter::strip_str(&found(line).unwrap().text()).to_string();
        for (line, said) in [
            ("run --lr 0.1", "--lr belongs after `--` if it is meant for your program"),
            ("run job.yaml --epochs=3", "--epochs belongs after `--` if it is meant for your program"),
            ("exec dev --lr", "--lr belongs after `--` if it is meant for the command"),
            ("run --outputs x/** -- a", "write --set outputs=…"),
            ("run --limits.total=2h -- a", "write --set limits.total=…"),
        ] {
            assert!(text(line).contains(said) && !text(line).contains("as a value"), "{line}: {}", text(line));
        }
        for line in ["ps --lr", "logs a --last 3", "wait a --lr"] {
            assert!(!text(line).contains("after `--`") && !text(line).contains("as a value"), "{line}: {}", text(line));
        }
    }

    #[test]
    fn a_value_is_not_sent_behind_the_dashes() {
        for line in ["logs a --since -1", "logs a --since -10m", "ps --within -1h"] {
            let text = anstream::adapter::strip_str(&found(line).unwrap().text()).to_string();
            assert!(!text.contains("-- -1") && text.contains("--help` tells"), "{line}: {text}");
        }
        let text = anstream::adapter::strip_str(&found("show -1").unwrap().text()).to_string();
        assert!(text.contains("use '-- -1'"), "{text}");
    }

    #[test]
    fn a_word_that_only_shares_letters_is_not_proposed() {
        for (line, far) in [("up dev --owner ada", "--zone"), ("completion tcsh", "a similar value exists: 'zsh'")] {
            let text = anstream::adapter::strip_str(&found(line).unwrap().text()).to_string();
            assert!(!text.contains(far), "{line}: {text}");
        }
        for (line, near) in [("ps --ownr ada", "'--owner'"), ("completion bsh", "'bash'"), ("statsu", "'status'")] {
            let text = anstream::adapter::strip_str(&found(line).unwrap().text()).to_string();
            assert!(text.contains(near), "{line}: {text}");
        }
    }

    #[test]
    fn help_and_version_are_no_fault() {
        for line in ["--help", "--version", "ps --help", ""] {
            assert!(found(line).is_none(), "{line}");
        }
    }
}
