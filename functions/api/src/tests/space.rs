//! Orders to a workspace, what its workers bring, and outputs.

use rekindle_core::exec::ExecAction;
use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::observation::WorkerState;
use rekindle_core::spec::CommandLine;
use rekindle_engine::tokens;
use rekindle_rig::{Answer, CALLER, post, send};
use rekindle_wire::agent::Report;
use serde_json::{Value, json};

use super::Served;
use super::agents::{Agent, running};

/// The workspace `train` of four workers, asked for.
async fn asked_for() -> Served {
    let served = Served::new().await;
    let spec = json!({"id": "train", "workspace": true, "tpu": {"accelerator": "v5litepod-16"}});
    let answer = served.post("/v1/jobs", &spec).await;
    assert!(answer.status.is_success(), "{}", answer.text());
    for _ in 0..4 {
        served.rig.pass("train").await;
        served.rig.advance(1);
    }
    served
}

async fn order(served: &Served, body: &Value, key: &str) -> Answer {
    let mut request = post("/v1/jobs/train/exec", body);
    request.headers_mut().insert("idempotency-key", key.parse().unwrap());
    send(&served.router, request).await
}

fn instance(worker: u32) -> String {
    format!("t1v-n-1-w-{worker}")
}

fn token(worker: u32) -> String {
    let key = WorkerKey { slice: 0, worker };
    tokens::token("secret", &JobId::parse("train").unwrap(), 1, key, &instance(worker))
}

/// A worker brings a chunk.
async fn bring(served: &Served, order: u64, worker: u32, place: &str, bytes: &str) -> u16 {
    let query = format!("generation=1&instance={}", instance(worker));
    let path = format!("/agent/v1/exec/train/{order}/0-{worker}/{place}?{query}");
    served.put(&path, &token(worker), bytes.to_owned()).await.status.as_u16()
}

