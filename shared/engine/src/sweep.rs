//! The orphan sweep, and the fleet: every resource in every zone, and whose it is.
//!
//! A resource is an orphan only if it carries this installation's id, is older than the grace period, and no live generation of a job owns it,
//! looked up again just before the delete. Anything else (another id, none, a name that does not read back) is FOREIGN and never touched.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use rekindle_core::idle::{self, Idle};
use rekindle_core::ids::JobId;
use rekindle_core::job::{Job, Via};
use rekindle_core::names;
use rekindle_core::shared::Shared;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{Installation, LivenessDoc, StoreError};
use rekindle_ports::tpu::{Listed, Listing, TpuError};

use crate::tick::Owners;
use crate::told::named;
use crate::{Engine, PassError};

/// Whose a resource is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "owner", rename_all = "snake_case")]
pub enum Owner {
    /// A live generation of this job.
    Job {
        /// The job.
        job: JobId,
        /// The generation.
        generation: u32,
    },
    /// Ours by installation id, but no live generation owns it.
    Orphan {
        /// The job it was made for.
        job: JobId,
        /// The generation it was made as.
        generation: u32,
    },
    /// Not ours.
    Foreign,
}

impl Owner {
    /// The generation that owns it.
    fn generation(&self) -> Option<u32> {
        match self {
            Self::Job { generation, .. } => Some(*generation),
            Self::Orphan { .. } | Self::Foreign => None,
        }
    }
}

/// A resource of the fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetEntry {
    /// As the API lists it.
    pub resource: Shared<Listed>,
    /// Whose it is.
    pub owner: Owner,
    /// Who pays for the job that owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_owner: Option<String>,
    /// That it costs money while nobody's code runs on it; known of nodes of our jobs alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SweepReport {
    /// Resources of this installation that were listed.
    pub ours: usize,
    /// Orphans deleted.
    pub deleted: Vec<String>,
    /// Orphans that are too young to be judged.
    pub young: usize,
    /// Orphans left alone because the store may not be the one that they were made from: suspiciously many at once, or such as it knows
    /// no intent of and cannot have seen the making of.
    pub held: usize,
    /// Zones that could not be read.
    pub unreachable: Vec<String>,
}

/// More orphans than this, and than a fifth of all of ours, in one sweep is a broken store rather than a broken fleet.
const ORPHANS_MAX: usize = 3;

impl Engine {
    /// Every resource in every zone, with its owner, and whether it is idle.
    pub async fn fleet(&self) -> Result<(Vec<FleetEntry>, Vec<String>), PassError> {
        let listing = self.list().await?;
        let mut entries = Vec::new();
        for resource in listing.resources {
            let (owner, job) = self.owner_and_job(&resource).await?;
            let does = job
                .as_ref()
                .zip(owner.generation())
                .and_then(|(job, number)| job.generation(number).map(|g| idle::of(job, g)));
            let idle = self.idle(&resource, &owner, does).await?;
            let job_owner = job.map(|job| job.spec.owner.clone());
            entries.push(FleetEntry { resource, owner, job_owner, idle });
        }
        Ok((entries, listing.unreachable))
    }

    pub(crate) async fn list(&self) -> Result<Listing, PassError> {
        self.ports.tpu.list().await.map_err(|e: TpuError| PassError::Transient(e.to_string()))
    }

    fn is_labelled_ours(&self, resource: &Listed) -> bool {
        resource.view.labels.installation == self.installation.id.as_str()
    }

    pub(crate) async fn owner_of(&self, resource: &Listed) -> Result<Owner, StoreError> {
        Ok(self.owner_and_job(resource).await?.0)
    }

    /// Whose it is, with the job as it was read, if it is one's.
    pub(crate) async fn owner_and_job(&self, resource: &Listed) -> Result<(Owner, Option<Arc<Job>>), StoreError> {
        if !self.is_labelled_ours(resource) {
            return Ok((Owner::Foreign, None));
        }
        // The node of a queued resource carries the queued resource's name, with the slice's number behind it.
        let name = resource.owned_by.as_deref().unwrap_or(&resource.slice.name);
        let Some(parsed) = names::parse(name).filter(|p| p.installation == self.installation.id) else {
            return Ok((Owner::Foreign, None));
        };
        let (job, generation) = (parsed.job, parsed.generation);
        let found = match self.ports.store.job(&job).await {
            Ok(found) => found.map(|at| at.value),
            // One job that this version cannot read must not keep the orphans of all others, nor lose its slice: what bears its name is taken for
            // its own. The store tells of the document whenever a tick reads the jobs.
            Err(StoreError::Unreadable { .. }) => return Ok((Owner::Job { job, generation }, None)),
            Err(error) => return Err(error),
        };
        let owner = found.filter(|found| {
            found.generations.iter().any(|g| g.number == generation && g.placement.zone == resource.slice.zone)
        });
        Ok(match owner {
            Some(found) => (Owner::Job { job, generation }, Some(found)),
            None => (Owner::Orphan { job, generation }, None),
        })
    }

