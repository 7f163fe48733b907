//! Why a program or a slice ended: the closed list of kinds, and what each is charged to.

use serde::{Deserialize, Serialize};

/// A kind of failure. The names are those of the outside interface, in snake_case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The provider took the slice back.
    Preempted,
    /// Host maintenance ended the slice.
    Maintenance,
    /// The slice is gone and nobody said why.
    Lost,
    /// gRPC transport, coordination service or barrier.
    InfraGrpc,
    /// The TPU runtime: device busy, mesh, chip.
    TpuRuntime,
    /// Device memory ran out.
    OomHbm,
    /// Host memory ran out.
    OomHost,
    /// No space left on a disk.
    DiskFull,
    /// Object store, model hub or tracker could not be reached.
    StorageNetwork,
    /// Credentials or permissions.
    Auth,
    /// Module, command or version missing or wrong.
    Environment,
    /// The program itself.
    UserError,
    /// Progress stopped while the program lived.
    Stalled,
    /// A limit of the job passed.
    Timeout,
    /// Not decided by the evidence.
    Unknown,
}

impl FailureKind {
    /// Every kind, in the order of the outside interface.
    pub const ALL: [Self; 15] = [
        Self::Preempted,
        Self::Maintenance,
        Self::Lost,
        Self::InfraGrpc,
        Self::TpuRuntime,
        Self::OomHbm,
        Self::OomHost,
        Self::DiskFull,
        Self::StorageNetwork,
        Self::Auth,
        Self::Environment,
        Self::UserError,
        Self::Stalled,
        Self::Timeout,
        Self::Unknown,
    ];

    /// The name as it stands in job specs, reports and the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preempted => "preempted",
            Self::Maintenance => "maintenance",
            Self::Lost => "lost",
            Self::InfraGrpc => "infra_grpc",
            Self::TpuRuntime => "tpu_runtime",
            Self::OomHbm => "oom_hbm",
            Self::OomHost => "oom_host",
            Self::DiskFull => "disk_full",
            Self::StorageNetwork => "storage_network",
            Self::Auth => "auth",
            Self::Environment => "environment",
            Self::UserError => "user_error",
            Self::Stalled => "stalled",
            Self::Timeout => "timeout",
            Self::Unknown => "unknown",
        }
    }

    /// True for failures that may lie in what the program left in its working directory, or what `setup` put there: a
    /// resume in place after one begins with a clean one (contract section 5: a clean resume, `setup` once more).
    pub const fn soils(self) -> bool {
        matches!(self, Self::Stalled | Self::TpuRuntime | Self::DiskFull | Self::Environment)
    }

    /// The kind with that name, if there is one.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl std::fmt::Display for FailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
