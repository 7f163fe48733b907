//! Tokens of an own key, against an own server of keys.

use std::sync::Mutex;

use futures::future::join_all;
use jiff::SignedDuration;
use rekindle_fakes::tokens::{Issuer, KEY, OTHER_KEY, unsigned};
use serde_json::{Value, json};

use super::*;

mod seen;

const AUDIENCE: &str = "https://reconcile.example.app";
const EMAIL: &str = "pubsub@p.iam.gserviceaccount.com";
const NOW: &str = "2026-11-27T12:00:00Z";

struct TestClock(Mutex<Timestamp>);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

impl TestClock {
    fn advance(&self, by: SignedDuration) {
        *self.0.lock().unwrap() += by;
    }
}

/// A verifier with its clock and the server of its keys.
struct World {
    verifier: Verifier,
    clock: Arc<TestClock>,
    issuer: Issuer,
}

impl World {
    async fn new(mode: Mode) -> Self {
        let (issuer, jwks_url) = Issuer::serve().await;
        let clock = Arc::new(TestClock(Mutex::new(NOW.parse().unwrap())));
        let settings = OidcSettings { jwks_url, ..OidcSettings::google(mode, mode == Mode::Platform) };
        let verifier = Verifier::new(settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        Self { verifier, clock, issuer }
    }

    async fn check(&self, token: &str) -> Result<Identity, AuthError> {
        self.verifier.verify(Some(token), &expect()).await
    }

    fn fetches(&self) -> usize {
        self.issuer.fetches()
    }
}

fn expect() -> Expect {
    Expect { audiences: vec![AUDIENCE.into()], emails: Emails::Only(vec![EMAIL.into(), "other@example.com".into()]) }
}

fn now() -> i64 {
    NOW.parse::<Timestamp>().unwrap().as_second()
}

fn header() -> Value {
    json!({ "alg": "RS256", "kid": "k1", "typ": "JWT" })
}

fn claims() -> Value {
    json!({
        "iss": "https://accounts.google.com", "aud": AUDIENCE, "azp": "1", "sub": "110248495921238986420",
        "email": EMAIL, "email_verified": true, "iat": now() - 10, "exp": now() + 3590,
    })
}

/// Claims with one of them changed; `Null` leaves it out.
fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    let map = claims.as_object_mut().unwrap();
    map.remove(name);
    if !value.is_null() {
        map.insert(name.to_owned(), value);
    }
    claims
}

fn sign(claims: &Value) -> String {
    KEY.sign(&header(), claims)
}

fn sign_as(kid: &str) -> String {
    KEY.sign(&json!({ "alg": "RS256", "kid": kid }), &claims())
}

/// The part of a refusal that a person reads.
fn why(answer: &Result<Identity, AuthError>) -> String {
    match answer {
        Ok(identity) => panic!("accepted as {identity:?}"),
        Err(error) => error.to_string(),
    }
}

/// Every way in which claims can be wrong: the same in both modes that look at them.
fn bad_claims() -> Vec<(&'static str, Value, u16, &'static str)> {
    vec![
        ("another audience", with("aud", json!("https://api.example.app")), 401, "audience"),
        ("an audience with two slashes more", with("aud", json!(format!("{AUDIENCE}//"))), 401, "audience"),
        ("an audience with a path", with("aud", json!(format!("{AUDIENCE}/x"))), 401, "audience"),
        ("no audience", with("aud", Value::Null), 401, "claim"),
        ("a list of audiences", with("aud", json!([AUDIENCE])), 401, "claim"),
        ("another issuer", with("iss", json!("https://evil.example.com")), 401, "issuer"),
        ("an issuer that begins well", with("iss", json!("https://accounts.google.com.evil.com")), 401, "issuer"),
        ("no issuer", with("iss", Value::Null), 401, "claim"),
        ("expired", with("exp", json!(now() - 61)), 401, "expired"),
        ("no expiry", with("exp", Value::Null), 401, "claim"),
        ("expiry as text", with("exp", json!("soon")), 401, "claim"),
        ("of the future", with("iat", json!(now() + 61)), 401, "not valid yet"),
        ("no time of issue", with("iat", Value::Null), 401, "claim"),
        ("not before the future", with("nbf", json!(now() + 61)), 401, "not valid yet"),
        ("no subject", with("sub", Value::Null), 401, "claim"),
        ("no e-mail", with("email", Value::Null), 401, "no e-mail"),
        ("an empty e-mail", with("email", json!("")), 401, "no e-mail"),
        ("an e-mail that is not verified", with("email_verified", json!(false)), 401, "not verified"),
        ("nothing about verification", with("email_verified", Value::Null), 401, "not verified"),
        ("verified by text", with("email_verified", json!("true")), 401, "claim"),
        ("somebody else", with("email", json!("someone@example.com")), 403, "someone@example.com may not"),
        ("no claims", json!([1, 2]), 401, "claim"),
    ]
}

