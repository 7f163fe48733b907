//! Queued resources.

use serde_json::{Value, json};

use crate::bench::{Bench, ZONE, nodes, queued, spot};

fn body(accelerator: &str) -> Value {
    let parent = format!("projects/p/locations/{ZONE}");
    let spec = json!({"parent": parent, "nodeId": "n1", "node": spot(accelerator, "exec sleep 1000")});
    json!({"tpu": {"nodeSpec": [spec]}, "spot": {}})
}

async fn create(bench: &Bench, id: &str, body: Value) -> (u16, Value) {
    bench.post(&format!("{}?queuedResourceId={id}", queued()), body).await
}

async fn state(bench: &Bench, id: &str) -> Value {
    bench.get(&format!("{}/{id}", queued())).await.1["state"].clone()
}

async fn until_state(bench: &Bench, id: &str, wanted: &str) {
    bench.until(&format!("{id} is {wanted}"), || async { state(bench, id).await["state"] == wanted }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_for_capacity_and_is_served() {
    let bench = Bench::scenario("defaults: {capacity: {v5litepod: 0}}").await;
    let (status, operation) = create(&bench, "q1", body("v5litepod-16")).await;
    assert_eq!(status, 200);
    assert_eq!(state(&bench, "q1").await, json!({"state": "CREATING", "creatingData": {}}));
    let accepted = bench.done(&operation).await;
    assert_eq!(accepted["response"]["state"], json!({"state": "WAITING_FOR_RESOURCES"}));
    assert_eq!(bench.node("n1").await.0, 404);
    bench.set_zone(ZONE, json!({"capacity": {"v5litepod": 16}})).await;
    until_state(&bench, "q1", "ACTIVE").await;
    let node = bench.node("n1").await.1;
    assert_eq!(node["state"], "READY");
    assert_eq!(node["queuedResource"], format!("projects/p/locations/{ZONE}/queuedResources/q1"));
    assert_eq!(node["schedulingConfig"], json!({"spot": true}));
    assert_eq!(state(&bench, "q1").await, json!({"state": "ACTIVE", "activeData": {}}));

    let path = format!("{}/q1", queued());
    let refused = bench.call("DELETE", &path, None).await;
    assert_eq!((refused.0, &refused.1["error"]["status"]), (400, &json!("FAILED_PRECONDITION")));
    let (status, delete) = bench.call("DELETE", &format!("{path}?requestId=&force=True"), None).await;
    assert_eq!(status, 200);
    assert_eq!(bench.done(&delete).await["response"]["@type"], "type.googleapis.com/google.protobuf.Empty");
    assert_eq!((bench.get(&path).await.0, bench.node("n1").await.0), (404, 404));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_that_the_scenario_does_not_queue_comes_as_a_node_only() {
    let bench = Bench::scenario("not_queueable: [v5litepod-4]").await;
    for accelerator in ["v5litepod-1", "v5litepod-4"] {
        let (status, refused) = create(&bench, "q1", body(accelerator)).await;
        let text = format!("Queueing is not supported for accelerator type {accelerator}");
        assert_eq!((status, &refused["error"]["message"]), (400, &json!(text)));
    }
    assert_eq!(bench.create("n1", spot("v5litepod-4", "")).await.0, 200);
    assert_eq!(
        create(&bench, "q1", json!({"tpu": {"nodeSpec": [{"nodeId": "n2", "node": spot("v5litepod-8", "")}]}})).await.0,
        200
    );
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_gives_what_it_has() {
    let bench = Bench::scenario("zones: {us-central1-a: {reservations: {ours: 16}}}").await;
    let mut node = spot("v5litepod-16", "exec sleep 1000");
    node.as_object_mut().unwrap().remove("schedulingConfig");
    let asked = |id: &str, reservation: &str| {
        let parent = format!("projects/p/locations/{ZONE}");
        let spec = json!({"parent": parent, "nodeId": id, "node": node});
        json!({"tpu": {"nodeSpec": [spec]}, "reservationName": format!("{parent}/reservations/{reservation}")})
    };
    let (status, refused) = create(&bench, "q0", asked("n0", "theirs")).await;
    assert_eq!((status, &refused["error"]["message"]), (404, &json!("Reservation not found")));
    assert_eq!(create(&bench, "q1", asked("n1", "ours")).await.0, 200);
    until_state(&bench, "q1", "ACTIVE").await;
    assert_eq!(bench.node("n1").await.1["schedulingConfig"], json!({"reserved": true}));

    let used_up = "Insufficient reserved capacity. Contact customer support to increase your reservation.";
    assert_eq!(create(&bench, "q2", asked("n2", "-")).await.0, 200);
    until_state(&bench, "q2", "FAILED").await;
    let error = state(&bench, "q2").await["failedData"]["error"].clone();
    assert!(error["code"] == 9 && error["message"].as_str().unwrap().starts_with(used_up), "{error}");
    let reserved = json!({
        "acceleratorType": "v5litepod-16",
        "runtimeVersion": node["runtimeVersion"],
        "schedulingConfig": {"reserved": true},
    });
    let (status, operation) = bench.create("n3", reserved.clone()).await;
    assert_eq!(status, 200);
    let error = bench.done(&operation).await["error"].clone();
    assert!(error["code"] == 9 && error["message"].as_str().unwrap().starts_with(used_up), "{error}");
    bench.set_zone(ZONE, json!({"reservations": {"ours": 32}})).await;
    bench.ready("n3", reserved).await;
    bench.end().await;
}

/// As `gcloud alpha compute tpus queued-resources create --provisioning-model=SPOT` asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_the_fields_of_the_alpha_version_is_served() {
    let bench = Bench::new().await;
    let mut asked = body("v5litepod-8");
    asked["tpu"]["nodeSpec"][0]["node"]["autocheckpointEnabled"] = json!(false);
    asked.as_object_mut().unwrap().remove("spot");
    asked["provisioningModel"] = json!("SPOT");
    assert_eq!(create(&bench, "q1", asked.clone()).await.0, 400, "version 2 does not know them");
    let path = format!("{}?queuedResourceId=q1", queued().replacen("v2/", "v2alpha1/", 1));
    assert_eq!(bench.post(&path, asked).await.0, 200);
    until_state(&bench, "q1", "ACTIVE").await;
    assert_eq!(bench.node("n1").await.1["schedulingConfig"], json!({"spot": true}));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preempted_request_may_end_failed() {
    let bench = Bench::new().await;
    create(&bench, "q1", body("v5litepod-8")).await;
    until_state(&bench, "q1", "ACTIVE").await;
    bench.admin("nodes/n1/preempt", json!({"notice": 0, "leave": "FAILED"})).await;
    until_state(&bench, "q1", "FAILED").await;
    let shown = state(&bench, "q1").await;
    assert_eq!(shown["stateInitiator"], Value::Null);
    assert_eq!(shown["failedData"]["error"], json!({"code": 13, "message": "an internal error has occurred"}));
    assert_eq!(bench.node("n1").await.0, 404);
    bench.ready("n2", spot("v5litepod-8", "exec sleep 1000")).await;
    let refused = bench.post("emulator/v1/nodes/n2/preempt", json!({"leave": "FAILED"})).await;
    assert_eq!(refused.0, 400);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preempted_request_is_suspended_by_the_service_and_holds_quota_until_deleted() {
    let bench = Bench::scenario("defaults: {quota: {v5litepod: 16}}").await;
    create(&bench, "q1", body("v5litepod-16")).await;
    until_state(&bench, "q1", "ACTIVE").await;
    bench.admin("nodes/n1/preempt", json!({"notice": "1s"})).await;
    assert_eq!(state(&bench, "q1").await["state"], "ACTIVE");
    until_state(&bench, "q1", "SUSPENDED").await;
    assert_eq!(
        state(&bench, "q1").await,
        json!({"state": "SUSPENDED", "stateInitiator": "SERVICE", "suspendedData": {}})
    );
    assert_eq!(bench.node("n1").await.0, 404);
    let husk = create(&bench, "q2", body("v5litepod-16")).await;
    assert_eq!(husk.0, 429);
    let text = "Quota 'TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI' exhausted. Limit 16 in region us-central1";
    assert_eq!(husk.1["error"]["message"], text);
    assert_eq!(bench.create("n2", spot("v5litepod-8", "")).await.0, 429);
    let reset = bench.post(&format!("{}/q1:reset", queued()), json!({})).await;
    assert_eq!((reset.0, &reset.1["error"]["status"]), (400, &json!("FAILED_PRECONDITION")));
    let delete = bench.call("DELETE", &format!("{}/q1", queued()), None).await.1;
    bench.done(&delete).await;
    assert_eq!(create(&bench, "q2", body("v5litepod-16")).await.0, 200);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_its_node_suspends_a_request_by_the_user() {
    let bench = Bench::new().await;
    create(&bench, "q1", body("v5litepod-8")).await;
    until_state(&bench, "q1", "ACTIVE").await;
    bench.call("DELETE", &format!("{}/n1", nodes()), None).await;
    assert_eq!(state(&bench, "q1").await["state"], "SUSPENDING");
    until_state(&bench, "q1", "SUSPENDED").await;
    assert_eq!(state(&bench, "q1").await["stateInitiator"], "USER");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_brings_the_node_back() {
    let bench = Bench::new().await;
    create(&bench, "q1", body("v5litepod-8")).await;
    until_state(&bench, "q1", "ACTIVE").await;
    let before = bench.node("n1").await.1["id"].clone();
    let operation = bench.post(&format!("{}/q1:reset", queued()), json!({})).await.1;
    assert_eq!(bench.done(&operation).await["response"]["state"]["state"], "ACTIVE");
    assert_ne!(bench.node("n1").await.1["id"], before);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_multislice_request_is_expanded_and_stands_or_falls_as_one() {
    let bench = Bench::new().await;
    let spec = json!({"node": spot("v5litepod-16", "exec sleep 1000"), "multisliceParams": {"nodeCount": 2}});
    create(&bench, "train", json!({"tpu": {"nodeSpec": [spec]}, "spot": {}})).await;
    let shown = bench.get(&format!("{}/train", queued())).await.1;
    let specs = shown["tpu"]["nodeSpec"].as_array().unwrap();
    let ids: Vec<&str> = specs.iter().map(|spec| spec["nodeId"].as_str().unwrap()).collect();
    assert_eq!(ids, ["train-0", "train-1"]);
    assert!(specs[0]["parent"].as_str().unwrap().starts_with("projects/"));
    until_state(&bench, "train", "ACTIVE").await;
    assert_eq!(bench.node("train-1").await.1["multisliceNode"], true);
    bench
        .until("the VMs run", || async {
            let node = bench.state_of("train-1").await;
            node["workers"].as_array().unwrap().iter().all(|worker| worker["alive"] == true)
        })
        .await;
    let second = bench.state_of("train-1").await;
    let tpu_env = bench.metadata(&second["workers"][0], "instance/attributes/tpu-env").await.1;
    assert!(
        tpu_env.contains("MEGASCALE_NUM_SLICES: '2'\n") && tpu_env.contains("MEGASCALE_SLICE_ID: '1'\n"),
        "{tpu_env}"
    );
    let first = bench.state_of("train-0").await;
    let coordinator = format!("MEGASCALE_COORDINATOR_ADDRESS: '{}'\n", first["workers"][0]["ip"].as_str().unwrap());
    assert!(tpu_env.contains(&coordinator), "{tpu_env}");
    bench.admin("nodes/train-0/preempt", json!({"notice": 0})).await;
    until_state(&bench, "train", "SUSPENDED").await;
    assert_eq!((bench.node("train-0").await.0, bench.node("train-1").await.0), (404, 404));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_fail_as_users_saw_it() {
    let bench = Bench::scenario("defaults: {capacity: {v5litepod: 0}}").await;
    let mut late = body("v5litepod-8");
    late["queueingPolicy"] = json!({"validUntilDuration": "0.2s"});
    create(&bench, "late", late).await;
    until_state(&bench, "late", "FAILED").await;
    assert_eq!(state(&bench, "late").await["failedData"]["error"]["code"], 4);
    bench.set_zone(ZONE, json!({"capacity": {"v5litepod": 64}})).await;
    bench.admin("faults", json!({"method": "ProvisionQueuedResource", "when": "operation", "code": 8})).await;
    create(&bench, "dry", body("v5litepod-8")).await;
    until_state(&bench, "dry", "FAILED").await;
    let error = state(&bench, "dry").await["failedData"]["error"].clone();
    assert_eq!(error["code"], 8);
    assert!(error["message"].as_str().unwrap().starts_with("There is no more capacity in the zone"));
    let small = create(&bench, "small", body("v5litepod-1")).await;
    assert_eq!(
        (small.0, &small.1["error"]["message"]),
        (400, &json!("Queueing is not supported for accelerator type v5litepod-1"))
    );
    let mut alpha = body("v5litepod-8");
    alpha["multiNodeParams"] = json!({});
    assert_eq!(create(&bench, "alpha", alpha).await.0, 400);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_makes_the_create_idempotent() {
    let bench = Bench::with(|config| config.speed = 0.01).await;
    let path = format!("{}?queuedResourceId=q1&requestId=6f0d7e1e-3f0a-4a0e-9a86-0a7c6a2f1b11", queued());
    let first = bench.post(&path, body("v5litepod-8")).await;
    let again = bench.post(&path, body("v5litepod-8")).await;
    assert_eq!((first.0, again.0, &first.1["name"]), (200, 200, &again.1["name"]));
    assert_eq!(create(&bench, "q1", body("v5litepod-8")).await.0, 409);
    let list = bench.get(&queued()).await.1;
    assert_eq!(list["queuedResources"].as_array().unwrap().len(), 1);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_name_of_the_waiting_state_can_be_shown() {
    let bench = Bench::scenario("defaults: {capacity: {v5litepod: 0}, show_accepted: true}").await;
    create(&bench, "q1", body("v5litepod-8")).await;
    until_state(&bench, "q1", "ACCEPTED").await;
    assert_eq!(state(&bench, "q1").await, json!({"state": "ACCEPTED", "acceptedData": {}}));
    bench.end().await;
}
