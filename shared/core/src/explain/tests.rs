//! What people are told, phase by phase.

use super::*;
use crate::classify::{CaseAction, Outcome as Verdicted, Verdict};
use crate::failure::FailureKind;
use crate::fixture::{at, attempt, generation, job as job_of, noon, open_deployment, place, small, spec_in};
use crate::job::{Barred, Delete, Lost, Next, Settling, Stop, StopCause};
use crate::observation::{CreateError, CreateErrorKind, Notice, NoticeKind};

fn job(phase: Phase, reason: Reason, message: &str) -> Job {
    let mut job = job_of(spec_in(&open_deployment(), &small()));
    (job.phase, job.reason, job.message) = (phase, reason, message.into());
    job
}

/// A job whose attempt 2 runs on generation 1, asked for at noon.
fn running() -> Job {
    let mut job = job(Phase::Running, Reason::Running, "attempt 2 runs on generation 1");
    let mut slice = generation(1);
    (slice.create, slice.ready_at) = (Create::Done, Some(at(120)));
    let mut run = attempt(2, 1);
    (run.released_at, run.started_at, run.step) = (Some(at(150)), Some(at(151)), Some(1200));
    (job.last_generation, job.last_attempt) = (1, 2);
    (job.highest_step, job.saved) = (Some(1200), Some(1100));
    job.first_started_at = Some(at(130));
    job.phase_since = at(151);
    job.generations = vec![slice];
    job.attempts = vec![run];
    job
}

fn grpc_end(action: Action) -> LastEnd {
    let verdict = Verdict {
        outcome: Verdicted::Failure(FailureKind::InfraGrpc),
        confidence: 0.9,
        evidence: vec![EvidenceLine {
            worker: 3,
            slice: 0,
            line: "grpc: UNAVAILABLE: Socket\u{1b}[31m closed".into(),
            reason: "a peer's connection broke.".into(),
            signature: "grpc-unavailable".into(),
        }],
        action: CaseAction::Retry,
        summary: "worker 3 lost its connection".into(),
    };
    let ended = Ended {
        at: at(600),
        kind: Some(FailureKind::InfraGrpc),
        action: Some(action),
        charge: Some(Charge::Infra),
        summary: "worker 3 lost its connection.".into(),
        verdict: Some(verdict),
    };
    LastEnd { attempt: 1, generation: 1, ended }
}

#[track_caller]
fn says(job: &Job, now: Timestamp, words: &[&str]) {
    let told = explain(job, now);
    for word in words {
        assert!(told.paragraph.contains(word), "{:?} does not say {word:?}", told.paragraph);
    }
    assert!(!told.paragraph.contains("  ") && !told.paragraph.contains(".."), "{:?}", told.paragraph);
    assert!(told.facts.iter().all(|fact| !fact.is_empty() && !fact.contains(is_unseen)), "{:?}", told.facts);
}

#[track_caller]
fn fact(job: &Job, now: Timestamp, word: &str) {
    let facts = explain(job, now).facts;
    assert!(facts.iter().any(|fact| fact.contains(word)), "{facts:#?} do not say {word:?}");
}

#[test]
fn pending_in_a_stockout_says_where_and_until_when() {
    let mut job = job(Phase::Pending, Reason::Stockout, "no capacity (spot v5litepod-16 in us-central1-a)");
    job.wake_at = Some(at(300));
    let error = CreateError { kind: CreateErrorKind::Stockout, message: "no more capacity in the zone".into() };
    job.barred.push(Barred {
        placement: place("us-central1-a"),
        until: Some(at(300)),
        error,
        times: 2,
        deletes_until: None,
    });
    says(
        &job,
        at(65),
        &[
            "Job train has waited 1m 5s and has no TPU yet.",
            "Why: no capacity (spot v5litepod-16 in us-central1-a) (stockout).",
            "a TPU is asked for as soon as that allows it",
            "The next look is due at 2026-03-01T12:05:00Z.",
        ],
    );
    fact(&job, at(65), "is not tried until 2026-03-01T12:05:00Z (refused 2 times): no more capacity in the zone");
    assert_eq!(waiting_for(&job).unwrap(), "no capacity (spot v5litepod-16 in us-central1-a)");
}

