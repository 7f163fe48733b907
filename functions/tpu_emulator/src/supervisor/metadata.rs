//! The metadata server of one VM, and the control calls of the emulator beside it.
//!
//! As on Compute Engine: every request needs `Metadata-Flavor: Google`, folders list their keys or give JSON with
//! `recursive=true`, and `wait_for_change` with `last_etag` and `timeout_sec` waits for another value.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::Digest as _;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Order, sockets, tree};
use crate::vm::{BootDir, Connection, CutReport, TOKEN_HEADER, VmSpec};

struct Server {
    spec: Arc<VmSpec>,
    dir: BootDir,
    tree: Mutex<Value>,
    changes: watch::Sender<u64>,
    orders: mpsc::Sender<Order>,
}

type Shared = Arc<Server>;

/// An answer without a value.
type Refusal = (StatusCode, String);

/// The routes.
pub(super) fn router(spec: Arc<VmSpec>, dir: BootDir, address: SocketAddr, orders: mpsc::Sender<Order>) -> Router {
    tracing::info!("metadata server at {address}");
    let tree = Mutex::new(spec.tree.clone());
    let server = Arc::new(Server { spec, dir, tree, changes: watch::Sender::new(0), orders });
    let control = Router::new()
        .route("/supervisor/v1/metadata", post(set_metadata))
        .route("/supervisor/v1/end", post(end))
        .route("/supervisor/v1/kill-program", post(kill_program))
        .route("/supervisor/v1/connections", get(connections))
        .route("/supervisor/v1/cut", post(cut))
        .route("/supervisor/v1/freeze", post(freeze))
        .layer(axum::middleware::from_fn_with_state(server.clone(), check_token));
    control.fallback(metadata).with_state(server)
}

