//! What people write on jobs, and what is told of them elsewhere: `tag`, `note`, `dead-letters`, `webhook-secret`.

use clap::Args;

use super::least_one;
use crate::complete;

/// `tag`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle tag train-1 ablation best\n  rekindle tag train-1 ablation,best\n  rekindle tag train-1 --remove best"
)]
pub(crate) struct Tag {
    /// The job
    #[arg(add = complete::jobs())]
    pub(crate) job: String,
    /// Tags to add; a comma parts two, as everywhere
    #[arg(add = complete::tags(), value_name = "TAG", required_unless_present = "remove", value_delimiter = ',')]
    pub(crate) add: Vec<String>,
    /// Tag to take away; several with commas
    #[arg(add = complete::tags(), long, value_name = "TAG", value_delimiter = ',')]
    pub(crate) remove: Vec<String>,
}

/// `note`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle note train-1 on fewer chips\n  rekindle note train-1 'diverged at 40k, see W&B'\n  rekindle note train-1 ''"
)]
pub(crate) struct Note {
    /// The job
    #[arg(add = complete::jobs())]
    pub(crate) job: String,
    /// The note, also in several words; an empty one, '', takes it away
    #[arg(required = true, value_name = "TEXT")]
    pub(crate) text: Vec<String>,
}

/// `dead-letters`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle dead-letters\n  rekindle dead-letters train-1 --json | jq .letters[].reason"
)]
pub(crate) struct DeadLetters {
    /// Only those about this job
    #[arg(add = complete::jobs())]
    pub(crate) job: Option<String>,
    /// At most so many
    #[arg(long, short = 'n', value_name = "N", default_value = "50", value_parser = least_one)]
    pub(crate) limit: usize,
}

/// `webhook-secret`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle webhook-secret")]
pub(crate) struct WebhookSecret {
    /// Of this owner's jobs; for admins [default: you]
    #[arg(long)]
    pub(crate) owner: Option<String>,
}
