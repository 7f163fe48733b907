//! Serving a router over HTTP/1.1, with limits on what comes before a body.
//!
//! axum's own server has no settings for them.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, StatusCode, header};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{layers, problem};

/// Most headers of a request; more are 431.
// Google's front ends add about fifteen, callers send a dozen. An unwrapped push has one more for each attribute, and
// our subscriptions wrap.
pub const HEADERS_MAX: usize = 100;

/// Most bytes of a request's line and headers together; more are 431, and the connection is closed.
// The longest token that is looked at has 16 KiB, a trace's headers some hundred bytes.
pub const HEAD_MAX: usize = 64 * 1024;

/// Behind a load balancer, a connection on which no head has come to its end for so long is closed.
// Google's load balancers keep an idle connection for 600 s, and close it first: one that is closed under them may cost a request.
pub const HEAD_FOR: Duration = Duration::from_secs(620);

/// The same on a person's own machine, where nothing stands before the server.
// Programs send a head at once, and open another connection where an idle one was closed. More would let whoever begins heads hold
// the descriptors of this process for as long.
pub const HEAD_FOR_HERE: Duration = Duration::from_secs(30);

/// Headers by which it is decided who may call: who looks at the first and who looks at the last must see the same. Cloud Run may look at
/// one token, and we at another.
const ONCE: [HeaderName; 4] =
    [header::HOST, header::ORIGIN, header::AUTHORIZATION, HeaderName::from_static("x-serverless-authorization")];

/// Serves `router`. Once `stop` ends, no new connection is taken, streams of server-sent events end, and this returns when the
/// requests that are under way have been answered. Dropped before that, it cuts them.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()> + Send) {
    serve_heads(listener, router, stop, HEAD_FOR).await;
}

/// [`serve`] on a person's own machine.
pub async fn serve_here(listener: TcpListener, router: Router, stop: impl Future<Output = ()> + Send) {
    serve_heads(listener, router, stop, HEAD_FOR_HERE).await;
}

async fn serve_heads(listener: TcpListener, router: Router, stop: impl Future<Output = ()> + Send, head_for: Duration) {
    let mut listener = crate::listen::prompt(listener);
    let (close, closing) = watch::channel(());
    let router = router.layer(middleware::from_fn_with_state(closing.clone(), end_streams));
    let router = router.layer(middleware::from_fn(refuse_twice));
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            // Errors are axum's to wait out: a process without a free descriptor takes connections again later.
            (stream, _) = Listener::accept(&mut listener) => {
                connections.spawn(connection(stream, router.clone(), closing.clone(), head_for));
            }
            Some(_) = connections.join_next() => {}
            () = &mut stop => break,
        }
    }
    drop((listener, close));
    tracing::info!("no new connections are taken");
    while connections.join_next().await.is_some() {}
}

/// A header that may be there once, and is there more often.
pub fn twice(headers: &HeaderMap) -> Option<HeaderName> {
    ONCE.into_iter().find(|name| headers.get_all(name).iter().nth(1).is_some())
}

async fn refuse_twice(request: Request, next: Next) -> Response {
    let Some(name) = twice(request.headers()) else { return next.run(request).await };
    let why = format!("a request has one header `{name}`, and this one has more");
    let ours = [(layers::OURS, layers::VERSION)];
    (ours, problem(StatusCode::BAD_REQUEST, "header", why)).into_response()
}

/// A stream of events lasts as long as its reader likes, and its reader comes back with the last id: it is not waited for.
async fn end_streams(State(mut closing): State<watch::Receiver<()>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    response.map(|body| {
        let closed = async move {
            // That nobody is left who could tell is how it is told.
            let _closed = closing.changed().await;
        };
        Body::from_stream(body.into_data_stream().take_until(Box::pin(closed)))
    })
}

async fn connection(stream: TcpStream, router: Router, mut closing: watch::Receiver<()>, head_for: Duration) {
    let mut builder = http1::Builder::new();
    builder.max_headers(HEADERS_MAX).max_header_size(HEAD_MAX);
    builder.timer(TokioTimer::new()).header_read_timeout(head_for);
    // A caller that goes away after its request does not end the handler between a commit and what follows from it: a worker whose
    // machine is taken away says so with its last breath.
    builder.half_close(true);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    tokio::select! {
        // Only the client or the network can be at fault, and handlers have told of their own.
        _ = connection.as_mut() => return,
        _ = closing.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

#[cfg(test)]
mod tests;
