//! Facts whose hint was lost: the agent comes again, and the job gets to know. And what many workers tell at once.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;

use rekindle_core::job::Phase;
use rekindle_core::observation::{Notice, NoticeKind, WorkerState};
use rekindle_core::orders::Order;
use rekindle_ports::world::Clock;
use rekindle_rig::{CALLER, spec};
use rekindle_web::caller::Loopback;
use rekindle_wire::agent::Report;

use super::Served;
use super::agents::{running, say, worker};
use crate::Api;
use crate::agents::roll::{Standing, all};

#[tokio::test]
async fn an_exit_whose_hint_failed_comes_again_and_is_hinted() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    let agent = &mut agents[0];
    let mut report = agent.report(WorkerState::Exited);
    report.exit = Some(agent.exit(1));
    served.rig.fakes.hints.fail_before(3);
    assert_eq!(agent.try_send(&report).await.status, 503);
    assert!(served.rig.take_causes().is_empty() && agent.stored().await.exit.is_some());
    agent.send(&report).await;
    assert_eq!(served.rig.take_causes(), ["worker exit"]);
}

#[tokio::test]
async fn a_notice_whose_hint_failed_comes_again_and_is_hinted_until_the_job_knows() {
    let served = Served::with_job().await;
    let agents = running(&served).await;
    let now = served.rig.fakes.clock.now();
    let notice = Notice { kind: NoticeKind::Preemption, seen_at: now, deadline: now + SignedDuration::from_secs(30) };
    let mut report = agents[1].report(WorkerState::Running);
    report.notice = Some(notice);
    served.rig.fakes.hints.fail_before(3);
    assert_eq!(agents[1].try_send(&report).await.status, 503);
    assert!(served.rig.take_causes().is_empty());
    // The agent comes again; and a heartbeat without it may be the next to arrive.
    for report in [report.clone(), agents[1].report(WorkerState::Running)] {
        assert_eq!(agents[1].try_send(&report).await.status, 200);
        assert_eq!(served.rig.take_causes(), ["notice"]);
    }
    served.rig.pass("train").await;
    served.rig.take_causes();
    assert!(served.rig.job("train").await.unwrap().generations[0].notice.is_some());
    assert_eq!(agents[1].try_send(&report).await.status, 200);
    assert!(served.rig.take_causes().is_empty(), "the job knows it");
}

#[tokio::test]
async fn a_reboot_whose_hint_failed_is_hinted_with_the_next_hello_and_report_until_the_job_knows() {
    let served = Served::with_job().await;
    let agents = running(&served).await;
    let mut rebooted = agents[1].hello.clone();
    rebooted.boot_id = "boot-again".into();
    served.rig.fakes.hints.fail_before(3);
    assert_eq!(say(&served, &rebooted).await.status, 503);
    assert!(served.rig.take_causes().is_empty());
    assert_eq!(say(&served, &rebooted).await.status, 200);
    assert_eq!(served.rig.take_causes(), ["worker rebooted"]);
    let mut report = agents[1].report(WorkerState::Preparing);
    report.boot_id = "boot-again".into();
    assert_eq!(agents[1].try_send(&report).await.status, 200);
    assert_eq!(served.rig.take_causes(), ["worker rebooted"]);
    served.rig.pass("train").await;
    served.rig.take_causes();
    assert_ne!(served.rig.job("train").await.unwrap().phase, Phase::Running);
    assert_eq!(say(&served, &rebooted).await.status, 200);
    assert_eq!(agents[1].try_send(&report).await.status, 200);
    assert!(served.rig.take_causes().is_empty(), "the job knows it");
}

