//! Silence ends an attempt within minutes only with a second witness: a read that showed its slice unwell, or absent. One that shows no state
//! is none.

use std::collections::BTreeMap;

use rekindle_core::job::Job;
use rekindle_core::observation::{SliceState, SliceView};
use rekindle_core::reason::Reason;
use rekindle_ports::tpu::SliceRef;

use super::Broken;
use crate::roll::{MIN, SEC};

/// From a read to the commit of what followed from it: a handler's time, and that of its last call.
const FRESH: i64 = MIN + 10 * SEC;

/// When each slice was last shown unwell, or absent.
#[derive(Default)]
pub(super) struct Witnesses {
    last: BTreeMap<SliceRef, i64>,
}

impl Witnesses {
    /// A read was answered.
    pub(super) fn read(&mut self, slice: &SliceRef, view: Option<&SliceView>, now: i64) {
        let is_witness = view.is_none_or(|view| !view.is_well() && view.state != SliceState::Unspecified);
        if is_witness {
            self.last.insert(slice.clone(), now);
        }
    }

    /// From one commit of a job to the next.
    pub(super) fn step(&self, before: &Job, after: &Job, now: i64) -> Broken {
        let is_silent = |job: &Job| job.next.as_ref().is_some_and(|next| next.why == Reason::Silent);
        if !is_silent(after) || is_silent(before) {
            return None;
        }
        let end = after.last_end.as_ref()?;
        let g = before.generation(end.generation)?;
        let slice = SliceRef { zone: g.placement.zone.clone(), name: g.name.clone(), via: g.via };
        let is_fresh = self.last.get(&slice).is_some_and(|at| *at >= now - FRESH);
        (!is_fresh).then(|| {
            let text =
                format!("attempt {} of {} is ended by silence, and no read was a witness", end.attempt, after.id);
            ("witness", text)
        })
    }
}
