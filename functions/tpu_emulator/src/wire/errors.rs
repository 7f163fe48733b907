//! Errors of the API, in the wording that users of the real service reported.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use rekindle_core::catalog::{self, Accelerator};
use serde_json::{Value, json};

use crate::model::{Location, NodeState};
use crate::world::project_number;

/// An error answer: `{"error": {code, message, status, details}}`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    /// HTTP status, also `error.code`.
    pub http: u16,
    /// gRPC name of the code.
    pub status: &'static str,
    /// Text.
    pub message: String,
    /// `google.rpc` details.
    pub details: Vec<Value>,
}

impl ApiError {
    fn new(http: u16, message: impl Into<String>) -> Self {
        Self { http, status: status_name(http), message: message.into(), details: Vec::new() }
    }

    /// 400 with the service's opening words.
    pub(crate) fn bad_request(text: &str, event_id: &str) -> Self {
        Self::new(400, format!("Cloud TPU received a bad request. {text} {event_id}"))
    }

    /// 400.
    pub(crate) fn invalid(text: &str) -> Self {
        Self::new(400, text)
    }

    /// 400 FAILED_PRECONDITION.
    pub(crate) fn failed_precondition(text: &str, event_id: &str) -> Self {
        let mut error = Self::bad_request(text, event_id);
        error.status = "FAILED_PRECONDITION";
        error
    }

    /// 400: what was asked for does not go with the node's state.
    pub(crate) fn wrong_state(verb: &str, state: NodeState, event_id: &str) -> Self {
        Self::failed_precondition(&format!("{verb} is not supported while in state {}", state.as_str()), event_id)
    }

    /// 400: this zone does not have this accelerator.
    pub(crate) fn accelerator_not_in_zone(accelerator: &str, zone: &str, event_id: &str) -> Self {
        let text = format!(
            "The requested accelerator configuration for accelerator type, \"{accelerator}\", could not be found in \
             the zonal accelerator configurations for \"{zone}\".; the accelerator {accelerator} was not found in \
             zone {zone}"
        );
        Self::bad_request(&text, event_id)
    }

    /// 400: no such zone.
    pub(crate) fn zone_unsupported(zone: &str, event_id: &str) -> Self {
        Self::bad_request(&format!("The requested zone \"{zone}\" is not supported."), event_id)
    }

