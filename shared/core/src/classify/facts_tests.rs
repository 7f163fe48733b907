//! What the agents and the cloud know beside the output, and the edges of the format.

use super::evidence::{
    CaseAction, Evidence, Exit, NodeFact, NoticeFact, Outcome, SignalSender, Stage, Verdict, WorkerEvidence,
};
use super::lines::{Level, level};
use super::{case, classify};
use crate::failure::FailureKind;

const STEPS: &str = "step 10 loss 3.1\nstep 20 loss 3.0\nstep 30 loss 2.9\n";
const OWN_ERROR: &str = "Traceback (most recent call last):\n  File \"t.py\", line 3, in f\n    g()\nValueError: bad\n";
const ECHO: &str = "F1127 11:42:48.594200 104 client.h:77] Terminating process because the JAX distributed service \
                    detected fatal errors. absl::Status: UNAVAILABLE: Failed to send RPC to coordination service.\n";

fn worker(index: u32, exit: Exit, tail: &str) -> WorkerEvidence {
    WorkerEvidence { index, exit, tail: format!("{STEPS}{tail}"), ..WorkerEvidence::default() }
}

fn of(workers: Vec<WorkerEvidence>) -> Evidence {
    Evidence { workers, ..Evidence::default() }
}

fn kind(evidence: &Evidence) -> FailureKind {
    match classify(evidence).outcome {
        Outcome::Failure(kind) => kind,
        Outcome::Success => panic!("this is no success"),
    }
}

#[test]
fn a_notice_outweighs_what_the_program_said_while_it_died() {
    let evidence = Evidence { notice: Some(NoticeFact::Preemption), ..of(vec![worker(0, Exit::Code(1), OWN_ERROR)]) };
    assert_eq!(kind(&evidence), FailureKind::Preempted);
    let evidence = Evidence { notice: Some(NoticeFact::Maintenance), ..evidence };
    assert_eq!(kind(&evidence), FailureKind::Maintenance);
}

#[test]
fn leaving_with_zero_after_a_notice_is_success_only_if_the_last_step_was_reached() {
    let early = Evidence { notice: Some(NoticeFact::Preemption), ..of(vec![worker(0, Exit::Code(0), "saved\n")]) };
    assert_eq!(kind(&early), FailureKind::Preempted);
    let done = worker(0, Exit::Code(0), "step 500/500 loss 1.0\nsaved final checkpoint\n");
    let done = Evidence { notice: Some(NoticeFact::Preemption), ..of(vec![done]) };
    assert_eq!(classify(&done).outcome, Outcome::Success);
}

#[test]
fn the_clouds_word_on_the_node_counts() {
    let lost = || of(vec![worker(0, Exit::Code(134), ECHO), worker(1, Exit::Silent, "")]);
    assert_eq!(kind(&Evidence { node: NodeFact::Gone, ..lost() }), FailureKind::Lost);
    assert_eq!(kind(&Evidence { node: NodeFact::GoneOrPreempted, ..lost() }), FailureKind::Preempted);
    assert_eq!(kind(&Evidence { node: NodeFact::Unhealthy, ..lost() }), FailureKind::TpuRuntime);
    assert_eq!(kind(&Evidence { node: NodeFact::Ready, ..lost() }), FailureKind::InfraGrpc);
    assert_eq!(kind(&lost()), FailureKind::Preempted);
}

#[test]
fn a_worker_that_sent_no_report_is_silent() {
    let three = (0..3).map(|index| worker(index, Exit::Code(134), ECHO)).collect();
    let evidence = Evidence { multi_worker_expected: Some(4), ..of(three) };
    assert_eq!(kind(&evidence), FailureKind::Preempted);
    assert_eq!(classify(&evidence).evidence[0].worker, 3);
    let all = Evidence { multi_worker_expected: Some(3), ..evidence };
    assert_eq!(kind(&all), FailureKind::InfraGrpc);
}

