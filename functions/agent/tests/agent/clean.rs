//! A clean resume in place: what an attempt finds in its working directory.

use rekindle_core::spec::CommandLine;
use rekindle_wire::agent::{Want, WorkerState};

use crate::cloud::{Cloud, Worker, order, work};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_attempt_finds_an_empty_folder_and_is_set_up_again_once() {
    let run = "echo junk > cache; ls > found-$REKINDLE_ATTEMPT; exit 3";
    let setup = CommandLine::Shell("echo x >> setup.count".into());
    let begin = |attempt: u32, is_clean: bool| {
        let mut order = order(attempt, Want::Prepare, Some(work(attempt, run)));
        let work = order.work.as_mut().unwrap();
        (work.setup, work.clean) = (Some(setup.clone()), is_clean);
        order
    };
    let cloud = Cloud::start(run).await;
    cloud.set(|inner| inner.order = begin(1, false));
    let mut worker = Worker::start(&cloud);
    for (attempt, is_clean) in [(1, false), (2, false), (3, true)] {
        cloud.set(|inner| inner.order = begin(attempt, is_clean));
        cloud.until_state(attempt, WorkerState::Ready).await;
        if is_clean {
            assert!(!worker.work().join("cache").exists(), "what the last attempt left is gone");
            assert_eq!(worker.line("setup.count").await, "x", "setup ran again in the empty folder");
            // An agent that comes anew must not empty it again: setup is done for this attempt.
            std::fs::write(worker.work().join("made"), "").unwrap();
            worker.kill_agent();
            let told = cloud.set(|inner| inner.reports.len());
            worker.start_agent();
            cloud
                .until("the next agent is ready", |inner| {
                    let news = inner.reports.get(told..)?.iter();
                    news.rev().find(|report| report.state == WorkerState::Ready).map(drop)
                })
                .await;
            assert!(worker.work().join("made").exists());
        }
        cloud.want(Want::Run);
        cloud.until_state(attempt, WorkerState::Exited).await;
    }
    let found = |attempt: u32| std::fs::read_to_string(worker.work().join(format!("found-{attempt}")));
    assert!(found(1).is_err() && found(2).is_err(), "they went with the rest");
    assert_eq!(found(3).unwrap(), "cache\nfound-3\nmade\nsetup.count\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_piece_of_a_bundle_that_a_killed_agent_left_is_removed() {
    let cloud = Cloud::start("exit 0").await;
    let mut worker = Worker::bare(&cloud);
    let generation = worker.home().join("jobs/train/g2");
    std::fs::create_dir_all(&generation).unwrap();
    let piece = generation.join("order.7.part");
    std::fs::write(&piece, "half").unwrap();
    worker.start_agent();
    cloud.until_state(1, WorkerState::Ready).await;
    assert!(!piece.exists());
}
