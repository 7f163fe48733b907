//! The labelled cases, the table's own examples, and what must not change a verdict.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::signature::SIGNATURES;
use super::table;
use super::{Evidence, Outcome, case, classify, shorten};

#[derive(Debug, Deserialize)]
struct Known {
    id: String,
    label: String,
    #[serde(default)]
    secondary_ok: Vec<String>,
}

struct Case {
    known: Known,
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
            Case { known: serde_json::from_str(&text).unwrap(), evidence: case::from_case_json(&text).unwrap() }
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
        let accepted = |name: &str| case.known.label == name || case.known.secondary_ok.iter().any(|ok| ok == name);
        let row = rows.entry(&case.known.label).or_default();
        row.0 += 1;
        row.1 += usize::from(kind == case.known.label);
        row.2 += usize::from(accepted(kind));
        if !accepted(kind) {
            wrong.push(format!("{} {} -> {kind}: {}", case.known.id, case.known.label, verdict.summary));
        }
        let decisions: Vec<&str> =
            std::iter::once(&case.known.label).chain(&case.known.secondary_ok).map(|label| action_of(label)).collect();
        if !decisions.contains(&verdict.action.as_str()) {
            wrong.push(format!("{} {}: action {}", case.known.id, case.known.label, verdict.action.as_str()));
        }
    }
    let lines = rows.iter().map(|(label, (all, first, ok))| format!("{label:<16} {all:>4} {first:>5} {ok:>9}\n"));
    (format!("label            cases  label  accepted\n{}", lines.collect::<String>()), wrong)
}

/// Shows a table to whoever runs the tests.
fn show(table: &str) {
    use std::io::Write as _;
    std::io::stderr().write_all(table.as_bytes()).unwrap();
}

#[test]
fn every_labelled_case_gets_its_label() {
    let cases = cases("failures");
    assert!(cases.len() >= 70, "the cases are missing");
    let (table, wrong) = table_of(&cases);
    show(&table);
    assert!(wrong.is_empty(), "{table}{}", wrong.join("\n"));
}

#[test]
fn every_further_case_gets_its_label() {
    let cases = cases("more");
    assert!(cases.len() >= 60, "the cases are missing");
    let (table, wrong) = table_of(&cases);
    show(&table);
    assert!(wrong.is_empty(), "{table}{}", wrong.join("\n"));
}

#[test]
fn every_captured_case_gets_its_label() {
    let cases = cases("jax");
    assert!(cases.len() >= 6, "the cases are missing");
    let (table, wrong) = table_of(&cases);
    show(&table);
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

fn all_cases() -> Vec<Case> {
    let mut all = cases("failures");
    all.extend(cases("more"));
    all.extend(cases("jax"));
    all
}

fn changed(case: &Case, change: impl Fn(&str) -> String) -> Evidence {
    let mut evidence = case.evidence.clone();
    for worker in &mut evidence.workers {
        worker.tail = change(&worker.tail);
    }
    evidence
}

fn assert_same(case: &Case, evidence: &Evidence, what: &str) {
    let (before, after) = (classify(&case.evidence), classify(evidence));
    assert_eq!(
        (before.outcome, before.action),
        (after.outcome, after.action),
        "{} {} differs when {what}: {} / {}",
        case.known.id,
        case.known.label,
        before.summary,
        after.summary
    );
}

#[test]
fn the_order_of_workers_changes_nothing() {
    for case in all_cases() {
        for turn in 0..case.evidence.workers.len() {
            let mut evidence = case.evidence.clone();
            evidence.workers.rotate_left(turn);
            assert_same(&case, &evidence, "workers are rotated");
            evidence.workers.reverse();
            assert_same(&case, &evidence, "workers are reversed");
            for (index, worker) in evidence.workers.iter_mut().enumerate() {
                worker.index = index as u32;
            }
            assert_same(&case, &evidence, "workers are numbered anew");
        }
    }
}

#[test]
fn names_of_hosts_change_nothing() {
    let names = [
        ("worker-", "t1v-n-0a1b2c3d-w-"),
        ("10.0.0.", "192.168.77."),
        ("my-bucket", "other-store"),
        ("/home/user", "/srv/people/someone"),
    ];
    for case in all_cases() {
        let evidence =
            changed(&case, |tail| names.iter().fold(tail.to_owned(), |text, (from, to)| text.replace(from, to)));
        assert_same(&case, &evidence, "hosts are renamed");
    }
}

#[test]
fn a_thousand_harmless_lines_change_nothing() {
    for case in all_cases() {
        // A thousand for each case: half of them before what its workers said, half after it.
        let noise = harmless(500 / case.evidence.workers.len().max(1));
        let evidence = changed(&case, |tail| format!("{noise}{tail}\n{noise}"));
        assert_same(&case, &evidence, "harmless lines stand before and after");
    }
}

/// At least so many lines as loggers and loaders print them all day.
fn harmless(lines: usize) -> String {
    use std::fmt::Write as _;
    let mut noise = String::new();
    for line in 0..lines.div_ceil(4) {
        let _ = write!(
            noise,
            "I1127 09:00:00.{line:06} 77 data.py:88] shard {line} of 512 is open\nDEBUG:root:cache hit\n\
             2026-11-27 09:00:01,000 INFO loader buffer holds {line} batches\n  {line} rows, 12 columns\n"
        );
    }
    noise
}

#[test]
fn shifted_clocks_change_nothing() {
    let time = regex::Regex::new(r"\b([01]\d|2[0-3]):([0-5]\d):([0-5]\d)").unwrap();
    for case in all_cases() {
        for shift_secs in [5_820_u32, 43_200, 86_399] {
            let evidence = changed(&case, |tail| {
                time.replace_all(tail, |found: &regex::Captures<'_>| {
                    let part = |index: usize| found[index].parse::<u32>().unwrap();
                    let all = (part(1) * 3600 + part(2) * 60 + part(3) + shift_secs) % 86_400;
                    format!("{:02}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60)
                })
                .into_owned()
            });
            assert_same(&case, &evidence, "clocks are shifted");
        }
    }
}

#[test]
fn a_tail_that_was_cut_for_a_large_slice_tells_the_same() {
    const SHARE: usize = 8 << 10;
    // What a program says stands between what a runtime goes on to say.
    let talk = |n: usize| format!("I0827 11:58:{:02}.{n:06} 77 transport.cc:11] a call took {n} us\n", n % 60);
    let (before, after) = ((0..40).map(talk).collect::<String>(), (0..150).map(talk).collect::<String>());
    let (mut cut, mut wrong) = (0, Vec::new());
    for case in ["failures", "more", "jax"].into_iter().flat_map(cases) {
        let mut whole = case.evidence;
        for worker in &mut whole.workers {
            worker.tail = format!("{before}{}\n{after}", worker.tail);
        }
        let mut short = whole.clone();
        for worker in &mut short.workers {
            let tail = shorten(worker, SHARE).unwrap();
            assert!(tail.len() <= SHARE, "{}: {} bytes", case.known.id, tail.len());
            (worker.tail, cut) = (tail, cut + 1);
        }
        let (whole, short) = (classify(&whole), classify(&short));
        // What is quoted where nothing decides is what stands at the end of what is left.
        let decided = |summary: &str| summary.split("; it last said").next().map(str::to_owned);
        let told = |verdict: &super::Verdict| (verdict.outcome, decided(&verdict.summary), verdict.evidence.clone());
        if told(&short) != told(&whole) {
            wrong.push(format!("{}: {:?} and not {:?}", case.known.id, told(&short), told(&whole)));
        }
    }
    assert!(cut > 500, "{cut} tails");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
