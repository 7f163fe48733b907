//! HTTP v1: what people, scripts and the command line read and write. Fields are added, never changed or dropped.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use rekindle_core::decide::saved_by_all;
use rekindle_core::explain;
use rekindle_core::failure::FailureKind;
use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::{Create, Desired, Generation, Job, LastEnd, Outcome, Phase, Usage};
use rekindle_core::observation::WorkerReport;
use rekindle_core::reason::Reason;
use rekindle_core::settings::Deployment;
use rekindle_core::spec::CapacityKind;

use crate::spec_view;

mod fleet;
mod letters;
mod output;
mod space;

pub use fleet::*;
pub use letters::*;
pub use output::*;
pub use space::*;

/// A job as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// Coarse state.
    pub phase: Phase,
    /// Since when.
    pub phase_since: Timestamp,
    /// The end, from the moment it is known.
    pub outcome: Option<Outcome>,
    /// Why it is where it is: a name in snake_case.
    pub reason: Reason,
    /// The same in one sentence.
    pub message: String,
    /// What people want of it: `run`, `pause`, `cancel`.
    pub desired: Desired,
    /// Number of the newest attempt; 0: none yet.
    pub attempt: u32,
    /// Number of the newest generation; 0: none yet.
    pub generation: u32,
    /// What it waits for; absent when it waits for nothing.
    pub waiting_for: Option<String>,
    /// When the next pass is due, if nothing happens before.
    pub next_wake_at: Option<Timestamp>,
    /// TPUs that it owns now.
    pub resources: Vec<ResourceView>,
    /// Numbers that only grow.
    pub counters: CountersView,
    /// What the program last told.
    pub progress: ProgressView,
    /// Cost so far in US dollars, by the deployment's capacity list.
    pub cost_usd: f64,
    /// Chip hours so far.
    pub chip_hours: ChipHoursView,
    /// How the last attempt that ended did so.
    pub last_end: Option<EndView>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When the program first started.
    pub first_started_at: Option<Timestamp>,
    /// Who submitted it.
    pub submitted_by: String,
    /// Who pays.
    pub owner: String,
    /// Labels for people.
    pub tags: Vec<String>,
    /// REKINDLE_RUN_ID.
    pub run_id: String,
    /// REKINDLE_LINE.
    pub line: u32,
    /// Grows with every change.
    pub revision: u64,
    /// When that was. `null`: the server is too old to tell.
    #[serde(default)]
    pub changed_at: Option<Timestamp>,
    /// The spec, with every default that is the spec's own; in a list asked for with `view=list` only its accelerator.
    pub spec: Value,
    /// What fields that the spec leaves out mean in this deployment now, by their path; with one job alone.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub defaults: Map<String, Value>,
    /// The newest event that a webhook of the job was not told, if there is one; with one job alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untold: Option<DeadLetterView>,
}

/// A TPU that a job owns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceView {
    /// Generation.
    pub generation: u32,
    /// Id of the node or queued resource.
    pub name: String,
    /// `node` or `queued_resource`.
    pub kind: String,
    /// Zone.
    pub zone: String,
    /// Accelerator type.
    pub accelerator: String,
    /// How it is bought.
    pub capacity: CapacityKind,
    /// Slices.
    pub slices: u32,
    /// Workers of all slices.
    pub workers: u32,
    /// Chips of all slices.
    pub chips: u32,
    /// `creating`, `ready`, `lost`, `deleting`.
    pub state: String,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it was first READY.
    pub ready_at: Option<Timestamp>,
    /// When it will be taken away, if it was told.
    pub notice_deadline: Option<Timestamp>,
    /// Cost in US dollars an hour; 0 once it is lost or off.
    pub usd_per_hour: f64,
}

/// Counters of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountersView {
    /// Preemptions and maintenance.
    pub preemptions: u32,
    /// The infrastructure's failures.
    pub infra_failures: u32,
    /// The user's failures.
    pub user_failures: u32,
    /// Creates that met no capacity.
    pub stockouts: u32,
    /// Resumes from a checkpoint line.
    pub resumes: u32,
    /// Steps computed again after a resume.
    pub steps_repeated: u64,
}

