//! What the provider does to nodes.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use base64::Engine as _;
use serde_json::{Value, json};

use crate::bench::{Bench, ZONE, nodes, processes_with, spot};

#[tokio::test(flavor = "multi_thread")]
async fn a_preemption_comes_in_every_shape() {
    for (leave, shows, mark) in [
        ("PREEMPTED", Some("PREEMPTED"), "7301"),
        ("TERMINATED", Some("TERMINATED"), "7302"),
        ("STOPPED", Some("STOPPED"), "7303"),
        ("READY", Some("READY"), "7304"),
        ("GONE", None, "7305"),
    ] {
        let bench = Bench::scenario("defaults: {quota: {v5litepod: 16}, capacity: {v5litepod: 16}}").await;
        bench.ready("n1", spot("v5litepod-16", &format!("trap '' TERM; setsid sleep 1000.{mark} & wait"))).await;
        bench.until("all run", || async { processes_with(&format!("1000.{mark}")).len() == 4 }).await;
        bench.admin("nodes/n1/preempt", json!({"notice": "2s", "leave": leave})).await;
        assert_eq!(bench.node("n1").await.1["state"], "READY");
        assert_eq!(processes_with(&format!("1000.{mark}")).len(), 4);
        bench.until("the power is off", || async { processes_with(&format!("1000.{mark}")).is_empty() }).await;
        match shows {
            Some(state) => {
                bench.until_state("n1", state).await;
                // Name and quota stay taken.
                assert_eq!(bench.create("n1", spot("v5litepod-16", "")).await.0, 409);
                assert_eq!(bench.create("n2", spot("v5litepod-8", "")).await.0, 429);
                bench.call("DELETE", &format!("{}/n1", nodes()), None).await;
            }
            None => bench.until_gone("n1").await,
        }
        bench.until_gone("n1").await;
        assert_eq!(bench.create("n1", spot("v5litepod-16", "")).await.0, 200);
        bench.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_can_show_late() {
    let bench = Bench::new().await;
    bench.ready("n1", spot("v5litepod-8", "")).await;
    bench.admin("nodes/n1/preempt", json!({"notice": 0, "leave": "READY", "for": "2s"})).await;
    bench.until("the VM is off", || async { bench.state_of("n1").await["workers"][0]["alive"] == false }).await;
    bench.until_state("n1", "PREEMPTED").await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_preempted_while_creating_fails_its_operation_and_stays() {
    let bench = Bench::with(|config| config.speed = 0.01).await;
    let operation = bench.create("n1", spot("v5litepod-8", "")).await.1;
    let (status, refused) = bench.post("emulator/v1/nodes/n1/preempt", json!({"leave": "READY"})).await;
    assert_eq!(status, 400, "it has no machines: {refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("cannot be left READY"), "{refused}");
    assert_eq!(bench.node("n1").await.1["state"], "CREATING");
    bench.admin("nodes/n1/preempt", json!({})).await;
    let done = bench.done(&operation).await;
    assert_eq!(done["error"]["code"], 3);
    assert!(done["error"]["message"].as_str().unwrap().contains("not supported while in state PREEMPTED"));
    assert_eq!(bench.node("n1").await.1["state"], "PREEMPTED");
    assert_eq!(bench.create("n1", spot("v5litepod-8", "")).await.0, 409);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_error_is_repaired_by_a_new_boot_or_ends_unknown() {
    let bench = Bench::new().await;
    let before = bench.ready("n1", spot("v5litepod-16", "exec sleep 1000")).await;
    bench.admin("nodes/n1/host-error", json!({"worker": 1, "repair": "3s"})).await;
    let node = bench.node("n1").await.1;
    assert_eq!((&node["state"], &node["health"]), (&json!("REPAIRING"), &json!("TIMEOUT")));
    bench.until_state("n1", "READY").await;
    bench
        .until("every VM booted again", || async {
            let node = bench.state_of("n1").await;
            node["workers"].as_array().unwrap().iter().all(|worker| worker["alive"] == true && worker["boot"] == 2)
        })
        .await;
    let after = bench.state_of("n1").await;
    let boot_id = async |node: &Value| bench.metadata(&node["workers"][0], "instance/emulator/boot-id").await.1;
    assert_eq!(after["workers"][0]["metadata"], before["workers"][0]["metadata"]);
    assert_eq!(boot_id(&after).await.len(), 32);
    bench.admin("nodes/n1/host-error", json!({"recovers": false})).await;
    bench.until_state("n1", "UNKNOWN").await;
    let audit = bench.get("emulator/v1/audit").await.1;
    let host_errors = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["protoPayload"]["methodName"] == "compute.instances.hostError");
    assert_eq!(host_errors.count(), 2);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_worker_can_boot_anew() {
    let bench = Bench::new().await;
    let before = bench.ready("n1", spot("v5litepod-16", "echo boot >> boots; exec sleep 1000")).await;
    let boot_id = async |node: &Value| bench.metadata(&node["workers"][2], "instance/emulator/boot-id").await.1;
    let first = boot_id(&before).await;
    let boots = crate::bench::home(&before["workers"][2]).join("boots");
    // READY is said when the machine is on, which may be before its script has come that far.
    let ran = |times: usize| std::fs::read_to_string(&boots).is_ok_and(|text| text == "boot\n".repeat(times));
    bench.until("the script ran", || async { ran(1) }).await;
    bench.admin("nodes/n1/reboot-worker", json!({"worker": 2})).await;
    let after = bench.state_of("n1").await;
    assert_eq!((&after["state"], &after["workers"][2]["alive"]), (&json!("READY"), &json!(true)));
    assert_eq!((&after["workers"][2]["boot"], &after["workers"][1]["boot"]), (&json!(2), &json!(1)));
    assert_eq!(after["workers"][1], before["workers"][1]);
    assert_ne!(boot_id(&after).await, first);
    bench.until("the script ran again", || async { ran(2) }).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenance_is_announced_begins_switches_off_and_ends() {
    let bench = Bench::new().await;
    let node = bench.ready("n1", spot("v5litepod-8", "exec sleep 1000")).await;
    let order = json!({"in": "5s", "notice": "5s", "duration": "15s"});
    bench.admin("nodes/n1/maintenance", order).await;
    let worker = node["workers"][0].clone();
    let upcoming = bench.node("n1").await.1["upcomingMaintenance"].clone();
    assert_eq!((&upcoming["type"], &upcoming["maintenanceStatus"]), (&json!("SCHEDULED"), &json!("PENDING")));
    let told: Value = serde_json::from_str(&bench.metadata(&worker, "instance/upcoming-maintenance").await.1).unwrap();
    assert_eq!(told["maintenance_status"], "PENDING");
    assert_eq!(bench.metadata(&worker, "instance/maintenance-event").await.1, "NONE");
    bench
        .until("the window begins", || async {
            bench.metadata(&worker, "instance/maintenance-event").await.1 == "TERMINATE_ON_HOST_MAINTENANCE"
        })
        .await;
    assert_eq!(bench.node("n1").await.1["health"], "UNHEALTHY_MAINTENANCE");
    bench.until_state("n1", "RESTARTING").await;
    bench.until_state("n1", "READY").await;
    let after = bench.node("n1").await.1;
    assert_eq!((&after["health"], after.get("upcomingMaintenance")), (&json!("HEALTHY"), None));
    bench.until("it booted again", || async { bench.state_of("n1").await["workers"][0]["boot"] == 2 }).await;

    let health = json!({"health": "UNHEALTHY_TENSORFLOW", "description": "the guest is ill"});
    bench.admin("nodes/n1/health", health).await;
    let ill = bench.node("n1").await.1;
    assert_eq!(
        (&ill["health"], &ill["healthDescription"]),
        (&json!("UNHEALTHY_TENSORFLOW"), &json!("the guest is ill"))
    );
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_is_announced_and_switches_nothing_off() {
    let bench = Bench::new().await;
    let node = bench.ready("n1", spot("v5litepod-8", "exec sleep 1000")).await;
    let worker = node["workers"][0].clone();
    let of = async |path: &str| bench.metadata(&worker, &format!("instance/{path}")).await.1;
    assert_eq!(of("scheduling/on-host-maintenance").await, "TERMINATE");
    let order = json!({"in": "2s", "duration": "5s", "event": "MIGRATE_ON_HOST_MAINTENANCE"});
    bench.admin("nodes/n1/maintenance", order).await;
    assert_eq!(of("scheduling/on-host-maintenance").await, "MIGRATE");
    bench.until("the window begins", || async { of("maintenance-event").await == "MIGRATE_ON_HOST_MAINTENANCE" }).await;
    bench.until("the window is over", || async { of("maintenance-event").await == "NONE" }).await;
    assert_eq!(of("scheduling/on-host-maintenance").await, "TERMINATE");
    let after = bench.state_of("n1").await;
    assert_eq!((&after["state"], &after["workers"][0]["boot"]), (&json!("READY"), &json!(1)));
    assert_eq!(after["workers"][0]["pid"], worker["pid"]);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_nodes_of_one_name_are_told_apart_by_zone() {
    let bench = Bench::with(|config| config.speed = 0.01).await;
    for zone in [ZONE, "us-west4-a"] {
        let path = format!("v2/projects/p/locations/{zone}/nodes?nodeId=n1");
        assert_eq!(bench.post(&path, spot("v5litepod-8", "")).await.0, 200);
    }
    assert_eq!(bench.post("emulator/v1/nodes/n1/preempt", json!({})).await.0, 409);
    bench.admin("nodes/n1/preempt?zone=us-west4-a", json!({})).await;
    assert_eq!(bench.node("n1").await.1["state"], "CREATING");
    bench.end().await;
}

type Received = Arc<Mutex<Vec<Value>>>;

/// Refuses the first delivery of each message.
async fn push(State(received): State<Received>, axum::Json(envelope): axum::Json<Value>) -> http::StatusCode {
    let mut received = received.lock().unwrap();
    let is_first = received.iter().all(|earlier| earlier["message"]["messageId"] != envelope["message"]["messageId"]);
    received.push(envelope);
    if is_first { http::StatusCode::SERVICE_UNAVAILABLE } else { http::StatusCode::NO_CONTENT }
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_entries_are_pushed_as_a_logging_sink_does() {
    let received = Received::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/push", listener.local_addr().unwrap());
    let router = axum::Router::new().route("/push", axum::routing::post(push)).with_state(received.clone());
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let bench = Bench::with(|config| config.event_push_url = Some(url)).await;
    bench.ready("n1", spot("v5litepod-16", "")).await;
    bench.admin("nodes/n1/preempt", json!({"notice": 0})).await;
    let entries = || -> Vec<Value> {
        let envelopes = received.lock().unwrap().clone();
        let decode = |envelope: &Value| {
            let data = envelope["message"]["data"].as_str().unwrap();
            let bytes = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
            serde_json::from_slice::<Value>(&bytes).unwrap()
        };
        envelopes.iter().map(decode).collect()
    };
    let of = |method: &str| -> Vec<Value> {
        entries().into_iter().filter(|entry| entry["protoPayload"]["methodName"] == method).collect()
    };
    // Each arrives twice: refused, then taken.
    bench
        .until("all entries arrived", || async {
            of("google.cloud.tpu.v2.Tpu.CreateNode").len() == 4 && of("compute.instances.preempted").len() == 8
        })
        .await;
    let creates = of("google.cloud.tpu.v2.Tpu.CreateNode");
    assert!(creates.iter().any(|entry| entry["operation"]["first"] == true));
    let last = creates.iter().find(|entry| entry["operation"]["last"] == true).unwrap();
    assert_eq!(last["protoPayload"]["resourceName"], format!("projects/p/locations/{ZONE}/nodes/n1"));
    assert_eq!(last["protoPayload"]["status"], json!({}));
    let preempted = &of("compute.instances.preempted")[0];
    let name = preempted["protoPayload"]["resourceName"].as_str().unwrap();
    assert!(name.starts_with("projects/p/zones/us-central1-a/instances/t1v-n-"), "{name}");
    assert_eq!(preempted["logName"], "projects/p/logs/cloudaudit.googleapis.com%2Fsystem_event");
    let envelope = received.lock().unwrap()[0].clone();
    assert!(envelope["message"]["messageId"].is_string() && envelope["message"]["publish_time"].is_string());
    assert_eq!(envelope["subscription"], "projects/p/subscriptions/tpu-events");
    bench.end().await;
    server.abort();
}
