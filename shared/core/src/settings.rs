//! The numbers that `decide` works with, and what the deployment allows.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::spec::CapacityKind;

/// Times and limits of the manager. [`Settings::scaled`] divides the waits for local runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Between two heartbeats of a worker.
    pub heartbeat: Duration,
    /// The same for workers with one chip.
    pub heartbeat_one_chip: Duration,
    /// Where calls cost nothing, workers write a heartbeat as often as this. Silence is measured by the two above all the same.
    #[serde(default)]
    pub heartbeat_free: Option<Duration>,
    /// Missed heartbeats after which a worker counts as silent.
    pub missed: u32,
    /// The same for workers with one chip.
    pub missed_one_chip: u32,
    /// A READY slice is given up after so long a silence.
    pub silence_hard: Duration,
    /// An exit is explained by a loss that is seen within this time after it.
    pub settle: Duration,
    /// After a worker's failure the others get so long before they are killed.
    pub exit_grace_failure: Duration,
    /// After a worker's exit 0 the others get so long before they are told to stop (which is `stalled`), as by any other stop.
    pub exit_grace_success: Duration,
    /// After the kill deadline, so long is waited for the workers' reports before the end is judged without them.
    pub exits_wait: Duration,
    /// A slice whose program has ended is kept for so long while its workers collect `outputs`.
    pub outputs_wait: Duration,
    /// No create for so long at a candidate that had no capacity.
    pub stockout_cooldown: Duration,
    /// No create for so long where a quota was used up.
    pub quota_cooldown: Duration,
    /// No create for so long where the provider's limit of creates a minute was met.
    pub rate_cooldown: Duration,
    /// A create of fewer than 64 VMs may take so long; from 64 half as long again, from 256 three times.
    pub create_limit: Duration,
    /// A READY node may be unhealthy for so long.
    pub unhealthy_grace: Duration,
    /// A node may be in a transition for so long.
    pub transition_grace: Duration,
    /// From the API's word that a slice has ended to the certainty that its machines are off.
    pub power_off: Duration,
    /// No handler sends a call after so long.
    pub handler_deadline: Duration,
    /// No call lasts longer.
    pub request_timeout: Duration,
    /// A delete that shows no effect is sent again after so long.
    pub delete_retry: Duration,
    /// First back-off between generations without progress; doubled each time.
    pub backoff_first: Duration,
    /// Longest back-off.
    pub backoff_max: Duration,
    /// Without progress lines, a run of this length counts as progress of the infra budget.
    pub long_run: Duration,
    /// Without progress lines, a generation of at least this length is no generation without progress.
    pub short_run: Duration,
    /// An orphan is deleted once it is older.
    pub orphan_grace: Duration,
    /// While there is neither a live job nor any TPU, the list of TPUs is read only so often. Shorter than `orphan_grace`: an orphan is
    /// seen before it may be deleted, and from then on each minute.
    pub idle_look: Duration,
    /// Without a tick, or without a call that `api` took, for so long, all silence clocks start again.
    pub outage_gap: Duration,
    /// Poll interval of agents outside steady running.
    pub poll_busy: Duration,
    /// Poll interval of agents in steady running that have no bell; heartbeats are rarer.
    pub poll_steady: Duration,
    /// The same of the agents of a workspace that nobody has used for some minutes.
    #[serde(default = "poll_idle")]
    pub poll_idle: Duration,
    /// Creates a minute for the project, nodes and queued resources together.
    pub creates_per_minute: u32,
    /// Passes take permits by themselves while fewer than so many of about a minute are used.
    pub creates_free_per_minute: u32,
}

// Of a one-chip worker's price a call each ten seconds takes half a per cent.
const fn poll_idle() -> Duration {
    Duration::from_secs(10)
}

/// Free heartbeats come no more often, however much the waits are divided.
const HEARTBEAT_FREE_MIN: Duration = Duration::from_secs(1);

impl Settings {
    /// The numbers of the local mode: those of the cloud, but that a heartbeat costs nothing.
    #[must_use]
    pub fn local() -> Self {
        Self { heartbeat_free: Some(Duration::from_secs(2)), ..Self::default() }
    }

