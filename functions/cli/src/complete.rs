//! What a shell proposes beside commands and options: jobs, workspaces, presets and aliases, as they are now; and what this
//! program knows by itself: types of TPUs, zones, phases, fields of a job.
//!
//! The script of `rekindle completion` runs this program again for each word, with [`VARIABLE`] set. A person waits for it:
//! a server that does not answer soon proposes nothing, and a fault is never shown.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::time::Duration;

use clap::CommandFactory as _;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _};
use clap_complete::env::{Bash, CompleteEnv, EnvCompleter, Fish, Shells, Zsh};
use rekindle_core::catalog;
use rekindle_core::job::Phase;
use rekindle_core::spec::fields::FIELDS;
use rekindle_wire::v1::JobView;
use serde_json::Value;

use crate::api::{Api, typed};
use crate::args::{Cli, Named};
use crate::config;
use crate::project::Project;

/// Its value is the shell that asks.
const VARIABLE: &str = "REKINDLE_COMPLETE";
/// How the program is called.
const NAME: &str = "rekindle";
/// A server has so long to tell its jobs.
const WITHIN: Duration = Duration::from_secs(2);
/// The newest jobs that are proposed.
const JOBS: &str = "500";

/// The shells that are known: those whose completion is tested.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    fn completer(self) -> &'static dyn EnvCompleter {
        match self {
            Self::Bash => &Bash,
            Self::Zsh => &Zsh,
            Self::Fish => &Fish,
        }
    }

    /// Its name, as it is given.
    pub(crate) fn name(self) -> &'static str {
        self.completer().name()
    }
}

/// Answers a shell that asks, and ends; returns where none does.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).shells(Shells(&[&Bash, &Zsh, &Fish])).complete();
}

/// The script that a shell reads. It calls this program by its name, as the person does whose words it completes.
pub(crate) fn script(shell: Shell) -> std::io::Result<Vec<u8>> {
    let mut script = Vec::new();
    shell.completer().write_registration(VARIABLE, NAME, NAME, NAME, &mut script)?;
    Ok(script)
}

/// Ids of jobs.
pub(crate) fn jobs() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| ids(current, |_| true))
}

/// Names of workspaces.
pub(crate) fn workspaces() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| ids(current, is_workspace))
}

fn is_workspace(job: &JobView) -> bool {
    job.spec["workspace"] == true && !job.phase.is_terminal()
}

/// Who pays for the newest jobs.
pub(crate) fn owners() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| of_jobs(current, |job| vec![job.owner.clone()]))
}

/// Tags of the newest jobs.
pub(crate) fn tags() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| of_jobs(current, |job| job.tags.clone()))
}

/// Folders, and the names that the configuration has for some.
pub(crate) fn folders() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let names = project().map(|project| project.folders().keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
        let names = names.into_iter().filter(|name| begins(name, current)).map(CompletionCandidate::new);
        PathCompleter::dir().complete(current).into_iter().chain(names).collect()
    })
}

/// One side of `sync`: files here, and `NAME:` of each workspace.
pub(crate) fn sides() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let there = of_jobs(current, |job| is_workspace(job).then(|| format!("{}:", job.id)).into_iter().collect());
        PathCompleter::any().complete(current).into_iter().chain(there).collect()
    })
}

/// Names of presets.
pub(crate) fn presets() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let names = project().map(|project| project.preset_names()).unwrap_or_default();
        names.into_iter().filter(|name| begins(name, current)).map(CompletionCandidate::new).collect()
    })
}

/// Accelerator types of the catalogue.
pub(crate) fn accelerators() -> ArgValueCompleter {
    words(|| catalog::accelerators().iter().map(|one| one.name.clone()).collect())
}

/// Zones of the catalogue.
pub(crate) fn zones() -> ArgValueCompleter {
    words(|| catalog::zones().into_iter().map(str::to_owned).collect())
}

/// Ways to buy a TPU.
pub(crate) fn capacities() -> ArgValueCompleter {
    words(|| ["spot", "preemptible", "on_demand", "reserved"].map(str::to_owned).to_vec())
}