/// Progress of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressView {
    /// Highest step of the current checkpoint line.
    pub step: Option<u64>,
    /// When it was reported, where that is known.
    pub step_at: Option<Timestamp>,
    /// Loss there, as the program wrote it.
    pub loss: Option<String>,
    /// The newest checkpoint that the whole job can go on from; it may fall.
    pub checkpoint: Option<u64>,
}

/// Chip hours of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChipHoursView {
    /// All that were READY.
    pub total: f64,
    /// While the program ran new steps.
    pub useful: f64,
    /// While it repeated steps.
    pub repeated: f64,
    /// Before the program ran: set-up, and the wait for the other workers.
    pub waiting: f64,
    /// After it had ended or was heard of last, until the slice was gone. Servers of earlier versions count it as waiting.
    #[serde(default)]
    pub idle: f64,
}

/// The judged end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndView {
    /// Attempt.
    pub attempt: u32,
    /// Generation.
    pub generation: u32,
    /// When.
    pub at: Timestamp,
    /// Kind of failure; absent: it succeeded, or a person ended it.
    pub kind: Option<FailureKind>,
    /// The root cause in one sentence.
    pub summary: String,
}

const CHIP_SECS_PER_HOUR: f64 = 3600.0;
const MICROS: f64 = 1e6;

impl JobView {
    /// The view of a job, with the newest reports of its current attempt's workers (none: the job document alone).
    pub fn of(job: &Job, workers: &[WorkerReport]) -> Self {
        Self::build(job, &job.usage, workers, spec_view::spec(&job.spec))
    }

    fn build(job: &Job, usage: &Usage, workers: &[WorkerReport], spec: Value) -> Self {
        let hours = |secs: u64| secs as f64 / CHIP_SECS_PER_HOUR;
        Self {
            id: job.id.clone(),
            phase: job.phase,
            phase_since: job.phase_since,
            outcome: job.outcome,
            reason: job.reason,
            message: job.message.clone(),
            desired: job.desired,
            attempt: job.last_attempt,
            generation: job.last_generation,
            waiting_for: explain::waiting_for(job),
            next_wake_at: job.wake_at,
            resources: job.generations.iter().map(resource).collect(),
            counters: CountersView {
                preemptions: job.counters.preemptions,
                infra_failures: job.counters.infra_failures,
                user_failures: job.counters.user_failures,
                stockouts: job.counters.stockouts,
                resumes: job.counters.resumes,
                steps_repeated: job.steps_repeated(workers),
            },
            progress: progress(job, workers),
            cost_usd: usage.cost_usd_micros as f64 / MICROS,
            chip_hours: ChipHoursView {
                total: hours(usage.paid_chip_secs),
                useful: hours(usage.useful_chip_secs),
                repeated: hours(usage.repeated_chip_secs),
                waiting: hours(usage.waiting_chip_secs),
                idle: hours(usage.idle_chip_secs),
            },
            last_end: job.last_end.as_ref().map(end),
            created_at: job.created_at,
            first_started_at: job.first_started_at,
            submitted_by: job.submitted_by.clone(),
            owner: job.spec.owner.clone(),
            tags: job.spec.tags.clone(),
            run_id: job.run_id.clone(),
            line: job.line,
            revision: job.revision,
            changed_at: Some(job.changed_at),
            spec,
            defaults: Map::new(),
            untold: None,
        }
    }

    /// The same with what its spec leaves out.
    #[must_use]
    pub fn with_defaults(mut self, job: &Job, deployment: &Deployment) -> Self {
        self.defaults = spec_view::defaults(job, deployment);
        self
    }

    /// The same with the step that one worker has told of since: passes look at reports that only go on each few minutes. The checkpoint is all
    /// workers' own, and stays.
    #[must_use]
    pub fn with_newer_step(mut self, report: &WorkerReport) -> Self {
        if report.step.is_some() && report.step >= self.progress.step {
            (self.progress.step, self.progress.step_at) = (report.step, report.step_at);
            self.progress.loss.clone_from(&report.loss);
        }
        self
    }

