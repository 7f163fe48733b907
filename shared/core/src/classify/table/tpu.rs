//! Rows for the TPU runtime: devices held, chips and links broken, driver and compiler crashes.

use crate::classify::signature::{Row, Trust};
use crate::failure::FailureKind::TpuRuntime;

pub(super) const ROWS: &[Row] = &[
    Row::new("device-busy", TpuRuntime, Trust::High, &[
        "/dev/accel",
        "/dev/vfio",
        "iommu group",
        "TPU is already in use",
        "libtpu_lockfile",
        "already in use by",
        "libtpu.so already in use",
        "libtpu.so is already",
    ])
    .also(concat!(
        r"(?i)open\(/dev/(?:accel|vfio)|/dev/(?:accel|vfio)\S*.{0,80}(?:busy|denied|not permitted|failed|error|no such)|(?:could ?n.t|failed to|cannot|unable to) open.{0,40}(?:/dev/(?:accel|vfio)|iommu group)",
        r"|TPU is already in use|libtpu\.so (?:is )?already in use|libtpu_lockfile|already in use by (?:process|another|pid)",
    ))
    .unless(r"(?i)\brm\b|remov(?:e|ed|ing)|unlink|delet|cleaned|address already in use")
    .says(
        "the TPU device is held or cannot be opened",
        &[
            "E1127 03:59:11.120  812 tpu_driver.cc:61] open(/dev/vfio/3): Device or resource busy: Device or resource busy; Couldn't open iommu group /dev/vfio/3",
            "RuntimeError: The TPU is already in use by process with pid 1234. Not attempting to load libtpu.so in this process.",
            "ABORTED: The TPU is already in use by another process probably owned by another user. Run \"$ sudo lsof -w /dev/accel0\"",
        ],
        &["rm -f /tmp/libtpu_lockfile", "OSError: [Errno 98] Address already in use"],
    ),
    Row::new("tpu-init", TpuRuntime, Trust::High, &[
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
    ])
    .also(r"(?i)fail|error|unable|no accelerator|not found|no tpu|invalid|timed? ?out|expected")
    .unless(r"(?i)hugepage|could not open (?:the|any) log")
    .says(
        "the TPU system could not be initialised",
        &[
            "RuntimeError: Bad StatusOr access: UNKNOWN: TPU initialization failed: Invalid --2a886c8_slice_builder_worker_addresses specified. Expected 4 worker addresses, got 1.",
            "RuntimeError: Unable to initialize backend 'tpu': INTERNAL: Failed to get global TPU topology.",
        ],
        &["INFO:tensorflow:Finished initializing TPU system."],
    ),
    Row::new("slice-failure", TpuRuntime, Trust::High, &[
        "SLICE_FAILURE",
        "!!!! FATAL ERROR !!!!",
        "program or fatal error occurred",
        "Halt is unexpected",
        "halted unexpectedly",
        "halted prematurely",
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
    ])
    .also(r"SLICE_FAILURE_|FATAL ERROR|error occurred|Halt is unexpected|halted|will fail|Error Interrupt|(?i)uncorrectable.{0,40}(?:error|ecc)|(?:error|ecc|hbm).{0,40}uncorrectable|did not block|error state|unhealthy|fail|down|bad TPU")
    .says(
        "the TPU chip, its links or its program halted",
        &[
            "Core halted unexpectedly:",
            "E0827 23:43:41.200122   39475 synchronous_driver.cc:820] [/dev/accel0 tpu13:pe1:0] !!!! FATAL ERROR !!!! for [/dev/accel0 tpu13:pe1:0]",
            "INTERNAL: Accelerator device halted prematurely, perhaps due to an on-device check-failure.",
        ],
        &["TPU health check passed"],
    ),
    Row::new("tpu-backend", TpuRuntime, Trust::Low, &["Unable to initialize backend 'tpu'", "Unable to initialize backend \"tpu\""])
        .says(
            "JAX could not start its TPU backend",
            &["RuntimeError: Unable to initialize backend 'tpu': UNKNOWN: something (set JAX_PLATFORMS='' to automatically choose an available backend)"],
            &["Unable to initialize backend 'cuda': not available"],
        ),
    Row::new("crash-in-runtime", TpuRuntime, Trust::Medium, &["libtpu", "TpuPlatform", "xla::", "Tpu", "tpu_", "pjrt", "tensorflow::tpu"])
        .also(r"(?i)^\s*@\s+0x[0-9a-f]+\s.*(?:libtpu|TpuPlatform|GetTpuClient|tensorflow::tpu|Tpu[A-Z]\w+_)|Check fail(?:ed|ure).*(?:tpu|pjrt|xla)|(?:tpu|pjrt|xla)\S*\.(?:cc|h):\d+\S? ?Check failed")
        .says(
            "the TPU runtime crashed",
            &["    @     0x7f6e3aa72127        176  TpuPlatform_Initialize"],
            &["tpu_driver.cc:10] libtpu version 0.1"],
        ),
];
