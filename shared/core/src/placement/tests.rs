//! Order, cool-downs and limits of the candidates.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fixture::{at, deployment, entry, job, noon, open_deployment, place, small, spec_in, with};

use CapacityKind::{OnDemand, Reserved, Spot};

fn places(candidates: &[Candidate]) -> Vec<String> {
    candidates.iter().map(|candidate| describe(&candidate.placement)).collect()
}

fn error(kind: CreateErrorKind) -> CreateError {
    CreateError { kind, message: "There is no more capacity in the zone".into() }
}

fn report(zone: &str, kind: CreateErrorKind, cool_until: Timestamp) -> ZoneReport {
    ZoneReport { placement: place(zone), cool_until, error: error(kind) }
}

fn barred(zone: &str, kind: CreateErrorKind, until: Option<Timestamp>) -> Barred {
    Barred { placement: place(zone), until, error: error(kind), times: 1, deletes_until: None }
}

/// A job that may be in three zones, in this order.
fn three_zones() -> Job {
    let zones = json!(["us-west4-a", "us-central1-a", "us-south1-a"]);
    job(spec_in(&open_deployment(), &with(&["tpu", "zones"], zones)))
}

fn choose_now(job: &Job, zones: &[ZoneReport]) -> Choice {
    choose(job, &open_deployment(), zones, &InUse::default(), noon(), &Settings::default())
}

#[track_caller]
fn goes_to(choice: &Choice) -> &str {
    match choice {
        Choice::Go { candidate, .. } => &candidate.placement.zone,
        Choice::Wait { .. } | Choice::Never { .. } => panic!("{choice:?}"),
    }
}

#[test]
fn candidates_go_by_capacity_then_accelerator_then_zone() {
    let tpu = json!({
        "accelerator": ["v5litepod-16", "v5litepod-8"],
        "zones": ["us-west4-a", "us-central1-a"],
        "capacity": ["spot", "on_demand"],
    });
    let deployment = open_deployment();
    let found = candidates(&spec_in(&deployment, &with(&["tpu"], tpu)), &deployment);
    assert_eq!(
        places(&found),
        [
            "spot v5litepod-16 in us-west4-a",
            "spot v5litepod-16 in us-central1-a",
            "spot v5litepod-8 in us-west4-a",
            "spot v5litepod-8 in us-central1-a",
            "on_demand v5litepod-16 in us-west4-a",
            "on_demand v5litepod-16 in us-central1-a",
            "on_demand v5litepod-8 in us-west4-a",
            "on_demand v5litepod-8 in us-central1-a",
        ]
    );
}

#[test]
fn without_zones_the_capacity_list_gives_the_order() {
    let deployment = deployment(vec![
        entry("v5litepod-16", "us-west4-a", Spot),
        entry("v6e-*", "us-east5-a", Spot),
        entry("v5litepod-*", "us-central1-a", Spot),
        entry("v5litepod-16", "us-central1-a", Spot),
        entry("v5litepod-16", "us-south1-a", OnDemand),
        entry("*", "us-east1-d", Spot),
    ]);
    let found = candidates(&spec_in(&deployment, &small()), &deployment);
    let central = "spot v5litepod-16 in us-central1-a";
    assert_eq!(places(&found), ["spot v5litepod-16 in us-west4-a", central, central]);
    // A place that two entries allow: when the chips of the first are used up, the second has its own.
    assert_eq!([&found[1].entry, &found[2].entry], [&deployment.capacity[2].key(), &deployment.capacity[3].key()]);
}

