//! The end of what lives: by order, after a notice, or since the program has ended.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;

use crate::closing::{Closing, LAST_WORD, all_told, collect};
use crate::machine::{Closed, Doing, Event, Machine};
use crate::outputs::{self, When};
use crate::shim::Ended;
use crate::state::{Attempt, Step, Stop};
use crate::steps::flush;
use crate::{keep, logs, procs, program};

/// A full disk has forgotten it, and no order has brought it since.
const UNKNOWN: &str = "rekindle: outputs: none is collected: what the job asks for is not known here any more";

/// What bounds the time of a program that is ended, as it was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// When an order kills, by the clock of `api`.
    pub(crate) order: Option<Timestamp>,
    /// When the machine goes.
    pub(crate) notice: Option<Timestamp>,
}

/// An end under way, and by when: both moments are read while it lasts.
#[derive(Debug)]
pub(crate) struct Ending {
    /// SIGKILL is sent then.
    kill_at: watch::Sender<Instant>,
    /// The machine goes then.
    goes_at: watch::Sender<Option<Timestamp>>,
    told: Told,
}

impl Ending {
    /// Moves the moment of SIGKILL, sooner or later, where something else is told. True if it is.
    // It is not computed anew from a wall clock that somebody sets meanwhile: a step of a minute would be the end of who saves.
    fn hear(&mut self, told: Told, kill_at: Instant) -> bool {
        let is_new = self.told != told;
        if is_new {
            self.told = told;
            self.kill_at.send_replace(kill_at);
            self.goes_at.send_replace(told.notice);
        }
        is_new
    }
}

