//! Limits, content types, callers, deadline and panics, through a real router.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tower::ServiceExt;

use crate::{
    Answer, Caller, Deliveries, Door, Json, Machine, Messages, PUSH_MAX, Problem, Raw, Refused, Verifier, body, caller,
    etag, layers, room,
};

struct ByHeader;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Command {
    new_slice: bool,
}

#[async_trait]
impl Verifier for ByHeader {
    async fn verify(&self, door: Door, headers: &HeaderMap) -> Result<Caller, Refused> {
        match headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()) {
            None => Err(Refused::Unauthenticated("no token".into())),
            Some("Bearer down") => Err(Refused::Unavailable("keys".into())),
            Some("Bearer other") => Err(Refused::Forbidden(format!("not at {door:?}"))),
            Some(token) => Ok(Caller { identity: token.to_owned(), is_admin: false }),
        }
    }

    async fn machine(&self, _: &HeaderMap) -> Result<Option<Machine>, Refused> {
        Ok(None)
    }
}

fn router() -> Router {
    let open = Router::new()
        .route("/raw", post(async |Raw(body): Raw| body.len().to_string()))
        .route("/command", post(async |Json(value): Json<Command>| value.new_slice.to_string()))
        .route("/json", post(async |Json(value): Json<serde_json::Value>| value.to_string()))
        .route("/events", post(async |Deliveries(all): Deliveries| all.len().to_string()))
        .route("/etag", get(async |headers: HeaderMap| etag::json(&headers, &serde_json::json!({"a": 1}))))
        .route("/late", get(async || std::future::pending::<()>().await))
        .route("/panic", get(async || -> &'static str { panic!("boom") }));
    let closed = Router::new().route("/who", get(async |caller: Caller| caller.identity));
    let unguarded = Router::new().route("/unguarded", get(async |caller: Caller| caller.identity));
    let all = open.merge(caller::guard(closed, Arc::new(ByHeader), Door::People)).merge(unguarded);
    layers::common(all, Duration::from_millis(20))
}

async fn send(request: Request<Body>) -> (StatusCode, HeaderMap, String) {
    let response = router().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (parts.status, parts.headers, String::from_utf8(bytes.to_vec()).unwrap())
}

fn post_to(path: &str, content_type: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path).header(header::CONTENT_TYPE, content_type).body(body.into()).unwrap()
}

fn get_from(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// A body of `size` bytes in chunks, without a Content-Length.
fn chunked(size: usize) -> Body {
    let chunk = bytes::Bytes::from(vec![b'x'; 64 * 1024]);
    let chunks = (0..size.div_ceil(chunk.len())).map(move |_| Ok::<_, std::io::Error>(chunk.clone()));
    Body::from_stream(futures::stream::iter(chunks))
}

#[tokio::test]
async fn every_answer_says_that_it_is_ours() {
    for path in ["/etag", "/late", "/panic", "/who", "/nowhere"] {
        let (status, headers, _) = send(get_from(path)).await;
        assert_eq!(headers["rekindle-version"], env!("CARGO_PKG_VERSION"), "{path} {status}");
    }
}

#[tokio::test]
async fn bodies_above_the_limit_are_413_with_and_without_a_length() {
    for path in ["/raw", "/json", "/events"] {
        let (status, headers, _) = send(post_to(path, "application/json", vec![b'x'; 10 << 20])).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{path}");
        assert_eq!(headers[header::CONTENT_TYPE], "application/problem+json");
        let (status, ..) = send(post_to(path, "application/json", chunked(10 << 20))).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{path}, chunked");
    }
    let (status, _, body) = send(post_to("/raw", "", vec![b'x'; crate::BODY_MAX])).await;
    assert_eq!((status, body), (StatusCode::OK, crate::BODY_MAX.to_string()));
}

#[tokio::test]
async fn what_is_no_json_is_400_and_other_content_types_are_415() {
    let deep = "[".repeat(100_000);
    for body in [&b"{"[..], b"\xff\xfe", b"{\"a\":\"\xff\"}", deep.as_bytes()] {
        let (status, ..) = send(post_to("/json", "application/json", body.to_vec())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let (status, ..) = send(post_to("/events", "application/json", body.to_vec())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }
    for content_type in ["text/plain", "text/html", "application/x-yaml", ""] {
        let (status, ..) = send(post_to("/json", content_type, "{}")).await;
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{content_type}");
    }
    let untyped = Request::post("/json").body("{}".into()).unwrap();
    assert_eq!(send(untyped).await.0, StatusCode::OK, "as a program sends it that says no type");
    for content_type in [
        "application/json",
        "application/JSON; charset=utf-8",
        "application/merge-patch+json",
        "application/octet-stream",
        "application/x-www-form-urlencoded",
    ] {
        let (status, ..) = send(post_to("/json", content_type, "{}")).await;
        assert_eq!(status, StatusCode::OK, "{content_type}");
    }
    let (status, ..) = send(post_to("/events", "image/png", "x")).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn the_field_that_is_wrong_is_named() {
    for (body, field) in [(r#"{"new_slice":"yes"}"#, "new_slice"), (r#"{"new_slice":true,"frob":1}"#, "frob")] {
        let (status, _, answer) = send(post_to("/command", "application/json", body)).await;
        let problem: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((status, &problem["errors"][0]["field"]), (StatusCode::BAD_REQUEST, &field.into()), "{answer}");
    }
    let (status, _, answer) = send(post_to("/command", "application/json", r#"{"new_slice":true} x"#)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer.contains(r#""errors":[]"#), "{answer}");
    assert_eq!(send(post_to("/command", "application/json", r#"{"new_slice":true}"#)).await.2, "true");
}

#[tokio::test]
async fn callers_are_checked_at_their_door() {
    let with = |token: &str| Request::get("/who").header("authorization", token).body(Body::empty()).unwrap();
    assert_eq!(send(with("Bearer me")).await.2, "Bearer me");
    let (status, headers, _) = send(get_from("/who")).await;
    assert_eq!((status, &headers[header::WWW_AUTHENTICATE]), (StatusCode::UNAUTHORIZED, &"Bearer".parse().unwrap()));
    assert_eq!(send(with("Bearer other")).await.0, StatusCode::FORBIDDEN);
    assert_eq!(send(with("Bearer down")).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(send(get_from("/unguarded")).await.0, StatusCode::UNAUTHORIZED, "no door, no caller");
}

#[tokio::test]
async fn late_handlers_are_503_and_panics_500() {
    let (status, _, body) = send(get_from("/late")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("urn:rekindle:problem:deadline"));
    assert_eq!(send(get_from("/panic")).await.0, StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems() {
    let (status, headers, _) = send(get_from("/nothing")).await;
    assert_eq!(
        (status, headers[header::CONTENT_TYPE].to_str().unwrap()),
        (StatusCode::NOT_FOUND, "application/problem+json")
    );
    let (status, headers, _) = send(get_from("/raw")).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(headers[header::CONTENT_TYPE], "application/problem+json");
}

#[tokio::test]
async fn a_browser_at_an_unknown_path_is_led_back_to_the_page() {
    let mut request = get_from("/x/%3Cscript%3E");
    request.headers_mut().insert(header::ACCEPT, "text/html,application/xhtml+xml,*/*;q=0.8".parse().unwrap());
    let (status, headers, text) = send(request).await;
    assert_eq!(
        (status, headers[header::CONTENT_TYPE].to_str().unwrap()),
        (StatusCode::NOT_FOUND, "text/html; charset=utf-8")
    );
    assert!(text.contains("is no page here. <a href=\"/\">Go to Rekindle</a>") && !text.contains("<script"), "{text}");
}

#[tokio::test]
async fn an_unchanged_answer_is_304() {
    let (status, headers, body) = send(get_from("/etag")).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, r#"{"a":1}"#));
    let tag = headers[header::ETAG].clone();
    for known in [tag.to_str().unwrap().to_owned(), format!("\"x\", {}", tag.to_str().unwrap()), "*".into()] {
        let request = Request::get("/etag").header(header::IF_NONE_MATCH, known).body(Body::empty()).unwrap();
        let (status, headers, body) = send(request).await;
        assert_eq!((status, body.as_str(), &headers[header::ETAG]), (StatusCode::NOT_MODIFIED, "", &tag));
    }
    let request = Request::get("/etag").header(header::IF_NONE_MATCH, "W/\"x\"").body(Body::empty()).unwrap();
    assert_eq!(send(request).await.0, StatusCode::OK);
}

#[test]
fn the_table_of_answers() {
    for (answer, status) in [
        (Answer::Done, 204),
        (Answer::Superseded, 204),
        (Answer::NoSuchJob, 204),
        (Answer::NotOurs, 204),
        (Answer::Recorded, 204),
        (Answer::Transient("x".into()), 503),
        (Answer::Invariant("x".into()), 500),
    ] {
        assert_eq!(answer.status().as_u16(), status, "{answer:?}");
    }
    let worst = Answer::Done.and(Answer::Transient("x".into())).and(Answer::Recorded);
    assert_eq!(worst, Answer::Transient("x".into()));
}

#[tokio::test]
async fn what_is_too_much_at_once_is_told_to_come_again_and_nothing_is_lost() {
    let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (tell, wait) = (Arc::clone(&begun), Arc::clone(&gate));
    let slow = move || {
        let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
        async move {
            tell.add_permits(1);
            let _held = wait.acquire().await;
            StatusCode::NO_CONTENT
        }
    };
    let live = axum::routing::get(async || "yes");
    let router = Router::new().route("/slow", axum::routing::get(slow)).route("/live", live);
    let router = layers::common(router, Duration::from_mins(1));
    let ask_at = |path: &'static str| {
        let router = router.clone();
        async move { router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap().status() }
    };
    let ask = || ask_at("/slow");
    let held: Vec<_> = (0..layers::AT_ONCE_MAX).map(|_| tokio::spawn(ask())).collect();
    let all = u32::try_from(layers::AT_ONCE_MAX).unwrap();
    begun.acquire_many(all).await.unwrap().forget();
    assert_eq!(ask().await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ask_at("/live").await, StatusCode::OK, "who has much to do is not killed for it");
    gate.add_permits(layers::AT_ONCE_MAX);
    for one in held {
        assert_eq!(one.await.unwrap(), StatusCode::NO_CONTENT);
    }
    assert_eq!(ask().await, StatusCode::NO_CONTENT, "there is room again");
}

#[tokio::test]
async fn an_upload_may_take_its_time_and_needs_no_room() {
    let gate = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&gate);
    let take = async move |request: Request<Body>| {
        let size = crate::body::read(request, 100 << 20).await?.len();
        // As long as a slow disk takes.
        let _held = wait.acquire().await;
        Ok::<_, Problem>(size.to_string())
    };
    let route = axum::routing::put(take);
    let router = Router::new().route("/objects/{name}", route.clone()).route("/other", route);
    let router = layers::common_with_uploads(router, Duration::from_millis(20), "/objects/");
    let send = |path: &str| {
        let request = Request::put(path).body(Body::from(vec![0; 40 << 20])).unwrap();
        let router = router.clone();
        async move { router.oneshot(request).await.unwrap().status() }
    };
    let uploads = ["/objects/a", "/objects/b", "/objects/c"].map(|path| tokio::spawn(send(path)));
    assert_eq!(send("/other").await, StatusCode::SERVICE_UNAVAILABLE, "everything else has its deadline");
    gate.add_permits(3);
    for upload in uploads {
        assert_eq!(upload.await.unwrap(), StatusCode::OK, "all of them need more than the room");
    }
}

#[tokio::test]
async fn json_of_people_has_limits_on_depth_and_number() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(40), "]".repeat(40));
    let many = format!("{{\"a\":[{}]}}", vec!["0"; 20_000].join(","));
    for (path, body, limit) in [
        ("/json", &deep, "more than 32 objects and lists"),
        ("/json", &many, "more than 10000 fields and items"),
        ("/command", &many, "more than 10000 fields and items"),
    ] {
        let (status, _, answer) = send(post_to(path, "application/json", body.clone())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        assert!(answer.contains(limit), "{path}: {answer}");
    }
}

/// A route that takes the largest bodies, tells when it has one, and holds it until it may go on.
fn large(begun: &Arc<Semaphore>, gate: &Arc<Semaphore>) -> Router {
    let (begun, gate) = (Arc::clone(begun), Arc::clone(gate));
    let take = move |request: Request<Body>| {
        let (begun, gate) = (Arc::clone(&begun), Arc::clone(&gate));
        async move {
            let size = body::read(request, PUSH_MAX).await?.len();
            begun.add_permits(1);
            let _go_on = gate.acquire().await;
            Ok::<_, Problem>(size.to_string())
        }
    };
    layers::common(Router::new().route("/large", post(take)), Duration::from_mins(1))
}

#[tokio::test]
async fn large_bodies_have_so_much_room_together_and_small_ones_need_none() {
    let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let router = large(&begun, &gate);
    let ask = |body: Body| {
        let router = router.clone();
        async move { router.oneshot(post_to("/large", "", body)).await.unwrap().status() }
    };
    let count = room::ROOM / PUSH_MAX;
    assert!(count < layers::AT_ONCE_MAX, "the number of requests alone does not bound memory");
    // One that does not say its length counts as the largest.
    let bodies = (0..count).map(|n| if n == 0 { chunked(1 << 20) } else { vec![b'x'; PUSH_MAX].into() });
    let held: Vec<_> = bodies.map(|body| tokio::spawn(ask(body))).collect();
    begun.acquire_many(u32::try_from(count).unwrap()).await.unwrap().forget();
    assert_eq!(ask(vec![b'x'; PUSH_MAX].into()).await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ask(chunked(PUSH_MAX)).await, StatusCode::SERVICE_UNAVAILABLE, "and in chunks");
    assert_eq!(ask(vec![b'x'; PUSH_MAX + 1].into()).await, StatusCode::PAYLOAD_TOO_LARGE, "for good");
    let small = [tokio::spawn(ask(vec![b'x'; room::SMALL_MAX].into())), tokio::spawn(ask(chunked(room::SMALL_MAX)))];
    begun.acquire_many(2).await.unwrap().forget();
    gate.add_permits(layers::AT_ONCE_MAX);
    for one in held.into_iter().chain(small) {
        assert_eq!(one.await.unwrap(), StatusCode::OK);
    }
    for _ in 0..=count {
        assert_eq!(ask(vec![b'x'; PUSH_MAX].into()).await, StatusCode::OK, "there is room again");
        assert_eq!(ask(chunked(PUSH_MAX + 1)).await, StatusCode::PAYLOAD_TOO_LARGE, "what is refused keeps none");
    }
}

#[tokio::test]
async fn what_is_decoded_from_a_body_is_counted_as_long_as_it_is_worked_on() {
    let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (tell, wait) = (Arc::clone(&begun), Arc::clone(&gate));
    let route = post(async move |Messages(all): Messages| {
        tell.add_permits(1);
        let _go_on = wait.acquire().await;
        all.len().to_string()
    });
    let router = layers::common(Router::new().route("/messages", route), Duration::from_mins(1));
    let ask = || {
        let router = router.clone();
        let push = format!(r#"{{"message":{{"data":"{}","messageId":"1"}}}}"#, "QUJD".repeat(13 * 1024 * 1024 / 4));
        async move { router.oneshot(post_to("/messages", "application/json", push)).await.unwrap().status() }
    };
    let count = room::ROOM / (13 * 1024 * 1024);
    let held: Vec<_> = (0..count).map(|_| tokio::spawn(ask())).collect();
    begun.acquire_many(u32::try_from(count).unwrap()).await.unwrap().forget();
    assert_eq!(ask().await, StatusCode::SERVICE_UNAVAILABLE);
    gate.add_permits(layers::AT_ONCE_MAX);
    for one in held {
        assert_eq!(one.await.unwrap(), StatusCode::OK);
    }
}
