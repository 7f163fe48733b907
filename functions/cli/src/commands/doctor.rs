//! `doctor`: what this machine, the server and its project need, checked one by one.

mod cloud;

use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use owo_colors::OwoColorize as _;
use rekindle_wire::v1::VersionView;

use super::Context;
use crate::answers::CheckLine;
use crate::api::typed;
use crate::args::Doctor;
use crate::exit::Exit;
use crate::fault::Result;

/// Below this a local run with checkpoints and logs may fail.
const DISK_FREE_MIN: u64 = 1 << 30;
/// Tokens and the order of events bear this much; a person's own clock that is further off confuses what is shown.
const CLOCK_OFF_MAX: SignedDuration = SignedDuration::from_secs(30);
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
    Check { name, verdict: Verdict::Warning, found: found.into(), next: Some(next.into()) }
}

fn bad(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Check {
    Check { name, verdict: Verdict::Bad, found: found.into(), next: Some(next.into()) }
}

/// Checks everything; 1 if something is bad.
pub(crate) async fn run(context: &Context, options: &Doctor) -> Result<ExitCode> {
    let mut checks = server(context).await;
    checks.extend([gcloud(), loopback(), processes(), disk()]);
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
async fn server(context: &Context) -> Vec<Check> {
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
    let found = format!("{} answers in {} ms", api.url(), took.as_millis());
    let mut checks = vec![if took > ANSWER_SLOW {
        warning("server", found, "each command waits for it; is it far away, or starting?")
    } else {
        good("server", found)
    }];
    let own = env!("CARGO_PKG_VERSION");
    checks.push(if version.version == own {
        good("version", format!("{own} on both sides, installation {}", version.installation))
    } else {
        let found = format!("{own} here, {} on the server", version.version);
        warning("version", found, "use the same version on both sides")
    });
    if let Some(ahead) = api.clock_ahead().await {
        let found = format!("the server's clock and this one differ by {} s", ahead.as_secs().abs());
        checks.push(if ahead.abs() > CLOCK_OFF_MAX {
            warning("clock", found, "set this machine's clock (`timedatectl set-ntp true`)")
        } else {
            good("clock", found)
        });
    }
    checks.push(match api.get_text("/ready", &[], |_| Ok(())).await {
        Ok(()) => good("ready", "the server reaches what it needs"),
        Err(fault) if fault.status().is_some_and(|status| status < 500) => good("ready", "the server is up"),
        Err(fault) => bad("ready", fault.what().to_owned(), "look at the server's log"),
    });
    checks.push(match api.get("/v1/jobs", &[("page_size", Some("1".to_owned()))]).await {
        Ok(_) => good("rights", "jobs may be read"),
        Err(fault) => bad("rights", fault.what().to_owned(), "`gcloud auth login`, or ask an administrator"),
    });
    checks
}

/// gcloud gives the token of a server in the cloud.
fn gcloud() -> Check {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("gcloud")).find(|file| file.is_file());
    match found {
        Some(file) => good("gcloud", file.display().to_string()),
        None => warning("gcloud", "not on PATH", "only a server in the cloud needs it; or set REKINDLE_TOKEN"),
    }
}

/// Each emulated worker has an address of its own on loopback.
fn loopback() -> Check {
    match TcpListener::bind((Ipv4Addr::new(127, 77, 66, 55), 0)) {
        Ok(_) => good("loopback", "every address of 127.0.0.0/8 can be used"),
        Err(error) => bad("loopback", format!("127.77.66.55: {error}"), "`dev` and `demo` need Linux"),
    }
}

/// Emulated machines are process trees that are found again by /proc.
fn processes() -> Check {
    match std::fs::read_to_string("/proc/self/stat") {
        Ok(_) => good("processes", "/proc can be read"),
        Err(error) => bad("processes", format!("/proc: {error}"), "`dev` and `demo` need Linux with /proc"),
    }
}

fn disk() -> Check {
    let folder = std::env::temp_dir();
    match rustix::fs::statvfs(&folder) {
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let found = format!("{:.1} GiB free in {}", free as f64 / (1_u64 << 30) as f64, folder.display());
            if free < DISK_FREE_MIN {
                warning("disk", found, "`dev` and `demo` keep checkpoints and logs; set TMPDIR to a larger disk")
            } else {
                good("disk", found)
            }
        }
        Err(error) => bad("disk", format!("{}: {error}", folder.display()), "set TMPDIR to a folder that exists"),
    }
}
