//! Arguments of the program that follow the job file: where in `run` they go.
//!
//! **Invariant:** an argument reaches the program, or is refused. At the end of a line of bash it would go to `tee` behind
//! a pipe, to whatever stands last behind `;` or `&&`, and to nobody behind `#`.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Value};

use crate::fault::{Fault, Result};

/// Where a line of bash takes the arguments; without any, bash makes nothing of it.
const HERE: &str = "\"$@\"";

/// Adds arguments to the program, in their order.
pub(super) fn add(job: &mut Map<String, Value>, arguments: &[String]) -> Result<()> {
    let Some(first) = arguments.first() else { return Ok(()) };
    match job.get_mut("run") {
        Some(Value::Array(words)) => match script_of(words) {
            Some(Value::String(script)) => *script = with(script, arguments)?,
            _ => words.extend(arguments.iter().map(|argument| Value::from(argument.as_str()))),
        },
        Some(Value::String(line)) => *line = with(line, arguments)?,
        _ => {
            return Err(Fault::input(format!("there is no program for {first}"))
                .next("give `run` in the job file, or the program behind `--`"));
        }
    }
    Ok(())
}

/// The script of `bash -c SCRIPT`: words behind it are no arguments of what it runs.
fn script_of(words: &mut [Value]) -> Option<&mut Value> {
    let [shell, option, script] = words else { return None };
    let shell = shell.as_str()?.rsplit('/').next()?;
    let is_shell = ["bash", "sh", "dash", "zsh"].contains(&shell);
    let is_script = option.as_str()?.strip_prefix('-').is_some_and(|flags| flags.ends_with('c'));
    (is_shell && is_script).then_some(script)
}

/// A line of bash with the arguments where it says, else behind its one command.
fn with(script: &str, arguments: &[String]) -> Result<String> {
    let words = arguments.iter().map(|argument| quoted(argument)).collect::<Vec<_>>().join(" ");
    if script.contains(HERE) {
        return Ok(script.replace(HERE, &words));
    }
    // A block of YAML ends with a line's end.
    let line = script.trim_end();
    if is_one_command(line) {
        return Ok(format!("{line} {words}"));
    }
    Err(Fault::input(format!("`run` is more than one command, and {words} may be for any of them"))
        .because(format!(
            "with | ; & # ( ) or several lines, what is put at the end may never reach the program: {line}"
        ))
        .next(format!(
            "write {HERE}, with its quotes, where the arguments go, as in python3 train.py {HERE} | tee log"
        )))
}

/// One word for bash, whatever is in it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Whether a word at the end of the line belongs to the command that the line begins with. What cannot be told is not.
fn is_one_command(line: &str) -> bool {
    let mut chars = line.chars().peekable();
    // Between words, where `#` begins a comment.
    let mut is_between = true;
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        let is_whole = match c {
            '\\' => chars.next().is_some(),
            '\'' => skip_to(&mut chars, '\''),
            '"' | '`' => skip_quoted(&mut chars, c),
            // `$(…)` and `${…}` are part of a word; so are `<(…)` and `>(…)`.
            '(' if matches!(before, '$' | '<' | '>') => skip_nested(&mut chars, '(', ')'),
            '{' if before == '$' => skip_nested(&mut chars, '{', '}'),
            // `2>&1`, `&>file` and `>|file` send output elsewhere.
            '&' => before == '>' || before == '<' || next == Some('>'),
            '|' => before == '>',
            '#' => !is_between,
            ';' | '\n' | '(' | ')' => false,
            _ => true,
        };
        if !is_whole {
            return false;
        }
        is_between = c.is_whitespace();
        before = c;
    }
    true
}

/// False where the line ends before.
fn skip_to(chars: &mut Peekable<Chars<'_>>, end: char) -> bool {
    chars.any(|c| c == end)
}

/// The same, over what a backslash takes its meaning from.
fn skip_quoted(chars: &mut Peekable<Chars<'_>>, end: char) -> bool {
    while let Some(c) = chars.next() {
        if c == end {
            return true;
        }
        if c == '\\' {
            chars.next();
        }
    }
    false
}

fn skip_nested(chars: &mut Peekable<Chars<'_>>, open: char, close: char) -> bool {
    let mut depth = 1;
    while let Some(c) = chars.next() {
        let is_whole = match c {
            '\\' => chars.next().is_some(),
            '\'' => skip_to(chars, '\''),
            '"' => skip_quoted(chars, '"'),
            _ => true,
        };
        depth += i32::from(c == open) - i32::from(c == close);
        if !is_whole || depth == 0 {
            return is_whole;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(run: &Value) -> Result<Value> {
        let mut job = Map::from_iter([("run".to_owned(), run.clone())]);
        add(&mut job, &["--lr=0.1".to_owned(), "--name=a b".to_owned()])?;
        Ok(job.remove("run").unwrap())
    }

    #[test]
    fn arguments_go_to_the_one_command_or_where_the_line_says() {
        for (line, want) in [
            ("python3 a.py", "python3 a.py --lr=0.1 '--name=a b'"),
            ("A=1 exec python3 a.py\n", "A=1 exec python3 a.py --lr=0.1 '--name=a b'"),
            (
                "python3 a.py '|;&' \"a|b;\\\"c\" \\; x#y",
                "python3 a.py '|;&' \"a|b;\\\"c\" \\; x#y --lr=0.1 '--name=a b'",
            ),
            (
                "p $(cat f | head -1) ${A#b;} `a|b` <(c;d)",
                "p $(cat f | head -1) ${A#b;} `a|b` <(c;d) --lr=0.1 '--name=a b'",
            ),
            ("p >log 2>&1", "p >log 2>&1 --lr=0.1 '--name=a b'"),
            ("p &>log", "p &>log --lr=0.1 '--name=a b'"),
            ("cd b && p \"$@\" 2>&1 | tee log", "cd b && p --lr=0.1 '--name=a b' 2>&1 | tee log"),
            ("cd b\np \"$@\"\n", "cd b\np --lr=0.1 '--name=a b'\n"),
        ] {
            assert_eq!(run(&json!(line)).unwrap(), want, "{line}");
            let argv = json!(["/bin/bash", "-ec", line]);
            assert_eq!(run(&argv).unwrap()[2], want, "{argv}");
        }
        assert_eq!(run(&json!(["a|b", ";"])).unwrap(), json!(["a|b", ";", "--lr=0.1", "--name=a b"]));
        let named = json!(["bash", "-c", "p \"$@\" | q", "p"]);
        assert_eq!(run(&named).unwrap()[4], "--lr=0.1", "it has a place for arguments");
        assert_eq!(run(&json!(["bash", "train.sh", "a|b"])).unwrap()[3], "--lr=0.1");
    }

    #[test]
    fn arguments_that_may_not_reach_the_program_are_refused() {
        for line in [
            "p | tee log",
            "p |& tee log",
            "p; echo done",
            "cd b && p",
            "p || true",
            "p &",
            "p # slowly",
            "(p)",
            "p 'open",
            "p $(open",
            "p \\",
            "cd b\np",
        ] {
            let argv = json!(["bash", "-c", line]);
            for wanted in [json!(line), argv] {
                let text = run(&wanted).unwrap_err().text();
                let said = ["`run` is more than one command, and --lr=0.1", "write \"$@\", with its quotes"];
                assert!(said.iter().all(|word| text.contains(word)), "{wanted}: {text}");
            }
        }
    }
}
