//! From the accounts of all workers to one verdict: success first, then the cloud's word, then causes over echoes.

use std::cmp::Ordering;

use super::evidence::{
    CaseAction, Evidence, EvidenceLine, Exit, NodeFact, NoticeFact, Outcome, SignalSender, Stage, Verdict,
    WorkerEvidence,
};
use super::exit::SETUP_FAILED;
use super::said::last_words;
use super::worker::{Account, Cause, account, strength};
use crate::failure::FailureKind;

/// Lines of evidence in a verdict: the cause, its companions, and what was judged an echo.
const EVIDENCE_LINES_MAX: usize = 8;

/// Between two exits so far apart, the first one is the cause and the second a consequence.
// Shorter than the heartbeat limits of all coordination services known, longer than clocks of one slice differ.
const FIRST_DEATH_LEAD_MS: u64 = 1_000;

/// The clocks of a slice's workers differ by less.
// NTP within one zone keeps them within some milliseconds; larger would take the stop of survivors for a cause.
const CLOCKS_DIFFER_MS: u32 = 200;

/// Decides why an attempt ended.
///
/// Pure and linear in the size of the tails. The order of the workers, their names, and shifts of all times together
/// change nothing.
pub fn classify(evidence: &Evidence) -> Verdict {
    let missing = missing_workers(evidence);
    let stops = Stops::of(evidence);
    let mut accounts: Vec<Account<'_>> =
        evidence.workers.iter().chain(&missing).map(|worker| account(worker, stops.told(worker))).collect();
    forget_late_terminations(&mut accounts);
    forget_echoes_of_stopped(&mut accounts);
    if let Some(verdict) = success(evidence, &accounts) {
        return verdict;
    }
    if let Some(verdict) = the_clouds_word(evidence, &accounts) {
        return verdict;
    }
    from_causes(evidence, &accounts)
}