#[test]
fn a_kill_is_the_memorys_only_if_nobody_knows_better() {
    let killed = worker(1, Exit::Signal(9), "");
    let with = |killed: WorkerEvidence| kind(&of(vec![worker(0, Exit::Code(134), ECHO), killed]));
    assert_eq!(with(killed.clone()), FailureKind::OomHost);
    assert_eq!(with(WorkerEvidence { oom_kill: true, ..killed.clone() }), FailureKind::OomHost);
    assert_eq!(with(WorkerEvidence { memory_free_bytes: Some(8 << 30), ..killed.clone() }), FailureKind::Unknown);
    assert_eq!(with(WorkerEvidence { memory_free_bytes: Some(1 << 20), ..killed.clone() }), FailureKind::OomHost);
    let measured = WorkerEvidence { oom_kill: true, memory_free_bytes: Some(8 << 30), ..killed };
    assert_eq!(with(measured), FailureKind::OomHost);
}

#[test]
fn workers_that_we_stopped_ourselves_are_no_cause() {
    let stopped = |index| WorkerEvidence {
        signal_sender: Some(SignalSender::Ourselves),
        ..worker(
            index,
            Exit::Signal(15),
            "*** SIGTERM received by PID 7 (TID 7) on cpu 5 from PID 1; stack trace: ***\n",
        )
    };
    let evidence = of(vec![stopped(0), worker(1, Exit::Code(1), ECHO), stopped(2)]);
    assert_eq!(kind(&evidence), FailureKind::InfraGrpc);
    let by_init = WorkerEvidence { signal_sender: Some(SignalSender::Init), ..worker(0, Exit::Signal(15), "") };
    assert_eq!(kind(&of(vec![by_init])), FailureKind::Preempted);
    let by_other = WorkerEvidence { signal_sender: Some(SignalSender::Other(99)), ..worker(0, Exit::Signal(15), "") };
    assert_eq!(kind(&of(vec![by_other])), FailureKind::Unknown);
}

#[test]
fn no_worker_is_blamed_for_the_command_line_of_all() {
    let stopped =
        |index| WorkerEvidence { signal_sender: Some(SignalSender::Ourselves), ..worker(index, Exit::Signal(15), "") };
    for (code, tail, said) in [
        (2, "train.py: error: unrecognized arguments: --lr\n", "The program was called with wrong arguments"),
        (2, "", "The program refused its arguments"),
        (127, "rekindle: cannot start \"pyhton3\": No such file\n", "The command or script to run does not exist here"),
    ] {
        let told = classify(&of(vec![stopped(0), stopped(1), worker(2, Exit::Code(code), tail), stopped(3)]));
        assert!(told.summary.starts_with(said), "{}", told.summary);
    }
    let crashed = classify(&of(vec![stopped(0), worker(1, Exit::Signal(11), "")]));
    assert_eq!(crashed.summary, "On worker 1, it was killed by SIGSEGV, without saying why (tpu_runtime).");
}

