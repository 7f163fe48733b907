//! What an exit carries beside the output: the kernel's word, the devices' holders, the runtime's logs; and how often.

use std::fs::{File, OpenOptions};
use std::io::Write as _;

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
