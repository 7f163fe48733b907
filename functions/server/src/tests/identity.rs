//! The table of bad tokens at every door: refused as it should be, nothing changed, and a line in the log that says why.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use serde_json::{Value, json};

use rekindle_core::settings::Deployment;
use rekindle_fakes::tokens::{Issuer, KEY, OTHER_KEY, TokenKey, unsigned};
use rekindle_fn_jobs::Name;
use rekindle_fn_notify::Sender;
use rekindle_gcp::oidc::{Mode, OidcSettings};
use rekindle_ports::world::Clock;
use rekindle_rig::{Answer, Log, Rig, send, spec};

use crate::config::Callers;
use crate::doors::OidcDoors;
use crate::{Parts, Role, routers};

const URL: &str = "https://svc.example.app";
/// The audience of tokens that gcloud prints for people.
pub(super) const GCLOUD: &str = "gcloud.apps.example.com";
/// The workers' account.
pub(super) const WORKER: &str = "worker@p.iam.gserviceaccount.com";

/// All functions behind doors that verify, with a local set of keys.
pub(super) struct World {
    pub(super) rig: Rig,
    pub(super) router: Router,
    mode: Mode,
}

/// A call that would change something.
pub(super) struct Call {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: String,
}

impl Call {
    pub(super) fn post(path: &str, body: String) -> Self {
        Self { method: "POST", path: path.to_owned(), body }
    }
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(Mode::Verify).await
    }

    /// Where this mode checks who calls.
    pub(super) async fn with(mode: Mode) -> Self {
        let mut rig = Rig::new().await;
        let deployment = Deployment::clone(&rig.engine.deployment);
        rig.engine.deployment = Arc::new(Deployment { worker_service_account: Some(WORKER.into()), ..deployment });
        let one = |name: &str| vec![format!("{name}@p.iam.gserviceaccount.com")];
        let callers = Callers {
            push: one("push"),
            eventarc: one("eventarc"),
            tasks: one("tasks"),
            scheduler: one("scheduler"),
            people: vec!["ann@example.com".into()],
            people_audiences: vec![GCLOUD.into()],
            admins: Vec::new(),
        };
        let (_, jwks_url) = Issuer::serve().await;
        let settings = OidcSettings { jwks_url, ..OidcSettings::google(mode, mode == Mode::Platform) };
        let doors = OidcDoors::new(settings, vec![URL.into()], callers, rig.fakes.clock.clone()).unwrap();
        let parts = Parts {
            engine: rig.engine.clone(),
            verifier: Arc::new(doors),
            sender: Arc::new(Sender::new(false)),
            messages_may: Name::ALL.into_iter().collect(),
            uploads: None,
        };
        Self { router: routers(Role::All, parts), rig, mode }
    }

    pub(super) fn now(&self) -> i64 {
        self.rig.fakes.clock.now().as_second()
    }

    pub(super) fn claims(&self, email: &str) -> Value {
        json!({
            "iss": "https://accounts.google.com", "aud": URL, "sub": "1", "email": email, "email_verified": true,
            "iat": self.now() - 10, "exp": self.now() + 3590,
        })
    }

    /// The token with these claims as it comes to the server: Cloud Run takes its signature off.
    pub(super) fn token(&self, claims: &Value) -> String {
        let signed = sign(claims);
        if self.mode == Mode::Platform { without_signature(&signed) } else { signed }
    }

    /// The token of somebody with one claim changed.
    pub(super) fn token_with(&self, claims: &Value, name: &str, value: Value) -> String {
        let mut claims = claims.clone();
        claims[name] = value;
        self.token(&claims)
    }

    pub(super) async fn send(&self, call: &Call, headers: &[(&str, String)]) -> Answer {
        let mut request = Request::builder().method(call.method).uri(&call.path);
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        send(&self.router, request.body(Body::from(call.body.clone())).unwrap()).await
    }

    pub(super) async fn send_as(&self, email: &str, call: &Call) -> Answer {
        self.send(call, &bearer(&self.token(&self.claims(email)))).await
    }

    /// Every token that must be refused, of whoever may call with these claims: name, token, what the log says. All are 401.
    pub(super) fn bad(&self, claims: &Value) -> Vec<(&'static str, Option<String>, &'static str)> {
        let header = |kid: &str, alg: &str| json!({"alg": alg, "kid": kid, "typ": "JWT"});
        let secret = jsonwebtoken::EncodingKey::from_secret(&KEY.public_der());
        let mut hs256 = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::HS256);
        hs256.kid = Some("k1".into());
        let with = |name: &str, value: Value| Some(self.token_with(claims, name, value));
        let rs256 = |key: &TokenKey, kid: &str| Some(key.sign(&header(kid, "RS256"), claims));
        // What Cloud Run lets through to a service that verifies for itself, and what it never would.
        let stripped = if self.mode == Mode::Platform {
            ("no claims behind a signature taken off", Some(without_signature("e30.e30")), "malformed")
        } else {
            ("a signature taken off", Some(without_signature(&sign(claims))), "took its signature off")
        };
        vec![
            ("no token", None, "no identity token"),
            ("no JWT", Some("abc".into()), "cannot be read"),
            ("another audience", with("aud", json!("https://other.example.app")), "audience"),
            ("another issuer", with("iss", json!("https://evil.example.com")), "issuer"),
            ("the algorithm none", Some(format!("{}.", unsigned(&header("k1", "none"), claims))), "cannot be read"),
            ("HS256 with the public key", jsonwebtoken::encode(&hs256, claims, &secret).ok(), "RS256"),
            ("an unknown key", rs256(&KEY, "k9"), "unknown key"),
            ("another key's signature", rs256(&OTHER_KEY, "k1"), "signature"),
            stripped,
            ("expired", with("exp", json!(self.now() - 61)), "expired"),
            ("not yet valid", with("nbf", json!(self.now() + 61)), "not valid yet"),
            ("issued in the future", with("iat", json!(self.now() + 61)), "not valid yet"),
            ("an unverified email", with("email_verified", json!(false)), "not verified"),
            ("no email", with("email", Value::Null), "gcloud auth print-identity-token"),
        ]
    }
}

