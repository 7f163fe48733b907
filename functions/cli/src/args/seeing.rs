//! What people look with, as it is typed.

use clap::{Args, ValueEnum};
use rekindle_core::job::Phase;

use crate::{complete, project};

/// `ps`.
#[derive(Debug, Default, Args)]
#[command(
    after_help = "Examples:\n  rekindle ps --live --owner ada\n  rekindle ps --phase failed --within 24h\n  rekindle ps train-1 --watch\n\nSTEP is what the first worker told last, in the cloud up to half a minute ago (two minutes where there is one chip); `rekindle show` asks all workers, and says when."
)]
pub(crate) struct Ps {
    /// Only these jobs
    #[arg(add = complete::jobs(), value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// Only jobs in this phase; may be repeated
    #[arg(add = complete::phases(), long, value_parser = phase, value_delimiter = ',')]
    pub(crate) phase: Vec<Named>,
    /// Only jobs of this owner
    #[arg(add = complete::owners(), long)]
    pub(crate) owner: Option<String>,
    /// Only jobs with this tag
    #[arg(add = complete::tags(), long)]
    pub(crate) tag: Option<String>,
    /// Only jobs that have not ended
    #[arg(long)]
    pub(crate) live: bool,
    /// Only jobs submitted within so long, such as 24h
    #[arg(long, value_name = "TIME", value_parser = crate::moment::span)]
    pub(crate) within: Option<std::time::Duration>,
    /// At most so many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// All of them
    #[arg(long, short = 'a', conflicts_with = "limit")]
    pub(crate) all: bool,
    /// Show them anew as they change, until Ctrl-C
    #[arg(long, short = 'w')]
    pub(crate) watch: bool,
}

/// A phase as people name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// By its own name.
    Phase(Phase),
    /// Of a workspace that was deleted; for a machine it is cancelled, as any job.
    Deleted,
}

impl Named {
    /// The word for [`Named::Deleted`].
    pub(crate) const DELETED: &str = "deleted";

    /// What the API calls it.
    pub(crate) fn phase(self) -> Phase {
        match self {
            Self::Phase(phase) => phase,
            Self::Deleted => Phase::Cancelled,
        }
    }
}

fn phase(text: &str) -> Result<Named, String> {
    let text = text.to_ascii_lowercase();
    if text == Named::DELETED {
        return Ok(Named::Deleted);
    }
    let names: Vec<&str> = Phase::ALL.iter().map(|phase| phase.as_str()).chain([Named::DELETED]).collect();
    Phase::parse(&text).map(Named::Phase).ok_or_else(|| {
        /// Less similar words were not meant.
        const LEAST: f64 = 0.85;
        let near = project::nearest(&text, names.iter().copied(), LEAST);
        let near = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
        format!("{near}phases are {}", names.join(", "))
    })
}

/// `show`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle show train-1\n  rekindle show train-1 --spec")]
pub(crate) struct Show {
    /// The job
    #[arg(add = complete::jobs())]
    pub(crate) job: String,
    /// With the whole spec, every default filled in
    #[arg(long)]
    pub(crate) spec: bool,
}

/// `account`.
#[derive(Debug, Args)]
#[command(after_help = ACCOUNT_EXAMPLES)]
pub(crate) struct Account {
    /// Broken down by; several with commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "owner", value_name = "WHAT")]
    pub(crate) by: Vec<By>,
    /// Only what this owner pays
    #[arg(add = complete::owners(), long)]
    pub(crate) owner: Option<String>,
    /// This week and those before it, so many in all
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=520))]
    pub(crate) weeks: u32,
    /// CSV on stdout, for a spreadsheet
    #[arg(long)]
    pub(crate) csv: bool,
}

/// By what an account is broken down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    // What each one is, its name says; words in the help would make it three times as long.
    Job,
    Owner,
    Tag,
    Week,
}

const ACCOUNT_EXAMPLES: &str = "\
Examples:
  rekindle account
  rekindle account --by week,owner --weeks 4
  rekindle account --by job --owner research --csv >account.csv

useful: the program ran, and repeated nothing: new steps, or all the time of a program that reports none. \
repeated: steps done before, after a resume. waiting: a TPU was there, the program not yet. \
idle: the program had ended, was ending, or was not heard of any more. orphan: nobody owned the TPU any more.

What the manager saw last holds until it looks again: of a program that ran for a few seconds, nothing may be useful.";

/// `since`.
#[derive(Debug, Args)]
#[command(after_help = SINCE_EXAMPLES)]
pub(crate) struct Since {
    /// From then on: so long ago, such as 12h, a time of day in UTC, such as 11:05, a day, or a day and time (yours, where no zone is named) [default: your last look, which is remembered; at first 24h]
    pub(crate) time: Option<String>,
    /// Only this owner's jobs
    #[arg(add = complete::owners(), long)]
    pub(crate) owner: Option<String>,
}

const SINCE_EXAMPLES: &str = "\
Examples:
  rekindle since
  rekindle since 12h --owner research
  rekindle since 2026-11-27
  rekindle since 2026-11-27T18:00:00Z --json

Without a time it goes on from where you last looked on this server, and remembers this look. With one, or with \
--json, it remembers nothing. A look with --owner is remembered for that owner; one without is a look at every owner's jobs.";

/// `top`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle top\n  rekindle top --owner research\n\nKeys: ? lists them.")]
pub(crate) struct Top {
    /// Only jobs of this owner
    #[arg(add = complete::owners(), long)]
    pub(crate) owner: Option<String>,
    /// Only jobs with this tag
    #[arg(add = complete::tags(), long)]
    pub(crate) tag: Option<String>,
}
