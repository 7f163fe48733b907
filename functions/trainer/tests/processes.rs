//! Whole runs of four real processes over real gRPC: killed, cut and told to stop, they end with the bits of an
//! undisturbed run.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const WORKERS: u32 = 4;
const SEED: u64 = 11;
/// For what takes a second on a quiet machine.
const DEADLINE: Duration = Duration::from_mins(1);

/// Milliseconds a step takes in an attempt that is to be interrupted: slow enough to do it long before the last step.
const SLOW: u64 = 20;

/// A job's folder, and the number of its attempts so far.
struct Job {
    folder: tempfile::TempDir,
    attempt: u32,
}

/// One attempt: its processes and their files.
struct Attempt {
    children: Vec<Child>,
    folder: PathBuf,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Job {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), attempt: 0 }
    }

    fn checkpoints(&self) -> PathBuf {
        self.folder.path().join("checkpoints")
    }

    /// Starts the next attempt on all workers, each with files and an environment of its own.
    fn start(&mut self, steps: u64, resume: bool, step_ms: u64) -> Attempt {
        self.attempt += 1;
        let folder = self.folder.path().join(format!("attempt-{}", self.attempt));
        fs::create_dir(&folder).unwrap();
        // An address that only this test process uses, so that nothing else can take the port.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let unique = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = unique.local_addr().unwrap().port();
        let coordinator = format!("127.{}.{high}.{low}:{port}", 128 + self.attempt);
        let children = (0..WORKERS)
            .map(|worker| {
                let file = |name: &str| folder.join(format!("{name}-{worker}"));
                Command::new(env!("CARGO_BIN_EXE_rekindle-trainer"))
                    .args(["--steps", &steps.to_string(), "--seed", &SEED.to_string()])
                    .args(["--step-ms", &step_ms.to_string(), "--checkpoint-every", "10"])
                    .env("REKINDLE_WORKER", worker.to_string())
                    .env("REKINDLE_WORKERS", WORKERS.to_string())
                    .env("REKINDLE_COORDINATOR", &coordinator)
                    .env("REKINDLE_ATTEMPT", self.attempt.to_string())
                    .env("REKINDLE_RESUME", if resume { "1" } else { "0" })
                    .env("REKINDLE_CHECKPOINT_DIR", format!("file://{}", self.checkpoints().display()))
                    .env("REKINDLE_PROGRESS_FILE", file("progress"))
                    .env("REKINDLE_NOTICE_FILE", file("notice"))
                    .stdout(File::create(file("stdout")).unwrap())
                    .stderr(File::create(file("stderr")).unwrap())
                    .spawn()
                    .unwrap()
            })
            .collect();
        Attempt { children, folder }
    }

    fn newest_checkpoint(&self) -> u64 {
        let names = fs::read_dir(self.checkpoints()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| name.strip_prefix("step-")?.strip_suffix(".ckpt")?.parse().ok()).max().unwrap()
    }

    fn final_digest(&self) -> String {
        let file = fs::read(self.checkpoints().join("final.json")).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&file).unwrap();
        value["digest"].as_str().unwrap().to_owned()
    }
}

impl Attempt {
    fn text(&self, name: &str, worker: u32) -> String {
        fs::read_to_string(self.folder.join(format!("{name}-{worker}"))).unwrap_or_default()
    }

    /// Every value of a key in a worker's progress file, in order.
    fn progress(&self, worker: u32, key: &str) -> Vec<u64> {
        let file = self.text("progress", worker);
        let whole = &file[..file.rfind('\n').map_or(0, |end| end + 1)];
        let pairs = whole.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.filter(|(name, _)| *name == key).map(|(_, value)| value.parse().unwrap()).collect()
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !holds(self) {
            assert!(Instant::now() < deadline, "not in time: {what}\n{}", self.account());
            std::thread::sleep(Duration::from_millis(2)); // between two looks
        }
    }

    fn until_step(&mut self, step: u64) {
        self.until(&format!("step {step}"), |this| this.progress(0, "step").last().is_some_and(|last| *last >= step));
    }

