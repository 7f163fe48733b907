//! What the agent must not forget over its own restart: one file, replaced as a whole.

use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use rekindle_wire::agent::{ExitReport, Work};

use crate::evidence::Since;
use crate::files::{self, Layout};
use crate::kernel::OomKills;
use crate::progress::Tail;

/// Everything that is kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// The boot in which the rest was written.
    pub(crate) boot_id: String,
    /// The attempt that is carried out.
    pub(crate) attempt: Option<Attempt>,
    /// Number of the last order of a person that was begun.
    #[serde(default)]
    pub(crate) last_exec: u64,
    /// An exit was told before all output was sent, of which some waits still.
    #[serde(default)]
    pub(crate) has_unsent: bool,
}

/// How far an attempt has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Nothing was done.
    #[default]
    Fresh,
    /// Everything older has ended, the devices are free, the code is there.
    Prepared,
    /// `setup` was started.
    Setup,
    /// The program can be started.
    Ready,
    /// The program was started.
    Run,
}

/// One attempt, as far as this worker goes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Attempt {
    /// Its number.
    pub(crate) number: u32,
    /// What to run, once it was told.
    pub(crate) work: Option<Work>,
    /// How far it has come.
    pub(crate) step: Step,
    /// Its working directory was emptied, as its work asks.
    #[serde(default)]
    pub(crate) is_cleaned: bool,
    /// We ended it: when, and when it is killed. Never taken back.
    pub(crate) stop: Option<Stop>,
    /// Where the output of the step under way begins.
    pub(crate) since: Since,
    /// The kernel's counters when it began.
    pub(crate) oom_kills: OomKills,
    /// The machine was started anew while its program ran.
    #[serde(default)]
    pub(crate) rebooted: bool,
    /// Start of the program.
    pub(crate) started_at: Option<Timestamp>,
    /// Progress lines.
    pub(crate) progress: Tail,
    /// How it ended, once nothing of it lives.
    pub(crate) exit: Option<ExitReport>,
    /// What the program left is being collected.
    #[serde(default)]
    pub(crate) is_collecting: bool,
    /// `api` has stored the exit.
    pub(crate) is_accepted: bool,
}

impl Attempt {
    /// Reads what the program has newly written to its progress file in that folder. True if there was anything.
    pub(crate) fn read_progress(&mut self, folder: &Path, is_last: bool) -> bool {
        let known = self.work.as_ref().and_then(|work| work.highest_step);
        self.progress.read(&folder.join("progress"), known, Timestamp::now(), is_last)
    }
}

/// An end that we ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stop {
    /// SIGTERM was sent.
    pub(crate) at: Timestamp,
    /// SIGKILL is sent then, by our clock.
    pub(crate) kill_at: Timestamp,
}

impl State {
    /// What was kept, or nothing.
    pub(crate) fn load(layout: &Layout) -> Self {
        files::read_json(&layout.state()).unwrap_or_default()
    }

    /// Something is known, and the machine was started anew since.
    pub(crate) fn is_of_another_boot(&self, boot_id: &str) -> bool {
        !self.boot_id.is_empty() && self.boot_id != boot_id
    }
}
