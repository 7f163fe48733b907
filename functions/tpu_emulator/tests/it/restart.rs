//! What survives the emulator, and what ends without it.

use std::time::Duration;

use rekindle_tpu_emulator::{Config, Emulator, StartError};
use serde_json::json;

use crate::bench::{Bench, ZONE, nodes, processes_with, queued, spot, supervisor, until};

#[tokio::test(flavor = "multi_thread")]
async fn vms_and_everything_else_are_found_again() {
    let mut bench = Bench::with(|config| config.seed = Some(3)).await;
    bench.set_zone(ZONE, json!({"capacity": {"v5litepod": 32}})).await;
    let before = bench.ready("n1", spot("v5litepod-16", "exec sleep 1000")).await;
    let spec = json!({"tpu": {"nodeSpec": [{"nodeId": "q1", "node": spot("v5litepod-32", "")}]}, "spot": {}});
    bench.post(&format!("{}?queuedResourceId=q", queued()), spec).await;
    bench.admin("faults", json!({"method": "StopNode", "status": 500})).await;
    let list = |bench: &Bench| {
        let path = format!("{}emulator/v1/state", bench.endpoint());
        let client = bench.client().clone();
        async move { client.get(path).send().await.unwrap().json::<serde_json::Value>().await.unwrap() }
    };
    bench.stop().await;
    bench.start(|config| config.seed = Some(99)).await;
    let after = bench.state_of("n1").await;
    assert_eq!(before["workers"], after["workers"]);
    assert_eq!(before["id"], after["id"]);
    let state = list(&bench).await;
    assert_eq!(state["seed"], 3);
    assert_eq!(state["zones"][ZONE]["settings"]["capacity"], json!({"v5litepod": 32}));
    assert_eq!(state["faults"][0]["method"], "StopNode");
    bench
        .until("the queue moves on", || async {
            bench.get(&format!("{}/q", queued())).await.1["state"]["state"] == "WAITING_FOR_RESOURCES"
        })
        .await;
    bench.admin("nodes/n1/preempt", json!({"notice": "1s"})).await;
    bench.until_state("n1", "PREEMPTED").await;
    assert!(bench.state_of("n1").await["workers"].as_array().unwrap().iter().all(|worker| worker["alive"] == false));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_under_way_is_finished_after_a_restart() {
    let mut bench = Bench::with(|config| config.speed = 4.0).await;
    let operation = bench.create("n1", spot("v5litepod-8", "exec sleep 1000")).await.1;
    bench.stop().await;
    bench.start(|config| config.speed = 4.0).await;
    assert_eq!(bench.done(&operation).await["response"]["state"], "READY");
    bench.until("it runs", || async { bench.state_of("n1").await["workers"][0]["alive"] == true }).await;
    let delete = bench.call("DELETE", &format!("{}/n1", nodes()), None).await.1;
    bench.stop().await;
    bench.start(|config| config.speed = 4.0).await;
    bench.done(&delete).await;
    assert_eq!(bench.node("n1").await.0, 404);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_startup_script_that_fails_is_started_again_where_that_is_wanted() {
    let bench = Bench::with(|config| config.restarts_scripts = true).await;
    let script = "[ -e failed ] && exec sleep 1000.7211; touch failed; exit 75";
    bench.ready("n1", spot("v5litepod-8", script)).await;
    bench.until("it runs again", || async { !processes_with("1000.7211").is_empty() }).await;
    let program = || async { bench.state_of("n1").await["workers"][0]["program"].clone() };
    bench.until("it is told", || async { program().await["exit"].is_null() }).await;
    bench.end().await;
    assert!(processes_with("1000.7211").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_gone_from_beside_its_machines_is_refused_and_ends_none() {
    let mut bench = Bench::new().await;
    bench.ready("n1", spot("v5litepod-8", "exec sleep 1000.7210")).await;
    bench.until("it runs", || async { !processes_with("1000.7210").is_empty() }).await;
    bench.stop().await;
    let (world, elsewhere) = (bench.folder.path().join("world.json"), bench.folder.path().join("elsewhere"));
    std::fs::rename(&world, &elsewhere).unwrap();
    let config = || Config::new(bench.folder.path(), supervisor());
    let refused = Emulator::start(config()).await.unwrap_err();
    assert!(matches!(&refused, StartError::State { why, .. } if why.contains("it is gone")), "{refused}");
    assert!(!processes_with("1000.7210").is_empty());
    std::fs::rename(&elsewhere, &world).unwrap();
    bench.start(|_| {}).await;
    assert_eq!(bench.state_of("n1").await["workers"][0]["alive"], true);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_folder_serves_one_emulator_at_a_time() {
    let bench = Bench::new().await;
    let second = Config::new(bench.folder.path(), supervisor());
    let error = Emulator::start(second).await.unwrap_err();
    assert!(matches!(error, StartError::InUse(_)), "{error}");
    let mut public = Config::new(bench.folder.path(), supervisor());
    public.addr = "0.0.0.0:0".parse().unwrap();
    let error = Emulator::start(public).await.unwrap_err();
    assert!(matches!(error, StartError::NotLoopback(_)), "{error}");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vms_end_by_themselves_when_the_emulator_stays_away_and_the_node_is_then_terminated() {
    let mark = "7201";
    let mut bench = Bench::with(|config| config.away_limit = Duration::from_secs(7)).await;
    let node = bench.ready("n1", spot("v5litepod-8", &format!("setsid sleep 1000.{mark} & wait"))).await;
    bench.until("it lives", || async { !processes_with(&format!("1000.{mark}")).is_empty() }).await;
    bench.stop().await;
    bench.until("nothing is left", || async { processes_with(&format!("1000.{mark}")).is_empty() }).await;
    // The supervisor ends after its tree; an emulator that comes back in between would find it alive.
    let folder = node["workers"][0]["folder"].as_str().unwrap().to_owned();
    bench.until("its supervisor is gone", || async { processes_with(&folder).is_empty() }).await;
    bench.start(|_| {}).await;
    bench.until_state("n1", "TERMINATED").await;
    let reason =
        std::fs::read_to_string(std::path::Path::new(node["workers"][0]["folder"].as_str().unwrap()).join("end.txt"));
    assert_eq!(reason.unwrap(), "the emulator was away for too long");
    bench.end().await;
}

/// The emulator as a program: killed without warning at many moments of a node's life.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_emulator_loses_and_doubles_nothing() {
    let folder = tempfile::TempDir::new().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mark = "7202";
    let start = async || {
        let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_rekindle-tpu-emulator"))
            .args(["--port", "0", "--speed", "10", "--seed", "5", "--state"])
            .arg(folder.path())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stdout.take().unwrap()));
        let line = lines.next_line().await.unwrap().unwrap();
        let endpoint = line.split_whitespace().find(|word| word.starts_with("http")).unwrap().to_owned();
        (child, endpoint)
    };
    let (mut child, mut endpoint) = start().await;
    let create = format!("{endpoint}{}?nodeId=n1", nodes());
    let body = spot("v5litepod-8", &format!("echo run >> runs; exec sleep 1000.{mark}"));
    assert_eq!(client.post(create).json(&body).send().await.unwrap().status().as_u16(), 200);
    // The create takes 200 ms at this speed: the kills fall before, into and after the boot.
    for wait in [150, 40, 5, 3, 1, 60, 20] {
        let ended = tokio::time::timeout(Duration::from_millis(wait), child.wait()).await;
        assert!(ended.is_err(), "the emulator ended by itself");
        child.kill().await.unwrap();
        (child, endpoint) = start().await;
    }
    let state = async || {
        let answer = client.get(format!("{endpoint}emulator/v1/state")).send().await.unwrap();
        answer.json::<serde_json::Value>().await.unwrap()["nodes"][0].clone()
    };
    until("the VM runs", || async { state().await["workers"][0]["alive"] == true }).await;
    until("the program runs", || async { !processes_with(&format!("1000.{mark}")).is_empty() }).await;
    let node = state().await;
    assert_eq!((&node["state"], &node["workers"][0]["boot"]), (&json!("READY"), &json!(1)));
    assert_eq!(processes_with(&format!("1000.{mark}")).len(), 1);
    let runs = std::fs::read_to_string(crate::bench::home(&node["workers"][0]).join("runs")).unwrap();
    assert_eq!(runs, "run\n");
    let delete = client.delete(format!("{endpoint}{}/n1", nodes())).send().await.unwrap();
    assert_eq!(delete.status().as_u16(), 200);
    child.kill().await.unwrap();
    (child, endpoint) = start().await;
    let url = format!("{endpoint}{}/n1", nodes());
    until("the node is gone", || async { client.get(&url).send().await.unwrap().status().as_u16() == 404 }).await;
    assert_eq!(processes_with(&format!("1000.{mark}")), Vec::<i32>::new());
    child.kill().await.unwrap();
}
