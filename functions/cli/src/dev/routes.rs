//! Every function behind its door, on one router. On loopback the doors are open: everybody here is this user.
//!
//! **Invariant:** a page in this user's browser is not this user. A request that a page of another origin sent, or that
//! came here by a name that is not this machine's, is refused: it could run programs.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use rekindle_engine::Engine;
use rekindle_fn_api::Uploads;
use rekindle_fn_jobs::Name;
use rekindle_fn_notify::Sender;
use rekindle_local::FileObjects;
use rekindle_server::{Parts, Role, routers};
use rekindle_web::caller::Loopback;
use rekindle_web::problem;

/// Checks upload addresses of the objects on disk.
struct LocalUploads(FileObjects);

impl Uploads for LocalUploads {
    fn accept(&self, name: &str, expires: i64, signature: &str) -> std::result::Result<(), String> {
        self.0.accept_upload(name, expires, signature).map_err(|error| error.to_string())
    }
}

/// The router of everything. `stopping` is set once its end has begun.
pub(super) fn all(engine: Engine, objects: &FileObjects, stopping: Arc<AtomicBool>) -> Router {
    // Webhooks of a local run may be on this machine.
    let sender = Sender::new(true);
    let router = routers(
        Role::All,
        Parts {
            engine,
            verifier: Arc::new(Loopback { identity: identity() }),
            sender: Arc::new(sender),
            messages_may: Name::ALL.into_iter().collect(),
            uploads: Some(Arc::new(LocalUploads(objects.clone()))),
        },
    );
    here(router, stopping)
}

fn here(router: Router, stopping: Arc<AtomicBool>) -> Router {
    router.layer(middleware::from_fn_with_state(stopping, while_up)).layer(middleware::from_fn(from_here))
}

/// While it ends, what it began before is still answered; whoever asks what is here is told that it ends.
async fn while_up(State(stopping): State<Arc<AtomicBool>>, request: Request, next: Next) -> Response {
    if request.uri().path() == "/version" && stopping.load(Ordering::Relaxed) {
        let why = "this `rekindle dev` is stopping";
        return problem(StatusCode::SERVICE_UNAVAILABLE, "stopping", why).into_response();
    }
    next.run(request).await
}

async fn from_here(request: Request, next: Next) -> Response {
    if is_from_here(request.headers()) {
        return next.run(request).await;
    }
    let why = "this server takes calls of programs on this machine and of its own pages only";
    problem(StatusCode::FORBIDDEN, "origin", why).into_response()
}

/// True unless a browser says that another site is behind the call, or the name is one that an attacker could point here.
fn is_from_here(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(header::HOST).unwrap_or_default();
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let name = host.rsplit_once(':').map_or(host, |(name, port)| if is_port(port) { name } else { "" });
    let is_loopback =
        name == "localhost" || name.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    let is_own = |origin: &str| origin.strip_prefix("http://").is_some_and(|origin| origin == host);
    is_loopback && text(header::ORIGIN).is_none_or(is_own)
}

/// The user's name, for records: as owners are spelled, whoever names them.
fn identity() -> String {
    let name = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    name.filter(|name| !name.is_empty()).map_or_else(|| "local".to_owned(), |name| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn one_that_stops_says_so_to_whoever_asks_what_is_here_and_does_the_rest() {
        let stopping = Arc::new(AtomicBool::new(false));
        let router = Router::new().fallback(async || "answered");
        let router = here(router, Arc::clone(&stopping));
        let status = async |path: &str| {
            let request = Request::get(path).header(header::HOST, "127.0.0.1:8080");
            router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
        };
        assert_eq!(status("/version").await, StatusCode::OK);
        stopping.store(true, Ordering::Relaxed);
        assert_eq!(status("/version").await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status("/functions/notify").await, StatusCode::OK);
    }

    #[test]
    fn pages_of_other_sites_and_names_of_other_machines_are_refused() {
        for (host, origin, want) in [
            ("127.0.0.1:8080", None, true),
            ("localhost:8080", None, true),
            ("[::1]:8080", None, true),
            ("127.0.0.1:8080", Some("http://127.0.0.1:8080"), true),
            ("127.0.0.1:8080", Some("http://127.0.0.1:9999"), false),
            ("127.0.0.1:8080", Some("https://evil.example"), false),
            ("127.0.0.1:8080", Some("null"), false),
            ("evil.example:8080", None, false),
            ("127.0.0.1.evil.example:8080", None, false),
            ("127.0.0.1:8080, evil.example", None, false),
            ("localhost", None, true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            assert_eq!(is_from_here(&headers), want, "{host} {origin:?}");
        }
        assert!(!is_from_here(&HeaderMap::new()));
    }
}