fn good_claims() -> Vec<(&'static str, Value)> {
    vec![
        ("as Google signs it", claims()),
        ("an audience with a slash more", with("aud", json!(format!("{AUDIENCE}/")))),
        ("the short issuer", with("iss", json!("accounts.google.com"))),
        ("just expired", with("exp", json!(now() - 59))),
        ("from a clock that is fast", with("iat", json!(now() + 59))),
        ("the second of the allowed", with("email", json!("Other@Example.com"))),
        ("claims nobody asked for", with("google", json!({ "compute_engine": { "zone": "z" } }))),
    ]
}

#[tokio::test]
async fn claims_are_checked_when_we_verify() {
    let world = World::new(Mode::Verify).await;
    for (name, claims) in good_claims() {
        let identity = world.check(&sign(&claims)).await;
        let expected = claims["email"].as_str().unwrap().to_ascii_lowercase();
        assert_eq!(identity.as_ref().map(|identity| &identity.email), Ok(&expected), "{name}");
        assert_eq!(identity.unwrap().sub, "110248495921238986420", "{name}");
    }
    for (name, claims, status, word) in bad_claims() {
        let answer = world.check(&sign(&claims)).await;
        assert!(why(&answer).contains(word), "{name}: {answer:?}");
        assert_eq!(answer.unwrap_err().status(), status, "{name}");
    }
    assert_eq!(world.fetches(), 1);
}

#[tokio::test]
async fn claims_are_checked_when_the_platform_verifies() {
    let world = World::new(Mode::Platform).await;
    let stripped = |claims: &Value| format!("{}.{SIGNATURE_REMOVED}", unsigned(&header(), claims));
    for (name, claims) in good_claims() {
        assert!(world.check(&stripped(&claims)).await.is_ok(), "{name}");
    }
    for (name, claims, status, word) in bad_claims() {
        let answer = world.check(&stripped(&claims)).await;
        assert!(why(&answer).contains(word), "{name}: {answer:?}");
        assert_eq!(answer.unwrap_err().status(), status, "{name}");
    }
    assert_eq!(world.fetches(), 0, "no key is needed");
    for garbage in ["a", "a.b", "a.b.c", &format!("x.{SIGNATURE_REMOVED}"), &format!("x.!.{SIGNATURE_REMOVED}")] {
        assert_eq!(world.check(garbage).await.unwrap_err().status(), 401, "{garbage}");
    }
}

#[tokio::test]
async fn the_platforms_word_counts_only_where_the_platform_speaks() {
    let stripped = format!("{}.{SIGNATURE_REMOVED}", unsigned(&header(), &claims()));
    let world = World::new(Mode::Verify).await;
    let answer = world.check(&stripped).await;
    assert!(why(&answer).contains("mode platform"), "{answer:?}");
    assert_eq!(answer.unwrap_err().status(), 401);

    // A token that kept its signature was not checked by the platform: it is checked here.
    let world = World::new(Mode::Platform).await;
    assert!(world.check(&sign(&claims())).await.is_ok());
    assert!(world.check(&OTHER_KEY.sign(&header(), &claims())).await.is_err());
    assert_eq!(world.fetches(), 1);
}

