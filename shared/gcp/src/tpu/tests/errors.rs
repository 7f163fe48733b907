//! One row for each error that is known of the API, wherever it appears.

use rekindle_core::job::Via;
use rekindle_core::observation::{CreateErrorKind, SliceState};
use rekindle_ports::tpu::{TpuApi, TpuError};
use serde_json::{Value, json};

use super::{Fake, ZONE, create_request, node_path, queued_path, sample, slice};

fn nodes() -> String {
    format!("POST /v2/projects/demo-proj/locations/{ZONE}/nodes")
}

/// An answer of the API's form.
fn error_body(code: u16, status: &str, message: &str) -> Value {
    json!({ "error": { "code": code, "status": status, "message": message } })
}

#[tokio::test]
async fn refusals_of_a_create_in_samples() {
    let fake = Fake::default();
    let client = fake.client().await;
    for (file, kind) in [
        ("http-400-accelerator_not_in_zone", CreateErrorKind::NotOffered),
        ("http-400-zone_unsupported", CreateErrorKind::NotOffered),
        ("http-400-failed_precondition-start_preempted", CreateErrorKind::Other),
        ("http-403-iam", CreateErrorKind::Forbidden),
        ("http-403-scopes", CreateErrorKind::Forbidden),
        ("http-429-quota", CreateErrorKind::Quota),
        ("http-429-rate", CreateErrorKind::RateLimit),
    ] {
        fake.on_sample(&nodes(), file);
        let answer = client.create(&create_request()).await;
        let Err(TpuError::Refused(error)) = answer else { panic!("{file}: {answer:?}") };
        assert_eq!(error.kind, kind, "{file}");
        assert!(!error.message.is_empty() && !error.message.contains("EID"), "{file}: {}", error.message);
    }
}

