//! What an exit carries beside the output: the kernel's word, the devices' holders, the runtime's logs; and how often.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rekindle_core::classify::Exit;
use rekindle_wire::agent::WorkerState;

use crate::cloud::{Cloud, Worker};

const RUN: &str = r#"
    echo "F0827 the chip halted" > "$TPU_LOG_DIR/tpu_driver.log"
    echo said; echo $$ > program
    until [ -e go ]; do sleep 0.02; done
    kill -9 $$"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exit_carries_what_the_machine_knows_and_is_told_once() {
    let cloud = Cloud::start(RUN).await;
    let mut worker = Worker::bare(&cloud);
    let home = worker.home();
    let kernel = home.join("kernel");
    for (path, text) in [
        ("proc/meminfo", "MemAvailable: 5000 kB\n"),
        ("proc/self/cgroup", "0::/agent\n"),
        ("sys/fs/cgroup/agent/memory.events", "oom_kill 0\n"),
        ("dev/kmsg", "6,1,10,-;Out of memory: Killed process 1 (x)\n"),
    ] {
        let path = kernel.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    std::fs::create_dir(home.join("dev")).unwrap();
    std::fs::write(home.join("dev/accel0"), "").unwrap();
    worker.start_agent();
    cloud.until_running(1).await;
    let program = worker.line("program").await;
    // A stranger takes the device, and a dead program's lock lies there; the kernel kills the program.
    let _held = File::open(home.join("dev/accel0")).unwrap();
    std::fs::write(home.join("libtpu_lockfile"), "").unwrap();
    let line = format!("Memory cgroup out of memory: Killed process {program} (bash) total-vm:9kB");
    let mut log = OpenOptions::new().append(true).open(kernel.join("dev/kmsg")).unwrap();
    log.write_all(format!("3,2,20,-;{line}\n").as_bytes()).unwrap();
    std::fs::write(worker.work().join("go"), "").unwrap();

    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    let told = exit.evidence;
    assert_eq!((told.exit, exit.ordered), (Exit::Signal(9), false));
    assert_eq!((told.oom_kill, told.oom_line), (true, line));
    assert_eq!(told.memory_free_bytes, Some(5000 * 1024));
    assert!(told.device_busy && told.holders[0].contains("accel0 is held by process"), "{:?}", told.holders);
    assert!(told.holders[1].contains("libtpu_lockfile was left by a process that is dead"), "{:?}", told.holders);
    assert!(!home.join("libtpu_lockfile").exists());
    let tail = "rekindle: the end of tpu_driver.log in TPU_LOG_DIR:\nF0827 the chip halted\nsaid\n";
    assert_eq!(told.tail, tail);

    // Stored once, it does not travel with each call.
    let reports = cloud.set(|inner| inner.reports.len());
    cloud.until("some more reports", |inner| (inner.reports.len() >= reports + 4).then_some(())).await;
    let exits = cloud.set(|inner| inner.reports.iter().filter(|report| report.exit.is_some()).count());
    assert_eq!(exits, 1);
}

/// Room for the program under a real limit, in bytes.
const LIMIT_BYTES: u64 = 32 << 20;

const EATS: &str = r#"
    echo $$ > program
    until [ -e go ]; do sleep 0.02; done
    # One endless line: `tail` keeps all of it, until the kernel ends that.
    tail /dev/zero
    echo "its child left with $?" >&2
    exit 9"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_by_a_real_memory_limit_is_told() {
    const NAME: &str = "a_kill_by_a_real_memory_limit_is_told";
    if !rustix::process::geteuid().is_root() {
        return skipped(NAME, "a memory limit needs root");
    }
    let Some(limit) = Limit::make() else { return skipped(NAME, "the machine's cgroups cannot limit memory") };
    let cloud = Cloud::start(EATS).await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let program = worker.line("program").await;
    std::fs::write(limit.0.join("cgroup.procs"), &program).unwrap();
    // The agent looks at the program's cgroups each half second, which no report tells; by then it has looked several times.
    let reports = cloud.set(|inner| inner.reports.len());
    cloud.until("looks", |inner| (inner.reports.len() >= reports + 60).then_some(())).await;
    std::fs::write(worker.work().join("go"), "").unwrap();

    let told = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap().evidence;
    assert_eq!(told.exit, Exit::Code(9), "{}", told.tail);
    assert!(told.tail.contains("its child left with 137"), "{}", told.tail);
    assert!(told.oom_kill, "the kernel's count in {} was read: {told:?}", limit.0.display());
    assert!(told.memory_free_bytes.is_some_and(|free| free <= LIMIT_BYTES), "the limit binds: {told:?}");
    let evidence = rekindle_core::classify::Evidence { workers: vec![told], ..Default::default() };
    assert_eq!(rekindle_core::classify::classify(&evidence).outcome.as_str(), "oom_host");
}

/// A memory cgroup of this machine, v1 or v2 as it has it. Gone with this value, once nothing lives in it.
struct Limit(PathBuf);

impl Limit {
    fn make() -> Option<Self> {
        let (v1, v2) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
        let name = format!("rekindle-agent-{}", std::process::id());
        let bytes = LIMIT_BYTES.to_string();
        if v1.join("memory.limit_in_bytes").exists() {
            let limit = Self(v1.join(name));
            std::fs::create_dir(&limit.0).ok()?;
            std::fs::write(limit.0.join("memory.limit_in_bytes"), &bytes).ok()?;
            // There only where swap is counted.
            let _ = std::fs::write(limit.0.join("memory.memsw.limit_in_bytes"), &bytes);
            return Some(limit);
        }
        let _ = std::fs::write(v2.join("cgroup.subtree_control"), "+memory");
        let limit = Self(v2.join(name));
        std::fs::create_dir(&limit.0).ok()?;
        std::fs::write(limit.0.join("memory.max"), &bytes).ok()?;
        let _ = std::fs::write(limit.0.join("memory.swap.max"), "0");
        Some(limit)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(20)); // between two looks
        }
    }
}

/// Says by name that a test cannot run here; with CI=true that is a failure.
pub(crate) fn skipped(test: &str, why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{test} must not be skipped in CI: {why}");
    std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes()).unwrap();
}
