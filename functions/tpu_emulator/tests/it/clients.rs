//! Other people's clients: Google's Rust library, and gcloud.

use std::collections::HashMap;
use std::path::Path;

use google_cloud_lro::Poller as _;
use google_cloud_tpu_v2::client::Tpu;
use google_cloud_tpu_v2::model;
use serde_json::json;

use crate::bench::{Bench, ZONE, spot};

fn parent() -> String {
    format!("projects/p/locations/{ZONE}")
}

fn node() -> model::Node {
    model::Node::new()
        .set_accelerator_type("v5litepod-16")
        .set_runtime_version("v2-alpha-tpuv5-lite")
        .set_scheduling_config(model::SchedulingConfig::new().set_spot(true))
        .set_metadata([("startup-script", "exec sleep 1000")])
}

async fn client(bench: &Bench) -> Tpu {
    let credentials = google_cloud_auth::credentials::anonymous::Builder::new().build();
    Tpu::builder().with_endpoint(bench.endpoint()).with_credentials(credentials).build().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn googles_rust_client_manages_nodes() {
    let bench = Bench::with(|config| config.speed = 20.0).await;
    let client = client(&bench).await;
    let create = client.create_node().set_parent(parent()).set_node_id("n1").set_node(node());
    let made = create.poller().until_done().await.unwrap();
    assert_eq!(made.state, model::node::State::Ready);
    assert_eq!(made.health, model::node::Health::Healthy);
    assert_eq!(made.network_endpoints.len(), 4);
    assert_eq!(made.accelerator_config.unwrap().r#type, model::accelerator_config::Type::V5LitePod);
    let again = client.create_node().set_parent(parent()).set_node_id("n1").set_node(node()).send().await.unwrap_err();
    assert_eq!(again.http_status_code(), Some(409));
    let list = client.list_nodes().set_parent("projects/p/locations/-").send().await.unwrap();
    assert_eq!(list.nodes[0].name, format!("{}/nodes/n1", parent()));
    bench.admin("nodes/n1/preempt", json!({"notice": 0})).await;
    bench.until_state("n1", "PREEMPTED").await;
    let name = format!("{}/nodes/n1", parent());
    let lost = client.get_node().set_name(&name).send().await.unwrap();
    assert_eq!(lost.state, model::node::State::Preempted);
    client.delete_node().set_name(&name).poller().until_done().await.unwrap();
    let gone = client.get_node().set_name(&name).send().await.unwrap_err();
    assert_eq!(gone.http_status_code(), Some(404));

    bench.set_zone(ZONE, json!({"capacity": {"v5litepod": 0}})).await;
    let create = client.create_node().set_parent(parent()).set_node_id("n2").set_node(node());
    let stockout = create.poller().until_done().await.unwrap_err();
    assert_eq!(stockout.status().unwrap().code, google_cloud_gax::error::rpc::Code::ResourceExhausted);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn googles_rust_client_manages_queued_resources() {
    let bench = Bench::with(|config| config.speed = 20.0).await;
    let client = client(&bench).await;
    let spec = model::queued_resource::tpu::NodeSpec::new().set_parent(parent()).set_node_id("n1").set_node(node());
    let wanted = model::QueuedResource::new()
        .set_tpu(model::queued_resource::Tpu::new().set_node_spec([spec]))
        .set_spot(model::queued_resource::Spot::new());
    let create = client
        .create_queued_resource()
        .set_parent(parent())
        .set_queued_resource_id("q1")
        .set_request_id("6f0d7e1e-3f0a-4a0e-9a86-0a7c6a2f1b11")
        .set_queued_resource(wanted);
    create.poller().until_done().await.unwrap();
    let name = format!("{}/queuedResources/q1", parent());
    bench
        .until("it is active", || async {
            let queued = client.get_queued_resource().set_name(&name).send().await.unwrap();
            queued.state.unwrap().state == model::queued_resource_state::State::Active
        })
        .await;
    let refused = client.delete_queued_resource().set_name(&name).send().await.unwrap_err();
    assert_eq!(refused.http_status_code(), Some(400));
    client.delete_queued_resource().set_name(&name).set_force(true).poller().until_done().await.unwrap();
    assert!(client.list_queued_resources().set_parent(parent()).send().await.unwrap().queued_resources.is_empty());
    let attributes = client.list_locations().set_name("projects/p").send().await.unwrap();
    assert!(attributes.locations.iter().any(|location| location.location_id == ZONE));
    bench.end().await;
}

/// Runs gcloud against an emulator; its standard output. Programs in `bin` below its home are found first.
async fn gcloud(endpoint: &str, home: &Path, line: &str) -> Result<String, String> {
    let compute = format!("{endpoint}compute/v1/");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", home.join("bin").display());
    let settings = HashMap::from([
        ("PATH", path.as_str()),
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", endpoint),
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", &compute),
        ("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "true"),
        ("CLOUDSDK_CORE_PROJECT", "p"),
        ("CLOUDSDK_CORE_DISABLE_PROMPTS", "1"),
        ("CLOUDSDK_CORE_DISABLE_USAGE_REPORTING", "true"),
        ("CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK", "true"),
    ]);
    let command = tokio::process::Command::new("gcloud")
        .args(line.strip_prefix("@alpha").map(|_| "alpha"))
        .args(["compute", "tpus"])
        .args(line.strip_prefix("@alpha").unwrap_or(line).split_whitespace())
        .envs(settings)
        .env("CLOUDSDK_CONFIG", home)
        .output();
    let output = command.await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Without gcloud its tests are skipped, but not in CI.
fn has_gcloud() -> bool {
    let is_there = std::process::Command::new("gcloud").arg("--version").output().is_ok();
    assert!(is_there || std::env::var("CI").is_err(), "CI needs gcloud (package google-cloud-cli)");
    if !is_there {
        eprintln!("skipped: gcloud is not installed");
    }
    is_there
}

/// The flags that people use, in both release tracks.
#[tokio::test(flavor = "multi_thread")]
async fn gcloud_says_all_that_it_can_say() {
    if !has_gcloud() {
        return;
    }
    let bench = Bench::new().await;
    let (endpoint, home) = (bench.endpoint(), tempfile::TempDir::new().unwrap());
    let script = home.path().join("boot.sh");
    std::fs::write(&script, "exec sleep 1000\n").unwrap();
    let done = async |line: &str| gcloud(&endpoint, home.path(), line).await.unwrap_or_else(|e| panic!("{line}: {e}"));
    let zone = "--zone=us-central1-a";
    let script = format!("--metadata-from-file=startup-script={}", script.display());
    let disk = "--data-disk=source=projects/p/zones/us-central1-a/disks/d1,mode=read-only";
    done(&format!(
        "tpu-vm create n1 {zone} --accelerator-type=v5litepod-16 --version=v2-alpha-tpuv5-lite --spot --labels=a=b,c=d \
         {script} --metadata=x=y --network=default --internal-ips --description=hello --tags=t1,t2 {disk}"
    ))
    .await;
    let node = bench.node("n1").await.1;
    assert_eq!(node["schedulingConfig"], json!({"spot": true}));
    assert_eq!(node["metadata"], json!({"startup-script": "exec sleep 1000\n", "x": "y"}));
    assert_eq!(node["networkConfig"].get("enableExternalIps"), None, "{node}");
    assert_eq!((&node["labels"], &node["tags"]), (&json!({"a": "b", "c": "d"}), &json!(["t1", "t2"])));
    assert_eq!(node["dataDisks"][0]["mode"], "READ_ONLY");
    done(&format!("tpu-vm update n1 {zone} --update-labels=e=f --description=changed")).await;
    let listed = done("tpu-vm list --zone=- --filter=labels.e=f --format=json").await;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed[0]["description"], &listed[0]["labels"]["a"]), (&json!("changed"), &json!("b")));
    assert!(done(&format!("tpu-vm get-guest-attributes n1 {zone}")).await.contains("-w-3"));
    let cut = format!("tpu-vm create n2 {zone} --accelerator-type=v5litepod-8 --version=v2-alpha-tpuv5-lite");
    done(&format!("{cut} --preemptible --async")).await;
    assert_eq!(bench.node("n2").await.1["schedulingConfig"], json!({"preemptible": true}));
    done(&format!("tpu-vm delete n1 {zone} --async")).await;

    let zone = "--zone=us-east5-a";
    let many = "--node-count=2 --node-prefix=ms --valid-until-duration=6h --spot";
    done(&format!(
        "queued-resources create q1 {zone} --accelerator-type=v6e-8 --runtime-version=v2-alpha-tpuv6e {many} {script}"
    ))
    .await;
    let alpha = "--type=v6e --topology=2x4 --runtime-version=v2-alpha-tpuv6e --provisioning-model=SPOT --node-id=a1";
    done(&format!("@alpha queued-resources create q2 {zone} {alpha}")).await;
    bench
        .until("both are active", || async {
            let list = bench.get("v2/projects/p/locations/us-east5-a/queuedResources").await.1;
            list["queuedResources"].as_array().unwrap().iter().filter(|one| one["state"]["state"] == "ACTIVE").count()
                == 2
        })
        .await;
    let names = done(&format!("tpu-vm list {zone} --format=value(name.basename(),multisliceNode)")).await;
    assert_eq!(names.split_whitespace().collect::<Vec<_>>(), ["a1", "ms-0", "True", "ms-1", "True"]);
    bench.end().await;
}

/// `tpu-vm ssh` and `scp` reach for the right addresses; the programs that would go there only write down what they got.
#[tokio::test(flavor = "multi_thread")]
async fn gcloud_finds_the_workers_for_ssh() {
    use std::os::unix::fs::PermissionsExt as _;
    if !has_gcloud() {
        return;
    }
    let bench = Bench::new().await;
    let (endpoint, home) = (bench.endpoint(), tempfile::TempDir::new().unwrap());
    let bin = home.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for name in ["ssh", "scp", "ssh-keygen"] {
        let text = format!("#!/bin/bash\necho \"{name} $*\" >> {}\n", home.path().join("called").display());
        std::fs::write(bin.join(name), text).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let key = home.path().join("key");
    std::fs::write(&key, "none is needed").unwrap();
    std::fs::write(home.path().join("key.pub"), "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA a@b\n").unwrap();
    let node = bench.ready("n1", spot("v5litepod-16", "")).await;
    let address = |index: usize| node["workers"][index]["ip"].as_str().unwrap().to_owned();
    let to = format!("--zone={ZONE} --plain --internal-ip --ssh-key-file={}", key.display());
    let done = async |line: &str| gcloud(&endpoint, home.path(), line).await.unwrap_or_else(|e| panic!("{line}: {e}"));
    done(&format!("tpu-vm ssh n1 {to} --worker=all --command=hostname")).await;
    done(&format!("tpu-vm scp {} n1:/tmp/ {to} --worker=2", key.display())).await;
    // Where they have no external address, their names lead through the proxy: of all of them, and of one.
    let proxied = format!("--zone={ZONE} --plain --tunnel-through-iap --ssh-key-file={}", key.display());
    done(&format!("@alpha tpu-vm ssh n1 {proxied} --worker=1")).await;
    bench.ready("n2", spot("v5litepod-8", "")).await;
    done(&format!("@alpha tpu-vm ssh n2 {proxied} --worker=0")).await;
    let called = std::fs::read_to_string(home.path().join("called")).unwrap();
    for worker in [1, 0] {
        let way = format!("-w-{worker}' '%p'");
        let is_way = |line: &str| line.contains("start-iap-tunnel 't1v-n-") && line.contains(&way);
        assert!(called.lines().any(is_way), "{called}");
    }
    for index in 0..4 {
        let wanted = format!("@{} -- hostname", address(index));
        assert!(called.lines().any(|line| line.starts_with("ssh ") && line.ends_with(&wanted)), "{called}");
    }
    let copied: Vec<&str> = called.lines().filter(|line| line.starts_with("scp ")).collect();
    assert!(copied.len() == 1 && copied[0].ends_with(&format!("@{}:/tmp/", address(2))), "{called}");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gcloud_manages_nodes_and_queued_resources() {
    if !has_gcloud() {
        return;
    }
    let bench = Bench::new().await;
    let (endpoint, home) = (bench.endpoint(), tempfile::TempDir::new().unwrap());
    let run = async |line: &str| gcloud(&endpoint, home.path(), line).await;
    let done = async |line: &str| run(line).await.unwrap_or_else(|error| panic!("{line}: {error}"));
    let zone = "--zone=us-central2-b";
    let kind = "--accelerator-type=v4-8 --version=tpu-ubuntu2204-base";
    done(&format!("tpu-vm create n1 {zone} {kind}")).await;
    assert!(run(&format!("tpu-vm create n1 {zone} {kind}")).await.unwrap_err().contains("already exists"));
    let list = done("tpu-vm list --zone=- --format=value(name,state)").await;
    assert_eq!(list.split_whitespace().collect::<Vec<_>>(), ["n1", "READY"]);
    let described = done(&format!("tpu-vm describe n1 {zone} --format=value(acceleratorConfig.topology)")).await;
    assert_eq!(described.trim(), "2x2x1");
    done(&format!("tpu-vm stop n1 {zone}")).await;
    assert_eq!(done(&format!("tpu-vm describe n1 {zone} --format=value(state)")).await.trim(), "STOPPED");
    done(&format!("tpu-vm start n1 {zone}")).await;
    done(&format!("tpu-vm delete n1 {zone}")).await;
    assert!(run(&format!("tpu-vm describe n1 {zone}")).await.unwrap_err().contains("was not found"));
    // The older commands speak version 1.
    assert!(done("accelerator-types list --zone=us-central2-b").await.contains("v4-8"));
    assert!(done("accelerator-types describe v4-8 --zone=us-central2-b").await.contains("type: v4-8"));
    assert!(done("locations list --format=value(locationId)").await.contains("us-central2-b"));
    bench.set_zone("us-central2-b", json!({"capacity": {"v4": 0}})).await;
    assert!(run(&format!("tpu-vm create n2 {zone} {kind}")).await.unwrap_err().contains("no more capacity"));

    let zone = "--zone=us-east5-a";
    let kind = "--accelerator-type=v6e-8 --runtime-version=v2-alpha-tpuv6e --spot";
    done(&format!("queued-resources create q1 --node-id=n1 {zone} {kind}")).await;
    bench
        .until("it is active", || async {
            bench.get("v2/projects/p/locations/us-east5-a/queuedResources/q1").await.1["state"]["state"] == "ACTIVE"
        })
        .await;
    let list = done(&format!("queued-resources list {zone} --format=value(name,state.state)")).await;
    assert!(list.contains("q1") && list.contains("ACTIVE"), "{list}");
    let described = done(&format!("queued-resources describe q1 {zone} --format=value(tpu.nodeSpec[0].nodeId)")).await;
    assert_eq!(described.trim(), "n1");
    assert!(run(&format!("queued-resources delete q1 {zone}")).await.is_err());
    done(&format!("queued-resources delete q1 {zone} --force")).await;
    assert_eq!(done(&format!("queued-resources list {zone} --format=value(name)")).await.trim(), "");
    bench.end().await;
}