#[tokio::test]
async fn refusals_of_a_create_in_the_words_that_users_reported() {
    use CreateErrorKind::{AddressQuota, Forbidden, NotOffered, NotQueueable, Other, Quota, Reservation, Stockout};
    let rows = [
        (404, "NOT_FOUND", "Reservation not found", Reservation),
        (
            400,
            "FAILED_PRECONDITION",
            "Insufficient reserved capacity. Contact customer support to increase your reservation.",
            Reservation,
        ),
        (400, "INVALID_ARGUMENT", "Queueing is not supported for accelerator type v5litepod-1", NotQueueable),
        (
            400,
            "INVALID_ARGUMENT",
            "CloudTpu received an invalid AcceleratorType, \"v3-8\" for zone z. Valid values are v2-8",
            NotOffered,
        ),
        (
            400,
            "INVALID_ARGUMENT",
            "Cloud TPU received an invalid argument. The field \"TensorflowVersion\" cannot be \"2.4\".",
            NotOffered,
        ),
        (400, "FAILED_PRECONDITION", "something is not there yet", Other),
        (403, "PERMISSION_DENIED", "Permission denied on 'locations/us-central2-b' (or it may not exist).", Forbidden),
        (404, "NOT_FOUND", "Location us-central2-b is not found or access is unauthorized.", Forbidden),
        (
            429,
            "RESOURCE_EXHAUSTED",
            "Quota 'TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI' exhausted. Limit 20800 in region us-central2",
            Quota,
        ),
        (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted", Quota),
        (429, "RESOURCE_EXHAUSTED", "You have reached IN_USE_ADDRESSES limit.", AddressQuota),
        (429, "RESOURCE_EXHAUSTED", "There is no more capacity in the zone \"us-east5-a\"", Stockout),
    ];
    let fake = Fake::default();
    let client = fake.client().await;
    for (code, status, message, kind) in rows {
        fake.on(&nodes(), code, &error_body(code, status, message));
        let answer = client.create(&create_request()).await;
        let Err(TpuError::Refused(error)) = answer else { panic!("{message}: {answer:?}") };
        assert_eq!((error.kind, error.message.as_str()), (kind, message));
    }
}

#[tokio::test]
async fn the_older_form_of_quota_errors() {
    let fake = Fake::default();
    let client = fake.client().await;
    for (reason, kind) in [
        ("quotaExceeded", CreateErrorKind::Quota),
        ("rateLimitExceeded", CreateErrorKind::RateLimit),
        ("accessNotConfigured", CreateErrorKind::Forbidden),
    ] {
        let mut body = error_body(403, "PERMISSION_DENIED", "not now");
        body["error"]["errors"] = json!([{ "reason": reason, "domain": "usageLimits", "message": "not now" }]);
        fake.on(&nodes(), 403, &body);
        let answer = client.create(&create_request()).await;
        let Err(TpuError::Refused(error)) = answer else { panic!("{reason}: {answer:?}") };
        assert_eq!(error.kind, kind, "{reason}");
    }
}

#[tokio::test]
async fn creates_that_may_have_taken_effect_are_unclear() {
    let fake = Fake::default();
    let client = fake.client().await;
    let page = "<html>404. That's an error.</html>";
    for file in ["http-500-internal", "http-503-unavailable"] {
        fake.on_sample(&nodes(), file);
        let answer = client.create(&create_request()).await;
        assert!(matches!(answer, Err(TpuError::Unclear(_))), "{file}: {answer:?}");
    }
    for code in [403, 404, 408, 409, 429, 502] {
        fake.on_text(&nodes(), code, page, "text/html");
        let answer = client.create(&create_request()).await;
        let Err(TpuError::Unclear(why)) = answer else { panic!("a proxy's {code}: {answer:?}") };
        assert!(why.contains(&code.to_string()), "{why}");
    }
    fake.on_text(&nodes(), 200, page, "text/html");
    let answer = client.create(&create_request()).await;
    assert!(matches!(answer, Err(TpuError::Unclear(_))), "{answer:?}");
    fake.on(&nodes(), 409, &error_body(409, "ABORTED", "another operation is running"));
    assert!(matches!(client.create(&create_request()).await, Err(TpuError::Unclear(_))));
    let calls = fake.seen().len();
    assert_eq!(calls, 10, "nothing was tried again");
}

#[tokio::test]
async fn a_taken_name_and_a_bad_token_are_told_apart_from_refusals() {
    let fake = Fake::default();
    let client = fake.client().await;
    fake.on_sample(&nodes(), "http-409-node_exists");
    assert_eq!(client.create(&create_request()).await, Err(TpuError::Exists));
    fake.on(&nodes(), 401, &error_body(401, "UNAUTHENTICATED", "bad token"));
    assert_eq!(client.create(&create_request()).await, Err(TpuError::Unclear("bad token".into())));
}

#[tokio::test]
async fn errors_of_reads_and_deletes() {
    let rows = [
        (400, "FAILED_PRECONDITION", "in use", TpuError::State("in use".into()), TpuError::State("in use".into())),
        (400, "INVALID_ARGUMENT", "no", TpuError::Bad("no".into()), TpuError::State("no".into())),
        (401, "UNAUTHENTICATED", "no", TpuError::Denied("no".into()), TpuError::Denied("no".into())),
        (403, "PERMISSION_DENIED", "no", TpuError::Denied("no".into()), TpuError::Denied("no".into())),
        (404, "NOT_FOUND", "gone", TpuError::NotFound, TpuError::NotFound),
        (
            404,
            "NOT_FOUND",
            "is not found or access is unauthorized.",
            TpuError::Denied("is not found or access is unauthorized.".into()),
            TpuError::Denied("is not found or access is unauthorized.".into()),
        ),
        (409, "ABORTED", "busy", TpuError::State("busy".into()), TpuError::State("busy".into())),
        (412, "FAILED_PRECONDITION", "no", TpuError::Bad("no".into()), TpuError::Bad("no".into())),
        (429, "RESOURCE_EXHAUSTED", "slow", TpuError::Unclear("slow".into()), TpuError::Unclear("slow".into())),
        (500, "INTERNAL", "oh", TpuError::Unclear("oh".into()), TpuError::Unclear("oh".into())),
        (503, "UNAVAILABLE", "oh", TpuError::Unclear("oh".into()), TpuError::Unclear("oh".into())),
        (504, "DEADLINE_EXCEEDED", "oh", TpuError::Unclear("oh".into()), TpuError::Unclear("oh".into())),
    ];
    let fake = Fake::default();
    let client = fake.client().await;
    for (code, status, message, on_read, on_delete) in rows {
        for (via, path) in [(Via::Node, node_path("n1")), (Via::QueuedResource, queued_path("n1"))] {
            fake.on(&format!("GET {path}"), code, &error_body(code, status, message));
            fake.on(&format!("DELETE {path}"), code, &error_body(code, status, message));
            let read = client.get(&slice("n1", via)).await;
            let expected = if on_read == TpuError::NotFound { Ok(None) } else { Err(on_read.clone()) };
            assert_eq!(read, expected, "GET {code} {status}");
            assert_eq!(client.delete(&slice("n1", via)).await.as_ref(), Err(&on_delete), "DELETE {code} {status}");
        }
    }
}

#[tokio::test]
async fn a_proxys_not_found_is_not_a_proof_of_absence() {
    let fake = Fake::default();
    fake.on_text(&format!("GET {}", node_path("n1")), 404, "<html>not here</html>", "text/html");
    fake.on_text(&format!("GET {}", node_path("n2")), 404, "", "text/plain");
    let client = fake.client().await;
    for name in ["n1", "n2"] {
        let read = client.get(&slice(name, Via::Node)).await;
        assert!(matches!(read, Err(TpuError::Unclear(_))), "{name}: {read:?}");
    }
}

#[tokio::test]
async fn errors_of_operations() {
    let fake = Fake::default();
    let client = fake.client().await;
    let name = format!("projects/demo-proj/locations/{ZONE}/operations/op1");
    for (file, kind) in [
        ("op-error-stockout-code8", CreateErrorKind::Stockout),
        ("op-error-ip-quota-code8", CreateErrorKind::AddressQuota),
        ("op-error-quota-code8", CreateErrorKind::Quota),
        ("op-error-internal-code13", CreateErrorKind::HiddenStockout),
        ("op-error-cancelled-code1", CreateErrorKind::Cancelled),
    ] {
        fake.on(&format!("GET /v2/{name}"), 200, &sample(file));
        let view = client.operation(&name).await.unwrap().unwrap();
        assert!(view.done, "{file}");
        let error = view.error.unwrap();
        assert_eq!(error.kind, kind, "{file}");
        assert!(!error.message.contains("EID"), "{file}: {}", error.message);
    }
}

#[tokio::test]
async fn errors_of_operations_in_the_words_that_users_reported() {
    use CreateErrorKind::{
        Forbidden, HiddenStockout, NameTaken, NotOffered, Other, PreemptedWhileCreating, Quota, Reservation, Stockout,
    };
    let rows = [
        (8, "Insufficient capacity.", Stockout),
        (8, "something new about resources", Stockout),
        (8, "Quota 'TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI' exhausted. Limit 20800 in region x", Quota),
        (9, "Insufficient reserved capacity. Contact customer support to increase your reservation.", Reservation),
        (8, "Insufficient reserved capacity. Contact customer support to increase your reservation.", Reservation),
        (5, "Reservation not found", Reservation),
        (
            3,
            "Cloud TPU received a bad request. update is not supported while in state PREEMPTED [EID: 0x1]",
            PreemptedWhileCreating,
        ),
        (
            3,
            "FLEX_START provisioning model is not supported for accelerator type \"v6e-1\" in location \"z\"",
            NotOffered,
        ),
        (
            3,
            "an invalid argument. The 'CIDR Range' value \"10.2.0.0/29\" on network \"default\" conflicts with another",
            Other,
        ),
        (4, "request expired before it could be fulfilled", Stockout),
        (6, "exists", NameTaken),
        (7, "no", Forbidden),
        (14, "try again", HiddenStockout),
        (2, "?", Other),
    ];
    let fake = Fake::default();
    let client = fake.client().await;
    let name = format!("projects/demo-proj/locations/{ZONE}/operations/op1");
    for (code, message, kind) in rows {
        let body = json!({ "name": name, "done": true, "error": { "code": code, "message": message } });
        fake.on(&format!("GET /v2/{name}"), 200, &body);
        let error = client.operation(&name).await.unwrap().unwrap().error.unwrap();
        assert_eq!(error.kind, kind, "{code} {message}");
    }
}

#[tokio::test]
async fn the_error_of_a_queued_resource_that_failed() {
    let fake = Fake::default();
    let client = fake.client().await;
    let mut silent = sample("qr-failed-capacity");
    silent["state"]["failedData"] = json!({});
    for (body, kind) in [
        (sample("qr-failed-capacity"), CreateErrorKind::Stockout),
        (sample("qr-failed-validuntil"), CreateErrorKind::Stockout),
        (silent, CreateErrorKind::Other),
    ] {
        fake.on(&format!("GET {}", queued_path("qr-7f3a")), 200, &body);
        let view = client.get(&slice("qr-7f3a", Via::QueuedResource)).await.unwrap().unwrap();
        assert_eq!(view.state, SliceState::Failed);
        let error = view.error.unwrap();
        assert_eq!(error.kind, kind, "{}", error.message);
        assert!(!error.message.is_empty());
    }
}

#[tokio::test]
async fn a_page_that_some_proxy_sent_is_cut() {
    let fake = Fake::default();
    fake.on_text(&nodes(), 502, &"ä".repeat(5000), "text/html");
    let Err(TpuError::Unclear(why)) = fake.client().await.create(&create_request()).await else { panic!() };
    assert!(why.chars().count() <= 501 && why.ends_with('…'), "{} characters", why.chars().count());
}
