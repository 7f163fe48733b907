//! What one pass sees: slices, operations, worker reports, permits, liveness. Reads run side by side; a failed one is `Unknown`.

use futures::future::join_all;

use rekindle_core::ids::{InstallationId, WorkerKey};
use rekindle_core::job::{Create, Generation, Job, Phase};
use rekindle_core::limits::InUse;
use rekindle_core::names;
use rekindle_core::observation::{
    GenerationLook, Liveness, Look, Observation, OperationView, Permit, SliceState, SliceView, WorkerReport, ZoneReport,
};
use rekindle_core::placement;
use rekindle_core::shared::Shared;
use rekindle_ports::docs::Revision;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{At, CreatesDoc, LivenessDoc};
use rekindle_ports::tpu::SliceRef;

use crate::Engine;
use crate::permits::Permits;

/// An observation with what the commit needs of it.
pub(crate) struct Seen {
    pub(crate) observation: Observation,
    pub(crate) creates: Option<At<CreatesDoc>>,
    /// The half minute of the permits.
    pub(crate) half: i64,
    /// Whether places and permits were looked at.
    pub(crate) places: bool,
}

impl Seen {
    fn add(&mut self, (zones, permits): (Vec<ZoneReport>, Permits)) {
        self.observation.zones = zones;
        self.observation.permit = permits.permit;
        self.observation.used = permits.used;
        self.creates = permits.creates;
        self.half = permits.half;
        self.places = true;
    }
}

/// The name by which the API knows a generation.
pub(crate) fn slice_ref(g: &Generation) -> SliceRef {
    SliceRef { zone: g.placement.zone.clone(), name: g.name.clone(), via: g.via }
}

impl Engine {
    /// What a pass sees. Of a job that runs, places and permits are left out: see [`Engine::see_places`].
    pub(crate) async fn observe(&self, job: &Job) -> Seen {
        let looks = join_all(job.generations.iter().map(|g| self.look(job, g)));
        let places = async { if job.phase == Phase::Running { None } else { Some(self.places(job).await) } };
        let (generations, workers, places, liveness) =
            futures::join!(looks, self.reports(job), places, self.liveness());
        let (workers, through) = match workers {
            Some((reports, through)) => (Some(reports), through),
            None => (None, Revision::default()),
        };
        let read_through_us = through.0;
        let mut seen = Seen {
            observation: Observation {
                generations,
                workers,
                read_through_us,
                zones: Vec::new(),
                permit: Permit::Wait,
                used: InUse::default(),
                liveness,
            },
            creates: None,
            half: 0,
            places: false,
        };
        if let Some(places) = places {
            seen.add(places);
        }
        seen
    }

    /// Places and permits, for a job that runs and of which a look showed that something is to be done.
    pub(crate) async fn see_places(&self, job: &Job, seen: &mut Seen) {
        seen.add(self.places(job).await);
    }

    async fn places(&self, job: &Job) -> (Vec<ZoneReport>, Permits) {
        futures::join!(self.zones(job), self.permit(job))
    }

    async fn look(&self, job: &Job, g: &Generation) -> GenerationLook {
        let mut looked_at = self.ports.clock.now();
        let mut slice = self.slice(g).await;
        if let Look::Seen(view) = &slice {
            alert_of_another(&self.installation.id, job, g, view);
        }
        // What is being made, or is there, tells itself how it is; its operation tells why nothing is there. Each call costs its wait. After
        // five minutes it is asked all the same, should it have ended and the resource not.
        let young = looked_at < g.asked_at.unwrap_or(g.intended_at) + self.settings.poll_busy * 300;
        let telling = slice.seen().is_some_and(|view| {
            view.state == SliceState::Ready
                || (young && matches!(view.state, SliceState::Creating | SliceState::Queued))
        });
        let operation = if telling { Look::Unknown } else { self.operation(g).await };
        // A resource that was not there yet, and an operation that was done a moment later, would look like a loss. And what was
        // made is gone by no answer that is not given again.
        let was_made = g.create == Create::Done;
        if slice == Look::Absent && (was_made || matches!(&operation, Look::Seen(OperationView { done: true, .. }))) {
            looked_at = self.ports.clock.now();
            slice = self.slice(g).await;
        }
        GenerationLook {
            number: g.number,
            placement: g.placement.clone(),
            intended_at: g.intended_at,
            slice,
            looked_at,
            operation,
        }
    }

