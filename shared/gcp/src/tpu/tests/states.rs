//! Every state of nodes and queued resources, by name and by number.

use rekindle_core::job::Via;
use rekindle_core::observation::{Health, Made, SliceLabels, SliceState, SliceView};
use rekindle_ports::tpu::{SliceRef, TpuApi, TpuError};
use serde_json::{Value, json};

use super::{Fake, node_in, node_path, queued_path, sample, slice};
use crate::tpu::GoogleTpu;

async fn read(client: &GoogleTpu, slice: &SliceRef) -> SliceView {
    client.get(slice).await.unwrap().unwrap()
}

fn transition(name: &str) -> SliceState {
    SliceState::InTransition(name.into())
}

#[tokio::test]
async fn states_of_nodes() {
    // Name and number of `google.cloud.tpu.v2.Node.State`. There is no 7.
    let rows = [
        ("STATE_UNSPECIFIED", 0, SliceState::Unspecified),
        ("CREATING", 1, SliceState::Creating),
        ("READY", 2, SliceState::Ready),
        ("RESTARTING", 3, transition("RESTARTING")),
        ("REIMAGING", 4, transition("REIMAGING")),
        ("DELETING", 5, SliceState::Deleting),
        ("REPAIRING", 6, transition("REPAIRING")),
        ("STOPPED", 8, SliceState::Stopped),
        ("STOPPING", 9, transition("STOPPING")),
        ("STARTING", 10, transition("STARTING")),
        ("PREEMPTED", 11, SliceState::Preempted),
        ("TERMINATED", 12, SliceState::Terminated),
        ("HIDING", 13, transition("HIDING")),
        ("HIDDEN", 14, transition("HIDDEN")),
        ("UNHIDING", 15, transition("UNHIDING")),
        ("UNKNOWN", 16, transition("UNKNOWN")),
        ("SOME_FUTURE_STATE", 99, SliceState::Unrecognized("SOME_FUTURE_STATE".into())),
    ];
    let fake = Fake::default();
    let client = fake.client().await;
    let node = slice("job-7f3a-a1", Via::Node);
    for (name, number, expected) in rows {
        fake.on(&format!("GET {}", node_path(&node.name)), 200, &node_in(&json!(name)));
        let view = read(&client, &node).await;
        assert_eq!(view.state, expected, "{name}");
        assert_eq!(view.ended, matches!(name, "PREEMPTED" | "TERMINATED" | "STOPPED"), "{name}");
        assert_eq!(view.addresses.is_empty(), expected != SliceState::Ready, "{name}: addresses only when READY");
        fake.on(&format!("GET {}", node_path(&node.name)), 200, &node_in(&json!(number)));
        let expected = if number == 99 { SliceState::Unrecognized("99".into()) } else { expected };
        assert_eq!(read(&client, &node).await.state, expected, "{number}");
    }
    let mut silent = node_in(&Value::Null);
    silent.as_object_mut().unwrap().remove("state");
    fake.on(&format!("GET {}", node_path(&node.name)), 200, &silent);
    assert_eq!(read(&client, &node).await.state, SliceState::Unspecified, "a state that is left out is 0");
}

#[tokio::test]
async fn every_node_sample_is_read() {
    let rows = [
        ("node-creating", SliceState::Creating),
        ("node-deleting", SliceState::Deleting),
        ("node-hidden", transition("HIDDEN")),
        ("node-preempted", SliceState::Preempted),
        ("node-ready", SliceState::Ready),
        ("node-ready-multislice", SliceState::Ready),
        ("node-ready-symptoms", SliceState::Ready),
        ("node-ready-unhealthy_maintenance", SliceState::Ready),
        ("node-ready-upcoming_maintenance", SliceState::Ready),
        ("node-reimaging", transition("REIMAGING")),
        ("node-repairing", transition("REPAIRING")),
        ("node-restarting", transition("RESTARTING")),
        ("node-starting", transition("STARTING")),
        ("node-stopped", SliceState::Stopped),
        ("node-stopping", transition("STOPPING")),
        ("node-terminated", SliceState::Terminated),
        ("node-unknown", transition("UNKNOWN")),
    ];
    let fake = Fake::default();
    let client = fake.client().await;
    let node = slice("n", Via::Node);
    for (file, expected) in rows {
        fake.on(&format!("GET {}", node_path("n")), 200, &sample(file));
        let view = read(&client, &node).await;
        assert_eq!(view.state, expected, "{file}");
        assert_eq!(view.created_at, Some("2026-11-20T10:15:04.617285Z".parse().unwrap()), "{file}");
    }
}

