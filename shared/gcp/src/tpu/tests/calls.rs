//! What is sent, and what the plain answers become.

use std::time::Duration;

use rekindle_core::job::Via;
use rekindle_core::spec::CapacityKind;
use rekindle_ports::tpu::{TpuApi, TpuError};
use serde_json::{Value, json};

use super::{Fake, ZONE, create_request, node_path, operation, queued_path, sample, slice};
use crate::auth::Service;
use crate::tpu::GoogleTpu;

fn nodes() -> String {
    format!("POST /v2/projects/demo-proj/locations/{ZONE}/nodes")
}

fn queued_resources() -> String {
    format!("POST /v2/projects/demo-proj/locations/{ZONE}/queuedResources")
}

/// Value of a query parameter of a request.
fn query<'a>(target: &'a str, key: &str) -> Option<&'a str> {
    let (_, query) = target.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
}

#[tokio::test]
async fn a_spot_node_is_asked_for_with_our_labels() {
    let fake = Fake::default();
    fake.on(&nodes(), 200, &operation("op1"));
    let client = fake.client().await;
    let name = client.create(&create_request()).await.unwrap();
    assert_eq!(name, format!("projects/demo-proj/locations/{ZONE}/operations/op1"));

    let seen = fake.seen();
    assert_eq!(seen.len(), 1, "one request, no waiting for the operation: {seen:?}");
    assert_eq!(query(&seen[0].target, "nodeId"), Some("rk-abc123-llama-g1-7f3a"));
    assert!(!seen[0].authorization, "an emulator gets no token");
    let body = &seen[0].body;
    assert_eq!(body["acceleratorType"], "v4-32");
    assert_eq!(body["acceleratorConfig"], Value::Null);
    assert_eq!(body["runtimeVersion"], "tpu-ubuntu2204-base");
    assert_eq!(body["networkConfig"], json!({ "network": "default", "enableExternalIps": true }));
    assert_eq!(body["schedulingConfig"], json!({ "spot": true }));
    assert_eq!(body["tags"], json!(["tpu"]));
    assert_eq!(body["metadata"], json!({ "startup-script": "#!/bin/bash\n" }));
    let labels = json!({
        "managed-by": "rekindle", "team": "research", "rekindle-installation": "abc123", "rekindle-job": "llama",
        "rekindle-generation": "1", "rekindle-spec": "0123456789ab",
    });
    assert_eq!(body["labels"], labels, "ours cannot be replaced by the job's");
}

#[tokio::test]
async fn each_kind_of_capacity_is_asked_for_in_its_own_way() {
    let rows = [
        (CapacityKind::Spot, json!({ "spot": true })),
        (CapacityKind::Preemptible, json!({ "preemptible": true })),
        (CapacityKind::Reserved, json!({ "reserved": true })),
        (CapacityKind::OnDemand, Value::Null),
    ];
    let fake = Fake::default();
    fake.on(&nodes(), 200, &operation("op1"));
    let client = fake.client().await;
    for (capacity, expected) in rows {
        let mut request = create_request();
        request.placement.capacity = capacity;
        client.create(&request).await.unwrap();
        assert_eq!(fake.seen().last().unwrap().body["schedulingConfig"], expected, "{capacity:?}");
    }
}

#[tokio::test]
async fn a_special_topology_replaces_the_accelerator_type() {
    let fake = Fake::default();
    fake.on(&nodes(), 200, &operation("op1"));
    let client = fake.client().await;
    let mut request = create_request();
    request.topology = Some("2x2x4".into());
    request.service_account = Some("w@demo-proj.iam.gserviceaccount.com".into());
    request.subnetwork = Some("sub".into());
    client.create(&request).await.unwrap();
    let body = fake.seen()[0].body.clone();
    assert_eq!(body["acceleratorType"], Value::Null);
    // The client writes enumerations as numbers; 7 is V4.
    assert_eq!(body["acceleratorConfig"], json!({ "type": 7, "topology": "2x2x4" }));
    assert_eq!(body["networkConfig"]["subnetwork"], "sub");
    assert_eq!(body["serviceAccount"]["email"], "w@demo-proj.iam.gserviceaccount.com");
    assert_eq!(body["serviceAccount"]["scope"], json!(["https://www.googleapis.com/auth/cloud-platform"]));
}

