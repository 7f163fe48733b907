//! `open`: the page in a browser. A server in the cloud wants a token, which a browser has not: a proxy on loopback adds
//! it, for this browser alone.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;

use super::{Context, job_path};
use crate::answers::Address;
use crate::api::Api;
use crate::args::Open;
use crate::fault::{Fault, Result};

/// Headers that are handed on; cookies and origins are between browser and proxy.
const ASKED: [HeaderName; 5] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::IF_NONE_MATCH,
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("idempotency-key"),
];
const ANSWERED: [HeaderName; 7] = [
    header::CONTENT_TYPE,
    header::ETAG,
    header::CACHE_CONTROL,
    header::CONTENT_SECURITY_POLICY,
    header::X_CONTENT_TYPE_OPTIONS,
    header::REFERRER_POLICY,
    header::LOCATION,
];
const COOKIE: &str = "rekindle";
/// What a person's browser sends at most.
const BODY_MAX: usize = 1 << 20;

/// Opens the page, and serves the proxy until Ctrl-C where one is needed.
pub(crate) async fn run(context: Context, options: &Open) -> Result<()> {
    let view = match &options.job {
        Some(job) => format!("#/job/{}", crate::api::segment(job)?),
        None => String::new(),
    };
    // Fails with the right words when there is no server, no right to read, or no such job.
    match &options.job {
        Some(job) => context.api.get(&job_path(job, "")?, &[]).await?,
        None => context.api.get("/v1/jobs", &[("page_size", Some("1".to_owned()))]).await?,
    };
    if context.api.is_on_loopback() {
        return show(&context, &format!("{}/{view}", context.api.url()), options);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await.map_err(|error| {
        Fault::input(format!("cannot listen on 127.0.0.1:{}", options.port)).caused_by(&error).next("leave out --port")
    })?;
    let authority = listener.local_addr()?.to_string();
    let key = format!("{:032x}", rand::random::<u128>());
    show(&context, &format!("http://{authority}/?key={key}{view}"), options)?;
    context.printer.talk("the page is served here until Ctrl-C");
    let proxy = Proxy { api: context.api, authority, key, is_taken: AtomicBool::new(false) };
    let router = Router::new().fallback(forward).with_state(Arc::new(proxy));
    let stopped = async {
        // Without the signal's handler it runs until it is killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        ended = axum::serve(rekindle_web::listen::prompt(listener), router).into_future() => ended?,
        () = stopped => {}
    }
    Ok(())
}

fn show(context: &Context, url: &str, options: &Open) -> Result<()> {
    if context.printer.is_json {
        context.printer.json_line(&Address { url })?;
    } else {
        context.printer.line(url)?;
    }
    if !options.no_browser {
        let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        let quiet = std::process::Stdio::null;
        let begun = std::process::Command::new(opener).arg(url).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
        if begun.is_err() {
            context.printer.talk("open the address in a browser");
        }
    }
    Ok(())
}

/// Where the proxy is, and the key that the opened browser brings first.
struct Proxy {
    api: Api,
    authority: String,
    key: String,
    /// The key stands on the browser's command line, where everybody on this machine may read it: it lets in once.
    is_taken: AtomicBool,
}

impl Proxy {
    /// Other programs and pages on this machine are not this person: they know no key, or come by another name.
    fn is_ours(&self, headers: &HeaderMap) -> bool {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let is_here = text(header::HOST) == Some(&self.authority);
        let is_own = text(header::ORIGIN).is_none_or(|origin| origin == format!("http://{}", self.authority));
        let cookies = text(header::COOKIE).unwrap_or_default();
        let has_key = cookies.split("; ").any(|pair| pair.split_once('=') == Some((COOKIE, &self.key)));
        is_here && is_own && has_key
    }

    /// The first call brings the key in its address; it goes into a cookie, and out of the browser's history.
    fn admitted(&self, request: &Request) -> Option<Response> {
        let is_first = request.uri().path() == "/"
            && request.uri().query() == Some(&format!("key={}", self.key))
            && request.headers().get(header::HOST).is_some_and(|host| host.as_bytes() == self.authority.as_bytes());
        let cookie = format!("{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/", self.key);
        if is_first && !self.is_ours(request.headers()) && self.is_taken.swap(true, Ordering::Relaxed) {
            let used = "this address has let a browser in already; end `rekindle open` and start it again\n";
            return Some((StatusCode::FORBIDDEN, used).into_response());
        }
        is_first.then(|| {
            (StatusCode::SEE_OTHER, [(header::LOCATION, "/".to_owned()), (header::SET_COOKIE, cookie)]).into_response()
        })
    }
}

async fn forward(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    if rekindle_web::serve::twice(request.headers()).is_some() {
        return (StatusCode::BAD_REQUEST, "a request has one Host and one Origin\n").into_response();
    }
    if let Some(answer) = proxy.admitted(&request) {
        return answer;
    }
    if !proxy.is_ours(request.headers()) {
        return (StatusCode::FORBIDDEN, "open the page with `rekindle open`\n").into_response();
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let method = request.method().clone();
    let mut headers = HeaderMap::new();
    for name in &ASKED {
        headers.extend(request.headers().get(name).map(|value| (name.clone(), value.clone())));
    }
    let Ok(body) = axum::body::to_bytes(request.into_body(), BODY_MAX).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "too large\n").into_response();
    };
    match proxy.api.forward(method, &path, headers, body).await {
        Ok(answer) => handed_on(answer),
        Err(fault) => (StatusCode::BAD_GATEWAY, format!("{}\n", fault.what())).into_response(),
    }
}

