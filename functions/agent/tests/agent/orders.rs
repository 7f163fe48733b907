//! Orders of people to a workspace: how their commands end.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use rekindle_core::exec::{ExecAction, ExecExit, ExecOrder};
use rekindle_core::spec::CommandLine;
use rekindle_wire::agent::{Want, WorkerState};

use crate::cloud::{Cloud, Inner, Worker, is_alive};

async fn workspace(stop_grace_ms: u64) -> (Cloud, Worker) {
    let cloud = Cloud::start("").await;
    cloud.set(|inner| {
        let work = inner.order.work.as_mut().unwrap();
        (work.run, work.stop_grace_ms) = (CommandLine::Argv(Vec::new()), stop_grace_ms);
    });
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    (cloud, worker)
}

fn run(id: u64, words: &[&str]) -> ExecOrder {
    let words = words.iter().map(|&word| word.to_owned()).collect();
    let action = ExecAction::Run(CommandLine::Argv(words));
    ExecOrder { id, attempt: 1, worker: None, at: Timestamp::now(), action, stop_at: None }
}

async fn end_of(cloud: &Cloud, id: u64) -> ExecExit {
    let ended = |inner: &Inner| inner.brought.get(&(id, "exit".to_owned(), 0)).cloned();
    serde_json::from_slice(&cloud.until("the order ends", ended).await).unwrap()
}

