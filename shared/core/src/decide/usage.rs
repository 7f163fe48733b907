//! Chip time and money, counted from pass to pass.

use jiff::Timestamp;

use super::Pass;
use crate::account::{Sort, by_week, meter};
use crate::job::{Attempt, Generation, Job, Usage};
use crate::observation::{Look, NoticeKind};

impl Pass<'_> {
    /// Adds the time since the last count. The state before this pass holds for all of it, but for what the workers have told of
    /// their steps since, and for those that have told nothing.
    pub(super) fn count_usage(&mut self) {
        self.job.usage = counted(&self.job, self.now, |g| self.last_word(g), |a| self.told_of(a));
    }

    /// What the workers of an attempt tell now.
    fn told_of(&self, a: &Attempt) -> Told {
        let of = || self.seen.workers.iter().flatten().filter(|report| report.attempt == a.number);
        // One that is late with a heartbeat has not fallen silent; the program runs on all of them or on none.
        let silent_since = self
            .silent_worker(a)
            .and_then(|_| of().filter(|report| report.exit.is_none()).map(|report| report.heard_at).min());
        Told {
            from: of().filter_map(|report| report.resumed_from).min(),
            newest: of().filter_map(|report| report.step).max(),
            silent_since,
        }
    }

    /// The last word of a slice that is seen to be gone for the first time: nobody knows when in between it went, and nobody is
    /// charged for what a machine did that was silent.
    fn last_word(&self, g: &Generation) -> Option<Timestamp> {
        let is_over = match &self.look_of(g)?.slice {
            Look::Seen(view) => view.ended,
            Look::Absent => true,
            Look::Unknown => false,
        };
        let of_it = self.seen.workers.iter().flatten().filter(|report| report.generation == g.number);
        of_it.map(|report| report.heard_at).max().filter(|_| is_over && g.ended_since.is_none() && g.delete.is_none())
    }
}

/// What the workers of an attempt tell, beyond the document.
#[derive(Default)]
struct Told {
    /// The step where it resumed.
    from: Option<u64>,
    /// The newest step.
    newest: Option<u64>,
    /// When a worker that is silent was heard of last: nothing shows that the program ran after that.
    silent_since: Option<Timestamp>,
}

/// The job's usage counted up to `now`, by the state that it is in: what a person is shown between two passes.
pub fn usage_at(job: &Job, now: Timestamp) -> Usage {
    counted(job, now, |_| None, |_| Told::default())
}

/// `last_word`: until when a generation counts at most; `told`: what is told of an attempt beyond the document.
fn counted(
    job: &Job,
    now: Timestamp,
    last_word: impl Fn(&Generation) -> Option<Timestamp>,
    told: impl Fn(&Attempt) -> Told,
) -> Usage {
    let from = job.usage.through.unwrap_or(job.created_at);
    let mut usage = job.usage.clone();
    // Parts of a second are left for the next count, so that many short passes lose nothing.
    let Some(secs) = u64::try_from(now.duration_since(from).as_secs()).ok().filter(|secs| *secs > 0) else {
        return usage;
    };
    let through = from + std::time::Duration::from_secs(secs);
    for g in &job.generations {
        let Some(ready) = g.ready_at else { continue };
        if g.lost.is_some() || ready >= now {
            continue;
        }
        let until = taken_away_at(g).into_iter().chain(last_word(g)).fold(through, Timestamp::min);
        let secs = whole_secs(from, until);
        let (sort, newest) = (sort(job, g), newest_on(job, g).filter(|a| is_running(a)));
        let told = newest.map(&told).unwrap_or_default();
        let ran = told.silent_since.map_or(secs, |at| whole_secs(from, at).min(secs));
        let ran_until = told.silent_since.map_or(until, |at| at.min(until));
        let caught_up = newest.filter(|_| sort == Sort::Repeated).and_then(|a| caught_up_at(job, a, &told, ran_until));
        // An attempt may be over before a pass has seen it beyond the others.
        let again = caught_up.map_or(ran, |at| whole_secs(from, at).min(ran));
        let later = |secs| from + std::time::Duration::from_secs(secs);
        count(&mut usage, g, sort, from, again);
        count(&mut usage, g, Sort::Useful, later(again), ran - again);
        count(&mut usage, g, Sort::Idle, later(ran), secs - ran);
    }
    usage.through = Some(through);
    usage
}

/// What makes the parts of a second a whole one.
const PART: std::time::Duration = std::time::Duration::from_nanos(999_999_999);