#[tokio::test]
async fn signatures_are_checked() {
    let world = World::new(Mode::Verify).await;
    let good = sign(&claims());
    assert!(world.check(&good).await.is_ok());
    let (message, signature) = good.rsplit_once('.').unwrap();
    let other_claims = sign(&with("sub", json!("1")));
    let (other_message, _) = other_claims.rsplit_once('.').unwrap();
    let none = json!({ "alg": "none", "kid": "k1" });
    let rows = [
        ("signed by somebody else", OTHER_KEY.sign(&header(), &claims())),
        ("the signature of another token", format!("{other_message}.{signature}")),
        ("no signature", format!("{message}.")),
        ("cut off", message.to_owned()),
        ("one part more", format!("{good}.x")),
        ("alg none", format!("{}.", unsigned(&none, &claims()))),
        ("alg none with a signature", format!("{}.{signature}", unsigned(&none, &claims()))),
        ("an algorithm that we do not take", KEY.sign(&json!({ "alg": "RS512", "kid": "k1" }), &claims())),
        ("no key named", KEY.sign(&json!({ "alg": "RS256" }), &claims())),
        ("an unknown key", sign_as("k2")),
        ("extensions", KEY.sign(&json!({ "alg": "RS256", "kid": "k1", "crit": ["b64"] }), &claims())),
        ("HS256 with our public key as its secret", with_public_key_as_secret()),
        ("not a token", "hello".to_owned()),
        ("too long", "x".repeat(TOKEN_MAX + 1)),
    ];
    for (name, token) in rows {
        let answer = world.check(&token).await;
        assert!(matches!(answer, Err(AuthError::Bad(_))), "{name}: {answer:?}");
    }
}

/// The classic confusion: the public key, which everyone has, as the secret of a symmetric signature.
fn with_public_key_as_secret() -> String {
    let secret = jsonwebtoken::EncodingKey::from_secret(&KEY.public_der());
    let mut header = jsonwebtoken::Header::new(Algorithm::HS256);
    header.kid = Some("k1".into());
    jsonwebtoken::encode(&header, &claims(), &secret).unwrap()
}

#[tokio::test]
async fn no_token_is_missing() {
    let world = World::new(Mode::Verify).await;
    for token in [None, Some("")] {
        let answer = world.verifier.verify(token, &expect()).await;
        assert_eq!(answer, Err(AuthError::Missing));
        assert_eq!(answer.unwrap_err().status(), 401);
    }
    assert_eq!(world.fetches(), 0);
}

#[tokio::test]
async fn a_route_may_take_anyone_and_several_audiences() {
    let world = World::new(Mode::Verify).await;
    let gcloud = "32555940559.apps.googleusercontent.com";
    let expect = Expect { audiences: vec![AUDIENCE.into(), gcloud.into()], emails: Emails::Any };
    let mut claims = with("email", json!("someone@example.com"));
    claims["aud"] = json!(gcloud);
    let identity = world.verifier.verify(Some(&sign(&claims)), &expect).await.unwrap();
    assert_eq!(identity.email, "someone@example.com");
    let nobody = Expect { audiences: vec![], emails: Emails::Any };
    assert!(world.verifier.verify(Some(&sign(&claims)), &nobody).await.is_err(), "no audience is not any audience");
    let nobody = Expect { emails: Emails::Only(vec![]), ..expect };
    let answer = world.verifier.verify(Some(&sign(&claims)), &nobody).await;
    assert_eq!(answer, Err(AuthError::WrongPrincipal("someone@example.com".into())));
}

