//! Why something was decided, or why a job waits: a closed list.

use serde::{Deserialize, Serialize};

/// The reasons. Names in snake_case are part of the outside interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Accepted, nothing done yet.
    Submitted,
    /// A create was decided.
    CreateRequested,
    /// The TPU is being made.
    Creating,
    /// The request waits in the provider's queue.
    InProviderQueue,
    /// No candidate has capacity now.
    Stockout,
    /// A quota is used up.
    Quota,
    /// Too many creates a minute, by the provider.
    RateLimit,
    /// No candidate of the job is offered or allowed.
    NoCandidate,
    /// Waits for a create permit of this minute.
    CreateBudget,
    /// `max_chips` would be passed.
    MaxChips,
    /// `max_usd_per_day` would be passed.
    MaxUsd,
    /// The installation is frozen.
    Frozen,
    /// Waits for our own delete to free the quota.
    OwnDelete,
    /// Waits between generations without progress.
    BackOff,
    /// The create took longer than its limit.
    CreateTimeout,
    /// The API could not be asked.
    ApiUnknown,
    /// The TPU is READY; workers prepare.
    WorkersPreparing,
    /// Waits until no worker can be running the earlier attempt.
    Fencing,
    /// `run` was released.
    Released,
    /// The program runs.
    Running,
    /// A notice of preemption.
    PreemptionNotice,
    /// A notice of maintenance that is some time away.
    MaintenanceNotice,
    /// The slice was preempted.
    Preempted,
    /// The slice was ended by maintenance.
    Maintenance,
    /// The slice is gone, nobody said why.
    Lost,
    /// Heartbeats silent, and the API does not say READY and healthy.
    Silent,
    /// Heartbeats silent past the hard limit.
    SilentTooLong,
    /// The node stayed unhealthy too long.
    Unhealthy,
    /// The slice was preempted while it was being made.
    PreemptedWhileCreating,
    /// A worker rebooted and lost its program.
    WorkerRebooted,
    /// A worker's program ended; the others are being ended.
    WorkerExited,
    /// The program's end was judged: resume on the same slice.
    ResumeInPlace,
    /// The program's end was judged: restart on the same slice from scratch.
    RestartInPlace,
    /// The program's end was judged: a new generation.
    Recreate,
    /// A failure waits for the settle window.
    Settling,
    /// No new step for too long.
    Stalled,
    /// The start limit passed.
    StartTimeout,
    /// The attempt limit passed.
    AttemptTimeout,
    /// The total limit passed.
    TotalTimeout,
    /// The queue limit passed.
    QueueTimeout,
    /// The cost limit passed.
    CostLimit,
    /// All workers ended well.
    Succeeded,
    /// The policy says fail.
    ProgramFailed,
    /// A budget is used up.
    BudgetExhausted,
    /// Too many generations in a row without progress.
    NoNetProgress,
    /// A person cancelled.
    CancelRequested,
    /// A person paused.
    PauseRequested,
    /// A person unpaused.
    UnpauseRequested,
    /// A person restarted.
    RestartRequested,
    /// Waits until resources are gone.
    Deleting,
    /// A delete is refused or does nothing; it is sent again.
    DeleteRetry,
    /// The last resource is gone.
    AllGone,
}

impl Reason {
    /// The name in snake_case.
    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            _ => String::new(),
        }
    }
}
