//! The list over all zones: pages, unreachable zones, owners.

use rekindle_core::job::Via;
use rekindle_core::observation::SliceState;
use rekindle_ports::tpu::{Listed, Listing, TpuApi, TpuError};
use serde_json::{Value, json};

use super::{Fake, sample};

const NODES: &str = "GET /v2/projects/demo-proj/locations/-/nodes";
const QUEUED: &str = "GET /v2/projects/demo-proj/locations/-/queuedResources";

async fn list(fake: &Fake) -> Listing {
    fake.client().await.list().await.unwrap()
}

fn entry<'a>(listing: &'a Listing, name: &str, via: Via) -> &'a Listed {
    let found = listing.resources.iter().find(|listed| listed.slice.name == name && listed.slice.via == via);
    found.unwrap_or_else(|| panic!("{name} is not in {listing:?}"))
}

#[tokio::test]
async fn nothing_is_nothing() {
    let fake = Fake::default();
    fake.on(NODES, 200, &sample("list-nodes-empty")).on(QUEUED, 200, &json!({}));
    assert_eq!(list(&fake).await, Listing::default());
}

#[tokio::test]
async fn all_pages_of_both_kinds_are_read() {
    let fake = Fake::default();
    let token = sample("list-nodes-page1")["nextPageToken"].as_str().unwrap().to_owned();
    fake.on(NODES, 200, &sample("list-nodes-page1"));
    fake.on(&format!("{NODES}?pageToken={token}"), 200, &sample("list-nodes-page2"));
    let mut first = sample("list-queuedresources");
    let second = json!({ "queuedResources": [first["queuedResources"].as_array_mut().unwrap().pop().unwrap()] });
    first["nextPageToken"] = json!("more");
    fake.on(QUEUED, 200, &first).on(&format!("{QUEUED}?pageToken=more"), 200, &second);
    let listing = list(&fake).await;

    let names: Vec<&str> = listing.resources.iter().map(|listed| listed.slice.name.as_str()).collect();
    assert_eq!(names, ["job-7f3a-a1", "job-81bc-a2", "job-9d20-a1", "qr-7f3a", "qr-81bc"]);
    assert!(listing.unreachable.is_empty());
    let states = [
        ("job-7f3a-a1", Via::Node, SliceState::Ready),
        ("job-81bc-a2", Via::Node, SliceState::Creating),
        ("job-9d20-a1", Via::Node, SliceState::Preempted),
        ("qr-7f3a", Via::QueuedResource, SliceState::InTransition("ACTIVE, and the node of slice 0 is absent".into())),
        ("qr-81bc", Via::QueuedResource, SliceState::Preempted),
    ];
    for (name, via, state) in states {
        let listed = entry(&listing, name, via);
        assert_eq!(listed.view.state, state, "{name}");
        assert_eq!(listed.slice.zone, "us-central2-b", "{name}");
        assert_eq!(listed.accelerator, "v4-32", "{name}");
        assert!(listed.preemptible, "{name}");
        assert_eq!(listed.owned_by, None, "{name}");
        assert!(listed.created_at.is_some(), "{name}");
    }
}

#[tokio::test]
async fn zones_that_could_not_be_read_are_told_once() {
    let fake = Fake::default();
    let first = json!({ "unreachable": ["projects/demo-proj/locations/us-east5-a"], "nextPageToken": "t" });
    fake.on(NODES, 200, &first);
    fake.on(&format!("{NODES}?pageToken=t"), 200, &json!({ "unreachable": ["europe-west4-a"] }));
    fake.on(QUEUED, 200, &json!({ "unreachable": ["projects/123456789012/locations/us-east5-a"] }));
    assert_eq!(list(&fake).await.unreachable, ["europe-west4-a", "us-east5-a"]);
}

#[tokio::test]
async fn nodes_of_queued_resources_name_their_owner() {
    let fake = Fake::default();
    // One node says whose it is, the other one is named by the queued resource only.
    let mut told = sample("node-ready-multislice");
    told["queuedResource"] = json!("projects/123456789012/locations/us-central2-b/queuedResources/train");
    let mut untold = told.clone();
    untold["name"] = json!("projects/123456789012/locations/us-central2-b/nodes/train-1");
    untold["queuedResource"] = Value::Null;
    let mut elsewhere = untold.clone();
    elsewhere["name"] = json!("projects/123456789012/locations/us-east5-a/nodes/train-1");
    fake.on(NODES, 200, &json!({ "nodes": [told, untold, elsewhere] }));
    fake.on(QUEUED, 200, &json!({ "queuedResources": [sample("qr-active-multislice")] }));
    let listing = list(&fake).await;
    let owners: Vec<_> = listing
        .resources
        .iter()
        .map(|listed| (listed.slice.zone.as_str(), listed.slice.name.as_str(), listed.owned_by.as_deref()))
        .collect();
    let expected = [
        ("us-central2-b", "train", None),
        ("us-central2-b", "train-0", Some("train")),
        ("us-central2-b", "train-1", Some("train")),
        ("us-east5-a", "train-1", None),
    ];
    assert_eq!(owners, expected);
    let queued = entry(&listing, "train", Via::QueuedResource);
    assert_eq!((&queued.view.state, queued.view.addresses.len()), (&SliceState::Ready, 0), "a list tells no addresses");
}

#[tokio::test]
async fn accelerators_are_told_however_they_were_asked_for() {
    let fake = Fake::default();
    let mut by_config = sample("node-ready");
    by_config["acceleratorType"] = Value::Null;
    by_config["schedulingConfig"] = Value::Null;
    let mut odd = by_config.clone();
    odd["name"] = json!("projects/demo-proj/locations/us-central2-b/nodes/odd");
    odd["acceleratorConfig"] = json!({ "type": "V9", "topology": "1x1" });
    let nameless = json!({ "state": "READY" });
    fake.on(NODES, 200, &json!({ "nodes": [by_config, odd, nameless] })).on(QUEUED, 200, &json!({}));
    let listing = list(&fake).await;
    assert_eq!(listing.resources.len(), 2, "a node without a name is nobody's");
    let node = entry(&listing, "job-7f3a-a1", Via::Node);
    assert_eq!((node.accelerator.as_str(), node.preemptible), ("v4-32", false));
    assert_eq!(entry(&listing, "odd", Via::Node).accelerator, "V9 1x1");
}

#[tokio::test]
async fn half_a_list_is_none() {
    let fake = Fake::default();
    fake.on(NODES, 200, &sample("list-nodes-page1"));
    let token = sample("list-nodes-page1")["nextPageToken"].as_str().unwrap().to_owned();
    fake.on_sample(&format!("{NODES}?pageToken={token}"), "http-503-unavailable");
    fake.on(QUEUED, 200, &json!({}));
    let listing = fake.client().await.list().await;
    assert!(matches!(listing, Err(TpuError::Unclear(_))), "{listing:?}");
}

#[tokio::test]
async fn a_server_that_repeats_itself_does_not_hold_us() {
    let fake = Fake::default();
    let page = json!({ "nextPageToken": "t" });
    fake.on(NODES, 200, &page).on(&format!("{NODES}?pageToken=t"), 200, &page).on(QUEUED, 200, &json!({}));
    let listing = fake.client().await.list().await;
    assert!(matches!(listing, Err(TpuError::Unclear(_))), "{listing:?}");
}
