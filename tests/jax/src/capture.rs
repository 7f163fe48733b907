//! What the workers of an attempt left, as a labelled case of `tests/cases`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::training::WORKERS;

/// The folders `…/jobs/JOB/g1/a1` of all workers below a state folder, in the order of their names.
fn attempts(state: &Path, job: &str) -> Vec<PathBuf> {
    let end = Path::new("rekindle/jobs").join(job).join("g1/a1");
    let mut found = Vec::new();
    let mut open = vec![(state.to_owned(), 0_u32)];
    while let Some((folder, depth)) = open.pop() {
        let attempt = folder.join(&end);
        if attempt.is_dir() {
            found.push(attempt);
            continue;
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let below = entries.filter(|entry| depth < 6 && entry.file_type().is_ok_and(|kind| kind.is_dir()));
        open.extend(below.map(|entry| (entry.path(), depth + 1)));
    }
    found.sort();
    found
}

/// Takes the names of this machine out of a text: whatever stands before the names that the cases share.
fn scrubbed(text: &str, names: &[(String, &str)]) -> String {
    names.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from.as_str(), to))
}

fn worker(folder: &Path, names: &[(String, &str)]) -> Result<(u64, Value)> {
    let read = |name: &str| fs::read(folder.join(name)).with_context(|| format!("{name} in {}", folder.display()));
    let text = |name: &str| Ok::<_, anyhow::Error>(String::from_utf8_lossy(&read(name)?).replace('\0', ""));
    let spec: Value = serde_json::from_slice(&read("run.spec.json")?)?;
    let index: u64 = spec["env"]["REKINDLE_WORKER"].as_str().context("no worker")?.parse()?;
    let ended: Value = serde_json::from_slice(&read("run.ended.json")?)?;
    let code = ended["exit"]["code"].as_i64().or_else(|| Some(128 + ended["exit"]["signal"].as_i64()?));
    let tail = scrubbed(&format!("{}{}", text("stdout")?, text("stderr")?), names);
    Ok((index, json!({"index": index, "exit_code": code, "tail": tail})))
}

/// Reads the first attempt of a job from the workers' own files.
///
/// # Errors
/// If a worker is missing, or has not ended.
pub fn case_of(state: &Path, job: &str, python: &Path, label: &str, also: &[&str]) -> Result<Value> {
    let environment = python.ancestors().nth(2).context("no environment")?;
    let root = state.parent().context("the state folder has no parent")?;
    let names = [
        (environment.display().to_string(), "/home/user/venv"),
        (env!("CARGO_MANIFEST_DIR").to_owned(), "/home/user/job"),
        (root.display().to_string(), "/home/user/state"),
    ];
    let folders = attempts(state, job);
    let mut workers = folders.iter().map(|folder| worker(folder, &names)).collect::<Result<Vec<_>>>()?;
    workers.sort_by_key(|(index, _)| *index);
    ensure!(workers.len() == WORKERS as usize, "{} workers of {job} left something", workers.len());
    let workers: Vec<Value> = workers.into_iter().map(|(_, worker)| worker).collect();
    let exit_code = workers.iter().filter_map(|worker| worker["exit_code"].as_i64()).max();
    Ok(json!({
        "id": job,
        "label": label,
        "secondary_ok": also,
        "exit_code": exit_code,
        "workers": workers,
        "multi_worker": true,
        "source": "tests/jax: real JAX processes, and what was done to them",
        "provenance": "found",
    }))
}
