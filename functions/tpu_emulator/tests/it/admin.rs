//! The emulator's own paths: what each does with good input is tried where its effect is; here is what they refuse, and
//! that a refusal names what would be right.

use serde_json::{Value, json};

use crate::bench::{Bench, ZONE, spot};

/// Path, body, status, words of the answer.
type Case<'a> = (&'a str, &'a str, u16, &'a [&'a str]);

async fn refuses(bench: &Bench, method: &str, cases: &[Case<'_>]) {
    for (path, body, wanted, words) in cases {
        let url = format!("{}emulator/v1/{path}", bench.endpoint());
        let request = bench.client().request(method.parse().unwrap(), url).body((*body).to_owned());
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
        assert_eq!(status, *wanted, "{method} {path} {body}: {text}");
        let problem: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{method} {path}: no JSON: {text}"));
        let message = problem["error"]["message"].as_str().unwrap_or_default();
        for word in *words {
            assert!(message.contains(word), "{method} {path} {body}: {word:?} is not in {message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_to_a_node_is_refused_with_what_can() {
    let bench = Bench::new().await;
    bench.ready("n1", spot("v5litepod-16", "")).await;
    let zone_of = format!("nodes/n1/preempt?zone={ZONE}&color=red");
    let cases: [Case<'_>; 20] = [
        ("nodes/n2/preempt", "", 404, &["n2", "n1", ZONE]),
        ("nodes/n1/preempt?zone=us-west4-a", "", 404, &["n1 in projects/p/locations/us-central1-a"]),
        ("nodes/n1/preempt?zone=us-west9-z", "", 400, &["us-west9-z", ZONE]),
        ("nodes/n1/preempt?project=other", "", 404, &["n1 in projects/p/"]),
        (&zone_of, "", 400, &["color", "zone"]),
        ("nodes/n1/explode", "", 404, &["explode", "preempt", "kill-worker", "cut-connections"]),
        ("nodes/n1/preempt", "{\"notice\": ", 400, &["line 1"]),
        ("nodes/n1/preempt", "[]", 400, &["object"]),
        ("nodes/n1/preempt", "{\"notic\":\"1s\"}", 400, &["notic", "`notice`", "`leave`"]),
        ("nodes/n1/preempt", "{\"notice\":\"soon\"}", 400, &["soon", "duration"]),
        ("nodes/n1/preempt", "{\"notice\":-1}", 400, &["negative"]),
        ("nodes/n1/preempt", "{\"leave\":\"LOST\"}", 400, &["LOST", "`PREEMPTED`", "`GONE`", "`READY`"]),
        ("nodes/n1/host-error", "{\"worker\":4}", 404, &["4", "0, 1, 2, 3"]),
        ("nodes/n1/maintenance", "{\"event\":\"PARTY\"}", 400, &["TERMINATE_ON_HOST_MAINTENANCE"]),
        ("nodes/n1/maintenance", "{\"type\":\"SOON\"}", 400, &["SCHEDULED or UNSCHEDULED"]),
        ("nodes/n1/health", "{\"health\":\"SICK\"}", 400, &["HEALTHY", "UNHEALTHY_TENSORFLOW"]),
        ("nodes/n1/health", "", 400, &["health"]),
        ("nodes/n1/kill-worker", "{\"worker\":7}", 404, &["7", "0, 1, 2, 3"]),
        ("nodes/n1/reboot-worker", "{\"worker\":-1}", 400, &["-1"]),
        ("nodes/n1/freeze", "{\"length\":\"1s\"}", 400, &["length", "`for`"]),
    ];
    refuses(&bench, "POST", &cases).await;
    refuses(&bench, "GET", &[("nodes/n1/preempt", "", 405, &["GET", "POST /emulator/v1/nodes"])]).await;
    // Nothing of it happened.
    let node = bench.state_of("n1").await;
    assert_eq!(
        (&node["state"], &node["health"], &node["preempting"]),
        (&json!("READY"), &json!("HEALTHY"), &json!(false))
    );
    assert!(node["workers"].as_array().unwrap().iter().all(|worker| worker["boot"] == 1 && worker["alive"] == true));
    bench.admin(&format!("nodes/n1/preempt?zone={ZONE}&project=p"), json!({"notice": 0, "leave": "TERMINATED"})).await;
    bench.until_state("n1", "TERMINATED").await;
    let cases: [Case<'_>; 4] = [
        ("nodes/n1/preempt", "", 409, &["TERMINATED"]),
        ("nodes/n1/host-error", "", 409, &["TERMINATED"]),
        ("nodes/n1/kill-worker", "", 409, &["off"]),
        ("nodes/n1/cut-connections", "", 409, &["off"]),
    ];
    refuses(&bench, "POST", &cases).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_that_could_never_strike_are_refused_with_those_that_could() {
    let bench = Bench::new().await;
    let cases: [Case<'_>; 12] = [
        ("faults", "{\"method\":\"MakeNode\"}", 400, &["MakeNode", "CreateNode", "DeleteQueuedResource", "*"]),
        ("faults", "{}", 400, &["method"]),
        ("faults", "{\"method\":\"GetNode\",\"times\":0}", 400, &["at least 1"]),
        ("faults", "{\"method\":\"GetNode\",\"status\":200}", 400, &["400 to 599"]),
        (
            "faults",
            "{\"method\":\"GetNode\",\"when\":\"later\"}",
            400,
            &["later", "`before`", "`after`", "`operation`"],
        ),
        ("faults", "{\"method\":\"GetNode\",\"when\":\"operation\"}", 400, &["GetNode begins no operation"]),
        ("faults", "{\"method\":\"GetNode\",\"code\":13}", 400, &["operation"]),
        ("faults", "{\"method\":\"CreateNode\",\"when\":\"operation\",\"code\":17}", 400, &["1 to 16"]),
        ("faults", "{\"method\":\"ProvisionQueuedResource\"}", 400, &["operation"]),
        ("faults", "{\"method\":\"GetNode\",\"zone\":\"us-west9-z\"}", 400, &["us-west9-z", ZONE]),
        ("faults", "{\"method\":\"GetNode\",\"delay\":\"long\"}", 400, &["long"]),
        ("faults", "{\"method\":\"GetNode\",\"statuses\":503}", 400, &["statuses", "`status`"]),
    ];
    refuses(&bench, "POST", &cases).await;
    assert_eq!(bench.get("emulator/v1/faults").await.1["faults"], json!([]));
    for good in [
        json!({"method": "CreateNode", "status": 503, "when": "before", "times": 3}),
        json!({"method": "*", "status": 429, "when": "after", "zone": ZONE, "delay": "1s", "message": "no"}),
        json!({"method": "CreateNode", "when": "operation", "code": 8}),
        json!({"method": "ProvisionQueuedResource", "when": "operation"}),
    ] {
        bench.admin("faults", good).await;
    }
    assert_eq!(bench.get("emulator/v1/faults").await.1["faults"].as_array().unwrap().len(), 4);
    assert_eq!(bench.call("DELETE", "emulator/v1/faults", None).await.0, 204);
    assert_eq!(bench.get("emulator/v1/faults").await.1["faults"], json!([]));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn zones_and_other_paths_are_checked_too() {
    let bench = Bench::new().await;
    let zone = format!("zones/{ZONE}");
    let cases: [Case<'_>; 5] = [
        ("zones/us-west9-z", "{}", 404, &["us-west9-z", ZONE]),
        (&zone, "{\"capacity\":{\"v9\":1}}", 400, &["v9", "v5litepod"]),
        (&zone, "{\"quota\":{\"v5litepod/reserved\":1}}", 400, &["v5litepod/reserved", "v5litepod"]),
        (&zone, "{\"capacities\":{}}", 400, &["capacities", "`capacity`"]),
        (&zone, "{\"create_latency\":\"never\"}", 400, &["never"]),
    ];
    refuses(&bench, "PUT", &cases).await;
    let cases: [Case<'_>; 5] = [
        ("zones/us-west9-z", "", 404, &["us-west9-z", ZONE]),
        ("requests?method=MakeNode", "", 400, &["MakeNode", "CreateNode"]),
        ("requests?since=yesterday", "", 400, &["since"]),
        ("requests?until=3", "", 400, &["until", "since"]),
        ("status", "", 404, &["GET /emulator/v1/state", "/emulator/v1/faults"]),
    ];
    refuses(&bench, "GET", &cases).await;
    refuses(&bench, "DELETE", &[("state", "", 405, &["DELETE", "GET /emulator/v1/state"])]).await;
    let before = bench.get(&format!("emulator/v1/{zone}")).await.1;
    bench.set_zone(ZONE, json!({"capacity": {"v5litepod": 64}, "quota": {"v5litepod/spot": 8}})).await;
    let after = bench.get(&format!("emulator/v1/{zone}")).await.1;
    assert_ne!(before, after);
    assert_eq!(after["settings"]["capacity"]["v5litepod"], 64);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_cannot_drive_it() {
    let bench = Bench::new().await;
    bench.ready("n1", spot("v5litepod-8", "")).await;
    let own = bench.endpoint().trim_end_matches('/').to_owned();
    for path in ["emulator/v1/nodes/n1/preempt", "v2/projects/p/locations/us-central1-a/nodes?nodeId=n2", "v2/none"] {
        for (name, value) in [("origin", "https://evil.example"), ("origin", "null"), ("host", "evil.example:8470")] {
            let request = bench.client().post(format!("{own}/{path}")).header(name, value);
            // What a page may send without being asked about it first.
            let request = request.header("content-type", "text/plain").body("{}");
            assert_eq!(request.send().await.unwrap().status(), 403, "{path} with {name}: {value}");
        }
    }
    assert_eq!(bench.state_of("n1").await["preempting"], false);
    assert_eq!(bench.node("n2").await.0, 404);
    let same = bench.client().get(format!("{own}/emulator/v1/state")).header("origin", &own);
    assert_eq!(same.send().await.unwrap().status(), 200);
    bench.end().await;
}
