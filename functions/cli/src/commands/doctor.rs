//! `doctor`: what this machine, the server and its project need, checked one by one.

mod cloud;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use owo_colors::OwoColorize as _;
use rekindle_local::STORE_ROOM_MIN;
use rekindle_wire::v1::{DeadLetterList, DeadLetterView, VersionView};

use super::{Context, letters};
use crate::answers::CheckLine;
use crate::api::typed;
use crate::args::Doctor;
use crate::dev::places::Places;
use crate::exit::Exit;
use crate::fault::Result;
use crate::human;

/// Below this a local run with checkpoints and logs may fail.
const DISK_FREE_MIN: u64 = 1 << 30;
/// Tokens and the order of events bear this much; a person's own clock that is further off confuses what is shown.
const CLOCK_OFF_MAX: SignedDuration = SignedDuration::from_secs(30);
/// What was given up before that is no concern any more.
const LETTERS_SINCE: SignedDuration = SignedDuration::from_hours(24);
/// An answer that takes longer makes every command feel slow.
const ANSWER_SLOW: Duration = Duration::from_secs(1);

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Something works less well, or only some commands need it.
    Warning,
    Bad,
}

struct Check {
    name: &'static str,
    verdict: Verdict,
    found: String,
    next: Option<String>,
}

fn good(name: &'static str, found: impl Into<String>) -> Check {
    Check { name, verdict: Verdict::Good, found: found.into(), next: None }
}