#[tokio::test]
async fn a_queued_resource_is_asked_for_as_googles_own_tool_does() {
    let fake = Fake::default();
    fake.on(&queued_resources(), 200, &operation("op2"));
    let client = fake.client().await;
    let mut request = create_request();
    request.via = Via::QueuedResource;
    assert_eq!(client.create(&request).await.unwrap(), operation("op2")["name"].as_str().unwrap());
    let seen = fake.seen();
    assert_eq!(query(&seen[0].target, "queuedResourceId"), Some("rk-abc123-llama-g1-7f3a"));
    assert_eq!(query(&seen[0].target, "requestId"), Some("6f0d7e1e-3f0a-4a0e-9a86-0a7c6a2f1b11"));
    let (ours, theirs) = (&seen[0].body, &sample("request-create-qr-spot")["body"]);
    assert_eq!(ours["spot"], theirs["spot"]);
    let (ours, theirs) = (&ours["tpu"]["nodeSpec"][0], &theirs["tpu"]["nodeSpec"][0]);
    assert_eq!(ours["parent"], theirs["parent"]);
    assert_eq!(ours["nodeId"], "rk-abc123-llama-g1-7f3a");
    for field in ["acceleratorType", "runtimeVersion", "networkConfig"] {
        assert_eq!(ours["node"][field], theirs["node"][field], "{field}");
    }
    assert_eq!(ours["node"]["schedulingConfig"], Value::Null, "spot stands at the queued resource");
    assert_eq!(ours["node"]["labels"]["rekindle-installation"], "abc123");
}

#[tokio::test]
async fn several_slices_are_numbered_by_the_api() {
    let fake = Fake::default();
    fake.on(&queued_resources(), 200, &operation("op2"));
    let client = fake.client().await;
    let mut request = create_request();
    (request.via, request.slices, request.name) = (Via::QueuedResource, 2, "train".into());
    client.create(&request).await.unwrap();
    let theirs = sample("request-create-qr-multislice");
    let seen = fake.seen();
    let (ours, theirs) = (&seen[0].body["tpu"]["nodeSpec"][0], &theirs["body"]["tpu"]["nodeSpec"][0]);
    assert_eq!(ours["multisliceParams"], theirs["multisliceParams"]);
    assert_eq!(ours["nodeId"], Value::Null);

    request.via = Via::Node;
    let refused = client.create(&request).await;
    assert!(matches!(refused, Err(TpuError::Bad(_))), "{refused:?}");
    assert_eq!(fake.seen().len(), 1, "two slices are never asked for as a node");
}

#[tokio::test]
async fn a_reservation_is_named_in_full() {
    let fake = Fake::default();
    fake.on(&queued_resources(), 200, &operation("op2"));
    let client = fake.client().await;
    let rows = [
        (None, format!("projects/demo-proj/locations/{ZONE}/reservations/-")),
        (Some("mine"), format!("projects/demo-proj/locations/{ZONE}/reservations/mine")),
        (Some("projects/x/locations/y/reservations/z"), "projects/x/locations/y/reservations/z".to_owned()),
    ];
    for (reservation, expected) in rows {
        let mut request = create_request();
        request.via = Via::QueuedResource;
        request.placement.capacity = CapacityKind::Reserved;
        request.reservation = reservation.map(str::to_owned);
        client.create(&request).await.unwrap();
        let body = fake.seen().last().unwrap().body.clone();
        assert_eq!(body["reservationName"], expected.as_str());
        let node = &body["tpu"]["nodeSpec"][0]["node"];
        assert!(node.is_object() && node.get("schedulingConfig").is_none(), "as gcloud asks for it: {node}");
        assert_eq!(body["spot"], Value::Null);
    }
}