/// The whole seconds between two moments; none, if the second is not after the first.
fn whole_secs(from: Timestamp, until: Timestamp) -> u64 {
    u64::try_from(until.duration_since(from).as_secs()).unwrap_or(0)
}

/// When the provider ended the slice, as far as it is known: from then on it costs nothing, whenever a pass sees it.
fn taken_away_at(g: &Generation) -> Option<Timestamp> {
    // Windows of maintenance are moved; a preemption is not called off.
    let notice = g.notice.as_ref().filter(|notice| notice.kind == NoticeKind::Preemption);
    notice.map(|notice| notice.deadline).into_iter().chain(g.ended_since).min()
}

/// What the chips of a generation do.
fn sort(job: &Job, g: &Generation) -> Sort {
    match newest_on(job, g) {
        Some(a) if a.stop.is_some() || a.ended.is_some() => Sort::Idle,
        _ if g.delete.is_some() => Sort::Idle,
        Some(a) if a.started_at.is_none() => Sort::Waiting,
        Some(a) if repeats(job, a) => Sort::Repeated,
        Some(_) => Sort::Useful,
        None => Sort::Waiting,
    }
}

/// Its program was started, and nobody has told it to end.
const fn is_running(a: &Attempt) -> bool {
    a.started_at.is_some() && a.stop.is_none() && a.ended.is_none()
}

fn newest_on<'a>(job: &'a Job, g: &Generation) -> Option<&'a Attempt> {
    job.attempts.iter().rev().find(|a| a.generation == g.number)
}

/// When an attempt that came beyond the job's highest step by `until` had done again what was done before: its steps are taken
/// to be of one length. A part of a second counts whole: what was repeated is never told as none. `None`: it has not.
fn caught_up_at(job: &Job, a: &Attempt, told: &Told, until: Timestamp) -> Option<Timestamp> {
    let (started, highest) = (a.started_at?, job.highest_step?);
    let newest = told.newest.filter(|newest| *newest > highest)?;
    let from = told.from.or_else(|| a.begins_at()).unwrap_or(0).min(highest);
    let ran = u64::try_from(until.duration_since(started).as_millis()).ok()?;
    let share = u128::from(ran) * u128::from(highest - from) / u128::from(newest - from);
    let part = if share > 0 { PART } else { std::time::Duration::ZERO };
    Some(started + std::time::Duration::from_millis(u64::try_from(share).ok()?) + part)
}

/// Whether an attempt that runs does again what an earlier one has done. Where it resumed is told only with its first steps;
/// until then it is where the job was saved last.
fn repeats(job: &Job, a: &Attempt) -> bool {
    let from = a.begins_at();
    let is_behind = match job.highest_step {
        Some(highest) => from.is_none_or(|from| from < highest),
        // What another job has done is not done again.
        None => a.resumed_from.is_some() && !job.continues_another(),
    };
    is_behind && !a.progressed
}