#[test]
fn a_look_that_is_late_is_called_late() {
    let mut job = job(Phase::Pending, Reason::Submitted, "");
    job.wake_at = Some(at(60));
    says(&job, at(59), &["The next look is due at 2026-03-01T12:01:00Z."]);
    assert!(!explain(&job, at(149)).paragraph.contains("look"), "it comes with the tick");
    let look = |secs| explain(&job, at(secs)).facts.into_iter().find(|fact| fact.starts_with("next look")).unwrap();
    assert_eq!(look(59), "next look at 2026-03-01T12:01:00Z");
    assert_eq!(look(70), "next look due now, since 2026-03-01T12:01:00Z");
    says(&job, at(150), &["was due at 2026-03-01T12:01:00Z and is 1m 30s late"]);
    assert_eq!(waiting_for(&job).unwrap(), "the next pass");
    job.wake_at = None;
    says(&job, at(150), &["No look at it is due"]);
}

#[test]
fn provisioning_says_what_was_asked_for_and_how() {
    let mut job = job(Phase::Provisioning, Reason::Creating, "v5litepod-16 in us-central1-a (spot) is being made");
    let mut slice = generation(1);
    slice.create = Create::Sent { operation: "operation-1".into() };
    job.generations = vec![slice];
    says(
        &job,
        at(90),
        &[
            "has waited 1m 30s for its TPU: generation 1 (spot v5litepod-16 in us-central1-a) was asked for as a node 1m 30s ago.",
            "once the TPU is READY its workers prepare",
        ],
    );
    fact(&job, at(90), "rk-abc123-train-g1: asked for at 2026-03-01T12:00:00Z");
    job.attempts = vec![crate::fixture::attempt(1, 1)];
    let facts = explain(&job, at(90)).facts;
    assert!(
        facts.iter().any(|fact| fact.starts_with("attempt 1 on generation 1: waits for its TPU, RESUME=")),
        "{facts:?}"
    );
    assert!(!facts.iter().any(|fact| fact.contains("preparing")), "{facts:?}");
    job.attempts.clear();
    assert_eq!(waiting_for(&job).unwrap(), "the TPU: spot v5litepod-16 in us-central1-a");
    job.reason = Reason::InProviderQueue;
    job.generations[0].via = Via::QueuedResource;
    says(&job, at(90), &["by a queued resource"]);
    assert_eq!(waiting_for(&job).unwrap(), "the provider's queue: spot v5litepod-16 in us-central1-a");
}

#[test]
fn starting_says_which_step_is_missing() {
    let mut job = running();
    (job.phase, job.reason, job.message) = (Phase::Starting, Reason::WorkersPreparing, "workers prepare".into());
    job.attempts[0].started_at = None;
    says(
        &job,
        at(200),
        &[
            "has been starting for 49s on generation 1",
            "when all of them are ready; if it does not run on all of them by 2026-03-01T12:32:00Z (`limits.start`)",
        ],
    );
    job.attempts[0].held_until = Some(at(300));
    says(&job, at(400), &["by 2026-03-01T12:35:00Z (`limits.start`), the attempt ends"]);
    job.attempts[0].held_until = None;
    says(
        &job,
        at(5000),
        &["if it does not with the next look, for its time was over at 2026-03-01T12:32:00Z (`limits.start`)"],
    );
    assert_eq!(waiting_for(&job).unwrap(), "the workers to be ready");
    job.spec.tpu.network.external_ips = true;
    assert!(!explain(&job, at(400)).paragraph.contains("NAT"), "they have a way out");
    job.spec.tpu.network.external_ips = false;
    assert!(!explain(&job, at(200)).paragraph.contains("NAT"), "they may still come up");
    says(&job, at(400), &["no external addresses", "may have no Cloud NAT", "neither this server nor packages"]);
    job.reason = Reason::Released;
    says(&job, at(400), &["all workers report that it runs"]);
    assert!(!explain(&job, at(400)).paragraph.contains("NAT"), "all of them said hello");
    assert_eq!(waiting_for(&job).unwrap(), "the program to start on all workers");
    (job.reason, job.message) = (Reason::Fencing, "attempt 1 may still run on worker 2".into());
    assert_eq!(waiting_for(&job).unwrap(), "attempt 1 may still run on worker 2");
    job.message.clear();
    assert_eq!(waiting_for(&job).unwrap(), "proof that the earlier attempt ended everywhere");
}

