//! A trace from a message to the call of the TPU API, and its spans at a collector, against one server that records.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::{Value, json};

use rekindle_fn_jobs::Name;
use rekindle_fn_notify::Sender;
use rekindle_gcp::auth::Service;
use rekindle_gcp::tpu::GoogleTpu;
use rekindle_rig::{Rig, push, send};
use rekindle_telemetry::Format;
use rekindle_web::caller::Loopback;

use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// What came: method and path, `traceparent`, body.
type Seen = Arc<Mutex<Vec<(String, String, Value)>>>;

async fn record(
    State(seen): State<Seen>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, axum::Json<Value>) {
    let call = format!("{method} {}", uri.path());
    let trace = headers.get("traceparent").map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
    seen.lock().unwrap().push((call.clone(), trace, serde_json::from_slice(&body).unwrap_or_default()));
    if call == "POST /v1/traces" {
        (StatusCode::OK, axum::Json(json!({})))
    } else if method == Method::POST {
        (StatusCode::OK, axum::Json(json!({"name": "projects/p/locations/z/operations/o"})))
    } else {
        (StatusCode::NOT_FOUND, axum::Json(json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "no"}})))
    }
}

/// Spans that the collector has: name, trace id, span id, parent's span id.
fn spans(seen: &Seen) -> Vec<[String; 4]> {
    let seen = seen.lock().unwrap();
    let bodies = seen.iter().filter(|(call, ..)| call == "POST /v1/traces").map(|(.., body)| body);
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    bodies
        .flat_map(|body| list(body, "resourceSpans"))
        .flat_map(|resource| list(&resource, "scopeSpans"))
        .flat_map(|scope| list(&scope, "spans"))
        .map(|span| ["name", "traceId", "spanId", "parentSpanId"].map(|f| span[f].as_str().unwrap_or("").to_owned()))
        .collect()
}

#[tokio::test]
async fn a_trace_goes_from_message_to_hint_to_pass_to_the_tpu_api_and_is_sent_before_the_answer() {
    let seen = Seen::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let recorder = Router::new().fallback(record).with_state(seen.clone());
    tokio::spawn(async move { axum::serve(listener, recorder).await.unwrap() });
    let service = rekindle_telemetry::Service { name: "rekindle-events".into(), version: "1".into() };
    rekindle_telemetry::init(Format::Pretty, "info", Some((&address, &service))).unwrap();

    let rig = Rig::new().await;
    let mut engine = rig.engine.clone();
    engine.ports.tpu = Arc::new(GoogleTpu::new("p", Service::emulator(&address)));
    let router = routers(
        Role::All,
        Parts {
            engine,
            verifier: Arc::new(Loopback { identity: rekindle_rig::CALLER.into() }),
            sender: Arc::new(Sender::new(false)),
            messages_may: Name::ALL.into_iter().collect(),
            uploads: None,
        },
    );
    let job = serde_json::to_vec(&rekindle_rig::spec("traced")).unwrap();
    let sent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let message = push("/functions/jobs", "1", &[("googclient_traceparent", &sent)], &job);
    assert_eq!(send(&router, message).await.status, StatusCode::NO_CONTENT);
    let after_message = spans(&seen);
    let message = after_message.iter().find(|span| span[0] == "message").expect("sent before the answer");
    assert_eq!((message[1].as_str(), message[3].as_str()), (TRACE, "00f067aa0ba902b7"));

    let hints = rig.fakes.hints.take();
    let hint = serde_json::to_vec(&hints[0]).unwrap();
    assert_eq!(hints[0].traceparent.as_deref(), Some(format!("00-{TRACE}-{}-01", message[2]).as_str()));
    assert_eq!(send(&router, push("/functions/reconcile", "2", &[], &hint)).await.status, StatusCode::NO_CONTENT);
    let all = spans(&seen);
    let pass = all.iter().find(|span| span[0] == "message" && span[3] == message[2]).expect("the pass goes on from it");
    let inner = all.iter().find(|span| span[0] == "pass" && span[3] == pass[2]).expect("the pass has a span");
    let create = all.iter().find(|span| span[0] == "tpu create").expect("the call has a span");
    assert_eq!((create[1].as_str(), &create[3]), (TRACE, &inner[2]));
    let seen = seen.lock().unwrap();
    let (_, header, _) = seen.iter().find(|(call, ..)| call.ends_with("/nodes") && call.starts_with("POST")).unwrap();
    assert_eq!(*header, format!("00-{TRACE}-{}-01", create[2]));
}
