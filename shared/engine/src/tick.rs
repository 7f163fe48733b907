//! The tick, each minute: liveness, totals and grants, due jobs, changed slices, orphan sweep. Every part goes on when another fails.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;

use rekindle_core::idle;
use rekindle_core::ids::JobId;
use rekindle_core::job::Generation;
use rekindle_core::observation::{SliceState, SliceView};
use rekindle_core::reason::Reason;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{At, CreatesDoc, LivenessDoc, StoreError, Uses, begin_of, half_of};
use rekindle_ports::tpu::Listing;
use rekindle_ports::world::Hint;

use crate::permits::count;
use crate::sweep::SweepReport;
use crate::{Engine, PassError};

/// What one tick did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TickReport {
    /// Jobs whose wake-up was due, hinted.
    pub due: usize,
    /// Jobs hinted because the list shows a slice of theirs otherwise than they know it.
    pub changed: usize,
    /// Permits granted to waiting jobs.
    pub granted: usize,
    /// Chips of all live generations.
    pub chips: u64,
    /// The sweep; `None`: it did not run, or there is nothing that could have an orphan and the last look was not long ago.
    pub sweep: Option<SweepReport>,
    /// What failed, in words.
    pub troubles: Vec<String>,
}

/// Jobs of one page.
// Bounds the memory of a tick: a job document is some kB.
const PAGE: usize = 200;

/// So often a tick tries to store what it has counted while creates take their permits.
const RACES_MAX: u32 = 20;

struct Waiter {
    id: JobId,
    priority: u8,
    since: Timestamp,
}

#[derive(Default)]
struct Survey {
    /// Only what is in use.
    used: Uses,
    waiters: Vec<Waiter>,
    owners: Owners,
    /// Jobs that are not over.
    live: usize,
}

impl Survey {
    /// Makes what was counted the totals of the document, which was `then` before the count began. What creates have added meanwhile is added,
    /// though a part of it may have been counted: of one minute a total too large is better than one too small.
    fn fold(&self, then: &CreatesDoc, doc: &mut CreatesDoc) {
        // Another tick has counted meanwhile.
        if doc.survey != then.survey {
            return;
        }
        doc.uses.clone_from(&self.used);
        doc.uses.add_growth(&then.added, &doc.added);
        doc.added = Uses::default();
        doc.survey += 1;
    }
}

/// What the part of a tick that grants permits answers.
#[derive(Default)]
struct Granted {
    count: usize,
    chips: u64,
    owners: Owners,
    /// Whether any job is not over.
    has_live: bool,
}

/// By zone and name, every generation of a job that is not over, as its job knew it when the tick began.
// Each part of a tick asks it for every resource of the list; nothing rests on its order.
pub(crate) type Owners = BTreeMap<String, HashMap<String, Owned>>;

/// Whose a generation is.
pub(crate) struct Owned {
    pub(crate) job: JobId,
    pub(crate) generation: u32,
    /// Who pays for the job.
    pub(crate) pays: String,
    /// What its TPUs do.
    pub(crate) does: idle::Use,
    /// How its job knows it; `None` once a list has shown it so, and of what passes look at in any case.
    known: Option<Known>,
}

/// How a job knows a slice of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Being made, and seen.
    Making,
    /// READY once, not known to be lost.
    Well,
    /// Being deleted.
    Going,
}

impl Known {
    fn of(g: &Generation) -> Option<Self> {
        match (&g.delete, &g.lost, g.ready_at) {
            (Some(delete), _, _) => delete.sent_at.map(|_| Self::Going),
            (None, Some(_), _) => None,
            (None, None, Some(_)) => Some(Self::Well),
            (None, None, None) => g.seen_at.map(|_| Self::Making),
        }
    }

    fn is_shown_by(self, view: &SliceView) -> bool {
        match self {
            Self::Making => matches!(view.state, SliceState::Creating | SliceState::Queued),
            Self::Well => view.is_well(),
            Self::Going => view.state == SliceState::Deleting,
        }
    }
}