async fn check_token(
    State(server): State<Shared>,
    headers: HeaderMap,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    let is_control = request.uri().path().starts_with("/supervisor/");
    let given = headers.get(TOKEN_HEADER).and_then(|value| value.to_str().ok());
    if is_control && given != Some(server.spec.token.as_str()) {
        return StatusCode::FORBIDDEN.into_response();
    }
    next.run(request).await
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Options {
    recursive: Option<String>,
    wait_for_change: Option<String>,
    last_etag: Option<String>,
    timeout_sec: Option<u64>,
    audience: Option<String>,
    format: Option<String>,
}

fn is_true(flag: Option<&String>) -> bool {
    flag.is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

async fn metadata(
    State(server): State<Shared>,
    method: Method,
    uri: Uri,
    Query(options): Query<Options>,
    headers: HeaderMap,
    body: String,
) -> Response {
    let mut response = answer(&server, &method, &uri, &options, &headers, body).await;
    let shown = response.headers_mut();
    shown.insert("metadata-flavor", HeaderValue::from_static("Google"));
    shown.insert("server", HeaderValue::from_static("Metadata Server for VM"));
    response
}

async fn answer(
    server: &Server,
    method: &Method,
    uri: &Uri,
    options: &Options,
    headers: &HeaderMap,
    body: String,
) -> Response {
    if headers.contains_key("x-forwarded-for") {
        return (StatusCode::FORBIDDEN, "requests that were forwarded are refused").into_response();
    }
    let path = uri.path();
    if path == "/" {
        return "computeMetadata/\n".into_response();
    }
    if headers.get("metadata-flavor").is_none_or(|flavor| flavor != "Google") {
        return (StatusCode::FORBIDDEN, "Missing Metadata-Flavor:Google header.").into_response();
    }
    let Some(path) = path.strip_prefix("/computeMetadata/v1") else { return StatusCode::NOT_FOUND.into_response() };
    let path = path.trim_matches('/');
    match *method {
        Method::GET if is_true(options.wait_for_change.as_ref()) => wait(server, path, uri, options).await,
        Method::GET => read(server, path, uri, options),
        Method::PUT | Method::DELETE => write(server, method, path, &body),
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

fn read(server: &Server, path: &str, uri: &Uri, options: &Options) -> Response {
    match look_up(server, path, uri, options) {
        Ok((text, kind)) => with_etag(text, kind),
        Err(refusal) => refusal.into_response(),
    }
}

async fn wait(server: &Server, path: &str, uri: &Uri, options: &Options) -> Response {
    let mut changes = server.changes.subscribe();
    let limit = options.timeout_sec.map_or(Duration::from_hours(365 * 24), Duration::from_secs);
    let deadline = tokio::time::Instant::now() + limit;
    let mut known = options.last_etag.clone();
    loop {
        changes.borrow_and_update();
        let (text, kind) = match look_up(server, path, uri, options) {
            Ok(found) => found,
            Err(refusal) => return refusal.into_response(),
        };
        let now = etag(&text);
        if *known.get_or_insert_with(|| now.clone()) != now {
            return with_etag(text, kind);
        }
        if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
            return with_etag(text, kind);
        }
    }
}

fn with_etag(text: String, kind: &'static str) -> Response {
    let etag = etag(&text);
    ([("content-type", kind.to_owned()), ("etag", etag)], text).into_response()
}

fn etag(text: &str) -> String {
    hex::encode(&sha2::Sha256::digest(text.as_bytes())[..8])
}

/// The text of a value or folder, and its content type.
fn look_up(server: &Server, path: &str, uri: &Uri, options: &Options) -> Result<(String, &'static str), Refusal> {
    if let Some(text) = account(server, path, options)? {
        return Ok((text, if path.ends_with("/token") { "application/json" } else { "application/text" }));
    }
    let tree = server.lock();
    let mut value = &*tree;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        value = value.get(part).ok_or_else(|| (StatusCode::NOT_FOUND, String::new()))?;
    }
    if is_true(options.recursive.as_ref()) {
        return Ok((camel(value, path.contains("attributes")).to_string(), "application/json"));
    }
    match value {
        Value::Object(folder) if !uri.path().ends_with('/') && !path.is_empty() && folder.is_empty() => {
            Ok((String::new(), "application/text"))
        }
        Value::Object(folder) => {
            let line = |(key, value): (&String, &Value)| format!("{key}{}\n", if value.is_object() { "/" } else { "" });
            Ok((folder.iter().map(line).collect(), "application/text"))
        }
        Value::String(text) => Ok((text.clone(), "application/text")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            Ok((value.to_string(), "application/text"))
        }
    }
}

/// Values of a service account that are made on demand.
fn account(server: &Server, path: &str, options: &Options) -> Result<Option<String>, Refusal> {
    let Some(rest) = path.strip_prefix("instance/service-accounts/") else { return Ok(None) };
    let Some((account, leaf)) = rest.split_once('/') else { return Ok(None) };
    let is_known = server.lock()["instance"]["service-accounts"].get(account).is_some();
    if !is_known {
        return Ok(None);
    }
    match leaf {
        "token" => {
            let token = format!("ya29.emulated-{}", server.spec.vm);
            let grant = json!({"access_token": token, "expires_in": 3599, "token_type": "Bearer"});
            Ok(Some(grant.to_string()))
        }
        "identity" => {
            let Some(audience) = options.audience.as_deref().filter(|audience| !audience.is_empty()) else {
                return Err((StatusCode::BAD_REQUEST, "non-empty audience parameter required".to_owned()));
            };
            let is_full = options.format.as_deref() == Some("full");
            let signed = crate::identity::sign(&server.spec.key_file, &server.spec.identity, audience, is_full);
            signed
                .map(Some)
                .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot sign the token: {error:#}")))
        }
        _ => Ok(None),
    }
}

/// `kebab-case` keys as `camelCase`, but those that people chose.
fn camel(value: &Value, is_custom: bool) -> Value {
    let Value::Object(folder) = value else { return value.clone() };
    let rename = |key: &str| {
        let mut parts = key.split('-');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |name, part| {
            let mut letters = part.chars();
            let head = letters.next().map(|letter| letter.to_ascii_uppercase());
            name + &head.into_iter().chain(letters).collect::<String>()
        })
    };
    let entries = folder.iter().map(|(key, value)| {
        let is_below = is_custom || key == "attributes" || key == "guest-attributes";
        (if is_custom { key.clone() } else { rename(key) }, camel(value, is_below))
    });
    Value::Object(entries.collect())
}

/// Guest attributes are the only values that a VM may write.
fn write(server: &Server, method: &Method, path: &str, body: &str) -> Response {
    let parts: Vec<&str> = path.split('/').collect();
    let ["instance", "guest-attributes", namespace, key] = parts.as_slice() else {
        return StatusCode::FORBIDDEN.into_response();
    };
    let attributes = {
        let mut tree = server.lock();
        let space = &mut tree["instance"]["guest-attributes"][*namespace];
        if !space.is_object() {
            *space = Value::Object(Map::new());
        }
        if *method == Method::PUT {
            space[*key] = json!(body);
        } else if let Some(space) = space.as_object_mut() {
            space.remove(*key);
        }
        tree["instance"]["guest-attributes"].clone()
    };
    server.changed();
    match crate::vm::write_json(&server.dir.guest_attributes(), &attributes) {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Sets values by path; `null` removes.
async fn set_metadata(State(server): State<Shared>, Json(changes): Json<Vec<(String, Value)>>) -> StatusCode {
    {
        let mut tree = server.lock();
        for (path, value) in changes {
            let Some((folder, leaf)) = path.rsplit_once('/') else { continue };
            let mut place = &mut *tree;
            for part in folder.split('/') {
                place = &mut place[part];
            }
            if value.is_null() {
                place.as_object_mut().map(|folder| folder.remove(leaf));
            } else {
                place[leaf] = value;
            }
        }
    }
    server.changed();
    StatusCode::NO_CONTENT
}

async fn end(State(server): State<Shared>) -> StatusCode {
    let (done, wait) = oneshot::channel();
    if server.orders.send(Order::End(done)).await.is_err() {
        return StatusCode::GONE;
    }
    match wait.await {
        Ok(()) => StatusCode::NO_CONTENT,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The main loop takes in the dead meanwhile: it is woken by their signal.
async fn kill_program() -> Response {
    match tree::kill_descendants(|| {}).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn connections() -> Json<Vec<Connection>> {
    Json(sockets::connections())
}

async fn cut(Json(wanted): Json<Vec<Connection>>) -> Json<CutReport> {
    Json(sockets::cut(&wanted))
}

/// Stops every process of the VM for so many milliseconds. Answers once they are stopped.
async fn freeze(Json(millis): Json<u64>) -> Response {
    let frozen = match tree::freeze_descendants() {
        Ok(frozen) => frozen,
        Err(error) => return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    };
    let count = frozen.len();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        tree::thaw(&frozen);
    });
    Json(count).into_response()
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, Value> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|version| *version += 1);
    }
}