    /// Deletes orphans. Refuses to run on a store that is not the one this installation was born in.
    pub(crate) async fn sweep(
        &self,
        now: Timestamp,
        listing: &Listing,
        owners: &Owners,
    ) -> Result<SweepReport, PassError> {
        let stored = self.ports.store.read::<Installation>(&Kind::Installation).await?;
        let Some(stored) = stored.map(|at| at.value).filter(|i| i.id == self.installation.id) else {
            return Err(PassError::Transient("the store has no installation document of this id; no sweep".into()));
        };
        let ours: Vec<&Listed> = listing.resources.iter().map(|r| &**r).filter(|r| self.is_labelled_ours(r)).collect();
        let mut report =
            SweepReport { ours: ours.len(), unreachable: listing.unreachable.clone(), ..SweepReport::default() };
        // Without an age nothing can be said to be older than the grace period, nor than the store.
        if ours.iter().filter_map(|r| r.created_at).any(|at| at < stored.born_at) {
            if self.is_held_to_be_told("older than the store", now).await {
                tracing::error!("resources of this installation are older than its store; no sweep, look at the store");
            }
            report.held = ours.len();
            return Ok(report);
        }
        let mut orphans = self.orphans(&ours, now, owners, &mut report).await?;
        if orphans.len() > ORPHANS_MAX.max(ours.len() / 5) {
            if self.is_held_to_be_told(&named("too many", &orphans), now).await {
                let count = orphans.len();
                tracing::error!(orphans = count, ours = report.ours, "too many orphans at once; none is deleted");
            }
            report.held = orphans.len();
            return Ok(report);
        }
        let forgotten = self.forgotten(&mut orphans).await?;
        report.held += forgotten.len();
        let is_to_be_told =
            !forgotten.is_empty() && self.is_held_to_be_told(&named("forgotten", &forgotten), now).await;
        for orphan in forgotten.iter().filter(|_| is_to_be_told) {
            let (name, zone) = (&orphan.slice.name, &orphan.slice.zone);
            tracing::error!(
                name,
                zone,
                "an orphan is left alone: the store knows no intent of it, look at the store: {name} in {zone}"
            );
        }
        let mut refused = Vec::new();
        for orphan in orphans {
            // The owner is read again: a pass may have claimed it since.
            if !matches!(self.owner_of(orphan).await?, Owner::Orphan { .. }) {
                continue;
            }
            match self.ports.tpu.delete(&orphan.slice).await {
                Ok(_) | Err(TpuError::NotFound) => {
                    tracing::error!(
                        name = orphan.slice.name,
                        zone = orphan.slice.zone,
                        "an orphan was deleted: {} in {}",
                        orphan.slice.name,
                        orphan.slice.zone
                    );
                    report.deleted.push(orphan.slice.name.clone());
                }
                Err(error @ TpuError::Denied(_)) => refused.push((orphan, error)),
                Err(error) => {
                    tracing::warn!(name = orphan.slice.name, %error, "an orphan could not be deleted; the next tick tries again");
                }
            }
        }
        self.tell_refused(&refused, now).await;
        Ok(report)
    }

    /// Takes out, and answers, those of which the store has no intent though it ought to have: every create is committed before it is sent, so
    /// either somebody else made it, or the store has lost what it knew. Somebody else's making fell into the stretch in which this store was
    /// in charge; what was made before that began, a store that was brought back from a copy cannot know.
    async fn forgotten<'a>(&self, orphans: &mut Vec<&'a Listed>) -> Result<Vec<&'a Listed>, StoreError> {
        let mut forgotten = Vec::new();
        if orphans.is_empty() {
            return Ok(forgotten);
        }
        let liveness = self.ports.store.read::<LivenessDoc>(&Kind::Liveness).await?;
        let watched_since = liveness.and_then(|at| at.value.watched_since);
        for orphan in std::mem::take(orphans) {
            let was_watched = orphan.created_at.zip(watched_since).is_some_and(|(made, since)| made >= since);
            let is_explained = match self.owner_of(orphan).await? {
                Owner::Orphan { job, generation } => match self.ports.store.job(&job).await? {
                    Some(at) => was_watched || generation <= at.value.last_generation,
                    // Jobs are never deleted: one of which there is a history alone was lost.
                    None => was_watched && self.ports.store.history(&job, 0, 1).await?.is_empty(),
                },
                Owner::Job { .. } | Owner::Foreign => true,
            };
            let place = if is_explained { &mut *orphans } else { &mut forgotten };
            place.push(orphan);
        }
        Ok(forgotten)
    }

    async fn orphans<'a>(
        &self,
        ours: &[&'a Listed],
        now: Timestamp,
        owners: &Owners,
        report: &mut SweepReport,
    ) -> Result<Vec<&'a Listed>, PassError> {
        let mut orphans = Vec::new();
        for resource in ours {
            // The queued resource is deleted, and its nodes with it; unless the list shows that it is not there any more.
            if let Some(queued) = &resource.owned_by {
                let listed = |r: &&Listed| {
                    r.slice.via == Via::QueuedResource && r.slice.name == *queued && r.slice.zone == resource.slice.zone
                };
                if ours.iter().any(listed) || report.unreachable.contains(&resource.slice.zone) {
                    continue;
                }
            }
            // The rest was asked for since the tick began, or is nobody's.
            if owners.get(&resource.slice.zone).is_some_and(|zone| zone.contains_key(&resource.slice.name)) {
                continue;
            }
            if !matches!(self.owner_of(resource).await?, Owner::Orphan { .. }) {
                continue;
            }
            if resource.created_at.is_none_or(|at| now < at + self.settings.orphan_grace) {
                report.young += 1;
                continue;
            }
            let dying = resource.view.state == rekindle_core::observation::SliceState::Deleting;
            if !dying {
                orphans.push(*resource);
            }
        }
        Ok(orphans)
    }
}