impl Engine {
    /// One tick. Errors of parts are in the report; it fails only when nothing could be done.
    pub async fn tick(&self, now: Timestamp) -> Result<TickReport, PassError> {
        let mut report = TickReport::default();
        let Granted { count, chips, mut owners, has_live } = self.grant().await.unwrap_or_else(|error| {
            report.troubles.push(format!("permits: {error}"));
            Granted { has_live: true, ..Granted::default() }
        });
        (report.granted, report.chips) = (count, chips);
        // After a commit of its own: some stores tell no later time than that of the last one.
        let since_last = self.mark_liveness(has_live).await.unwrap_or_else(|error| {
            report.troubles.push(format!("liveness: {error}"));
            None
        });
        let mut hinted = BTreeSet::new();
        let due = self.hint_due(now, &mut hinted).await;
        let empty_at = if has_live { None } else { self.empty_at().await };
        if empty_at.is_none_or(|at| now >= at + self.settings.idle_look) {
            // Nobody knows since when it has been an orphan if no tick has run for long; an empty list shows that it was not there.
            let since = |(last, now): (Timestamp, _)| empty_at.unwrap_or(last.max(now - self.settings.outage_gap));
            let since_last = since_last.map(|times| (since(times), times.1));
            self.look_at_all(now, since_last, (&mut owners, &hinted), &mut report).await;
        }
        for trouble in &report.troubles {
            tracing::warn!(trouble, "a part of the tick failed: {trouble}");
        }
        // Only now: the sweep ran all the same. Without the due jobs the tick should come again.
        report.due = due?;
        tracing::info!(due = report.due, granted = report.granted, chips = report.chips, "the tick ran to its end");
        Ok(report)
    }

    /// Reads the list: changed slices, orphans, the fleet.
    async fn look_at_all(
        &self,
        now: Timestamp,
        since_last: Option<(Timestamp, Timestamp)>,
        (owners, hinted): (&mut Owners, &BTreeSet<JobId>),
        report: &mut TickReport,
    ) {
        let listing = match self.list().await {
            Ok(listing) => listing,
            Err(error) => {
                self.tell_unlisted(&error, now).await;
                return report.troubles.push(format!("sweep: {error}"));
            }
        };
        // What is accounted for comes before what is deleted; what only tells others comes last, since it may take all the time that is left.
        if let Err(error) = self.meter_orphans(since_last, &listing, owners).await {
            report.troubles.push(format!("account of orphans: {error}"));
        }
        match self.sweep(now, &listing, owners).await {
            Ok(sweep) => report.sweep = Some(sweep),
            Err(error) => report.troubles.push(format!("sweep: {error}")),
        }
        report.changed = self.hint_changed(&listing, owners, hinted).await;
        if let Err(error) = self.note_fleet(now, &listing, owners).await {
            report.troubles.push(format!("fleet: {error}"));
        }
    }

    /// Stores that a tick ran and whether `api` answers; after a gap the silence clocks start again. Without a live job nobody is silent,
    /// and `api` is not asked. Answers the stretch since the last one, by the store's clock.
    async fn mark_liveness(&self, has_live: bool) -> Result<Option<(Timestamp, Timestamp)>, StoreError> {
        let api = has_live && self.ports.probe.ping().await.is_ok();
        let (at, now) = self.ports.store.read_timed::<LivenessDoc>(&Kind::Liveness).await?;
        let mut doc = at.as_ref().map(|a| a.value.clone()).unwrap_or_default();
        doc.tell_late_tick(now);
        let last = doc.tick_at;
        let gap = self.settings.outage_gap;
        let broken = |last: Option<Timestamp>| last.is_none_or(|last| now >= last + gap);
        if broken(doc.tick_at) {
            doc.tick_since = Some(now);
        }
        // Of an earlier version's document nobody knows how long its gaps were. Before its first tick a store was in charge since its birth.
        if doc.watched_since.is_none() || last.is_none_or(|last| now >= last + self.settings.orphan_grace) {
            doc.watched_since = Some(if last.is_none() { self.installation.born_at.min(now) } else { now });
        }
        doc.tick_at = Some(now);
        if api {
            if broken(doc.api_at) {
                doc.api_since = Some(now);
            }
            doc.api_at = Some(now.max(doc.api_at.unwrap_or(now)));
        }
        let when = at.map_or(Precondition::Absent, |a| Precondition::At(a.revision));
        match self.ports.store.write(&Kind::Liveness, &doc, when).await {
            // `api` wrote at the same moment; the next tick is soon enough.
            Ok(_) | Err(StoreError::Conflict(_)) => Ok(last.map(|last| (last, now))),
            Err(error) => Err(error),
        }
    }