/// Phases of a job.
pub(crate) fn phases() -> ArgValueCompleter {
    words(|| Phase::ALL.iter().map(|phase| phase.as_str()).chain([Named::DELETED]).map(str::to_owned).collect())
}

/// Fields of a job, and its sections.
pub(crate) fn fields() -> ArgValueCompleter {
    words(|| {
        let sections = FIELDS.iter().filter_map(|field| Some(field.name.split_once('.')?.0.trim_end_matches("[]")));
        let all = sections.chain(FIELDS.iter().map(|field| field.name));
        all.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
    })
}

/// Fields of a job that take one value: `limits.total=`.
pub(crate) fn assignments() -> ArgValueCompleter {
    words(|| {
        let single = FIELDS.iter().filter(|field| !field.name.contains("[]"));
        single.map(|field| format!("{}=", field.name)).collect()
    })
}

/// Files, and the short names of the program's arguments: `lr=`.
pub(crate) fn words_of_run() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let names = project().map(|project| project.alias_names()).unwrap_or_default();
        let names = names.into_iter().map(|name| format!("{name}=")).filter(|name| begins(name, current));
        PathCompleter::any().complete(current).into_iter().chain(names.map(CompletionCandidate::new)).collect()
    })
}

/// The words of a list that begin as what was typed.
fn words(all: fn() -> Vec<String>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        all().into_iter().filter(|word| begins(word, current)).map(CompletionCandidate::new).collect()
    })
}

fn project() -> Option<Project> {
    std::env::current_dir().ok().and_then(|here| Project::load(&here, None).ok())
}

fn begins(word: &str, current: &OsStr) -> bool {
    current.to_str().is_some_and(|begin| word.starts_with(begin))
}

/// Words that jobs have, each once.
fn of_jobs(current: &OsStr, words: impl Fn(&JobView) -> Vec<String>) -> Vec<CompletionCandidate> {
    let all: BTreeSet<String> = newest().iter().flat_map(words).filter(|word| begins(word, current)).collect();
    all.into_iter().map(CompletionCandidate::new).collect()
}

fn newest() -> Vec<JobView> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let asked = runtime.block_on(async { tokio::time::timeout(WITHIN, ask()).await });
    asked.ok().flatten().unwrap_or_default()
}

fn ids(current: &OsStr, is_wanted: fn(&JobView) -> bool) -> Vec<CompletionCandidate> {
    let jobs = newest().into_iter().filter(|job| is_wanted(job) && begins(job.id.as_str(), current));
    jobs.map(|job| CompletionCandidate::new(job.id.as_str()).help(Some(job.phase.as_str().into()))).collect()
}

/// The newest jobs of the server that the command will ask.
async fn ask() -> Option<Vec<JobView>> {
    let words: Vec<String> = std::env::args().collect();
    let given = option(&words, "--server").or_else(|| set("REKINDLE_SERVER"));
    let config = option(&words, "--config").or_else(|| set("REKINDLE_CONFIG"));
    let server = config::server(given.as_deref(), config.as_deref().map(std::path::Path::new)).ok()?;
    let api = Api::new(server, set("REKINDLE_TOKEN")).ok()?;
    let query = [("view", Some("list".to_owned())), ("page_size", Some(JOBS.to_owned()))];
    let mut page = api.get("/v1/jobs", &query).await.ok()?;
    let jobs: Vec<Value> = typed(page["jobs"].take()).ok()?;
    Some(jobs.into_iter().filter_map(|job| typed(job).ok()).collect())
}

fn set(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

/// What an option was given among the words typed so far.
fn option(words: &[String], name: &str) -> Option<String> {
    let at = words.iter().position(|word| word == name || word.starts_with(&format!("{name}=")))?;
    words[at].split_once('=').map(|(_, value)| value.to_owned()).or_else(|| words.get(at + 1).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_among_the_words_count() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for line in ["rekindle --server http://a show tr", "rekindle show --server=http://a tr"] {
            assert_eq!(option(&words(line), "--server").as_deref(), Some("http://a"), "{line}");
        }
        assert_eq!(option(&words("rekindle show --server"), "--server"), None);
        assert_eq!(option(&words("rekindle show tr"), "--server"), None);
    }
}