#[test]
fn the_worker_that_ended_by_itself_is_named_and_not_those_that_we_stopped() {
    let stopped = |index, tail: &str| WorkerEvidence {
        signal_sender: Some(SignalSender::Ourselves),
        ..worker(index, Exit::Signal(15), tail)
    };
    let with = |one: WorkerEvidence, tail: &str| {
        classify(&of(vec![stopped(0, tail), stopped(1, tail), one, stopped(3, tail)]))
    };
    let silent_echo = "E1127 11:42:49.594200 104 x.cc:7] UNAVAILABLE: Socket closed\n";
    for tail in ["", silent_echo, ECHO] {
        let told = with(worker(2, Exit::Code(4), ""), tail);
        let said = "Nothing that is known in the output of worker 2 says why it ended with exit code 4; \
                    it last said \"step 20 loss 3.0 | step 30 loss 2.9\".";
        assert_eq!(told.summary, said);
        assert_eq!(told.outcome, Outcome::Failure(FailureKind::Unknown));
        assert_eq!((told.evidence[0].worker, told.evidence[0].reason.as_str()), (2, "it ended with exit code 4"));
        let killed = WorkerEvidence { memory_free_bytes: Some(8 << 30), ..worker(2, Exit::Signal(9), "") };
        assert_eq!(with(killed, tail).summary, "On worker 2, it was killed, and memory was not short (unknown).");
        let oom = with(worker(2, Exit::Signal(9), ""), tail);
        assert_eq!((oom.outcome, oom.evidence[0].worker), (Outcome::Failure(FailureKind::OomHost), 2));
    }
    // What one of them said before it was stopped is a cause all the same.
    let told = with(worker(2, Exit::Code(4), ""), OWN_ERROR);
    assert_eq!(told.outcome, Outcome::Failure(FailureKind::UserError));

    let mute = |w: WorkerEvidence| WorkerEvidence { tail: String::new(), slice: 1, ..w };
    let told = classify(&of(vec![mute(stopped(0, "")), mute(worker(2, Exit::Signal(9), ""))]));
    assert_eq!(told.outcome, Outcome::Failure(FailureKind::OomHost));
    let told = classify(&of(vec![mute(stopped(0, "")), mute(worker(2, Exit::Code(4), ""))]));
    assert_eq!(
        told.summary,
        "The program of worker 2 of slice 1 left no output that could say why it ended with exit code 4."
    );
    let at = |ms, index| WorkerEvidence { exited_at_ms: Some(ms), ..worker(index, Exit::Code(index as i32), "") };
    let told = classify(&of(vec![at(900, 3), at(400, 4), stopped(0, "")])).summary;
    assert!(told.contains("of worker 4 says"), "the first of them: {told}");
    // `sys.exit("…")`, as many a program gives up.
    let own = WorkerEvidence { tail: "step 20\nno such split: tran\n".into(), ..worker(2, Exit::Code(1), "") };
    let told = with(own, "").summary;
    assert!(told.ends_with("exit code 1; it last said \"no such split: tran\"."), "{told}");
    let all = classify(&of(vec![worker(0, Exit::Code(4), ""), worker(1, Exit::Code(4), "")]));
    assert_eq!(
        (all.summary.split(';').next().unwrap(), all.evidence.len()),
        ("Nothing that is known in the output says why it ended with exit code 4", 0)
    );
}

#[test]
fn a_runtime_that_takes_our_stop_for_a_preemption_is_not_believed() {
    let caught = "W1128 04:45:47.451448   13952 preemption_notifier.cc:90] SIGTERM caught at 2026-11-28T04:45:47.45+00:00\n\
                  Received preemption signal, saving checkpoint and exiting\n";
    let at = |worker: WorkerEvidence, ms| WorkerEvidence { exited_at_ms: Some(ms), ..worker };
    let measured = |worker: WorkerEvidence| WorkerEvidence { memory_free_bytes: Some(8 << 30), ..worker };
    let killed = at(measured(worker(2, Exit::Signal(9), "")), 1_000);
    let stopped = WorkerEvidence {
        signal_sender: Some(SignalSender::Ourselves),
        ..at(worker(0, Exit::Signal(6), &format!("{caught}{ECHO}")), 9_000)
    };
    // The notice was passed on to this one, which left before our own SIGTERM came.
    let passed_on = at(worker(1, Exit::Code(143), caught), 2_000);
    assert_eq!(kind(&of(vec![stopped.clone(), passed_on, killed])), FailureKind::Unknown);
    // The first to leave heard it from somebody else.
    let first = at(worker(1, Exit::Code(143), caught), 500);
    assert_eq!(kind(&of(vec![stopped, first])), FailureKind::Preempted);
}

#[test]
fn a_sigterm_after_the_failure_of_another_worker_is_how_the_survivors_are_ended() {
    let at = |time: &str| {
        format!("W1128 {time} 2500 preemption_notifier.cc:90] SIGTERM caught at 2026-11-28T04:54:22+00:00\n")
    };
    let workers = |time: &str| of(vec![worker(0, Exit::Code(134), ECHO), worker(1, Exit::Code(134), &at(time))]);
    assert_eq!(kind(&workers("11:42:49.700000")), FailureKind::InfraGrpc);
    assert_eq!(kind(&workers("11:42:48.610000")), FailureKind::Preempted, "at the same time");
    assert_eq!(kind(&workers("11:42:40.000000")), FailureKind::Preempted, "before");
}