impl Machine {
    /// Ends everything, by order or after a notice.
    pub(crate) fn stop(&mut self, now: Timestamp, kill_at: Timestamp) {
        let left = self.before_it_goes(kill_at, now).duration_since(now);
        let kill_at_local = Instant::now() + Duration::try_from(left).unwrap_or(Duration::ZERO);
        let told = self.told(now);
        match &mut self.doing {
            Doing::Ending(ending) => {
                let stop = self.state.attempt.as_mut().and_then(|a| a.stop.as_mut());
                if let (true, Some(stop)) = (ending.hear(told, kill_at_local), stop) {
                    // For the next agent, which hears of a notice by itself.
                    stop.kill_at = kill_at;
                    self.is_dirty = true;
                }
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
        let ended = self.live.and_then(|live| self.papers(live.name).end(live.started.family.shim));
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
        let (at, kill_at) = watch::channel(kill_at);
        let (goes, goes_at) = watch::channel(self.told(Timestamp::now()).notice);
        // Before SIGTERM it is written down, so that the next agent does not send it twice, and the program can read why. But not where
        // the disk hangs: the program needs the time that it has.
        let before = [self.is_dirty.then(|| self.save()), self.telling.take()];
        // What is told now is heard with the next step.
        self.doing = Doing::Ending(Ending { kill_at: at, goes_at: goes, told: Told::default() });
        let (family, events) = (self.family(), self.events.clone());
        let programs = self.programs(family);
        let Some(attempt) = &self.state.attempt else {
            tokio::spawn(async move {
                procs::end(programs, is_told, kill_at, Some(procs::LEFTOVER_GRACE)).await;
                let _ = events.send(Event::Closed(None)).await;
            });
            return;
        };
        self.parts.exec.close(attempt.number, goes_at.borrow().is_some());
        if attempt.work.is_none() && attempt.step == Step::Run {
            self.say(UNKNOWN);
        }
        let flushes = self.parts.flushes.clone();
        let (collecting, number, is_ordered) = (self.collecting(attempt), attempt.number, attempt.stop.is_some());
        let outputs_max = self.parts.config.outputs_max;
        let closing = self.closing(attempt, family);
        let (begun, shim) = (self.live.map(|live| (live.name, live.started.family)), family.map(|family| family.shim));
        let (give_up, given_up) = watch::channel(None);
        self.gathering = Some(give_up);
        let (taken_over, orders) = (self.taken_over.clone(), self.parts.exec.activity.clone());
        // Where we end it, what saves may be a child of what the group's leader was: a program under a shell, that of a launcher, or
        // in a workspace what people began.
        let leftovers = (!is_ordered).then_some(procs::LEFTOVER_GRACE);
        tokio::spawn(async move {
            keep::a_moment(before.into_iter().flatten()).await;
            let strays = program::forbid(&closing.folder, begun).await;
            procs::end(programs.clone(), is_told, kill_at.clone(), leftovers).await;
            procs::end_strays(&programs, &strays, &kill_at).await;
            // What was said last is on its way to the files. On a full disk it takes longer, and the others are to know.
            program::is_written(&closing.folder, shim, &taken_over, Some(LAST_WORD / 2)).await;
            let ended = match ended {
                Some(ended) => ended,
                None => closing.last_word().await,
            };
            let left = || kill_at.borrow().saturating_duration_since(Instant::now());
            let when = outputs::when(is_ordered, goes_at.borrow().is_some(), left(), outputs_max);
            if let When::Before(limit) = when {
                collecting.before(limit, is_over(kill_at.clone(), goes_at.clone())).await;
            }
            let goes = *goes_at.borrow();
            let patience = logs::patience(ended.exit, goes.map(outputs::left_until), is_ordered.then(left));
            let folder = closing.folder.clone();
            let report = closing.report(ended);
            // Once the last worker's exit is known the machine may be gone within the second.
            let told = async {
                tokio::select! {
                    told = orders.with(patience, all_told(&flushes, (&folder, shim), &taken_over, patience)) => told,
                    () = almost_gone(goes_at), if goes.is_none() => false,
                }
            };
            let (report, is_told) = tokio::join!(report, told);
            let is_collecting = matches!(when, When::After(_)) && collecting.is_due();
            if let Some(report) = report {
                let closed = Closed { exit: Box::new(report), is_collecting, has_unsent: !is_told };
                let _ = events.send(Event::Closed(Some(closed))).await;
            }
            if let (When::After(limit), true) = (when, is_collecting) {
                collect(collecting, limit, number, (flushes, given_up), events).await;
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
            secrets: self.parts.secrets.clone(),
        }
    }

    /// Nothing lives any more.
    pub(crate) fn on_closed(&mut self, closed: Option<Closed>) {
        self.doing = Doing::Nothing;
        let number = self.state.attempt.as_ref().map(|attempt| attempt.number);
        self.last_shim = number.zip(self.live.take().map(|live| live.started.family.shim));
        self.is_dirty = true;
        self.closed_at = Some(Instant::now());
        let (Some(closed), Some(attempt)) = (closed, self.state.attempt.as_mut()) else {
            self.is_clean = true;
            return;
        };
        let folder = self.parts.layout.attempt(attempt.number);
        attempt.read_progress(&folder, true);
        self.complain();
        let Some(attempt) = self.state.attempt.as_mut() else { return };
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

/// Waits until a moment has passed, wherever it is moved meanwhile.
async fn passed(mut at: watch::Receiver<Instant>) {
    loop {
        let until = *at.borrow_and_update();
        tokio::select! {
            () = tokio::time::sleep_until(until.into()) => return,
            Ok(()) = at.changed() => {}
        }
    }
}

/// Waits until an end that was ordered is to be over, and tells why.
async fn is_over(kill_at: watch::Receiver<Instant>, mut goes_at: watch::Receiver<Option<Timestamp>>) -> &'static str {
    tokio::select! {
        () = passed(kill_at) => "",
        Ok(_) = goes_at.wait_for(Option::is_some) => ", and the machine goes",
    }
}

/// Waits until the machine is said to go, and then until there is just the time to tell an exit.
async fn almost_gone(mut goes_at: watch::Receiver<Option<Timestamp>>) {
    let Ok(goes_at) = goes_at.wait_for(Option::is_some).await.map(|at| *at) else {
        return std::future::pending().await;
    };
    let left = goes_at.map(outputs::left_until).unwrap_or_default();
    tokio::time::sleep(left.saturating_sub(logs::TELLING)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_of_sigkill_is_moved_by_what_is_told_and_by_no_clock() {
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let begun = Instant::now();
        let told = Told { order: at(30), notice: None };
        let second = Duration::from_secs(1);
        let mut ending =
            Ending { kill_at: watch::Sender::new(begun + 30 * second), goes_at: watch::Sender::new(None), told };
        let left = |ending: &Ending| ending.kill_at.borrow().duration_since(begun).as_secs();
        // A minute forward: by the wall clock the moment is over.
        assert!(!ending.hear(told, begun));
        assert_eq!(left(&ending), 30);
        for (order, notice, seconds) in [(at(10), None, 10), (at(90), None, 90), (at(90), at(40), 38)] {
            assert!(ending.hear(Told { order, notice }, begun + seconds * second));
            assert_eq!((left(&ending), *ending.goes_at.borrow()), (u64::from(seconds), notice));
        }
    }
}
