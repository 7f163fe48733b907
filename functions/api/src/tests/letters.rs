//! Dead letters: who sees which, and what of a job tells of them.

use jiff::SignedDuration;
use rekindle_core::ids::JobId;
use rekindle_ports::store::DeadDoc;
use rekindle_ports::world::Clock as _;
use rekindle_rig::spec;
use serde_json::json;

use super::Served;

const SECRET: &str = "T0/B0/secret";

/// A letter of `notify` about a job, or of `jobs` about none.
async fn bury(served: &Served, name: &str, job: Option<&str>) {
    let data = json!({
        "job": job.unwrap_or("x"), "phase": "succeeded", "reason": "succeeded", "message": SECRET, "attempt": 1,
        "generation": 1, "sequence": 5,
    });
    let function = if job.is_some() { "notify" } else { "jobs" };
    let doc = DeadDoc {
        key: name.into(),
        source: format!("{function}/pubsub"),
        reason: "hooks.example.com: it answered 404 Not Found".into(),
        at: served.rig.fakes.clock.now(),
        excerpt: data.to_string(),
        job: job.map(|id| JobId::parse(id).unwrap()),
        tried_until: None,
    };
    served.rig.fakes.store().bury(name.into(), &doc).await.unwrap();
    served.rig.advance(1);
}

#[tokio::test]
async fn a_job_tells_that_its_webhook_was_not_told() {
    let served = Served::new().await;
    let mut hooked = spec("hooked");
    hooked["notify"] = json!([{"webhook": format!("https://hooks.example.com/{SECRET}")}]);
    assert_eq!(served.post("/v1/jobs", &hooked).await.status, 201);
    served.post("/v1/jobs", &spec("plain")).await;
    let before = served.get("/v1/jobs/hooked").await.json();
    assert!(before.get("untold").is_none(), "{before}");
    for job in ["hooked", "plain"] {
        bury(&served, job, Some(job)).await;
    }
    let job = served.get("/v1/jobs/hooked").await.json();
    assert_eq!((&job["untold"]["phase"], &job["untold"]["function"]), (&json!("succeeded"), &json!("notify")));
    let explained = served.get("/v1/jobs/hooked/explain").await;
    assert!(
        explained.text().contains("was not told to a webhook at") && explained.text().contains("is not sent again"),
        "{}",
        explained.text()
    );
    assert!(explained.text().contains("rekindle dead-letters hooked"), "{}", explained.text());
    // The rest of the address is the right to write there.
    assert!(!explained.text().contains(SECRET));
    let untold = job["untold"].to_string();
    assert!(untold.contains("hooks.example.com: it answered 404") && !untold.contains(SECRET), "{untold}");
    // One that is tried again is told with its time, until nobody can be trying it any more.
    let store = served.rig.fakes.store();
    let (letters, _) = store.dead_letters(Some(&JobId::parse("hooked").unwrap()), None, 1).await.unwrap();
    let now = served.rig.fakes.clock.now();
    let waits =
        DeadDoc { at: now, tried_until: Some(now + SignedDuration::from_mins(5)), ..DeadDoc::clone(&letters[0]) };
    store.keep_waiting("hooked-6", &waits).await.unwrap();
    let explained = served.get("/v1/jobs/hooked/explain").await;
    assert!(
        explained.text().contains("could not be told to a webhook yet, and is tried again until"),
        "{}",
        explained.text()
    );
    assert!(served.get("/v1/jobs/hooked").await.json()["untold"]["tried_until"].is_string());
    let listed = async || served.get("/v1/dead-letters?job=hooked").await.json()["letters"].as_array().unwrap().len();
    assert_eq!(listed().await, 2);
    served.rig.advance(66 * 60);
    assert_eq!(listed().await, 1, "its end was not written down");
    // What another webhook missed before is told beside it, and of many webhooks the first.
    let letter = DeadDoc { at: served.rig.fakes.clock.now(), ..DeadDoc::clone(&letters[0]) };
    let many: Vec<String> = (0..10).map(|n| format!("h{n}.example.com: it answered 503")).collect();
    store.bury("many".into(), &DeadDoc { reason: many.join("\n"), ..letter.clone() }).await.unwrap();
    let untold = served.get("/v1/jobs/hooked").await.json()["untold"]["reason"].as_str().unwrap().to_owned();
    let earlier = "hooks.example.com: it answered 404 Not Found (of the event `succeeded`)";
    assert_eq!(untold, format!("{}\n{earlier}", many.join("\n")));
    let explained = served.get("/v1/jobs/hooked/explain").await.json()["paragraph"].as_str().unwrap().to_owned();
    let brief = ": 11 webhooks: h0.example.com: it answered 503; h1.example.com: it answered 503; h2.example.com: it \
                 answered 503; and 8 more. `rekindle dead-letters hooked` lists all of them.";
    assert!(explained.ends_with(brief), "{explained}");
    served.rig.advance(1);
    store.bury("same".into(), &letter).await.unwrap();
    // A job without webhooks asks for none.
    assert!(served.get("/v1/jobs/plain").await.json().get("untold").is_none());
}

