//! Where a slice is asked for next: the candidates of a job in order, and the choice among them.
//!
//! Knows the catalogue, the deployment's capacity list and limits, and what creates met lately. It does not know permits
//! or generations: whether a create is allowed now is `decide`'s. Entry points: [`candidates`] and [`choose`].
//!
//! **Invariant:** no candidate lies outside the capacity list, what of it is lent to the job's owner, or the regions of
//! the job's checkpoints (unless the job says `regions: any`).

use std::time::Duration;

use jiff::Timestamp;

use crate::catalog;
use crate::job::{Barred, Job, Placement, Via};
use crate::limits::{self, InUse};
use crate::observation::{CreateError, CreateErrorKind, ZoneReport};
use crate::reason::Reason;
use crate::settings::{CapacityEntry, Deployment, Settings};
use crate::spec::{CapacityKind, CheckpointSpec, JobSpec, Queued};

#[cfg(test)]
mod tests;

/// Creates of a job that met no capacity, after which `queued: auto` waits in the provider's queue instead, once every candidate has refused.
const STOCKOUTS_BEFORE_QUEUE: u32 = 2;

/// One place where the job's slices may be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Accelerator, zone and kind of capacity.
    pub placement: Placement,
    /// Workers of each slice.
    pub workers: u32,
    /// Chips of all slices.
    pub chips: u32,
    /// Micro US dollars for each hour of all chips, by the capacity list; 0 for granted quota.
    pub usd_micros_per_hour: u64,
    /// The entry of the capacity list that allows it, by its key.
    pub entry: String,
    /// That entry's `max_chips`, over all jobs.
    pub entry_max_chips: Option<u32>,
}

/// What to do about a slice now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Ask for this one.
    Go {
        /// Where.
        candidate: Candidate,
        /// By a node or a queued resource.
        via: Via,
    },
    /// Every candidate that is left cools down.
    Wait {
        /// When the first of them may be tried again.
        until: Timestamp,
        /// Why that one cools down.
        reason: Reason,
        /// The same in one sentence.
        message: String,
    },
    /// No candidate is left, and none will be.
    Never {
        /// Why, in one sentence.
        message: String,
    },
}

/// The candidates of a job in order: by kind of capacity, then accelerator, then zone, each as the job prefers them.
///
/// Without zones in the job: as the capacity list has them, and by name where an entry allows every zone. A place that
/// several entries allow comes once for each, in their order: what one has no chips left for, the next may have. An
/// entry whose `max_chips` is below what the job needs at once brings none.
pub fn candidates(spec: &JobSpec, deployment: &Deployment) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    for kind in &spec.tpu.capacity {
        for accelerator in &spec.tpu.accelerators {
            for zone in zones_in_order(spec, accelerator, deployment) {
                for candidate in candidates_at(spec, deployment, *kind, accelerator, zone) {
                    let same = |c: &Candidate| c.placement == candidate.placement && c.entry == candidate.entry;
                    if !found.iter().any(same) {
                        found.push(candidate);
                    }
                }
            }
        }
    }
    found
}

/// The first candidate that is neither barred for the job nor cooling down and that the limits have room for, and how
/// it is asked for.
///
/// `used` is what live generations use of the limits, without those that this one takes the place of.
/// `zones` is what others met. It is advisory: a report that would last longer than any cool-down of the settings comes
/// from a clock that runs ahead, and is not believed.
pub fn choose(
    job: &Job,
    deployment: &Deployment,
    zones: &[ZoneReport],
    used: &InUse,
    now: Timestamp,
    settings: &Settings,
) -> Choice {
    let mut earliest: Option<(Timestamp, Reason, String)> = None;
    let mut refused: Vec<String> = Vec::new();
    let candidates = candidates(&job.spec, deployment);
    // One queue has the job for as long as it lasts: not while another place, not tried yet, may have a slice at once.
    let untried = |c: &Candidate| {
        !has_refused(job, &c.placement) && limits::hindrance(c, deployment, &job.spec.owner, used).is_none()
    };
    let all_refused = !candidates.iter().any(untried);
    for candidate in candidates {
        let place = describe(&candidate.placement);
        let (until, reason, message) = match obstacle(&candidate.placement, job, zones, now, settings) {
            None => match limits::hindrance(&candidate, deployment, &job.spec.owner, used) {
                None => {
                    let via = via(job, &candidate.placement, all_refused);
                    return Choice::Go { candidate, via };
                }
                // Nobody knows when room comes; each tick looks.
                Some((reason, told)) => (after(now, settings.rate_cooldown), reason, format!("{place}: {told}")),
            },
            Some(Obstacle { until: Some(until), error }) => {
                let told = format!("{} ({place})", headline(error.kind));
                let told = format!(
                    "{told}; every other candidate waits longer or is refused; next try at {until:.0}: {}",
                    error.message
                );
                (until, reason_of(error.kind), told)
            }
            Some(Obstacle { until: None, error }) => {
                let told = format!("{place}: {}", error.message);
                if !refused.contains(&told) {
                    refused.push(told);
                }
                continue;
            }
        };
        if earliest.as_ref().is_none_or(|(first, ..)| until < *first) {
            earliest = Some((until, reason, message));
        }
    }
    match earliest {
        Some((until, reason, message)) => Choice::Wait { until, reason, message },
        None => Choice::Never { message: never(&job.spec, &refused) },
    }
}

