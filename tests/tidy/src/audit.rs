//! What `deny.toml` says of dependencies, checked without cargo-deny: licences, bans, sources. Advisories need its database, and `tests/run`
//! says so where they cannot be checked.

use std::collections::BTreeSet;
use std::process::Command;

use crate::tree::root;

/// Every package that a build for Linux takes in, with its licence.
fn packages() -> Vec<(String, String)> {
    let out = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--locked", "--offline", "--target=x86_64-unknown-linux-gnu"])
        .args(["--edges=normal,build,dev", "--prefix=none", "--format={p}|{l}"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let lines: BTreeSet<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    // What was told before is marked.
    let parts = lines.into_iter().map(|line| line.trim_end_matches(" (*)").rsplit_once('|').unwrap());
    parts.map(|(package, licence)| (package.split(' ').next().unwrap().to_owned(), licence.to_owned())).collect()
}

/// Texts in quotes of the list `name` of deny.toml.
fn list(deny: &str, name: &str) -> Vec<String> {
    let (_, rest) = deny.split_once(&format!("\n{name} = [\n")).unwrap_or_else(|| panic!("no list {name}"));
    let (body, _) = rest.split_once("\n]").unwrap();
    body.lines().filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

/// Whether an SPDX expression is met by these licences. `AND` binds closer than `OR`; an old `/` is an `OR`.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (met, rest) = any_of(&words, allowed);
    assert!(rest.is_empty(), "{expression}: {rest:?} is left");
    met
}

fn any_of<'a>(words: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    let (mut met, mut rest) = all_of(words, allowed);
    while let Some((&"OR", after)) = rest.split_first() {
        let (next, left) = all_of(after, allowed);
        (met, rest) = (met || next, left);
    }
    (met, rest)
}

fn all_of<'a>(words: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    let (mut met, mut rest) = one(words, allowed);
    while let Some((&"AND", after)) = rest.split_first() {
        let (next, left) = one(after, allowed);
        (met, rest) = (met && next, left);
    }
    (met, rest)
}

fn one<'a>(words: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    match words {
        ["(", inner @ ..] => {
            let (met, rest) = any_of(inner, allowed);
            (met, rest.strip_prefix(&[")"]).expect("a closing parenthesis"))
        }
        [licence, "WITH", exception, rest @ ..] => (allowed.contains(&format!("{licence} WITH {exception}")), rest),
        [licence, rest @ ..] => (allowed.contains(*licence), rest),
        [] => panic!("an expression ends too soon"),
    }
}

#[test]
fn licences_bans_and_sources_are_as_deny_toml_says() {
    let deny = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let allowed: BTreeSet<String> = list(&deny, "allow").into_iter().collect();
    let banned = list(&deny, "deny");
    assert!(allowed.contains("MIT") && banned.contains(&"ring".to_owned()), "{allowed:?} {banned:?}");
    let packages = packages();
    assert!(packages.len() > 200, "{} packages", packages.len());
    let mut faults = Vec::new();
    for (name, licence) in &packages {
        if banned.contains(name) {
            faults.push(format!("{name} is banned"));
        }
        let is_told = deny.contains(&format!("crate = \"{name}\"\nexpression = "));
        let is_exception = deny.contains(&format!("crate = \"{name}\", allow = [\"{licence}\"]"));
        if !(is_told || is_exception || (!licence.is_empty() && is_met(licence, &allowed))) {
            faults.push(format!("{name}: the licence {licence:?} is not among the allowed ones"));
        }
    }
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    // Everything comes from one registry, and nothing from a repository or a path of somebody's.
    let sources: BTreeSet<&str> = lock.lines().filter(|line| line.starts_with("source = ")).collect();
    let foreign = sources.iter().filter(|line| sources.len() > 1 || !line.contains("\"registry+"));
    faults.extend(foreign.map(|line| (*line).to_owned()));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn expressions_are_read_as_spdx_says() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned(), "ISC".to_owned()]);
    for good in
        ["MIT", "MIT/GPL-3.0", "GPL-3.0 OR MIT AND ISC", "(GPL-3.0 OR MIT) AND ISC", "Apache-2.0 WITH LLVM-exception"]
    {
        assert!(is_met(good, &allowed), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "(MIT OR ISC) AND GPL-3.0"] {
        assert!(!is_met(bad, &allowed), "{bad}");
    }
}