pub(super) fn sign(claims: &Value) -> String {
    KEY.sign(&json!({"alg": "RS256", "kid": "k1", "typ": "JWT"}), claims)
}

/// A token as Cloud Run passes it on.
fn without_signature(token: &str) -> String {
    let parts: Vec<&str> = token.split('.').take(2).collect();
    format!("{}.SIGNATURE_REMOVED_BY_GOOGLE", parts.join("."))
}

fn bearer(token: &str) -> Vec<(&'static str, String)> {
    vec![("authorization", format!("Bearer {token}"))]
}

fn message(data: &str) -> String {
    let data = STANDARD.encode(data);
    json!({"message": {"data": data, "messageId": "1", "publishTime": "2026-11-20T10:00:00Z"}, "subscription": "s"})
        .to_string()
}

/// Each door with who may call there, and a call.
fn doors() -> Vec<(&'static str, Call)> {
    let event = include_str!("../../../../tests/samples/tpu/logsink-pubsub-push-preempted.json");
    let event: Value = serde_json::from_str(event).unwrap();
    let push = "push@p.iam.gserviceaccount.com";
    vec![
        (push, Call::post("/functions/jobs", message(&spec("by-message").to_string()))),
        (push, Call::post("/functions/tpu-events", event["body"].to_string())),
        (push, Call::post("/functions/notify", message("not an event"))),
        ("tasks@p.iam.gserviceaccount.com", Call::post("/functions/reconcile", message(r#"{"job": "train"}"#))),
        ("scheduler@p.iam.gserviceaccount.com", Call::post("/functions/tick", String::new())),
        ("ann@example.com", Call::post("/v1/jobs", spec("by-hand").to_string())),
        ("ann@example.com", Call::post("/v1/jobs/train/cancel", String::new())),
    ]
}

fn submit() -> Call {
    Call::post("/v1/jobs", spec("by-hand").to_string())
}

#[tokio::test]
async fn every_bad_token_is_refused_at_every_door_and_changes_nothing() {
    bad_tokens_are_refused(Mode::Verify).await;
}

#[tokio::test]
async fn so_it_is_where_the_platform_has_verified_them() {
    bad_tokens_are_refused(Mode::Platform).await;
}

async fn bad_tokens_are_refused(mode: Mode) {
    let world = World::with(mode).await;
    let log = Log::default();
    let _guard = log.listen();
    assert_eq!(world.send_as("ann@example.com", &submit()).await.status, 201);
    let before = world.rig.fakes.docs.dump();
    assert_eq!(world.rig.fakes.hints.take().len(), 1);
    for (email, call) in doors() {
        for (name, token, told) in world.bad(&world.claims(email)) {
            log.take();
            let answer = world.send(&call, &token.as_deref().map(bearer).unwrap_or_default()).await;
            assert_eq!(answer.status, 401, "{name} at {}", call.path);
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(told), "{name} at {}: the caller sees {detail:?}", call.path);
            let line = log.take();
            assert!(line.contains("WARN") && line.contains(told), "{name} at {}: {line:?}", call.path);
            assert!(!token.is_some_and(|token| token.len() > 10 && line.contains(&token)), "a token in the log");
        }
        for other in ["eve@example.com", WORKER, "eventarc@p.iam.gserviceaccount.com"] {
            if other.starts_with("eventarc") && call.path == "/functions/tpu-events" {
                continue;
            }
            let answer = world.send_as(other, &call).await;
            assert_eq!(answer.status, 403, "{other} at {}", call.path);
            assert!(log.take().contains(other), "{other} at {}", call.path);
        }
    }
    assert_eq!(world.rig.fakes.docs.dump(), before);
    assert!(world.rig.fakes.hints.take().is_empty() && world.rig.dead_reasons().is_empty());
    for (email, call) in doors() {
        let answer = world.send_as(email, &call).await;
        assert!(![401, 403].contains(&answer.status.as_u16()), "{email} at {}: {}", call.path, answer.text());
    }
}

#[tokio::test]
async fn gclouds_own_audience_is_for_people_who_are_named_and_for_nothing_else() {
    let world = World::new().await;
    for (email, call) in doors() {
        let answer = world.send(&call, &bearer(&world.token_with(&world.claims(email), "aud", json!(GCLOUD)))).await;
        let is_person = email == "ann@example.com";
        assert_eq!(answer.status == 401, !is_person, "{email} at {}: {}", call.path, answer.text());
    }
    let eve = world.token_with(&world.claims("eve@example.com"), "aud", json!(GCLOUD));
    assert_eq!(world.send(&submit(), &bearer(&eve)).await.status, 403);
}

#[tokio::test]
async fn an_audience_with_an_open_part_is_taken_in_mode_platform_alone() {
    let rig = Rig::new().await;
    let made = |mode: Mode| {
        let callers = Callers {
            push: Vec::new(),
            eventarc: Vec::new(),
            tasks: Vec::new(),
            scheduler: Vec::new(),
            people: Vec::new(),
            people_audiences: Vec::new(),
            admins: Vec::new(),
        };
        let settings = OidcSettings::google(mode, mode == Mode::Platform);
        let open = vec!["https://rekindle-events-*.a.run.app".to_owned()];
        OidcDoors::new(settings, open, callers, rig.fakes.clock.clone())
    };
    assert!(made(Mode::Platform).is_ok());
    let why = made(Mode::Verify).err().unwrap().to_string();
    assert!(why.contains("REKINDLE_AUDIENCES") && why.contains("-*."), "{why}");
}