/// The regions that the job's checkpoints allow. `None`: all of them (the bucket's regions are not known).
pub fn checkpoint_regions(checkpoint: &CheckpointSpec, deployment: &Deployment) -> Option<Vec<String>> {
    let of_bucket = || (!deployment.bucket_regions.is_empty()).then(|| deployment.bucket_regions.clone());
    match checkpoint {
        CheckpointSpec::Default => of_bucket(),
        CheckpointSpec::ByRegion(folders) => Some(folders.keys().cloned().collect()),
        CheckpointSpec::Folder(folder) => {
            let rest = folder.strip_prefix(deployment.bucket.trim_end_matches('/'));
            rest.filter(|rest| rest.is_empty() || rest.starts_with('/')).and_then(|_| of_bucket())
        }
    }
}

/// Whether a zone lies in one of these regions. The multi-regions of buckets (`us`, `eu`, `asia`) hold all of theirs.
pub fn is_in_regions(zone: &str, regions: &[String]) -> bool {
    let region = catalog::region_of(zone);
    regions.iter().any(|allowed| match allowed.to_ascii_lowercase().as_str() {
        "us" => region.starts_with("us-"),
        "eu" => region.starts_with("europe-"),
        "asia" => region.starts_with("asia-"),
        one => one == region,
    })
}

/// The first entry of the capacity list that allows so many chips of this accelerator in this zone.
pub fn entry_for<'a>(
    deployment: &'a Deployment,
    kind: CapacityKind,
    accelerator: &str,
    zone: &str,
    chips: u32,
) -> Option<&'a CapacityEntry> {
    entries_for(deployment, kind, accelerator, zone, chips).next()
}

/// US dollars an hour for a slice of that type in that zone: by the deployment's own price where it has one, else by the
/// catalogue; `None` when neither knows.
pub fn usd_per_hour(deployment: &Deployment, accelerator: &str, zone: &str, bought: CapacityKind) -> Option<f64> {
    let chips = catalog::accelerator(accelerator)?.chips;
    // Where the deployment has no price for that kind, the nearest one stands for it.
    let kinds = match bought {
        CapacityKind::Spot => [CapacityKind::Spot, CapacityKind::Preemptible],
        CapacityKind::Preemptible => [CapacityKind::Preemptible, CapacityKind::Spot],
        CapacityKind::OnDemand => [CapacityKind::OnDemand, CapacityKind::Reserved],
        CapacityKind::Reserved => [CapacityKind::Reserved, CapacityKind::OnDemand],
    };
    // Whatever it was allowed for then: the price does not depend on the number of chips.
    let own = kinds.iter().find_map(|kind| entry_for(deployment, *kind, accelerator, zone, 0));
    let each = own
        .map(|entry| entry.usd_per_chip_hour)
        .or_else(|| catalog::price_in_zone(accelerator, zone, bought.is_preemptible()))?;
    Some(each * f64::from(chips))
}

fn entries_for<'a>(
    deployment: &'a Deployment,
    kind: CapacityKind,
    accelerator: &str,
    zone: &str,
    chips: u32,
) -> impl Iterator<Item = &'a CapacityEntry> {
    deployment.capacity.iter().filter(move |entry| {
        entry.kind == kind
            && covers_accelerator(&entry.accelerator, accelerator)
            && (entry.zone == "*" || entry.zone == zone)
            && entry.max_chips.is_none_or(|max| chips <= max)
    })
}