#[tokio::test]
async fn many_good_tokens_at_once_on_a_cold_start_are_all_taken() {
    let world = World::new(Mode::Verify).await;
    let token = sign(&claims());
    // One thread: all fifty are under way before the server of the keys gets a turn.
    let answers = join_all((0..50).map(|_| world.check(&token))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(world.fetches(), 1, "one fetch for all");
}

#[tokio::test]
async fn many_tokens_of_a_new_key_are_all_taken() {
    let world = World::new(Mode::Verify).await;
    world.check(&sign(&claims())).await.unwrap();
    world.issuer.kids.lock().unwrap().push("k2");
    world.clock.advance(SignedDuration::from_secs(61));
    let (old, new) = (sign_as("k1"), sign_as("k2"));
    let answers = join_all((0..50).map(|i| world.check(if i % 2 == 0 { &new } else { &old }))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(world.fetches(), 2);
}

#[tokio::test]
async fn a_flood_of_unknown_keys_harms_no_good_token_and_fetches_little() {
    let world = World::new(Mode::Verify).await;
    let good = sign(&claims());
    world.check(&good).await.unwrap();
    for minute in 1..=5 {
        world.clock.advance(SignedDuration::from_secs(61));
        let bad: Vec<String> = (0..200).map(|i| sign_shell(&format!("{minute}-{i}"))).collect();
        let tokens = bad.iter().flat_map(|bad| [bad.as_str(), good.as_str()]);
        let answers = join_all(tokens.map(|token| world.check(token))).await;
        for (i, answer) in answers.iter().enumerate() {
            assert_eq!(answer.is_ok(), i % 2 == 1, "minute {minute}, token {i}: {answer:?}");
        }
        assert!(world.fetches() <= 1 + minute, "{} fetches after {minute} minutes", world.fetches());
    }
}

/// A token of an unknown key; its signature is never looked at.
fn sign_shell(kid: &str) -> String {
    format!("{}.AAAA", unsigned(&json!({ "alg": "RS256", "kid": kid }), &claims()))
}

#[tokio::test]
async fn the_same_unknown_key_is_not_looked_for_each_minute() {
    let world = World::new(Mode::Verify).await;
    world.check(&sign(&claims())).await.unwrap();
    for _ in 0..4 {
        world.clock.advance(SignedDuration::from_secs(61));
        assert!(world.check(&sign_shell("nope")).await.is_err());
    }
    assert_eq!(world.fetches(), 2);
    world.clock.advance(SignedDuration::from_secs(121));
    assert!(world.check(&sign_shell("nope")).await.is_err());
    assert_eq!(world.fetches(), 3, "after five minutes it may have appeared");
}

#[tokio::test]
async fn old_keys_serve_while_new_ones_cannot_be_had() {
    let world = World::new(Mode::Verify).await;
    let token = |world: &World| {
        let at = world.clock.now().as_second();
        let mut claims = with("exp", json!(at + 60));
        claims["iat"] = json!(at);
        sign(&claims)
    };
    world.check(&token(&world)).await.unwrap();
    *world.issuer.broken.lock().unwrap() = true;
    world.clock.advance(SignedDuration::from_secs(3601));
    let now = token(&world);
    let answers = join_all((0..20).map(|_| world.check(&now))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(world.fetches(), 2, "one try for all, then none for a while");
    world.clock.advance(SignedDuration::from_hours(23));
    assert!(world.check(&token(&world)).await.is_ok());
    world.clock.advance(SignedDuration::from_hours(2));
    let answer = world.check(&token(&world)).await;
    assert!(matches!(answer, Err(AuthError::Unavailable(_))), "{answer:?}");
    assert_eq!(answer.unwrap_err().status(), 503);

    *world.issuer.broken.lock().unwrap() = false;
    world.clock.advance(SignedDuration::from_secs(6));
    assert!(world.check(&token(&world)).await.is_ok(), "it heals by itself");
}

#[tokio::test]
async fn a_key_that_is_withdrawn_stops_counting() {
    let world = World::new(Mode::Verify).await;
    world.issuer.kids.lock().unwrap().push("k2");
    let token = |at: i64| {
        let mut claims = with("exp", json!(at + 60));
        claims["iat"] = json!(at);
        KEY.sign(&json!({ "alg": "RS256", "kid": "k2" }), &claims)
    };
    world.check(&token(now())).await.unwrap();
    world.issuer.kids.lock().unwrap().pop();
    world.clock.advance(SignedDuration::from_secs(3601));
    let answer = world.check(&token(now() + 3601)).await;
    assert!(why(&answer).contains("unknown key"), "{answer:?}");
}

#[tokio::test]
async fn without_keys_from_the_beginning_nobody_waits_for_long() {
    let world = World::new(Mode::Verify).await;
    *world.issuer.broken.lock().unwrap() = true;
    let token = sign(&claims());
    let answers = join_all((0..50).map(|_| world.check(&token))).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(AuthError::Unavailable(_)))), "{answers:?}");
    assert_eq!(world.fetches(), 1, "one failure answers all who wait");
    *world.issuer.broken.lock().unwrap() = false;
    world.clock.advance(SignedDuration::from_secs(6));
    assert!(world.check(&token).await.is_ok());
}

