//! Rows for memory: the device's and the host's.

use crate::classify::signature::{Row, Trust};
use crate::failure::FailureKind::{OomHbm, OomHost, TpuRuntime, UserError};

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "hbm-oom",
        OomHbm,
        Trust::High,
        &[
            "memory space hbm",
            "_HBM",
            "at the bottom of memory",
            "Exceeded hbm capacity",
            "hbm requirement",
            "hbm usage",
            "allocations in hbm",
            "That was not possible",
            "CompileTimeHbm",
            "BufferAllocationFailure",
            "ProgramAllocationFailure",
            "HBM OOM",
            "CUDA out of memory",
            "HIP out of memory",
            "OutOfMemoryError",
        ],
    )
    .also(concat!(
        r"(?i)out of memory|_HBM\d|bottom of memory|hbm capacity|hbm requirement|hbm usage|in hbm",
        r"|not possible\. There are|CUDA\.OutOfMemory|cuda.OutOfMemoryError",
    ))
    .unless(r"(?i)ray\.exceptions|java\.lang|host memory")
    .says(
        "the device memory was exhausted",
        &[
            "jaxlib._jax.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of \
             memory in memory space hbm. Used 17.01G of 15.75G hbm.",
            "ValueError: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 196.00M. \
             That was not possible. There are 60.94M free.; (0x0x0_HBM0)",
            "Attempting to reserve 8.59G at the bottom of memory. That was not possible.",
        ],
        &["RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem while allocating on stack"],
    ),
    Row::new("allocation-table", OomHbm, Trust::Medium, &["Allocation type:"]).says(
        "a table of device allocations was printed, as after exhausted device memory",
        &["  Allocation type: scoped", "    Allocation type: HLO temp"],
        &["allocation_type: spot"],
    ),
    Row::new(
        "device-alloc",
        OomHbm,
        Trust::Medium,
        &["RESOURCE_EXHAUSTED", "Resource exhausted", "ResourceExhausted", "Out of memory", "OOM when allocating"],
    )
    .also(concat!(
        r"(?i)out of memory (?:allocating|while trying|trying)|failed to allocate request",
        r"|error allocating device|OOM when allocating tensor.*(?:TPU|GPU|device:XLA)|error loading program",
    ))
    .unless(r"(?i)device:CPU|by allocator (?:cpu|mklcpu)|Killed process|vmem")
    .says(
        "an allocation on the device failed",
        &["RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes."],
        &["Out of memory: Killed process 611 (python)"],
    ),
    Row::new(
        "resource-exhausted",
        OomHbm,
        Trust::Low,
        &["RESOURCE_EXHAUSTED", "Resource exhausted", "ResourceExhaustedError"],
    )
    .unless(r"(?i)quota|message larger|vmem|smem|rate|No space left|429|too many requests|device:CPU|allocator cpu")
    .says(
        "a resource was exhausted, most often device memory",
        &["jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: "],
        &["RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Requests'"],
    ),
    Row::new(
        "on-chip-scratch",
        UserError,
        Trust::High,
        &["memory space vmem", "memory space smem", "memory space cmem", "scoped vmem", "memory space sflag"],
    )
    .says(
        "a kernel asks for more on-chip scratch memory than there is",
        &["jaxlib._jax.XlaRuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem while \
         allocating on stack for %custom-call.3."],
        &["Ran out of memory in memory space hbm."],
    ),
    Row::new(
        "kernel-oom",
        OomHost,
        Trust::High,
        &[
            "Out of memory: Kill",
            "oom-kill",
            "oom_kill",
            "oom_reaper",
            "Memory cgroup out of memory",
            "OOMKilled",
            "OOM killer",
            "oom killed",
            "out of memory handler",
            "low on resource: memory",
            "exceeded memory limit",
            "due to memory pressure",
            "node running low on memory",
            "ray.exceptions.OutOfMemoryError",
        ],
    )
    .unless(r"(?i)potential root causes|may |might |could |if ")
    .any_level()
    .says(
        "the kernel or the scheduler killed it because host memory ran out",
        &[
            "[12345.678901] Out of memory: Killed process 20110 (python3) total-vm:412345678kB, anon-rss:390000000kB",
            "Memory cgroup out of memory: Killed process 611 (python3)",
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        ],
        &["There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to \
         high memory usage."],
    ),
    Row::new("corrupt-allocation", TpuRuntime, Trust::High, &["tcmalloc: large alloc"])
        .also(r"large alloc \d{14,} bytes")
        .any_level()
        .says(
            "an allocation of an impossible size was asked for, which is corruption and not a lack of memory",
            &["tcmalloc: large alloc 140737488355328 bytes == (nil) @"],
            &["tcmalloc: large alloc 4294967296 bytes == 0x7f"],
        ),
    Row::new(
        "host-alloc",
        OomHost,
        Trust::High,
        &[
            "bad_alloc",
            "MemoryError",
            "Unable to allocate",
            "Cannot allocate memory",
            "can't allocate memory",
            "not enough memory",
            "memory allocation of",
            "runtime: out of memory",
            "java.lang.OutOfMemoryError",
            "OOM when allocating",
            "Errno 12]",
            "killed by signal: Killed",
            "SIGKILL",
        ],
    )
    .also(concat!(
        r"(?i)bad_alloc|\bMemoryError\b|Unable to allocate [\d.]+ ?[KMGT]i?B|(?:cannot|can't) allocate memory",
        r"|not enough memory: you tried|memory allocation of \d+ bytes failed",
        r"|runtime: out of memory|java\.lang\.OutOfMemory|OOM when allocating.*(?:device:CPU|allocator (?:cpu",
        r"|mklcpu))|\[Errno 12\]|killed by signal: Killed|died with <Signals\.SIGKILL",
        r"|terminated with signal SIGKILL|Signal 9 \(SIGKILL\) received",
    ))
    .says(
        "an allocation of host memory failed",
        &[
            "  what():  std::bad_alloc",
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 24.0 GiB for an array with shape (1, 2)",
            "RuntimeError: DataLoader worker (pid 611) is killed by signal: Killed.",
        ],
        &["CUDA out of memory. Tried to allocate 2.00 GiB"],
    ),
    Row::new(
        "shared-memory",
        OomHost,
        Trust::High,
        &["out of shared memory", "insufficient shared memory", "signal: Bus error"],
    )
    .says(
        "shared memory ran out",
        &["RuntimeError: DataLoader worker (pid 611) is killed by signal: Bus error. It is possible that \
         dataloader's workers are out of shared memory."],
        &["shared memory: 64G"],
    ),
    Row::new("shell-killed", OomHost, Trust::Killed, &["Killed"])
        .also(r"^Killed(?: \(core dumped\))?$|: line \d+:\s+\d+ Killed\b|^\[\d+\][+-]?\s+Killed\b")
        .says(
            "the shell says that it was killed, as the kernel does when memory runs out",
            &["run.sh: line 12:   611 Killed                  python -u train_lm.py", "Killed"],
            &["Killed three bugs in the loader"],
        ),
    Row::new(
        "pool-died",
        OomHost,
        Trust::Low,
        &[
            "BrokenProcessPool",
            "terminated abruptly",
            "exited unexpectedly",
            "died unexpectedly",
            "abruptly died",
            "died abruptly",
            "unexpectedly terminated",
            "terminated unexpectedly",
            "TerminatedWorkerError",
        ],
    )
    .also(concat!(
        r"BrokenProcessPool|process pool was terminated abruptly|DataLoader worker.*exited unexpectedly",
        r"|(?i)\b(?:sub)?process(?:es)?\b.{0,60}(?:abruptly died|died (?:unexpectedly|abruptly)|unexpectedly",
        r" terminated",
        r"|terminated unexpectedly|exited unexpectedly)|TerminatedWorkerError",
    ))
    .says(
        "a helper process vanished, most often for want of memory",
        &[
            "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated \
             abruptly while the future was running or pending.",
            "RuntimeError: One of the subprocesses has abruptly died during map operation.",
            "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by the \
             executor was unexpectedly terminated.",
        ],
        &["worker exited cleanly"],
    ),
    Row::new(
        "ray-system-error",
        OomHost,
        Trust::Low,
        &["potential root causes", "Owner worker exit type: SYSTEM_ERROR", "Worker exit type: SYSTEM_ERROR"],
    )
    .unless(r"node has crashed|node has died")
    .says(
        "Ray lost the process, and its first guess is host memory",
        &["The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker \
             exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are \
             some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high \
             memory usage."],
        &["Worker exit type: INTENDED_USER_EXIT"],
    ),
    Row::new("child-killed", OomHost, Trust::Killed, &["exitcode"]).also(r"exitcode *:? *\(?-9\b").says(
        "a child process was killed, as the kernel does when memory runs out",
        &[
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 0 (pid: \
             178) of binary: /usr/bin/python",
            "  exitcode  : -9 (pid: 3309)",
        ],
        &["failed (exitcode: 1) local_rank: 0"],
    ),
];
