//! Errors as `application/problem+json` (RFC 9457).

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

pub use rekindle_wire::v1::FieldFault;

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem(pub Box<rekindle_wire::v1::Problem>);

/// A problem with that status; `ty` is its short name, such as `job-exists`.
pub fn problem(status: StatusCode, ty: &str, detail: impl Into<String>) -> Problem {
    Problem(Box::new(rekindle_wire::v1::Problem {
        ty: format!("urn:rekindle:problem:{ty}"),
        title: status.canonical_reason().unwrap_or("Error").to_owned(),
        status: status.as_u16(),
        detail: detail.into(),
        errors: Vec::new(),
        more: BTreeMap::new(),
    }))
}

impl Problem {
    /// With faults by field.
    #[must_use]
    pub fn with_errors(mut self, errors: Vec<FieldFault>) -> Self {
        self.0.errors = errors;
        self
    }

    /// With a further member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.more.insert(name.to_owned(), value.into());
        self
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// 404 for anything that has a name.
    pub fn not_found(what: &str) -> Self {
        problem(StatusCode::NOT_FOUND, "not-found", format!("there is no {what}"))
    }

    /// 503: the same call may succeed later. The cause is logged, not told.
    pub fn unavailable(what: &str, cause: &dyn std::fmt::Display) -> Self {
        tracing::warn!(job = crate::about::known(), "{what} is not available: {cause}");
        problem(StatusCode::SERVICE_UNAVAILABLE, "unavailable", format!("{what} is not available now; try again"))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let body = serde_json::to_vec(&*self.0).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