/// Whether anything that an entry of the capacity list covers is offered in its zone, as far as the catalogue knows: else nothing is ever had by it.
pub fn can_be_had(accelerator: &str, zone: &str) -> bool {
    let offered = |name: &str| zone == "*" || catalog::is_offered(name, zone);
    catalog::accelerators().iter().any(|known| covers_accelerator(accelerator, &known.name) && offered(&known.name))
}

/// Whether an entry's accelerator (`v5litepod-16`, `v5litepod-*` or `*`) covers this type.
pub fn covers_accelerator(pattern: &str, accelerator: &str) -> bool {
    match pattern.strip_suffix('*') {
        // `v5litepod-*` is a family and its dash, so that it never covers `v5litepodx-8`.
        Some(family) => accelerator.starts_with(family),
        None => pattern == accelerator,
    }
}

fn zones_in_order<'a>(spec: &'a JobSpec, accelerator: &str, deployment: &'a Deployment) -> Vec<&'a str> {
    if !spec.tpu.zones.is_empty() {
        return spec.tpu.zones.iter().map(String::as_str).collect();
    }
    let mut zones: Vec<&str> = Vec::new();
    for entry in deployment.capacity.iter().filter(|entry| covers_accelerator(&entry.accelerator, accelerator)) {
        if entry.zone == "*" {
            zones.extend(catalog::zones_offering(accelerator));
        } else {
            zones.push(&entry.zone);
        }
    }
    zones
}

fn candidates_at(
    spec: &JobSpec,
    deployment: &Deployment,
    kind: CapacityKind,
    accelerator: &str,
    zone: &str,
) -> Vec<Candidate> {
    let Some(known) = catalog::accelerator(accelerator) else { return Vec::new() };
    let chips = known.chips.saturating_mul(spec.tpu.slices.max(1));
    if !catalog::is_offered(accelerator, zone) {
        return Vec::new();
    }
    if !deployment.access.borrow(&spec.owner).lends_capacity(kind, accelerator, zone) {
        return Vec::new();
    }
    if !spec.any_region
        && let Some(regions) = checkpoint_regions(&spec.checkpoint, deployment)
        && !is_in_regions(zone, &regions)
    {
        return Vec::new();
    }
    let of = |entry: &CapacityEntry| Candidate {
        placement: Placement { accelerator: accelerator.to_owned(), zone: zone.to_owned(), capacity: kind },
        workers: known.workers,
        chips,
        // A negative, infinite or absurd price in a configuration becomes 0 or the largest number, never a panic.
        usd_micros_per_hour: (entry.usd_per_chip_hour * f64::from(chips) * 1e6).round() as u64,
        entry: entry.key(),
        entry_max_chips: entry.max_chips,
    };
    entries_for(deployment, kind, accelerator, zone, chips).map(of).collect()
}

struct Obstacle {
    /// `None`: for good.
    until: Option<Timestamp>,
    error: CreateError,
}

/// What keeps a placement from being tried now: the longest of what the job and what others met.
fn obstacle(
    placement: &Placement,
    job: &Job,
    zones: &[ZoneReport],
    now: Timestamp,
    settings: &Settings,
) -> Option<Obstacle> {
    let mut worst: Option<Obstacle> = None;
    let barred = job.barred.iter().filter(|barred| covers(&barred.placement, barred.error.kind, placement));
    for barred in barred {
        let Some(until) = barred.until else {
            return Some(Obstacle { until: None, error: barred.error.clone() });
        };
        hold(&mut worst, until, &barred.error, now);
    }
    // Cool-downs grow by repeats, up to the longest back-off.
    let longest = settings.stockout_cooldown.max(settings.quota_cooldown).max(settings.backoff_max);
    let believed = |report: &&ZoneReport| {
        covers(&report.placement, report.error.kind, placement) && report.cool_until <= after(now, longest)
    };
    for report in zones.iter().filter(believed) {
        hold(&mut worst, report.cool_until, &report.error, now);
    }
    worst
}

/// Whether a refusal at one place says the same of another: the quota of spot and preemptible capacity is one for all zones of a region.
fn covers(refused: &Placement, refusal: CreateErrorKind, other: &Placement) -> bool {
    let is_regional = refusal == CreateErrorKind::Quota && refused.capacity.is_preemptible();
    let same_region = catalog::region_of(&refused.zone) == catalog::region_of(&other.zone);
    let same_zone = refused.zone == other.zone || (is_regional && same_region);
    same_zone && refused.accelerator == other.accelerator && refused.capacity == other.capacity
}