#[test]
fn what_an_entry_has_no_chips_left_for_the_next_one_may_have() {
    let listed = |max_chips| CapacityEntry { max_chips: Some(max_chips), ..entry("*", "us-west4-a", Spot) };
    let dear = CapacityEntry { usd_per_chip_hour: 9.0, ..listed(16) };
    let deployment = deployment(vec![listed(32), dear.clone()]);
    let job = job(spec_in(&deployment, &small()));
    let choose = |used: &[(&CapacityEntry, u64)]| {
        let entries = used.iter().map(|(entry, chips)| (entry.key(), *chips)).collect();
        let used = InUse { entries, ..InUse::default() };
        choose(&job, &deployment, &[], &used, noon(), &Settings::default())
    };
    let price = |choice: Choice| match choice {
        Choice::Go { candidate, .. } => candidate.usd_micros_per_hour,
        Choice::Wait { .. } | Choice::Never { .. } => panic!("{choice:?}"),
    };
    let granted = &deployment.capacity[0];
    assert_eq!(price(choose(&[(granted, 16)])), 8_000_000);
    assert_eq!(price(choose(&[(granted, 17)])), 144_000_000);
    let full = choose(&[(granted, 17), (&dear, 1)]);
    assert!(matches!(full, Choice::Wait { reason: Reason::MaxChips, until, .. } if until == at(60)), "{full:?}");
}

#[test]
fn an_entry_for_every_zone_brings_those_that_offer_the_type() {
    let deployment = deployment(vec![entry("v4-*", "*", Spot), entry("v5litepod-*", "*", Spot)]);
    let found = candidates(&spec_in(&deployment, &with(&["tpu", "accelerator"], json!("v4-8"))), &deployment);
    assert_eq!(places(&found), ["spot v4-8 in us-central2-b"]);
    let zones = catalog::zones_offering("v5litepod-16");
    assert_eq!(candidates(&spec_in(&deployment, &small()), &deployment).len(), zones.len());
}

#[test]
fn a_candidate_knows_size_and_price_of_all_slices() {
    let deployment = open_deployment();
    let found = candidates(&spec_in(&deployment, &with(&["tpu", "slices"], json!(3))), &deployment);
    assert_eq!((found[0].workers, found[0].chips), (4, 48));
    assert_eq!(found[0].usd_micros_per_hour, 24_000_000);
}

#[test]
fn a_price_that_is_no_price_is_no_panic() {
    for (price, micros) in [(-1.0, 0), (f64::NAN, 0), (0.0, 0), (f64::INFINITY, u64::MAX), (1e300, u64::MAX)] {
        let entry = CapacityEntry { usd_per_chip_hour: price, ..entry("*", "us-west4-a", Spot) };
        let deployment = deployment(vec![entry]);
        let found = candidates(&spec_in(&deployment, &small()), &deployment);
        assert_eq!(found[0].usd_micros_per_hour, micros, "{price}");
    }
}

#[test]
fn max_chips_of_an_entry_leaves_out_what_never_fits() {
    let small_entry = CapacityEntry { max_chips: Some(15), ..entry("*", "us-west4-a", Spot) };
    let deployment = deployment(vec![small_entry, entry("*", "us-central1-a", Spot)]);
    let mut spec = spec_in(&deployment, &small());
    assert_eq!(places(&candidates(&spec, &deployment)), ["spot v5litepod-16 in us-central1-a"]);
    spec.tpu.accelerators = vec!["v5litepod-8".into()];
    assert_eq!(candidates(&spec, &deployment).len(), 2);
}

#[test]
fn candidates_stay_in_the_regions_of_the_checkpoints() {
    let mut deployment = open_deployment();
    let spec = spec_in(&deployment, &small());
    deployment.bucket_regions = vec!["us-central1".into(), "us-south1".into()];
    assert_eq!(
        places(&candidates(&spec, &deployment)),
        ["spot v5litepod-16 in us-central1-a", "spot v5litepod-16 in us-south1-a"]
    );
    deployment.bucket_regions = vec!["EU".into()];
    assert!(candidates(&spec, &deployment).iter().all(|found| found.placement.zone.starts_with("europe-")));
    let elsewhere = JobSpec { checkpoint: CheckpointSpec::Folder("gs://rekindle-demo2/x".into()), ..spec };
    assert!(candidates(&elsewhere, &deployment).len() > 2, "the regions of another bucket are not known");
}

