//! Nodes and their operations.

use serde_json::json;

use crate::bench::{Bench, ZONE, home, nodes, spot};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_made_through_a_pending_operation_and_runs_its_script_on_every_worker() {
    let bench = Bench::new().await;
    let script = "curl() { :; }; echo $HOSTNAME > started; pwd > where; exec sleep 1000";
    let (status, operation) = bench.create("n1", spot("v5litepod-16", script)).await;
    assert_eq!(status, 200);
    assert_eq!(operation["done"], false);
    let metadata = &operation["metadata"];
    assert_eq!(metadata["@type"], "type.googleapis.com/google.cloud.tpu.v2.OperationMetadata");
    assert_eq!((&metadata["verb"], &metadata["apiVersion"]), (&json!("create"), &json!("v2")));
    let creating = bench.node("n1").await.1;
    assert_eq!(creating["state"], "CREATING");
    assert!(creating.get("networkEndpoints").is_none());

    let done = bench.done(&operation).await;
    assert_eq!(done["response"]["@type"], "type.googleapis.com/google.cloud.tpu.v2.Node");
    assert_eq!(done["response"]["state"], "READY");
    let node = bench.node("n1").await.1;
    assert_eq!(node["health"], "HEALTHY");
    assert_eq!(node["acceleratorConfig"], json!({"type": "V5LITE_POD", "topology": "4x4"}));
    let endpoints = node["networkEndpoints"].as_array().unwrap();
    assert_eq!(endpoints.len(), 4);
    let addresses: std::collections::BTreeSet<&str> =
        endpoints.iter().map(|endpoint| endpoint["ipAddress"].as_str().unwrap()).collect();
    assert_eq!(addresses.len(), 4);
    assert!(addresses.iter().all(|address| address.starts_with("127.")));

    bench
        .until("every worker ran the script", || async {
            let state = bench.state_of("n1").await;
            state["workers"].as_array().unwrap().iter().all(|worker| {
                std::fs::read_to_string(home(worker).join("where"))
                    .is_ok_and(|text| text.trim() == home(worker).to_str().unwrap())
            })
        })
        .await;
    let (status, _) = bench.call("DELETE", &format!("{}/n1", nodes()), None).await;
    assert_eq!(status, 200);
    assert_eq!(bench.node("n1").await.1["state"], "DELETING");
    assert_eq!(bench.create("n1", spot("v5litepod-16", "")).await.0, 409);
    bench.until_gone("n1").await;
    bench.until("the folders are gone", || async { std::fs::read_dir(bench.vms()).unwrap().next().is_none() }).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_on_demand_node_stops_and_starts_with_its_disk() {
    let bench = Bench::new().await;
    let mut node = spot("v5litepod-8", "echo boot >> boots; exec sleep 1000");
    node["schedulingConfig"] = json!({});
    let before = bench.ready("n1", node).await;
    let boots = home(&before["workers"][0]).join("boots");
    // READY is said when the machine is on, which may be before its script has come that far.
    let ran = |times: usize| std::fs::read_to_string(&boots).is_ok_and(|text| text == "boot\n".repeat(times));
    bench.until("the script ran", || async { ran(1) }).await;
    let stop = bench.post(&format!("{}/n1:stop", nodes()), json!({})).await.1;
    assert_eq!(bench.node("n1").await.1["state"], "STOPPING");
    assert_eq!(bench.done(&stop).await["response"]["state"], "STOPPED");
    assert_eq!(bench.state_of("n1").await["workers"][0]["alive"], false);
    let start = bench.post(&format!("{}/n1:start", nodes()), json!({})).await.1;
    assert_eq!(bench.done(&start).await["response"]["state"], "READY");
    bench.until("the script ran at both boots", || async { ran(2) }).await;
    let after = bench.state_of("n1").await;
    assert_eq!(after["workers"][0]["boot"], 2);
    assert_eq!(after["workers"][0]["ip"], before["workers"][0]["ip"]);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_reaches_the_metadata_servers_of_the_workers() {
    let bench = Bench::new().await;
    let node = bench.ready("n1", spot("v5litepod-8", "")).await;
    let patch = json!({"metadata": {"generation": "8", "ssh-keys": "k"}, "labels": {"a": "b"}});
    let path = format!("{}/n1?updateMask=metadata,labels", nodes());
    let (status, operation) = bench.call("PATCH", &path, Some(&patch)).await;
    assert_eq!(status, 200);
    assert_eq!(bench.done(&operation).await["response"]["labels"], json!({"a": "b"}));
    let worker = &node["workers"][0];
    bench
        .until("the worker sees the new value", || async {
            bench.metadata(worker, "instance/attributes/generation").await.1 == "8"
        })
        .await;
    assert_eq!(bench.metadata(worker, "instance/attributes/startup-script").await.0, 404);
    assert_eq!(bench.metadata(worker, "instance/attributes/agent-worker-number").await.1, "0");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_being_patched_takes_no_other_patch() {
    let bench = Bench::scenario("defaults: {update_latency: 24h}").await;
    bench.ready("n1", spot("v5litepod-8", "")).await;
    let patch = json!({"labels": {"a": "b"}});
    let path = format!("{}/n1?updateMask=labels", nodes());
    assert_eq!(bench.call("PATCH", &path, Some(&patch)).await.0, 200);
    let busy = bench.call("PATCH", &path, Some(&patch)).await;
    assert_eq!((busy.0, &busy.1["error"]["status"]), (409, &json!("ABORTED")));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_can_be_cancelled_and_its_operation_forgotten() {
    let bench = Bench::with(|config| config.speed = 0.01).await;
    let operation = bench.create("n1", spot("v5litepod-8", "")).await.1;
    let path = format!("v2/{}", operation["name"].as_str().unwrap());
    assert_eq!(bench.post(&format!("{path}:cancel"), json!({})).await, (200, json!({})));
    let done = bench.get(&path).await.1;
    assert_eq!((&done["error"]["code"], &done["metadata"]["cancelRequested"]), (&json!(1), &json!(true)));
    assert_eq!(bench.node("n1").await.0, 404);
    let list = bench.get(&format!("v2/projects/p/locations/{ZONE}/operations")).await.1;
    assert_eq!(list["operations"].as_array().unwrap().len(), 1);
    assert_eq!(bench.call("DELETE", &path, None).await, (200, json!({})));
    assert_eq!(bench.get(&path).await.0, 404);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_makes_creates_idempotent_in_v2alpha1_only() {
    let bench = Bench::with(|config| config.speed = 0.01).await;
    let alpha = nodes().replace("v2/", "v2alpha1/");
    let path = format!("{alpha}?nodeId=n1&requestId=6f0d7e1e-3f0a-4a0e-9a86-0a7c6a2f1b11");
    let first = bench.post(&path, spot("v5litepod-8", "")).await;
    let again = bench.post(&path, spot("v5litepod-8", "")).await;
    assert_eq!((first.0, again.0), (200, 200));
    assert_eq!(first.1["name"], again.1["name"]);
    assert_eq!(first.1["metadata"]["@type"], "type.googleapis.com/google.cloud.tpu.v2alpha1.OperationMetadata");
    let path = format!("{}?nodeId=n2&requestId=6f0d7e1e-3f0a-4a0e-9a86-0a7c6a2f1b12", nodes());
    assert_eq!(bench.post(&path, spot("v5litepod-8", "")).await.0, 200);
    assert_eq!(bench.post(&path, spot("v5litepod-8", "")).await.0, 409);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_seed_gives_the_same_addresses_and_ids() {
    let mut seen = Vec::new();
    for _ in 0..2 {
        let bench = Bench::with(|config| config.seed = Some(42)).await;
        bench.ready("n1", spot("v5litepod-16", "")).await;
        let node = bench.node("n1").await.1;
        let guest = bench.post(&format!("{}/n1:getGuestAttributes", nodes()), json!({"workerIds": ["3"]})).await.1;
        seen.push((node["id"].clone(), node["networkEndpoints"].clone(), guest));
        bench.end().await;
    }
    assert_eq!(seen[0], seen[1]);
    let items = &seen[0].2["guestAttributes"][0]["queryValue"]["items"];
    let host = items[0]["value"].as_str().unwrap();
    assert!(host.starts_with("t1v-n-") && host.ends_with("-w-3"), "{host}");
}