#[test]
fn running_says_step_and_why_there_was_an_earlier_attempt() {
    let mut job = running();
    job.last_end = Some(grpc_end(Action::ResumeInPlace));
    job.spent.infra_failures = 1;
    says(
        &job,
        at(4000),
        &[
            "Job train runs: attempt 2 on generation 1 (spot v5litepod-16 in us-central1-a), for 1h 4m, at step 1200, \
         last checkpoint at 1100.",
            "Attempt 1 on generation 1 ended at 2026-03-01T12:10:00Z (infra_grpc): worker 3 lost its connection.",
            "Evidence: worker 3 wrote `grpc: UNAVAILABLE: Socket [31m closed`, which means: a peer's connection broke.",
            "Answer: resume on the same slice; charged to infra_failures (1 of 10 since the last progress).",
            "Next: it ends by itself.",
        ],
    );
    assert!(!explain(&job, at(4000)).paragraph.contains("Why:"), "what it is doing is said once");
    assert_eq!(waiting_for(&job), None);
    fact(&job, at(4000), "attempt 2 on generation 1: running since 2026-03-01T12:02:31Z, RESUME=1, step 1200");
    job.spec.limits.total = Some(Duration::from_hours(1));
    says(&job, at(3700), &["or at 2026-03-01T13:02:10Z by its limit `total`"]);
    (job.spec.limits.stall, job.spec.limits.stall_by_hand) = (Some(Duration::from_secs(5)), true);
    let stall = "; 5s after its last progress the attempt ends by its limit `stall`, and the policy answers.";
    says(&job, at(3700), &[&format!("or at 2026-03-01T13:02:10Z by its limit `total`{stall}")]);
    let untimed = job.spec.limits.total.take();
    says(&job, at(3700), &[&format!("Next: it ends by itself{stall}")]);
    job.spec.limits.total = untimed;
    // A time in the past is not promised.
    says(&job, at(4000), &["Next: it is ended by its limit `total`, which has passed."]);
    let notice = Notice { kind: NoticeKind::Maintenance, seen_at: at(3000), deadline: at(9000) };
    job.generations[0].notice = Some(notice);
    says(&job, at(4000), &["its slice will be taken away at 2026-03-01T14:30:00Z"]);
}

#[test]
fn a_rule_that_answers_without_a_budget_is_told() {
    let mut job = running();
    let mut end = grpc_end(Action::ResumeInPlace);
    (end.ended.kind, end.ended.charge) = (Some(FailureKind::Environment), Some(Charge::User));
    job.last_end = Some(end);
    job.spent.user_failures = 1;
    let told = "charged to user_failures (1 since the last progress; the budget is 0); the rule for environment decides and not this \
                budget: it answers once without progress, then the job fails.";
    says(&job, at(4000), &[told]);
    if let Some(end) = job.last_end.as_mut() {
        end.ended.kind = Some(FailureKind::UserError);
    }
    assert!(!explain(&job, at(4000)).paragraph.contains("the rule for"), "its budget decides");
    let mut end = grpc_end(Action::Fail);
    end.ended.kind = Some(FailureKind::Unknown);
    (job.phase, job.last_end, job.spent.infra_failures) = (Phase::Failed, Some(end), 3);
    let told = "charged to infra_failures (3 of 10 since the last progress); the rule for unknown decides, whatever is left of this budget: it";
    says(&job, at(4000), &[told]);
}

#[test]
fn a_job_without_enough_memory_is_told_what_to_do() {
    let mut job = running();
    let mut end = grpc_end(Action::Fail);
    (end.ended.kind, end.ended.charge) = (Some(FailureKind::OomHbm), Some(Charge::User));
    (job.phase, job.last_end, job.spent.user_failures) = (Phase::Failed, Some(end), 1);
    says(&job, at(900), &["Next: a smaller batch, or a TPU with more memory", "`--set budgets.user_failures=2`"]);
}

#[test]
fn recovering_from_a_preemption_says_what_was_lost_and_what_comes() {
    let mut job = running();
    (job.phase, job.reason, job.message) = (Phase::Recovering, Reason::BackOff, "waits 30 s before the next".into());
    job.phase_since = at(700);
    job.generations[0].lost =
        Some(Lost { at: at(699), kind: FailureKind::Preempted, fact: "the API says PREEMPTED".into() });
    let intended_at = at(700);
    job.generations[0].delete = Some(Delete { intended_at, sent_at: None, tries: 0, last_error: None });
    let next =
        Next { not_before: at(730), resume: true, from_scratch: false, new_generation: true, why: Reason::Preempted };
    job.next = Some(next);
    says(
        &job,
        at(710),
        &[
            "Job train is being brought back, for 10s; its generation 1 (spot v5litepod-16 in us-central1-a) was \
             lost at 2026-03-01T12:11:39Z (preempted: the API says PREEMPTED).",
            "Next: at 2026-03-01T12:12:10Z a new slice is asked for (RESUME=1).",
        ],
    );
    says(&job, at(740), &["Next: a new slice is asked for (RESUME=1)."]);
    fact(&job, at(710), "being deleted since 2026-03-01T12:11:40Z (not sent yet)");
    fact(
        &job,
        at(710),
        "next attempt: on a new slice, not before 2026-03-01T12:12:10Z, RESUME=1, because of preempted",
    );
    assert_eq!(waiting_for(&job).unwrap(), "waits 30 s before the next");
    job.phase = Phase::Paused;
    let facts = explain(&job, at(710)).facts;
    assert!(
        !facts.iter().any(|fact| fact.starts_with("next attempt")),
        "nothing is next while it is paused: {facts:?}"
    );
}