fn hold(worst: &mut Option<Obstacle>, until: Timestamp, error: &CreateError, now: Timestamp) {
    let is_longer = worst.as_ref().is_none_or(|w| w.until.is_some_and(|held| held < until));
    if until > now && is_longer {
        *worst = Some(Obstacle { until: Some(until), error: error.clone() });
    }
}

fn after(now: Timestamp, wait: Duration) -> Timestamp {
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// Whether the job's creates have met anything there since it has been without a slice.
pub(crate) fn has_refused(job: &Job, placement: &Placement) -> bool {
    let since = job.queued_since;
    let speaks = |b: &&Barred| covers(&b.placement, b.error.kind, placement);
    job.barred.iter().filter(speaks).any(|b| b.until.is_none_or(|until| until >= since))
}

fn via(job: &Job, placement: &Placement, all_refused: bool) -> Via {
    let tpu = &job.spec.tpu;
    let queue = match tpu.queued {
        Queued::Always => true,
        // Several slices at once come by a queued resource only, and only it names a reservation; submit refuses these pairs.
        Queued::Never => false,
        Queued::Auto => {
            let is_time = all_refused && job.counters.stockouts >= STOCKOUTS_BEFORE_QUEUE;
            let is_named = placement.capacity == CapacityKind::Reserved && tpu.reservation.is_some();
            tpu.slices > 1 || ((is_time || is_named) && !comes_as_node(job, &placement.accelerator))
        }
    };
    if queue { Via::QueuedResource } else { Via::Node }
}

/// Whether the job takes this accelerator as a node however long it waits, since the provider does not queue it.
pub(crate) fn comes_as_node(job: &Job, accelerator: &str) -> bool {
    let is_queueable =
        catalog::queueing_supported(accelerator) && !job.unqueueable.iter().any(|refused| refused == accelerator);
    job.spec.tpu.queued == Queued::Auto && job.spec.tpu.slices <= 1 && !is_queueable
}

/// `1 slice`, `2 slices`.
pub(crate) fn slices(count: u32) -> String {
    if count == 1 { "1 slice".to_owned() } else { format!("{count} slices") }
}

/// `spot v5litepod-16 in us-central1-a`.
pub fn describe(placement: &Placement) -> String {
    format!("{} {} in {}", placement.capacity.as_str(), placement.accelerator, placement.zone)
}

const fn reason_of(kind: CreateErrorKind) -> Reason {
    match kind {
        CreateErrorKind::Stockout | CreateErrorKind::HiddenStockout | CreateErrorKind::Reservation => Reason::Stockout,
        CreateErrorKind::Quota | CreateErrorKind::AddressQuota => Reason::Quota,
        CreateErrorKind::RateLimit => Reason::RateLimit,
        CreateErrorKind::PreemptedWhileCreating => Reason::PreemptedWhileCreating,
        CreateErrorKind::NotOffered
        | CreateErrorKind::NotQueueable
        | CreateErrorKind::Forbidden
        | CreateErrorKind::NameTaken
        | CreateErrorKind::Cancelled
        | CreateErrorKind::Other => Reason::NoCandidate,
    }
}

const fn headline(kind: CreateErrorKind) -> &'static str {
    match kind {
        CreateErrorKind::Stockout | CreateErrorKind::HiddenStockout => "no capacity",
        CreateErrorKind::Quota => "the quota is used up",
        CreateErrorKind::AddressQuota => "the quota of external addresses is used up",
        CreateErrorKind::RateLimit => "too many creates a minute",
        CreateErrorKind::Reservation => "the reservation is not there or used up",
        CreateErrorKind::PreemptedWhileCreating => "preempted while it was being made",
        CreateErrorKind::NotOffered => "not offered",
        CreateErrorKind::NotQueueable => "not queued by the provider",
        CreateErrorKind::Forbidden => "not allowed",
        CreateErrorKind::NameTaken => "the name is taken",
        CreateErrorKind::Cancelled => "the create was cancelled",
        CreateErrorKind::Other => "the create was refused",
    }
}

fn never(spec: &JobSpec, refused: &[String]) -> String {
    // More would not help a person, and the message is stored with the job.
    const SHOWN: usize = 3;
    if refused.is_empty() {
        return format!(
            "the capacity list allows none of {} any more, for {} in the regions of the job's checkpoints",
            spec.tpu.accelerators.join(", "),
            slices(spec.tpu.slices)
        );
    }
    let more = match refused.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let shown: Vec<&str> = refused.iter().take(SHOWN).map(String::as_str).collect();
    format!("every candidate was refused for good: {}{more}", shown.join("; "))
}
