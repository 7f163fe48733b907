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
    /// Waits for a create permit: so many a minute are given for the project.
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
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 46] = [
        Self::Submitted,
        Self::CreateRequested,
        Self::Creating,
        Self::InProviderQueue,
        Self::Stockout,
        Self::Quota,
        Self::RateLimit,
        Self::NoCandidate,
        Self::CreateBudget,
        Self::MaxChips,
        Self::MaxUsd,
        Self::Frozen,
        Self::OwnDelete,
        Self::BackOff,
        Self::CreateTimeout,
        Self::ApiUnknown,
        Self::WorkersPreparing,
        Self::Fencing,
        Self::Released,
        Self::Running,
        Self::PreemptionNotice,
        Self::Preempted,
        Self::Maintenance,
        Self::Lost,
        Self::Silent,
        Self::SilentTooLong,
        Self::Unhealthy,
        Self::PreemptedWhileCreating,
        Self::WorkerRebooted,
        Self::WorkerExited,
        Self::ResumeInPlace,
        Self::RestartInPlace,
        Self::Settling,
        Self::Stalled,
        Self::StartTimeout,
        Self::AttemptTimeout,
        Self::TotalTimeout,
        Self::QueueTimeout,
        Self::CostLimit,
        Self::Succeeded,
        Self::ProgramFailed,
        Self::NoNetProgress,
        Self::CancelRequested,
        Self::PauseRequested,
        Self::UnpauseRequested,
        Self::RestartRequested,
    ];

    /// The name in snake_case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::CreateRequested => "create_requested",
            Self::Creating => "creating",
            Self::InProviderQueue => "in_provider_queue",
            Self::Stockout => "stockout",
            Self::Quota => "quota",
            Self::RateLimit => "rate_limit",
            Self::NoCandidate => "no_candidate",
            Self::CreateBudget => "create_budget",
            Self::MaxChips => "max_chips",
            Self::MaxUsd => "max_usd",
            Self::Frozen => "frozen",
            Self::OwnDelete => "own_delete",
            Self::BackOff => "back_off",
            Self::CreateTimeout => "create_timeout",
            Self::ApiUnknown => "api_unknown",
            Self::WorkersPreparing => "workers_preparing",
            Self::Fencing => "fencing",
            Self::Released => "released",
            Self::Running => "running",
            Self::PreemptionNotice => "preemption_notice",
            Self::Preempted => "preempted",
            Self::Maintenance => "maintenance",
            Self::Lost => "lost",
            Self::Silent => "silent",
            Self::SilentTooLong => "silent_too_long",
            Self::Unhealthy => "unhealthy",
            Self::PreemptedWhileCreating => "preempted_while_creating",
            Self::WorkerRebooted => "worker_rebooted",
            Self::WorkerExited => "worker_exited",
            Self::ResumeInPlace => "resume_in_place",
            Self::RestartInPlace => "restart_in_place",
            Self::Settling => "settling",
            Self::Stalled => "stalled",
            Self::StartTimeout => "start_timeout",
            Self::AttemptTimeout => "attempt_timeout",
            Self::TotalTimeout => "total_timeout",
            Self::QueueTimeout => "queue_timeout",
            Self::CostLimit => "cost_limit",
            Self::Succeeded => "succeeded",
            Self::ProgramFailed => "program_failed",
            Self::NoNetProgress => "no_net_progress",
            Self::CancelRequested => "cancel_requested",
            Self::PauseRequested => "pause_requested",
            Self::UnpauseRequested => "unpause_requested",
            Self::RestartRequested => "restart_requested",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_what_is_stored() {
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
    }
}
