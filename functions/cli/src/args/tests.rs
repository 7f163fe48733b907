//! What the command line takes.

use clap::CommandFactory as _;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn the_words_of_the_forerunners_lead_to_the_nearest_command() {
    let command = |words: &[&str]| Cli::try_parse_from([&["rekindle"], words].concat()).unwrap().command;
    let parse = |words: &[&str]| {
        let Command::Client(client) = command(words) else { panic!("{words:?}") };
        client
    };
    assert!(matches!(parse(&["kill", "a"]), Client::Cancel(_)));
    assert!(matches!(parse(&["resume", "a"]), Client::Unpause(_)));
    assert!(matches!(parse(&["retry", "a"]), Client::Restart(_)));
    assert!(matches!(parse(&["rerun", "a"]), Client::Rerun(_)));
    assert!(matches!(parse(&["ack", "a"]), Client::Wake(_)));
    assert!(matches!(parse(&["check", "a"]), Client::Ps(Ps { jobs, .. }) if jobs == ["a"]));
    assert!(matches!(parse(&["monitor", "a"]), Client::Monitor(Ps { jobs, .. }) if jobs == ["a"]));
    assert!(matches!(parse(&["ssh", "a", "--worker", "1", "--", "-L", "1:2"]), Client::Ssh(s) if s.rest.len() == 2));
    assert!(matches!(parse(&["down", "a"]), Client::Delete(d) if d.names == ["a"]));
}

#[test]
fn a_program_keeps_its_own_options() {
    let words = ["rekindle", "run", "--tpu", "v5litepod-8", "--", "python3", "train.py", "--json", "-f"];
    let cli = Cli::try_parse_from(words).unwrap();
    let Command::Client(client) = cli.command else { panic!("{:?}", cli.command) };
    let Client::Run(run) = client else { panic!("{client:?}") };
    assert_eq!(run.command, ["python3", "train.py", "--json", "-f"]);
    assert!(!cli.global.json && !run.follow);
}

#[test]
fn footers_of_the_help_are_broken_by_the_terminal_alone() {
    let cli = Cli::command();
    for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
        let (name, help) = (command.get_name(), command.get_after_help().map(ToString::to_string).unwrap_or_default());
        for line in help.lines().filter(|line| !line.is_empty()) {
            if line.starts_with(' ') {
                assert!(line.chars().count() <= 80, "an example of {name} is broken at 80 columns: {line}");
            } else {
                assert!(line.ends_with(['.', ':']), "a sentence of {name} goes on in the next line: {line}");
            }
        }
    }
}

/// The words of each command of ours within an example: the shell's own words and what is said behind three blanks are
/// none of them.
fn commands(line: &str) -> Vec<Vec<String>> {
    let code = line.trim_start().split("   ").next().unwrap_or_default();
    let inner = code.split_once("(rekindle ").and_then(|(_, rest)| rest.split(')').next());
    let code = inner.map_or_else(|| code.to_owned(), |inner| format!("rekindle {inner}"));
    let words = shlex::split(&code).unwrap_or_default();
    let all = words.split(|word| word == "|" || word == "&&");
    let ours = all.filter(|words| words.first().is_some_and(|word| word == "rekindle"));
    ours.map(|words| words.iter().take_while(|word| !word.starts_with('>')).cloned().collect()).collect()
}

#[test]
fn every_command_has_examples_that_it_takes() {
    let cli = Cli::command();
    let mut checked = 0;
    for command in std::iter::once(&cli).chain(cli.get_subcommands().filter(|command| !command.is_hide_set())) {
        let name = command.get_name();
        let help = command.get_after_help().unwrap_or_else(|| panic!("{name} has no examples")).to_string();
        let (_, examples) = help.split_once("Examples:\n").unwrap_or_else(|| panic!("{name} has no examples"));
        let lines: Vec<&str> = examples.lines().take_while(|line| line.starts_with("  ")).collect();
        let own = if name == cli.get_name() { name.to_owned() } else { format!("rekindle {name}") };
        assert!(lines.iter().any(|line| line.contains(&own)), "no example of {name} shows it: {lines:?}");
        for line in lines {
            let commands = commands(line);
            assert!(!commands.is_empty(), "no command of ours in an example of {name}: {line}");
            for words in commands {
                Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{name}: {line}: {error}"));
                checked += 1;
            }
        }
    }
    assert!(checked > 60, "only {checked} examples were found");
}