#[tokio::test]
async fn deletes_answer_their_operation_and_force_queued_resources() {
    let fake = Fake::default();
    fake.on(&format!("DELETE {}", node_path("n1")), 200, &sample("op-delete-done"));
    fake.on(&format!("DELETE {}", queued_path("q1")), 200, &sample("op-qr-delete-done"));
    let client = fake.client().await;
    let name = client.delete(&slice("n1", Via::Node)).await.unwrap();
    assert_eq!(name, sample("op-delete-done")["name"].as_str().unwrap());
    client.delete(&slice("q1", Via::QueuedResource)).await.unwrap();
    assert_eq!(query(&fake.seen()[1].target, "force"), Some("true"));
    let missing = client.delete(&slice("gone", Via::Node)).await;
    assert_eq!(missing, Err(TpuError::NotFound));
}

#[tokio::test]
async fn operations_are_read_once_in_all_their_forms() {
    let fake = Fake::default();
    let client = fake.client().await;
    for (file, done) in [
        ("op-create-pending", false),
        ("op-create-pending-done_absent", false),
        ("op-create-done", true),
        ("op-create-done-minimal", true),
        ("op-qr-create-done", true),
        ("op-delete-done", true),
    ] {
        let body = sample(file);
        let name = body["name"].as_str().unwrap();
        fake.on(&format!("GET /v2/{name}"), 200, &body);
        let view = client.operation(name).await.unwrap().unwrap();
        assert_eq!((view.done, view.error), (done, None), "{file}");
    }
    assert_eq!(fake.seen().len(), 6, "each is read once");
    let unknown = client.operation(&format!("projects/demo-proj/locations/{ZONE}/operations/none")).await;
    assert_eq!(unknown, Ok(None));
    assert!(matches!(client.operation("no operation").await, Err(TpuError::Bad(_))));
}

#[tokio::test]
async fn an_operation_by_the_projects_number_is_read_as_named() {
    let fake = Fake::default();
    let name = format!("projects/123456789012/locations/{ZONE}/operations/op9");
    fake.on(&format!("GET /v2/{name}"), 200, &json!({ "name": name, "done": true }));
    assert!(fake.client().await.operation(&name).await.unwrap().unwrap().done);
}

#[tokio::test]
async fn an_answer_without_an_operation_is_unclear() {
    let fake = Fake::default();
    fake.on(&nodes(), 200, &json!({}));
    let answer = fake.client().await.create(&create_request()).await;
    assert!(matches!(answer, Err(TpuError::Unclear(_))), "{answer:?}");
}

#[tokio::test]
async fn no_connection_is_unclear_and_is_not_tried_again() {
    // Bound and not listening: the port is ours, and every connection to it is refused.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let client = GoogleTpu::new("demo-proj", Service::emulator(&address));
    for answer in [
        client.get(&slice("n1", Via::Node)).await.map(|_| ()),
        client.list().await.map(|_| ()),
        client.create(&create_request()).await.map(|_| ()),
    ] {
        let Err(TpuError::Unclear(why)) = answer else { panic!("{answer:?}") };
        assert!(why.to_lowercase().contains("connect"), "{why}");
    }
}

#[tokio::test]
async fn no_answer_in_time_is_unclear() {
    // Connections wait in the backlog; nobody ever answers them.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let service = Service::emulator(&address).with_timeout(Duration::from_millis(100));
    let client = GoogleTpu::new("demo-proj", service);
    for answer in [
        client.get(&slice("n1", Via::Node)).await.map(|_| ()),
        client.create(&create_request()).await.map(|_| ()),
        client.delete(&slice("n1", Via::Node)).await.map(|_| ()),
    ] {
        assert!(matches!(answer, Err(TpuError::Unclear(_))), "{answer:?}");
    }
}