#[test]
fn the_first_death_is_the_cause_of_louder_later_ones() {
    let first = WorkerEvidence { exited_at_ms: Some(10_000), ..worker(1, Exit::Code(1), OWN_ERROR) };
    let later = "google.api_core.exceptions.ServiceUnavailable: 503 POST https://storage.googleapis.com/upload\n";
    let later = WorkerEvidence { exited_at_ms: Some(14_000), ..worker(0, Exit::Code(1), later) };
    assert_eq!(kind(&of(vec![later.clone(), first.clone()])), FailureKind::UserError);
    let together = WorkerEvidence { exited_at_ms: Some(10_200), ..later };
    assert_eq!(kind(&of(vec![together, first])), FailureKind::StorageNetwork);
}

#[test]
fn one_failing_worker_fails_the_job() {
    let mut workers: Vec<WorkerEvidence> = (0..3).map(|index| worker(index, Exit::Code(0), "")).collect();
    workers.push(worker(3, Exit::Code(1), OWN_ERROR));
    assert_eq!(kind(&of(workers.clone())), FailureKind::UserError);
    workers[3].tail.clear();
    assert_ne!(classify(&of(workers)).outcome, Outcome::Success);
}

#[test]
fn what_fails_in_setup_is_the_environment_unless_it_says_more() {
    let setup = |tail: &str| of(vec![WorkerEvidence { during: Stage::Setup, ..worker(0, Exit::Code(1), tail) }]);
    assert_eq!(kind(&setup("")), FailureKind::Environment);
    assert_eq!(kind(&setup(OWN_ERROR)), FailureKind::Environment);
    let network = "curl: (6) Could not resolve host: storage.googleapis.com\n";
    assert_eq!(kind(&setup(network)), FailureKind::StorageNetwork);
    assert_eq!(kind(&setup("tar: write error: No space left on device\n")), FailureKind::DiskFull);
    let told = |tail: &str| {
        let of = WorkerEvidence { during: Stage::Setup, tail: tail.into(), ..worker(0, Exit::Code(1), "") };
        classify(&self::of(vec![of])).summary
    };
    assert_eq!(told(""), "The job's setup commands failed (environment, exit code 1).");
    let lines = "one\ntwo of the set-up\n\nthree of it\n";
    assert_eq!(
        told(lines),
        "The job's setup commands failed (environment, exit code 1): two of the set-up | three of it"
    );
    let told = told(network);
    assert!(told.starts_with("In `setup`, ") && told.contains(", exit code 1): curl: (6)"), "{told}");
}

#[test]
fn a_setup_that_is_killed_without_a_word_is_not_called_the_program() {
    let setup = |exit, tail: &str| WorkerEvidence { during: Stage::Setup, tail: tail.into(), ..worker(0, exit, "") };
    let told = |of: WorkerEvidence| classify(&self::of(vec![of])).summary;
    let free = |of| WorkerEvidence { memory_free_bytes: Some(8 << 30), ..of };
    assert_eq!(
        told(free(setup(Exit::Signal(9), ""))),
        "`setup` left no output that could say why it ended by signal 9."
    );
    assert_eq!(
        told(setup(Exit::Signal(1), "step one\n")),
        "Nothing that is known in the output of `setup` says why it ended by signal 1; it last said \"step one\"."
    );
    let killed = "In `setup`, it was killed, as the kernel does when memory runs out (oom_host, signal 9).";
    assert_eq!(told(setup(Exit::Signal(9), "")), killed);
    let refused = "The job's setup commands failed (environment, exit code 2): apt-get: bad option";
    assert_eq!(told(setup(Exit::Code(2), "apt-get: bad option\n")), refused);
    let booted = WorkerEvidence { rebooted: true, ..setup(Exit::Silent, "") };
    for told in [told(setup(Exit::Signal(6), "Error: no room\n")), told(booted)] {
        assert!(!told.contains("program") && told.contains("setup"), "{told}");
    }
    let others = vec![WorkerEvidence { index: 1, ..setup(Exit::Code(0), "") }, free(setup(Exit::Signal(9), ""))];
    assert!(classify(&of(others)).summary.starts_with("`setup` of worker 0 left no output"));
}

