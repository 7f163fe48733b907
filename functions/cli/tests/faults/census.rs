//! Every fault of the program is said somewhere in its tests, or it is listed here why it cannot be brought about.

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

#[test]
fn every_fault_has_a_test_of_its_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut program, mut tests) = (Vec::new(), String::new());
    for path in files(&root.join("src")) {
        let source = std::fs::read_to_string(&path).unwrap();
        let (own, tested) = source.split_once("#[cfg(test)]\nmod tests {").unwrap_or((&source, ""));
        tests.push_str(tested);
        if path.ends_with("tests.rs") {
            tests.push_str(&source);
        } else {
            let name = path.strip_prefix(root).unwrap().display();
            program.extend(texts(own).into_iter().map(|text| (format!("{name}: {text}"), text)));
        }
    }
    for path in files(&root.join("tests")).into_iter().filter(|path| !path.ends_with("census.rs")) {
        tests.push_str(&std::fs::read_to_string(&path).unwrap_or_default());
    }
    let tests = tests.replace("\\\"", "\"");
    assert!(program.len() > 80, "{program:?}");
    let is_never = |text: &str| NEVER.iter().any(|(never, _)| text == *never);
    let untold = program.iter().filter(|(_, text)| !is_never(text) && !whole(text).is_match(&tests));
    let untold: Vec<&String> = untold.map(|(place, _)| place).collect();
    assert!(untold.is_empty(), "no test says\n{untold:#?}");
    let gone: Vec<_> = NEVER.iter().filter(|(never, _)| !program.iter().any(|(_, text)| text == never)).collect();
    assert!(gone.is_empty(), "the program does not say {gone:?} any more");
}

/// The first lines of the faults in a source, as they are written there.
fn texts(source: &str) -> Vec<String> {
    let begins = regex::Regex::new(
        r#"(?:Fault::(?:input|unexpected)\(\s*(?:&?format!\(\s*)?|let what = format!\(\s*)"((?:[^"\\]|\\(?s:.))*)""#,
    );
    let join = regex::Regex::new(r"\\\n\s*").unwrap();
    let plain = |text: &str| join.replace_all(text, "").replace("\\\"", "\"");
    begins.unwrap().captures_iter(source).map(|found| plain(&found[1])).collect()
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