#[tokio::test]
async fn a_ready_node_tells_its_workers_in_order() {
    let fake = Fake::default();
    let mut node = sample("node-ready");
    node["labels"] = json!({
        "managed-by": "rekindle", "rekindle-installation": "abc123", "rekindle-job": "llama",
        "rekindle-generation": "3", "rekindle-spec": "0123",
    });
    fake.on(&format!("GET {}", node_path("n")), 200, &node);
    let view = read(&fake.client().await, &slice("n", Via::Node)).await;
    let workers = ["10.130.0.2", "10.130.0.3", "10.130.0.4", "10.130.0.5"].map(str::to_owned).to_vec();
    let labels =
        SliceLabels { installation: "abc123".into(), job: "llama".into(), generation: "3".into(), spec: "0123".into() };
    let expected = SliceView {
        state: SliceState::Ready,
        ended: false,
        health: Health::Healthy,
        addresses: vec![workers].into(),
        labels,
        created_at: view.created_at,
        error: None,
        note: None,
        made: vec![Made { accelerator: Some("v4-32".into()), topology: Some("2x2x4".into()), preemptible: Some(true) }],
    };
    assert_eq!(view, expected);
}

#[tokio::test]
async fn a_ready_node_without_addresses_has_none_to_give() {
    let fake = Fake::default();
    let client = fake.client().await;
    for endpoints in [Value::Null, json!([]), json!([{ "port": 8470 }])] {
        let mut node = sample("node-ready");
        node["networkEndpoints"] = endpoints;
        fake.on(&format!("GET {}", node_path("n")), 200, &node);
        let view = read(&client, &slice("n", Via::Node)).await;
        assert_eq!((view.state, view.addresses.into_inner()), (SliceState::Ready, vec![]));
    }
}

#[tokio::test]
async fn health_by_name_and_number() {
    let rows = [
        ("HEALTH_UNSPECIFIED", 0, Health::Healthy),
        ("HEALTHY", 1, Health::Healthy),
        ("TIMEOUT", 3, Health::Unhealthy("TIMEOUT".into())),
        ("UNHEALTHY_TENSORFLOW", 4, Health::Unhealthy("UNHEALTHY_TENSORFLOW".into())),
        ("UNHEALTHY_MAINTENANCE", 5, Health::Maintenance),
    ];
    let fake = Fake::default();
    let client = fake.client().await;
    for (name, number, expected) in rows {
        for value in [json!(name), json!(number)] {
            let mut node = sample("node-ready");
            node["health"] = value.clone();
            fake.on(&format!("GET {}", node_path("n")), 200, &node);
            assert_eq!(read(&client, &slice("n", Via::Node)).await.health, expected, "{value}");
        }
    }
    let mut node = sample("node-ready");
    node["health"] = json!("TOO_HOT");
    fake.on(&format!("GET {}", node_path("n")), 200, &node);
    assert_eq!(read(&client, &slice("n", Via::Node)).await.health, Health::Unhealthy("TOO_HOT".into()));
}

#[tokio::test]
async fn notes_tell_what_the_api_adds_in_words() {
    let fake = Fake::default();
    let client = fake.client().await;
    let rows = [
        ("node-ready", None),
        (
            "node-ready-upcoming_maintenance",
            Some("maintenance PENDING (SCHEDULED) from 2026-12-04T18:00:00Z to 2026-12-04T20:00:00Z"),
        ),
        (
            "node-ready-unhealthy_maintenance",
            Some(
                "The TPU had a maintenance event; \
                 maintenance ONGOING (SCHEDULED) from 2026-11-27T18:00:00Z to 2026-11-27T20:00:00Z",
            ),
        ),
        (
            "node-ready-symptoms",
            Some(
                "worker 0: EXECUTE_TIMED_OUT (program did not finish); \
                 worker 2: HBM_OUT_OF_MEMORY (HBM exhausted on one chip)",
            ),
        ),
    ];
    for (file, expected) in rows {
        fake.on(&format!("GET {}", node_path("n")), 200, &sample(file));
        assert_eq!(read(&client, &slice("n", Via::Node)).await.note.as_deref(), expected, "{file}");
    }
}