    async fn survey(&self) -> Result<Survey, StoreError> {
        let mut survey = Survey::default();
        let mut after = None;
        loop {
            let (jobs, next) = self.ports.store.live_jobs(after, PAGE).await?;
            survey.live += jobs.len();
            for At { value: job, .. } in jobs {
                for g in &job.generations {
                    let does = idle::of(&job, g);
                    let pays = job.spec.owner.clone();
                    let owned = Owned { job: job.id.clone(), generation: g.number, pays, does, known: Known::of(g) };
                    match survey.owners.get_mut(&g.placement.zone) {
                        Some(zone) => zone.insert(g.name.clone(), owned).map(drop),
                        None => survey
                            .owners
                            .insert(g.placement.zone.clone(), HashMap::from([(g.name.clone(), owned)]))
                            .map(drop),
                    };
                }
                for (entry, amount) in job.generations.iter().filter_map(Generation::used) {
                    count(&mut survey.used, &job.spec.owner, entry, amount, u64::saturating_add);
                }
                if job.reason == Reason::CreateBudget {
                    survey.waiters.push(Waiter {
                        id: job.id.clone(),
                        priority: job.spec.priority,
                        since: job.queued_since,
                    });
                }
            }
            after = next;
            if after.is_none() {
                return Ok(survey);
            }
        }
    }

