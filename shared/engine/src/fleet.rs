//! The fleet as the last tick saw it: what people are shown by a service that may not ask the TPU API itself.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use rekindle_core::idle::{self, Idle, Use};
use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::Via;
use rekindle_core::observation::{SliceState, WorkerReport};
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::StoreError;
use rekindle_ports::tpu::{Listed, Listing};

use crate::Engine;
use crate::sweep::{FleetEntry, Owner};
use crate::tick::Owners;

/// Resources that are kept; a document holds 1 MiB, and one of them takes some 500 bytes and the name of who pays.
const KEPT: usize = 1100;

/// What a tick saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetSeen {
    /// When the list was read.
    pub listed_at: Timestamp,
    /// Every resource in every zone, with its owner.
    pub entries: Vec<FleetEntry>,
    /// Zones that could not be read.
    pub unreachable: Vec<String>,
    /// Resources beyond those that are kept.
    #[serde(default)]
    pub omitted: usize,
}

impl Engine {
    /// What the last tick saw; `None`: no tick has read the list yet.
    pub async fn fleet_seen(&self) -> Result<Option<FleetSeen>, StoreError> {
        Ok(self.ports.store.read::<FleetSeen>(&Kind::Fleet).await?.map(|at| at.value))
    }

    /// When the list was read last, if it showed no resource in any zone. Of an error nothing is known.
    pub(crate) async fn empty_at(&self) -> Option<Timestamp> {
        let seen = self.fleet_seen().await.ok().flatten()?;
        (seen.entries.is_empty() && seen.unreachable.is_empty()).then_some(seen.listed_at)
    }

    /// Stores what this tick saw. A fleet without any resource is stored again only now and then: an idle month should cost next to nothing.
    /// Of two ticks at once the last word holds: both saw the same minute.
    pub(crate) async fn note_fleet(
        &self,
        now: Timestamp,
        listing: &Listing,
        owners: &Owners,
    ) -> Result<(), StoreError> {
        let mut entries = Vec::with_capacity(listing.resources.len().min(KEPT));
        for resource in listing.resources.iter().take(KEPT) {
            let (owner, job_owner, does) = self.owner_seen(resource, owners).await?;
            let idle = self.idle(resource, &owner, does).await?;
            entries.push(FleetEntry { resource: resource.clone(), owner, job_owner, idle });
        }
        let omitted = listing.resources.len().saturating_sub(KEPT);
        let seen = FleetSeen { listed_at: now, entries, unreachable: listing.unreachable.clone(), omitted };
        if seen.entries.is_empty()
            && let Some(last) = self.fleet_seen().await?
            && last.entries.is_empty()
            && last.unreachable == seen.unreachable
            && now < last.listed_at + self.settings.idle_look
        {
            return Ok(());
        }
        self.ports.store.write_shared(&Kind::Fleet, Arc::new(seen), Precondition::None).await.map(drop)
    }

    /// By the jobs as this tick read them, and by one read of its own for what they do not explain. With who pays.
    async fn owner_seen(
        &self,
        resource: &Listed,
        owners: &Owners,
    ) -> Result<(Owner, Option<String>, Option<Use>), StoreError> {
        let name = resource.owned_by.as_deref().unwrap_or(&resource.slice.name);
        if let Some(owned) = owners.get(&resource.slice.zone).and_then(|zone| zone.get(name)) {
            let owner = Owner::Job { job: owned.job.clone(), generation: owned.generation };
            return Ok((owner, Some(owned.pays.clone()), Some(owned.does)));
        }
        let (owner, job) = self.owner_and_job(resource).await?;
        Ok((owner, job.map(|job| job.spec.owner.clone()), None))
    }

    /// Whether a resource is idle, by what the TPUs of its generation do. A workspace's workers are asked.
    pub(crate) async fn idle(
        &self,
        resource: &Listed,
        owner: &Owner,
        does: Option<Use>,
    ) -> Result<Option<Idle>, StoreError> {
        if resource.slice.via == Via::QueuedResource || !is_paid_for(&resource.view.state) {
            return Ok(None);
        }
        match (does, owner) {
            (Some(Use::Idle(idle)), _) => Ok(Some(idle)),
            (Some(Use::Workspace(attempt)), Owner::Job { job, .. }) => self.unused(job, attempt).await,
            (Some(Use::Workspace(_) | Use::Busy | Use::Free) | None, _) => Ok(None),
        }
    }

    async fn unused(&self, job: &JobId, attempt: u32) -> Result<Option<Idle>, StoreError> {
        let Some(job) = self.ports.store.job(job).await?.map(|at| at.value) else { return Ok(None) };
        let of = job.attempts.iter().find(|a| a.number == attempt).and_then(|a| job.generation(a.generation));
        let Some(g) = of else { return Ok(None) };
        let keys = (0..g.slices).flat_map(|slice| (0..g.workers).map(move |worker| WorkerKey { slice, worker }));
        let keys: Vec<(u32, WorkerKey)> = keys.map(|key| (attempt, key)).collect();
        let (reports, _) = self.ports.store.workers(&job.id, &keys).await?;
        let reports: Vec<&WorkerReport> = reports.iter().map(|at| &*at.value).collect();
        Ok(idle::unused(&job, attempt, &reports))
    }
}

/// Whether the provider is paid for a node in this state.
fn is_paid_for(state: &SliceState) -> bool {
    match state {
        SliceState::Ready
        | SliceState::Deleting
        | SliceState::InTransition(_)
        | SliceState::Unspecified
        | SliceState::Unrecognized(_) => true,
        SliceState::Queued
        | SliceState::Creating
        | SliceState::Preempted
        | SliceState::Terminated
        | SliceState::Stopped
        | SliceState::Failed => false,
    }
}
