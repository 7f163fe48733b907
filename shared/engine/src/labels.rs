//! Tags and notes: what people write on a job, at any time, also after its end. They decide nothing.

use std::sync::Arc;

use rekindle_core::history::HistoryEntry;
use rekindle_core::ids::JobId;
use rekindle_core::job::Job;
use rekindle_core::spec::TAGS_MAX;
use rekindle_ports::store::StoreError;

use crate::Engine;

/// A change of a job's tags and notes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// Tags to add.
    pub add: Vec<String>,
    /// Tags to take away.
    pub remove: Vec<String>,
    /// New notes; empty: none.
    pub notes: Option<String>,
}

/// What became of a change of labels.
#[derive(Debug, Clone)]
pub enum Labelled {
    /// The job has them.
    Done(Arc<Job>),
    /// There is no such job.
    NoSuchJob,
    /// It would have more than [`TAGS_MAX`] tags: so many.
    TooMany(usize),
}

/// A change that loses a race is tried again so often; passes of a busy job commit a few times a second.
const RACES_MAX: u32 = 20;

impl Engine {
    /// Changes tags and notes. The hash of the spec stays, so that a submit of the same spec is still the same job.
    pub async fn label(&self, id: &JobId, labels: &Labels, actor: &str) -> Result<Labelled, StoreError> {
        let mut lost = None;
        for _ in 0..RACES_MAX {
            let Some(at) = self.ports.store.job(id).await? else { return Ok(Labelled::NoSuchJob) };
            let Some((mut job, message)) = apply(&at.value, labels) else { return Ok(Labelled::Done(at.value)) };
            // Who takes some away is not held up by those that are left.
            let tags = job.spec.tags.len();
            if tags > TAGS_MAX && tags > at.value.spec.tags.len() {
                return Ok(Labelled::TooMany(tags));
            }
            let now = self.ports.clock.now();
            job.revision += 1;
            job.changed_at = now;
            let job = Arc::new(job);
            let entry = HistoryEntry {
                revision: job.revision,
                at: now,
                cause: "label".into(),
                actor: actor.to_owned(),
                from: job.phase,
                to: job.phase,
                reason: job.reason,
                message: format!("{message} by {actor}"),
                notes: Vec::new(),
                effects: Vec::new(),
                attempt: job.last_attempt,
                generation: job.last_generation,
                ended: None,
            };
            match self.ports.store.commit_job(at.revision, &job, Some(&entry), Vec::new()).await {
                Ok(_) => return Ok(Labelled::Done(job)),
                Err(error @ StoreError::Conflict(_)) => lost = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(lost.unwrap_or_else(|| StoreError::Unavailable("lost every race".into())))
    }
}

/// The job with its new labels, and the change in words; `None`: it has them already.
fn apply(job: &Job, labels: &Labels) -> Option<(Job, String)> {
    let mut after = job.clone();
    after.spec.tags.retain(|tag| !labels.remove.contains(tag));
    for tag in &labels.add {
        if !after.spec.tags.contains(tag) {
            after.spec.tags.push(tag.clone());
        }
    }
    if let Some(notes) = &labels.notes {
        after.spec.notes = Some(notes.clone()).filter(|notes| !notes.is_empty());
    }
    let mut said = Vec::new();
    let only_in = |one: &Job, other: &Job| -> Vec<String> {
        one.spec.tags.iter().filter(|tag| !other.spec.tags.contains(tag)).cloned().collect()
    };
    let (added, removed) = (only_in(&after, job), only_in(job, &after));
    if !added.is_empty() {
        said.push(format!("tagged {}", added.join(", ")));
    }
    if !removed.is_empty() {
        said.push(format!("took away the {} {}", if removed.len() == 1 { "tag" } else { "tags" }, removed.join(", ")));
    }
    if after.spec.notes != job.spec.notes {
        said.push("notes changed".to_owned());
    }
    (!said.is_empty()).then(|| (after, said.join("; ")))
}
