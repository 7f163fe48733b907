//! The metadata server of the VM: who this worker is, tokens, and values that change.

use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::StatusCode;
use serde::Deserialize;

use rekindle_core::ids::{JobId, WorkerKey};

use crate::backoff;

const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// How long the server may hold a request that waits for a change.
const WAIT_SECS: u64 = 60;

/// A client of the metadata server.
#[derive(Debug, Clone)]
pub(crate) struct Metadata {
    http: reqwest::Client,
    base: String,
}

/// A value and the tag by which the server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tagged {
    /// The value; `None`: there is no such key.
    pub(crate) value: Option<String>,
    /// Its tag; empty if the server gives none.
    pub(crate) etag: String,
}

/// Who this worker is.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The job.
    pub(crate) job: JobId,
    /// The generation.
    pub(crate) generation: u32,
    /// Which worker.
    pub(crate) key: WorkerKey,
    /// Proof that the manager made this node.
    pub(crate) nonce: String,
    /// Address of `api`.
    pub(crate) api: String,
    /// VM name.
    pub(crate) instance: String,
    /// Address within the slice.
    pub(crate) address: String,
    /// Port of the bell; `None`: nobody rings.
    pub(crate) bell_port: Option<u16>,
}

#[cfg(test)]
impl Node {
    /// The one worker of the first generation of job `a`, whose `api` is there.
    pub(crate) fn of(api: String) -> Self {
        Self {
            job: JobId::parse("a").unwrap(),
            generation: 1,
            key: WorkerKey { slice: 0, worker: 0 },
            nonce: String::new(),
            api,
            instance: String::new(),
            address: String::new(),
            bell_port: None,
        }
    }
}

#[derive(Debug, Deserialize)]
struct AccessToken {
    access_token: String,
}

impl Metadata {
    /// A client of the server at `host` (`name` or `name:port`).
    pub(crate) fn new(host: &str) -> anyhow::Result<Self> {
        // No proxy ever stands between a VM and its metadata server.
        let http = reqwest::Client::builder().no_proxy().connect_timeout(REQUEST_LIMIT).build()?;
        Ok(Self { http, base: format!("http://{host}/computeMetadata/v1/instance/") })
    }

    async fn send(&self, path: &str, limit: Duration) -> anyhow::Result<Tagged> {
        let request = self.http.get(format!("{}{path}", self.base)).header("Metadata-Flavor", "Google").timeout(limit);
        let answer = request.send().await.context("the metadata server does not answer")?;
        let etag = answer.headers().get("etag").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(Tagged { value: None, etag }),
            status if status.is_success() => Ok(Tagged { value: Some(answer.text().await?.trim().to_owned()), etag }),
            status => bail!("the metadata server answers {status} for {path}"),
        }
    }

    /// One value; `None` if there is no such key.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Option<String>> {
        Ok(self.send(path, REQUEST_LIMIT).await?.value)
    }

    /// One value with its tag.
    pub(crate) async fn get_tagged(&self, path: &str) -> anyhow::Result<Tagged> {
        self.send(path, REQUEST_LIMIT).await
    }

    /// Waits until the value is another one than that of `etag`, or for a minute.
    pub(crate) async fn wait(&self, path: &str, etag: &str) -> anyhow::Result<Tagged> {
        let path = format!("{path}?wait_for_change=true&last_etag={etag}&timeout_sec={WAIT_SECS}");
        self.send(&path, Duration::from_secs(WAIT_SECS + 15)).await
    }

    async fn attribute(&self, key: &str) -> anyhow::Result<Option<String>> {
        Ok(self.get(&format!("attributes/{key}")).await?.filter(|v| !v.is_empty()))
    }

    async fn needed(&self, key: &str) -> anyhow::Result<String> {
        self.attribute(key).await?.with_context(|| format!("node metadata has no {key}"))
    }

    /// An access token of the VM's service account.
    pub(crate) async fn access_token(&self) -> anyhow::Result<String> {
        let text = self.get("service-accounts/default/token").await?.context("this VM has no service account")?;
        Ok(serde_json::from_str::<AccessToken>(&text).context("no token in the answer")?.access_token)
    }

    /// An identity token of the VM's service account for an audience; `None` where there is no service account.
    pub(crate) async fn identity_token(&self, audience: &str) -> anyhow::Result<Option<String>> {
        self.get(&format!("service-accounts/default/identity?audience={audience}&format=full")).await
    }

    /// Reads who this worker is; tries for ever, because nothing can be done without it.
    pub(crate) async fn node(&self) -> Node {
        let mut failures = 0;
        loop {
            match self.read_node().await {
                Ok(node) => return node,
                Err(error) => {
                    failures += 1;
                    tracing::warn!(error = format!("{error:#}"), "cannot learn who this worker is");
                    tokio::time::sleep(backoff::after(failures, Duration::from_millis(100), Duration::from_secs(10)))
                        .await;
                }
            }
        }
    }

    async fn read_node(&self) -> anyhow::Result<Node> {
        let worker: u32 = match self.attribute("agent-worker-number").await? {
            Some(text) => text.parse().context("agent-worker-number is no number")?,
            None => 0,
        };
        let endpoints = self.attribute("worker-network-endpoints").await?.unwrap_or_default();
        let address = match address_of(&endpoints, worker) {
            Some(address) => address,
            None => self.get("network-interfaces/0/ip").await?.unwrap_or_default(),
        };
        Ok(Node {
            job: JobId::parse(&self.needed("rekindle-job").await?).context("rekindle-job")?,
            generation: self
                .needed("rekindle-generation")
                .await?
                .parse()
                .context("rekindle-generation is no number")?,
            key: WorkerKey { slice: self.slice().await?, worker },
            nonce: self.needed("rekindle-nonce").await?,
            api: self.needed("rekindle-api").await?.trim_end_matches('/').to_owned(),
            instance: self.get("name").await?.context("the VM has no name")?,
            address,
            bell_port: self.attribute("rekindle-bell-port").await?.and_then(|port| port.parse().ok()),
        })
    }

    /// The slice: told outright; else by the service to the nodes of a multislice queued resource; else the number at
    /// the end of the node's name, if there is more than one slice.
    async fn slice(&self) -> anyhow::Result<u32> {
        if let Some(text) = self.attribute("rekindle-slice").await? {
            return text.parse().context("rekindle-slice is no number");
        }
        if let Some(slice) = self.attribute("tpu-env").await?.as_deref().and_then(megascale_slice) {
            return Ok(slice);
        }
        let slices: u32 = self.attribute("rekindle-slices").await?.and_then(|t| t.parse().ok()).unwrap_or(1);
        if slices < 2 {
            return Ok(0);
        }
        let node = self.needed("instance-id").await?;
        node.rsplit('-')
            .next()
            .and_then(|n| n.parse().ok())
            .with_context(|| format!("{node} does not end in a slice number"))
    }
}

