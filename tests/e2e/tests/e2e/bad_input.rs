//! Bad input is refused with every fault named at once, and harms nothing.

use anyhow::{Context as _, Result, ensure};
use rekindle_e2e::{Dev, Options, scenario};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::jobs::counting;

const JSON: Option<&str> = Some("application/json");

async fn post(dev: &Dev, path: &str, content_type: Option<&str>, body: impl Into<Vec<u8>>) -> Result<StatusCode> {
    Ok(dev.request(Method::POST, path, content_type, body.into()).await?.status)
}

/// Every wrong field is named in one answer, and nothing else is.
async fn names_every_fault(dev: &Dev) -> Result<()> {
    let spec = json!({
        "id": "Not An Id",
        "run": [],
        "colour": "red",
        "tpu": {
            "accelerator": "v5litepod-17", "zones": ["mars-north1-a"], "capacity": ["stolen"], "queued": "perhaps",
            "slices": 0
        },
        "recovery": {"preset": "hope"},
        "limits": {"start": "soon", "stall": -1},
        "priority": 101,
        "env": {"A=B": "1"}
    });
    let answer = dev.post("/v1/jobs", &spec).await?;
    ensure!(answer.status == StatusCode::BAD_REQUEST, "{}: {}", answer.status, answer.body);
    let errors = answer.body["errors"].as_array().context("no errors")?;
    let named: Vec<&str> = errors.iter().filter_map(|error| error["field"].as_str()).collect();
    let due = [
        "id",
        "run",
        "colour",
        "tpu.accelerator",
        "tpu.zones",
        "tpu.capacity",
        "tpu.queued",
        "tpu.slices",
        "recovery.preset",
        "limits.start",
        "limits.stall",
        "priority",
        "env",
    ];
    for field in due {
        ensure!(named.iter().any(|name| name.starts_with(field)), "{field} is not named in {errors:#?}");
    }
    let others: Vec<&&str> = named.iter().filter(|name| !due.iter().any(|field| name.starts_with(field))).collect();
    ensure!(others.is_empty(), "{others:?} are named in {errors:#?}");
    Ok(())
}

/// Bodies that nobody should have to read to their end.
async fn refuses_bodies(dev: &Dev) -> Result<()> {
    let large = format!("{{\"notes\": \"{}\"}}", "x".repeat(10 * 1024 * 1024));
    let deep = format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000));
    let deep_field =
        format!("{{\"id\":\"deep\",\"run\":\"true\",\"tpu\":{}1{}}}", "{\"a\":".repeat(5_000), "}".repeat(5_000));
    for path in [
        "/v1/jobs",
        "/functions/jobs",
        "/functions/tpu-events",
        "/functions/reconcile",
        "/functions/tick",
        "/agent/v1/hello",
    ] {
        let cases: [(&str, Option<&str>, Vec<u8>); 8] = [
            ("10 MB", JSON, large.clone().into_bytes()),
            ("deep", JSON, deep.clone().into_bytes()),
            ("deep in a field", JSON, deep_field.clone().into_bytes()),
            ("no UTF-8", JSON, b"{\"id\": \"\xff\xfe\"}".to_vec()),
            ("no JSON", JSON, b"{\"id\": ".to_vec()),
            ("XML", Some("application/xml"), b"<job/>".to_vec()),
            ("a form", Some("application/x-www-form-urlencoded"), b"id=a&run=b".to_vec()),
            ("no content type", None, b"{}".to_vec()),
        ];
        for (what, content_type, body) in cases {
            // Cloud Scheduler calls the tick with whatever body it was given, and an unwrapped push has any bytes.
            let is_any = path == "/functions/tick" && what != "10 MB";
            let is_push = path.starts_with("/functions/") && matches!(what, "a form" | "no content type");
            if is_any || is_push {
                continue;
            }
            let status = post(dev, path, content_type, body).await.with_context(|| format!("{path}: {what}"))?;
            ensure!(status.is_client_error(), "{path}: {what}: {status}");
        }
    }
    Ok(())
}

/// Paths and queries that lead nowhere.
async fn refuses_paths(dev: &Dev) -> Result<()> {
    for (path, due) in [
        ("/v1/jobs/nothere", 404),
        ("/v1/jobs/Not%20An%20Id", 404),
        ("/v1/jobs/..%2f..%2fetc", 404),
        ("/v1/jobs/%ff", 404),
        ("/v1/jobs?phase=happy", 400),
        ("/v1/jobs?page_size=many", 400),
        ("/v1/jobs?page_token=%00", 400),
        ("/v1/nothing", 404),
        ("/objects/../store.redb", 404),
    ] {
        let answer = dev.request(Method::GET, path, None, Vec::new()).await?;
        ensure!(answer.status.as_u16() == due, "{path}: {} {}, not {due}", answer.status, answer.body);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_and_harms_nothing() -> Result<()> {
    scenario("bad input", Options::speed(20.0), async |dev| {
        // A job beside it all, which must not notice.
        dev.submit(&counting(dev, "bystander", 1)?).await?;
        names_every_fault(dev).await?;
        refuses_bodies(dev).await?;
        refuses_paths(dev).await?;
        let jobs = dev.get("/v1/jobs").await?;
        ensure!(jobs["jobs"].as_array().map(Vec::len) == Some(1), "other jobs came to be: {jobs}");
        let again = dev.post("/v1/jobs", &counting(dev, "bystander", 1)?).await?;
        ensure!(again.status == StatusCode::OK, "the same job again: {}", again.status);
        let mut other: Value = counting(dev, "bystander", 1)?;
        other["notes"] = json!("another spec");
        let other = dev.post("/v1/jobs", &other).await?;
        ensure!(other.status == StatusCode::CONFLICT, "the same id with another spec: {}", other.status);
        dev.step("bystander", 1, 5).await?;
        dev.ledger("bystander")?.finish(0)?;
        dev.phase("bystander", "succeeded").await.map(drop)
    })
    .await
}
