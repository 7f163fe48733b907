//! The end of what lives: by order, after a notice, or since the program has ended.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use rekindle_core::orders::notice_is_urgent;

use crate::closing::{Closing, LAST_WORD, all_told, collect};
use crate::machine::{Closed, Doing, Event, Machine};
use crate::outputs::{self, When};
use crate::shim::Ended;
use crate::state::{Attempt, Stop};
use crate::steps::flush;
use crate::{files, keep, logs, procs, program};

/// A moment of SIGKILL that is less sooner than this is the same one.
const SOONER: SignedDuration = SignedDuration::from_millis(10);

impl Machine {
    /// Ends everything, by order or after a notice.
    pub(crate) fn stop(&mut self, now: Timestamp, kill_at: Timestamp) {
        let left = Duration::try_from(kill_at.duration_since(now)).unwrap_or(Duration::ZERO);
        let kill_at_local = Instant::now() + left;
        match &mut self.doing {
            Doing::Ending(at, known) => {
                move_sooner(at, known, kill_at, kill_at_local);
                return;
            }
            // The shim must have told of the program before it can be ended; that takes milliseconds. What it waits for before
            // may take long.
            Doing::Starting(call_off) => {
                if let Some(call_off) = call_off.take() {
                    let _ = call_off.send(());
                }
                return;
            }
            Doing::Preparing(task) => task.abort(),
            Doing::Nothing => {}
        }
        let ended = self.live.and_then(|live| files::read_json::<Ended>(&self.papers(live.name).ended()));
        match self.state.attempt.as_mut() {
            Some(attempt) if attempt.exit.is_some() => {
                self.doing = Doing::Nothing;
            }
            Some(attempt) if ended.is_none() => {
                if attempt.stop.is_none() {
                    attempt.stop = Some(Stop { at: now, kill_at });
                    self.is_dirty = true;
                    self.close_with(None, kill_at_local, false);
                } else {
                    self.close_with(None, kill_at_local, true);
                }
            }
            Some(attempt) => {
                let is_told = attempt.stop.is_some();
                self.close_with(ended, kill_at_local, is_told);
            }
            None if self.is_clean => self.doing = Doing::Nothing,
            None => self.close(None, kill_at_local),
        }
    }

    pub(crate) fn close(&mut self, ended: Option<Ended>, kill_at: Instant) {
        self.close_with(ended, kill_at, false);
    }

    /// Ends what lives, proves it, gathers the evidence. `ended` is how the program ended, where that is known already.
    pub(crate) fn close_with(&mut self, ended: Option<Ended>, kill_at: Instant, is_told: bool) {
        let (hold, kill_at) = watch::channel(kill_at);
        // Before SIGTERM it is written down, so that the next agent does not send it twice, and the program can read why. But not where
        // the disk hangs: the program needs the time that it has.
        let before = [self.is_dirty.then(|| self.save()), self.telling.take()];
        let left = kill_at.borrow().saturating_duration_since(Instant::now());
        self.doing = Doing::Ending(hold, Timestamp::now() + left);
        let (family, events) = (self.family(), self.events.clone());
        let programs = self.programs(family);
        let Some(attempt) = &self.state.attempt else {
            tokio::spawn(async move {
                procs::end(programs, is_told, kill_at, Some(procs::LEFTOVER_GRACE)).await;
                let _ = events.send(Event::Closed(None)).await;
            });
            return;
        };
        let notice = self.own_notice().filter(|notice| notice_is_urgent(notice, Timestamp::now()));
        self.parts.exec.close(attempt.number, notice.is_some());
        let flushes = self.parts.flushes.clone();
        let is_urgent = notice.is_some();
        let (collecting, number, is_ordered) = (self.collecting(attempt), attempt.number, attempt.stop.is_some());
        let kill_at_last = *kill_at.borrow();
        let closing = self.closing(attempt, family);
        let (taken_over, orders) = (self.taken_over.clone(), self.parts.exec.activity.clone());
        // Where we end it, what saves may be a child of what the group's leader was: a program under a shell, that of a launcher, or
        // in a workspace what people began.
        let leftovers = (!is_ordered).then_some(procs::LEFTOVER_GRACE);
        tokio::spawn(async move {
            keep::a_moment(before.into_iter().flatten()).await;
            let strays = program::forbid(&closing.folder).await;
            procs::end(programs.clone(), is_told, kill_at.clone(), leftovers).await;
            procs::end_strays(&programs, &strays, &kill_at).await;
            // What was said last is on its way to the files. On a full disk it takes longer, and the others are to know.
            program::is_written(&closing.folder, &taken_over, Some(LAST_WORD / 2)).await;
            let ended = match ended {
                Some(ended) => ended,
                None => closing.last_word().await,
            };
            let left = kill_at_last.saturating_duration_since(Instant::now());
            let when = outputs::when(is_ordered, is_urgent, left);
            if let When::Before(limit) = when {
                collecting.within(limit).await;
            }
            let goes_in = notice.map(|notice| outputs::left_until(notice.deadline));
            let ordered_in = is_ordered.then(|| kill_at.borrow().saturating_duration_since(Instant::now()));
            let patience = logs::patience(ended.exit, goes_in, ordered_in);
            let folder = closing.folder.clone();
            let report = tokio::task::spawn_blocking(move || closing.report(ended));
            // Once the last worker's exit is known the machine may be gone within the second.
            let told = orders.with(patience, all_told(&flushes, &folder, &taken_over, patience));
            let (report, is_told) = tokio::join!(report, told);
            let is_collecting = matches!(when, When::After(_)) && collecting.is_due();
            if let Ok(report) = report {
                let closed = Closed { exit: Box::new(report), is_collecting, has_unsent: !is_told };
                let _ = events.send(Event::Closed(Some(closed))).await;
            }
            if let (When::After(limit), true) = (when, is_collecting) {
                collect(collecting, limit, number, flushes, events).await;
            }
        });
    }