#[tokio::test]
async fn an_order_reaches_its_workers_once_and_what_they_bring_is_read() {
    let served = asked_for().await;
    let all = json!({"run": "nproc"});
    let early = order(&served, &all, "k0").await;
    assert_eq!((early.status.as_u16(), &early.json()["phase"]), (409, &json!("starting")), "{}", early.text());
    assert_eq!(early.json()["detail"], "train has no workers yet: it is starting");
    let mut agents = running(&served).await;

    let given = order(&served, &all, "k1").await;
    assert_eq!((given.status.as_u16(), &given.json()["id"]), (202, &json!(1)), "{}", given.text());
    assert_eq!(given.json()["workers"].as_array().unwrap().len(), 4);
    let again = order(&served, &all, "k1").await;
    assert_eq!((again.status.as_u16(), again.json()), (202, given.json()), "the same key, the same answer");
    for other in [json!({"run": "free"}), json!({"run": "nproc", "worker": "1"})] {
        let answer = order(&served, &other, "k1").await;
        assert_eq!(answer.status, 409, "another order under the same key");
        assert!(answer.text().contains("order 1 was given under this Idempotency-Key"), "{}", answer.text());
    }
    assert!(served.rig.take_causes().contains(&"exec".to_owned()), "a pass rings the workers");
    let one = order(&served, &json!({"run": ["ls", "-l"], "worker": "w2"}), "k2").await;
    assert_eq!((one.status.as_u16(), &one.json()["workers"][0]["worker"]), (202, &json!("0-2")));

    for (worker, agent) in agents.iter_mut().enumerate() {
        let report = agent.report(WorkerState::Running);
        let told: Vec<_> = agent.send(&report).await.exec.into_iter().map(|o| (o.id, o.action)).collect();
        let mut due = vec![(1, ExecAction::Run(CommandLine::Shell("nproc".into())))];
        if worker == 2 {
            due.push((2, ExecAction::Run(CommandLine::Argv(vec!["ls".into(), "-l".into()]))));
        }
        assert_eq!(told, due, "worker {worker}");
    }

    assert_eq!(bring(&served, 1, 3, "stdout/0", "112\n").await, 204);
    assert_eq!(bring(&served, 1, 3, "stdout/0", "others\n").await, 409, "never overwritten");
    assert_eq!(bring(&served, 1, 3, "exit/0", r#"{"code":7}"#).await, 204);
    assert_eq!(bring(&served, 2, 3, "stdout/0", "x").await, 404, "the order is another's");
    assert_eq!(bring(&served, 9, 3, "stdout/0", "x").await, 404);
    assert_eq!(bring(&served, 1, 3, "stdin/0", "x").await, 404);
    let path = format!("/agent/v1/exec/train/1/0-1/stdout/0?generation=1&instance={}", instance(1));
    assert_eq!(served.put(&path, &token(3), "x").await.status, 401);

    let view = served.get("/v1/jobs/train/exec/1").await.json();
    let of_three = json!({"worker": "0-3", "stdout": 1, "stderr": 0, "exit": {"code": 7}});
    assert_eq!((&view["workers"][3], &view["workers"][1]["exit"]), (&of_three, &Value::Null), "{view}");
    assert_eq!(view["is_over"], false);
    assert_eq!(served.get("/v1/jobs/train/exec/1/0-3/stdout/0").await.text(), "112\n");
    assert_eq!(served.get("/v1/jobs/train/exec/1/0-3/stdout/1").await.status, 404);
    assert_eq!(served.get("/v1/jobs/train/exec/9").await.status, 404);
    // What saves at a pause still says something, and ends.
    assert_eq!(served.tell("/v1/jobs/train/pause").await.status, 202);
    served.rig.pass("train").await;
    assert!(served.rig.job("train").await.unwrap().attempts[0].stop.is_some());
    assert_eq!(served.get("/v1/jobs/train/exec/1").await.json()["is_over"], false);
    assert_eq!(bring(&served, 1, 3, "stdout/1", "saved\n").await, 204);
    served.rig.advance(400);
    assert_eq!(
        served.get("/v1/jobs/train/exec/1").await.json()["is_over"],
        true,
        "the five minutes of a pause are over"
    );
}

#[tokio::test]
async fn an_order_is_known_however_many_come_after_it() {
    let served = asked_for().await;
    let _agents = running(&served).await;
    for number in 1..=70 {
        let answer = order(&served, &json!({"run": "make", "worker": "3"}), &format!("k{number}")).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
    }
    assert_eq!(bring(&served, 1, 3, "stdout/0", "long\n").await, 204, "its document holds the newest alone");
    assert_eq!(bring(&served, 1, 2, "stdout/0", "x").await, 404, "the order is another's");
    assert_eq!(bring(&served, 71, 3, "stdout/0", "x").await, 404, "not given yet");
    assert_eq!(bring(&served, 1, 3, "exit/0", r#"{"code":0}"#).await, 204);
    let of_three = json!([{"worker": "0-3", "stdout": 1, "stderr": 0, "exit": {"code": 0}}]);
    assert_eq!(served.get("/v1/jobs/train/exec/1").await.json()["workers"], of_three);
}

#[tokio::test]
async fn the_workers_of_an_order_are_told_to_end_it_also_when_many_came_after_it() {
    let served = asked_for().await;
    let mut agents = running(&served).await;
    for number in 1..=70 {
        order(&served, &json!({"run": "make", "worker": "3"}), &format!("k{number}")).await;
    }
    served.rig.advance(700);
    let stop = async |number: u64| {
        let path = format!("/v1/jobs/train/exec/{number}/stop");
        served.tell(&path).await.status.as_u16()
    };
    assert_eq!((stop(1).await, stop(70).await, stop(71).await), (202, 202, 404));
    assert_eq!(stop(70).await, 202, "again");
    for worker in [2, 3] {
        let report = agents[worker].report(WorkerState::Running);
        let told: Vec<_> = agents[worker].send(&report).await.exec;
        let told: Vec<_> = told.iter().map(|order| (order.id, order.stop_at.is_some())).collect();
        let due = if worker == 3 { vec![(70, true), (1, true)] } else { Vec::new() };
        assert_eq!(told, due, "worker {worker}, although what else was ordered is too old to be told");
    }
}

#[tokio::test]
async fn a_key_ends_the_order_that_it_came_with_and_files_cannot_be_ended() {
    let served = asked_for().await;
    let mut agents = running(&served).await;
    let code = format!("{}/bundles/{}.tar.zst", served.rig.engine.deployment.bucket, "a".repeat(64));
    let files = json!({"unpack": {"code": code, "to": ""}});
    for (number, body) in [json!({"run": "make"}), json!({"run": "test"}), files].iter().enumerate() {
        let answer = order(&served, body, &format!("k{number}")).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
    }
    let packs = json!({"run": ["bash", "-c", "tar -cf - .", "sync", "results"]});
    assert_eq!(order(&served, &packs, "k3").await.status, 202);
    let entries = served.get("/v1/jobs/train/history").await.json()["entries"].clone();
    let entries = entries.as_array().unwrap().iter().filter(|entry| entry["cause"] == "exec");
    let said: Vec<_> = entries.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect();
    assert_eq!(said, ["exec", "exec", "sync", "sync"].map(|word| format!("{word} by {CALLER}")), "files both ways");
    let stop = async |order: &str| {
        let mut request = post(&format!("/v1/jobs/train/exec/{order}/stop"), &json!({}));
        request.headers_mut().insert("idempotency-key", "one".parse().unwrap());
        send(&served.router, request).await
    };
    for number in ["1", "2", "2"] {
        assert_eq!(stop(number).await.status, 202);
    }
    let answer = stop("3").await;
    assert_eq!(answer.status, 409);
    assert!(answer.text().contains("order 3 of train brings files"), "{}", answer.text());
    for faulty in ["0", "5", "-1", "x"] {
        let answer = stop(faulty).await;
        assert!([400, 404].contains(&answer.status.as_u16()), "{faulty}: {}", answer.text());
    }
    let report = agents[0].report(WorkerState::Running);
    let told: Vec<_> = agents[0].send(&report).await.exec;
    let told: Vec<_> = told.iter().map(|order| (order.id, order.stop_at.is_some())).collect();
    assert_eq!(told, [(1, true), (2, true), (3, false), (4, false)]);
}

#[tokio::test]
async fn a_chunk_of_an_order_has_a_number_of_ten_digits() {
    let served = asked_for().await;
    running(&served).await;
    order(&served, &json!({"run": "nproc"}), "k1").await;
    for (number, status) in [(u64::MAX, 400), (10_000_000_000, 400), (0, 204)] {
        assert_eq!(bring(&served, 1, 1, &format!("stdout/{number}"), "x").await, status, "{number}");
    }
    // One that an earlier version took.
    let name = format!("jobs/train/exec/00000001/0000-0001/stdout/{}", u64::MAX);
    served.rig.engine.ports.objects.put(&name, "x".into()).await.unwrap();
    let view = served.get("/v1/jobs/train/exec/1").await;
    assert_eq!(view.status, 200, "{}", view.text());
    assert_eq!(view.json()["workers"][1]["stdout"], 1, "{}", view.text());
}

#[tokio::test]
async fn chunks_that_the_caller_knows_are_not_listed_again() {
    let served = asked_for().await;
    let _agents = running(&served).await;
    order(&served, &json!({"run": "make"}), "k").await;
    let objects = &served.rig.engine.ports.objects;
    for (stream, count) in [("stderr", 1), ("stdout", 3000)] {
        for number in 0..count {
            objects
                .put(&format!("jobs/train/exec/00000001/0000-0001/{stream}/{number:010}"), "x".into())
                .await
                .unwrap();
        }
    }
    assert_eq!(bring(&served, 1, 2, "exit/0", r#"{"code":0}"#).await, 204);
    for from in ["", "?from=0-1/stdout/2990", "?from=0-1/stdout/2990;0-1/stderr/1", "?from=0-1/stdout/3000"] {
        let view = served.get(&format!("/v1/jobs/train/exec/1{from}")).await.json();
        let of_one = json!({"worker": "0-1", "stdout": 3000, "stderr": 1, "exit": null});
        assert_eq!((&view["workers"][1], &view["workers"][2]["exit"]["code"]), (&of_one, &json!(0)), "{from}");
    }
    for bad in ["x", "0-1/stdout", "0-1/stdin/1", "0-1/stdout/x"] {
        assert_eq!(served.get(&format!("/v1/jobs/train/exec/1?from={bad}")).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn an_order_that_cannot_be_carried_out_is_refused_with_the_reason() {
    let served = asked_for().await;
    let _agents = running(&served).await;
    let bundle = format!("{}/bundles/{}.tar.zst", served.rig.engine.deployment.bucket, "a".repeat(64));
    for (body, why) in [
        (json!({}), "give one of"),
        (json!({"run": "a", "unpack": {"code": "x", "to": ""}}), "give one of"),
        (json!({"run": []}), "`run` is empty; give the command to run"),
        (json!({"run": " "}), "`run` is empty"),
        (json!({"unpack": {"code": "gs://other/x.tar.zst", "to": ""}}), "no bundle"),
        (json!({"run": "x".repeat(20_000)}), "at most"),
        (json!({"run": "a", "worker": "4"}), "there are w0 to w3"),
        (json!({"run": ["printf", "a\0b"]}), r#""field":"run[1]","message":"has a NUL character, which no program"#),
        (json!({"run": "echo \0"}), r#""field":"run","message":"has a NUL character"#),
        (json!({"unpack": {"code": bundle, "to": "a\0"}}), r#""field":"unpack.to","message":"has a NUL character"#),
    ] {
        let answer = order(&served, &body, "k").await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains(why), "{}", answer.text());
    }
    let program = Served::with_job().await;
    let answer = order(&program, &json!({"run": "a"}), "k").await;
    assert_eq!(answer.status, 409);
    assert!(answer.text().contains("with a program of its own"), "{}", answer.text());
}

#[tokio::test]
async fn outputs_have_a_place_for_their_worker_and_are_listed_and_read() {
    let served = Served::with_job().await;
    let place_of = async |path: &str, worker: u32, attempt: Value| {
        let body = json!({
            "job": "train", "generation": 1, "key": {"slice": 0, "worker": 1}, "instance": instance(1), "path": path,
            "attempt": attempt,
        });
        let mut request = post("/agent/v1/outputs", &body);
        let bearer = format!("Bearer {}", token(worker)).parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        send(&served.router, request).await
    };
    let place = async |path: &str, worker: u32| place_of(path, worker, Value::Null).await;
    assert_eq!(place("a.txt", 2).await.status, 401, "another worker's token");
    for bad in ["", "/etc/passwd", "../a", "a/../../b", "a//b"] {
        assert_eq!(place(bad, 1).await.status, 400, "{bad:?}");
    }
    let answer = place("out/é .png", 1).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let upload = answer.json()["upload"].as_str().unwrap().to_owned();
    assert!(upload.contains("jobs/train/outputs/w1/out/=C3=A9=20.png"), "{upload}");

    for attempt in [0, 2] {
        assert_eq!(place_of("a", 1, json!(attempt)).await.status, 404, "it has had attempt 1 alone");
    }
    let of_first = place_of("a", 1, json!(1)).await.json()["upload"].as_str().unwrap().to_owned();
    assert!(of_first.contains("jobs/train/outputs/a1/w1/a"), "{of_first}");

    let bytes = "x".repeat(3 << 20);
    let objects = &served.rig.engine.ports.objects;
    objects.put("jobs/train/outputs/w1/out/=C3=A9=20.png", bytes.clone().into()).await.unwrap();
    objects.put("jobs/train/outputs/w3/empty", "".into()).await.unwrap();
    let list = served.get("/v1/jobs/train/outputs").await.json();
    let due = json!([
        {"worker": "w1", "path": "out/é .png", "object": "w1/out/=C3=A9=20.png"},
        {"worker": "w3", "path": "empty", "object": "w3/empty"},
    ]);
    assert_eq!(list["outputs"], due, "{list}");
    assert_eq!((&list["attempt"], &list["other_attempts"]), (&json!(0), &json!([])), "of agents that do not tell");
    let file = served.get("/v1/jobs/train/outputs/w1/out/=C3=A9=20.png").await;
    assert_eq!((file.status.as_u16(), file.text() == bytes), (200, true));
    assert_eq!(file.headers["content-length"], "3145728");
    assert_eq!(served.get("/v1/jobs/train/outputs/w3/empty").await.text(), "");
    for missing in ["w1/other", "../logs/x", "w1/%2E%2E/%2E%2E/logs/x"] {
        assert!(served.get(&format!("/v1/jobs/train/outputs/{missing}")).await.status.is_client_error(), "{missing}");
    }
    assert_eq!(served.get("/v1/jobs/none/outputs").await.status, 404);

    // What attempts left stays apart, and the last that left any is the result.
    for (name, text) in [("a1/w0/a", "1"), ("a1/w0/only", "1"), ("a10/w0/a", "10"), ("a9/w0/a", "9")] {
        objects.put(&format!("jobs/train/outputs/{name}"), text.into()).await.unwrap();
    }
    let list = async |query: &str| served.get(&format!("/v1/jobs/train/outputs{query}")).await;
    let last = list("").await.json();
    assert_eq!((&last["attempt"], &last["other_attempts"]), (&json!(10), &json!([0, 1, 9])));
    assert_eq!(last["outputs"], json!([{"worker": "w0", "path": "a", "object": "a10/w0/a"}]));
    assert!(last["place"].as_str().unwrap().ends_with("/jobs/train/outputs/a10/"), "{last}");
    assert_eq!(served.get("/v1/jobs/train/outputs/a10/w0/a").await.text(), "10");
    let first = list("?attempt=1").await.json();
    assert_eq!((first["outputs"].as_array().unwrap().len(), &first["other_attempts"]), (2, &json!([0, 9, 10])));
    let none = list("?attempt=11").await;
    assert_eq!(none.status, 400);
    assert!(none.text().contains("there is no attempt 11; the last is 1"), "{}", none.text());
}

#[tokio::test]
async fn an_output_of_too_long_a_name_is_400_with_the_limit_and_what_has_a_place_can_be_read() {
    let served = Served::with_job().await;
    let place = async |path: &str| {
        let body = json!({
            "job": "train", "generation": 1, "key": {"slice": 0, "worker": 1}, "instance": instance(1), "path": path,
            "attempt": 1,
        });
        let mut request = post("/agent/v1/outputs", &body);
        request.headers_mut().insert("authorization", format!("Bearer {}", token(1)).parse().unwrap());
        send(&served.router, request).await
    };
    let folder = "jobs/train/outputs/";
    let room = rekindle_ports::world::OBJECT_NAME_MAX - folder.len() - "a1/w1/".len();
    let longest = "a/".repeat(room / 2 - 1) + &"b".repeat(room - 2 * (room / 2 - 1));
    assert_eq!(place(&longest).await.status, 201);
    let objects = &served.rig.engine.ports.objects;
    objects.put(&format!("{folder}a1/w1/{longest}"), "x".into()).await.unwrap();
    let list = served.get("/v1/jobs/train/outputs").await.json();
    let object = list["outputs"][0]["object"].as_str().unwrap().to_owned();
    assert_eq!(served.get(&format!("/v1/jobs/train/outputs/{object}")).await.text(), "x");

    let answer = place(&format!("{longest}b")).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["errors"][0]["field"]), (400, &json!("path")));
    for word in ["a name of 1001 bytes, 1000 at most", "write it to a shorter path"] {
        assert!(answer.text().contains(word), "{}", answer.text());
    }
}

#[tokio::test]
async fn workers_with_a_bell_are_not_told_to_ask_each_second_unless_somebody_may_wait() {
    let served = asked_for().await;
    let mut agents = running(&served).await;
    let told = async |agent: &mut Agent<'_>, has_bell: bool| {
        let report = Report { has_bell, ..agent.report(WorkerState::Running) };
        agent.send(&report).await.poll_after_ms
    };
    assert_eq!(told(&mut agents[0], true).await, 1000, "it came up just now");
    served.rig.advance(600);
    let heartbeat = agents[0].order.heartbeat_ms;
    assert_eq!((told(&mut agents[0], true).await, told(&mut agents[0], false).await), (heartbeat, 10_000));
    assert_eq!(order(&served, &json!({"run": "nproc"}), "k").await.status, 202);
    assert_eq!((told(&mut agents[0], true).await, told(&mut agents[0], false).await), (1000, 1000));
    served.rig.advance(600);
    assert_eq!(told(&mut agents[0], true).await, heartbeat);
    assert_eq!(served.post("/v1/jobs/train/exec/1/stop", &json!({})).await.status, 202);
    assert!(served.rig.take_causes().contains(&"exec-stop".to_owned()), "a pass rings the workers");
    assert_eq!(told(&mut agents[0], true).await, 1000);
}