    /// 403: the organisation does not allow this location.
    pub(crate) fn location_denied(location: &Location) -> Self {
        let zone = &location.zone;
        let text = format!("Permission denied on 'locations/{zone}' (or it may not exist).");
        Self::new(403, text).with(json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "LOCATION_POLICY_VIOLATED",
            "domain": "googleapis.com",
            "metadata": {
                "consumer": format!("projects/{}", project_number(&location.project)),
                "location": zone,
                "service": "tpu.googleapis.com",
            },
        }))
    }

    /// 403: the caller is none of ours.
    pub(crate) fn forbidden(text: &str) -> Self {
        Self::new(403, text)
    }

    /// 404 of the admin paths, with what there is.
    pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> Self {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Self::new(404, format!("no {what} {name:?}; there is {known}"))
    }

    /// 405 of the admin paths.
    pub(crate) fn wrong_method(text: &str) -> Self {
        Self::new(405, text)
    }

    /// 404.
    pub(crate) fn not_found(name: &str) -> Self {
        Self::new(404, format!("Resource '{name}' was not found")).with(resource_info(name))
    }

    /// 404: the zone has no reservation of this name.
    pub(crate) fn reservation_not_found() -> Self {
        Self::new(404, "Reservation not found")
    }

    /// 404: no method at this path.
    pub(crate) fn no_such_method(path: &str) -> Self {
        Self::new(404, format!("Method not found: {path}"))
    }

    /// 409.
    pub(crate) fn already_exists(name: &str) -> Self {
        Self::new(409, format!("Resource '{name}' already exists")).with(resource_info(name))
    }

    /// 409: another operation holds the node.
    pub(crate) fn busy(name: &str) -> Self {
        let mut error = Self::new(409, format!("Resource '{name}' is held by another operation"));
        error.status = "ABORTED";
        error
    }

    /// 409 of the admin paths.
    pub(crate) fn conflict(text: &str) -> Self {
        let mut error = Self::new(409, text);
        error.status = "FAILED_PRECONDITION";
        error
    }

    /// 501 of the admin paths: the kernel refuses.
    pub(crate) fn refused(text: &str) -> Self {
        Self::new(501, text)
    }

    /// 503.
    pub(crate) fn unavailable(text: &str) -> Self {
        Self::new(503, text)
    }

    /// 429: the project's quota for a node.
    pub(crate) fn quota(location: &Location, accelerator: &Accelerator, is_spot: bool, limit: u64) -> Self {
        let id = quota_id(&accelerator.family, accelerator.is_multi_host(), is_spot);
        let region = catalog::region_of(&location.zone);
        let text = format!("Quota limit '{id}' has been exceeded. Limit: {limit} in region {region}.");
        Self::new(429, text.clone()).with(quota_failure(location, &text))
    }

    /// 429: the project's quota for a queued resource.
    pub(crate) fn queued_quota(location: &Location, family: &str, is_spot: bool, limit: u64) -> Self {
        let id = quota_id(family, true, is_spot);
        let region = catalog::region_of(&location.zone);
        let text = format!("Quota '{id}' exhausted. Limit {limit} in region {region}");
        Self::new(429, text.clone()).with(quota_failure(location, &text))
    }

    /// 429: more workers than this machine can carry, which no real service says. A quota is the nearest to it.
    pub(crate) fn machine_full(limit: usize, held: usize, more: usize) -> Self {
        Self::new(
            429,
            format!(
                "Quota limit 'WorkersOfThisEmulator' has been exceeded. Limit: {limit}, since each worker is several \
                 processes of this machine; {held} are taken and {more} are asked for."
            ),
        )
    }

    /// 429: too many creates in a minute.
    pub(crate) fn rate(project: &str, limit: u32) -> Self {
        let number = project_number(project);
        let text = format!(
            "Quota exceeded for quota metric 'Create requests' and limit 'Maximum number of CreateNode requests per \
             minute' of service 'tpu.googleapis.com' for consumer 'project_number:{number}'."
        );
        Self::new(429, text).with(json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "RATE_LIMIT_EXCEEDED",
            "domain": "googleapis.com",
            "metadata": {
                "service": "tpu.googleapis.com",
                "consumer": format!("projects/{number}"),
                "quota_metric": "tpu.googleapis.com/qps/create",
                "quota_limit_value": limit.to_string(),
            },
        }))
    }

    /// An error that was asked for.
    pub(crate) fn injected(http: u16, message: Option<&str>) -> Self {
        let usual = match http {
            429 => "Quota limit 'TPUV6EPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 0 in region us-east5.",
            403 => "The caller does not have permission",
            500 => "an internal error has occurred",
            503 => "502:Bad Gateway",
            504 => "Deadline exceeded",
            _ => "injected fault",
        };
        Self::new(http, message.unwrap_or(usual))
    }

    fn with(mut self, detail: Value) -> Self {
        self.details.push(detail);
        self
    }

    /// The body.
    pub(crate) fn body(&self) -> Value {
        let mut error = json!({"code": self.http, "message": self.message, "status": self.status});
        if !self.details.is_empty() {
            error["details"] = json!(self.details);
        }
        json!({"error": error})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.body())).into_response()
    }
}

fn resource_info(name: &str) -> Value {
    json!({"@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceName": name})
}

fn quota_failure(location: &Location, text: &str) -> Value {
    json!({
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"subject": format!("project:{}", location.project), "description": text}],
    })
}

/// `TPU<GEN>[Preemptible][Litepod|LitepodServing|Pod]PerProjectPer{Zone|Region}ForTPUAPI`.
fn quota_id(family: &str, is_pod: bool, is_spot: bool) -> String {
    let (generation, size) = match (family, is_pod) {
        ("v5litepod", true) => ("V5s", "Litepod"),
        ("v5litepod", false) => ("V5s", "LitepodServing"),
        ("v6e", _) => ("V6E", ""),
        ("v5p", _) => ("V5P", ""),
        ("v4", true) => ("V4s", "Pod"),
        ("v4", false) => ("V4s", ""),
        ("v3", true) => ("V3", "Pod"),
        ("v3", false) => ("V3", ""),
        (_, true) => ("V2", "Pod"),
        (_, false) => ("V2", ""),
    };
    let (pool, scope) = if is_spot { ("Preemptible", "Region") } else { ("", "Zone") };
    format!("TPU{generation}{pool}{size}PerProjectPer{scope}ForTPUAPI")
}

fn status_name(http: u16) -> &'static str {
    match http {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        409 => "ALREADY_EXISTS",
        429 => "RESOURCE_EXHAUSTED",
        499 => "CANCELLED",
        500 => "INTERNAL",
        501 => "UNIMPLEMENTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "UNKNOWN",
    }
}
