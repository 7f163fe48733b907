//! Rows for the TPU runtime: devices held, chips and links broken, driver and compiler crashes.

use crate::classify::signature::{Row, Trust};
use crate::failure::FailureKind::TpuRuntime;

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "device-busy",
        TpuRuntime,
        Trust::High,
        &[
            "/dev/accel",
            "/dev/vfio",
            "iommu group",
            "TPU is already in use",
            "libtpu_lockfile",
            "already in use by",
            "libtpu.so already in use",
            "libtpu.so is already",
        ],
    )
    .also(concat!(
        r"(?i)open\(/dev/(?:accel|vfio)|/dev/(?:accel|vfio)\S*.{0,80}(?:busy|denied|not permitted|failed|error",
        r"|no such)|(?:could ?n.t|failed to|cannot|unable to) open.{0,40}(?:/dev/(?:accel|vfio)|iommu group)",
        r"|TPU is already in use|libtpu\.so (?:is )?already in use|libtpu_lockfile|already in use by (?:process",
        r"|another|pid)",
    ))
    .any_level()
    .unless(r"(?i)\brm\b|remov(?:e|ed|ing)|unlink|delet|cleaned|address already in use")
    .says(
        "the TPU device is held or cannot be opened",
        &[
            "E1127 03:59:11.120  812 tpu_driver.cc:61] open(/dev/vfio/3): Device or resource busy: Device or \
             resource busy; Couldn't open iommu group /dev/vfio/3",
            "RuntimeError: The TPU is already in use by process with pid 1234. Not attempting to load \
             libtpu.so in this process.",
            "ABORTED: The TPU is already in use by another process probably owned by another user. Run \"$ \
             sudo lsof -w /dev/accel0\"",
        ],
        &["rm -f /tmp/libtpu_lockfile", "OSError: [Errno 98] Address already in use"],
    ),
    Row::new(
        "tpu-init",
        TpuRuntime,
        Trust::High,
        &[
            "TPU initialization failed",
            "Failed to initialize TPU",
            "No accelerator found",
            "global TPU topology",
            "slice_builder",
            "TPU platform",
            "TpuHalFactory",
            "tpu_hal",
            "TPU driver",
            "initialize TPU system",
            "TPU system",
            "No TPU devices",
            "TPU devices were found",
            "TPU devices found",
            "TPU not found",
        ],
    )
    .also(r"(?i)fail|error|unable|no accelerator|not found|no tpu|invalid|timed? ?out|expected")
    .unless(r"(?i)hugepage|could not open (?:the|any) log")
    .says(
        "the TPU system could not be initialised",
        &[
            "RuntimeError: Bad StatusOr access: UNKNOWN: TPU initialization failed: Invalid \
             --2a886c8_slice_builder_worker_addresses specified. Expected 4 worker addresses, got 1.",
            "RuntimeError: Unable to initialize backend 'tpu': INTERNAL: Failed to get global TPU topology.",
        ],
        &["INFO:tensorflow:Finished initializing TPU system."],
    ),
    Row::new(
        "slice-failure",
        TpuRuntime,
        Trust::High,
        &[
            "SLICE_FAILURE",
            "!!!! FATAL ERROR !!!!",
            "program or fatal error occurred",
            "Halt is unexpected",
            "all pending programs will fail",
            "Received Error Interrupt",
            "uncorrectable",
            "stream did not block host until done",
            "already in an error state",
            "unhealthy TPU",
            "TPU health",
            "chip is unhealthy",
            "ICI link",
            "bad TPU hardware",
            "TPU is unhealthy",
            "UNHEALTHY_TPU",
            "UNHEALTHY_TENSORFLOW",
        ],
    )
    .also(concat!(
        r"SLICE_FAILURE_|FATAL ERROR|error occurred|Halt is unexpected|will fail|Error Interrupt",
        r"|(?i)uncorrectable.{0,40}(?:error|ecc)|(?:error|ecc|hbm).{0,40}uncorrectable|did not block|error state",
        r"|unhealthy|fail|down|bad TPU",
    ))
    .says(
        "the TPU chip, its links or its program halted",
        &[
            "E0827 23:43:41.200122   39475 synchronous_driver.cc:820] [/dev/accel0 tpu13:pe1:0] !!!! FATAL \
             ERROR !!!! for [/dev/accel0 tpu13:pe1:0]",
            "INTERNAL: *** Halt is unexpected, all pending programs will fail.",
        ],
        &["TPU health check passed"],
    ),
    Row::new(
        "core-halted",
        TpuRuntime,
        Trust::Medium,
        &["halted unexpectedly", "halted prematurely", "UnexpectedCoreHalt"],
    )
    .says(
        "a core of the TPU stopped, by a fault of the chip, of the compiler, or of the program",
        &[
            "Core halted unexpectedly:",
            "INTERNAL: Accelerator device halted prematurely, perhaps due to an on-device check-failure.",
        ],
        &["halted by the user"],
    ),
    Row::new("node-unhealthy", TpuRuntime, Trust::Medium, &["HEALTHY"])
        .also(r"\bnot HEALTHY\b|\b(?:state|health)\b[^\n]{0,20}\bUNHEALTHY")
        .unless(r"(?i)heartbeat|task")
        .says(
            "the cloud says that the node is not healthy",
            &["RuntimeError: TPU node-v3-32 is not HEALTHY yet. Re-run when all TPUs are HEALTHY"],
            &["TPUPollingThread found TPU b'my-tpu' in state READY, and health HEALTHY."],
        ),
    Row::new("bad-chip", TpuRuntime, Trust::High, &["bad TPU chip", "observed errors are"])
        .also(r"(?i)bad TPU chip|observed errors are: \[(?:Hardware|Network|Power)")
        .says(
            "the runtime blames a chip, its network or its power",
            &["    Potential cause: Bad TPU chips", "halted unexpectedly at tag:pc x. observed errors are: [Hardware]"],
            &["observed errors are: [User]"],
        ),
    Row::new(
        "tpu-backend",
        TpuRuntime,
        Trust::Low,
        &["Unable to initialize backend 'tpu'", "Unable to initialize backend \"tpu\""],
    )
    .says(
        "JAX could not start its TPU backend",
        &["RuntimeError: Unable to initialize backend 'tpu': UNKNOWN: something (set JAX_PLATFORMS='' to \
             automatically choose an available backend)"],
        &["Unable to initialize backend 'cuda': not available"],
    ),
    Row::new(
        "crash-in-runtime",
        TpuRuntime,
        Trust::Medium,
        &["libtpu", "TpuPlatform", "xla::", "Tpu", "tpu_", "pjrt", "tensorflow::tpu"],
    )
    .also(r"(?i)libtpu|TpuPlatform|GetTpuClient|tensorflow::tpu|Tpu[A-Z]\w+_|xla::|pjrt")
    .native_frame()
    .says(
        "the TPU runtime crashed",
        &["    @     0x7f6e3aa72127        176  TpuPlatform_Initialize"],
        &["    @     0x7f1dd06a69fc  (unknown)  pthread_kill"],
    ),
    Row::new("check-in-runtime", TpuRuntime, Trust::Medium, &["Check fail", "Non-OK-status", "RET_CHECK failure"])
        .also(concat!(
            r"(?i)(?:tpu|pjrt|xla)\S*\.(?:cc|h|inc):\d+\S{0,2} {1,3}(?:Check failed|Non-OK)",
            r"|Check failed:? .*(?:tpu|pjrt|xla)",
        ))
        .unless(concat!(
            r"mesh_service|(?i)Session \w+ is not found|\((?:Cancelled|Aborted|Unavailable|Deadline exceeded)\b",
            r"|Socket closed",
        ))
        .says(
            "a check of the TPU runtime failed",
            &["F0317 02:46:21.118406 358837 tpu_hal_vxc_hardware_impl_registration.cc:10] Check failed: \
             tpu::TpuHalFactory::Register( x )"],
            &["*** Check failure stack trace: ***"],
        ),
    Row::new("check-failed", TpuRuntime, Trust::Low, &["Check failed", "Non-OK-status"])
        .also(r"^F\d{4} .*(?:Check failed|Non-OK)|: F .*(?:Check failed|Non-OK)|what\(\):.*Check failed")
        .unless(concat!(
            r"mesh_service|XLA_FLAGS|(?i)Session \w+ is not found|\((?:Cancelled|Aborted|Unavailable",
            r"|Deadline exceeded)\b|Socket closed",
        ))
        .says(
            "a native check failed",
            &["F1127 00:00:01.000000    5120 something.cc:226] Check failed: a == b (1 vs. 2)"],
            &["F1127 parse_flags_from_env.cc:226] Unknown flag in XLA_FLAGS: --xla_foo"],
        ),
    Row::new(
        "crash-line",
        TpuRuntime,
        Trust::Crash,
        &["core dumped", "Segmentation fault", "Fatal Python error", "Aborted", "terminate called"],
    )
    .also(concat!(
        r"\(core dumped\)|^Segmentation fault|^Fatal Python error: (?:Aborted|Segmentation|Bus|Floating)",
        r"|^Aborted$|: line \d+: +\d+ (?:Aborted|Segmentation fault)|^terminate called",
    ))
    .unless(r"Illegal instruction|Killed")
    .says(
        "the program crashed without saying why",
        &[
            "run.sh: line 9: 40112 Segmentation fault      (core dumped) python3 train.py",
            "Fatal Python error: Segmentation fault",
        ],
        &["Aborted by the user"],
    ),
    Row::new("child-crashed", TpuRuntime, Trust::Crash, &["SIGABRT", "SIGSEGV", "SIGBUS"])
        .also(concat!(
            r"terminated with signal SIG(?:ABRT|SEGV|BUS)|died with <Signals\.SIG(?:ABRT|SEGV|BUS)|\((?:SIGABRT",
            r"|SIGSEGV|SIGBUS)\)",
        ))
        .says(
            "a child process crashed",
            &["torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGABRT"],
            &["*** SIGABRT received by PID 5150"],
        ),
    Row::new(
        "runtime-status",
        TpuRuntime,
        Trust::Low,
        &[
            "RuntimeError: INTERNAL",
            "RuntimeError: UNKNOWN",
            "InternalError",
            "StatusOr access: INTERNAL",
            "StatusOr access: UNKNOWN",
            "errors_impl.UnknownError",
        ],
    )
    .also(concat!(
        r"(?:Xla|Jax)RuntimeError: (?:INTERNAL|UNKNOWN)|\bRuntimeError: (?:INTERNAL|UNKNOWN):",
        r"|errors_impl\.(?:Internal|Unknown)Error|StatusOr access: (?:INTERNAL|UNKNOWN)",
    ))
    .unless(concat!(
        r"(?i)unsupported|not supported|not implemented|Mosaic|must be|invalid|ptxas|cudnn|cublas|Gloo",
        r"|RST_STREAM|Socket closed|UNAVAILABLE|transport|GOAWAY|barrier|coordination|heartbeat",
        r"|distributed service",
    ))
    .says(
        "the runtime reports an internal error",
        &["jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to execute"],
        &["jaxlib.xla_extension.XlaRuntimeError: INVALID_ARGUMENT: Argument does not match"],
    ),
    Row::new(
        "tpu-driver",
        TpuRuntime,
        Trust::High,
        &[
            "Driver must be Open",
            "TPU cores in the system",
            "SliceBuilder",
            "TPU chip",
            "failed health check",
            "tpu_driver",
            "TPU_PROCESS_ADDRESSES",
            "tpu_process_addresses",
            "TPU worker may have crashed",
            "device found",
            "DMA map",
            "TPU Driver",
            "HBM ECC",
            "ECC error",
            "Premapped buffer",
            "parity error",
        ],
    )
    .also(concat!(
        r"(?i)Driver must be Open|cannot find any TPU cores|Could not find SliceBuilder",
        r"|TPU chip.{0,40}(?:fail|error|lost|unhealthy|reset)|failed health check|tpu_driver\S*\] .*(?:fail",
        r"|error)|worker may have crashed|NOT_FOUND: No \w+ device found|ECC error|parity error",
        r"|Failed to (?:map|allocate) .*premapped",
    ))
    .says(
        "the TPU driver or its chips failed",
        &[
            "  (0) Failed precondition: Driver must be Open to DMA map.",
            "RuntimeError: Cannot find any TPU cores in the system. Please double check Tensorflow \
                 master address and TPU worker(s).",
        ],
        &["TPU chip count: 4"],
    ),
    Row::new("local-server", TpuRuntime, Trust::High, &["127.0.0.1:51011", "localhost:51011", "localservice"])
        .also(r"(?i)failed to connect|connection refused|unavailable")
        .says(
            "the TPU server of this very machine does not answer",
            &["UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:51011: \
             Failed to connect to remote host: Connection refused"],
            &["localservice;0;localhost:51011"],
        ),
];