#[tokio::test]
async fn while_hints_cannot_be_published_a_worker_that_tells_a_fact_again_gets_its_order() {
    let served = Served::with_job().await;
    let agents = running(&served).await;
    let now = served.rig.fakes.clock.now();
    let notice = Notice { kind: NoticeKind::Preemption, seen_at: now, deadline: now + SignedDuration::from_secs(30) };
    let mut noticed = agents[1].report(WorkerState::Running);
    noticed.notice = Some(notice.clone());
    let mut rebooted = agents[2].hello.clone();
    rebooted.boot_id = "boot-again".into();
    let mut prepares = agents[2].report(WorkerState::Preparing);
    prepares.boot_id = "boot-again".into();
    let mut left = agents[3].report(WorkerState::Exited);
    left.exit = Some(agents[3].exit(1));
    served.rig.fakes.hints.fail_before(u32::MAX);
    // Stored with the first call, which is to come again.
    assert_eq!(agents[1].try_send(&noticed).await.status, 503);
    assert_eq!(say(&served, &rebooted).await.status, 503);
    assert_eq!(agents[3].try_send(&left).await.status, 503);
    for _ in 0..2 {
        for (agent, report) in [(&agents[1], &noticed), (&agents[2], &prepares), (&agents[3], &left)] {
            let answer = agent.try_send(report).await;
            assert_eq!(answer.status, 200, "{:?}", report.state);
            let order: Order = serde_json::from_str(answer.text()).unwrap();
            assert!(order.heartbeat_ms <= 10_000, "it tells it again before its next heartbeat would");
        }
        assert_eq!(say(&served, &rebooted).await.status, 200);
    }
    // What is new is not told less for that.
    let mut sooner = noticed.clone();
    sooner.notice = Some(Notice { deadline: now + SignedDuration::from_secs(5), ..notice });
    assert_eq!(agents[1].try_send(&sooner).await.status, 503);
}

#[tokio::test]
async fn what_the_workers_of_a_large_slice_said_last_stays_within_bounds_and_tells_the_cause() {
    let mut spec = spec("train");
    spec["tpu"] = json!({"accelerator": "v5litepod-256"});
    let served = Served::new().await.and_job(&spec).await;
    let agent = worker(&served, 0).await;
    let talk = "I0827 11:58:00.000001 77 transport.cc:11] a call took 7 us\n".repeat(1000);
    let said =
        "Traceback (most recent call last):\n  File \"train.py\", line 7, in <module>\nValueError: shapes differ\n";
    let mut exit = agent.exit(1);
    exit.evidence.tail = format!("{talk}{said}{talk}");
    let report = Report { exit: Some(exit.clone()), ..agent.report(WorkerState::Exited) };
    for _ in 0..2 {
        assert_eq!(agent.try_send(&report).await.status, 200);
        let tail = agent.stored().await.exit.unwrap().evidence.tail;
        let workers = served.rig.job("train").await.unwrap().generations[0].workers;
        assert_eq!(workers, 64);
        assert!(tail.len() <= (2 << 20) / 64 && tail.contains(said) && tail.ends_with("a call took 7 us\n"), "{tail}");
    }
}

#[tokio::test]
async fn a_small_slice_keeps_all_that_its_workers_said() {
    let served = Served::with_job().await;
    let agents = running(&served).await;
    let mut exit = agents[0].exit(1);
    exit.evidence.tail = "x\n".repeat(60_000);
    let report = Report { exit: Some(exit.clone()), ..agents[0].report(WorkerState::Exited) };
    assert_eq!(agents[0].try_send(&report).await.status, 200);
    assert_eq!(agents[0].stored().await.exit.unwrap().evidence.tail, exit.evidence.tail);
}

#[tokio::test]
async fn of_workers_that_ask_at_once_one_read_answers_all() {
    let served = Served::with_job().await;
    let agents = running(&served).await;
    let job = served.rig.job("train").await.unwrap();
    let api = Api::new(served.rig.engine.clone(), Arc::new(Loopback { identity: CALLER.into() }), None);
    let (attempt, reads) = (job.attempt().unwrap(), || served.rig.fakes.docs.reads());
    let last = served.rig.fakes.store().workers(&job.id, &[]).await.unwrap().1;
    let before = reads();
    let runs = |w: Standing| w.state == WorkerState::Running;
    for _ in 0..256 {
        assert!(all(&api, &job, attempt, last, runs).await.unwrap().is_some());
    }
    assert_eq!(reads() - before, 1);
    // One that has written since is answered by a read that has seen it.
    served.rig.advance(1);
    let mut report = agents[2].report(WorkerState::Exited);
    report.exit = Some(agents[2].exit(0));
    assert_eq!(agents[2].try_send(&report).await.status, 200);
    let wrote = served.rig.fakes.store().workers(&job.id, &[]).await.unwrap().1;
    let before = reads();
    assert_eq!(all(&api, &job, attempt, wrote, runs).await.unwrap(), None);
    assert_eq!(reads() - before, 1);
    assert_eq!(all(&api, &job, attempt, last, runs).await.unwrap(), None, "what is newer answers what is older");
}

