//! What an error of the Cloud TPU API means. Errors come in three places: as the HTTP answer to a request, in the
//! operation later, and in a queued resource that FAILED; the same text means the same in each.
//!
//! **Invariant:** "not found" and "refused" are said only for an answer that the API itself gave; a proxy's page, a
//! time-out or a broken connection is `Unclear`, and so destroys nothing.

use google_cloud_gax::error::Error;
use google_cloud_gax::error::rpc::{Code, StatusDetails};

use rekindle_core::observation::{CreateError, CreateErrorKind};
use rekindle_ports::tpu::TpuError;

/// Longest message kept, in characters: some answers are whole web pages.
const MESSAGE_MAX: usize = 500;

/// Stable parts of messages (lower case) and what they mean, wherever they stand. The first match counts.
// Users' reports and the code of other managers; Google documents none of them.
const TEXTS: &[(&[&str], CreateErrorKind)] = &[
    (&["in_use_addresses"], CreateErrorKind::AddressQuota),
    (&["insufficient reserved capacity"], CreateErrorKind::Reservation),
    (&["reservation", "not found"], CreateErrorKind::Reservation),
    (&["no more capacity"], CreateErrorKind::Stockout),
    (&["insufficient capacity"], CreateErrorKind::Stockout),
    (&["while in state preempted"], CreateErrorKind::PreemptedWhileCreating),
    (&["zonal accelerator configurations"], CreateErrorKind::NotOffered),
    (&["was not found in zone"], CreateErrorKind::NotOffered),
    (&["invalid acceleratortype"], CreateErrorKind::NotOffered),
    (&["queueing is not supported"], CreateErrorKind::NotQueueable),
    (&["is not supported for accelerator type"], CreateErrorKind::NotOffered),
    (&["requested zone", "is not supported"], CreateErrorKind::NotOffered),
    (&["quota", "per minute"], CreateErrorKind::RateLimit),
    (&["quota", "exceeded"], CreateErrorKind::Quota),
    (&["quota", "exhausted"], CreateErrorKind::Quota),
];

/// An error of a create request.
pub(super) fn on_create(error: &Error) -> TpuError {
    let (status, message) = (api_status(error), message(error));
    match status {
        // ABORTED comes as 409 too: something else was under way, the name says nothing. And 401 is our own token, perhaps
        // for a moment: it says nothing of the request, and must not bar a candidate.
        Some((409, Code::Aborted) | (401, _)) => TpuError::Unclear(message),
        Some((409, _)) => TpuError::Exists,
        Some((code, status)) if is_definite(code) => {
            let kind = limit(error).or_else(|| by_text(&message)).unwrap_or(match code {
                // "… is not found or access is unauthorized": the place, which is closed to the project.
                404 if message.to_lowercase().contains("unauthorized") => CreateErrorKind::Forbidden,
                429 => CreateErrorKind::Quota,
                403 => CreateErrorKind::Forbidden,
                // The same request will be refused again; 400 is also the answer to a state that passes.
                400 if status == Code::InvalidArgument => CreateErrorKind::NotOffered,
                _ => CreateErrorKind::Other,
            });
            TpuError::Refused(CreateError { kind, message })
        }
        Some(_) => TpuError::Unclear(message),
        None => unsent_or_unclear(error, message),
    }
}

/// An error of a delete request.
pub(super) fn on_delete(error: &Error) -> TpuError {
    // The request is but a name; what is wrong with it is the state of what it names.
    if matches!(api_status(error), Some((400, _))) {
        return TpuError::State(message(error));
    }
    on_read(error)
}