fn warning(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Check {
    Check { name, verdict: Verdict::Warning, found: found.into(), next: Some(mending(next.into())) }
}

fn bad(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Check {
    Check { name, verdict: Verdict::Bad, found: found.into(), next: Some(mending(next.into())) }
}

/// What mends a fault. It holds a command, between backticks: a word of advice alone leaves a person where they are.
fn mending(next: String) -> String {
    debug_assert!(next.matches('`').count() >= 2, "names no command: {next}");
    next
}

/// Checks everything; 1 if something is bad.
pub(crate) async fn run(context: &Context, options: &Doctor) -> Result<ExitCode> {
    let mut checks = server(context, options).await;
    let address = Ipv4Addr::new(127, 77, 66, 55);
    checks.extend([
        gcloud(),
        loopback(address, TcpListener::bind((address, 0)).map(drop)),
        processes(std::fs::read_to_string("/proc/self/stat").map(drop)),
        disk(&std::env::temp_dir(), free(&std::env::temp_dir())),
    ]);
    checks.extend(state_folder(options).map(|folder| state(&folder, free(&folder))));
    match (&options.project, &options.region) {
        (Some(project), Some(region)) => {
            let place = cloud::Place { project, region, database: &options.database };
            checks.extend(cloud::checks(&place).await);
        }
        _ => checks.push(cloud::unnamed()),
    }
    for check in &checks {
        show(context, check)?;
    }
    let is_bad = checks.iter().any(|check| check.verdict == Verdict::Bad);
    Ok(if is_bad { Exit::Fault } else { Exit::Done }.into())
}

fn show(context: &Context, check: &Check) -> Result<()> {
    if context.printer.is_json {
        let verdict = match check.verdict {
            Verdict::Good => "good",
            Verdict::Warning => "warning",
            Verdict::Bad => "bad",
        };
        let line = CheckLine { check: check.name, verdict, found: &check.found, next: check.next.as_deref() };
        return context.printer.json_line(&line);
    }
    let mark = match check.verdict {
        Verdict::Good => "ok     ".green().to_string(),
        Verdict::Warning => "warning".yellow().to_string(),
        Verdict::Bad => "bad    ".red().to_string(),
    };
    context.printer.line(&format!("{mark}  {:<10} {}", check.name, check.found))?;
    match &check.next {
        Some(next) => context.printer.line(&format!("{:21}{} {next}", "", "next:".cyan())),
        None => Ok(()),
    }
}

/// Address, answers, version, and the right to read.
async fn server(context: &Context, options: &Doctor) -> Vec<Check> {
    let api = &context.api;
    let begin = Instant::now();
    let version = match api.get("/version", &[]).await {
        Ok(value) => typed::<VersionView>(value),
        Err(fault) => Err(fault),
    };
    let took = begin.elapsed();
    let version = match version {
        Ok(version) => version,
        Err(fault) if api.is_default() && fault.status().is_none() => {
            let found = format!("none is configured, and none runs at {}", api.url());
            return vec![warning("server", found, "`rekindle dev` starts one here; --server names another")];
        }
        Err(fault) => {
            let next = "`rekindle doctor --server=URL` with the right address; REKINDLE_SERVER or the configuration file keeps it";
            return vec![bad("server", format!("{}: {}", api.url(), fault.what()), next)];
        }
    };
    let mut checks = vec![answers(api.url(), took), same_version(&version)];
    if let Some(ahead) = api.clock_ahead().await {
        checks.push(clock(ahead));
    }
    checks.push(match api.get_text("/ready", &[], |_| Ok(())).await {
        Ok(()) => good("ready", "the server reaches what it needs"),
        Err(fault) if fault.status().is_some_and(|status| status < 500) => good("ready", "the server is up"),
        Err(fault) => unready(fault.what(), options),
    });
    checks.push(match api.get("/v1/jobs", &[("page_size", Some("1".to_owned()))]).await {
        Ok(_) => good("rights", "jobs may be read"),
        Err(fault) => bad("rights", fault.what().to_owned(), "`gcloud auth login`, or ask an administrator"),
    });
    checks.extend(match api.get("/v1/dead-letters", &[("page_size", Some("100".to_owned()))]).await {
        Ok(value) => {
            typed::<DeadLetterList>(value).map_or_else(|_| Vec::new(), |list| dead(&list.letters, Timestamp::now()))
        }
        // What keeps it from being read is told above.
        Err(_) => Vec::new(),
    });
    checks
}

/// What was given up lately, webhooks and messages.
fn dead(letters: &[DeadLetterView], now: Timestamp) -> Vec<Check> {
    let late = letters.iter().filter(|letter| now.duration_since(letter.at) < LETTERS_SINCE);
    let (failed, unused): (Vec<_>, Vec<_>) = late.partition(|letter| letter.function == "notify");
    vec![webhooks(&failed, now), messages(&unused, now)]
}

/// Messages that could not be used.
fn messages(unused: &[&DeadLetterView], now: Timestamp) -> Check {
    let Some(newest) = unused.first() else { return good("messages", "all could be used in the last day") };
    let (count, function) = (human::count(unused.len() as u64, "message"), human::tame(&newest.function));
    let found = format!("{count} not used in the last day; the newest, from {function}: {}", letters::why(newest, now));
    // What comes from the platform nobody publishes anew.
    let then = if newest.function == "jobs" { "; mend it and publish it anew" } else { "" };
    warning("messages", found, format!("`rekindle dead-letters` shows each and why{then}"))
}

/// Webhooks that fail now, or were given up.
fn webhooks(failed: &[&DeadLetterView], now: Timestamp) -> Check {
    let Some(newest) = failed.first() else { return good("webhooks", "none has failed in the last day") };
    let events = human::count(failed.len() as u64, "event");
    let found = format!("{events} not told in the last day; the newest: {}", letters::why(newest, now));
    warning(
        "webhooks",
        found,
        "`rekindle dead-letters` lists them; mend what answers at that address, or `notify` of the job",
    )
}

fn answers(url: &str, took: Duration) -> Check {
    let found = format!("{url} answers in {} ms", took.as_millis());
    if took > ANSWER_SLOW {
        let next = "`rekindle doctor` again: a service that slept takes its time once; if it is slow each time, it is far away";
        warning("server", found, next)
    } else {
        good("server", found)
    }
}

fn same_version(server: &VersionView) -> Check {
    let own = env!("CARGO_PKG_VERSION");
    if server.version == own {
        return good("version", format!("{own} on both sides, installation {}", server.installation));
    }
    let found = format!("{own} here, {} on the server", server.version);
    let next = format!("`cargo install --locked --path functions/cli` in a clone of version {}", server.version);
    warning("version", found, next)
}

fn clock(ahead: SignedDuration) -> Check {
    let found = format!("the server's clock and this one differ by {} s", ahead.as_secs().abs());
    if ahead.abs() > CLOCK_OFF_MAX {
        warning("clock", found, "set this machine's clock (`timedatectl set-ntp true`)")
    } else {
        good("clock", found)
    }
}

fn unready(why: &str, options: &Doctor) -> Check {
    // The server says which disk, and what is to be done about it.
    if why.contains("make room on it") {
        return bad("ready", why.to_owned(), "`df -h` tells how full the disk of that file is");
    }
    let project = options.project.as_deref().unwrap_or("PROJECT");
    let region = options.region.as_deref().unwrap_or("REGION");
    let log = format!("`gcloud run services logs read rekindle-api --project={project} --region={region} --limit=50`");
    bad("ready", why.to_owned(), format!("{log} has its log, and the terminal of `rekindle dev` that of a local one"))
}

/// gcloud gives the token of a server in the cloud.
fn gcloud() -> Check {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("gcloud")).find(|file| file.is_file());
    match found {
        Some(file) => good("gcloud", file.display().to_string()),
        None => {
            warning("gcloud", "not on PATH", "only a server in the cloud needs it; or `export REKINDLE_TOKEN=TOKEN`")
        }
    }
}

/// Each emulated worker has an address of its own on loopback.
fn loopback(address: Ipv4Addr, bound: std::io::Result<()>) -> Check {
    match bound {
        Ok(()) => good("loopback", "every address of 127.0.0.0/8 can be used"),
        Err(error) => {
            let next = "`sudo ip link set lo up`; only Linux has all of 127.0.0.0/8, which `dev` and `demo` need";
            bad("loopback", format!("{address}: {error}"), next)
        }
    }
}

/// Emulated machines are process trees that are found again by /proc.
fn processes(read: std::io::Result<()>) -> Check {
    match read {
        Ok(()) => good("processes", "/proc can be read"),
        Err(error) => bad(
            "processes",
            format!("/proc: {error}"),
            "`sudo mount -t proc proc /proc`; `dev` and `demo` need it, and Linux",
        ),
    }
}

/// Bytes that may still be written to a folder.
fn free(folder: &Path) -> std::io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn disk(folder: &Path, free: std::io::Result<u64>) -> Check {
    let shown = folder.display();
    match free {
        Ok(free) => {
            let found = format!("{:.1} GiB free in {shown}", free as f64 / (1_u64 << 30) as f64);
            if free < DISK_FREE_MIN {
                let next = "`export TMPDIR=FOLDER` with one on a larger disk: `dev` and `demo` keep checkpoints and logs there";
                warning("disk", found, next)
            } else {
                good("disk", found)
            }
        }
        Err(error) => {
            bad("disk", format!("{shown}: {error}"), format!("`mkdir -p {shown}`, or `export TMPDIR=FOLDER`"))
        }
    }
}

/// The state folder of the local mode: the one that was named, else the usual one if there ever was a `rekindle dev`.
fn state_folder(options: &Doctor) -> Option<PathBuf> {
    let usual = || Places::usual().ok().filter(|folder| folder.is_dir());
    options.state.clone().or_else(usual)
}

/// Without room there, the local mode takes no change, and what is said by its programs waits in memory.
fn state(folder: &Path, free: std::io::Result<u64>) -> Check {
    let shown = folder.display();
    let free = match free {
        Ok(free) => free,
        Err(error) => {
            let next = "`rekindle doctor --state=DIR` with the folder that `rekindle dev` was given";
            return bad("state", format!("{shown}: {error}"), next);
        }
    };
    let next = format!(
        "`du -xh --max-depth=2 {shown} | sort -h` tells what fills it; with room, `rekindle dev` goes on by itself"
    );
    if free < STORE_ROOM_MIN {
        return bad("state", format!("the disk of {shown} is full ({} KiB free)", free >> 10), next);
    }
    let found = format!("{:.1} GiB free in {shown}", free as f64 / (1_u64 << 30) as f64);
    if free < DISK_FREE_MIN { warning("state", found, next) } else { good("state", found) }
}

#[cfg(test)]
mod tests;