#[test]
fn facts_of_the_machine_decide_where_words_do_not() {
    let held = WorkerEvidence { device_busy: true, ..worker(0, Exit::Code(134), ECHO) };
    assert_eq!(kind(&of(vec![held])), FailureKind::TpuRuntime);
    let held = WorkerEvidence { device_busy: true, ..worker(0, Exit::Code(1), OWN_ERROR) };
    assert_eq!(kind(&of(vec![held])), FailureKind::UserError);
    let full = WorkerEvidence { disk_free_bytes: Some(0), ..worker(0, Exit::Code(1), OWN_ERROR) };
    assert_eq!(kind(&of(vec![full])), FailureKind::DiskFull);
}

#[test]
fn a_machine_started_anew_has_lost_its_program_whatever_the_others_print() {
    let booted = || WorkerEvidence { rebooted: true, ..worker(1, Exit::Silent, "step 7 loss 0.3\n") };
    let alone = classify(&Evidence { node: NodeFact::Ready, ..of(vec![booted()]) });
    assert_eq!(
        (alone.outcome, alone.evidence[0].signature.as_str()),
        (Outcome::Failure(FailureKind::Lost), "rebooted")
    );
    let verdict = classify(&of(vec![worker(0, Exit::Code(134), ECHO), booted()]));
    assert_eq!((verdict.outcome, verdict.evidence[0].worker), (Outcome::Failure(FailureKind::Lost), 1));
}

#[test]
fn what_the_kernel_and_the_holder_say_is_the_proof() {
    let line = "Memory cgroup out of memory: Killed process 43 (python3) total-vm:9kB";
    let killed = WorkerEvidence { oom_kill: true, oom_line: line.into(), ..worker(2, Exit::Signal(9), "") };
    let verdict = classify(&of(vec![worker(0, Exit::Code(134), ECHO), killed]));
    let first = &verdict.evidence[0];
    assert_eq!((first.worker, first.line.as_str()), (2, line));
    assert!(verdict.summary.starts_with("On worker 2, the kernel killed it") && verdict.summary.ends_with(line));
    let holder = "rekindle: /dev/accel0 is held by process 7 (python3)";
    let held = WorkerEvidence { device_busy: true, holders: vec![holder.into()], ..worker(0, Exit::Code(134), ECHO) };
    assert_eq!(classify(&of(vec![held])).evidence[0].line, holder);
}

#[test]
fn a_broken_transport_of_a_rust_program_is_infrastructure() {
    let first = "Error: all-reduce at step 37 failed: status: 'The service is currently unavailable', self: \
                 \"transport error\": connection reset by peer\n";
    let second = "Error: status: Unknown, message: \"h2 protocol error: error reading a body from connection\", \
                  details: [], metadata: MetadataMap { headers: {} }\nCaused by:\n    0: broken pipe\n";
    let evidence = of(vec![worker(0, Exit::Code(1), second), worker(1, Exit::Code(1), first)]);
    assert_eq!(kind(&Evidence { node: NodeFact::Ready, ..evidence.clone() }), FailureKind::InfraGrpc);
    assert_eq!(classify(&evidence).action, CaseAction::Retry);
}

