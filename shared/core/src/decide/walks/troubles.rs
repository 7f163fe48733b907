//! What befalls a job in the first part of its walk.

use super::super::{Command, apply_command};
use super::world::{Slice, State, WORKERS, World};
use crate::classify::Exit;
use crate::fixture::at;
use crate::ids::WorkerKey;
use crate::job::Via;
use crate::observation::{Notice, NoticeKind, WorkerReport, WorkerState};

const RESTART: Command = Command::Restart { new_slice: false, from_scratch: false };

impl World {
    /// One trouble, or one that passes.
    pub(super) fn befall(&mut self) {
        match self.draws.below(29) {
            0..=4 => self.is_announced(),
            5..=7 => self.is_moved(),
            8 => self.is_called_off(),
            9 | 10 => self.is_taken(),
            11 => self.falls_out(),
            12 => self.falls_ill(),
            13..=16 => self.program_ends(),
            17 => self.falls_silent(),
            18 => self.boots(),
            19 | 20 => self.refused = self.draws.one_of(&[0, 30, 100]),
            21 | 22 => self.is_commanded(),
            23 => self.is_deaf(),
            24 => self.unpermitted = self.draws.one_of(&[0, 50, 100]),
            25 => self.pace = self.draws.one_of(&[0, 0, 30]),
            26 | 27 => self.queue_turns(),
            _ => self.saving = self.draws.below(100),
        }
    }

    /// One of the slices that are there.
    fn any_slice(&mut self) -> Option<&mut Slice> {
        let mut slices: Vec<&mut Slice> = self.slices.iter_mut().filter(|slice| slice.is_there()).collect();
        let index = self.draws.below(slices.len().max(1) as i64) as usize;
        (index < slices.len()).then(|| slices.swap_remove(index))
    }

    fn any_worker(&mut self) -> WorkerKey {
        let slices = i64::from(self.job.spec.tpu.slices);
        WorkerKey { slice: self.draws.below(slices) as u32, worker: self.draws.below(i64::from(WORKERS)) as u32 }
    }

    fn all_workers(&self) -> Vec<WorkerKey> {
        let of = |slice| (0..WORKERS).map(move |worker| WorkerKey { slice, worker });
        (0..self.job.spec.tpu.slices).flat_map(of).collect()
    }

    /// Some machines, or all, are told of their end; what they were told before may be moved by it.
    fn is_announced(&mut self) {
        use NoticeKind::{Maintenance, Migration, Preemption};
        let now = self.now;
        let kind = self.draws.one_of(&[Maintenance, Maintenance, Migration, Preemption]);
        let after = match kind {
            Preemption => 30,
            Maintenance | Migration => self.draws.one_of(&[20, 55, 100, 600, 100_000]),
        };
        let percent = self.draws.one_of(&[100, 100, 40]);
        let told: Vec<WorkerKey> = self.all_workers().into_iter().filter(|_| self.draws.happens(percent)).collect();
        let Some(slice) = self.any_slice() else { return };
        let notice = Notice { kind, seen_at: at(now), deadline: at(now + after) };
        slice.notices.extend(told.iter().map(|key| (*key, notice.clone())));
        let text = format!("slice {}: {kind:?} in {after} s, told to {} workers", slice.number, told.len());
        self.happened(&text);
    }

    /// A window of maintenance is another one now.
    fn is_moved(&mut self) {
        let now = self.now;
        let after = self.draws.one_of(&[55, 600, 100_000, 100_000]);
        let Some(slice) = self.any_slice() else { return };
        for notice in slice.notices.values_mut().filter(|notice| notice.kind != NoticeKind::Preemption) {
            (notice.seen_at, notice.deadline) = (at(now), at(now + after));
        }
        let text = format!("slice {}: its window is moved, to {after} s from now", slice.number);
        self.happened(&text);
    }

    fn is_called_off(&mut self) {
        let Some(slice) = self.any_slice() else { return };
        slice.notices.clear();
        let text = format!("slice {}: its notices are called off", slice.number);
        self.happened(&text);
    }

