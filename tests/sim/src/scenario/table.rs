//! The catalogue of faults, case by case: each has a scenario, or a test of another suite, or a line that says why it has neither.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{FILES, Written, specials};

/// `tests/cases/faults.tsv`: id, `scenario`, `test` or `none`, and what (words, and tests as `path::function`) or why.
const CASES: &str = include_str!("../../../cases/faults.tsv");

/// The root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn scenarios() -> BTreeSet<String> {
    let written = FILES.iter().flat_map(|file| serde_json::from_str::<Vec<Written>>(file).unwrap());
    written.map(|w| w.id).chain(specials().into_iter().map(|(id, ..)| id.to_owned())).collect()
}

fn rows() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    let lines = CASES.lines().filter(|l| !l.starts_with('#'));
    let row = |l: &'static str| {
        let parts: Vec<&str> = l.split('\t').collect();
        let [id, kind, what] = parts[..] else { panic!("{l:?} has not three columns") };
        (id, (kind, what))
    };
    let count = lines.clone().count();
    let rows: BTreeMap<_, _> = lines.map(row).collect();
    assert_eq!(rows.len(), count, "an id stands there twice");
    rows
}

/// What is wrong with the tests that are named as `path::function`, or with a command of `tests/run`.
fn unfit(what: &str) -> Option<String> {
    let mut named = what.split([' ', ';']).filter_map(|word| word.split_once("::"));
    named.find_map(|(path, name)| {
        let Ok(text) = std::fs::read_to_string(Path::new(ROOT).join(path)) else {
            return Some(format!("there is no {path}"));
        };
        let is_there = text.contains(&format!("fn {name}(")) || (path == "tests/run" && text.contains(name));
        (!is_there).then(|| format!("{path} has no {name}"))
    })
}

#[test]
fn every_case_of_the_catalogue_has_its_place() {
    let (scenarios, rows) = (scenarios(), rows());
    let mut wrong = Vec::new();
    for (id, (kind, what)) in &rows {
        let has = scenarios.iter().any(|s| s.starts_with(&format!("{id}-")));
        match *kind {
            "scenario" if !has => wrong.push(format!("{id}: no scenario has this id")),
            "scenario" => wrong.extend(unfit(what).map(|why| format!("{id}: {why}"))),
            _ if has => wrong.push(format!("{id}: it has a scenario, and the table says {kind}")),
            "test" if !what.contains("::") => wrong.push(format!("{id}: no test is named")),
            "test" => wrong.extend(unfit(what).map(|why| format!("{id}: {why}"))),
            "none" if what.len() < 20 => wrong.push(format!("{id}: why not is not said")),
            "none" => {}
            _ => wrong.push(format!("{id}: {kind:?} is neither scenario, test nor none")),
        }
    }
    // S, X: cases of this project's own.
    let ours = |id: &&str| !id.starts_with('S') && !id.starts_with('X');
    let named: BTreeSet<&str> = scenarios.iter().filter_map(|s| s.split('-').next()).filter(ours).collect();
    wrong.extend(named.iter().filter(|id| !rows.contains_key(*id)).map(|id| format!("{id}: the table lacks it")));
    assert!(wrong.is_empty(), "tests/cases/faults.tsv:\n{}", wrong.join("\n"));
}

#[test]
fn every_scenario_can_be_played() {
    let mut seen = BTreeSet::new();
    for written in FILES.iter().flat_map(|file| serde_json::from_str::<Vec<Written>>(file).unwrap()) {
        super::plan(&written, 1).unwrap_or_else(|why| panic!("{}: {why}", written.id));
        assert_eq!(written.expect.fault(), None, "{}", written.id);
        assert!(seen.insert(written.id.clone()), "{} stands there twice", written.id);
    }
}