fn handed_on(answer: reqwest::Response) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = answer.status();
    for name in &ANSWERED {
        let value: Option<HeaderValue> = answer.headers().get(name).cloned();
        response.headers_mut().extend(value.map(|value| (name.clone(), value)));
    }
    // Streams go through piece by piece.
    *response.body_mut() = Body::from_stream(answer.bytes_stream());
    response
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;

    use super::*;
    use crate::config::{Origin, Server};

    /// A server that wants a token, and says what it was sent.
    async fn server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = |request: Request| async move {
            let text = |name: &str| request.headers().get(name).map(|v| v.to_str().unwrap().to_owned());
            if text("authorization").as_deref() != Some("Bearer secret") {
                return StatusCode::UNAUTHORIZED.into_response();
            }
            let told =
                format!("{} {} {:?} {:?}", request.method(), request.uri(), text("cookie"), text("last-event-id"));
            ([(header::ETAG, "W/\"1\""), (header::SET_COOKIE, "upstream=1")], told).into_response()
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await.unwrap() });
        url
    }

    async fn proxy() -> Router {
        let server = Server { url: server().await, origin: Origin::Given, token_command: None };
        let api = Api::new(server, Some("secret".into())).unwrap();
        let proxy = Proxy { api, authority: "127.0.0.1:1".into(), key: "k".into(), is_taken: AtomicBool::new(false) };
        Router::new().fallback(forward).with_state(Arc::new(proxy))
    }

    fn get(path: &str, headers: &[(&str, &str)]) -> Request {
        let builder = Request::get(path).header("host", "127.0.0.1:1");
        headers
            .iter()
            .fold(builder, |builder, (name, value)| builder.header(*name, *value))
            .body(Body::empty())
            .unwrap()
    }

    #[tokio::test]
    async fn the_browser_that_was_opened_gets_through_with_the_token() {
        let proxy = proxy().await;
        let first = proxy.clone().oneshot(get("/?key=k", &[])).await.unwrap();
        assert_eq!(
            (first.status(), &first.headers()["location"]),
            (StatusCode::SEE_OTHER, &HeaderValue::from_static("/"))
        );
        let again = proxy.clone().oneshot(get("/?key=k", &[])).await.unwrap();
        assert!(again.status() == StatusCode::FORBIDDEN && again.headers().get("set-cookie").is_none());
        let cookie = first.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let headers = [("cookie", cookie.as_str()), ("last-event-id", "7")];
        let answer = proxy.clone().oneshot(get("/v1/watch?since=x", &headers)).await.unwrap();
        assert_eq!(answer.headers()["etag"], "W/\"1\"");
        assert!(answer.headers().get("set-cookie").is_none());
        let body = axum::body::to_bytes(answer.into_body(), 1 << 10).await.unwrap();
        assert_eq!(&body[..], b"GET /v1/watch?since=x None Some(\"7\")");
    }

    #[tokio::test]
    async fn nobody_else_does() {
        let proxy = proxy().await;
        for headers in [
            &[][..],
            &[("cookie", "rekindle=wrong")],
            &[("cookie", "rekindle=k"), ("origin", "https://elsewhere.example")],
        ] {
            let answer = proxy.clone().oneshot(get("/v1/jobs", headers)).await.unwrap();
            assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{headers:?}");
        }
        let mut rebound = get("/v1/jobs", &[("cookie", "rekindle=k")]);
        rebound.headers_mut().insert("host", HeaderValue::from_static("evil.example"));
        assert_eq!(proxy.clone().oneshot(rebound).await.unwrap().status(), StatusCode::FORBIDDEN);
        let two = get("/v1/jobs", &[("cookie", "rekindle=k"), ("host", "evil.example")]);
        assert_eq!(proxy.clone().oneshot(two).await.unwrap().status(), StatusCode::BAD_REQUEST);
        assert_eq!(proxy.oneshot(get("/?key=wrong", &[])).await.unwrap().status(), StatusCode::FORBIDDEN);
    }
}