    /// The view for a list, with chip time and cost as of a moment: of its spec only what a list shows.
    pub fn in_list(job: &Job, usage: &Usage) -> Self {
        Self::build(job, usage, &[], spec_view::brief(&job.spec))
    }
}

/// Passes look at reports when something changes; between them the reports themselves are newer.
fn progress(job: &Job, workers: &[WorkerReport]) -> ProgressView {
    let newest = workers.iter().filter(|w| w.step.is_some()).max_by_key(|w| w.step);
    match newest {
        Some(w) if w.step >= job.step() => ProgressView {
            step: w.step,
            step_at: w.step_at,
            loss: w.loss.clone(),
            checkpoint: saved_by_all(job, workers),
        },
        _ => ProgressView {
            step: job.step(),
            step_at: None,
            loss: job.last_loss.clone(),
            checkpoint: saved_by_all(job, workers),
        },
    }
}

fn resource(g: &Generation) -> ResourceView {
    let state = match (&g.delete, &g.lost, &g.create) {
        (Some(_), _, _) => "deleting",
        (None, Some(_), _) => "lost",
        (None, None, Create::Failed { .. }) => "failed",
        (None, None, _) if g.ready_at.is_some() => "ready",
        (None, None, _) => "creating",
    };
    // The account stops there too.
    let is_off = g.lost.is_some() || g.ended_since.is_some();
    ResourceView {
        generation: g.number,
        name: g.name.clone(),
        kind: match g.via {
            rekindle_core::job::Via::Node => "node".into(),
            rekindle_core::job::Via::QueuedResource => "queued_resource".into(),
        },
        zone: g.placement.zone.clone(),
        accelerator: g.placement.accelerator.clone(),
        capacity: g.placement.capacity,
        slices: g.slices,
        workers: g.slices * g.workers,
        chips: g.chips,
        state: state.into(),
        created_at: g.intended_at,
        ready_at: g.ready_at,
        notice_deadline: g.notice.as_ref().filter(|n| n.takes_away()).map(|n| n.deadline),
        usd_per_hour: if is_off { 0.0 } else { g.usd_micros_per_hour as f64 / MICROS },
    }
}

fn end(of: &LastEnd) -> EndView {
    EndView {
        attempt: of.attempt,
        generation: of.generation,
        at: of.ended.at,
        kind: of.ended.kind,
        summary: of.ended.summary.clone(),
    }
}

/// A page of jobs, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobList {
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// Give it as `page_token` for the next page; absent on the last one.
    pub next_page_token: Option<String>,
}

/// A page of history, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryList {
    /// The entries.
    pub entries: Vec<rekindle_core::history::HistoryEntry>,
    /// Give it as `page_token` for the next page; absent on the last one.
    pub next_page_token: Option<String>,
}

/// One accelerator type of the catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CatalogEntry {
    /// Accelerator type.
    pub accelerator: String,
    /// Family.
    pub family: String,
    /// Topology.
    pub topology: String,
    /// Chips.
    pub chips: u32,
    /// Worker VMs.
    pub workers: u32,
    /// Zones that offer it.
    pub zones: Vec<CatalogZone>,
    /// The runtime version that is used when a job names none.
    pub runtime_version: String,
}

/// A zone that offers an accelerator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CatalogZone {
    /// Zone.
    pub zone: String,
    /// Kinds of capacity that the deployment's list allows there.
    pub allowed: Vec<CapacityKind>,
    /// US dollars for a chip-hour on demand, by the catalogue.
    pub usd_per_chip_hour: Option<f64>,
    /// US dollars for a chip-hour on spot, by the catalogue.
    pub spot_usd_per_chip_hour: Option<f64>,
}

/// The catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Catalog {
    /// Accelerator types.
    pub accelerators: Vec<CatalogEntry>,
    /// Every runtime version.
    pub runtime_versions: Vec<String>,
}

