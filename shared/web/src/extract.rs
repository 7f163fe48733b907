//! axum's extractors of path and query, with problems for answers.

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::{FieldFault, Problem, problem};

/// The query, or 400.
#[derive(Debug, Clone)]
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Query::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(error) => Err(bad_query(&error.body_text())),
        }
    }
}

/// No query at all: any field is refused by name.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoQuery {}

/// A fault of the query, with the field that axum names before the colon.
fn bad_query(text: &str) -> Problem {
    let why = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(text);
    let (field, message) = why.split_once(": ").unwrap_or(("", why));
    faulty_query(field, message)
}

/// 400: a field of the query cannot be used.
pub fn faulty_query(field: &str, message: &str) -> Problem {
    let detail = if field.is_empty() { message.to_owned() } else { format!("{field}: {message}") };
    let fault = FieldFault { field: field.to_owned(), message: message.to_owned() };
    problem(StatusCode::BAD_REQUEST, "query", detail).with_errors(vec![fault])
}

/// The variable parts of the path, or 404.
#[derive(Debug, Clone)]
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(_) => Err(Problem::not_found("such path")),
        }
    }
}
