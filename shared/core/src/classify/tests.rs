//! The labelled cases, the table's own examples, and what must not change a verdict.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::signature::SIGNATURES;
use super::table;
use super::{Evidence, Outcome, case, classify};

#[derive(Debug, Deserialize)]
struct Label {
    id: String,
    label: String,
    #[serde(default)]
    secondary_ok: Vec<String>,
}

struct Case {
    label: Label,
    evidence: Evidence,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases").join(name)
}

fn cases(name: &str) -> Vec<Case> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            Case { label: serde_json::from_str(&text).unwrap(), evidence: case::from_case_json(&text).unwrap() }
        })
        .collect()
}

fn action_of(label: &str) -> &'static str {
    match label {
        "success" => "done",
        "preempted" | "infra_grpc" | "tpu_runtime" | "storage_network" => "retry",
        _ => "stop",
    }
}

fn table_of(cases: &[Case]) -> (String, Vec<String>) {
    let mut rows: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for case in cases {
        let verdict = classify(&case.evidence);
        let kind = verdict.outcome.as_str();
        let accepted = |name: &str| case.label.label == name || case.label.secondary_ok.iter().any(|ok| ok == name);
        let row = rows.entry(&case.label.label).or_default();
        row.0 += 1;
        row.1 += usize::from(kind == case.label.label);
        row.2 += usize::from(accepted(kind));
        if !accepted(kind) {
            wrong.push(format!("{} {} -> {kind}: {}", case.label.id, case.label.label, verdict.summary));
        }
        let decisions: Vec<&str> =
            std::iter::once(&case.label.label).chain(&case.label.secondary_ok).map(|label| action_of(label)).collect();
        if !decisions.contains(&verdict.action.as_str()) {
            wrong.push(format!("{} {}: action {}", case.label.id, case.label.label, verdict.action.as_str()));
        }
    }
    let lines = rows.iter().map(|(label, (all, first, ok))| format!("{label:<16} {all:>4} {first:>5} {ok:>9}\n"));
    (format!("label            cases  label  accepted\n{}", lines.collect::<String>()), wrong)
}

#[test]
fn every_labelled_case_gets_its_label() {
    let cases = cases("failures");
    assert!(cases.len() >= 70, "the cases are missing");
    let (table, wrong) = table_of(&cases);
    assert!(wrong.is_empty(), "{table}{}", wrong.join("\n"));
}

#[test]
fn every_further_case_gets_its_label() {
    let cases = cases("more");
    assert!(cases.len() >= 60, "the cases are missing");
    let (table, wrong) = table_of(&cases);
    assert!(wrong.is_empty(), "{table}{}", wrong.join("\n"));
}

#[test]
fn every_row_finds_its_examples_and_not_its_counter_examples() {
    let mut names = std::collections::BTreeSet::new();
    for (index, row) in table::ALL.iter().flat_map(|part| part.iter()).enumerate() {
        assert!(names.insert(row.id), "{} stands twice", row.id);
        assert!(!row.meaning.is_empty() && !row.examples.is_empty(), "{} says nothing", row.id);
        let finds = |line: &str| {
            let mut found = false;
            SIGNATURES.each_word(line.as_bytes(), |_, row| found |= usize::from(row) == index);
            found && SIGNATURES.accepts(index as u16, line.as_bytes())
        };
        for example in row.examples {
            assert!(finds(example), "{} does not find {example}", row.id);
        }
        for counter in row.counter {
            assert!(!finds(counter), "{} finds {counter}", row.id);
        }
    }
}

#[test]
fn nothing_at_all_is_unknown() {
    assert_eq!(classify(&Evidence::default()).outcome, Outcome::Failure(crate::failure::FailureKind::Unknown));
}