    /// Creates in half a minute.
    #[must_use]
    pub fn creates_per_half(&self) -> u32 {
        self.creates_per_minute.div_ceil(2)
    }
}

impl Default for Settings {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self {
            // By the price of a call, a thousandth of the cheapest worker of that size (decision 11).
            heartbeat: secs(24),
            heartbeat_one_chip: secs(105),
            heartbeat_free: None,
            missed: 3,
            missed_one_chip: 2,
            silence_hard: secs(15 * 60),
            settle: secs(60),
            exit_grace_failure: secs(60),
            exit_grace_success: secs(600),
            exits_wait: secs(20),
            // Agents give up after four minutes.
            outputs_wait: secs(300),
            stockout_cooldown: secs(300),
            quota_cooldown: secs(300),
            rate_cooldown: secs(60),
            create_limit: secs(600),
            unhealthy_grace: secs(300),
            transition_grace: secs(900),
            // A machine has about 30 s to go down before it is switched off.
            power_off: secs(60),
            handler_deadline: secs(25),
            request_timeout: secs(10),
            delete_retry: secs(60),
            backoff_first: secs(30),
            backoff_max: secs(3600),
            long_run: secs(3600),
            short_run: secs(1800),
            orphan_grace: secs(600),
            idle_look: secs(480),
            outage_gap: secs(150),
            poll_busy: secs(1),
            poll_steady: secs(4),
            poll_idle: poll_idle(),
            creates_per_minute: 60,
            creates_free_per_minute: 30,
        }
    }
}

impl Settings {
    /// The same with every wait divided by `speed`; numbers that bound calls stay.
    #[must_use]
    pub fn scaled(&self, speed: f64) -> Self {
        let by = |d: Duration| Duration::from_secs_f64((d.as_secs_f64() / speed.max(0.001)).max(0.005));
        Self {
            heartbeat: by(self.heartbeat),
            heartbeat_one_chip: by(self.heartbeat_one_chip),
            // It is for the eyes of people, who read no faster where all else is.
            heartbeat_free: self.heartbeat_free.map(|d| by(d).max(HEARTBEAT_FREE_MIN)),
            silence_hard: by(self.silence_hard),
            settle: by(self.settle),
            exit_grace_failure: by(self.exit_grace_failure),
            exit_grace_success: by(self.exit_grace_success),
            exits_wait: by(self.exits_wait),
            outputs_wait: by(self.outputs_wait),
            stockout_cooldown: by(self.stockout_cooldown),
            quota_cooldown: by(self.quota_cooldown),
            rate_cooldown: by(self.rate_cooldown),
            create_limit: by(self.create_limit),
            unhealthy_grace: by(self.unhealthy_grace),
            transition_grace: by(self.transition_grace),
            power_off: by(self.power_off),
            delete_retry: by(self.delete_retry),
            backoff_first: by(self.backoff_first),
            backoff_max: by(self.backoff_max),
            long_run: by(self.long_run),
            short_run: by(self.short_run),
            orphan_grace: by(self.orphan_grace),
            idle_look: by(self.idle_look),
            outage_gap: by(self.outage_gap),
            poll_busy: by(self.poll_busy).max(Duration::from_millis(100)),
            poll_steady: by(self.poll_steady).max(Duration::from_millis(200)),
            poll_idle: by(self.poll_idle).max(Duration::from_millis(200)),
            ..self.clone()
        }
    }

    /// How long a create may take, by the number of VMs.
    // Deadlines in production use elsewhere: 600 s below 64 VMs, 900 s from 64, 1800 s from 256.
    pub fn create_limit(&self, vms: u32) -> Duration {
        match vms {
            0..64 => self.create_limit,
            64..256 => self.create_limit * 3 / 2,
            _ => self.create_limit * 3,
        }
    }

    /// The heartbeat interval that workers with that many chips are told.
    pub fn heartbeat_told(&self, chips_per_worker: u32) -> Duration {
        let paid = self.heartbeat_for(chips_per_worker);
        self.heartbeat_free.map_or(paid, |free| free.min(paid))
    }

