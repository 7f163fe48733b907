//! [`TpuApi`] over Google's official client of the Cloud TPU API, version 2. Owns the calls; `request` writes bodies,
//! `view` reads answers, `classify` reads errors. Never retries (the next pass does) and never waits for a long-running
//! operation: it answers the operation's name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::future::{try_join, try_join_all};
use google_cloud_gax::error::Error;
use google_cloud_gax::options::RequestOptionsBuilder;
use google_cloud_gax::retry_policy::NeverRetry;
use google_cloud_tpu_v2::client::Tpu;
use google_cloud_tpu_v2::model::{Node, QueuedResource};
use http::HeaderName;
use tokio::sync::OnceCell;

use rekindle_core::job::Via;
use rekindle_core::observation::{OperationView, SliceView};
use rekindle_core::shared::Shared;
use rekindle_ports::tpu::{CreateRequest, Listed, Listing, SliceRef, TpuApi, TpuError};
use rekindle_telemetry::trace;

use crate::auth::{ConnectError, Service};

mod classify;
mod request;
#[cfg(test)]
mod tests;
mod view;

const WHAT: &str = "the Cloud TPU API";

/// More pages than any project has; a server that repeats itself must not hold a pass for ever.
const PAGES_MAX: usize = 1000;

/// The Cloud TPU API of one project.
#[derive(Debug, Clone)]
pub struct GoogleTpu {
    client: OnceCell<Tpu>,
    service: Service,
    project: String,
}

impl GoogleTpu {
    /// Nothing is called yet; credentials are looked for at the first call.
    pub fn new(project: &str, service: Service) -> Self {
        Self { client: OnceCell::new(), service, project: project.to_owned() }
    }

    /// The client, made when it is first needed.
    fn client(&self) -> BoxFuture<'_, Result<&Tpu, TpuError>> {
        Box::pin(async {
            let made = self.client.get_or_try_init(|| connect(&self.service)).await;
            // Nothing was sent; the next pass tries again.
            made.map_err(|error| TpuError::Unclear(error.to_string()))
        })
    }

    fn parent(&self, zone: &str) -> String {
        format!("projects/{}/locations/{zone}", self.project)
    }

    fn name(&self, slice: &SliceRef) -> String {
        let collection = match slice.via {
            Via::Node => "nodes",
            Via::QueuedResource => "queuedResources",
        };
        format!("{}/{collection}/{}", self.parent(&slice.zone), slice.name)
    }

    async fn node(&self, name: String) -> Result<Option<Node>, TpuError> {
        some_or_absent(traced(self.client().await?.get_node().set_name(name)).send().await)
    }

    /// The queued resource with its nodes. They are asked for only while it is ACTIVE: in every other state the queued
    /// resource itself says what is the matter.
    async fn queued(&self, slice: &SliceRef) -> Result<Option<SliceView>, TpuError> {
        let read = traced(self.client().await?.get_queued_resource().set_name(self.name(slice))).send().await;
        let Some(queued) = some_or_absent(read)? else {
            return Ok(None);
        };
        if !view::asks_for_nodes(&queued) {
            return Ok(Some(view::of_queued(&queued, &[])));
        }
        let ids = view::node_ids(&queued);
        let reads = ids.iter().map(|id| self.node(format!("{}/nodes/{id}", self.parent(&slice.zone))));
        let nodes = try_join_all(reads).await?;
        let views: Vec<Option<SliceView>> = nodes.iter().map(|node| node.as_ref().map(view::of_node)).collect();
        Ok(Some(view::of_queued(&queued, &views)))
    }

    async fn all_nodes(&self) -> Result<(Vec<Node>, Vec<String>), TpuError> {
        let client = self.client().await?;
        let (mut nodes, mut unreachable, mut token) = (Vec::new(), Vec::new(), String::new());
        for _ in 0..PAGES_MAX {
            let call = client.list_nodes().set_parent(self.parent("-")).set_page_token(&token);
            let page = traced(call).send().await.map_err(|error| classify::on_read(&error))?;
            nodes.extend(page.nodes);
            unreachable.extend(page.unreachable);
            if page.next_page_token.is_empty() {
                return Ok((nodes, unreachable));
            }
            token = page.next_page_token;
        }
        Err(endless_list())
    }

    async fn all_queued(&self) -> Result<(Vec<QueuedResource>, Vec<String>), TpuError> {
        let client = self.client().await?;
        let (mut queued, mut unreachable, mut token) = (Vec::new(), Vec::new(), String::new());
        for _ in 0..PAGES_MAX {
            let call = client.list_queued_resources().set_parent(self.parent("-")).set_page_token(&token);
            let page = traced(call).send().await.map_err(|error| classify::on_read(&error))?;
            queued.extend(page.queued_resources);
            unreachable.extend(page.unreachable);
            if page.next_page_token.is_empty() {
                return Ok((queued, unreachable));
            }
            token = page.next_page_token;
        }
        Err(endless_list())
    }
}

async fn connect(service: &Service) -> Result<Tpu, ConnectError> {
    let mut builder = Tpu::builder()
        .with_credentials(service.access.credentials(WHAT)?)
        .with_retry_policy(NeverRetry)
        .with_attempt_timeout(service.timeout);
    if let Some(endpoint) = &service.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    builder.build().await.map_err(|error| ConnectError::new(WHAT, error))
}

