//! VMs: their metadata servers, and the end of everything that runs on them.

use serde_json::{Value, json};

use crate::bench::{Bench, home, nodes, processes_with, spot};

#[tokio::test(flavor = "multi_thread")]
async fn the_metadata_server_is_that_of_a_tpu_vm() {
    let bench = Bench::new().await;
    let mut body = spot("v5litepod-16", "");
    body["networkConfig"] = json!({"enableExternalIps": true});
    let node = bench.ready("n1", body).await;
    let worker = &node["workers"][2];
    let text = async |path: &str| bench.metadata(worker, path).await.1;
    assert_eq!(text("instance/attributes/agent-worker-number").await, "2");
    assert_eq!(text("instance/attributes/accelerator-type").await, "v5litepod-16");
    assert_eq!(text("instance/attributes/instance-id").await, "n1");
    assert_eq!(text("instance/attributes/generation").await, "7");
    assert_eq!(text("instance/preempted").await, "FALSE");
    assert_eq!(text("instance/maintenance-event").await, "NONE");
    assert_eq!(text("instance/name").await, worker["vm"].as_str().unwrap());
    assert!(text("instance/upcoming-maintenance").await.contains("error"));
    assert!(text("instance/zone").await.ends_with("/zones/us-central1-a"));
    assert_eq!(text("instance/network-interfaces/0/ip").await, worker["ip"].as_str().unwrap());
    assert_eq!(text("project/project-id").await, "p");
    let endpoints = text("instance/attributes/worker-network-endpoints").await;
    let addresses: Vec<&str> = endpoints.split(',').map(|entry| entry.split(':').nth(2).unwrap()).collect();
    let known: Vec<&str> =
        node["workers"].as_array().unwrap().iter().map(|worker| worker["ip"].as_str().unwrap()).collect();
    assert_eq!(addresses, known);
    let tpu_env = text("instance/attributes/tpu-env").await;
    assert!(tpu_env.contains("WORKER_ID: '2'\n") && tpu_env.contains("TOPOLOGY: '4,4,1'\n"), "{tpu_env}");
    assert_eq!(text("instance/attributes/").await.lines().count(), 7);
    let tree: Value = serde_json::from_str(&text("instance/?recursive=true").await).unwrap();
    assert_eq!(tree["attributes"]["agent-worker-number"], "2");
    assert_eq!(tree["maintenanceEvent"], "NONE");
    assert_eq!(tree["emulator"]["egress"], "external-ip");
    assert_eq!(bench.metadata(worker, "instance/attributes/nothing").await.0, 404);
    let token: Value = serde_json::from_str(&text("instance/service-accounts/default/token").await).unwrap();
    assert_eq!(token["token_type"], "Bearer");
    let bare = bench.client().get(format!("http://{}/computeMetadata/v1/", worker["metadata"].as_str().unwrap()));
    assert_eq!(bare.send().await.unwrap().status().as_u16(), 403);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_for_which_the_disk_has_no_room_boots_once_it_has() {
    let bench = Bench::new().await;
    let (vms, away) = (bench.vms(), bench.folder.path().join("away"));
    std::fs::rename(&vms, &away).unwrap();
    std::fs::write(&vms, "no folder can be made in here").unwrap();
    for id in ["n1", "n2"] {
        bench.create(id, spot("v5litepod-8", "echo up >up")).await;
        bench.until_state(id, "READY").await;
        assert_eq!(bench.state_of(id).await["workers"][0]["alive"], false);
    }
    // What was deleted meanwhile does not come up.
    bench.call("DELETE", &format!("{}/n2", nodes()), None).await;
    bench.until_gone("n2").await;
    std::fs::remove_file(&vms).unwrap();
    std::fs::rename(&away, &vms).unwrap();
    bench
        .until("its script has run", || async { home(&bench.state_of("n1").await["workers"][0]).join("up").exists() })
        .await;
    assert_eq!(std::fs::read_dir(&vms).unwrap().count(), 1);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_of_the_metadata_server_is_woken_by_the_notice() {
    let bench = Bench::new().await;
    let node = bench.ready("n1", spot("v5litepod-8", "")).await;
    let worker = node["workers"][0].clone();
    let url = format!("http://{}/computeMetadata/v1/instance/preempted", worker["metadata"].as_str().unwrap());
    let get = |query: String| bench.client().get(format!("{url}?{query}")).header("Metadata-Flavor", "Google").send();
    let first = get(String::new()).await.unwrap();
    let etag = first.headers()["etag"].to_str().unwrap().to_owned();
    assert_eq!(first.headers()["metadata-flavor"], "Google");
    let timed_out = get("wait_for_change=true&timeout_sec=0".to_owned()).await.unwrap();
    assert_eq!(timed_out.text().await.unwrap(), "FALSE");
    let stale = get("wait_for_change=true&last_etag=0".to_owned()).await.unwrap();
    assert_eq!(stale.text().await.unwrap(), "FALSE");
    let watching = tokio::spawn(get(format!("wait_for_change=true&last_etag={etag}")));
    let answer = bench.admin("nodes/n1/preempt", json!({"notice": "300s"})).await;
    assert!(answer["power_off_at"].is_string());
    let woken = watching.await.unwrap().unwrap();
    assert_ne!(woken.headers()["etag"].to_str().unwrap(), etag);
    assert_eq!(woken.text().await.unwrap(), "TRUE");
    let twice = bench.post("emulator/v1/nodes/n1/preempt", json!({})).await;
    assert_eq!(twice.0, 409);
    assert_eq!(bench.node("n1").await.1["state"], "READY");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_tokens_verify_against_the_published_key() {
    let bench = Bench::new().await;
    let node = bench.ready("n1", spot("v5litepod-8", "")).await;
    let path = "instance/service-accounts/default/identity?audience=https://api.test&format=full";
    let token = bench.metadata(&node["workers"][0], path).await.1;
    let keys: jsonwebtoken::jwk::JwkSet = serde_json::from_value(bench.get("emulator/v1/jwks").await.1).unwrap();
    let header = jsonwebtoken::decode_header(&token).unwrap();
    let key = jsonwebtoken::DecodingKey::from_jwk(keys.find(&header.kid.unwrap()).unwrap()).unwrap();
    let mut rules = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::RS256);
    rules.set_audience(&["https://api.test"]);
    rules.set_issuer(&["https://accounts.google.com"]);
    let claims = jsonwebtoken::decode::<Value>(&token, &key, &rules).unwrap().claims;
    assert!(claims["email"].as_str().unwrap().ends_with("-compute@developer.gserviceaccount.com"));
    assert_eq!(claims["google"]["compute_engine"]["instance_name"], node["workers"][0]["vm"]);
    rules.set_audience(&["https://elsewhere.test"]);
    assert!(jsonwebtoken::decode::<Value>(&token, &key, &rules).is_err());
    let missing = bench.metadata(&node["workers"][0], "instance/service-accounts/default/identity").await;
    assert_eq!(missing.0, 400);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_attributes_that_a_worker_writes_are_read_through_the_api() {
    let bench = Bench::new().await;
    let node = bench.ready("n1", spot("v5litepod-8", "")).await;
    let base = format!("http://{}/computeMetadata/v1/instance", node["workers"][0]["metadata"].as_str().unwrap());
    let put = bench.client().put(format!("{base}/guest-attributes/hostkeys/ssh-ed25519")).body("AAAA");
    assert_eq!(put.header("Metadata-Flavor", "Google").send().await.unwrap().status().as_u16(), 200);
    let other = bench.client().put(format!("{base}/preempted")).body("TRUE").header("Metadata-Flavor", "Google");
    assert_eq!(other.send().await.unwrap().status().as_u16(), 403);
    let path = format!("{}/n1:getGuestAttributes", nodes());
    let answer = bench.post(&path, json!({"queryPath": "hostkeys/"})).await.1;
    let items = &answer["guestAttributes"][0]["queryValue"]["items"];
    assert_eq!(items, &json!([{"namespace": "hostkeys", "key": "ssh-ed25519", "value": "AAAA"}]));
    bench.end().await;
}

/// A program with a child, a grandchild in a session of its own, and one that threw away its environment.
fn family(mark: &str) -> String {
    format!(
        "sleep 1000.{mark}1 & \
         setsid bash -c 'sleep 1000.{mark}2 & setsid sleep 1000.{mark}3 & wait' & \
         (env -i /bin/bash -c 'exec setsid /bin/sleep 1000.{mark}4' &) ; \
         trap '' TERM INT HUP; wait"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_a_worker_ends_its_whole_tree_and_leaves_the_vm() {
    let bench = Bench::new().await;
    let mark = "7101";
    let node = bench.ready("n1", spot("v5litepod-8", &family(mark))).await;
    bench.until("the family lives", || async { processes_with(&format!("1000.{mark}")).len() >= 4 }).await;
    bench.admin("nodes/n1/kill-worker", json!({"worker": 0})).await;
    assert_eq!(processes_with(&format!("1000.{mark}")), Vec::<i32>::new());
    bench
        .until("the exit is known", || async {
            bench.state_of("n1").await["workers"][0]["program"]["exit"]["signal"] == 9
        })
        .await;
    let after = bench.state_of("n1").await;
    assert_eq!((&after["workers"][0]["alive"], &after["state"]), (&json!(true), &json!("READY")));
    assert_eq!(bench.metadata(&node["workers"][0], "instance/preempted").await.0, 200);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_leaves_no_process_of_any_session() {
    let bench = Bench::new().await;
    let mark = "7102";
    bench.ready("n1", spot("v5litepod-8", &family(mark))).await;
    bench.until("the family lives", || async { processes_with(&format!("1000.{mark}")).len() >= 4 }).await;
    bench.call("DELETE", &format!("{}/n1", nodes()), None).await;
    bench.until_gone("n1").await;
    assert_eq!(processes_with(&format!("1000.{mark}")), Vec::<i32>::new());
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_whose_supervisor_was_killed_is_still_ended() {
    let bench = Bench::new().await;
    let mark = "7103";
    let node = bench.ready("n1", spot("v5litepod-8", &format!("setsid sleep 1000.{mark} & wait"))).await;
    bench.until("it lives", || async { !processes_with(&format!("1000.{mark}")).is_empty() }).await;
    let pid = rustix::process::Pid::from_raw(node["workers"][0]["pid"].as_i64().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    bench
        .until("the supervisor is gone", || async { bench.state_of("n1").await["workers"][0]["alive"] == false })
        .await;
    bench.call("DELETE", &format!("{}/n1", nodes()), None).await;
    bench.until_gone("n1").await;
    assert_eq!(processes_with(&format!("1000.{mark}")), Vec::<i32>::new());
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_ends_when_its_folder_is_gone() {
    let bench = Bench::new().await;
    let mark = "7104";
    let node = bench.ready("n1", spot("v5litepod-8", &family(mark))).await;
    bench.until("the family lives", || async { processes_with(&format!("1000.{mark}")).len() >= 4 }).await;
    std::fs::remove_dir_all(home(&node["workers"][0]).parent().unwrap()).unwrap();
    bench.until("nothing is left", || async { processes_with(&format!("1000.{mark}")).is_empty() }).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_external_address_and_nat_has_no_way_out_but_to_its_neighbours() {
    let bench = Bench::scenario("nat_networks: [with-nat]").await;
    let script = "echo \"$TPU_EMULATOR_EGRESS|${https_proxy:-}|${no_proxy:-}\" > out.new; mv out.new out";
    let mut seen = Vec::new();
    for (id, network) in [("n1", "with-nat"), ("n2", "without")] {
        let mut body = spot("v5litepod-16", script);
        body["networkConfig"] = json!({"network": network, "enableExternalIps": false});
        let node = bench.ready(id, body).await;
        let file = home(&node["workers"][0]).join("out");
        bench.until("the script ran", || async { file.exists() }).await;
        let addresses: Vec<String> =
            node["workers"].as_array().unwrap().iter().map(|w| w["ip"].as_str().unwrap().to_owned()).collect();
        seen.push((std::fs::read_to_string(file).unwrap(), addresses));
    }
    assert_eq!(seen[0].0, "nat||\n");
    let near = format!("metadata.google.internal,{}", seen[1].1.join(","));
    assert_eq!(seen[1].0, format!("none|http://127.0.0.1:9|{near}\n"));
    bench.end().await;
}