/// The address of a worker in `worker-network-endpoints`: a list with commas, of entries whose third field is the
/// address.
fn address_of(endpoints: &str, worker: u32) -> Option<String> {
    let entry = endpoints.split(',').nth(usize::try_from(worker).ok()?)?;
    entry.split(':').nth(2).map(str::trim).filter(|a| !a.is_empty()).map(str::to_owned)
}

/// `MEGASCALE_SLICE_ID: '1'` of `tpu-env`.
fn megascale_slice(tpu_env: &str) -> Option<u32> {
    tpu_env.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "MEGASCALE_SLICE_ID").then(|| value.trim().trim_matches(['\'', '"']).parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use axum::extract::Path as UrlPath;

    use super::*;

    #[test]
    fn finds_the_address_of_a_worker() {
        let endpoints = "unknown:unknown:10.130.0.5,unknown:unknown:10.130.0.7";
        assert_eq!(address_of(endpoints, 1).as_deref(), Some("10.130.0.7"));
        assert_eq!(address_of(endpoints, 2), None);
        assert_eq!(address_of("", 0), None);
    }

    /// A metadata server of a node, as the service does not name the slice.
    async fn server(node: &'static str, slices: Option<&'static str>) -> Metadata {
        let answer = move |UrlPath(key): UrlPath<String>| async move {
            let value = match key.as_str() {
                "attributes/rekindle-slices" => slices,
                "attributes/instance-id" => Some(node),
                "attributes/tpu-env" => Some("ZONE: 'us-east5-a'\nWORKER_ID: '3'\n"),
                _ => None,
            };
            value.ok_or(axum::http::StatusCode::NOT_FOUND)
        };
        let routes = axum::Router::new().route("/computeMetadata/v1/instance/{*key}", axum::routing::get(answer));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(axum::serve(listener, routes).into_future());
        Metadata::new(&address.to_string()).unwrap()
    }

    #[tokio::test]
    async fn two_slices_tell_themselves_apart_though_the_service_does_not() {
        for (node, slice) in [("rk-abc-train-g1-0", 0), ("rk-abc-train-g1-1", 1)] {
            assert_eq!(server(node, Some("2")).await.slice().await.unwrap(), slice);
        }
        assert!(server("rk-abc-train", Some("2")).await.slice().await.is_err(), "none is taken for the first");
        assert_eq!(server("rk-abc-train-7", None).await.slice().await.unwrap(), 0, "there is one");
    }

    #[test]
    fn finds_the_slice_of_a_multislice_node() {
        assert_eq!(megascale_slice("ZONE: 'us-east5-a'\nMEGASCALE_SLICE_ID: '3'\n"), Some(3));
        assert_eq!(megascale_slice("ZONE: 'us-east5-a'\n"), None);
    }
}