fn count(usage: &mut Usage, g: &Generation, sort: Sort, from: Timestamp, secs: u64) {
    for (week, secs) in by_week(from, secs) {
        let meter = meter(g.chips, g.usd_micros_per_hour, secs);
        usage.weeks.entry(week).or_default().add(sort, meter);
        usage.paid_chip_secs += meter.chip_secs;
        usage.cost_usd_micros += meter.usd_micros;
        *match sort {
            Sort::Useful => &mut usage.useful_chip_secs,
            Sort::Repeated => &mut usage.repeated_chip_secs,
            Sort::Waiting => &mut usage.waiting_chip_secs,
            // An orphan is no job's.
            Sort::Idle | Sort::Orphan => &mut usage.idle_chip_secs,
        } += meter.chip_secs;
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{decided, report, running, seen, view};
    use super::super::{Command, apply_command};
    use crate::fixture::at;
    use crate::job::Job;
    use crate::observation::{Look, SliceState, WorkerReport, WorkerState};
    use crate::spec::JobSpec;

    /// The chip-seconds (useful, repeated) of an attempt that started at second 2, after others had come to step 100, and of
    /// which a pass hears first at second 62: it resumed there, and is at that step.
    fn after_a_minute(
        started: jiff::Timestamp,
        saved: Option<u64>,
        resumed_from: Option<u64>,
        step: Option<u64>,
    ) -> (u64, u64) {
        let mut job = Job { highest_step: Some(100), saved, ..running() };
        job.usage.through = Some(at(2));
        job.attempts[0].started_at = Some(started);
        (job.attempts[0].resume, job.attempts[0].saved_before) = (saved.is_some(), saved);
        let of = |n| WorkerReport { step, resumed_from, ..report(n, WorkerState::Running, None) };
        let ready = Look::Seen(view(&job, SliceState::Ready, true));
        let heard = seen(&job, &ready, Some((0..4).map(of).collect()), 62);
        let usage = decided(&job, &heard, 62).job.usage.clone();
        let chips = u64::from(job.generations[0].chips);
        assert_eq!(usage.useful_chip_secs + usage.repeated_chip_secs, 60 * chips);
        (usage.useful_chip_secs / chips, usage.repeated_chip_secs / chips)
    }

    #[test]
    fn of_an_attempt_that_no_pass_saw_amid_its_steps_the_new_ones_are_useful() {
        // It had more than was known to be saved, and began between two seconds.
        let late = at(2) + std::time::Duration::from_millis(500);
        assert_eq!(after_a_minute(late, Some(80), Some(100), Some(101)), (60, 0));
        for (saved, resumed_from, step, want) in [
            (Some(80), Some(80), Some(140), (40, 20)),
            (Some(80), None, Some(140), (40, 20)),
            (None, None, Some(200), (30, 30)),
            (Some(80), Some(80), Some(100), (0, 60)),
            (Some(80), Some(80), None, (0, 60)),
            // A part of a second is told as one.
            (Some(99), Some(99), Some(1000), (59, 1)),
            // It had more than was known to be saved.
            (Some(80), Some(100), Some(101), (60, 0)),
        ] {
            assert_eq!(after_a_minute(at(2), saved, resumed_from, step), want, "{saved:?} {resumed_from:?} {step:?}");
        }
    }

    #[test]
    fn what_another_job_has_done_is_not_repeated_by_the_one_that_goes_on_from_it() {
        for (resume, want) in [(true, (60, 0)), (false, (0, 60))] {
            let mut job = Job { highest_step: None, ..running() };
            let mut spec = JobSpec::clone(&job.spec);
            spec.resume = resume;
            job.spec = spec.into();
            job.usage.through = Some(at(2));
            (job.attempts[0].resume, job.attempts[0].resumed_from) = (true, Some(5000));
            let workers = (0..4).map(|n| report(n, WorkerState::Running, None)).collect();
            let ready = Look::Seen(view(&job, SliceState::Ready, true));
            let usage = decided(&job, &seen(&job, &ready, Some(workers), 62), 62).job.usage.clone();
            let chips = u64::from(job.generations[0].chips);
            assert_eq!((usage.useful_chip_secs / chips, usage.repeated_chip_secs / chips), want);
        }
    }

    /// The seconds (useful, idle) of an attempt that started at second 2 and is cancelled at second 400, its quietest worker heard
    /// of last at `heard`; `looked`: a pass in between.
    fn cancelled_after(heard: i64, looked: Option<i64>) -> (u64, u64) {
        let mut job = running();
        job.usage.through = Some(at(2));
        let of = |secs: i64| {
            let of = move |n| WorkerReport {
                heard_at: at(if n == 3 { heard.min(secs) } else { secs }),
                ..report(n, WorkerState::Running, None)
            };
            Some((0..4).map(of).collect::<Vec<_>>())
        };
        let pass = |job: &Job, secs| {
            let ready = Look::Seen(view(job, SliceState::Ready, true));
            Job::clone(&decided(job, &seen(job, &ready, of(secs), secs), secs).job)
        };
        if let Some(secs) = looked {
            job = pass(&job, secs);
            assert_eq!(job.usage.through, Some(at(secs)), "the silence is news: {}", job.message);
        }
        let job = pass(&apply_command(&job, Command::Cancel, at(400)).unwrap().unwrap(), 400);
        assert!(job.attempts[0].stop.is_some(), "{}", job.message);
        let chips = u64::from(job.generations[0].chips);
        assert_eq!(job.usage.paid_chip_secs, 398 * chips, "it is paid for all the same");
        (job.usage.useful_chip_secs / chips, job.usage.idle_chip_secs / chips)
    }

    #[test]
    fn a_program_that_fell_silent_before_it_was_cancelled_is_useful_until_its_last_word() {
        assert_eq!(cancelled_after(100, None), (98, 300));
        assert_eq!(cancelled_after(100, Some(300)), (98, 300), "also where a pass saw the silence before");
        assert_eq!(cancelled_after(390, None), (398, 0), "a heartbeat is not missed yet");
    }
}