#[test]
fn an_attempt_that_is_being_ended_is_waited_for() {
    let mut job = running();
    (job.phase, job.reason, job.message) = (Phase::Recovering, Reason::WorkerExited, "a worker ended".into());
    job.attempts[0].stop = Some(Stop { cause: StopCause::PeerExit, at: at(600), deadline: at(660), put_off: false });
    let next = Next {
        not_before: at(600),
        resume: true,
        from_scratch: false,
        new_generation: false,
        why: Reason::ResumeInPlace,
    };
    job.next = Some(next);
    says(
        &job,
        at(610),
        &["attempt 2 ends on all workers, by SIGTERM and at 2026-03-01T12:11:00Z by SIGKILL; then the next \
             attempt starts \
         on the same slice (RESUME=1)."],
    );
    fact(&job, at(610), "being ended since 2026-03-01T12:10:00Z, killed at 2026-03-01T12:11:00Z");
    says(&job, at(670), &["attempt 2 ends on all workers, by SIGKILL since 2026-03-01T12:11:00Z; then"]);
}

#[test]
fn a_failure_that_settles_says_when_it_becomes_final() {
    let mut job = running();
    (job.phase, job.phase_since, job.reason) = (Phase::Recovering, at(600), Reason::Settling);
    let summary = "ValueError: bad shape".to_owned();
    job.settling = Some(Settling { attempt: 2, until: at(660), kind: FailureKind::UserError, summary });
    says(&job, at(610), &["at 2026-03-01T12:11:00Z it fails (user_error), unless a loss of the slice explains"]);
    says(&job, at(670), &["Next: it fails (user_error): no loss of the slice has explained the end."]);
    // Looks that come with the ticks before decide nothing, and are not told as due beside the time of the failure.
    job.wake_at = Some(at(602));
    for secs in [601, 610, 659] {
        let told = explain(&job, at(secs));
        assert!(told.paragraph.contains("at 2026-03-01T12:11:00Z it fails") && !told.paragraph.contains("look is"));
        assert!(told.facts.contains(&"next look at 2026-03-01T12:11:00Z at the latest".to_owned()), "{:?}", told.facts);
    }
    fact(&job, at(670), "next look due now, since 2026-03-01T12:11:00Z");
    says(&job, at(750), &["The next look was due at 2026-03-01T12:11:00Z and is 1m 30s late"]);
    let mut end = grpc_end(Action::Fail);
    end.ended.summary = "ValueError: bad shape.".into();
    job.last_end = Some(end);
    job.message = "ValueError: bad shape; waits up to 60 s to see".into();
    says(
        &job,
        at(610),
        &[
            "Job train is about to fail; for 10s it has waited to see whether its slice was lost.",
            "Why: waits up to 60 s to see (settling).",
        ],
    );
    let paragraph = explain(&job, at(610)).paragraph;
    assert_eq!(paragraph.matches("bad shape").count(), 1, "the cause is told once: {paragraph}");
    assert_eq!(waiting_for(&job).unwrap(), "a sign that the slice was lost, until 2026-03-01T12:11:00Z");
}

