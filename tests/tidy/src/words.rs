//! What must not stand in the repository: paths of one machine, sleeps in tests, ignored tests, unfinished code.

use regex::Regex;

use crate::tree::{files, is_kind, text};

fn hits(pattern: &str, only: impl Fn(&str) -> bool) -> Vec<String> {
    let pattern = Regex::new(pattern).unwrap();
    let mut found = Vec::new();
    for file in files().into_iter().filter(|f| only(f) && f != "tests/tidy/src/words.rs" && f != "Cargo.lock") {
        let Some(text) = text(&file) else { continue };
        for (number, line) in text.lines().enumerate() {
            if pattern.is_match(line) {
                found.push(format!("{file}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    found
}

fn is_data(file: &str) -> bool {
    file.starts_with("tests/cases/") || file.starts_with("tests/samples/")
}

#[test]
fn no_path_of_one_machine() {
    let found = hits(r"(^|[^\w.])/(work|root)/|/tmp/[a-z]+-[0-9]", |f| !is_data(f));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_host_of_a_package_registry() {
    let found = hits(r"\b(registry|index|static|files|deb)\.[a-z]+\.(io|org|com)\b", |f| !is_data(f));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_sleep_in_tests() {
    let in_tests = |f: &str| is_kind(f, &["rs"]) && (f.starts_with("tests/") || f.contains("/tests"));
    let mut found = hits(r"thread::sleep|time::sleep\(", in_tests);
    // The pause of a loop that waits for a condition until a deadline is none; it says so on its line.
    found.retain(|hit| !hit.ends_with("// between two looks"));
    assert!(found.is_empty(), "wait for a condition instead:\n{}", found.join("\n"));
}

#[test]
fn nothing_is_unfinished() {
    let code = |f: &str| is_kind(f, &["rs", "sh", "tf"]);
    let found = hits(r"\b(todo|unimplemented)!\(|\bFIXME\b|\bXXX\b|#\[ignore", code);
    assert!(found.is_empty(), "{}", found.join("\n"));
}
