//! Errors in the shape and wording that users of the real service reported.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};

use crate::bench::{Bench, ZONE, nodes, spot};

/// A message without its event id.
fn message(answer: &Value) -> String {
    let text = answer["error"]["message"].as_str().unwrap();
    text.split(" [EID: 0x").next().unwrap().to_owned()
}

fn status(answer: &(u16, Value)) -> (u16, u64, &str) {
    let error = &answer.1["error"];
    (answer.0, error["code"].as_u64().unwrap_or_default(), error["status"].as_str().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exists_and_what_does_not_is_named_in_the_details() {
    let bench = Bench::with(|config| config.speed = 0.01).await;
    bench.create("n1", spot("v5litepod-8", "")).await;
    let name = format!("projects/p/locations/{ZONE}/nodes");
    let exists = bench.create("n1", spot("v5litepod-8", "")).await;
    assert_eq!(
        exists.1,
        json!({"error": {
            "code": 409,
            "message": format!("Resource '{name}/n1' already exists"),
            "status": "ALREADY_EXISTS",
            "details": [{"@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceName": format!("{name}/n1")}],
        }})
    );
    for (method, path) in [("GET", "n2"), ("DELETE", "n2"), ("POST", "n2:stop")] {
        let missing = bench.call(method, &format!("{}/{path}", nodes()), Some(&json!({}))).await;
        assert_eq!(status(&missing), (404, 404, "NOT_FOUND"));
        assert_eq!(message(&missing.1), format!("Resource '{name}/n2' was not found"));
        assert_eq!(missing.1["error"]["details"][0]["resourceName"], format!("{name}/n2"));
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_say_what_is_bad() {
    let bench = Bench::new().await;
    let expect = async |node: Value, part: &str| {
        let answer = bench.create("n1", node).await;
        assert_eq!(status(&answer), (400, 400, "INVALID_ARGUMENT"), "{}", answer.1);
        assert!(answer.1["error"]["message"].as_str().unwrap().contains(part), "{part}: {}", answer.1);
    };
    let with = |key: &str, value: Value| {
        let mut node = spot("v5litepod-8", "");
        node[key] = value;
        node
    };
    expect(
        with("acceleratorType", json!("v6e-1")),
        "The requested accelerator configuration for accelerator type, \"v6e-1\", could not be found in the zonal \
         accelerator configurations for \"us-central1-a\".; the accelerator v6e-1 was not found in zone us-central1-a \
         [EID: 0x",
    )
    .await;
    expect(with("acceleratorType", Value::Null), "is required").await;
    expect(with("runtimeVersion", json!("tpu-windows")), "cannot be \"tpu-windows\"").await;
    expect(with("runtimeVersion", json!("")), "runtimeVersion").await;
    expect(with("accelerator", json!("v4-8")), "Unknown name \"accelerator\"").await;
    expect(with("labels", json!({"Upper": "x"})), "label").await;
    expect(with("metadata", json!({"big": "x".repeat(262_145)})), "262144").await;
    expect(with("acceleratorConfig", json!({"type": "V4", "topology": "2x2x1"})), "exclude").await;
    let zone = bench.post("v2/projects/p/locations/us-west9-z/nodes?nodeId=n", spot("v5litepod-8", "")).await;
    assert_eq!(
        message(&zone.1),
        "Cloud TPU received a bad request. The requested zone \"us-west9-z\" is not supported."
    );
    let id = bench.post(&format!("{}?nodeId=a%2Fb", nodes()), spot("v5litepod-8", "")).await;
    assert_eq!(id.0, 400);
    let by_number =
        json!({"acceleratorConfig": {"type": 9, "topology": "2x4"}, "runtimeVersion": "v2-alpha-tpuv5-lite"});
    assert_eq!(bench.create("n1", by_number).await.0, 200);
    assert_eq!(bench.node("n1").await.1["acceleratorType"], "v5litepod-8");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_and_rate_are_429_with_different_details() {
    let bench = Bench::scenario(
        "defaults: {quota: {v5litepod/spot: 16}}\ncreates_per_minute: 3\nzones: {us-west4-a: {denied: true}}",
    )
    .await;
    assert_eq!(bench.create("n1", spot("v5litepod-16", "")).await.0, 200);
    let quota = bench.create("n2", spot("v5litepod-8", "")).await;
    assert_eq!(status(&quota), (429, 429, "RESOURCE_EXHAUSTED"));
    let text = "Quota limit 'TPUV5sPreemptibleLitepodServingPerProjectPerRegionForTPUAPI' has been exceeded. Limit: 16 \
                in region us-central1.";
    assert_eq!(message(&quota.1), text);
    let failure = &quota.1["error"]["details"][0];
    assert_eq!(failure["@type"], "type.googleapis.com/google.rpc.QuotaFailure");
    assert_eq!(failure["violations"], json!([{"subject": "project:p", "description": text}]));
    let mut on_demand = spot("v5litepod-8", "");
    on_demand["schedulingConfig"] = json!({});
    assert_eq!(bench.create("n2", on_demand).await.0, 200);
    let rate = bench.create("n3", spot("v5litepod-8", "")).await;
    assert_eq!(status(&rate), (429, 429, "RESOURCE_EXHAUSTED"));
    assert!(message(&rate.1).contains("'Maximum number of CreateNode requests per minute'"), "{}", rate.1);
    assert_eq!(rate.1["error"]["details"][0]["reason"], "RATE_LIMIT_EXCEEDED");
    assert_eq!(rate.1["error"]["details"][0]["metadata"]["quota_limit_value"], "3");
    let denied = bench.get("v2/projects/p/locations/us-west4-a/nodes").await;
    assert_eq!(status(&denied), (403, 403, "PERMISSION_DENIED"));
    assert_eq!(denied.1["error"]["details"][0]["reason"], "LOCATION_POLICY_VIOLATED");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quota_of_spot_is_one_for_the_zones_of_a_region() {
    let bench = Bench::scenario("defaults: {quota: {v6e: 8}}").await;
    let create = |zone: &str, scheduling: Value| {
        let path = format!("v2/projects/p/locations/{zone}/nodes?nodeId=n1");
        let body = json!({
            "acceleratorType": "v6e-8",
            "runtimeVersion": "v2-alpha-tpuv6e",
            "schedulingConfig": scheduling,
        });
        let bench = &bench;
        async move { bench.post(&path, body).await.0 }
    };
    assert_eq!(create("us-east5-a", json!({"spot": true})).await, 200);
    assert_eq!(create("us-east5-b", json!({"spot": true})).await, 429);
    assert_eq!(create("us-east1-d", json!({"spot": true})).await, 200);
    assert_eq!(create("us-east5-b", json!({})).await, 200, "on demand has a pool of its own");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_capacity_is_an_error_of_the_operation_and_leaves_no_node() {
    let bench = Bench::scenario("defaults: {capacity: {v5litepod: 16}}").await;
    bench.ready("n1", spot("v5litepod-16", "")).await;
    let (accepted, operation) = bench.create("n2", spot("v5litepod-8", "")).await;
    assert_eq!(accepted, 200);
    let done = bench.done(&operation).await;
    assert_eq!(done["error"]["code"], 8);
    let text = done["error"]["message"].as_str().unwrap();
    assert!(text.starts_with("There is no more capacity in the zone \"us-central1-a\"; you can try"), "{text}");
    assert_eq!(bench.node("n2").await.0, 404);
    bench.set_zone(ZONE, json!({"capacity": {"v5litepod": 24}})).await;
    bench.ready("n2", spot("v5litepod-8", "")).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_go_with_the_state_is_a_failed_precondition() {
    let bench = Bench::new().await;
    bench.ready("n1", spot("v5litepod-8", "")).await;
    for verb in ["stop", "start"] {
        let refused = bench.post(&format!("{}/n1:{verb}", nodes()), json!({})).await;
        assert_eq!(status(&refused), (400, 400, "FAILED_PRECONDITION"));
    }
    bench.admin("nodes/n1/preempt", json!({"notice": 0})).await;
    bench.until_state("n1", "PREEMPTED").await;
    let path = format!("{}/n1?updateMask=labels", nodes());
    let patch = bench.call("PATCH", &path, Some(&json!({"labels": {}}))).await.1;
    let done = bench.done(&patch).await;
    assert_eq!(done["error"]["code"], 3);
    let text = done["error"]["message"].as_str().unwrap();
    assert!(text.contains("update is not supported while in state PREEMPTED"), "{text}");
    bench.call("DELETE", &format!("{}/n1", nodes()), None).await;
    let again = bench.call("DELETE", &format!("{}/n1", nodes()), None).await;
    assert!(matches!(again.0, 400 | 404), "{}", again.1);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_strike_before_after_and_in_the_operation() {
    let bench = Bench::with(|config| config.speed = 20.0).await;
    bench.admin("faults", json!({"method": "CreateNode", "status": 503, "when": "before", "times": 2})).await;
    for _ in 0..2 {
        assert_eq!(bench.create("n1", spot("v5litepod-8", "")).await.0, 503);
        assert_eq!(bench.node("n1").await.0, 404);
    }
    assert_eq!(bench.create("n1", spot("v5litepod-8", "")).await.0, 200);

    bench.admin("faults", json!({"method": "CreateNode", "status": 504, "when": "after"})).await;
    let lost = bench.create("n2", spot("v5litepod-8", "")).await;
    assert_eq!(status(&lost), (504, 504, "DEADLINE_EXCEEDED"));
    assert_eq!(bench.node("n2").await.0, 200);

    bench.admin("faults", json!({"method": "CreateNode", "when": "operation", "code": 13})).await;
    let operation = bench.create("n3", spot("v5litepod-8", "")).await.1;
    let done = bench.done(&operation).await;
    assert_eq!(done["error"], json!({"code": 13, "message": "an internal error has occurred"}));
    assert_eq!(bench.node("n3").await.0, 404);

    bench.admin("faults", json!({"method": "*", "status": 500, "zone": "us-west4-a"})).await;
    assert_eq!(bench.node("n1").await.0, 200);
    assert_eq!(bench.get("v2/projects/p/locations/us-west4-a/nodes").await.0, 500);
    assert_eq!(bench.get("emulator/v1/faults").await.1["faults"], json!([]));

    let log = bench.get("emulator/v1/requests?method=CreateNode").await.1;
    let calls = log["requests"].as_array().unwrap();
    let statuses: Vec<u64> = calls.iter().map(|call| call["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [503, 503, 200, 504, 200]);
    let times: Vec<f64> = calls.iter().map(|call| call["at_ms"].as_f64().unwrap()).collect();
    assert!(times.is_sorted() && calls[0]["faulted"] == true && calls[2]["faulted"] == false);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_has_a_limit() {
    let bench = Bench::new().await;
    let address = bench.emulator.as_ref().unwrap().local_addr();
    let status = async |size: usize| {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!("GET /emulator/v1/state HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(size));
        // What is refused is not read to its end.
        let _ = stream.write_all(head.as_bytes()).await;
        let mut first = String::new();
        tokio::io::BufReader::new(stream).read_line(&mut first).await.unwrap();
        first.trim().to_owned()
    };
    assert_eq!(status(1000).await, "HTTP/1.1 200 OK");
    assert_eq!(status(64 * 1024).await, "HTTP/1.1 431 Request Header Fields Too Large");
    bench.end().await;
}