#[tokio::test]
async fn states_of_queued_resources() {
    let rows = [
        ("qr-creating", SliceState::Queued),
        ("qr-accepted", SliceState::Queued),
        ("qr-waiting_for_resources", SliceState::Queued),
        ("qr-waiting_for_resources-with_policy", SliceState::Queued),
        ("qr-provisioning", SliceState::Creating),
        ("qr-suspending-service", SliceState::Preempted),
        ("qr-suspended-service", SliceState::Preempted),
        ("qr-suspended-user", SliceState::Stopped),
        ("qr-failed-capacity", SliceState::Failed),
        ("qr-deleting", SliceState::Deleting),
    ];
    let fake = Fake::default();
    let client = fake.client().await;
    for (file, expected) in rows {
        fake.on(&format!("GET {}", queued_path("qr-7f3a")), 200, &sample(file));
        let view = read(&client, &slice("qr-7f3a", Via::QueuedResource)).await;
        assert_eq!(view.state, expected, "{file}");
        assert_eq!(view.error.is_some(), expected == SliceState::Failed, "{file}");
        assert_eq!(view.ended, file.starts_with("qr-suspended"), "{file}: while it is SUSPENDING machines may be on");
        assert!(view.addresses.is_empty(), "{file}");
        assert_eq!(view.created_at, Some("2026-11-20T10:14:58.200613Z".parse().unwrap()), "{file}");
    }
    let nodes_asked = fake.seen().iter().filter(|seen| seen.target.contains("/nodes/")).count();
    assert_eq!(nodes_asked, 0, "no node is asked for before ACTIVE");
}

#[tokio::test]
async fn states_of_queued_resources_by_number_and_from_the_future() {
    let rows = [
        (json!({ "state": 9 }), SliceState::Queued),
        (json!({ "state": 3 }), SliceState::Creating),
        (json!({ "state": 8, "stateInitiator": 2 }), SliceState::Preempted),
        (json!({ "state": 7, "stateInitiator": 1 }), SliceState::Stopped),
        (json!({ "state": 8 }), SliceState::Stopped),
        (json!({ "state": 4 }), SliceState::Failed),
        (json!({ "state": "BETTER_QUEUE" }), SliceState::Unrecognized("BETTER_QUEUE".into())),
        (json!({ "state": 77 }), SliceState::Unrecognized("77".into())),
        (json!({}), SliceState::Unspecified),
        (Value::Null, SliceState::Unspecified),
    ];
    let fake = Fake::default();
    let client = fake.client().await;
    for (state, expected) in rows {
        let mut queued = sample("qr-creating");
        queued["state"] = state.clone();
        fake.on(&format!("GET {}", queued_path("q")), 200, &queued);
        assert_eq!(read(&client, &slice("q", Via::QueuedResource)).await.state, expected, "{state}");
    }
}

#[tokio::test]
async fn an_active_queued_resource_is_as_good_as_its_worst_node() {
    let ready = || Some(json!("READY"));
    let rows = [
        ([ready(), ready()], SliceState::Ready),
        ([ready(), Some(json!("CREATING"))], SliceState::Creating),
        ([ready(), Some(json!("REPAIRING"))], transition("REPAIRING")),
        ([ready(), Some(json!("STATE_UNSPECIFIED"))], SliceState::Unspecified),
        ([Some(json!("STATE_UNSPECIFIED")), Some(json!("REPAIRING"))], transition("REPAIRING")),
        ([Some(json!("PREEMPTED")), ready()], SliceState::Preempted),
        ([Some(json!("DELETING")), Some(json!("PREEMPTED"))], SliceState::Preempted),
        ([Some(json!("TERMINATED")), ready()], SliceState::Terminated),
        ([ready(), Some(json!("STOPPED"))], SliceState::Stopped),
        ([ready(), Some(json!("ODD"))], SliceState::Unrecognized("ODD".into())),
        ([ready(), None], transition("ACTIVE, and the node of slice 1 is absent")),
        ([None, Some(json!("PREEMPTED"))], SliceState::Preempted),
        ([Some(json!("STOPPED")), Some(json!("PREEMPTED"))], SliceState::Preempted),
    ];
    let client_of = Fake::default();
    let client = client_of.client().await;
    client_of.on(&format!("GET {}", queued_path("train")), 200, &sample("qr-active-multislice"));
    for (states, expected) in rows {
        for (index, state) in states.iter().enumerate() {
            let call = format!("GET {}", node_path(&format!("train-{index}")));
            match state {
                Some(state) => client_of.on(&call, 200, &node_in(state)),
                None => client_of.on_sample(&call, "http-404-node"),
            };
        }
        let view = read(&client, &slice("train", Via::QueuedResource)).await;
        assert_eq!(view.state, expected, "{states:?}");
        let all_ended = states[0] == Some(json!("STOPPED"));
        assert_eq!(view.ended, all_ended, "{states:?}: the worst state says so of one node, an absent one of none");
        let slices = if expected == SliceState::Ready { 2 } else { 0 };
        assert_eq!(view.addresses.len(), slices, "{states:?}: all slices or none");
    }
}