    /// The interval by which the silence of workers with that many chips is measured.
    pub fn heartbeat_for(&self, chips_per_worker: u32) -> Duration {
        if chips_per_worker <= 1 { self.heartbeat_one_chip } else { self.heartbeat }
    }

    /// After so long without a word, workers with that many chips are silent.
    pub fn silence_for(&self, chips_per_worker: u32) -> Duration {
        let missed = if chips_per_worker <= 1 { self.missed_one_chip } else { self.missed };
        self.heartbeat_for(chips_per_worker) * missed
    }
}

/// One entry of the deployment's capacity list. Nothing outside the list is ever created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapacityEntry {
    /// Accelerator type, such as `v5litepod-16`, or a family with `*`, such as `v5litepod-*`.
    pub accelerator: String,
    /// Zone.
    pub zone: String,
    /// How it is bought.
    pub kind: CapacityKind,
    /// Most chips at once; `None`: no limit of its own.
    pub max_chips: Option<u32>,
    /// US dollars for a chip-hour; 0 for granted quota.
    pub usd_per_chip_hour: f64,
}

/// A network of the deployment's own, without external addresses: its routes out are Private Google Access and NAT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerNetwork {
    /// VPC network.
    pub network: String,
    /// Subnetwork, of the same name in each region; absent: the region's.
    pub subnetwork: Option<String>,
}

/// Most that may be in use at once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Most chips at once.
    #[serde(default)]
    pub max_chips: Option<u32>,
    /// Most US dollars a day, at the prices of the capacity list.
    #[serde(default)]
    pub max_usd_per_day: Option<f64>,
}

/// What the deployment allows and where its things are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Deployment {
    /// The capacity list.
    pub capacity: Vec<CapacityEntry>,
    /// Most chips of all jobs at once.
    pub max_chips: Option<u32>,
    /// Most US dollars a day of all jobs.
    pub max_usd_per_day: Option<f64>,
    /// Limits of single owners; who is not named has none of their own.
    #[serde(default)]
    pub owners: BTreeMap<String, Limits>,
    /// Who may do what with whose jobs, and what jobs may borrow.
    #[serde(default)]
    pub access: Access,
    /// Bucket or folder for checkpoints, logs and bundles, such as `gs://bucket` or `file:///path`.
    pub bucket: String,
    /// Regions of that bucket; empty: not known, every region is allowed.
    pub bucket_regions: Vec<String>,
    /// Address at which workers reach `api`.
    pub api_url: String,
    /// Default service account of the workers.
    pub worker_service_account: Option<String>,
    /// The workers' network for jobs that name none; absent: `default`, with external addresses.
    pub worker_network: Option<WorkerNetwork>,
    /// The workers' startup script, which fetches and starts the agent.
    pub startup_script: Option<String>,
    /// Node metadata that every worker gets, such as the agent's address and digest.
    pub worker_metadata: BTreeMap<String, String>,
}

impl Deployment {
    /// Whether everything is on one machine: workers are processes that share its folders, and no cloud is near.
    pub fn is_local(&self) -> bool {
        self.bucket.starts_with("file://")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_that_cost_nothing_are_frequent_and_silence_is_as_long() {
        let (cloud, local) = (Settings::default(), Settings::local());
        for (chips, paid) in [(1, 105), (4, 24), (8, 24)] {
            assert_eq!(cloud.heartbeat_told(chips), Duration::from_secs(paid), "{chips} chips");
            assert_eq!(local.heartbeat_told(chips), Duration::from_secs(2), "{chips} chips");
            assert_eq!(local.silence_for(chips), cloud.silence_for(chips), "{chips} chips");
        }
        let fast = local.scaled(20.0);
        assert_eq!(fast.heartbeat_told(4), Duration::from_secs(1), "no more often, however fast");
        assert_eq!(
            local.scaled(100.0).heartbeat_told(4),
            Duration::from_millis(240),
            "and no less often than in the cloud"
        );
    }

    #[test]
    fn creates_of_many_machines_may_take_longer() {
        let minutes = |vms| Settings::default().create_limit(vms).as_secs() / 60;
        assert_eq!([1, 63, 64, 255, 256, 768].map(minutes), [10, 10, 15, 15, 30, 30]);
    }
}
