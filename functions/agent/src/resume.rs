//! The first steps of an agent: it goes on where the last one stopped.
//!
//! What that one knew stands in the state, and what was begun in the papers of each attempt. Where the state could not be written
//! (a full disk), the papers of a later attempt know more.

use std::time::Instant;

use jiff::Timestamp;

use rekindle_core::classify::Exit;

use crate::files;
use crate::machine::{Machine, Name};
use crate::program::{self, Standing};
use crate::shim::{Ended, Papers, Spec};
use crate::state::{Attempt, Step};

impl Machine {
    /// Goes on where the last agent stopped.
    pub(crate) fn resume(&mut self) {
        let is_overtaken = self.overtake();
        let is_same_boot = self.state.boot_id == self.parts.config.boot_id;
        self.state.boot_id.clone_from(&self.parts.config.boot_id);
        if let Some(number) = self.state.attempt.as_ref().map(|a| a.number) {
            // A buffer in memory is empty after a reboot.
            files::make_folder(&self.parts.layout.attempt(number));
            files::make_folder(&self.parts.layout.tpu_logs(number));
        }
        self.resume_collecting();
        self.resume_sending(is_same_boot);
        self.resume_closing();
        if let Some(attempt) = self.state.attempt.as_ref().filter(|_| is_same_boot) {
            self.parts.exec.tell_lost(attempt.number, self.state.last_exec);
        }
        let Some(number) = self.state.attempt.as_ref().filter(|a| a.exit.is_none()).map(|a| a.number) else { return };
        // No exit was told, so that the last agent's word that nothing may be started is not needed. Of an attempt that the state
        // does not know one may have been.
        if !is_overtaken {
            program::allow(&self.parts.layout.attempt(number));
        }
        let begun = self.begun();
        let Some(attempt) = self.state.attempt.as_mut() else { return };
        let Some(name) = begun else {
            attempt.step = Step::Fresh;
            return;
        };
        attempt.step = if name == Name::Run { Step::Run } else { Step::Setup };
        attempt.is_cleaned = attempt.work.as_ref().is_some_and(|work| work.clean);
        if !is_same_boot {
            // What it said last, nobody has sent.
            if !self.state.has_unsent {
                self.say_rebooted();
            }
            self.lose(name);
            return;
        }
        let papers = self.papers(name);
        // The last agent did not come to the start. A shim that lives would have put its own claim there by now (`put_right`).
        let is_copied = papers.is_of_another() && papers.begun().is_none();
        if is_copied || program::standing(&papers) == Standing::NotStarted {
            match self.state.attempt.as_mut() {
                // What has run is not ordered to be begun a second time: nobody but this would end it.
                Some(attempt) if name == Name::Run && attempt.started_at.is_some() => self.await_unkept(),
                Some(attempt) => attempt.step = if name == Name::Run { Step::Ready } else { Step::Prepared },
                None => {}
            }
            return;
        }
        tracing::info!(program = name.as_str(), "adopting what the last agent started");
        self.await_start(name, None);
    }

    /// Goes on with a later attempt than the state knows, where the last agent began a program of one: then nothing of the
    /// earlier one lives, and to end that would be the end of this one. True if there is one.
    fn overtake(&mut self) -> bool {
        let known = self.state.attempt.as_ref().map_or(0, |a| a.number);
        let layout = &self.parts.layout;
        let begun = |number: u32| {
            let spec = |name: Name| {
                let spec = Papers::new(&layout.attempt(number), name.as_str()).spec();
                // What was copied from the folder of another attempt says nothing.
                let is_of_it = |spec: &Spec| spec.stdout.parent() == Some(layout.attempt(number).as_path());
                Some((number, name, files::read_json::<Spec>(&spec).filter(is_of_it)?))
            };
            spec(Name::Run).or_else(|| spec(Name::Setup))
        };
        let mut later = layout.attempts().into_iter().rev().take_while(|number| *number > known);
        let Some((number, name, spec)) = later.find_map(begun) else { return false };
        tracing::warn!(known, attempt = number, "the state is older than what was begun");
        self.state.boot_id = spec.boot_id;
        let step = if name == Name::Run { Step::Run } else { Step::Setup };
        // What to run is asked for again, and an end waits for the answer: what the program was to leave stands there.
        self.state.attempt = Some(Attempt { number, step, ..Attempt::default() });
        self.is_dirty = true;
        true
    }

    /// The program that the last agent began, whether or not it could write that down: on a full disk the papers of the
    /// buffer know more.
    fn begun(&self) -> Option<Name> {
        let is_begun = |name| {
            let papers = self.papers(name);
            // A claim of another attempt's alone is what `setup` copied.
            program::standing(&papers) != Standing::NotStarted && (!papers.is_of_another() || papers.begun().is_some())
        };
        let step = self.state.attempt.as_ref()?.step;
        if step == Step::Run || is_begun(Name::Run) {
            return Some(Name::Run);
        }
        match step {
            Step::Setup => Some(Name::Setup),
            Step::Fresh | Step::Prepared if is_begun(Name::Setup) => Some(Name::Setup),
            Step::Fresh | Step::Prepared | Step::Ready | Step::Run => None,
        }
    }

    /// What was begun is gone with the boot in which it was.
    fn lose(&mut self, name: Name) {
        let papers = self.papers(name);
        let Some(attempt) = self.state.attempt.as_mut() else { return };
        if name == Name::Setup {
            // `setup` may be run again; a program may not: the others of its slice have lost it.
            attempt.step = Step::Fresh;
            papers.remove();
            return;
        }
        tracing::warn!("the machine was started anew; the program is lost");
        attempt.rebooted = true;
        self.close(Some(Ended { exit: Exit::Silent, at: Timestamp::now() }), Instant::now());
    }
}