#[tokio::test]
async fn a_fetch_that_takes_its_time_and_fails_answers_all_who_wait() {
    let world = World::new(Mode::Verify).await;
    *world.issuer.broken.lock().unwrap() = true;
    let clock = Arc::clone(&world.clock);
    // As long as a fetch may take: the pause until the next one is no longer.
    *world.issuer.meanwhile.lock().unwrap() = Some(Box::new(move || clock.advance(SignedDuration::from_secs(5))));
    let token = sign(&claims());
    let answers = join_all((0..50).map(|_| world.check(&token))).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(AuthError::Unavailable(_)))), "{answers:?}");
    assert_eq!(world.fetches(), 1);
}

#[tokio::test]
async fn mode_none_asks_for_nothing() {
    let world = World::new(Mode::None).await;
    for token in [None, Some("whatever")] {
        assert_eq!(world.verifier.verify(token, &expect()).await, Ok(Identity::local()));
    }
}

#[test]
fn settings_that_would_let_anyone_in_are_refused() {
    let clock = || Arc::new(TestClock(Mutex::new(Timestamp::UNIX_EPOCH))) as Arc<dyn Clock>;
    let rows = [
        (Mode::Verify, true, None),
        (Mode::Verify, false, None),
        (Mode::Platform, true, None),
        (Mode::Platform, false, Some(BadOidcSettings::PlatformElsewhere)),
        (Mode::None, true, Some(BadOidcSettings::NoneOnCloudRun)),
        (Mode::None, false, None),
    ];
    for (mode, on_cloud_run, error) in rows {
        let made = Verifier::new(OidcSettings::google(mode, on_cloud_run), clock());
        assert_eq!(made.err(), error, "{mode:?} {on_cloud_run}");
    }
    for (name, mode) in [("verify", Some(Mode::Verify)), ("platform", Some(Mode::Platform)), ("off", None)] {
        assert_eq!(Mode::parse(name), mode);
    }
}

#[test]
fn the_token_is_taken_from_the_header_that_the_platform_checked() {
    let rows = [
        (None, None, None),
        (Some("Bearer a.b.c"), None, Some("a.b.c")),
        (Some("bearer  a.b.c "), None, Some("a.b.c")),
        (Some("Basic a.b.c"), None, None),
        (Some("Bearer"), None, None),
        (Some("Bearer forged"), Some("Bearer checked"), Some("checked")),
        (Some("Bearer forged"), Some("odd"), None),
    ];
    for (authorization, serverless, token) in rows {
        let mut headers = http::HeaderMap::new();
        headers.extend(authorization.map(|value| (http::header::AUTHORIZATION, value.parse().unwrap())));
        let name = http::HeaderName::from_static("x-serverless-authorization");
        headers.extend(serverless.map(|value| (name, value.parse().unwrap())));
        assert_eq!(bearer(&headers), token, "{authorization:?} {serverless:?}");
    }
}
