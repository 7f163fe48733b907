//! An HTTP server that takes what triggers send, keeps it, and answers as the test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use bytes::Bytes;
use rekindle_wire::delivery::{Delivery, decode};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Far longer than anything here takes, on a machine that builds beside it.
const DEADLINE: Duration = Duration::from_mins(1);

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Received {
    /// As the functions read it.
    pub(crate) fn delivery(&self) -> Delivery {
        let mut deliveries = decode(&self.headers, &self.body).unwrap();
        assert_eq!(deliveries.len(), 1);
        deliveries.remove(0)
    }
}

/// What to do with a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// Answer this at once.
    Status(u16),
    /// Never answer.
    Never,
    /// Answer 204 once the gate is open.
    AtTheGate,
}

type Script = Arc<dyn Fn(usize, &Received) -> Answer + Send + Sync>;

struct Shared {
    script: Script,
    received: Mutex<Vec<Received>>,
    /// Requests that came, that are in, and the most that were in at once.
    counts: watch::Sender<(usize, usize, usize)>,
    gate: watch::Sender<bool>,
}

/// The server; dropping it ends it.
pub(crate) struct Receiver {
    address: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Receiver {
    /// `script` is asked with the number of the request, from 0.
    pub(crate) async fn start(script: impl Fn(usize, &Received) -> Answer + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), script)
    }

    pub(crate) fn on(
        listener: TcpListener,
        script: impl Fn(usize, &Received) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            script: Arc::new(script),
            received: Mutex::default(),
            counts: watch::Sender::default(),
            gate: watch::Sender::default(),
        });
        let router = Router::new().fallback(take).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, shared, server }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Waits until so many requests have come, and answers them all.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<Received> {
        self.wait(|(came, ..)| came >= count).await;
        self.received()
    }

    /// Waits until so many requests are in at once.
    pub(crate) async fn wait_for_inside(&self, count: usize) {
        self.wait(|(_, inside, _)| inside >= count).await;
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// The most requests that were in at once.
    pub(crate) fn most_inside(&self) -> usize {
        self.shared.counts.borrow().2
    }

    pub(crate) fn open_the_gate(&self) {
        self.shared.gate.send_replace(true);
    }

    async fn wait(&self, until: impl Fn((usize, usize, usize)) -> bool) {
        let mut counts = self.shared.counts.subscribe();
        let waited = tokio::time::timeout(DEADLINE, counts.wait_for(|counts| until(*counts))).await;
        assert!(waited.is_ok(), "waited in vain; came: {:#?}", self.received());
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Waits until `is` holds.
pub(crate) async fn eventually(what: &str, is: impl AsyncFn() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    let all = async {
        while !is().await {
            looks.tick().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, all).await.is_ok(), "{what}: waited in vain");
}

/// A request that is being answered; counts itself out also when the client has gone.
struct Inside(Arc<Shared>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.counts.send_modify(|counts| counts.1 -= 1);
    }
}

async fn take(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> StatusCode {
    let received = Received { path: uri.path().to_owned(), headers, body };
    let answer = {
        let mut all = shared.received.lock().unwrap();
        all.push(received.clone());
        (shared.script)(all.len() - 1, &received)
    };
    shared.counts.send_modify(|counts| *counts = (counts.0 + 1, counts.1 + 1, counts.2.max(counts.1 + 1)));
    let _inside = Inside(Arc::clone(&shared));
    match answer {
        Answer::Status(status) => StatusCode::from_u16(status).unwrap(),
        Answer::Never => std::future::pending().await,
        Answer::AtTheGate => {
            shared.gate.subscribe().wait_for(|open| *open).await.unwrap();
            StatusCode::NO_CONTENT
        }
    }
}
