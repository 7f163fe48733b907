//! For whom Eventarc's tokens are: it makes a subscription of its own for each trigger, and chooses their audience itself.

use rekindle_gcp::oidc::audience;
use serde_json::Value;

use super::super::Place;
use super::{APPLY, Judged, bad, good, list, short, text};

/// `events` takes the audience of each of Eventarc's subscriptions, which are told by name; else every event is answered 401.
pub(in super::super) fn audiences(answer: &Value, place: &Place<'_>, taken: &[String]) -> Judged {
    let is_ours = |name: &str| name.starts_with("eventarc-") && name.contains("-rekindle-");
    let ours = list(answer).iter().filter(|subscription| is_ours(short(text(subscription, "/name"))));
    let mut told = Vec::new();
    for subscription in ours {
        let name = short(text(subscription, "/name"));
        let endpoint = text(subscription, "/pushConfig/pushEndpoint");
        // Without one Pub/Sub takes the address to which it pushes.
        let audience = match text(subscription, "/pushConfig/oidcToken/audience") {
            "" => endpoint,
            audience => audience,
        };
        if taken.iter().any(|one| audience::takes(one, audience)) {
            told.push(audience);
            continue;
        }
        let Some(own) = taken.first() else {
            return bad("rekindle-events takes no audience at all: every push is answered 401", APPLY);
        };
        let found = format!("{name} has tokens for {audience}, and rekindle-events takes {}: 401", taken.join(", "));
        let account = text(subscription, "/pushConfig/oidcToken/serviceAccountEmail");
        let command = format!(
            "gcloud pubsub subscriptions modify-push-config {name} --project={} --push-endpoint='{endpoint}' \
             --push-auth-service-account={account} --push-auth-token-audience={own}",
            place.project
        );
        return bad(found, format!("`{command}`"));
    }
    told.sort_unstable();
    told.dedup();
    if told.is_empty() {
        good("Eventarc has no subscription here")
    } else {
        good(format!("Eventarc's: {}", told.join(", ")))
    }
}