impl GoogleTpu {
    async fn ask_for(&self, request: &CreateRequest) -> Result<String, TpuError> {
        let parent = self.parent(&request.placement.zone);
        let sent = match request.via {
            Via::Node if request.slices != 1 => {
                return Err(TpuError::Bad(format!("{} slices need a queued resource", request.slices)));
            }
            Via::Node => {
                let node = request::node(request);
                let call =
                    self.client().await?.create_node().set_parent(parent).set_node_id(&request.name).set_node(node);
                traced(call).send().await
            }
            Via::QueuedResource => {
                let queued = request::queued(request, &self.project);
                let call = self.client().await?.create_queued_resource().set_parent(parent).set_queued_resource(queued);
                let call = call.set_queued_resource_id(&request.name).set_request_id(&request.request_id);
                traced(call).send().await
            }
        };
        named(sent.map_err(|error| classify::on_create(&error))?.name)
    }

    async fn give_back(&self, slice: &SliceRef) -> Result<String, TpuError> {
        let name = self.name(slice);
        let sent = match slice.via {
            Via::Node => traced(self.client().await?.delete_node().set_name(name)).send().await,
            // Without force it would be refused until every node is gone and the state is SUSPENDED.
            Via::QueuedResource => {
                traced(self.client().await?.delete_queued_resource().set_name(name).set_force(true)).send().await
            }
        };
        named(sent.map_err(|error| classify::on_delete(&error))?.name)
    }

    async fn look_at(&self, slice: &SliceRef) -> Result<Option<SliceView>, TpuError> {
        match slice.via {
            Via::Node => Ok(self.node(self.name(slice)).await?.as_ref().map(view::of_node)),
            Via::QueuedResource => self.queued(slice).await,
        }
    }

    async fn look_up(&self, name: &str) -> Result<Option<OperationView>, TpuError> {
        let Some(operation) = some_or_absent(traced(self.client().await?.get_operation().set_name(name)).send().await)?
        else {
            return Ok(None);
        };
        let error = operation.error().map(|status| classify::of_status(status.code, &status.message));
        Ok(Some(OperationView { done: operation.done, error }))
    }

    async fn list_all(&self) -> Result<Listing, TpuError> {
        let ((nodes, mut unreachable), (queued, more)) = try_join(self.all_nodes(), self.all_queued()).await?;
        unreachable.extend(more);
        // Told as `us-central2-b` or as `projects/p/locations/us-central2-b`.
        let zones: BTreeSet<String> = unreachable.iter().map(|zone| view::last_segment(zone).to_owned()).collect();
        Ok(Listing { resources: listed(&nodes, &queued), unreachable: zones.into_iter().collect() })
    }
}

#[async_trait]
impl TpuApi for GoogleTpu {
    async fn create(&self, request: &CreateRequest) -> Result<String, TpuError> {
        trace::call("tpu create", self.ask_for(request)).await
    }

    async fn delete(&self, slice: &SliceRef) -> Result<String, TpuError> {
        trace::call("tpu delete", self.give_back(slice)).await
    }

    async fn get(&self, slice: &SliceRef) -> Result<Option<SliceView>, TpuError> {
        trace::call("tpu get", self.look_at(slice)).await
    }

    async fn operation(&self, name: &str) -> Result<Option<OperationView>, TpuError> {
        trace::call("tpu operation", self.look_up(name)).await
    }

    async fn list(&self) -> Result<Listing, TpuError> {
        trace::call("tpu list", self.list_all()).await
    }
}

/// The call with the trace that this task works for, as a header.
fn traced<C: RequestOptionsBuilder>(call: C) -> C {
    match trace::header() {
        Some(value) => call.with_custom_header(HeaderName::from_static(trace::TRACEPARENT), value),
        None => call,
    }
}

/// Nodes and queued resources as one list. The views of queued resources rest on the nodes of the same list.
fn listed(nodes: &[Node], queued: &[QueuedResource]) -> Vec<Shared<Listed>> {
    let mut views: HashMap<(&str, &str), SliceView> = HashMap::new();
    for node in nodes {
        if let Some((zone, id)) = view::zone_and_id(&node.name) {
            views.insert((zone, id), view::of_node(node));
        }
    }
    // A node names its queued resource, and the queued resource names its nodes; either is enough.
    let mut owners: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut resources = Vec::new();
    for resource in queued {
        let Some((zone, id)) = view::zone_and_id(&resource.name) else {
            tracing::warn!(name = resource.name, "the list has a queued resource with a name that cannot be read");
            continue;
        };
        let ids = view::node_ids(resource);
        let members: Vec<Option<SliceView>> = if view::asks_for_nodes(resource) {
            ids.iter().map(|id| views.get(&(zone, id.as_str())).cloned()).collect()
        } else {
            Vec::new()
        };
        resources.push(view::listed_queued(resource, zone, id, &members));
        owners.extend(ids.into_iter().map(|node| ((zone.to_owned(), node), id.to_owned())));
    }
    for node in nodes {
        let Some((zone, id)) = view::zone_and_id(&node.name) else {
            tracing::warn!(name = node.name, "the list has a node with a name that cannot be read");
            continue;
        };
        let owner = owners.get(&(zone.to_owned(), id.to_owned())).cloned();
        resources.push(view::listed_node(node, zone, id, owner));
    }
    resources.sort_by(|one, other| one.slice.cmp(&other.slice));
    resources.into_iter().map(Shared::from).collect()
}

/// `Ok(None)` only for an answer of the API itself that says "not found".
fn some_or_absent<T>(read: Result<T, Error>) -> Result<Option<T>, TpuError> {
    match read.map_err(|error| classify::on_read(&error)) {
        Ok(found) => Ok(Some(found)),
        Err(TpuError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

fn named(operation: String) -> Result<String, TpuError> {
    if operation.is_empty() {
        return Err(TpuError::Unclear("the answer names no operation".into()));
    }
    Ok(operation)
}

fn endless_list() -> TpuError {
    TpuError::Unclear(format!("the list did not end after {PAGES_MAX} pages"))
}