    fn signal(&self, worker: u32, signal: Signal) {
        let id = i32::try_from(self.children[worker as usize].id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    fn exit(&mut self, worker: u32) -> ExitStatus {
        let mut status = None;
        self.until(&format!("exit of worker {worker}"), |this| {
            status = this.children[worker as usize].try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    fn expect_codes(&mut self, workers: &[u32], code: i32) {
        for &worker in workers {
            let status = self.exit(worker);
            assert_eq!(status.code(), Some(code), "worker {worker}: {status}\n{}", self.account());
        }
    }

    /// All that the workers have said.
    fn account(&self) -> String {
        let texts = (0..WORKERS).flat_map(|worker| [self.text("stdout", worker), self.text("stderr", worker)]);
        texts.collect::<Vec<_>>().join("--\n")
    }
}

fn files_of(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn two_kills_and_two_resumes_end_with_the_bits_of_an_undisturbed_run() {
    let steps = 250;
    let mut job = Job::new();

    let mut first = job.start(steps, false, SLOW);
    first.until_step(25);
    first.signal(2, Signal::KILL);
    first.expect_codes(&[0, 1, 3], 1);
    let error = first.text("stderr", 0);
    assert!(error.starts_with("Error: all-reduce at step ") && error.contains("lost worker 2: h2 protocol"), "{error}");
    for peer in [1, 3] {
        let error = first.text("stderr", peer);
        assert!(error.contains("failed: gRPC status") && error.contains("lost worker 2"), "{error}");
    }

    let mut second = job.start(steps, true, SLOW);
    second.until_step(55);
    second.signal(0, Signal::KILL);
    second.expect_codes(&[1, 2, 3], 1);
    let began = second.progress(0, "resumed_from");
    assert!(began.len() == 1 && began[0] >= 20 && began[0].is_multiple_of(10), "{began:?}");
    assert_eq!(second.progress(3, "resumed_from"), began, "all workers begin where worker 0 does");
    let error = second.text("stderr", 3);
    assert!(error.starts_with("Error: all-reduce at step ") && error.contains("h2 protocol error"), "{error}");

    // The newest checkpoint is damaged on disk: the next older one must do.
    let newest = job.newest_checkpoint();
    let path = job.checkpoints().join(format!("step-{newest:08}.ckpt"));
    let file = fs::read(&path).unwrap();
    fs::write(&path, &file[..file.len() / 2]).unwrap();

    let mut third = job.start(steps, true, 0);
    third.expect_codes(&[0, 1, 2, 3], 0);
    assert!(newest >= 50);
    assert_eq!(third.progress(0, "resumed_from"), [newest - 10]);
    assert!(third.text("stdout", 0).contains(&format!("step-{newest:08}.ckpt skipped: ")));
    assert_eq!(third.progress(2, "step").last(), Some(&steps));
    assert_eq!(job.final_digest(), rekindle_trainer::run_reference(SEED, WORKERS, steps));
    assert!(third.text("stdout", 3).contains(&format!("final digest {}", job.final_digest())));
    assert_eq!(files_of(&job.checkpoints()).len(), 5, "three checkpoints, the damaged one, and final.json");
}

#[test]
fn sigterm_loses_no_step() {
    let steps = 250;
    let mut job = Job::new();

    // All at once, as a preemption does.
    let mut first = job.start(steps, false, SLOW);
    first.until_step(13);
    for worker in 0..WORKERS {
        first.signal(worker, Signal::TERM);
    }
    first.expect_codes(&[0, 1, 2, 3], 143);
    let reached = *first.progress(0, "step").last().unwrap();
    assert_eq!(job.newest_checkpoint(), reached);
    assert_eq!(first.progress(0, "checkpoint").last(), Some(&reached));
    assert!(first.text("stdout", 0).contains(&format!("SIGTERM: saved checkpoint at step {reached}\n")));

    // One worker hears of it first: worker 0 saves for it, and waits for its own signal.
    let mut second = job.start(steps, true, SLOW);
    second.until_step(reached + 9);
    second.signal(3, Signal::TERM);
    second.expect_codes(&[3], 143);
    second.until("worker 0 stops too", |this| this.text("stdout", 0).contains("worker 3 has to stop: saved"));
    assert!(second.children[0].try_wait().unwrap().is_none(), "worker 0 waits for its own signal");
    for worker in 0..3 {
        second.signal(worker, Signal::TERM);
    }
    second.expect_codes(&[0, 1, 2], 143);
    assert_eq!(second.progress(0, "resumed_from"), [reached]);
    let reached = *second.progress(0, "step").last().unwrap();
    assert_eq!(job.newest_checkpoint(), reached);

    let mut third = job.start(steps, true, 0);
    third.expect_codes(&[0, 1, 2, 3], 0);
    assert_eq!(third.progress(0, "resumed_from"), [reached]);
    assert_eq!(job.final_digest(), rekindle_trainer::run_reference(SEED, WORKERS, steps));
}

#[test]
fn worker_0_saves_at_sigterm_also_when_the_others_no_longer_answer() {
    let mut job = Job::new();
    let mut run = job.start(5000, false, SLOW);
    run.until_step(5);
    for peer in 1..WORKERS {
        run.signal(peer, Signal::STOP);
    }
    let asked = Instant::now();
    run.signal(0, Signal::TERM);
    run.expect_codes(&[0], 143);
    // Far below the ten seconds after which it would have given up on the others by itself.
    assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
    assert_eq!(Some(&job.newest_checkpoint()), run.progress(0, "step").last());
}

#[test]
fn a_notice_is_answered_with_a_checkpoint_and_training_goes_on() {
    let mut job = Job::new();
    let mut run = job.start(5000, false, SLOW);
    run.until_step(11);
    fs::write(run.folder.join("notice-0"), "preempted\n").unwrap();
    let said = "notice: the slice will be taken away, saving at step ";
    run.until("the notice", |this| this.text("stdout", 0).contains(said));
    let output = run.text("stdout", 0);
    let saved: u64 = output.split_once(said).unwrap().1.lines().next().unwrap().parse().unwrap();
    run.until("its checkpoint", |this| this.progress(0, "checkpoint").contains(&saved));
    assert!(job.checkpoints().join(format!("step-{saved:08}.ckpt")).exists() || job.newest_checkpoint() > saved);
    run.until_step(saved + 3);
}