#[test]
fn stopping_names_what_is_still_there() {
    let mut job = running();
    (job.phase, job.reason, job.message) = (Phase::Stopping, Reason::CancelRequested, "cancelled by ann".into());
    job.outcome = Some(Outcome::Cancelled);
    let last_error = Some("403 not allowed".to_owned());
    job.generations[0].delete = Some(Delete { intended_at: at(600), sent_at: Some(at(601)), tries: 1, last_error });
    says(
        &job,
        at(700),
        &[
            "Job train has ended (cancelled)",
            "Why: cancelled by ann (cancel_requested).",
            "says that rk-abc123-train-g1 is gone, the job is cancelled",
        ],
    );
    assert_eq!(waiting_for(&job).unwrap(), "the deletion of rk-abc123-train-g1");
    fact(&job, at(700), "(sent once, refused: 403 not allowed)");
    job.spec.workspace = true;
    says(&job, at(700), &["Job train has ended (deleted)", "is gone, the job is deleted"]);
    let over = Job { phase: Phase::Cancelled, generations: Vec::new(), ..job.clone() };
    says(&over, at(700), &["Job train was deleted at"]);
    job.spec.workspace = false;
    job.outcome = None;
    says(&job, at(700), &["Job train is being paused", "is gone, the job is paused"]);
    job.generations.push(job.generations[0].clone());
    says(&job, at(700), &["says that rk-abc123-train-g1 and rk-abc123-train-g1 are gone, the job is paused"]);
}

#[test]
fn a_workspace_says_after_how_long_without_use_it_goes() {
    let mut job = running();
    job.spec.workspace = true;
    for (secs, words) in [(30, "30s"), (90, "1m 30s"), (8 * 3600, "8h"), (2 * 86_400 + 3600, "2days 1h")] {
        job.spec.limits.idle = Some(Duration::from_secs(secs));
        says(&job, at(700), &[&format!("or until nobody has used it for {words}.")]);
    }
}

#[test]
fn stopping_says_that_it_waits_for_what_runs() {
    let mut job = running();
    (job.phase, job.reason, job.message) = (Phase::Stopping, Reason::PauseRequested, "paused by ann".into());
    assert_eq!(waiting_for(&job).unwrap(), "the deletion of rk-abc123-train-g1");
    job.attempts[0].stop = Some(Stop { at: at(600), deadline: at(660), cause: StopCause::Pause, put_off: false });
    let ending = "is being paused; for 7m 39s attempt 2 has been ending on its workers.";
    says(
        &job,
        at(610),
        &[ending, "what still runs is killed at 2026-03-01T12:11:00Z; when all of it has ended the TPU is deleted"],
    );
    says(&job, at(670), &["what still ran was to be killed at 2026-03-01T12:11:00Z"]);
    let waits = "the end of all that attempt 2 runs on its workers, and then the deletion of rk-abc123-train-g1";
    assert_eq!(waiting_for(&job).unwrap(), waits);
    job.attempts[0].fenced_at = Some(at(661));
    assert_eq!(waiting_for(&job).unwrap(), "the deletion of rk-abc123-train-g1");
}

#[test]
fn words_of_programs_are_told_in_one_line_with_single_blanks() {
    let mut job = running();
    (job.phase, job.outcome) = (Phase::Stopping, Some(Outcome::Cancelled));
    job.message = "one\r\n  two\u{1b}three".into();
    says(&job, at(700), &["Why: one two three"]);
}

#[test]
fn paused_waits_for_a_person() {
    let mut job = job(Phase::Paused, Reason::NoNetProgress, "5 generations in a row brought no step");
    job.wake_at = None;
    says(
        &job,
        at(86_400 * 2),
        &[
            "has been paused for 2days; it owns nothing and costs nothing.",
            "Why: 5 generations in a row brought no step (no_net_progress).",
            "until a person says `unpause`",
        ],
    );
    assert_eq!(waiting_for(&job).unwrap(), "a person: `unpause`, or `cancel`");
}

#[test]
fn an_end_says_how_and_of_what() {
    let mut job = job(Phase::Failed, Reason::ProgramFailed, "worker 3 lost its connection");
    job.outcome = Some(Outcome::Failed);
    (job.last_attempt, job.last_generation) = (2, 1);
    let mut end = grpc_end(Action::Fail);
    end.ended.summary = "worker 3 lost its connection".into();
    job.last_end = Some(end);
    says(
        &job,
        at(900),
        &[
            "Job train failed: worker 3 lost its connection. It ended at 2026-03-01T12:00:00Z after 2 attempts on 1 TPU; it owns nothing.",
            "Answer: fail;",
        ],
    );
    let paragraph = explain(&job, at(900)).paragraph;
    assert_eq!(paragraph.matches("worker 3 lost its connection").count(), 1, "the cause is told once: {paragraph}");
    assert!(!paragraph.contains("Next") && !paragraph.contains("look"), "{paragraph}");
    assert_eq!(waiting_for(&job), None);
    (job.phase, job.outcome, job.reason) = (Phase::Succeeded, Some(Outcome::Succeeded), Reason::Succeeded);
    job.message = "all workers ended well".into();
    let paragraph = explain(&job, at(900)).paragraph;
    assert!(paragraph.contains("succeeded") && !paragraph.contains("Attempt"), "{paragraph}");
}