    /// What the report of an attempt's end is made of.
    fn closing(&self, attempt: &Attempt, family: Option<procs::Family>) -> Closing {
        Closing {
            attempt: attempt.clone(),
            papers: self.live.map(|live| self.papers(live.name)),
            folder: self.parts.layout.attempt(attempt.number),
            tpu_logs: self.parts.layout.tpu_logs(attempt.number),
            key: self.parts.node.key,
            home: self.parts.config.home.clone(),
            work: self.parts.layout.work(),
            devices: self.devices.clone(),
            memory_free: self.lows.lowest(),
            kernel: self.kernel.clone(),
            watch: self.watch.clone(),
            family,
        }
    }

    /// Nothing lives any more.
    pub(crate) fn on_closed(&mut self, closed: Option<Closed>) {
        self.doing = Doing::Nothing;
        self.live = None;
        self.is_dirty = true;
        self.closed_at = Some(Instant::now());
        let (Some(closed), Some(attempt)) = (closed, self.state.attempt.as_mut()) else {
            self.is_clean = true;
            return;
        };
        let folder = self.parts.layout.attempt(attempt.number);
        attempt.read_progress(&folder, true);
        let Closed { exit, is_collecting, has_unsent } = closed;
        tracing::info!(attempt = attempt.number, exit = ?exit.evidence.exit, "nothing lives any more");
        let mut exit = *exit;
        exit.evidence.last_step = attempt.progress.said.step;
        attempt.exit = Some(exit);
        attempt.is_collecting = is_collecting;
        let number = attempt.number;
        if !is_collecting {
            self.close_output(number);
        }
        if has_unsent {
            self.await_sent(number);
        }
        flush(&self.parts.flushes);
    }
}

/// Moves the moment of SIGKILL, where another one is told that is sooner.
// It is not computed anew from a wall clock that somebody sets meanwhile: a step of a minute would be the end of who saves.
fn move_sooner(at: &watch::Sender<Instant>, known: &mut Timestamp, told: Timestamp, told_local: Instant) {
    if told.duration_since(*known) < -SOONER {
        *known = told;
        at.send_if_modified(|at| {
            let is_sooner = told_local < *at;
            *at = told_local.min(*at);
            is_sooner
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_while_a_program_saves_does_not_end_it() {
        let told: Timestamp = "2026-01-01T00:00:30Z".parse().unwrap();
        let (begun, mut known) = (Instant::now(), told);
        let (at, _) = watch::channel(begun + Duration::from_secs(30));
        let left = |at: &watch::Sender<Instant>| at.borrow().duration_since(begun).as_secs();
        // A minute forward: by the wall clock the moment is over.
        move_sooner(&at, &mut known, told, begun);
        assert_eq!(left(&at), 30);
        let sooner = told - Duration::from_secs(20);
        move_sooner(&at, &mut known, sooner, begun + Duration::from_secs(10));
        assert_eq!((left(&at), known), (10, sooner), "another order may come sooner");
        move_sooner(&at, &mut known, told, begun + Duration::from_secs(30));
        assert_eq!(left(&at), 10, "and none later");
    }
}
