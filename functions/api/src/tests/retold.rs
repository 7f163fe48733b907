//! Facts whose hint was lost: the agent comes again, and the job gets to know.

use jiff::SignedDuration;

use rekindle_core::job::Phase;
use rekindle_core::observation::{Notice, NoticeKind, WorkerState};
use rekindle_ports::world::Clock;

use super::Served;
use super::agents::{running, say};

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
