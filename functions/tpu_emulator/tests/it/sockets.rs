//! Connections between workers, cut from the outside; workers that are frozen.

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;

use crate::bench::{Bench, home, spot};
use crate::helper;

#[tokio::test(flavor = "multi_thread")]
async fn connections_between_workers_are_cut_and_all_others_stay() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let bench = Bench::with(|config| {
        config.worker_env.insert("TEST_ADDRESS".to_owned(), address);
        config.worker_env.insert("TEST_FOLDER".to_owned(), config.state_dir.display().to_string());
    })
    .await;
    bench.ready("n1", spot("v5litepod-16", &helper::slice_script())).await;
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(BufReader::new(listener.accept().await.unwrap().0).lines());
    }
    for worker in &mut workers {
        assert_eq!(worker.next_line().await.unwrap().unwrap(), "talking");
    }
    let (status, answer) = bench.post("emulator/v1/nodes/n1/cut-connections", json!({"worker": 0})).await;
    if status == 501 {
        let text = answer["error"]["message"].as_str().unwrap();
        assert!(text.contains("kernel") && text.contains("freeze"), "{text}");
        eprintln!("skipped: this kernel does not let a supervisor cut connections: {text}");
        assert!(std::env::var_os("CI").is_none(), "connections cannot be cut here");
        return;
    }
    assert_eq!((status, &answer["cut"]), (200, &json!(3)), "{answer}");
    for worker in &mut workers {
        assert_eq!(worker.next_line().await.unwrap().unwrap(), "cut");
    }
    let again = bench.admin("nodes/n1/cut-connections", json!({"worker": 0})).await;
    assert_eq!(again["cut"], 0);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_worker_stands_still_and_goes_on() {
    let bench = Bench::new().await;
    let node = bench.ready("n1", spot("v5litepod-8", &helper::script("count"))).await;
    let file = home(&node["workers"][0]).join("count");
    let number = || std::fs::read_to_string(&file).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    bench.until("it counts", || async { number() > 3 }).await;
    let answer = bench.admin("nodes/n1/freeze", json!({"worker": 0, "for": "3s"})).await;
    assert!(answer["processes"].as_u64().unwrap() >= 1);
    let frozen_at = number();
    let moves = bench.until("it moves", || async { number() != frozen_at });
    let moved = tokio::time::timeout(std::time::Duration::from_millis(100), moves).await;
    assert!(moved.is_err(), "a frozen worker went on");
    bench.until("it counts again", || async { number() > frozen_at + 3 }).await;
    bench.end().await;
}
