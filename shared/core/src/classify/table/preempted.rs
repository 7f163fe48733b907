//! Rows for machines that were taken away.

use crate::classify::signature::{Row, Trust};
use crate::failure::FailureKind::{Preempted, Unknown};

pub(super) const ROWS: &[Row] = &[
    Row::new("cloud-state", Preempted, Trust::High, &["PREEMPTED", "TERMINATED"])
        .also(concat!(
            r"(?:\bstate\b|\bstatus\b|State:).{0,30}\bPREEMPTED\b|\bPREEMPTED\b.{0,12}\bstate\b",
            r"|^\s*state: TERMINATED\b",
            r"|\b(?i:tpu|node|instance|vm|health)\b.{0,80}\b(?:state|status)\b.{0,30}\bTERMINATED\b",
        ))
        .unless(r"StatusCode|exit status")
        .any_level()
        .says(
            "the cloud says that the node was preempted",
            &[
                "RuntimeError: TPU node my-node reached an unrecoverable state PREEMPTED",
                "ERROR: (gcloud.compute.tpus.tpu-vm.ssh) The TPU is in state \"PREEMPTED\", cannot connect",
                "state: PREEMPTED",
            ],
            &["I1127 monitor.py:11] preempted=False, state=RUNNING", "loader thread 3: state=TERMINATED"],
        ),
    Row::new("metadata-preempted", Preempted, Trust::High, &["preempted"])
        .also(r"(?i)\bpreempted\W{1,5}(?:value\W{1,3})?true\b|instance/preempted.{0,40}\btrue\b")
        .any_level()
        .says(
            "the metadata server says that the machine is being preempted",
            &["instance/preempted = TRUE", "metadata: preempted=TRUE"],
            &["preempted=False", "instance/preempted = FALSE"],
        ),
    Row::new("preemption-notifier", Preempted, Trust::High, &["preemption_notifier"])
        .also(r"SIGTERM caught|preempt\w* notice|Notify")
        .any_level()
        .says(
            "the runtime caught the termination that comes with a preemption",
            &["2026-11-27 04:11:04.482210: W xla/tsl/distributed_runtime/preemption/preemption_notifier.cc:89] \
             SIGTERM caught at 2026-11-27T04:11:04.48+00:00"],
            &["I1127 preemption_notifier.cc:40] Installed handler"],
        ),
    Row::new("preemption-notice", Preempted, Trust::High, &["preempt", "spot"])
        .also(concat!(
            r"(?i)\b(?:pre-?empt(?:ion)?|spot(?: instance| vm)?(?: interruption| termination)?)[ -]?(?:signal",
            r"|notice|event|warning|payload|message|request)\b.{0,20}?\b(?:received|detected|caught|arrived)",
            r"|\b(?:received|detected|caught|got)\b.{0,30}\b(?:pre-?empt(?:ion)?",
            r"|spot(?: instance)? (?:termination|interruption))(?: (?:signal|notice|event|warning|request)|\b)",
            r"|\bpre-?emption (?:is )?(?:imminent|detected|in progress)\b|compute\.instances\.preempted",
            r"|\bspot reclaim\b",
            r"|\b(?:instance|vm|node|host|machine|worker|slice|tpu|pod|cluster)\b(?: \S{1,60})? (?:was|were",
            r"|has been|have been|got|is being|is) pre-?empted\b",
        ))
        .unless(concat!(
            r"(?i)\b(?:may|might|could|if|e\.g\.|whether|in case|no) |not pre-?empted|handler (?:installed",
            r"|registered)|listening|enabled",
        ))
        .any_level()
        .says(
            "a preemption was announced on the machine",
            &[
                "2026-11-27 11:05:02,114 WARNING iris.cluster.worker.preempt_watcher GCP preempt signal \
                 received from metadata server",
                "\tthe actor's node was preempted: spot reclaim",
                "Received preemption notice, saving checkpoint",
                "Instance was preempted.",
            ],
            &[
                "An error was raised. This may be due to a preemption in a connected worker or parameter server.",
                "scheduler events (e.g. preemption, eviction) to debug further.",
                "I1127 monitor.py:11] preempted=False",
            ],
        ),
    Row::new("machine-goes", Preempted, Trust::High, &["going to be", "about to be", "will be", "is being"])
        .also(concat!(
            r"(?i)\b(?:instance|vm|node|host|machine|pod)\b.{0,40}\b(?:is going to be|is about to be|will be|is being)",
            r" (?:interrupted|reclaimed|evicted|taken away|shut ?down|terminated)\b",
        ))
        .unless(r"(?i)\b(?:after|once|when|if|unless|automatically|may|might|idle|otherwise|and will)\b")
        .any_level()
        .says(
            "the machine announced that it is taken away",
            &["Instance is going to be interrupted in 2 minutes. Exiting..."],
            &["the instance will be terminated after the job has finished"],
        ),
    Row::new("leaving-for-preemption", Preempted, Trust::High, &["preempt", "spot termination", "Termination caught"])
        .also(concat!(
            r"(?i)\b(?:exit|stop|terminat|shut|leav|quit|sav|checkpoint)\w*\b.{0,50}?\b(?:due to|because of|for",
            r"|on|before|after|upon|by)\b (?:a |the |this |imminent )?(?:spot )?(?:pre-?empt|termination)",
            r"|reached.preemption.sync.point|preemption sync point (?:was )?reached|\bpreemption (?:save|checkpoint)\b",
            r"|PreemptionCheckpointHandler: |Termination caught in",
        ))
        .unless(r"(?i)\b(?:may|might|could|if|will|would|e\.g\.|enabled|restor\w+|load\w+|resum\w+) |not pre-?empt")
        .any_level()
        .says(
            "the program left because of a preemption",
            &[
                "Preemption sync point reached at step 1200, saving checkpoint",
                "I1127 train.py:310] exiting due to preemption at step 1200 of 100000",
                "INFO:tensorflow:PreemptionCheckpointHandler: Termination caught in main thread",
            ],
            &[
                "I1127 train.py:10] will save a checkpoint on preemption",
                "restored step 4000 (after preemption at 23:10)",
            ],
        ),
    Row::new("ray-node-died", Preempted, Trust::High, &["node", "NodeDied"])
        .also(concat!(
            r"(?i)\bNodeDiedError\b|because its node has died|node (?:it was running on",
            r"|.{0,60}running the task) (?:is dead|was dead|has died|died|failed|crashed)",
            r"|\bnode (?:is|was marked) dead\b",
            r"|has been marked dead because the detector has missed too many heartbeats",
            r"|\bnode.{0,70}\bwas preempted\b",
            r"|owner(?:'s node has crashed| (?:has died|died) because its node)",
        ))
        .unless(r"(?i)\b(?:may|might|could|if|potential) ")
        .says(
            "the node that the work ran on died",
            &[
                "The actor died because its node has died. Node Id: \
                 b157c93de9603b1458ae4bd22668b46a4f0ae249bf9467072ba6fd45",
                "RuntimeError: Job failed: the node it was running on is dead",
            ],
            &["The node with id 17 has joined the cluster"],
        ),
    Row::new(
        "power-off",
        Preempted,
        Trust::High,
        &[
            "going down",
            "power off",
            "poweroff",
            "Power key",
            "system-shutdown",
            "node shutdown",
            "shutdown.target",
            "will reboot",
            "going to power",
        ],
    )
    .also(concat!(
        r"(?i)the system (?:is going down|will (?:power off|reboot|halt))|system is powering (?:off|down)",
        r"|going to (?:power.?off|reboot|halt)",
        r"|Power key pressed|imminent node shutdown|Reached target .*(?:Shutdown|Power-Off)|systemd-shutdown",
        r"|shutdown\.target",
    ))
    .any_level()
    .says(
        "the machine itself was shutting down",
        &["The system is going down for power-off NOW!", "Pod was terminated in response to imminent node shutdown."],
        &["shutting down the coordination service"],
    ),
    Row::new("host-maintenance", Preempted, Trust::High, &["TERMINATE_ON_HOST_MAINTENANCE", "maintenance-event"])
        .also(r"TERMINATE_ON_HOST_MAINTENANCE|maintenance-event\W{1,4}(?:TERMINATE|MIGRATE)")
        .unless(r"(?i)maintenance-event\W{1,4}NONE|onHostMaintenance|scheduling")
        .any_level()
        .says(
            "the host goes into maintenance",
            &["W1127 04:10:03.551 maintenance.py:31] metadata maintenance-event = TERMINATE_ON_HOST_MAINTENANCE"],
            &["metadata maintenance-event = NONE"],
        ),
    Row::new(
        "pod-evicted",
        Preempted,
        Trust::High,
        &["Preempted", "DisruptionTarget", "TaintManager", "DUE TO", "NodeLost", "Node failure on"],
    )
    .also(concat!(
        r"\bReason: ?(?:Preempt(?:ed|ing)|NodeLost|NodeShutdown|Terminated)\b|DisruptionTarget",
        r"|DeletionByTaintManager|TaintManagerEviction",
        r"|CANCELLED AT \S+ DUE TO (?:PREEMPTION|NODE FAILURE)|srun: error: Node failure on",
        r"|Preempted by .{0,60} on node",
    ))
    .any_level()
    .says(
        "the scheduler took the machine away",
        &["slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-27T10:00:00 DUE TO PREEMPTION ***"],
        &["slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-27T10:00:00 DUE TO TIME LIMIT ***"],
    ),
    Row::new("node-missing", Preempted, Trust::Medium, &["was not found", "NOT_FOUND", "notFound"])
        .also(concat!(
            r"(?i)\b(?:projects/[^/\s]+/)?(?:locations|zones)/[^/\s]+/(?:nodes|instances",
            r"|queuedResources)/\S+ was not found|Could not fetch resource.*instances/",
        ))
        .says(
            "the cloud knows no such node any more",
            &["ERROR: (gcloud.compute.tpus.tpu-vm.ssh) NOT_FOUND: Resource \
             'projects/p/locations/us-central2-b/nodes/my-node' was not found"],
            &["google.api_core.exceptions.NotFound: 404 The specified bucket was not found"],
        ),
    Row::new("sigterm-from-init", Preempted, Trust::Even, &["SIGTERM received by PID", "from PID 1"])
        .also(r"SIGTERM.{0,80}\bfrom PID 1\b")
        .any_level()
        .says(
            "process 1 terminated it, as happens when the machine goes down",
            &["*** SIGTERM received by PID 4811 (TID 4811) on cpu 5 from PID 1; stack trace: ***"],
            &["*** SIGTERM received by PID 4811 (TID 4811) on cpu 5 from PID 4700; stack trace: ***"],
        ),
    Row::new("sigterm-from-process", Unknown, Trust::Last, &["SIGTERM received by PID"])
        .also(r"SIGTERM received by PID.{0,60}\bfrom PID (?:[2-9]|1\d)\d*\b")
        .any_level()
        .says(
            "another process terminated it: its parent, or a person",
            &["*** SIGTERM received by PID 4811 (TID 4811) on cpu 5 from PID 4700; stack trace: ***"],
            &["*** SIGTERM received by PID 4811 (TID 4811) on cpu 5 from PID 1; stack trace: ***"],
        ),
    Row::new(
        "connection-cut",
        Preempted,
        Trust::Cut,
        &["closed by remote host", "port 22", "client_loop", "kex_exchange_identification", "Timeout, server"],
    )
    .also(concat!(
        r"(?i)Connection to \S+ closed by remote host|connect to host \S+ port 22: (?:Connection timed out",
        r"|No route to host|Connection refused|Operation timed out)",
        r"|client_loop: send disconnect|kex_exchange_identification: |Timeout, server \S+ not responding",
        r"|Connection (?:reset|closed) by \S+ port 22\b",
    ))
    .says(
        "the connection to the worker was cut",
        &[
            "Connection to 10.0.0.2 closed by remote host.",
            "ssh: connect to host 10.0.0.4 port 22: Connection timed out",
        ],
        &["Connection to 10.0.0.2 closed."],
    ),
    Row::new(
        "ray-actor-died",
        Preempted,
        Trust::Cut,
        &["ActorDiedError", "ActorUnavailableError", "RayActorError", "WorkerCrashedError", "LocalRayletDied"],
    )
    .says(
        "Ray lost the process and does not know why",
        &["ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."],
        &["ray.exceptions.RayTaskError(ValueError): ray::train_lm_task() (pid=2211, ip=10.0.0.3)"],
    ),
    Row::new("shell-terminated", Preempted, Trust::Terminated, &["Terminated"])
        .also(r"^Terminated$|: line \d+:\s+\d+ Terminated\b|^\[\d+\][+-]?\s+Terminated\b")
        .says(
            "the shell says that it was terminated from outside",
            &["run.sh: line 14:  5120 Terminated              python -u main.py", "Terminated"],
            &["Terminated early because the loss went up"],
        ),
    Row::new("child-terminated", Preempted, Trust::Terminated, &["killed by signal: Terminated", "got signal: 15"])
        .says(
            "a child of the program was terminated from outside, and the program died of that",
            &[
                "RuntimeError: DataLoader worker (pid 8102) is killed by signal: Terminated.",
                "torch.distributed.elastic.multiprocessing.api.SignalException: Process 75531 got signal: 15",
            ],
            &[
                "RuntimeError: DataLoader worker (pid 629) is killed by signal: Killed.",
                "torch.distributed.elastic.multiprocessing.api.SignalException: Process 75531 got signal: 2",
            ],
        ),
    Row::new("sigterm-handled", Preempted, Trust::Even, &["SIGTERM"])
        .also(concat!(
            r"(?i)\b(?:received|caught|got|handling)\b.{0,20}\bSIGTERM\b|\bSIGTERM\b.{0,12}\b(?:received|caught",
            r"|signal received)\b",
        ))
        .unless(r"received by PID|(?i)handler|install|regist|closing signal|sending|peer|child")
        .any_level()
        .says(
            "the program was told to stop, as happens when the machine is taken away",
            &[
                "SIGTERM received, saving checkpoint and exiting",
                "I0214 train.py:10] Received SIGTERM, stopping after this step",
            ],
            &[
                "registered a handler for SIGTERM received from outside",
                "*** SIGTERM received by PID 5 (TID 5) on cpu 5 from PID 4; stack trace: ***",
            ],
        ),
];
