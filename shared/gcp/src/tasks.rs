//! Wake-ups at a time through Cloud Tasks: one named task for each (job, key), which posts a hint to `reconcile`.
//! They only make us faster: the tick finds every due job, so a wake-up may be late, doubled or lost.

use async_trait::async_trait;
use futures::future::BoxFuture;
use google_cloud_gax::error::rpc::Code;
use google_cloud_gax::retry_policy::NeverRetry;
use google_cloud_tasks_v2::client::CloudTasks;
use google_cloud_tasks_v2::model::{HttpMethod, HttpRequest, OidcToken, Task};
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use rekindle_core::ids::JobId;
use rekindle_ports::world::{Hint, Wakeups, WorldError};
use rekindle_telemetry::trace;

use crate::auth::{ConnectError, Service};

const WHAT: &str = "Cloud Tasks";
const SCHEDULE: &str = "schedule a wake-up";

/// The service takes tasks up to 30 days ahead; what is later is left to the tick.
const AHEAD_MAX: SignedDuration = SignedDuration::from_hours(29 * 24);

/// Longest key kept readable in a task's name; the hash tells longer ones apart.
const KEY_MAX: usize = 100;

/// Where the tasks go, and as whom they call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TasksSettings {
    /// Project of the queue.
    pub project: String,
    /// Region of the queue.
    pub location: String,
    /// The queue.
    pub queue: String,
    /// Full address of the function, `https://…/functions/reconcile`.
    pub url: String,
    /// Service account whose identity token the tasks carry; `None`: none (no check on the other side).
    pub service_account: Option<String>,
    /// Audience of that token: the root address of the service, as `reconcile` expects it.
    pub audience: String,
}

/// [`Wakeups`] over Cloud Tasks.
#[derive(Debug, Clone)]
pub struct CloudTasksWakeups {
    client: OnceCell<CloudTasks>,
    service: Service,
    settings: TasksSettings,
}

impl CloudTasksWakeups {
    /// Nothing is called yet.
    pub const fn new(settings: TasksSettings, service: Service) -> Self {
        Self { client: OnceCell::const_new(), service, settings }
    }

    /// The client, made when it is first needed.
    fn client(&self) -> BoxFuture<'_, Result<&CloudTasks, ConnectError>> {
        let service = &self.service;
        Box::pin(self.client.get_or_try_init(async move || {
            let mut builder = CloudTasks::builder()
                .with_credentials(service.access.credentials(WHAT)?)
                .with_retry_policy(NeverRetry)
                .with_attempt_timeout(service.timeout);
            if let Some(endpoint) = &service.endpoint {
                builder = builder.with_endpoint(endpoint);
            }
            builder.build().await.map_err(|error| ConnectError::new(WHAT, error))
        }))
    }

    fn parent(&self) -> String {
        let TasksSettings { project, location, queue, .. } = &self.settings;
        format!("projects/{project}/locations/{location}/queues/{queue}")
    }
}

#[async_trait]
impl Wakeups for CloudTasksWakeups {
    async fn schedule(&self, job: &JobId, at: Timestamp, key: &str) -> Result<(), WorldError> {
        // The service refuses what is too far ahead by its own clock, which is near ours.
        if at.duration_since(Timestamp::now()) > AHEAD_MAX {
            return Ok(());
        }
        let traceparent = trace::current().map(|trace| trace.traceparent());
        let hint = Hint { job: job.clone(), after: None, news: None, cause: format!("wake-up {key}"), traceparent };
        let body = serde_json::to_vec(&hint).map_err(|error| WorldError { what: SCHEDULE, why: error.to_string() })?;
        let mut request = HttpRequest::new()
            .set_url(&self.settings.url)
            .set_http_method(HttpMethod::Post)
            .set_headers([("Content-Type", "application/json")])
            .set_body(body);
        if let Some(email) = &self.settings.service_account {
            let token = OidcToken::new().set_service_account_email(email).set_audience(&self.settings.audience);
            request = request.set_oidc_token(token);
        }
        let task = Task::new()
            .set_name(format!("{}/tasks/{}", self.parent(), task_id(job, key)))
            .set_schedule_time(google_cloud_wkt::Timestamp::clamp(at.as_second(), at.subsec_nanosecond()))
            .set_http_request(request);
        let client = self.client().await.map_err(|error| WorldError { what: SCHEDULE, why: error.to_string() })?;
        match client.create_task().set_parent(self.parent()).set_task(task).send().await {
            Ok(_) => Ok(()),
            Err(error) if error.status().is_some_and(|status| status.code == Code::AlreadyExists) => Ok(()),
            Err(error) => {
                let why = error.status().map_or_else(|| error.to_string(), |status| status.message.clone());
                Err(WorldError { what: SCHEDULE, why })
            }
        }
    }
}

/// `<hash>-<job>-<key>`: the hash first, since the service is slow with names that begin alike; it also tells apart
/// keys that become equal when their odd characters are replaced.
fn task_id(job: &JobId, key: &str) -> String {
    let digest = Sha256::digest(format!("{job}\n{key}"));
    let readable: String = key
        .chars()
        .take(KEY_MAX)
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' })
        .collect();
    format!("{}-{job}-{readable}", hex::encode(&digest[..8]))
}

#[cfg(test)]
mod tests;