#[test]
fn the_first_sentence_of_a_failed_job_names_the_cause() {
    let mut job = job(Phase::Failed, Reason::ProgramFailed, "");
    job.outcome = Some(Outcome::Failed);
    (job.last_attempt, job.last_generation) = (1, 1);
    for (summary, line, first, then) in [
        (
            "On every worker, the program ended with an error of its own (user_error): KeyError: 'lr'",
            "KeyError: 'lr'",
            "Job train failed: KeyError: 'lr'. It ended at",
            "(user_error): On every worker, the program ended with an error of its own. Evidence: worker 3",
        ),
        (
            "The command or script to run does not exist here (user_error): rekindle: cannot start \"pyhton3\": No such file",
            "rekindle: cannot start \"pyhton3\": No such file",
            "Job train failed: cannot start \"pyhton3\": No such file. It ended at",
            "(user_error): The command or script to run does not exist here. Evidence: worker 3",
        ),
        (
            "It was killed by SIGSEGV, without saying why (user_error).",
            "",
            "Job train failed: It was killed by SIGSEGV, without saying why. It ended at",
            "(user_error). Evidence: worker 3",
        ),
    ] {
        let mut end = grpc_end(Action::Fail);
        end.ended.kind = Some(FailureKind::UserError);
        end.ended.summary = summary.into();
        if let Some(verdict) = end.ended.verdict.as_mut() {
            verdict.evidence[0].line = line.into();
        }
        job.message = format!("{}; it is not tried again: the job's budgets.user_failures is 0", without_stop(summary));
        job.last_end = Some(end);
        says(
            &job,
            at(900),
            &[first, "Why: it is not tried again: the job's budgets.user_failures is 0 (program_failed).", then],
        );
        let paragraph = explain(&job, at(900)).paragraph;
        assert_eq!(
            paragraph.contains("Next: `rekindle logs train` shows what it printed."),
            line.is_empty(),
            "{paragraph}"
        );
    }
}

#[test]
fn what_the_summary_says_of_kind_line_and_meaning_is_not_said_again() {
    let mut job = running();
    let mut end = grpc_end(Action::Fail);
    (end.ended.kind, end.ended.charge) = (Some(FailureKind::UserError), None);
    end.ended.summary = "The program ended with an error of its own (user_error): ValueError: bad shape".into();
    if let Some(verdict) = end.ended.verdict.as_mut() {
        let line = &mut verdict.evidence[0];
        line.line = "ValueError: bad shape".into();
        line.reason = "the program ended with an error of its own".into();
    }
    job.last_end = Some(end.clone());
    let told = "(user_error): The program ended with an error of its own: ValueError: bad shape. Evidence: worker 3 wrote it. Answer";
    says(&job, at(900), &[told]);
    end.ended.summary = "The job's setup commands failed (user_error, exit code 7): one | two".into();
    if let Some(verdict) = end.ended.verdict.as_mut() {
        verdict.evidence[0].line.clear();
        verdict.evidence[0].reason = "the job's setup commands failed".into();
    }
    job.last_end = Some(end);
    says(&job, at(900), &["(user_error): The job's setup commands failed (exit code 7): one | two. Answer"]);
}

#[test]
fn evidence_without_a_line_still_names_its_worker() {
    let mut job = running();
    let mut end = grpc_end(Action::Recreate);
    if let Some(verdict) = end.ended.verdict.as_mut() {
        verdict.evidence[0].line.clear();
        verdict.evidence[0].slice = 1;
    }
    job.last_end = Some(end);
    says(&job, at(900), &["Evidence: worker 3 of slice 1, a peer's connection broke."]);
}

#[test]
fn every_phase_is_explained_also_of_a_job_with_nothing_in_it() {
    for phase in Phase::ALL {
        for reason in [Reason::Submitted, Reason::Fencing, Reason::Released, Reason::InProviderQueue] {
            let job = job(phase, reason, "");
            says(&job, noon(), &["Job train"]);
            // Also before its time: clocks of instances differ.
            says(&job, at(-100), &["Job train"]);
            assert_eq!(waiting_for(&job).is_none(), phase.is_terminal() || phase == Phase::Running);
        }
    }
}
