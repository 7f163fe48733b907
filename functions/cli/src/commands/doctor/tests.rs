//! Each fault of this machine and the server, with the command that mends it.

use std::io::{Error, ErrorKind};

use super::*;

/// gcloud's commands between backticks.
fn gclouds(check: &Check) -> Vec<Vec<String>> {
    let next = check.next.as_deref().unwrap_or_default();
    let commands = next.split('`').skip(1).step_by(2).filter(|command| command.starts_with("gcloud "));
    commands.filter_map(shlex::split).collect()
}

#[test]
fn every_fault_names_a_command_that_mends_it() {
    let none = || Error::from(ErrorKind::NotFound);
    let address = Ipv4Addr::LOCALHOST;
    let server = VersionView { version: "9.9.9".into(), installation: "abcdef".into(), is_local: false };
    let place = Doctor {
        project: Some("p".into()),
        region: Some("us-central1".into()),
        database: "rekindle".into(),
        state: None,
    };
    let nowhere = Doctor { project: None, region: None, database: "rekindle".into(), state: None };
    let now = Timestamp::now();
    let letter: DeadLetterView = serde_json::from_value(serde_json::json!({
        "at": now, "function": "notify", "reason": "hooks.example.com:8443: it answered 503", "job": "a", "phase": "failed",
        "tried_until": now + SignedDuration::from_secs(300),
    }))
    .unwrap();
    let message = DeadLetterView {
        function: "jobs".into(),
        tried_until: None,
        reason: "tpu: is missing".into(),
        ..letter.clone()
    };
    let [failing, unused]: [Check; 2] = dead(&[letter.clone(), message, letter.clone()], now).try_into().ok().unwrap();
    assert_eq!(unused.found, "1 message not used in the last day; the newest, from jobs: tpu: is missing");
    let told = "2 events not told in the last day; the newest: hooks.example.com:8443: it answered 503; tried again for another 5m";
    assert_eq!(failing.found, told);
    let later = dead(&[letter], now + SignedDuration::from_hours(25));
    assert!(later.iter().all(|check| check.verdict == Verdict::Good));
    let checks = [
        answers("http://s", ANSWER_SLOW * 2),
        same_version(&server),
        clock(CLOCK_OFF_MAX * 2),
        unready("503", &place),
        unready("503", &nowhere),
        loopback(address, Err(none())),
        processes(Err(none())),
        disk(Path::new("/x"), Ok(DISK_FREE_MIN - 1)),
        disk(Path::new("/x"), Err(none())),
        state(Path::new("/x"), Ok(DISK_FREE_MIN - 1)),
        state(Path::new("/x"), Ok(STORE_ROOM_MIN - 1)),
        state(Path::new("/x"), Err(none())),
        failing,
        unused,
    ];
    let tree = rekindle_infra_tests::gcloud::tree();
    for check in &checks {
        assert_ne!(check.verdict, Verdict::Good, "{}", check.name);
        let next = check.next.as_deref().unwrap();
        assert!(next.matches('`').count() >= 2, "{}: {next}", check.name);
        for command in gclouds(check) {
            if let Some(tree) = &tree {
                rekindle_infra_tests::gcloud::check(tree, &command).unwrap();
            }
        }
    }
    assert!(gclouds(&checks[3])[0].contains(&"--region=us-central1".to_owned()));
}

#[test]
fn what_is_well_needs_nothing() {
    let own = VersionView { version: env!("CARGO_PKG_VERSION").into(), installation: "abcdef".into(), is_local: false };
    let checks = [
        answers("http://s", ANSWER_SLOW),
        same_version(&own),
        clock(SignedDuration::ZERO),
        loopback(Ipv4Addr::LOCALHOST, Ok(())),
        processes(Ok(())),
        disk(Path::new("/x"), Ok(DISK_FREE_MIN)),
        state(Path::new("/x"), Ok(DISK_FREE_MIN)),
    ];
    for check in checks {
        assert!(check.verdict == Verdict::Good && check.next.is_none(), "{}", check.name);
    }
}

#[test]
fn a_full_disk_of_the_state_is_bad_and_a_fuller_one_a_warning() {
    let full = state(Path::new("/s"), Ok(STORE_ROOM_MIN - 1));
    assert_eq!((full.verdict, full.found.as_str()), (Verdict::Bad, "the disk of /s is full (4095 KiB free)"));
    assert!(full.next.unwrap().contains("`du -xh --max-depth=2 /s"));
    assert_eq!(state(Path::new("/s"), Ok(STORE_ROOM_MIN)).verdict, Verdict::Warning);
    let named = Doctor { project: None, region: None, database: "rekindle".into(), state: Some("/s".into()) };
    assert_eq!(state_folder(&named).as_deref(), Some(Path::new("/s")));
}
