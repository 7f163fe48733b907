//! Who may call: programs on this machine. **Invariant:** a page in a browser on this machine may not: it could run
//! programs on the emulated VMs.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, Uri, header};
use std::net::IpAddr;

use crate::wire::errors::ApiError;

/// Google's clients send the service's own name when their endpoint is another; no site can make a browser send it.
const SERVICE: &str = "tpu.googleapis.com";

/// Refuses what a page of another site sent, or what came here by a name that such a site could point here.
pub(super) async fn check(request: Request, next: Next) -> Response {
    if is_from_here(request.uri(), request.headers()) {
        return next.run(request).await;
    }
    ApiError::forbidden("the emulator takes calls of programs on this machine only").into_response()
}

fn is_from_here(uri: &Uri, headers: &HeaderMap) -> bool {
    // Who looks at the first and who looks at the last must see the same.
    if [header::HOST, header::ORIGIN].iter().any(|name| headers.get_all(name).iter().nth(1).is_some()) {
        return false;
    }
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(header::HOST).or_else(|| uri.authority().map(http::uri::Authority::as_str)).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let is_loopback = name.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    let is_own = |origin: &str| origin.strip_prefix("http://").is_some_and(|origin| origin == host);
    (is_loopback || name == "localhost" || name == SERVICE) && text(header::ORIGIN).is_none_or(is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_and_names_of_other_machines_are_refused() {
        for (host, origin, want) in [
            (Some("127.0.0.1:8470"), None, true),
            (Some("localhost:8470"), None, true),
            (Some("localhost"), None, true),
            (Some("[::1]:8470"), None, true),
            (Some("[::1]"), None, true),
            (Some("tpu.googleapis.com"), None, true),
            (Some("127.0.0.1:8470"), Some("http://127.0.0.1:8470"), true),
            (Some("127.0.0.1:8470"), Some("http://127.0.0.1:9999"), false),
            (Some("127.0.0.1:8470"), Some("https://evil.example"), false),
            (Some("127.0.0.1:8470"), Some("null"), false),
            (Some("tpu.googleapis.com"), Some("https://evil.example"), false),
            (Some("evil.example:8470"), None, false),
            (Some("127.0.0.1.evil.example:8470"), None, false),
            (Some("tpu.googleapis.com.evil.example"), None, false),
            (Some(""), None, false),
            (None, None, false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(host) = host {
                headers.insert(header::HOST, host.parse().unwrap());
            }
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            assert_eq!(is_from_here(&Uri::from_static("/v2/"), &headers), want, "{host:?} {origin:?}");
        }
        for twice in [header::HOST, header::ORIGIN] {
            let mut headers = HeaderMap::from_iter([(header::HOST, "127.0.0.1:8470".parse().unwrap())]);
            headers.insert(header::ORIGIN, "http://127.0.0.1:8470".parse().unwrap());
            assert!(is_from_here(&Uri::from_static("/v2/"), &headers));
            headers.append(&twice, headers[&twice].clone());
            assert!(!is_from_here(&Uri::from_static("/v2/"), &headers), "{twice} twice");
        }
        assert!(is_from_here(&Uri::from_static("http://127.0.0.1:8470/v2/"), &HeaderMap::new()), "HTTP/2");
    }
}