    /// Refreshes the totals, and grants what is left of this half minute and of the next, by priority, then age.
    async fn grant(&self) -> Result<Granted, StoreError> {
        // Read before the survey: a create that is committed meanwhile moves this document, and says in it what the survey may have missed.
        let first = self.ports.store.read_timed::<CreatesDoc>(&Kind::Creates).await?;
        let then = first.0.as_ref().map(|at| at.value.clone()).unwrap_or_default();
        let mut survey = self.survey().await?;
        survey.waiters.sort_by(|a, b| b.priority.cmp(&a.priority).then(a.since.cmp(&b.since)).then(a.id.cmp(&b.id)));
        let mut read = first;
        for _ in 0..RACES_MAX {
            let (at, now) = read;
            let mut doc = at.as_ref().map(|a| a.value.clone()).unwrap_or_default();
            survey.fold(&then, &mut doc);
            let half = half_of(now);
            let chosen = self.choose(&survey.waiters, &mut doc, half);
            let when = at.map_or(Precondition::Absent, |a| Precondition::At(a.revision));
            match self.ports.store.write(&Kind::Creates, &doc, when).await {
                Ok(_) => {
                    join_all(chosen.iter().map(|(id, from)| self.tell_granted(id, *from, half))).await;
                    let chips = doc.uses.chips.values().sum();
                    return Ok(Granted {
                        count: chosen.len(),
                        chips,
                        owners: survey.owners,
                        has_live: survey.live > 0,
                    });
                }
                // Only this document is read again. With many jobs the survey takes longer than from one create to the next: begun again with each,
                // it would never end, nor what comes after it.
                Err(StoreError::Conflict(_)) => read = self.ports.store.read_timed(&Kind::Creates).await?,
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Conflict(Kind::Creates.path()))
    }

    /// Grants what is left of this half minute, and of the next, to those that wait, in their order. Each with the half minute that it counts in.
    fn choose(&self, waiters: &[Waiter], doc: &mut CreatesDoc, now: i64) -> Vec<(JobId, i64)> {
        doc.forget(now);
        // Who has not come for a grant in its time was not told of it.
        let has_one = |w: &&Waiter| doc.grants.get(&w.id).is_some_and(|half| *half + 1 >= now);
        let mut without = waiters.iter().filter(|w| !has_one(w)).collect::<Vec<_>>().into_iter();
        let mut chosen = Vec::new();
        for half in [now, now + 1] {
            let free = self.settings.creates_per_half().saturating_sub(doc.used_in(half));
            for waiter in without.by_ref().take(free as usize) {
                doc.grants.insert(waiter.id.clone(), half);
                doc.count(half);
                chosen.push((waiter.id.clone(), half));
            }
        }
        chosen
    }

    /// Tells a job of its permit, when it may be taken.
    async fn tell_granted(&self, id: &JobId, from: i64, now: i64) {
        if from <= now {
            self.hint(id, "create permit granted").await;
            return;
        }
        // A moment later than it begins: clocks differ, and who comes too early waits for the next tick.
        let at = begin_of(from) + Duration::from_secs(1);
        if let Err(error) = self.ports.wakeups.schedule(id, at, &format!("{id}-permit-{from}")).await {
            tracing::warn!(job = %id, %error, "a wake-up could not be scheduled; the next tick's will do");
        }
    }

    /// Hints every job that knows a slice of its own otherwise than the list shows it.
    async fn hint_changed(&self, listing: &Listing, owners: &mut Owners, hinted: &BTreeSet<JobId>) -> usize {
        // Nodes of a queued resource are left out: its own entry tells of them.
        for r in listing.resources.iter().filter(|r| r.owned_by.is_none()) {
            if let Some(owned) = owners.get_mut(&r.slice.zone).and_then(|zone| zone.get_mut(&r.slice.name)) {
                owned.known = owned.known.filter(|known| !known.is_shown_by(&r.view));
            }
        }
        let read = owners.iter().filter(|(zone, _)| !listing.unreachable.contains(zone));
        let missed = read.flat_map(|(_, zone)| zone.values()).filter(|o| o.known.is_some() && !hinted.contains(&o.job));
        let changed: BTreeSet<&JobId> = missed.map(|o| &o.job).collect();
        let sent = join_all(changed.into_iter().map(|id| self.hint(id, "the list shows a change"))).await;
        sent.into_iter().filter(|sent| *sent).count()
    }

    async fn hint(&self, id: &JobId, cause: &str) -> bool {
        let hint = Hint { job: id.clone(), after: None, news: None, cause: cause.to_owned(), traceparent: None };
        match self.ports.hints.publish(&hint).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(job = %id, %error, "a hint could not be published; a tick finds the job when it is due");
                false
            }
        }
    }

    /// Hints every job that is not over, page by page, due or not: for a start at which hints and wake-ups of before are lost.
    pub async fn hint_live(&self, cause: &str) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let (jobs, next) = self.ports.store.live_jobs(after, PAGE).await?;
            join_all(jobs.iter().map(|at| self.hint(&at.value.id, cause))).await;
            after = next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Hints every job whose wake-up is due, page by page; `hinted` takes their ids.
    async fn hint_due(&self, now: Timestamp, hinted: &mut BTreeSet<JobId>) -> Result<usize, StoreError> {
        let mut after = None;
        let mut count = 0;
        loop {
            let (jobs, next) = self.ports.store.due_jobs(now, after, PAGE).await?;
            let sent = join_all(jobs.iter().map(|at| self.hint(&at.value.id, "tick"))).await;
            count += sent.into_iter().filter(|sent| *sent).count();
            hinted.extend(jobs.iter().map(|at| at.value.id.clone()));
            after = next;
            if after.is_none() {
                return Ok(count);
            }
        }
    }
}