/// A SIGTERM that came clearly after another worker had failed is how launchers end the survivors, and no cause.
fn forget_late_terminations(accounts: &mut [Account<'_>]) {
    let first = accounts.iter().filter_map(|a| a.failed_at_ms).min_by(|a, b| around_midnight(*a, *b));
    let Some(first) = first.filter(|_| accounts.len() > 1) else { return };
    for account in accounts {
        let is_late = account
            .terminated_at_ms
            .is_some_and(|at| around_midnight(first, at) == Ordering::Less && at.abs_diff(first) >= CLOCKS_DIFFER_MS);
        if is_late {
            account.causes.retain(|cause| !super::exit::is_bare_sigterm(cause));
        }
    }
}

/// Whom the manager told to stop, once the first worker had ended.
struct Stops {
    any: bool,
    first_exit_ms: Option<u64>,
}

impl Stops {
    fn of(evidence: &Evidence) -> Self {
        Self {
            any: evidence.workers.iter().any(|worker| worker.signal_sender == Some(SignalSender::Ourselves)),
            first_exit_ms: evidence.workers.iter().filter_map(|worker| worker.exited_at_ms).min(),
        }
    }

    /// Runtimes pass a SIGTERM on to all workers as a notice, so it is heard also by those that it has not reached yet.
    fn told(&self, worker: &WorkerEvidence) -> bool {
        let is_later = worker.exited_at_ms.zip(self.first_exit_ms).is_some_and(|(at, first)| at > first);
        worker.signal_sender == Some(SignalSender::Ourselves) || (self.any && is_later)
    }
}

/// Workers that were expected and said nothing.
fn missing_workers(evidence: &Evidence) -> Vec<WorkerEvidence> {
    let missing = evidence.multi_worker_expected.unwrap_or(0).saturating_sub(evidence.workers.len());
    let told = |index: &u32| evidence.workers.iter().any(|worker| worker.slice == 0 && worker.index == *index);
    let unheard = (0..).filter(|index| !told(index)).take(missing);
    unheard.map(|index| WorkerEvidence { index, ..WorkerEvidence::default() }).collect()
}

/// Success, if the work was done.
fn success(evidence: &Evidence, accounts: &[Account<'_>]) -> Option<Verdict> {
    if accounts.is_empty() {
        return None;
    }
    let done = accounts.iter().find(|a| a.completed.as_ref().is_some_and(|c| c.last_step && c.final_checkpoint));
    let all_left_well = accounts.iter().all(Account::left_well);
    if all_left_well {
        let reached = accounts.iter().any(|a| a.completed.as_ref().is_some_and(|c| c.last_step));
        let leaving_early = evidence.notice.is_some()
            || accounts.iter().any(|a| a.best().is_some_and(|cause| failed_in_spite_of_zero(a, cause)));
        if leaving_early && !reached {
            return None;
        }
        return Some(succeeded(accounts, 0.97, "every worker left with code 0"));
    }
    let done = done?;
    let failing = accounts.iter().any(|a| {
        let finished_at = a.completed.as_ref().filter(|c| c.last_step).map_or(0, |c| c.number);
        a.causes.iter().any(|cause| {
            cause.number >= finished_at && cause.strength > strength::TERMINATED && !ends_in_teardown(cause)
        })
    });
    let index = done.worker.index;
    (!failing).then(|| {
        let words = format!(
            "the last step and the final checkpoint are in the output of worker {index}; what failed after them was \
             the shutdown"
        );
        succeeded(accounts, 0.85, &words)
    })
}

/// True if a cause outweighs an exit code of 0: leaving for a preemption, or a code lost behind a pipe.
fn failed_in_spite_of_zero(account: &Account<'_>, cause: &Cause) -> bool {
    if cause.strength < strength::EXCEPTION || account.completed.as_ref().is_some_and(|c| c.last_step) {
        return false;
    }
    cause.kind == FailureKind::Preempted || account.ends_with_exception
}

/// True for causes that a shutdown after the work was done brings with it.
fn ends_in_teardown(cause: &Cause) -> bool {
    matches!(cause.kind, FailureKind::InfraGrpc | FailureKind::Preempted)
        || matches!(cause.signature, "crash" | "crash-in-runtime" | "killed")
}

fn succeeded(accounts: &[Account<'_>], confidence: f32, why: &str) -> Verdict {
    let evidence = accounts
        .iter()
        .filter_map(|a| a.completed.as_ref().map(|c| (a, c)))
        .take(EVIDENCE_LINES_MAX)
        .map(|(a, completion)| EvidenceLine {
            worker: a.worker.index,
            slice: a.worker.slice,
            line: completion.line.clone(),
            reason: "shows that the work was done".to_owned(),
            signature: "completed".to_owned(),
        })
        .collect();
    let outcome = Outcome::Success;
    Verdict { outcome, confidence, evidence, action: CaseAction::of(outcome), summary: format!("It succeeded: {why}.") }
}

/// What notice and node state decide by themselves.
fn the_clouds_word(evidence: &Evidence, accounts: &[Account<'_>]) -> Option<Verdict> {
    let (kind, confidence, signature, words) = match (evidence.notice, evidence.node) {
        (Some(NoticeFact::Preemption), _) => {
            (FailureKind::Preempted, 0.97, "notice", "the provider announced that it takes the machine back")
        }
        (Some(NoticeFact::Maintenance), _) => {
            (FailureKind::Maintenance, 0.95, "notice", "the provider announced maintenance of the host")
        }
        (None, NodeFact::GoneOrPreempted) => {
            (FailureKind::Preempted, 0.97, "node-state", "the provider took the slice back")
        }
        (None, NodeFact::Gone) => (FailureKind::Lost, 0.9, "node-state", "the slice is gone and nobody said why"),
        (None, NodeFact::Unhealthy) => {
            let own = accounts.iter().filter_map(Account::best).map(|cause| cause.strength).max().unwrap_or(0);
            if own >= strength::EXCEPTION {
                return None;
            }
            (FailureKind::TpuRuntime, 0.8, "node-health", "the provider says that the node is not healthy")
        }
        (None, NodeFact::Unknown | NodeFact::Ready) => return None,
    };
    let first = EvidenceLine {
        worker: 0,
        slice: 0,
        line: String::new(),
        reason: words.to_owned(),
        signature: signature.to_owned(),
    };
    let lines = std::iter::once(first).chain(best_lines(accounts, None)).take(EVIDENCE_LINES_MAX).collect();
    Some(failed(kind, confidence, lines, format!("{}.", capital(words))))
}

/// The cause among causes.
fn from_causes(evidence: &Evidence, accounts: &[Account<'_>]) -> Verdict {
    if let Some(verdict) = all_killed(evidence, accounts) {
        return verdict;
    }
    let Some((index, cause)) = waited_in_vain(accounts).or_else(|| chosen(accounts)) else {
        return undecided(evidence, accounts);
    };
    let kind = settled(evidence, accounts, cause);
    if kind == FailureKind::Unknown && cause.line.is_empty() && accounts.iter().all(|a| a.empty) {
        return undecided(evidence, accounts);
    }
    let account = &accounts[index];
    let summary = summary(accounts, account, cause, kind);
    let lines = best_lines(accounts, Some((index, cause)));
    failed(kind, confidence(accounts, cause, kind), lines, summary)
}

/// Every worker of several killed, and nobody said a word about memory: the machines went away together.
fn all_killed(evidence: &Evidence, accounts: &[Account<'_>]) -> Option<Verdict> {
    let killed = accounts.len() > 1
        && accounts.iter().all(|a| {
            a.exit == Exit::Signal(9)
                && a.worker.signal_sender != Some(SignalSender::Ourselves)
                && a.best().is_some_and(|cause| cause.signature == "killed" && cause.strength <= strength::KILLED)
        });
    if !killed || evidence.node == NodeFact::Ready {
        return None;
    }
    let lines = best_lines(accounts, None);
    let words = "every worker was killed at once without a word, as when the machines are taken away";
    Some(failed(FailureKind::Preempted, 0.7, lines, format!("{}.", capital(words))))
}

/// The cause that decides: the first death's if it has one of its own, else the strongest, else the earliest.
fn chosen<'a>(accounts: &'a [Account<'_>]) -> Option<(usize, &'a Cause)> {
    let best = || accounts.iter().enumerate().filter_map(|(index, a)| Some((index, a.best()?)));
    if let Some(first) = first_death(accounts)
        && let Some(cause) = accounts[first].best().filter(|cause| cause.strength >= strength::EXCEPTION)
    {
        return Some((first, cause));
    }
    best().min_by(|(i, a), (j, b)| compare(&accounts[*i], a, &accounts[*j], b))
}

/// A wait that ended by time alone, if nobody has anything else but the silence of those waited for. A worker that is
/// gone breaks connections and misses heartbeats; one that is only waited for still has both, and hangs.
fn waited_in_vain<'a>(accounts: &'a [Account<'_>]) -> Option<(usize, &'a Cause)> {
    let is_silence = |cause: &Cause| cause.signature == "silent";
    if !accounts.iter().filter_map(Account::best).any(is_silence) {
        return None;
    }
    let says = |cause: &Cause, words: &[&str]| {
        let line = cause.line.to_ascii_lowercase();
        words.iter().any(|word| line.contains(word))
    };
    let by_time = |cause: &Cause| says(cause, &["timed out", "deadline exceeded", "deadline_exceeded"]);
    let broken = |cause: &Cause| says(cause, &["heartbeat", "closed", "reset", "refused", "broken", "unreachable"]);
    let waiters = || accounts.iter().enumerate().filter(|(_, a)| a.best().is_some_and(|best| !is_silence(best)));
    let only_waited = waiters().all(|(_, a)| {
        let mut echoes = a.causes.iter().filter(|cause| cause.kind == FailureKind::InfraGrpc);
        a.best().is_some_and(|best| best.kind == FailureKind::InfraGrpc && best.strength <= strength::TELLING)
            && a.causes.iter().any(by_time)
            && !echoes.any(broken)
    });
    let best = || waiters().filter_map(|(index, a)| Some((index, a.causes.iter().find(|cause| by_time(cause))?)));
    if only_waited { best().min_by(|(i, a), (j, b)| compare(&accounts[*i], a, &accounts[*j], b)) } else { None }
}

/// The worker that died clearly before all others, if exit times are known.
fn first_death(accounts: &[Account<'_>]) -> Option<usize> {
    let mut times: Vec<(u64, usize)> =
        accounts.iter().enumerate().filter_map(|(i, a)| Some((a.worker.exited_at_ms?, i))).collect();
    times.sort_unstable();
    let (first, second) = (times.first()?, times.get(1)?);
    (times.len() == accounts.len() && second.0 >= first.0 + FIRST_DEATH_LEAD_MS).then_some(first.1)
}

/// Orders causes of different workers: stronger, then earlier, then by a fixed rank, so that no accident decides.
fn compare(a_of: &Account<'_>, a: &Cause, b_of: &Account<'_>, b: &Cause) -> Ordering {
    let by_exit = || match (a_of.worker.exited_at_ms, b_of.worker.exited_at_ms) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => Ordering::Equal,
    };
    let by_time = || match (a.time_of_day_ms, b.time_of_day_ms) {
        (Some(a), Some(b)) => around_midnight(a, b),
        _ => Ordering::Equal,
    };
    b.strength
        .cmp(&a.strength)
        .then_with(by_exit)
        .then_with(by_time)
        .then_with(|| rank(a.kind).cmp(&rank(b.kind)))
        .then_with(|| a.signature.cmp(b.signature))
        .then_with(|| a.line.cmp(&b.line))
}

/// Compares times of day; of two more than half a day apart the larger is the day before.
fn around_midnight(a: u32, b: u32) -> Ordering {
    const HALF_DAY_MS: u32 = 12 * 3600 * 1000;
    if a.abs_diff(b) > HALF_DAY_MS { b.cmp(&a) } else { a.cmp(&b) }
}

/// Among causes equally strong and equally early: what is rarely a consequence comes first.
const fn rank(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::OomHbm => 0,
        FailureKind::DiskFull => 1,
        FailureKind::OomHost => 2,
        FailureKind::Auth => 3,
        FailureKind::Environment => 4,
        FailureKind::TpuRuntime => 5,
        FailureKind::StorageNetwork => 6,
        FailureKind::UserError => 7,
        FailureKind::Preempted | FailureKind::Maintenance | FailureKind::Lost => 8,
        FailureKind::InfraGrpc => 9,
        FailureKind::Stalled | FailureKind::Timeout | FailureKind::Unknown => 10,
    }
}

/// The kind of the chosen cause, after asking what else is known.
fn settled(evidence: &Evidence, accounts: &[Account<'_>], cause: &Cause) -> FailureKind {
    let weak_loss = cause.kind == FailureKind::Preempted && cause.strength <= strength::TERMINATED;
    if !weak_loss {
        return cause.kind;
    }
    let echo = accounts.iter().any(|a| a.causes.iter().any(|c| c.kind == FailureKind::InfraGrpc));
    match evidence.node {
        NodeFact::Ready if echo => FailureKind::InfraGrpc,
        NodeFact::Ready => FailureKind::Unknown,
        NodeFact::Unknown | NodeFact::Unhealthy | NodeFact::GoneOrPreempted | NodeFact::Gone => {
            // Silence on all sides, before any step, may as well be a program that hangs.
            let anything = accounts.iter().any(|a| {
                a.stepped || a.exit != Exit::Silent || a.causes.iter().any(|cause| cause.signature != "silent")
            });
            if anything { cause.kind } else { FailureKind::Unknown }
        }
    }
}

/// How far to trust a cause.
fn confidence(accounts: &[Account<'_>], cause: &Cause, kind: FailureKind) -> f32 {
    let base: f32 = match cause.strength {
        strength::HIGH.. => 0.95,
        strength::MEDIUM.. => 0.85,
        strength::EXCEPTION.. => 0.8,
        strength::LOW.. => 0.6,
        strength::SILENT.. => 0.55,
        strength::ECHO.. => 0.6,
        _ => 0.35,
    };
    if kind == FailureKind::Unknown {
        return 0.3;
    }
    let agreeing = accounts.iter().filter(|a| a.best().is_some_and(|best| best.kind == cause.kind)).count();
    if agreeing > 1 { (base + 0.03).min(0.99) } else { base }
}

/// The lines that speak for a verdict: the chosen one, then the best of each other worker.
fn best_lines(accounts: &[Account<'_>], chosen: Option<(usize, &Cause)>) -> Vec<EvidenceLine> {
    let line = |index: usize, cause: &Cause| EvidenceLine {
        worker: accounts[index].worker.index,
        slice: accounts[index].worker.slice,
        line: cause.line.clone(),
        reason: cause.reason.to_owned(),
        signature: cause.signature.to_owned(),
    };
    let mut lines: Vec<EvidenceLine> = chosen.iter().map(|(index, cause)| line(*index, cause)).collect();
    let others = accounts.iter().enumerate().filter(|(index, _)| chosen.is_none_or(|(of, _)| of != *index));
    lines.extend(others.filter_map(|(index, a)| Some(line(index, a.best()?))));
    lines.truncate(EVIDENCE_LINES_MAX);
    lines
}

/// One sentence for a person.
fn summary(accounts: &[Account<'_>], account: &Account<'_>, cause: &Cause, kind: FailureKind) -> String {
    let worker = account.worker.index;
    let same = accounts.iter().filter(|a| a.best().is_some_and(|best| best.kind == cause.kind)).count();
    // All workers run one command line, and the others may only not have been heard yet.
    let is_of_all = matches!(cause.signature, "usage" | "exit-2" | "exit-127" | "command-missing" | "not-executable");
    let place = if accounts.len() == 1 || (is_of_all && same < accounts.len()) {
        String::new()
    } else if same == accounts.len() {
        "on every worker, ".to_owned()
    } else {
        format!("on worker {worker}, ")
    };
    let is_setup = account.worker.during == Stage::Setup;
    // The words of the exit name it themselves.
    let stage = if is_setup && cause.signature != SETUP_FAILED { "in `setup`, " } else { "" };
    let why = capital(&format!("{stage}{place}{}", cause.reason));
    let exit = match account.exit {
        Exit::Code(code) if is_setup => format!(", exit code {code}"),
        Exit::Signal(signal) if is_setup => format!(", signal {signal}"),
        Exit::Code(_) | Exit::Signal(_) | Exit::Silent => String::new(),
    };
    let said = if cause.signature == SETUP_FAILED { last_words(&account.worker.tail) } else { cause.line.clone() };
    if said.is_empty() { format!("{why} ({kind}{exit}).") } else { format!("{why} ({kind}{exit}): {said}") }
}

/// Nothing decides.
fn undecided(evidence: &Evidence, accounts: &[Account<'_>]) -> Verdict {
    let first = first_by_itself(accounts);
    let told = first.or_else(|| accounts.iter().find(|a| a.worker.exit != Exit::Code(0)));
    let how = match told.map(|a| a.worker.exit).filter(|_| !evidence.is_end_assumed) {
        Some(Exit::Code(code)) => format!(" with exit code {code}"),
        Some(Exit::Signal(signal)) => format!(" by signal {signal}"),
        Some(Exit::Silent) | None => String::new(),
    };
    // Where all ended alike no worker is to blame more than another.
    let is_one_of_many = |a: &&Account<'_>| accounts.iter().any(|other| other.worker.exit != a.worker.exit);
    let blamed = first.filter(is_one_of_many);
    let of = blamed.map_or_else(String::new, |a| match a.worker.slice {
        0 => format!(" of worker {}", a.worker.index),
        slice => format!(" of worker {} of slice {slice}", a.worker.index),
    });
    // A person may see in it what no signature does: programs give up in words of their own.
    let last = told.map(|a| last_words(&a.worker.tail)).filter(|last| !last.is_empty());
    let last = last.map_or_else(String::new, |last| format!("; it last said \"{last}\""));
    // Before the program is released to all workers, `setup` alone can have ended.
    let is_setup = first.is_some_and(|a| a.worker.during == Stage::Setup);
    let words = match (accounts.iter().all(|a| a.empty), is_setup) {
        (true, false) => format!("The program{of} left no output that could say why it ended{how}."),
        (true, true) => format!("`setup`{of} left no output that could say why it ended{how}."),
        (false, false) => format!("Nothing that is known in the output{of} says why it ended{how}{last}."),
        (false, true) => format!("Nothing that is known in the output of `setup`{of} says why it ended{how}{last}."),
    };
    let line = blamed.map(|a| EvidenceLine {
        worker: a.worker.index,
        slice: a.worker.slice,
        line: String::new(),
        reason: format!("it ended{how}"),
        signature: "unexplained-exit".to_owned(),
    });
    let others = best_lines(accounts, None).into_iter();
    let lines = line.into_iter().chain(others).take(EVIDENCE_LINES_MAX).collect();
    failed(FailureKind::Unknown, 0.2, lines, words)
}

/// The first worker that ended badly, and not because the manager told it to stop.
fn first_by_itself<'a, 'b>(accounts: &'b [Account<'a>]) -> Option<&'b Account<'a>> {
    let place = |a: &&Account<'_>| (a.worker.exited_at_ms.unwrap_or(u64::MAX), a.worker.slice, a.worker.index);
    accounts.iter().filter(|a| a.ended_badly_by_itself()).min_by_key(place)
}

/// What those that were stopped print of their peers is no cause while one that ended by itself does not say why.
fn forget_echoes_of_stopped(accounts: &mut [Account<'_>]) {
    if !accounts.iter().any(|a| a.ended_badly_by_itself() && a.causes.is_empty()) {
        return;
    }
    for account in accounts.iter_mut().filter(|a| a.is_stopped()) {
        account.causes.retain(|cause| cause.strength >= strength::LOW);
    }
}

fn failed(kind: FailureKind, confidence: f32, evidence: Vec<EvidenceLine>, summary: String) -> Verdict {
    let outcome = Outcome::Failure(kind);
    Verdict { outcome, confidence, evidence, action: CaseAction::of(outcome), summary }
}

/// The words with a capital letter at the beginning.
fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
