//! The page: its files within the binary, without anything from elsewhere.

use std::borrow::Cow;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use rekindle_web::problem;

use crate::Api;

/// Nothing is loaded or sent but from and to the server itself, and no other page may frame this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// How often the page of a job asks for what goes on without a change of it, in `index.html`. Each time costs some calls.
const LOOK_PAID: &str = "content=\"60000\"";
/// The same where heartbeats are free, as calls are then.
const LOOK_FREE: &str = "content=\"3000\"";

/// `GET /`.
pub(crate) async fn index(State(api): State<Api>, headers: HeaderMap) -> Response {
    let text = include_str!("site/index.html");
    let is_free = api.engine.settings.heartbeat_free.is_some();
    let text = if is_free { Cow::Owned(text.replace(LOOK_PAID, LOOK_FREE)) } else { Cow::Borrowed(text) };
    file(&headers, "text/html; charset=utf-8", text)
}

/// `GET /site/page.css`.
pub(crate) async fn style(headers: HeaderMap) -> Response {
    file(&headers, "text/css; charset=utf-8", include_str!("site/page.css"))
}

/// `GET /favicon.ico`: browsers ask for it on their own, also beside an answer of the API.
pub(crate) async fn icon(headers: HeaderMap) -> Response {
    file(&headers, "image/svg+xml", include_str!("site/icon.svg"))
}

/// `GET /site/{name}.js`.
pub(crate) async fn script(headers: HeaderMap, axum::extract::Path(name): axum::extract::Path<String>) -> Response {
    let text = match name.as_str() {
        "page.js" => include_str!("site/page.js"),
        "views.js" => include_str!("site/views.js"),
        "job.js" => include_str!("site/job.js"),
        "parts.js" => include_str!("site/parts.js"),
        _ => return rekindle_web::Problem::not_found("such path").into_response(),
    };
    file(&headers, "text/javascript; charset=utf-8", text)
}

/// Always asked for again, and answered with a header alone when it has not changed.
fn file(headers: &HeaderMap, content_type: &'static str, text: impl Into<Cow<'static, str>>) -> Response {
    let text = text.into();
    let tag = rekindle_web::etag::of(text.as_bytes());
    let common: [(HeaderName, HeaderValue); 5] = [
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::ETAG, HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"\""))),
    ];
    if rekindle_web::etag::is_known(headers, &tag) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    (common, [(header::CONTENT_TYPE, content_type)], text).into_response()
}

/// Calls that change something must come from the page itself or from a program, never from a page of elsewhere: a
/// browser tells where a request comes from, and a program does not say.
pub(crate) async fn same_origin(request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if is_read || is_same_origin(request.headers()) {
        return next.run(request).await;
    }
    tracing::warn!("a page of another origin tried to change something");
    problem(StatusCode::FORBIDDEN, "origin", "pages of other origins may not change anything here").into_response()
}

fn is_same_origin(headers: &HeaderMap) -> bool {
    // What cannot be read, or is none of the words there are, comes from nobody who is known.
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"));
    let mut sites = headers.get_all(HeaderName::from_static("sec-fetch-site")).iter();
    if !sites.all(|site| site == "same-origin" || site == "none") {
        return false;
    }
    let Some(origin) = text(header::ORIGIN) else { return true };
    let Some(host) = text(header::HOST).filter(|host| !host.is_empty()) else { return false };
    origin.split_once("://").is_some_and(|(kind, authority)| authority == host && matches!(kind, "http" | "https"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_page_and_programs_may_change_something() {
        for (pairs, want) in [
            (vec![], true),
            (vec![("host", "a.example")], true),
            (vec![("host", "a.example"), ("origin", "https://a.example")], true),
            (vec![("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:8080")], true),
            (vec![("host", "a.example"), ("origin", "https://b.example")], false),
            (vec![("host", "a.example"), ("origin", "null")], false),
            (vec![("host", "a.example"), ("sec-fetch-site", "cross-site")], false),
            (vec![("host", "a.example"), ("sec-fetch-site", "same-origin"), ("origin", "https://a.example")], true),
            (vec![("host", "a.example"), ("sec-fetch-site", "none")], true),
            (vec![("host", "a.example"), ("sec-fetch-site", "Cross-Site")], false),
            (vec![("host", "a.example"), ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], false),
            (vec![("host", "a.example"), ("sec-fetch-site", "same-site")], false),
            (vec![("host", "a.example"), ("origin", "chrome-extension://a.example")], false),
            (vec![("host", "a.example"), ("origin", "https://\u{e4}.example")], false),
            (vec![("origin", "https://")], false),
            (vec![("host", ""), ("origin", "https://")], false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in &pairs {
                headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            assert_eq!(is_same_origin(&headers), want, "{pairs:?}");
        }
    }
}