/// An error of any other request.
pub(super) fn on_read(error: &Error) -> TpuError {
    let message = message(error);
    match api_status(error) {
        // "… is not found or access is unauthorized": not proof that it is gone.
        Some((404, _)) if message.to_lowercase().contains("unauthorized") => TpuError::Denied(message),
        Some((404, _)) => TpuError::NotFound,
        Some((401 | 403, _)) if limit(error).is_some() => TpuError::Unclear(message),
        Some((401 | 403, _)) => TpuError::Denied(message),
        Some((409, _) | (400, Code::FailedPrecondition)) => TpuError::State(message),
        Some((code, _)) if code != 429 && is_definite(code) => TpuError::Bad(message),
        Some(_) => TpuError::Unclear(message),
        None => unsent_or_unclear(error, message),
    }
}

/// The error of an operation or of a queued resource: a gRPC code and a text.
#[expect(clippy::wildcard_enum_match_arm, reason = "Google's codes are open, and the rest tells nothing")]
pub(super) fn of_status(code: i32, message: &str) -> CreateError {
    let message = tidy(message);
    let kind = by_text(&message).unwrap_or(match Code::from(code) {
        Code::Cancelled => CreateErrorKind::Cancelled,
        // Deadline: a queued resource that waited in vain until its time was up.
        Code::ResourceExhausted | Code::DeadlineExceeded => CreateErrorKind::Stockout,
        Code::Internal | Code::Unavailable => CreateErrorKind::HiddenStockout,
        Code::AlreadyExists => CreateErrorKind::NameTaken,
        Code::PermissionDenied | Code::Unauthenticated => CreateErrorKind::Forbidden,
        _ => CreateErrorKind::Other,
    });
    CreateError { kind, message }
}

/// A 4xx that says no for good; 408 (time-out) and 499 (cancelled on the way) do not.
fn is_definite(code: u16) -> bool {
    (400..500).contains(&code) && code != 408 && code != 499
}

/// HTTP code and status of an answer in the API's own form. A page of some proxy has none, whatever its code.
fn api_status(error: &Error) -> Option<(u16, Code)> {
    Some((error.http_status_code()?, error.status()?.code))
}

/// Rate or quota, when the details say so.
fn limit(error: &Error) -> Option<CreateErrorKind> {
    for detail in &error.status()?.details {
        let StatusDetails::ErrorInfo(info) = detail else { continue };
        let metric = info.metadata.get("quota_metric").map(String::as_str).unwrap_or_default();
        match info.reason.as_str() {
            "RATE_LIMIT_EXCEEDED" | "rateLimitExceeded" | "userRateLimitExceeded" => {
                return Some(CreateErrorKind::RateLimit);
            }
            _ if metric.contains("/qps/") => return Some(CreateErrorKind::RateLimit),
            "QUOTA_EXCEEDED" | "quotaExceeded" => return Some(CreateErrorKind::Quota),
            _ => {}
        }
    }
    None
}

fn by_text(message: &str) -> Option<CreateErrorKind> {
    let lower = message.to_lowercase();
    let found = TEXTS.iter().find(|(parts, _)| parts.iter().all(|part| lower.contains(part)));
    found.map(|(_, kind)| *kind)
}

/// No answer of the API: a request that could not even be written is our mistake, all else may have taken effect.
fn unsent_or_unclear(error: &Error, message: String) -> TpuError {
    if error.is_binding() || error.is_serialization() { TpuError::Bad(message) } else { TpuError::Unclear(message) }
}

fn message(error: &Error) -> String {
    if let Some(status) = error.status() {
        return tidy(&status.message);
    }
    if let (Some(code), Some(page)) = (error.http_status_code(), error.http_payload()) {
        return tidy(&format!("HTTP {code}, not in the API's form: {}", String::from_utf8_lossy(page)));
    }
    // The causes are what helps here ("connection refused"), and the client's own line leaves them out.
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    tidy(&text)
}

/// Without the `[EID: 0x…]` that makes every message another one, and not longer than a person reads.
fn tidy(message: &str) -> String {
    let mut text = message.to_owned();
    while let Some(start) = text.find("[EID:") {
        let end = text[start..].find(']').map_or(text.len(), |end| start + end + 1);
        text.replace_range(start..end, "");
    }
    let text = text.trim();
    match text.char_indices().nth(MESSAGE_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
