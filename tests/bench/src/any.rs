//! Any bytes at any function's path: how fast they are told what they are. In process, on one core; beside it a route that only
//! takes the same bytes.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::ensure;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::post;
use http::{Request, StatusCode};

use rekindle_fn_notify::Sender;
use rekindle_rig::{Rig, send};
use rekindle_server::{Parts, Role, routers};
use rekindle_web::caller::Loopback;

use crate::per_second;

/// Paths that take a body.
const PATHS: [&str; 7] = [
    "/functions/jobs",
    "/functions/tpu-events",
    "/functions/notify",
    "/functions/reconcile",
    "/v1/jobs",
    "/agent/v1/hello",
    "/agent/v1/report",
];
const TYPES: [&str; 4] = ["application/json", "application/cloudevents+json", "application/octet-stream", "text/plain"];
const PUSH: &str = include_str!("../../samples/tpu/logsink-pubsub-push-preempted.json");

/// A sequence that is the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

/// As many bodies of nothing but chance as of a push or a job with some bytes replaced and the end cut off.
fn bodies() -> anyhow::Result<Vec<(&'static str, Bytes)>> {
    let push: serde_json::Value = serde_json::from_str(PUSH)?;
    let whole = [push["body"].to_string(), rekindle_rig::spec("any").to_string()];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let bodies = (0..400).map(|n| {
        let body = if n % 2 == 0 {
            (0..random.next(2000)).map(|_| random.next(256) as u8).collect()
        } else {
            let mut body = whole[n / 2 % 2].clone().into_bytes();
            for _ in 0..=random.next(3) {
                let at = random.next(body.len());
                body[at] = random.next(256) as u8;
            }
            body.truncate(1 + random.next(2 * body.len()));
            body
        };
        (TYPES[random.next(TYPES.len())], Bytes::from(body))
    });
    Ok(bodies.collect())
}

/// Requests a second of each path, and the slowest of them beside the bare route.
pub(crate) fn bytes(out: &mut impl Write) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rig = runtime.block_on(Rig::new());
    let parts = Parts {
        engine: rig.engine.clone(),
        verifier: Arc::new(Loopback { identity: rekindle_rig::CALLER.into() }),
        sender: Arc::new(Sender::new(false)),
        messages_may: std::collections::BTreeSet::new(),
        uploads: None,
    };
    let functions = routers(Role::All, parts);
    let bare = Router::new().route("/", post(async |_: Bytes| StatusCode::NO_CONTENT));
    let bodies = bodies()?;
    let mut statuses = BTreeMap::<u16, u64>::new();
    let mut rate = |router: &Router, path: &str| {
        let rounds = per_second(|| {
            runtime.block_on(async {
                for (content_type, body) in &bodies {
                    let request = Request::post(path).header("content-type", *content_type);
                    let Ok(request) = request.body(Body::from(body.clone())) else { continue };
                    *statuses.entry(send(router, request).await.status.as_u16()).or_default() += 1;
                }
            });
        });
        rounds * bodies.len() as f64
    };
    let bare = rate(&bare, "/");
    let rates: Vec<(&str, f64)> = PATHS.into_iter().map(|path| (path, rate(&functions, path))).collect();
    ensure!(statuses.keys().all(|status| *status < 500), "an answer that is neither 2xx nor 4xx: {statuses:?}");
    let told: Vec<String> = rates.iter().map(|(path, rate)| format!("{path} {rate:.0}")).collect();
    writeln!(out, "any bytes, requests a second on one core: {}", told.join(", "))?;
    let slowest = rates.iter().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
    writeln!(out, "any bytes: the slowest is {:.2} of a route that only takes them ({bare:.0})", slowest / bare)?;
    Ok(())
}
