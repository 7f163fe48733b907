//! YAML that a person wrote: read, and where it cannot be, the place to mend in plain words.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use serde_saphyr::{Error, UserMessageFormatter};

/// Why a text is no YAML.
#[derive(Debug)]
pub(super) struct Wrong {
    /// What the reader says, with the lines around it, and what it does not say.
    pub(super) causes: Vec<String>,
    /// The line to mend, from 1 on.
    pub(super) line: Option<u64>,
}

/// Reads YAML, and so also JSON. Only `true` and `false` are booleans: `y` and `no` are words like any other.
///
/// `name` is how the text is called in what is said about it.
pub(super) fn read(text: &str, name: &str) -> Result<Value, Wrong> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| wrong(&error, text, name))
}

/// Where a number or a truth stands in place of a text of the program, and how it is written there: `010` is 10 to YAML.
pub(super) fn unquoted(text: &str, job: &Map<String, Value>, has_program: bool) -> Vec<(String, String)> {
    let is_no_text = |value: &Value| value.is_number() || value.is_boolean();
    let mut found = Vec::new();
    if let (Some(Value::Array(words)), false) = (job.get("run"), has_program)
        && let Ok(Words { run }) = serde_saphyr::from_str(text)
    {
        let all = words.iter().zip(run).enumerate().filter(|(_, (word, _))| is_no_text(word));
        found.extend(all.map(|(at, (_, written))| (format!("run[{at}]"), written)));
    }
    if let Some(Value::Object(variables)) = job.get("env")
        && let Ok(Variables { env }) = serde_saphyr::from_str(text)
    {
        let all = env.into_iter().filter(|(name, _)| variables.get(name).is_some_and(is_no_text));
        found.extend(all.map(|(name, written)| (format!("env.{name}"), written)));
    }
    found
}

/// The words of a program, each as it is written.
#[derive(serde::Deserialize)]
struct Words {
    run: Vec<String>,
}

/// The variables, each as it is written.
#[derive(serde::Deserialize)]
struct Variables {
    env: BTreeMap<String, String>,
}

fn wrong(error: &Error, text: &str, name: &str) -> Wrong {
    let told = error.render_with_formatter(&UserMessageFormatter);
    let told = told.trim_start_matches("error: ").replacen("--> <input>", &format!("--> {name}"), 1);
    let mut wrong = Wrong { causes: vec![told.trim_end().to_owned()], line: error.location().map(|at| at.line()) };
    let Some(at) = wrong.line else { return wrong };
    if let Some((bracket, line)) = never_closed(text).filter(|(_, line)| *line <= at) {
        // It is noticed where something comes that cannot stand within it.
        wrong.causes.push(format!("the {bracket} in line {line} is never closed"));
        wrong.line = Some(line);
    } else if is_indented_by_tab(text, at) {
        wrong.causes.push(format!("line {at} begins with a tab; YAML takes spaces alone"));
    }
    wrong
}

fn is_indented_by_tab(text: &str, line: u64) -> bool {
    let line = usize::try_from(line).ok().and_then(|line| text.lines().nth(line.checked_sub(1)?));
    line.is_some_and(|line| line.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t'))
}

/// The outermost list or map in brackets that has no end, and its line. Texts in quotes end in the line that they begin in.
fn never_closed(text: &str) -> Option<(char, u64)> {
    let mut open: Vec<(char, u64)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut before = ' ';
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            let begins = matches!(before, ':' | '-' | '[' | '{' | ',' | ' ');
            match c {
                '#' if before == ' ' => break,
                '"' | '\'' if begins => {
                    chars.by_ref().find(|end| *end == c);
                }
                '[' | '{' if begins => open.push((c, number)),
                ']' | '}' => {
                    open.pop();
                }
                _ => {}
            }
            before = if c.is_whitespace() { ' ' } else { c };
        }
    }
    open.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_in_words_of_yaml_with_the_line_to_mend() {
        for (text, said, line) in [
            ("run: [a\ntpu: {accelerator: v4-8}\nid: x\n", "the [ in line 1 is never closed", 1),
            ("id: x\nrun: [a,\n  'b]'\ntpu: {accelerator: [v4-8]}\n", "the [ in line 2 is never closed", 2),
            ("env: {A: 1\ntpu: x\n", "the { in line 1 is never closed", 1),
            ("run: \"a\n", "unclosed quote", 1),
            ("run: [a]\n\ttpu: x\n", "line 2 begins with a tab", 2),
            ("run: a\nrun: b\n", "duplicate mapping key `run`", 2),
            ("run: a\n---\nrun: b\n", "only single YAML document", 3),
            ("run: a: b\n", "mapping values are not allowed", 1),
        ] {
            let wrong = read(text, "job.yaml").unwrap_err();
            let told = wrong.causes.join("\n");
            assert!(told.contains(said) && wrong.line == Some(line), "{text}: {wrong:?}");
            assert!(told.contains("--> job.yaml:"), "{told}");
            for word in ["<input>", "Options", "from_str", "DuplicateKeyPolicy"] {
                assert!(!told.contains(word), "{told}");
            }
        }
    }

    #[test]
    fn what_is_no_text_is_found_as_it_is_written() {
        let found = |text: &str, has_program| {
            let Value::Object(job) = read(text, "job.yaml").unwrap() else { panic!("{text}") };
            unquoted(text, &job, has_program)
        };
        let text = "run: [a, 010, '010', 1e-3, true, no]\nenv: {A: 1, B: '1', C: 0x10, D: false}\ntpu: {slices: 2}\n";
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(field, written)| ((*field).to_owned(), (*written).to_owned())).collect()
        };
        let env = [("env.A", "1"), ("env.C", "0x10"), ("env.D", "false")];
        let run = [("run[1]", "010"), ("run[3]", "1e-3"), ("run[4]", "true")];
        assert_eq!(found(text, false), pairs(&[run, env].concat()));
        assert_eq!(found(text, true), pairs(&env), "that program does not run");
        assert_eq!(found("run: python3 train.py 010\n", false), []);
        assert_eq!(found("run: [a, [1]]\nenv: {A: {b: 1}}\n", false), [], "the server tells what is wrong");
    }

    #[test]
    fn brackets_that_are_text_or_have_an_end_are_no_cause() {
        for text in [
            "run: 'a['\nb: c: d\n",
            "run: a # [\nb: c: d\n",
            "run: a[0\nb: c: d\n",
            "run: [a, {b: [c]}]\nb: c: d\n",
            "run: [\n  a\n]\nb: c: d\n",
        ] {
            let wrong = read(text, "job.yaml").unwrap_err();
            assert_eq!(wrong.causes.len(), 1, "{wrong:?}");
        }
    }
}
