//! Locations, accelerator types, runtime versions, pages, and enums as numbers.

use serde_json::{Value, json};

use crate::bench::{Bench, ZONE, nodes, queued, spot};

#[tokio::test(flavor = "multi_thread")]
async fn lists_over_all_zones_come_in_pages_and_name_the_silent_zones() {
    let bench = Bench::with(|config| config.speed = 0.01).await;
    for (zone, id) in [("us-central1-a", "a"), ("us-west4-a", "b"), ("europe-west4-b", "c"), ("us-south1-a", "d")] {
        let path = format!("v2/projects/p/locations/{zone}/nodes?nodeId={id}");
        assert_eq!(bench.post(&path, spot("v5litepod-8", "")).await.0, 200);
    }
    bench.set_zone("us-south1-a", json!({"unreachable": true})).await;
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let path = format!("v2/projects/p/locations/-/nodes?pageSize=2&pageToken={token}");
        let page = bench.get(&path).await.1;
        assert_eq!(page["unreachable"], json!(["projects/p/locations/us-south1-a"]));
        let nodes = page["nodes"].as_array().unwrap();
        assert!(nodes.len() <= 2);
        names.extend(nodes.iter().map(|node| node["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()));
        match page["nextPageToken"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(names, ["c", "a", "b"]);
    assert_eq!(bench.get("v2/projects/p/locations/us-south1-a/nodes").await.0, 503);
    assert_eq!(bench.get("v2/projects/other/locations/-/nodes").await.1.get("nodes"), None);
    assert_eq!(bench.get(&format!("{}?pageToken=%00", nodes())).await.0, 400);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn enums_are_numbers_for_those_who_ask_and_text_for_others() {
    let bench = Bench::with(|config| config.speed = 0.01).await;
    bench.create("n1", spot("v5litepod-8", "")).await;
    let numbers = "$alt=json;enum-encoding=int";
    let node = bench.get(&format!("{}/n1?{numbers}", nodes())).await.1;
    assert_eq!((&node["state"], &node["apiVersion"]), (&json!(1), &json!(4)));
    assert_eq!(node["acceleratorConfig"]["type"], 9);
    let list = bench.get(&format!("{}?{numbers}", nodes())).await.1;
    assert_eq!(list["nodes"][0]["state"], 1);
    assert_eq!(bench.node("n1").await.1["state"], "CREATING");
    let spec = json!({"tpu": {"nodeSpec": [{"nodeId": "q", "node": spot("v5litepod-8", "")}]}, "spot": {}});
    bench.post(&format!("{}?queuedResourceId=q", queued()), spec).await;
    assert_eq!(bench.get(&format!("{}/q?{numbers}", queued())).await.1["state"]["state"], 1);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalogue_is_served_by_zone() {
    let bench = Bench::new().await;
    let locations = bench.get("v2/projects/p/locations?pageSize=1000").await.1;
    let has = |value: &Value, id: &str| value.as_array().unwrap().iter().any(|one| one["locationId"] == id);
    assert!(has(&locations["locations"], ZONE) && has(&locations["locations"], "us-central2-b"));
    let here = format!("v2/projects/p/locations/{ZONE}");
    assert_eq!(bench.get(&here).await.1["labels"]["cloud.googleapis.com/region"], "us-central1");
    let kind = bench.get(&format!("{here}/acceleratorTypes/v5litepod-16")).await.1;
    assert_eq!(kind["acceleratorConfigs"], json!([{"type": "V5LITE_POD", "topology": "4x4"}]));
    assert_eq!(bench.get(&format!("{here}/acceleratorTypes/v6e-8")).await.0, 404);
    let versions = bench.get(&format!("{here}/runtimeVersions")).await.1;
    assert!(versions["runtimeVersions"].as_array().unwrap().iter().any(|one| one["version"] == "v2-alpha-tpuv5-lite"));
    assert_eq!(bench.get(&format!("{here}/runtimeVersions/v2-alpha-tpuv5-lite")).await.0, 200);
    assert_eq!(bench.get("v2/projects/p/locations/us-west9-z/nodes").await.0, 400);
    assert_eq!(bench.get("v3/projects/p/locations").await.0, 404);
    let identity = bench.post(&format!("{here}:generateServiceIdentity"), json!({})).await.1;
    assert!(identity["identity"]["email"].as_str().unwrap().ends_with("gcp-sa-tpu.iam.gserviceaccount.com"));
    bench.end().await;
}
