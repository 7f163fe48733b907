//! The audit log: kept in memory for `GET /emulator/v1/audit`, and delivered as a Logging sink does, in Pub/Sub push
//! envelopes, when there is an address for it. Deliveries never hold up the API.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Entries kept in memory.
const KEPT: usize = 5_000;

/// Deliveries under way at once.
const PARALLEL: usize = 16;

/// Waits between tries; after the last the entry is lost, as a real topic without dead-lettering would lose it.
const RETRIES_MS: &[u64] = &[100, 300, 1_000, 3_000, 10_000];

/// Where audit entries go.
pub(crate) struct Events {
    kept: Mutex<VecDeque<Value>>,
    url: Option<String>,
    client: reqwest::Client,
    permits: Arc<Semaphore>,
    written: AtomicU64,
}

impl Events {
    pub(crate) fn new(url: Option<String>, client: reqwest::Client) -> Self {
        Self {
            kept: Mutex::new(VecDeque::new()),
            url,
            client,
            permits: Arc::new(Semaphore::new(PARALLEL)),
            written: AtomicU64::new(0),
        }
    }

    /// Writes an entry and begins its delivery.
    pub(crate) fn write(&self, mut entry: Value) {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let at = jiff::Timestamp::now();
        entry["insertId"] = json!(format!("{:x}-{number:x}", at.as_microsecond()));
        if let Some(url) = self.url.clone() {
            let envelope = envelope(&entry, at, number);
            let (client, permits) = (self.client.clone(), self.permits.clone());
            tokio::spawn(async move { deliver(&client, &url, &envelope, &permits).await });
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(entry);
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }

    /// The entries, oldest first.
    pub(crate) fn all(&self) -> Vec<Value> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

fn envelope(entry: &Value, at: jiff::Timestamp, number: u64) -> Value {
    let data = base64::engine::general_purpose::STANDARD.encode(entry.to_string());
    let id = format!("{}{number:06}", at.as_millisecond());
    let published_at = format!("{at:.3}");
    let log = entry["logName"].as_str().unwrap_or_default();
    let project = log.split('/').nth(1).unwrap_or("emulated");
    json!({
        "message": {
            "data": data,
            "attributes": {"logging.googleapis.com/timestamp": entry["timestamp"]},
            "messageId": id,
            "message_id": id,
            "publishTime": published_at,
            "publish_time": published_at,
        },
        "subscription": format!("projects/{project}/subscriptions/tpu-events"),
    })
}

async fn deliver(client: &reqwest::Client, url: &str, envelope: &Value, permits: &Semaphore) {
    let Ok(_permit) = permits.acquire().await else { return };
    let mut waits = RETRIES_MS.iter();
    loop {
        let sent = client.post(url).timeout(Duration::from_secs(10)).json(envelope).send().await;
        let problem = match sent {
            Ok(answer) if answer.status().is_success() => return,
            Ok(answer) => answer.status().to_string(),
            Err(error) => error.to_string(),
        };
        let Some(wait) = waits.next() else {
            tracing::warn!("an audit entry was not delivered to {url}: {problem}");
            return;
        };
        tokio::time::sleep(Duration::from_millis(*wait)).await;
    }
}
