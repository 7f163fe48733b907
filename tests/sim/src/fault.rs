//! Every fault that the world knows, by name, with how it comes about: by chance at a call, over a stretch of time, or at a moment.

/// How a fault comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    /// At a call, with a probability of the seed's.
    Call,
    /// Over a stretch of time.
    Window,
    /// At a moment, on something that is there then.
    Moment,
    /// For the whole run.
    Run,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident $sort:ident $text:literal,)*) => {
        /// A fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Fault { $($(#[$doc])* $name,)* }

        impl Fault {
            /// Every fault.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name in reports.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// How it comes about.
            pub(crate) const fn sort(self) -> Sort {
                match self { $(Self::$name => Sort::$sort,)* }
            }
        }
    };
}

faults! {
    /// A handler is dropped at one of its awaits.
    Crash Call "crash",
    /// The caller of a request has given up or died when it arrives, up to ten seconds later.
    ArrivesLate Call "arrives-late",
    /// A commit is told that it lost a race.
    StoreConflict Call "store-conflict",
    /// A store call is refused.
    StoreUnavailable Call "store-unavailable",
    /// A store call takes seconds.
    StoreSlow Call "store-slow",
    /// A commit that did not happen is not answered clearly.
    StoreUnclearBefore Call "store-unclear-before",
    /// A commit that happened is not answered clearly.
    StoreUnclearAfter Call "store-unclear-after",
    /// The store is away.
    StoreOutage Window "store-outage",
    /// A call of the TPU API fails without effect.
    TpuUnclearBefore Call "tpu-unclear-before",
    /// A call of the TPU API has its effect and fails.
    TpuUnclearAfter Call "tpu-unclear-after",
    /// A call of the TPU API takes seconds.
    TpuSlow Call "tpu-slow",
    /// The TPU API is away.
    TpuOutage Window "tpu-outage",
    /// The TPU API answers 401 or 403.
    TpuDenied Window "tpu-denied",
    /// A list shows what was, not what is.
    ListStale Call "list-stale",
    /// A list leaves a zone out.
    ZoneUnreachable Window "zone-unreachable",
    /// A zone has no capacity.
    Stockout Window "stockout",
    /// A zone has no capacity and says code 13.
    HiddenStockout Window "hidden-stockout",
    /// A quota is used up in a zone.
    Quota Window "quota",
    /// A zone does not offer what is asked for.
    NotOffered Run "not-offered",
    /// More creates a minute than the platform takes now.
    RateLimit Window "rate-limit",
    /// A create is preempted before it is READY.
    PreemptedCreating Call "preempted-while-creating",
    /// A create takes longer than its limit.
    CreateSlow Call "create-slow",
    /// The operation of a create ends with an error, and the slice comes all the same.
    CreateErrs Call "create-error-then-ready",
    /// An operation that ended is not known any more: 404.
    OperationExpired Call "operation-expired",
    /// Machines are on, and their agents call, minutes before the slice is READY.
    BootedEarly Call "booted-before-ready",
    /// A delete is refused while the node is being made.
    DeleteRefused Call "delete-refused",
    /// A delete is accepted and nothing happens.
    DeleteLies Call "delete-lies",
    /// Preempted with a notice of 30 s.
    PreemptNotice Moment "preempted-with-notice",
    /// Preempted without a word.
    PreemptSilent Moment "preempted-silently",
    /// Preempted, and READY is shown for some minutes more.
    PreemptLag Moment "preempted-shown-late",
    /// A notice of 30 s reaches only some of the workers.
    NoticePartial Moment "notice-partial",
    /// Preempted before its notice is over.
    NoticeShort Moment "notice-short",
    /// A worker's program is ended by its machine going down, 20 s before the API says PREEMPTED.
    PreemptExitFirst Moment "preempted-exit-first",
    /// One slice of a multislice is taken away; the others live on.
    SliceOfManyLost Moment "slice-of-many-lost",
    /// The node is gone: 404.
    Vanish Moment "vanished",
    /// The VMs are dead, the API says READY for ever.
    LieReady Moment "lies-ready",
    /// TERMINATED.
    Terminated Moment "terminated",
    /// STOPPED by a person.
    StoppedByHand Moment "stopped",
    /// Every node of a zone is preempted at once.
    Storm Moment "storm",
    /// A notice, and nothing follows.
    NoticeFalse Moment "false-notice",
    /// Maintenance in an hour.
    MaintenanceFar Moment "maintenance-far",
    /// Maintenance in 45 s that ends the node.
    MaintenanceNow Moment "maintenance-now",
    /// READY and unhealthy for a while.
    Unhealthy Moment "unhealthy",
    /// READY and unhealthy until it is made anew.
    UnhealthyForGood Moment "unhealthy-for-good",
    /// REPAIRING for a while.
    Repairing Moment "repairing",
    /// RESTARTING: every machine of the slice boots anew.
    Restarting Moment "restarting",
    /// REIMAGING: every machine boots anew with an empty disk.
    Reimaging Moment "reimaging",
    /// HIDDEN for a while: the slice is not to be had, its machines run on.
    Hidden Moment "hidden",
    /// REPAIRING, and then UNKNOWN: the repair failed.
    RepairFails Moment "repair-fails",
    /// The workers cannot reach `api`.
    NetCut Moment "net-cut",
    /// One agent restarts.
    AgentRestart Moment "agent-restart",
    /// One agent is gone for good; its program lives.
    AgentDead Moment "agent-dead",
    /// One worker's host is dead for good, and the API does not say so.
    HostDead Moment "host-dead",
    /// One worker boots anew.
    Reboot Moment "reboot",
    /// A worker's program ends with a transport error.
    ExitGrpc Moment "exit-grpc",
    /// A worker's program is killed from outside.
    ExitKilled Moment "exit-killed",
    /// A worker's program meets a busy device.
    ExitDevice Moment "exit-device-busy",
    /// A worker's program is aborted by the TPU runtime.
    ExitAbort Moment "exit-aborted",
    /// A worker's program cannot write: its disk is full.
    ExitDisk Moment "exit-disk-full",
    /// A worker's program cannot reach its storage.
    ExitStorage Moment "exit-storage",
    /// A worker's program runs out of host memory.
    ExitOom Moment "exit-oom",
    /// A worker's program fails by itself.
    ExitUser Moment "exit-user",
    /// The program hangs.
    Hang Moment "hang",
    /// The program does not heed SIGTERM.
    SlowStop Run "slow-stop",
    /// `setup` fails once.
    SetupFails Moment "setup-fails",
    /// `setup` hangs once, on one worker.
    SetupHangs Moment "setup-hangs",
    /// A hint is lost.
    HintLost Call "hint-lost",
    /// A hint comes late.
    HintLate Call "hint-late",
    /// A hint comes up to five times.
    HintTwice Call "hint-twice",
    /// A wake-up is lost.
    WakeupLost Call "wakeup-lost",
    /// A wake-up comes late.
    WakeupLate Call "wakeup-late",
    /// A wake-up comes up to five times.
    WakeupTwice Call "wakeup-twice",
    /// Publishing or scheduling fails before its effect.
    SendFails Call "send-fails",
    /// Publishing or scheduling takes effect and fails.
    SendUnclear Call "send-unclear",
    /// An event of the cloud comes late, up to a week.
    EventLate Call "event-late",
    /// An event of the cloud comes up to five times.
    EventTwice Call "event-twice",
    /// An event of the cloud never comes.
    EventLost Call "event-lost",
    /// A tick does not come.
    TickSkipped Call "tick-skipped",
    /// A tick comes twice at once.
    TickTwice Call "tick-twice",
    /// A tick comes late.
    TickLate Call "tick-late",
    /// No ticks for a while.
    TickOutage Window "tick-outage",
    /// A message of a person comes up to five times.
    MessageAgain Call "message-again",
    /// A message of a person comes late.
    MessageLate Call "message-late",
    /// A message of a person comes days late.
    MessageDays Call "message-days-late",
    /// A delivery comes again while the handler of the first one is still at work.
    Overlap Call "redelivered-meanwhile",
    /// A message that nobody can use.
    Poison Moment "poison-message",
    /// An agent's call does not arrive.
    CallLost Call "call-lost",
    /// The answer to an agent's call does not arrive.
    AnswerLost Call "answer-lost",
    /// `api` is away.
    ApiOutage Window "api-outage",
    /// Instances have clocks that differ by up to five minutes.
    ClockSkew Run "clock-skew",
    /// Every heartbeat is a call of its own.
    Heartbeats Run "heartbeats",
    /// Somebody else's node, in our zones, with a name like ours.
    Foreign Moment "foreign-node",
    /// A resource of ours that no job owns.
    Orphan Moment "orphan",
    /// A person acts on a job.
    Person Moment "person",
    /// A person freezes the installation for a while.
    Freeze Window "freeze",
    // From here on: faults that came later. See `is_later`.
    /// A worker's host fails: the machine boots on another one minutes later.
    HostError Moment "host-error",
    /// Capacity that is not preemptible is taken for maintenance.
    TakenOnDemand Moment "taken-from-on-demand",
    /// The node of a queued resource is deleted by a person: SUSPENDED, by USER.
    NodeDeletedByHand Moment "node-deleted-by-hand",
    /// A queued resource is preempted: its node is absent while it is ACTIVE still.
    ActiveWithoutNode Moment "active-without-node",
    /// The machines are moved to other hosts while they run.
    Migration Moment "migration",
    /// Maintenance that was announced is called off, or comes at another time.
    MaintenanceMoved Moment "maintenance-moved",
    /// What a program said last takes minutes to be sent, and its exit is told late.
    SlowUpload Call "output-sent-late",
    /// Collecting the outputs takes minutes.
    SlowCollect Call "outputs-collected-late",
    /// A program that was released takes up to minutes to start.
    SlowStart Call "slow-start",
    /// A slice is READY before it has addresses.
    AddressesLate Call "addresses-late",
    /// A read shows no state, or no health.
    StateUnclear Call "state-unclear",
    /// A read does not find what is seconds old.
    GetLags Call "get-lags",
    /// A list shows a young queued resource without its nodes, or the nodes alone.
    ListSplit Call "list-split",
    /// An operation that goes on is not known any more: 404.
    OperationVanished Call "operation-vanished",
    /// A name is taken for some time after its 404.
    NameHeld Call "name-held",
    /// A delete takes up to 20 minutes.
    DeleteSlow Call "delete-slow",
    /// DELETING, and then what it was before.
    DeleteFails Call "delete-fails",
    /// A delete is refused while a queued resource is SUSPENDING.
    DeleteRefusedLate Call "delete-refused-suspending",
    /// A create that failed leaves a node for good.
    LeftoverStays Call "leftover-stays",
    /// A queued resource is SUSPENDING out of PROVISIONING, and then FAILED or SUSPENDED.
    SuspendedCreating Call "suspended-while-provisioning",
    /// A zone has no external addresses left.
    AddressQuota Window "address-quota",
    /// A zone is not allowed.
    ZoneForbidden Window "zone-forbidden",
    /// No state is shown for a while, and then what was shown before.
    StateUnspecified Moment "state-unspecified",
    /// UNKNOWN for a while, and then what was shown before.
    UnknownTakenBack Moment "unknown-taken-back",
    /// A create makes something else than what was asked for: another type, or capacity on demand.
    MadeOtherwise Call "made-otherwise",
    /// A reservation has no chips left.
    ReservationFull Window "reservation-full",
    /// A reservation is not there any more.
    ReservationGone Window "reservation-gone",
    /// A read answers 404, once, for what has been READY for minutes.
    ReadMisses Call "read-misses",
}

impl Fault {
    /// True of the faults that came after seeds were written down as regressions: they are drawn from streams of their own, so that a plan
    /// without them stays what it was.
    pub(crate) const fn is_later(self) -> bool {
        self as usize > Self::Freeze as usize
    }
}