#[test]
fn the_first_candidate_is_taken_when_nothing_is_in_the_way() {
    let choice = choose_now(&three_zones(), &[]);
    assert_eq!(goes_to(&choice), "us-west4-a");
    assert!(matches!(choice, Choice::Go { via: Via::Node, .. }));
}

#[test]
fn a_zone_that_cools_down_is_passed_over_until_it_has_cooled() {
    let job = three_zones();
    let zones = [report("us-west4-a", CreateErrorKind::Stockout, at(60))];
    assert_eq!(goes_to(&choose_now(&job, &zones)), "us-central1-a");
    let later = choose(&job, &open_deployment(), &zones, &InUse::default(), at(60), &Settings::default());
    assert_eq!(goes_to(&later), "us-west4-a");
    // What others met with another type says nothing of this one.
    let mut other = zones[0].clone();
    other.placement.accelerator = "v5litepod-8".into();
    assert_eq!(goes_to(&choose_now(&job, &[other])), "us-west4-a");
}

#[test]
fn what_the_job_met_itself_counts_as_well() {
    let mut job = three_zones();
    job.barred = vec![
        barred("us-west4-a", CreateErrorKind::NotOffered, None),
        barred("us-central1-a", CreateErrorKind::Quota, Some(at(100))),
    ];
    assert_eq!(goes_to(&choose_now(&job, &[])), "us-south1-a");
}

#[test]
fn when_all_cool_down_the_first_to_be_free_is_waited_for() {
    let mut job = three_zones();
    job.barred = vec![
        barred("us-west4-a", CreateErrorKind::Stockout, Some(at(200))),
        barred("us-central1-a", CreateErrorKind::Quota, Some(at(50))),
        barred("us-south1-a", CreateErrorKind::Forbidden, None),
    ];
    // Others say that this one waits longer than the job thinks.
    let zones = [report("us-central1-a", CreateErrorKind::RateLimit, at(90))];
    let choice = choose_now(&job, &zones);
    let Choice::Wait { until, reason, message } = choice else { panic!("{choice:?}") };
    assert_eq!((until, reason), (at(90), Reason::RateLimit));
    assert!(message.contains("spot v5litepod-16 in us-central1-a"), "{message}");
    assert!(message.contains("2026-03-01T12:01:30Z"), "{message}");
    let choice = choose_now(&job, &[]);
    assert!(matches!(choice, Choice::Wait { reason: Reason::Quota, until, .. } if until == at(50)), "{choice:?}");
}

#[test]
fn a_report_from_a_clock_ahead_is_not_believed() {
    let zones = [report("us-west4-a", CreateErrorKind::HiddenStockout, at(3601))];
    assert_eq!(goes_to(&choose_now(&three_zones(), &zones)), "us-west4-a");
    let zones = [report("us-west4-a", CreateErrorKind::HiddenStockout, at(3600))];
    assert_eq!(goes_to(&choose_now(&three_zones(), &zones)), "us-central1-a");
}

#[test]
fn when_all_are_refused_for_good_there_is_nothing_to_wait_for() {
    let mut job = three_zones();
    job.barred = ["us-west4-a", "us-central1-a", "us-south1-a"]
        .map(|zone| barred(zone, CreateErrorKind::NotOffered, None))
        .to_vec();
    let choice = choose_now(&job, &[report("us-west4-a", CreateErrorKind::Stockout, at(60))]);
    let Choice::Never { message } = choice else { panic!("{choice:?}") };
    assert!(message.contains("spot v5litepod-16 in us-west4-a: There is no more"), "{message}");
}

#[test]
fn a_capacity_list_that_was_emptied_leaves_no_candidate() {
    let choice = choose(&three_zones(), &deployment(Vec::new()), &[], &InUse::default(), noon(), &Settings::default());
    assert!(matches!(&choice, Choice::Never { message } if message.contains("capacity list")), "{choice:?}");
}

