//! Every fault of the program is said somewhere in its tests, or it is listed here why it cannot be brought about; each has a
//! next step of its own, which is said there, too.

use std::path::{Path, PathBuf};

/// What no test can make happen.
const NEVER: &[(&str, &str)] = &[
    ("cannot set up HTTP", "the client's settings are constants"),
    ("cannot write JSON", "our own types always can be written"),
    ("no JSON", "our own types always can be written"),
    ("cannot listen for signals", "the kernel always lets a process"),
    ("nobody looks any more", "the feed is dropped together with who looks"),
    ("the terminal is gone", "the kernel ends a program whose terminal goes, before it could say so"),
    ("the scenario is wrong", "it is a constant, and the demonstration runs with it"),
    ("the undisturbed run failed", "it is arithmetic"),
    ("the preset {name:?} cannot be used", "each table of TOML has a form in JSON"),
    ("the pages cannot be read", "reading has no fault of its own, and does not panic"),
];

/// What has no next step beside it, and why.
const WITHOUT_STEP: &[(&str, &str)] = &[
    ("cannot start", "the one that every fault has is right: `rekindle doctor` checks this machine"),
    ("no answer", "it becomes a warning, which says what to do"),
    ("{order} may still run on {}", "`left` adds it"),
    ("cannot listen at 127.0.0.1:{asked}", "who has the port decides: `taken` adds it"),
];

/// Shorter parts of a step stand in many texts.
const PART_MIN: usize = 12;

/// The files of the program, each with its name, and all that its tests say.
fn sources() -> (Vec<(String, String)>, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut program, mut tests) = (Vec::new(), String::new());
    for path in files(&root.join("src")) {
        let source = std::fs::read_to_string(&path).unwrap();
        let (own, tested) = source.split_once("#[cfg(test)]\nmod tests {").unwrap_or((&source, ""));
        tests.push_str(tested);
        if path.ends_with("tests.rs") {
            tests.push_str(&source);
        } else {
            program.push((path.strip_prefix(root).unwrap().display().to_string(), own.to_owned()));
        }
    }
    for path in files(&root.join("tests")).into_iter().filter(|path| !path.ends_with("census.rs")) {
        tests.push_str(&std::fs::read_to_string(&path).unwrap_or_default());
    }
    (program, tests.replace("\\\"", "\""))
}

#[test]
fn every_fault_has_a_test_of_its_words() {
    let (files, tests) = sources();
    let texts = |(name, own): &(String, String)| {
        texts(own).into_iter().map(|(_, text)| (format!("{name}: {text}"), text)).collect::<Vec<_>>()
    };
    let program: Vec<(String, String)> = files.iter().flat_map(texts).collect();
    assert!(program.len() > 80, "{program:?}");
    let is_never = |text: &str| NEVER.iter().any(|(never, _)| text == *never);
    let untold = program.iter().filter(|(_, text)| !is_never(text) && !whole(text).is_match(&tests));
    let untold: Vec<&String> = untold.map(|(place, _)| place).collect();
    assert!(untold.is_empty(), "no test says\n{untold:#?}");
    let gone: Vec<_> = NEVER.iter().filter(|(never, _)| !program.iter().any(|(_, text)| text == never)).collect();
    assert!(gone.is_empty(), "the program does not say {gone:?} any more");
}

#[test]
fn every_fault_has_a_next_step_and_a_test_of_it() {
    let (files, tests) = sources();
    let is_listed = |list: &[(&str, &str)], text: &str| list.iter().any(|(listed, _)| text == *listed);
    let (mut bare, mut untold, mut count) = (Vec::new(), Vec::new(), 0);
    for (name, own) in &files {
        for (at, text) in texts(own) {
            let has_step = function_at(own, at).contains(".next(");
            if !has_step && !is_listed(NEVER, &text) && !is_listed(WITHOUT_STEP, &text) {
                bare.push(format!("{name}: {text}"));
            }
        }
        for step in steps(own) {
            count += 1;
            let parts = parts(&step);
            let are_told = !parts.is_empty() && parts.iter().all(|part| tests.contains(part));
            if !are_told && !whole(&step).is_match(&tests) {
                untold.push(format!("{name}: {step}"));
            }
        }
    }
    assert!(count > 80, "{count} steps were found");
    assert!(bare.is_empty(), "these have no next step:\n{bare:#?}");
    assert!(untold.is_empty(), "no test says these next steps:\n{untold:#?}");
}

/// The function in which a place of a source is.
fn function_at(source: &str, at: usize) -> &str {
    let begins = regex::Regex::new(r"(?m)^( *)(?:pub(?:\([^)]*\))? )?(?:async )?fn ").unwrap();
    let Some(begin) = begins.captures_iter(&source[..at]).last() else { return source };
    let from = begin.get(0).unwrap().start();
    let end = format!("\n{}}}\n", &begin[1]);
    let to = source[from..].find(&end).map_or(source.len(), |length| from + length);
    &source[from..to]
}

/// The next steps that a source names as a text, as they are written there.
fn steps(source: &str) -> Vec<String> {
    let begins = r#"(?:\.next\(\s*|let hint = )(?:&?format!\(\s*)?"((?:[^"\\]|\\(?s:.))*)""#;
    let begins = regex::Regex::new(begins).unwrap();
    begins.captures_iter(source).map(|found| plain(&found[1])).collect()
}

/// What of a step stands in every form of it: between its placeholders, and between its semicolons.
fn parts(step: &str) -> Vec<String> {
    // Doubled braces are braces.
    let step = step.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let different = regex::Regex::new(r"\{[^}]*\}|;").unwrap();
    let parts = different.split(&step).map(|part| part.trim().replace('\u{1}', "{").replace('\u{2}', "}"));
    parts.filter(|part: &String| part.len() >= PART_MIN).collect()
}

/// A text as the program says it: without the breaks and marks of the source.
fn plain(text: &str) -> String {
    let join = regex::Regex::new(r"\\\n\s*").unwrap();
    join.replace_all(text, "").replace("\\\"", "\"")
}

/// The first lines of the faults in a source, as they are written there, and where. What is one of several stands in the branches
/// of a `let what = if`.
fn texts(source: &str) -> Vec<(usize, String)> {
    let begins = regex::Regex::new(
        r#"(?:Fault::(?:input|unexpected)\(\s*(?:&?format!\(\s*)?|let what = format!\(\s*)"((?:[^"\\]|\\(?s:.))*)""#,
    );
    let mut texts: Vec<(usize, String)> =
        begins.unwrap().captures_iter(source).map(|found| (found.get(0).unwrap().start(), plain(&found[1]))).collect();
    let choices = regex::Regex::new(r"let what = if (?s:.*?)\};\n").unwrap();
    let branch = regex::Regex::new(r#"\{\s*(?:format!\()?"((?:[^"\\]|\\(?s:.))*)""#).unwrap();
    for choice in choices.find_iter(source).filter(|choice| function_at(source, choice.start()).contains("(what)")) {
        let branches = branch.captures_iter(choice.as_str());
        texts.extend(branches.map(|found| (choice.start(), plain(&found[1]))));
    }
    texts
}

/// The whole line, with anything where it differs each time.
fn whole(text: &str) -> regex::Regex {
    let different = regex::Regex::new(r"\{[^}]*\}").unwrap();
    let parts: Vec<String> = different.split(text).map(regex::escape).collect();
    regex::Regex::new(&parts.join(r"[^\n]*")).unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("json_page") {
            files.extend(self::files(&path));
        } else if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    files
}