#[tokio::test]
async fn a_node_that_cannot_be_read_leaves_its_queued_resource_unknown() {
    let fake = Fake::default();
    fake.on(&format!("GET {}", queued_path("train")), 200, &sample("qr-active-multislice"));
    fake.on(&format!("GET {}", node_path("train-0")), 200, &sample("node-ready-multislice"));
    fake.on_sample(&format!("GET {}", node_path("train-1")), "http-503-unavailable");
    let read = fake.client().await.get(&slice("train", Via::QueuedResource)).await;
    assert!(matches!(read, Err(TpuError::Unclear(_))), "{read:?}");
}

#[tokio::test]
async fn an_active_queued_resource_adds_up_its_nodes() {
    let fake = Fake::default();
    let mut queued = sample("qr-active-multislice");
    for index in 0..2 {
        queued["tpu"]["nodeSpec"][index]["node"]["labels"] = json!({ "rekindle-job": "train", "rekindle-spec": "01" });
        let mut node = sample("node-ready-multislice");
        node["networkEndpoints"] = json!([{ "ipAddress": format!("10.0.{index}.1") }]);
        node["health"] = json!(["HEALTHY", "UNHEALTHY_MAINTENANCE"][index]);
        node["healthDescription"] = json!(["", "being mended"][index]);
        fake.on(&format!("GET {}", node_path(&format!("train-{index}"))), 200, &node);
    }
    fake.on(&format!("GET {}", queued_path("train")), 200, &queued);
    let view = read(&fake.client().await, &slice("train", Via::QueuedResource)).await;
    assert_eq!(view.state, SliceState::Ready);
    assert_eq!(view.health, Health::Maintenance);
    assert_eq!(*view.addresses, [["10.0.0.1"], ["10.0.1.1"]]);
    assert_eq!((view.labels.job.as_str(), view.labels.spec.as_str()), ("train", "01"));
    assert_eq!(view.note.as_deref(), Some("slice 1: being mended"));
}

#[tokio::test]
async fn nodes_of_a_queued_resource_that_is_not_expanded_are_numbered() {
    let fake = Fake::default();
    let mut queued = sample("qr-active-multislice");
    let spec = json!({ "parent": "p", "node": {}, "multisliceParams": { "nodeCount": 2 } });
    queued["tpu"]["nodeSpec"] = json!([spec]);
    fake.on(&format!("GET {}", queued_path("train")), 200, &queued);
    for index in 0..2 {
        fake.on(&format!("GET {}", node_path(&format!("train-{index}"))), 200, &sample("node-ready-multislice"));
    }
    let view = read(&fake.client().await, &slice("train", Via::QueuedResource)).await;
    assert_eq!((view.state, view.addresses.len()), (SliceState::Ready, 2));
}

#[tokio::test]
async fn what_was_made_is_told_as_far_as_the_api_tells_it() {
    let fake = Fake::default();
    let client = fake.client().await;
    let told = |accelerator: &str, topology: &str, preemptible| Made {
        accelerator: Some(accelerator.into()).filter(|text: &String| !text.is_empty()),
        topology: Some(topology.into()).filter(|text: &String| !text.is_empty()),
        preemptible,
    };
    let rows = [
        (json!({ "schedulingConfig": { "preemptible": true } }), told("v4-32", "2x2x4", Some(true))),
        (json!({ "schedulingConfig": {} }), told("v4-32", "2x2x4", Some(false))),
        (json!({ "schedulingConfig": null }), told("v4-32", "2x2x4", None)),
        (json!({ "acceleratorType": "v4-8", "acceleratorConfig": null }), told("v4-8", "", Some(true))),
        (json!({ "acceleratorType": null }), told("v4-32", "2x2x4", Some(true))),
        (json!({ "acceleratorType": null, "acceleratorConfig": null }), told("", "", Some(true))),
    ];
    for (fields, expected) in rows {
        let mut node = sample("node-ready");
        for (key, value) in fields.as_object().unwrap() {
            node[key] = value.clone();
        }
        fake.on(&format!("GET {}", node_path("n")), 200, &node);
        assert_eq!(read(&client, &slice("n", Via::Node)).await.made, [expected], "{fields}");
    }
    // The tier stands at the queued resource.
    fake.on(&format!("GET {}", queued_path("train")), 200, &sample("qr-active-multislice"));
    for index in 0..2 {
        let mut node = sample("node-ready-multislice");
        node["acceleratorType"] = json!(["v4-16", "v4-8"][index]);
        node["schedulingConfig"] = json!({});
        fake.on(&format!("GET {}", node_path(&format!("train-{index}"))), 200, &node);
    }
    let made = read(&client, &slice("train", Via::QueuedResource)).await.made;
    let told: Vec<_> = made.iter().map(|m| (m.accelerator.as_deref(), m.preemptible)).collect();
    assert_eq!(told, [(Some("v4-16"), None), (Some("v4-8"), None)]);
}