#[test]
fn a_queued_resource_is_taken_for_slices_after_stockouts_or_when_asked_for() {
    let via = |job: &Job| match choose_now(job, &[]) {
        Choice::Go { via, .. } => via,
        choice @ (Choice::Wait { .. } | Choice::Never { .. }) => panic!("{choice:?}"),
    };
    let mut job = three_zones();
    let zones = ["us-west4-a", "us-central1-a", "us-south1-a"];
    job.barred = zones.map(|zone| barred(zone, CreateErrorKind::Stockout, Some(noon()))).to_vec();
    for (stockouts, expected) in [(0, Via::Node), (1, Via::Node), (2, Via::QueuedResource), (9, Via::QueuedResource)] {
        job.counters.stockouts = stockouts;
        assert_eq!(via(&job), expected, "{stockouts}");
    }
    job.spec.tpu.queued = Queued::Never;
    assert_eq!(via(&job), Via::Node);
    job.counters.stockouts = 0;
    job.spec.tpu.queued = Queued::Always;
    assert_eq!(via(&job), Via::QueuedResource);
    job.spec.tpu.queued = Queued::Auto;
    job.spec.tpu.slices = 2;
    assert_eq!(via(&job), Via::QueuedResource);
    // The API queues no requests for this one.
    job.spec.tpu.slices = 1;
    job.spec.tpu.accelerators = vec!["v5litepod-1".into()];
    job.counters.stockouts = 5;
    assert_eq!(via(&job), Via::Node);
}

#[test]
fn a_spot_quota_holds_back_all_zones_of_its_region() {
    let of = |capacity, kind| {
        let open = deployment(vec![entry("*", "*", capacity)]);
        let mut spec = with(&["tpu", "zones"], json!(["us-east5-a", "us-east5-b", "us-central1-b"]));
        spec["tpu"]["accelerator"] = json!("v6e-16");
        spec["tpu"]["capacity"] = json!([capacity.as_str()]);
        let mut job = job(spec_in(&open, &spec));
        let placement = Placement { accelerator: "v6e-16".into(), zone: "us-east5-a".into(), capacity };
        let report = ZoneReport { placement: placement.clone(), cool_until: at(300), error: error(kind) };
        let go = |job: &Job, zones: &[ZoneReport]| {
            let choice = choose(job, &open, zones, &InUse::default(), noon(), &Settings::default());
            goes_to(&choice).to_owned()
        };
        let told = go(&job, &[report]);
        job.barred =
            vec![Barred { placement, until: Some(at(300)), error: error(kind), times: 1, deletes_until: None }];
        assert_eq!(go(&job, &[]), told, "met by itself, or by another job");
        told
    };
    assert_eq!(of(Spot, CreateErrorKind::Quota), "us-central1-b");
    assert_eq!(of(OnDemand, CreateErrorKind::Quota), "us-east5-b", "each zone has its own");
    assert_eq!(of(Spot, CreateErrorKind::Stockout), "us-east5-b");
}

#[test]
fn a_named_reservation_is_asked_for_by_a_queued_resource() {
    let open = deployment(vec![entry("*", "*", Reserved), entry("*", "*", Spot)]);
    let mut reserved = with(&["tpu", "capacity"], json!(["reserved", "spot"]));
    reserved["tpu"]["reservation"] = json!("ours");
    let mut job = job(spec_in(&open, &reserved));
    let choice = |job: &Job| match choose(job, &open, &[], &InUse::default(), noon(), &Settings::default()) {
        Choice::Go { candidate, via } => (candidate.placement.capacity, via),
        choice @ (Choice::Wait { .. } | Choice::Never { .. }) => panic!("{choice:?}"),
    };
    assert_eq!(choice(&job), (Reserved, Via::QueuedResource));
    job.unqueueable = vec![job.spec.tpu.accelerators[0].clone()];
    assert_eq!(choice(&job), (Reserved, Via::Node), "there is no other way to this one");
    job.unqueueable.clear();
    job.spec.tpu.capacity = vec![Spot];
    assert_eq!(choice(&job), (Spot, Via::Node));
}