fn said(cloud: &Cloud, id: u64) -> String {
    let all: Vec<u8> = cloud.set(|inner| {
        let of = inner.brought.iter().filter(|((order, stream, _), _)| *order == id && stream == "stdout");
        of.flat_map(|(_, bytes)| bytes.clone()).collect()
    });
    String::from_utf8(all).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_gives_commands_the_time_of_its_order_and_not_the_jobs_grace() {
    let (cloud, worker) = workspace(300).await;
    let saves = "trap 'echo term >>terms; is_told=1' TERM; echo up >up
        until [ \"$is_told\" ]; do sleep 0.02; done; until [ -e go ]; do sleep 0.02; done; echo saved >saved";
    cloud.set(|inner| inner.order.exec = vec![run(1, &["bash", "-c", saves])]);
    worker.line("up").await;
    cloud.set(|inner| {
        inner.order.want = Want::Stop;
        inner.order.kill_at = Some(Timestamp::now() + Duration::from_mins(1));
    });
    worker.line("terms").await;
    let told = Instant::now();
    cloud.until("longer than the grace", |_| (told.elapsed() > Duration::from_millis(1200)).then_some(())).await;
    std::fs::write(worker.work().join("go"), "").unwrap();
    cloud.until_state(1, WorkerState::Exited).await;
    assert_eq!(worker.line("saved").await, "saved");
    assert_eq!(worker.line("terms").await, "term");
}

/// An agent that is new has to read the secrets again, and a command waits for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_was_not_begun_is_not_begun_once_its_attempt_ends() {
    const VERSION: &str = "projects/p/secrets/wandb/versions/latest";
    let cloud = Cloud::start("").await;
    cloud.set(|inner| {
        let work = inner.order.work.as_mut().unwrap();
        work.run = CommandLine::Argv(Vec::new());
        work.secrets = [("WANDB_API_KEY".to_owned(), VERSION.to_owned())].into();
        inner.secrets = [(VERSION.to_owned(), "value".to_owned())].into();
    });
    let mut worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    worker.kill_agent();
    let before = cloud.set(|inner| {
        inner.secrets.insert(VERSION.to_owned(), String::new());
        inner.order.exec = vec![run(1, &["touch", "begun"])];
        inner.accessed.len()
    });
    worker.start_agent();
    cloud.until("the command waits", |inner| (inner.accessed.len() > before).then_some(())).await;
    cloud.want(Want::Stop);
    cloud.until_state(1, WorkerState::Exited).await;
    cloud.set(|inner| inner.secrets.insert(VERSION.to_owned(), "value".to_owned()));
    let exit = end_of(&cloud, 1).await;
    assert!(exit.code == 126 && exit.error.is_some_and(|why| why.contains("before this was begun")));
    assert!(!worker.work().join("begun").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_without_the_attempts_environment_ends_with_the_attempt() {
    let (cloud, worker) = workspace(5000).await;
    let bare = ["env", "-i", "/bin/sh", "-c", "echo $$ >bare; exec /bin/sleep 987"];
    let far = ["env", "-i", "/usr/bin/setsid", "/bin/sh", "-c", "echo $$ >far; exec /bin/sleep 988"];
    // It outlives its own leader, too.
    let left = ["env", "-i", "/bin/sh", "-c", "/usr/bin/setsid /bin/sleep 989 & echo $! >left"];
    cloud.set(|inner| inner.order.exec = vec![run(1, &bare), run(2, &far), run(3, &left)]);
    let pids = [worker.line("bare").await, worker.line("far").await, worker.line("left").await];
    end_of(&cloud, 3).await;
    assert!(pids.iter().all(|pid| is_alive(pid)), "what is left in the background stays until then");
    cloud.want(Want::Stop);
    cloud.until_state(1, WorkerState::Exited).await;
    assert!(!pids.iter().any(|pid| is_alive(pid)), "{pids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_ends_with_its_workspace_says_why() {
    for (is_notice, why) in
        [(false, "it is being paused, restarted, moved or deleted"), (true, "its TPU is being taken away")]
    {
        let (cloud, worker) = workspace(5000).await;
        let own = ["bash", "-c", "kill -TERM $$"];
        cloud
            .set(|inner| inner.order.exec = vec![run(1, &own), run(2, &["bash", "-c", "echo up >up; exec sleep 987"])]);
        assert_eq!(end_of(&cloud, 1).await, ExecExit { code: 143, error: None }, "its own doing");
        worker.line("up").await;
        if is_notice {
            cloud.set(|inner| inner.values.insert("preempted".into(), "TRUE".into()));
        } else {
            cloud.want(Want::Stop);
        }
        let error = Some(format!("ended with 143, as all that ran in the workspace: {why}"));
        assert_eq!(end_of(&cloud, 2).await, ExecExit { code: 143, error });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_ends_though_what_it_left_in_the_background_goes_on_writing() {
    let (cloud, worker) = workspace(300).await;
    let text =
        "(while :; do echo again; echo $BASHPID >>loop; sleep 0.05; done) & until [ -s loop ]; do :; done; exit 4";
    let much = "head -c 3000000 /dev/zero | tr '\\0' x";
    cloud.set(|inner| inner.order.exec = vec![run(1, &["bash", "-c", text]), run(2, &["bash", "-c", much])]);
    assert_eq!(end_of(&cloud, 1).await, ExecExit { code: 4, error: None });
    // Each of these was written after something that was said.
    let before = worker.lines("loop", 1).await.len();
    let after = worker.lines("loop", before + 3).await;
    assert!(is_alive(&after[0]), "it stays, as after a shell");
    end_of(&cloud, 2).await;
    assert_eq!(said(&cloud, 2).len(), 3_000_000, "all that was said before the end is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_not_kept_from_the_out_of_memory_killer_as_the_agent_is() {
    let (cloud, worker) = workspace(300).await;
    let score = format!("/proc/{}/oom_score_adj", worker.agent_pid());
    if std::fs::write(&score, "-500").is_err() {
        // Who may not keep it from the killer has nothing that could be inherited, as in most containers.
        return;
    }
    cloud.set(|inner| inner.order.exec = vec![run(1, &["cat", "/proc/self/oom_score_adj"])]);
    end_of(&cloud, 1).await;
    assert_eq!(said(&cloud, 1), "0\n");
    assert_eq!(std::fs::read_to_string(&score).unwrap(), "-500\n", "the agent stays as it was");
}