/// Answer of `freeze` and `thaw`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeView {
    /// True: no creates.
    pub frozen: bool,
    /// Who said so.
    pub by: String,
    /// When.
    pub at: Option<Timestamp>,
}

/// Answer of `POST /v1/bundles/{sha256}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleView {
    /// Address for the job spec's `code`.
    pub code: String,
    /// Where to PUT the bytes; absent when they are there already.
    pub upload: Option<String>,
    /// Whether it is there.
    #[serde(default)]
    pub present: bool,
}

/// Answer of `POST /v1/jobs?dry_run=true`: what the job would be, and where it would be tried. Nothing was stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanView {
    /// The spec, with every default that is the spec's own.
    pub spec: Value,
    /// Where a slice is asked for, in order.
    pub candidates: Vec<CandidateView>,
}

/// One place of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateView {
    /// Accelerator type.
    pub accelerator: String,
    /// Zone.
    pub zone: String,
    /// How it is bought.
    pub capacity: CapacityKind,
    /// Slices.
    pub slices: u32,
    /// Workers of all slices.
    pub workers: u32,
    /// Chips of all slices.
    pub chips: u32,
    /// US dollars an hour for all of it; 0 for granted quota.
    pub usd_per_hour: f64,
}

/// Body of `PATCH /v1/jobs/{id}`: what may be changed of any job, also of one that has ended. All fields are optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LabelsBody {
    /// Tags to add.
    pub add_tags: Vec<String>,
    /// Tags to take away.
    pub remove_tags: Vec<String>,
    /// The new notes; empty: none.
    pub notes: Option<String>,
}

/// Answer of `GET /v1/webhook-secret`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSecretView {
    /// Whose jobs it signs.
    pub owner: String,
    /// The secret in the form of Standard Webhooks: `whsec_` and base64.
    pub secret: String,
}

/// Header of every answer of a server of ours, with its version: what answers without it is something else, such as a proxy
/// or the login of a network.
pub const VERSION_HEADER: &str = "rekindle-version";

/// Answer of `GET /version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionView {
    /// Version of the server.
    pub version: String,
    /// Installation id.
    pub installation: String,
    /// Whether it is a local mode: its workers are processes of its own machine.
    #[serde(default, rename = "local", skip_serializing_if = "std::ops::Not::not")]
    pub is_local: bool,
}

/// Body of a command; all fields are optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandBody {
    /// Refused with 409 unless the job is at this attempt.
    pub if_attempt: Option<u32>,
    /// `restart`: with a new generation.
    pub new_slice: bool,
    /// `restart`: from scratch, on a new checkpoint line.
    pub from_scratch: bool,
}

/// `application/problem+json` (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A URI reference that names the sort of problem.
    #[serde(rename = "type")]
    pub ty: String,
    /// The same for people.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What happened here, and what to do.
    pub detail: String,
    /// Faults by field; of what is no field's fault, none.
    #[serde(default)]
    pub errors: Vec<FieldFault>,
    /// Further members, such as `phase`.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

/// One fault of one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldFault {
    /// The field, such as `tpu.accelerator`.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

/// `worker` of a path or query: `3`, or `1-3` for worker 3 of slice 1.
pub fn worker_key(text: &str) -> Option<WorkerKey> {
    // As the output names them, too: `w3`, `s1w3`.
    let named = text.strip_prefix('s').and_then(|rest| rest.split_once('w'));
    let alone = || text.strip_prefix('w').map_or(("0", text), |worker| ("0", worker));
    let (slice, worker) = named.or_else(|| text.split_once('-')).unwrap_or_else(alone);
    Some(WorkerKey { slice: slice.parse().ok()?, worker: worker.parse().ok()? })
}

/// Answer of `GET /v1/jobs/{id}/explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainView {
    /// The job.
    pub id: JobId,
    /// Its phase.
    pub phase: Phase,
    /// One paragraph: why it is where it is, and what happens next, when.
    pub paragraph: String,
    /// The facts that it rests on.
    pub facts: Vec<String>,
}