#[test]
fn the_queue_of_one_zone_is_not_entered_while_another_has_not_been_tried() {
    let choice = |job: &Job, deployment: &Deployment, used: &InUse| match choose(
        job,
        deployment,
        &[],
        used,
        noon(),
        &Settings::default(),
    ) {
        Choice::Go { candidate, via } => (candidate.placement.zone, via),
        choice @ (Choice::Wait { .. } | Choice::Never { .. }) => panic!("{choice:?}"),
    };
    let now = |job: &Job| choice(job, &open_deployment(), &InUse::default());
    let mut job = three_zones();
    job.counters.stockouts = 2;
    let stockout = |zone, until| barred(zone, CreateErrorKind::Stockout, Some(until));
    job.barred = vec![stockout("us-west4-a", at(300)), stockout("us-central1-a", at(300))];
    assert_eq!(now(&job), ("us-south1-a".into(), Via::Node), "the third has had no say yet");
    job.barred[0] = stockout("us-west4-a", noon());
    assert_eq!(now(&job), ("us-west4-a".into(), Via::Node), "nor now that the first has cooled down");
    job.barred.push(stockout("us-south1-a", at(300)));
    assert_eq!(now(&job), ("us-west4-a".into(), Via::QueuedResource), "all were tried");
    // What was met before the last slice says nothing of this search.
    job.barred[2] = stockout("us-south1-a", at(-1));
    assert_eq!(now(&job), ("us-west4-a".into(), Via::Node));
    // A place without room within the limits is not waited for, and one that refused for good is none.
    job.barred[2] = barred("us-south1-a", CreateErrorKind::NotOffered, None);
    assert_eq!(now(&job), ("us-west4-a".into(), Via::QueuedResource));
    job.barred.pop();
    let full = CapacityEntry { max_chips: Some(16), ..entry("*", "us-south1-a", Spot) };
    let used = InUse { entries: std::iter::once((full.key(), 1)).collect(), ..InUse::default() };
    let listed = deployment(vec![entry("*", "us-west4-a", Spot), entry("*", "us-central1-a", Spot), full]);
    assert_eq!(choice(&job, &listed, &used), ("us-west4-a".into(), Via::QueuedResource));
}

proptest! {
    #[test]
    fn a_choice_is_free_or_in_the_future_or_final(
        states in proptest::collection::vec((0_usize..3, 0_usize..4, -600_i64..600), 0..8),
    ) {
        let zones = ["us-west4-a", "us-central1-a", "us-south1-a"];
        let mut job = three_zones();
        let mut reports = Vec::new();
        for (zone, sort, seconds) in states {
            match sort {
                0 => job.barred.push(barred(zones[zone], CreateErrorKind::NotOffered, None)),
                1 => job.barred.push(barred(zones[zone], CreateErrorKind::Stockout, Some(at(seconds)))),
                _ => reports.push(report(zones[zone], CreateErrorKind::Quota, at(seconds))),
            }
        }
        let held = |zone: &str| {
            job.barred.iter().any(|b| b.placement.zone == zone && b.until.is_none_or(|until| until > noon()))
                || reports.iter().any(|r| r.placement.zone == zone && r.cool_until > noon())
        };
        let for_good = |zone: &str| job.barred.iter().any(|b| b.placement.zone == zone && b.until.is_none());
        match choose_now(&job, &reports) {
            Choice::Go { candidate, .. } => {
                let first = zones.iter().find(|zone| !held(zone));
                prop_assert_eq!(Some(&candidate.placement.zone.as_str()), first);
            }
            Choice::Wait { until, .. } => {
                prop_assert!(zones.iter().all(|zone| held(zone)) && until > noon());
                // When it comes, something is free.
                let then = choose(&job, &open_deployment(), &reports, &InUse::default(), until, &Settings::default());
                prop_assert!(matches!(then, Choice::Go { .. }), "{:?}", then);
            }
            Choice::Never { .. } => prop_assert!(zones.iter().all(|zone| for_good(zone))),
        }
    }
}
