//! Kernels of both cgroup versions, made of plain files.

use super::*;

struct Fake {
    root: tempfile::TempDir,
}

impl Fake {
    fn new(files: &[(&str, &str)]) -> Self {
        let fake = Self { root: tempfile::tempdir().unwrap() };
        for (path, text) in files {
            fake.write(path, text);
        }
        fake
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn kernel(&self) -> Kernel {
        Kernel::new(self.root.path())
    }
}

const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable:   1000 kB\n");
const V1: &str = "sys/fs/cgroup/memory/job";
const V2: &str = "sys/fs/cgroup/job.slice/train.scope";

#[test]
fn reads_limits_and_kills_of_version_1() {
    let fake = Fake::new(&[
        MEMINFO,
        ("proc/vmstat", "pgfault 5\noom_kill 7\n"),
        ("proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/job\n0::/y\n"),
        (&format!("{V1}/memory.limit_in_bytes"), "500000\n"),
        (&format!("{V1}/memory.usage_in_bytes"), "450000\n"),
        (&format!("{V1}/memory.stat"), "cache 1\ntotal_inactive_file 30000\n"),
        (&format!("{V1}/memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n"),
    ]);
    assert_eq!(fake.kernel().memory_free(), Some(80_000));
    let before = fake.kernel().oom_kills();
    assert_eq!((before.cgroup, before.machine), (Some(2), Some(7)));
    fake.write(&format!("{V1}/memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
    assert!(before.explains(fake.kernel().oom_kills(), Exit::Signal(9)));
}

#[test]
fn reads_limits_and_kills_of_version_2_and_the_limit_above() {
    let fake = Fake::new(&[
        MEMINFO,
        ("proc/self/cgroup", "0::/job.slice/train.scope\n"),
        (&format!("{V2}/memory.max"), "max\n"),
        (&format!("{V2}/memory.current"), "100\n"),
        (&format!("{V2}/memory.events"), "low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\n"),
        ("sys/fs/cgroup/job.slice/memory.max", "900000\n"),
        ("sys/fs/cgroup/job.slice/memory.current", "890000\n"),
        ("sys/fs/cgroup/job.slice/memory.stat", "inactive_file 0\n"),
    ]);
    assert_eq!(fake.kernel().memory_free(), Some(10_000), "the limit that binds stands above");
    assert_eq!(fake.kernel().oom_kills().cgroup, Some(1));
    fake.write("sys/fs/cgroup/job.slice/memory.max", "max\n");
    assert_eq!(fake.kernel().memory_free(), Some(1_024_000), "the machine's own");
}

#[test]
fn a_kill_in_the_programs_own_cgroup_counts_and_an_earlier_one_does_not() {
    let limited = "sys/fs/cgroup/limited";
    let events = |kills: u32| format!("oom 1\noom_kill {kills}\n");
    let fake = Fake::new(&[
        ("proc/self/cgroup", "0::/agent\n"),
        ("proc/41/cgroup", "0::/agent\n"),
        ("proc/42/cgroup", "0::/limited\n"),
        (&format!("{limited}/memory.events"), &events(3)),
        (&format!("{limited}/memory.max"), "5000\n"),
        (&format!("{limited}/memory.current"), "4000\n"),
    ]);
    let mut watch = Watch::default();
    watch.see(&fake.kernel(), &[41, 42]);
    assert_eq!(watch.memory_free(), Some(1000));
    assert!(!watch.has_seen_kill(Exit::Signal(9)));
    fake.write(&format!("{limited}/memory.events"), &events(4));
    assert!(watch.has_seen_kill(Exit::Code(1)) && !watch.has_seen_kill(Exit::Code(0)));
    assert_eq!(watch.pids, BTreeSet::from([41, 42]));
}

#[test]
fn the_kernels_log_names_whom_it_killed() {
    let old = "6,100,5000,-;Memory cgroup out of memory: Killed process 42 (python3) total-vm:1kB\n";
    let fake = Fake::new(&[("dev/kmsg", &format!("{old} SUBSYSTEM=x\n6,101,5001,-;eth0: up\n"))]);
    let before = fake.kernel().oom_kills();
    assert_eq!(before.record, Some(101));
    let line = "Memory cgroup out of memory: Killed process 43 (python3) total-vm:9kB, anon-rss:8kB";
    let older = "Out of memory: Kill process 44 (python) score 987 or sacrifice child";
    let text = format!(
        "{old}6,101,5001,-;eth0: up\n3,102,6000,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=python3,pid=43,uid=0\n\
         3,103,6001,-;{line}\n3,104,6002,-;{older}\n"
    );
    fake.write("dev/kmsg", &text);
    let found = |pid| fake.kernel().oom_line(before, &BTreeSet::from([1, pid]));
    assert_eq!(found(43).as_deref(), Some(line));
    assert_eq!(found(44).as_deref(), Some(older));
    assert_eq!(found(42), None, "that was before");
    assert_eq!(found(4), None, "a number that another one begins with");
    assert_eq!(Fake::new(&[]).kernel().oom_line(OomKills::default(), &BTreeSet::from([43])), None);
}

#[test]
fn an_oom_kill_of_strangers_is_no_evidence() {
    let with = |cgroup, machine| OomKills { cgroup, machine, record: None };
    let killed = Exit::Signal(9);
    assert!(with(Some(1), Some(5)).explains(with(Some(2), Some(6)), Exit::Code(1)));
    assert!(!with(Some(1), Some(5)).explains(with(Some(1), Some(6)), killed));
    assert!(with(None, Some(5)).explains(with(None, Some(6)), killed));
    assert!(!with(None, Some(5)).explains(with(None, Some(6)), Exit::Code(1)));
    assert!(!with(None, None).explains(with(None, None), killed));
}

#[test]
fn reads_the_machine() {
    let kernel = Kernel::new(Path::new("/"));
    assert!(kernel.memory_free().is_some_and(|free| free > 0));
    let mut watch = Watch::default();
    let me = procfs::process::Process::myself().unwrap().stat().unwrap();
    watch.look(&kernel, me.session);
    assert!(watch.pids.contains(&me.pid));
    assert_eq!(field("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill"), Some(3));
}