/// A job's document that is full takes no cancel and no delete; a program can speak in its agent's place.
#[tokio::test]
async fn what_a_worker_tells_of_itself_is_bounded() {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    let long = "9".repeat(300);
    let mut report = agents[0].report(WorkerState::Running);
    (report.progress.step, report.progress.loss) = (Some(7), Some(long.clone()));
    agents[0].send(&report).await;
    let stored = agents[0].stored().await;
    assert_eq!((stored.step, stored.loss.as_deref()), (Some(7), None), "the step counts all the same");
    report.boot_id.clone_from(&long);
    let refused = agents[0].try_send(&report).await;
    assert!(
        refused.status == 400 && refused.text().contains("boot_id has 300 bytes; at most 256"),
        "{}",
        refused.text()
    );
    let mut report = agents[2].report(WorkerState::Exited);
    let mut exit = agents[2].exit(1);
    exit.evidence.oom_line = "é".repeat(5000);
    exit.evidence.holders = vec!["9".repeat(100_000); 60];
    report.exit = Some(exit);
    report.boot_id.clone_from(&agents[2].hello.boot_id);
    for part in report.exit.as_mut().unwrap().evidence.holders.iter_mut().skip(8) {
        part.truncate(10);
    }
    agents[2].send(&report).await;
    let told = agents[2].stored().await.exit.unwrap().evidence;
    assert_eq!((told.oom_line.len(), told.holders.len(), told.holders[0].len()), (2048, 16, 2048));
    for field in ["instance", "boot_id", "address", "version"] {
        let mut hello = serde_json::to_value(&agents[1].hello).unwrap();
        hello[field] = json!(long);
        let refused = say(&served, &serde_json::from_value(hello).unwrap()).await;
        assert!(refused.status == 400 && refused.text().contains(field), "{field}: {}", refused.text());
    }
}

#[tokio::test]
async fn no_time_that_a_worker_tells_stops_the_passes_of_its_job() {
    let (first, last) = (jiff::Timestamp::MIN, jiff::Timestamp::MAX);
    for (seen_at, deadline, told) in
        [(first, last, first), (last, first, last), (first, first, last), (last, last, first)]
    {
        for kind in [NoticeKind::Preemption, NoticeKind::Maintenance, NoticeKind::Migration] {
            let served = Served::with_job().await;
            let agents = running(&served).await;
            let mut report = agents[1].report(WorkerState::Running);
            report.notice = Some(Notice { kind, seen_at, deadline });
            (report.started_at, report.output_at, report.progress.step_at) = (Some(told), Some(told), Some(told));
            report.progress.step = Some(1);
            let later = agents[1].report(WorkerState::Running);
            let mut exit = agents[1].report(WorkerState::Exited);
            exit.exit = Some(rekindle_wire::agent::ExitReport { at: told, ..agents[1].exit(1) });
            for report in [&report, &later, &exit] {
                let answer = agents[1].try_send(report).await;
                assert_eq!(answer.status, 200, "{kind:?} {seen_at} {deadline}: {}", answer.text());
                served.rig.pass("train").await;
                served.rig.advance(120);
                served.rig.pass("train").await;
            }
            let stored = agents[1].stored().await;
            assert!(stored.is_within_reason(stored.heard_at), "{stored:?}");
            for path in ["/v1/jobs/train", "/v1/jobs/train/explain", "/v1/jobs/train/progress"] {
                assert_eq!(served.get(path).await.status, 200, "{path}");
            }
        }
    }
}
