//! The folder of an attempt is open to its program, which may remove it.

use std::path::Path;

use rekindle_core::classify::Exit;
use rekindle_wire::agent::{Want, WorkerState};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::cloud::{Cloud, Worker, is_alive, order, poll, work};

/// Removes the folder of its attempt.
const REMOVE: &str = "rm -r \"${REKINDLE_PROGRESS_FILE%/*}\"; touch removed";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_removes_the_folder_of_its_attempt_loses_neither_output_nor_its_exit() {
    loses_nothing("rm -r \"$folder\"").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_whose_papers_are_removed_goes_on_and_so_does_its_output() {
    let run = format!("{REMOVE}; echo one; until [ -e go ]; do sleep 0.02; done; echo two");
    let cloud = Cloud::start(&run).await;
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    cloud.until("the first", |inner| (inner.output(1, "stdout")? == b"one\n").then_some(())).await;
    let papers = worker.home().join("jobs/train/g2/a1/run.started.json");
    poll("its papers are there again", || papers.exists().then_some(())).await;
    worker.kill_agent();
    worker.start_agent();
    std::fs::write(worker.work().join("go"), "").unwrap();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(0), "the next agent finds it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_a_file_that_is_gone_is_a_gap_with_its_count_and_is_not_waited_for() {
    gone_is_a_gap(|file| std::fs::remove_file(file).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_where_a_folder_is_instead_is_a_gap_with_its_count_and_is_not_waited_for() {
    gone_is_a_gap(|file| {
        std::fs::remove_file(file).unwrap();
        std::fs::create_dir_all(file.join("in_it")).unwrap();
    })
    .await;
}

async fn gone_is_a_gap(remove: impl FnOnce(&Path)) {
    let cloud = Cloud::start("echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 3").await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    cloud.until("the first", |inner| (inner.output(1, "stdout")? == b"one\n").then_some(())).await;
    cloud.set(|inner| inner.takes_no_logs = true);
    std::fs::write(worker.work().join("go"), "").unwrap();
    let told = cloud.until("the exit", |inner| inner.is(1, WorkerState::Exited)).await;
    assert!(told.has_unsent);
    let folder = worker.home().join("jobs/train/g2/a1");
    poll("its output is closed", || folder.join("closed").is_symlink().then_some(())).await;
    remove(&folder.join("stdout"));
    // What was read before is not on its way any more.
    let is_seen = || std::fs::read_to_string(folder.join("logs.json")).ok()?.contains("\"lost\":4").then_some(());
    poll("it is seen", is_seen).await;
    cloud.set(|inner| inner.takes_no_logs = false);
    let due = "one\n\nrekindle: 4 bytes of output were dropped here: somebody removed or emptied the file in which they waited\n";
    cloud.until("the gap", |inner| (inner.output(1, "stdout")? == due.as_bytes()).then_some(())).await;
    cloud
        .until("nothing is waited for", |inner| {
            inner.is(1, WorkerState::Exited).filter(|report| !report.has_unsent).map(drop)
        })
        .await;
    cloud.want(Want::Retire);
}

/// A machine whose output waits in a folder of this one, as beside others in `/dev/shm`.
fn with_memory(cloud: &Cloud, memory: &tempfile::TempDir) -> Worker {
    let buffer = memory.path().join("rekindle").display().to_string();
    Worker::start_with(cloud, vec![("REKINDLE_BUFFER_DIR", buffer)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_whose_end_cannot_be_told_by_its_shim_has_ended_all_the_same() {
    let memory = tempfile::tempdir().unwrap();
    let run = "sleep 1000 & echo $! >child; until [ -e go ]; do sleep 0.02; done
        until [ -f $MEMORY ]; do rm -rf $MEMORY; touch $MEMORY; done; exit 3";
    let cloud = Cloud::start(&run.replace("$MEMORY", &memory.path().display().to_string())).await;
    let worker = with_memory(&cloud, &memory);
    cloud.until_running(1).await;
    let child = worker.line("child").await;
    assert!(is_alive(&child));
    std::fs::write(worker.work().join("go"), "").unwrap();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Silent, false), "nobody could tell");
    assert!(
        exit.evidence.tail.contains("is gone: the program, or somebody else, has removed it"),
        "{:?}",
        exit.evidence.tail
    );
    assert!(!is_alive(&child));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_empties_the_memory_of_the_machine_loses_neither_output_nor_its_exit() {
    let memory = tempfile::tempdir().unwrap();
    let run = "echo one; until [ -e go ]; do sleep 0.02; done; echo two; rm -rf $MEMORY/*; touch removed
        echo three; exit 3";
    let cloud = Cloud::start(&run.replace("$MEMORY", &memory.path().display().to_string())).await;
    let worker = with_memory(&cloud, &memory);
    cloud.until_running(1).await;
    cloud.until("the first", |inner| (inner.output(1, "stdout")? == b"one\n").then_some(())).await;
    cloud.set(|inner| inner.takes_no_logs = true);
    std::fs::write(worker.work().join("go"), "").unwrap();
    poll("all is removed", || worker.work().join("removed").exists().then_some(())).await;
    cloud.set(|inner| inner.takes_no_logs = false);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(3), false));
    cloud.until("all", |inner| (inner.output(1, "stdout")? == b"one\ntwo\nthree\n").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_papers_are_there_again_also_where_something_of_the_program_ends_all_the_time() {
    let ends = "(while :; do (sleep 0.3 & ) ; sleep 0.1; done) &";
    let run = format!("{ends} until [ -e go ]; do sleep 0.02; done; {REMOVE}; wait");
    let cloud = Cloud::start(&run).await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    std::fs::write(worker.work().join("go"), "").unwrap();
    poll("the folder is removed", || worker.work().join("removed").exists().then_some(())).await;
    let papers = worker.home().join("jobs/train/g2/a1/run.started.json");
    poll("its papers are there again", || papers.exists().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_removes_what_its_folder_lies_in_loses_neither_output_nor_its_exit() {
    for above in ["${REKINDLE_PROGRESS_FILE%/*/*}", "${REKINDLE_PROGRESS_FILE%/*/*/*/*}"] {
        let elsewhere = tempfile::tempdir().unwrap();
        let run = "echo one; until [ -e $MARK/go ]; do sleep 0.02; done; echo two; rm -rf $ABOVE; touch $MARK/removed
            echo three; exit 3";
        let run = run.replace("$MARK", &elsewhere.path().display().to_string()).replace("$ABOVE", above);
        let cloud = Cloud::start(&run).await;
        let _worker = Worker::start(&cloud);
        cloud.until_running(1).await;
        cloud.until("the first", |inner| (inner.output(1, "stdout")? == b"one\n").then_some(())).await;
        cloud.set(|inner| inner.takes_no_logs = true);
        std::fs::write(elsewhere.path().join("go"), "").unwrap();
        poll("all is removed", || elsewhere.path().join("removed").exists().then_some(())).await;
        cloud.set(|inner| inner.takes_no_logs = false);
        let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
        assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(3), false), "{above}");
        cloud.until("all", |inner| (inner.output(1, "stdout")? == b"one\ntwo\nthree\n").then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_program_that_removes_all_that_is_the_agents_another_attempt_runs() {
    let cloud = Cloud::start("rm -rf \"${REKINDLE_PROGRESS_FILE%/*/*/*/*/*}\"; exit 3").await;
    let mut worker = Worker::bare(&cloud);
    // As the startup script does it.
    let binary = worker.home().join("rekindle-agent");
    std::fs::copy(env!("CARGO_BIN_EXE_rekindle-agent"), &binary).unwrap();
    worker.start_agent_at(&binary);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(3), false));
    assert!(!binary.exists());
    cloud.set(|inner| inner.order = order(2, Want::Run, Some(work(2, "echo again"))));
    let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(0), "{:?}", exit.evidence.tail);
    assert_eq!(cloud.set(|inner| inner.output(2, "stdout")).unwrap(), b"again\n");
}

/// Says `one` and, when it is told to go, `two`; does this, says `three` and fails.
async fn loses_nothing(does: &str) {
    let elsewhere = tempfile::tempdir().unwrap();
    let run = format!(
        "echo one; until [ -e $MARK/go ]; do sleep 0.02; done; folder=\"${{REKINDLE_PROGRESS_FILE%/*}}\"; echo two
        {does}; touch $MARK/done; echo three; exit 3"
    );
    let cloud = Cloud::start(&run.replace("$MARK", &elsewhere.path().display().to_string())).await;
    let _worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    cloud.until("the first", |inner| (inner.output(1, "stdout")? == b"one\n").then_some(())).await;
    cloud.set(|inner| inner.takes_no_logs = true);
    std::fs::write(elsewhere.path().join("go"), "").unwrap();
    poll("it is done", || elsewhere.path().join("done").exists().then_some(())).await;
    cloud.set(|inner| inner.takes_no_logs = false);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(3), false), "{does}");
    cloud.until("all", |inner| (inner.output(1, "stdout")? == b"one\ntwo\nthree\n").then_some(())).await;
    cloud
        .until("nothing is waited for", |inner| {
            inner.is(1, WorkerState::Exited).filter(|report| !report.has_unsent).map(drop)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_in_the_place_of_a_folder_costs_neither_output_nor_the_exit() {
    for place in ["$folder", "${folder%/*}"] {
        loses_nothing(&format!("until [ -f \"{place}\" ]; do rm -rf \"{place}\"; touch \"{place}\"; done")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_in_the_place_of_a_file_costs_neither_output_nor_the_exit() {
    let papers =
        "stdout stderr logs.json run.blank run.ended.json run.started.json run.claim.json run.spec.json closed";
    let each = "until [ -e \"$folder/$one/in_it\" ]; do rm -rf \"$folder/$one\"; mkdir -p \"$folder/$one/in_it\"; done";
    loses_nothing(&format!("for one in {papers}; do {each}; done")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipes_in_the_place_of_files_cost_neither_output_nor_the_exit() {
    let papers = "stdout stderr logs.json run.blank run.started.json run.claim.json run.spec.json closed shim.log";
    let pipe = "for one in $papers; do until [ -p \"$folder/$one\" ]; do rm -rf \"$folder/$one\"; mkfifo \"$folder/$one\"; done; done";
    let is_aside = "until [ -p \"$folder/stdout.aside\" ]; do sleep 0.02; done";
    loses_nothing(&format!("papers='{papers}'; {pipe}; {is_aside}; {pipe}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipes_in_the_folder_of_the_next_attempt_do_not_hold_it_up() {
    let names = "stdout stderr shim.log run.reserve run.blank logs.json run.spec.json run.started.json";
    let pipes = format!(
        "folder=\"${{REKINDLE_PROGRESS_FILE%/*/*}}/a2\"; mkdir \"$folder\"; for one in {names}; do mkfifo \"$folder/$one\"; done"
    );
    let cloud = Cloud::start(&pipes).await;
    let _worker = Worker::start(&cloud);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    cloud.until_state(1, WorkerState::Exited).await;
    cloud.set(|inner| inner.order = order(2, Want::Run, Some(work(2, "echo again; exit 3"))));
    let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(3), "{:?}", exit.evidence.tail);
    cloud.until("its output", |inner| (inner.output(2, "stdout")? == b"again\n").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_by_which_the_program_seems_to_say_that_all_is_said_says_nothing() {
    let run = "touch \"${REKINDLE_PROGRESS_FILE%/*}/closed\"; echo one; until [ -e go ]; do sleep 0.02; done; echo two";
    let cloud = Cloud::start(run).await;
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    cloud.until("the first", |inner| (inner.output(1, "stdout")? == b"one\n").then_some(())).await;
    let paper = worker.home().join("jobs/train/g2/a1/logs.json");
    // In the round in which it is sent it would be taken for the last.
    poll("it is written down", || std::fs::read_to_string(&paper).ok()?.contains("\"offset\":4").then_some(())).await;
    std::fs::write(worker.work().join("go"), "").unwrap();
    cloud.until("the last", |inner| (inner.output(1, "stdout")? == b"one\ntwo\n").then_some(())).await;
    let closed = worker.home().join("jobs/train/g2/a1/closed");
    poll("the output is closed", || closed.is_symlink().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn papers_of_another_attempt_say_nothing_of_this_one() {
    let cloud = Cloud::start("exit 0").await;
    let mut worker = Worker::start(&cloud);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    cloud.until_state(1, WorkerState::Exited).await;
    let copy =
        "a1=\"${REKINDLE_PROGRESS_FILE%/*/*}/a1\"; cp -a \"$a1/.\" \"${REKINDLE_PROGRESS_FILE%/*}\"; touch copied
        until [ -e go ]; do sleep 0.02; done; echo two; exit 3";
    cloud.set(|inner| inner.order = order(2, Want::Run, Some(work(2, copy))));
    cloud.until_state(2, WorkerState::Running).await;
    poll("they are copied", || worker.work().join("copied").exists().then_some(())).await;
    let folder = worker.home().join("jobs/train/g2");
    let claim = |attempt: &str| std::fs::read(folder.join(attempt).join("run.claim.json")).ok();
    poll("its shim has put its own there", || (claim("a1")? != claim("a2")?).then_some(())).await;
    // That all of the other's output is sent stands there, too.
    worker.kill_agent();
    worker.start_agent();
    std::fs::write(worker.work().join("go"), "").unwrap();
    let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(3), false));
    cloud.until("its output", |inner| (inner.output(2, "stdout")? == b"two\n").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_started_also_where_setup_copied_the_papers_of_another() {
    for is_restarted in [false, true] {
        let cloud = Cloud::start("exit 0").await;
        let mut worker = Worker::start(&cloud);
        cloud.until_state(1, WorkerState::Ready).await;
        cloud.want(Want::Run);
        cloud.until_state(1, WorkerState::Exited).await;
        let setup = "folder=\"${REKINDLE_PROGRESS_FILE%/*}\"; cp -a \"${folder%/*}/a1/.\" \"$folder\"; touch copied
            until [ -e go ]; do sleep 0.02; done";
        let mut second = work(2, "echo two; exit 3");
        second.setup = Some(rekindle_core::spec::CommandLine::Shell(setup.to_owned()));
        cloud.set(|inner| inner.order = order(2, Want::Run, Some(second)));
        poll("they are copied", || worker.work().join("copied").exists().then_some(())).await;
        if is_restarted {
            worker.kill_agent();
            let before = cloud.set(|inner| inner.reports.len());
            worker.start_agent();
            cloud.until("the next one tells of it", |inner| (inner.reports.len() > before + 1).then_some(())).await;
        }
        std::fs::write(worker.work().join("go"), "").unwrap();
        let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
        assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(3), false), "restarted: {is_restarted}");
        cloud.until("its output", |inner| (inner.output(2, "stdout")? == b"two\n").then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_started_also_where_the_last_agent_only_wrote_that_down_and_setup_copied_a_claim() {
    let cloud = Cloud::start("exit 0").await;
    let mut worker = Worker::start(&cloud);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    cloud.until_state(1, WorkerState::Exited).await;
    let setup = "folder=\"${REKINDLE_PROGRESS_FILE%/*}\"; touch begun; until [ -e go ]; do sleep 0.02; done
        cp -a \"${folder%/*}/a1/.\" \"$folder\"";
    let mut second = work(2, "echo two; exit 3");
    second.setup = Some(rekindle_core::spec::CommandLine::Shell(setup.to_owned()));
    cloud.set(|inner| inner.order = order(2, Want::Run, Some(second)));
    poll("setup runs", || worker.work().join("begun").exists().then_some(())).await;
    let generation = worker.home().join("jobs/train/g2");
    let state = || serde_json::from_slice::<Value>(&std::fs::read(generation.join("state.json")).ok()?).ok();
    poll("it is written down", || (state()?["attempt"]["step"] == "Setup").then_some(())).await;
    worker.kill_agent();
    std::fs::write(worker.work().join("go"), "").unwrap();
    // Its own papers of `setup`, and that of the other program.
    let ended = generation.join("a2/setup.ended.json");
    poll("setup has ended", || std::fs::read_to_string(&ended).ok()?.contains("\"attempt\":2").then_some(())).await;
    let mut known = state().unwrap();
    known["attempt"]["step"] = "Run".into();
    std::fs::write(generation.join("state.json"), known.to_string()).unwrap();
    worker.start_agent();
    let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(3), false));
    cloud.until("its output", |inner| (inner.output(2, "stdout")? == b"two\n").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_program_that_puts_a_file_in_the_place_of_the_generation_another_attempt_runs() {
    let memory = tempfile::tempdir().unwrap();
    let cloud = Cloud::start(
        "place=\"${PWD%/*}\"; cd /; until [ -f \"$place\" ]; do rm -rf \"$place\"; touch \"$place\"; done; exit 3",
    )
    .await;
    let _worker = with_memory(&cloud, &memory);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(3), false));
    cloud.set(|inner| inner.order = order(2, Want::Run, Some(work(2, "echo again"))));
    let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(0), "{:?}", exit.evidence.tail);
}

/// The shim of the program of an attempt.
fn shim_of(folder: &Path) -> i32 {
    let claim: Value = serde_json::from_slice(&std::fs::read(folder.join("run.claim.json")).unwrap()).unwrap();
    i32::try_from(claim["pid"].as_i64().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_lives_is_begun_no_second_time_whatever_became_of_its_shim_and_papers() {
    for (signal, is_copied) in [(Signal::KILL, true), (Signal::KILL, false), (Signal::STOP, true)] {
        let cloud = Cloud::start("exit 0").await;
        let mut worker = Worker::start(&cloud);
        cloud.until_state(1, WorkerState::Ready).await;
        cloud.want(Want::Run);
        cloud.until_state(1, WorkerState::Exited).await;
        let run = "echo $$ >>starts; exec sleep 1000";
        cloud.set(|inner| inner.order = order(2, Want::Run, Some(work(2, run))));
        cloud.until_state(2, WorkerState::Running).await;
        let program = worker.line("starts").await;
        let state = || {
            let text = std::fs::read(worker.home().join("jobs/train/g2/state.json")).ok()?;
            serde_json::from_slice::<Value>(&text).ok()
        };
        // It may be told first.
        poll("that it has begun is written down", || {
            let attempt = &state()?["attempt"];
            (attempt["number"] == 2 && attempt["started_at"].is_string()).then_some(())
        })
        .await;
        worker.kill_agent();
        let attempts = ["a1", "a2"].map(|name| worker.home().join("jobs/train/g2").join(name));
        rustix::process::kill_process(Pid::from_raw(shim_of(&attempts[1])).unwrap(), signal).unwrap();
        for paper in ["run.spec.json", "run.claim.json", "run.started.json"] {
            if is_copied {
                std::fs::copy(attempts[0].join(paper), attempts[1].join(paper)).unwrap();
            } else {
                std::fs::remove_file(attempts[1].join(paper)).unwrap();
            }
        }
        // As `api` answers a worker that prepares in an attempt that has started.
        cloud.want(Want::Prepare);
        worker.start_agent();
        let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
        assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Silent, false), "{signal:?}, copied: {is_copied}");
        assert!(exit.evidence.tail.contains("what kept it and what was written down of it"), "{exit:?}");
        assert!(!is_alive(&program));
        assert_eq!(worker.line("starts").await, program, "once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setup_that_lives_is_ended_before_it_is_begun_again() {
    let cloud = Cloud::start("exit 0").await;
    let setup = "echo $$ >>setups; [ -e go ] || exec sleep 1000";
    cloud.set(|inner| {
        let work = inner.order.work.as_mut().unwrap();
        work.setup = Some(rekindle_core::spec::CommandLine::Shell(setup.to_owned()));
    });
    let mut worker = Worker::start(&cloud);
    let first = worker.line("setups").await;
    let generation = worker.home().join("jobs/train/g2");
    let state = || serde_json::from_slice::<Value>(&std::fs::read(generation.join("state.json")).ok()?).ok();
    poll("it is written down", || (state()?["attempt"]["step"] == "Setup").then_some(())).await;
    poll("its papers are there", || generation.join("a1/setup.started.json").exists().then_some(())).await;
    worker.kill_agent();
    let claim: Value = serde_json::from_slice(&std::fs::read(generation.join("a1/setup.claim.json")).unwrap()).unwrap();
    let shim = Pid::from_raw(i32::try_from(claim["pid"].as_i64().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(shim, Signal::KILL).unwrap();
    for paper in ["setup.spec.json", "setup.claim.json", "setup.started.json"] {
        std::fs::remove_file(generation.join("a1").join(paper)).unwrap();
    }
    std::fs::write(worker.work().join("go"), "").unwrap();
    worker.start_agent();
    worker.lines("setups", 2).await;
    assert!(!is_alive(&first));
    cloud.until_state(1, WorkerState::Ready).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_shim_that_lives_keeps_is_adopted_though_its_papers_are_not_there_yet() {
    for name in ["setup", "run"] {
        let text = "echo $$ >>starts; until [ -e go ]; do sleep 0.02; done";
        let cloud = Cloud::start(if name == "run" { text } else { "exit 0" }).await;
        if name == "setup" {
            let setup = Some(rekindle_core::spec::CommandLine::Shell(text.to_owned()));
            cloud.set(|inner| inner.order.work.as_mut().unwrap().setup = setup);
        }
        let mut worker = Worker::start(&cloud);
        if name == "run" {
            cloud.until_running(1).await;
        }
        let program = worker.line("starts").await;
        let generation = worker.home().join("jobs/train/g2");
        let [claim, started] = ["claim", "started"].map(|paper| generation.join(format!("a1/{name}.{paper}.json")));
        let step = || {
            let state = serde_json::from_slice::<Value>(&std::fs::read(generation.join("state.json")).ok()?).ok()?;
            state["attempt"]["step"].as_str().map(str::to_lowercase).filter(|step| step == name)
        };
        poll("it is written down", step).await;
        poll("its papers are there", || started.exists().then_some(())).await;
        worker.kill_agent();
        let remove = || [&claim, &started].map(|paper| std::fs::remove_file(paper).unwrap());
        remove();
        // Its shim has just looked, and does not so soon again.
        poll("its papers are there again", || (claim.exists() && started.exists()).then_some(())).await;
        remove();
        worker.start_agent();
        poll("its papers are there again", || (claim.exists() && started.exists()).then_some(())).await;
        assert!(is_alive(&program), "{name}");
        std::fs::write(worker.work().join("go"), "").unwrap();
        if name == "setup" {
            cloud.until_state(1, WorkerState::Ready).await;
            cloud.want(Want::Run);
        }
        let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
        assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(0), false), "{name}: {:?}", exit.evidence.tail);
        assert_eq!(worker.line("starts").await, program, "{name}: once");
        let said = std::fs::read_to_string(generation.join("a1/stderr")).unwrap_or_default();
        assert_eq!(said, "", "{name}: nothing is said to have been ended");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_of_an_attempt_that_was_copied_is_not_taken_for_a_later_attempt() {
    let run = "folder=\"${REKINDLE_PROGRESS_FILE%/*}\"; cp -a \"$folder\" \"${folder%1}2\"; touch copied
        until [ -e go ]; do sleep 0.02; done; exit 3";
    let cloud = Cloud::start(run).await;
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    poll("it is copied", || worker.work().join("copied").exists().then_some(())).await;
    worker.kill_agent();
    worker.start_agent();
    std::fs::write(worker.work().join("go"), "").unwrap();
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(3), false));
    cloud.set(|inner| inner.order = order(2, Want::Run, Some(work(2, "exit 4"))));
    let exit = cloud.until_state(2, WorkerState::Exited).await.exit.unwrap();
    assert_eq!((exit.evidence.exit, exit.ordered), (Exit::Code(4), false));
}