#[test]
fn the_level_of_a_line_is_read_from_its_beginning() {
    let cases = [
        ("F1127 11:42:48.594200 1044529 client.h:77] x", Level::Fatal),
        ("2020-07-19 18:52:43.783429: W    2250 tensorflow/core/x.cc:160] x", Level::Warning),
        ("2026-11-27 11:05:02,114 WARNING iris.worker x", Level::Warning),
        ("WARNING:root:x", Level::Warning),
        ("/opt/x.py:46: UserWarning: x", Level::Warning),
        ("I1127 04:10:00.120 train.py:88] x", Level::Info),
        ("INFO:tensorflow:Error recorded from infeed: Socket closed", Level::Info),
        ("{\"level\":\"info\",\"msg\":\"x\"}", Level::Info),
        ("2025-12-08T11:56:31.758826Z DEBUG tonic::codec::decode: x", Level::Info),
        ("ERROR: No matching distribution found for x", Level::Error),
        ("E1127 03:59:11.120  812 tpu_driver.cc:61] x", Level::Error),
        ("wandb: ERROR x", Level::Error),
        ("FATAL Flags parsing error:", Level::Fatal),
        ("ValueError: x", Level::Unsaid),
        ("Connection to 10.0.0.2 closed by remote host.", Level::Unsaid),
    ];
    for (line, expected) in cases {
        assert_eq!(level(line.as_bytes()), expected, "{line}");
    }
}

#[test]
fn evidence_and_verdict_survive_the_wire() {
    let evidence = Evidence { node: NodeFact::Ready, ..of(vec![worker(2, Exit::Signal(9), ECHO)]) };
    let text = serde_json::to_string(&evidence).unwrap();
    assert_eq!(serde_json::from_str::<Evidence>(&text).unwrap(), evidence);
    let verdict = classify(&evidence);
    let text = serde_json::to_string(&verdict).unwrap();
    assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), verdict);
    let least: WorkerEvidence = serde_json::from_str(r#"{"index":1,"exit":{"code":1}}"#).unwrap();
    assert_eq!(least.exit, Exit::Code(1));
}

#[test]
fn a_plain_log_is_read_with_the_exit_it_states() {
    let log = format!("{STEPS}{OWN_ERROR}");
    let verdict = classify(&case::from_plain_log(&log));
    assert_eq!(verdict.outcome, Outcome::Failure(FailureKind::UserError));
    let report = serde_json::to_value(case::report("a.log", &verdict)).unwrap();
    assert_eq!(report["file"], "a.log");
    assert_eq!(report["kind"], "user_error");
    assert_eq!(report["action"], "stop");
    assert!(report["confidence"].as_f64().unwrap() > 0.5);
    assert_eq!(report["evidence"][0]["line"], "ValueError: bad");
    let good = classify(&case::from_plain_log("step 5\nJob End: Thu Jul 31 09:48:56 UTC 2025\nEXIT_CODE=0\n"));
    assert_eq!(good.outcome, Outcome::Success);
    let silent = classify(&case::from_plain_log("")).summary;
    assert_eq!(silent, "The program left no output that could say why it ended.", "nobody told of an exit code");
    let stated = classify(&case::from_plain_log("step 5\nEXIT_CODE=7\n")).summary;
    assert!(stated.contains("with exit code 7; it last said"), "{stated}");
    assert!(case::from_case_json("[1, 2").is_err());
}

#[test]
fn any_text_is_judged() {
    let long = "Socket closed ".repeat(40_000);
    let returns = "\r".repeat(100_000);
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let noise = String::from_utf8_lossy(&bytes);
    let nested = "Traceback (most recent call last):\n  File \"a\", line 1, in a\n".repeat(3_000);
    let escapes = "\u{1b}[31mRuntimeError: red\u{1b}[0m\u{1b}]0;title";
    for tail in [long.as_str(), &returns, &noise, &nested, escapes, "\0\0\0", "", "é".repeat(500).as_str()] {
        for exit in [Exit::Code(0), Exit::Code(1), Exit::Code(i32::MIN), Exit::Signal(11), Exit::Silent] {
            let verdict = classify(&of(vec![worker(0, exit, tail)]));
            assert!((0.0..=1.0).contains(&verdict.confidence));
            assert!(!verdict.summary.is_empty());
        }
    }
}