    fn is_taken(&mut self) {
        let now = self.now;
        let Some(slice) = self.any_slice() else { return };
        if matches!(slice.state, State::Ready | State::Creating { .. }) {
            slice.state = State::Preempted { since: now };
            let text = format!("slice {} is preempted", slice.number);
            self.happened(&text);
        }
    }

    fn falls_out(&mut self) {
        let state = self.draws.one_of(&[State::Repairing, State::Stateless, State::Stopped, State::Failed]);
        let Some(slice) = self.any_slice().filter(|slice| slice.state == State::Ready) else { return };
        slice.state = state;
        let text = format!("slice {}: {state:?}", slice.number);
        self.happened(&text);
    }

    /// A queued resource waits longer, fails, or is suspended, before it is READY or after.
    fn queue_turns(&mut self) {
        let until = self.now + self.draws.one_of(&[400, 1200]);
        let state = self.draws.one_of(&[State::Queued { until }, State::Failed, State::Suspending, State::Suspended]);
        let Some(slice) = self.any_slice().filter(|slice| slice.via == Via::QueuedResource) else { return };
        let waits = matches!(slice.state, State::Queued { .. });
        let is_granted = matches!(slice.state, State::Creating { .. } | State::Ready | State::Suspending);
        if waits || (is_granted && !matches!(state, State::Queued { .. })) {
            slice.state = state;
            let text = format!("slice {}: {state:?}", slice.number);
            self.happened(&text);
        }
    }

    /// An outage of ours begins, or it ends; some are short.
    fn is_deaf(&mut self) {
        if self.deaf_since.is_some() {
            self.now += self.draws.one_of(&[0, 160]);
            self.hears_again();
        } else {
            self.deaf_since = Some(self.now);
            self.happened("no worker is heard");
        }
    }

    fn falls_ill(&mut self) {
        let Some(slice) = self.any_slice() else { return };
        slice.is_unhealthy = !slice.is_unhealthy;
        let text = format!("slice {} is unhealthy: {}", slice.number, slice.is_unhealthy);
        self.happened(&text);
    }

    /// The program ends by itself on some workers.
    fn program_ends(&mut self) {
        let (now, newest) = (self.now, self.job.last_attempt);
        let percent = self.draws.one_of(&[100, 100, 50, 25]);
        let exit = self.draws.one_of(&[0, 1, 1, 143]);
        let tail = match exit {
            0 => "",
            _ => self.draws.one_of(&[
                "",
                "ValueError: x\n",
                "all-reduce failed: gRPC status UNAVAILABLE: reset by peer\n",
            ]),
        };
        for key in self.all_workers() {
            let ends = self.draws.happens(percent);
            let ahead = self.ahead.get(&key).copied().unwrap_or_default();
            let Some(told) = self.reports.get_mut(&(newest, key)).filter(|told| ends && runs(told)) else { continue };
            told.end(key, at(now + ahead), Exit::Code(exit), tail);
            self.happened(&format!("attempt {newest} ends with {exit} on {}", key.label(true)));
        }
    }

    fn falls_silent(&mut self) {
        let key = self.any_worker();
        if !self.mute.remove(&key) {
            self.mute.insert(key);
        }
        let text = format!("mute are {:?}", self.mute);
        self.happened(&text);
    }

    fn boots(&mut self) {
        let (newest, key) = (self.job.last_attempt, self.any_worker());
        if let Some(told) = self.reports.get_mut(&(newest, key)).filter(|told| runs(told)) {
            (told.has_rebooted, told.state) = (true, WorkerState::Preparing);
            self.happened(&format!("{} boots", key.label(true)));
        }
    }

    fn is_commanded(&mut self) {
        let command = match self.draws.below(40) {
            0 => Command::Cancel,
            _ => self.draws.one_of(&[
                Command::Pause,
                Command::Unpause,
                Command::Unpause,
                RESTART,
                Command::Restart { new_slice: true, from_scratch: false },
                Command::Restart { new_slice: false, from_scratch: true },
                Command::Wake,
            ]),
        };
        if let Ok(Some(job)) = apply_command(&self.job, command, at(self.now)) {
            self.job = job;
            self.happened(&format!("a person: {command:?}"));
        }
    }
}

fn runs(told: &WorkerReport) -> bool {
    told.exit.is_none() && told.state == WorkerState::Running
}
