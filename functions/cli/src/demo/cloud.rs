//! The emulator's own paths, as the demonstration uses them.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::fault::{Fault, Result};

/// A call on loopback; on a busy machine it may have to wait for its turn.
const TIMEOUT: Duration = Duration::from_mins(2);

/// What to do about an emulator that does not do its part.
const REPORT: &str = "see the log in the state folder, which is kept";

/// A client of the emulator.
pub(crate) struct Cloud {
    base: String,
    http: reqwest::Client,
}

/// What came of cutting connections.
pub(crate) enum Cut {
    /// So many were cut.
    Done(u64),
    /// The kernel does not allow it.
    Refused,
}

impl Cloud {
    /// A client; `url` is the address of the Cloud TPU API.
    pub(crate) fn new(url: &str) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build();
        let http = http.map_err(|error| Fault::unexpected("cannot set up HTTP").caused_by(&error))?;
        Ok(Self { base: format!("{}/emulator/v1", url.trim_end_matches('/')), http })
    }

    /// Takes a node away; answers when its machines will be switched off.
    pub(crate) async fn preempt(&self, node: &str, zone: &str, notice: Duration) -> Result<Timestamp> {
        let order = json!({"notice": format!("{}s", notice.as_secs()), "leave": "PREEMPTED"});
        let answer = self.act(node, zone, "preempt", &order).await?.map_err(|text| refused("preempt", &text))?;
        let at = answer.get("power_off_at").and_then(Value::as_str).and_then(|text| text.parse().ok());
        at.ok_or_else(|| Fault::unexpected("the emulator does not say when the machines go off").next(REPORT))
    }

    /// Cuts the connections between one worker's programs and the others'.
    pub(crate) async fn cut(&self, node: &str, zone: &str, worker: u32) -> Result<Cut> {
        match self.act(node, zone, "cut-connections", &json!({"worker": worker})).await? {
            Ok(answer) => Ok(Cut::Done(answer.get("cut").and_then(Value::as_u64).unwrap_or(0))),
            Err(text) if text.contains("does not let") => Ok(Cut::Refused),
            Err(text) => Err(refused("cut-connections", &text)),
        }
    }

    /// Stops all processes of one worker for a while.
    pub(crate) async fn freeze(&self, node: &str, zone: &str, worker: u32, length: Duration) -> Result<()> {
        let order = json!({"worker": worker, "for": format!("{}s", length.as_secs())});
        self.act(node, zone, "freeze", &order).await?.map(drop).map_err(|text| refused("freeze", &text))
    }

    /// When the first CreateNode or CreateQueuedResource at or after `since` arrived.
    pub(crate) async fn next_create(&self, since: Timestamp) -> Result<Option<Timestamp>> {
        let mut first: Option<Timestamp> = None;
        for method in ["CreateNode", "CreateQueuedResource"] {
            let answer = self.get(&format!("requests?method={method}")).await?;
            let calls = answer.get("requests").and_then(Value::as_array).cloned().unwrap_or_default();
            let times = calls.iter().filter_map(|call| call.get("at")?.as_str()?.parse::<Timestamp>().ok());
            first = times.filter(|at| *at >= since).chain(first).min();
        }
        Ok(first)
    }

    /// How many nodes and queued resources there are.
    pub(crate) async fn resources(&self) -> Result<usize> {
        let state = self.get("state").await?;
        let count = |name: &str| state.get(name).and_then(Value::as_array).map_or(0, Vec::len);
        Ok(count("nodes") + count("queued_resources"))
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.http.get(format!("{}/{path}", self.base)).send().await.map_err(unreachable)?;
        answer.json().await.map_err(unreachable)
    }

    /// The answer, or the text of a refusal.
    async fn act(
        &self,
        node: &str,
        zone: &str,
        action: &str,
        order: &Value,
    ) -> Result<std::result::Result<Value, String>> {
        let url = format!("{}/nodes/{node}/{action}", self.base);
        let answer = self.http.post(url).query(&[("zone", zone)]).json(order).send().await.map_err(unreachable)?;
        if answer.status() == StatusCode::OK {
            return Ok(Ok(answer.json().await.map_err(unreachable)?));
        }
        Ok(Err(answer.text().await.map_err(unreachable)?))
    }
}

fn refused(action: &str, text: &str) -> Fault {
    Fault::unexpected(format!("the emulator refuses to {action}")).because(text.trim().to_owned()).next(REPORT)
}

fn unreachable(error: reqwest::Error) -> Fault {
    Fault::unexpected("the emulator does not answer").caused_by(&error.without_url()).next(REPORT)
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::post;

    use super::*;

    #[tokio::test]
    async fn an_emulator_that_does_not_do_its_part_is_told_of() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/emulator/v1/nodes/vague/preempt", post(async || "{}"))
            .route("/emulator/v1/nodes/gone/preempt", post(async || (StatusCode::NOT_FOUND, "no such node\n")));
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        for (url, node, words) in [
            (
                url.as_str(),
                "vague",
                ["the emulator does not say when the machines go off", "the log in the state folder"],
            ),
            (&url, "gone", ["the emulator refuses to preempt\n  - no such node", "the log in the state folder"]),
            ("http://127.0.0.1:1", "any", ["the emulator does not answer\n", "Connection refused"]),
        ] {
            let fault = Cloud::new(url).unwrap().preempt(node, "z", Duration::ZERO).await.unwrap_err();
            let text = anstream::adapter::strip_str(&fault.text()).to_string();
            assert!(words.iter().all(|word| text.contains(word)) && text.contains("\nnext: "), "{text}");
        }
        server.abort();
    }
}