    async fn operation(&self, g: &Generation) -> Look<OperationView> {
        match &g.create {
            Create::Sent { operation } if !operation.is_empty() => match self.ports.tpu.operation(operation).await {
                Ok(Some(view)) => Look::Seen(view),
                Ok(None) => Look::Absent,
                Err(error) => {
                    tracing::warn!(generation = g.number, %error, "the operation of {} could not be read: {error}", g.name);
                    Look::Unknown
                }
            },
            Create::Sent { .. } | Create::Intended | Create::Failed { .. } | Create::Done => Look::Unknown,
        }
    }

    async fn slice(&self, g: &Generation) -> Look<SliceView> {
        match self.ports.tpu.get(&slice_ref(g)).await {
            Ok(Some(view)) => Look::Seen(view),
            Ok(None) => Look::Absent,
            Err(error) => {
                tracing::warn!(generation = g.number, %error, "the slice {} could not be read: {error}", g.name);
                Look::Unknown
            }
        }
    }

    async fn reports(&self, job: &Job) -> Option<(Vec<Shared<WorkerReport>>, Revision)> {
        let mut of = Vec::new();
        for a in &job.attempts {
            // An attempt whose generation is gone is fenced; its reports are history.
            let Some(g) = job.generation(a.generation) else { continue };
            for slice in 0..g.slices {
                of.extend((0..g.workers).map(|worker| (a.number, WorkerKey { slice, worker })));
            }
        }
        if of.is_empty() {
            return Some((Vec::new(), Revision::default()));
        }
        match self.ports.store.workers(&job.id, &of).await {
            Ok((reports, through)) => Some((reports.into_iter().map(heard).collect(), through)),
            Err(error) => {
                tracing::warn!(job = %job.id, %error, "worker reports could not be read: {error}");
                None
            }
        }
    }

    async fn zones(&self, job: &Job) -> Vec<ZoneReport> {
        let mut places: Vec<_> =
            placement::candidates(&job.spec, &self.deployment).into_iter().map(|c| c.placement).collect();
        // A place that several entries allow comes once for each.
        places.dedup();
        // Advisory: without them the job finds out by itself.
        self.ports.store.zones(&places).await.unwrap_or_default()
    }

    async fn liveness(&self) -> Liveness {
        match self.ports.store.read_timed::<LivenessDoc>(&Kind::Liveness).await {
            Ok((Some(at), now)) => {
                at.value.tell_late_tick(now);
                stretch(&at.value)
            }
            Ok((None, _)) | Err(_) => Liveness::default(),
        }
    }
}

/// Whether what was seen carries all labels of a generation.
pub(crate) fn is_ours(me: &InstallationId, job: &Job, g: &Generation, view: &SliceView) -> bool {
    names::are_labels_of(&view.labels, me, &job.id, g.number, &job.spec_hash)
}

/// How what was made for a job just now differs from what it asked for; of what is somebody else's, nothing.
pub(crate) fn made_else(me: &InstallationId, job: &Job, g: &Generation, view: &SliceView) -> Option<String> {
    let is_new = g.ready_at.is_none() && g.delete.is_none() && !matches!(g.create, Create::Failed { .. });
    (is_new && is_ours(me, job, g, view))
        .then(|| view.difference(&g.placement, job.spec.tpu.topology.as_deref()))
        .flatten()
}

/// Somebody pays for what nobody asked for until it is deleted, and a person should know.
fn alert_of_another(me: &InstallationId, job: &Job, g: &Generation, view: &SliceView) {
    if let Some(difference) = made_else(me, job, g, view) {
        let (name, zone) = (&g.name, &g.placement.zone);
        tracing::error!(
            generation = g.number,
            name,
            zone,
            "the provider made something else, which is deleted: {name} in {zone}: {difference}"
        );
    }
}

/// A report as heard when its document was committed.
fn heard(At { value: mut report, revision }: At<Shared<WorkerReport>>) -> Shared<WorkerReport> {
    let at = revision.time();
    if report.heard_at != at {
        report.heard_at = at;
    }
    if !report.is_within_reason(at) {
        report.within_reason(at);
    }
    report
}

/// The stretch over which silence counts: both ticks and calls to `api` went on all through it.
pub(crate) fn stretch(doc: &LivenessDoc) -> Liveness {
    Liveness {
        since: doc.tick_since.zip(doc.api_since).map(|(a, b)| a.max(b)),
        through: doc.tick_at.zip(doc.api_at).map(|(a, b)| a.min(b)),
    }
}
