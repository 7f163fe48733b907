//! Who may call which service, as its own policy says.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::Place;
use super::{APPLY, Judged, bad, good, list, text};

/// Every edge, as it is deployed.
const EDGES: &str = include_str!("../../../../../../../infra/iam-edges.csv");
const ROLE: &str = "roles/run.invoker";

/// Rekindle's own accounts that call a service.
pub(super) fn wanted(service: &str) -> Vec<&'static str> {
    let of = |line: &'static str| {
        let mut parts = line.split(',');
        let (who, role, on) = (parts.next()?, parts.next()?, parts.next()?);
        let is_own = who.starts_with("rekindle-") && role == ROLE && on == format!("service {service}");
        is_own.then_some(who)
    };
    EDGES.lines().filter_map(of).collect()
}

/// Those that must call a service may, and it is not open to everybody.
pub(in super::super) fn invokers(answer: &Value, place: &Place<'_>, service: &str) -> Judged {
    let bindings = answer.pointer("/bindings").map_or(&[][..], list);
    let members: BTreeSet<&str> = bindings
        .iter()
        .filter(|binding| text(binding, "/role") == ROLE)
        .flat_map(|binding| binding.pointer("/members").map_or(&[][..], list))
        .filter_map(Value::as_str)
        .collect();
    if let Some(all) = members.iter().find(|member| ["allUsers", "allAuthenticatedUsers"].contains(member)) {
        let at = format!("{service} --project={} --region={}", place.project, place.region);
        let command = format!("gcloud run services remove-iam-policy-binding {at} --role={ROLE} --member={all}");
        return bad(format!("{service} is open to {all}"), format!("`{command}`"));
    }
    let member = |who: &&str| format!("serviceAccount:{who}@{}.iam.gserviceaccount.com", place.project);
    let wanted = wanted(service);
    let lacking: Vec<&str> = wanted.iter().copied().filter(|who| !members.contains(member(who).as_str())).collect();
    if lacking.is_empty() {
        return good(format!("{service}: {}", wanted.join(", ")));
    }
    bad(format!("{service} may not be called by {}", lacking.join(", ")), APPLY)
}