#[tokio::test]
async fn dead_letters_are_listed_newest_first_page_by_page() {
    let served = Served::with_job().await;
    for (name, job) in [("a", Some("train")), ("b", None), ("c", Some("train"))] {
        bury(&served, name, job).await;
    }
    let first = served.get("/v1/dead-letters?page_size=2").await;
    assert!(!first.text().contains(SECRET), "{}", first.text());
    let first = first.json();
    let functions = |list: &serde_json::Value| {
        let letters = list["letters"].as_array().unwrap();
        letters.iter().map(|letter| letter["function"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(functions(&first), ["notify", "jobs"]);
    let token = first["next_page_token"].as_str().unwrap();
    let second = served.get(&format!("/v1/dead-letters?page_size=2&page_token={token}")).await.json();
    assert_eq!((functions(&second), &second["next_page_token"]), (vec!["notify".to_owned()], &json!(null)));
    let of_job = served.get("/v1/dead-letters?job=train").await.json();
    assert_eq!(functions(&of_job), ["notify", "notify"]);
    assert_eq!(served.get("/v1/dead-letters?job=nobody").await.status, 404);
    assert_eq!(served.get("/v1/dead-letters?owner=x").await.status, 400);
    served.rig.fakes.docs.set_down(true);
    assert_eq!(served.get("/v1/dead-letters").await.status, 503);
}

#[tokio::test]
async fn a_message_that_was_mended_since_names_the_job_that_came_of_it() {
    let served = Served::new().await;
    served.post("/v1/jobs", &spec("older")).await;
    served.rig.advance(1);
    for (name, excerpt) in [
        ("a", r#"{"id":"train","rnu":"x"}"#),
        ("b", r#"{"id":"older","rnu":"x"}"#),
        ("c", r#"{"id":"tr"#),
        // Commands of which no job could come.
        ("d", r#"{"id":"train"}"#),
        ("e", r#"{"id":"train","if_attempt":3,"new_slice":true,"from_scratch":false}"#),
    ] {
        let doc = DeadDoc {
            key: name.into(),
            source: "jobs/pubsub".into(),
            reason: "the job spec has a fault".into(),
            at: served.rig.fakes.clock.now(),
            excerpt: excerpt.into(),
            job: None,
            tried_until: None,
        };
        served.rig.fakes.store().bury(name.into(), &doc).await.unwrap();
        served.rig.advance(1);
    }
    let mended = async || {
        let list = served.get("/v1/dead-letters").await.json();
        let letters = list["letters"].as_array().unwrap();
        letters.iter().map(|letter| letter["mended_by"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(mended().await, [const { None::<String> }; 5], "a job that was there before mended nothing");
    served.post("/v1/jobs", &spec("train")).await;
    assert_eq!(mended().await, [None, None, None, None, Some("train".to_owned())]);
}
