//! Who holds the custom roles of the services in the project.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{APPLY, Judged, Place, bad, good, list, text, warning};

/// Each role that is given for the whole project or its database, what it is for, and who must hold it.
const HOLDERS: [(&str, &str, &[&str]); 2] =
    [("rekindleTpu", "TPUs", &["reconcile"]), ("rekindleDocuments", "documents", &["api", "events", "reconcile"])];

/// Only `reconcile` may touch TPUs, and only the services read and write documents.
pub(in super::super) fn roles(answer: &Value, place: &Place<'_>) -> Judged {
    let mut lacking = Vec::new();
    let mut others = Vec::new();
    for (role, what, services) in HOLDERS {
        let wanted: BTreeSet<String> = services.iter().map(|service| account(service, place)).collect();
        let holders = holders(answer, role);
        lacking.extend(services.iter().filter(|s| !holders.contains(account(s, place).as_str())).map(|s| (*s, what)));
        others
            .extend(holders.into_iter().filter(|holder| !wanted.contains(*holder)).map(|holder| (holder, role, what)));
    }
    if !lacking.is_empty() {
        let told: Vec<String> =
            lacking.iter().map(|(service, what)| format!("rekindle-{service} has no rights on {what}")).collect();
        return bad(told.join("; "), APPLY);
    }
    let Some((other, role, _)) = others.first() else {
        return good(
            "rekindle-reconcile alone holds the rights on TPUs, and the three services alone those on documents",
        );
    };
    let told: Vec<String> =
        others.iter().map(|(holder, _, what)| format!("{holder} holds rights on {what} too")).collect();
    let role = format!("projects/{}/roles/{role}", place.project);
    let command = format!("gcloud projects remove-iam-policy-binding {} --role={role}", place.project);
    warning(told.join("; "), format!("`{command} --member={other} --all`"))
}

fn account(service: &str, place: &Place<'_>) -> String {
    format!("serviceAccount:rekindle-{service}@{}.iam.gserviceaccount.com", place.project)
}

/// With or without a condition.
fn holders<'a>(answer: &'a Value, role: &str) -> BTreeSet<&'a str> {
    let bindings = answer.pointer("/bindings").map_or(&[][..], list).iter();
    let of_role = bindings.filter(|binding| text(binding, "/role").rsplit('/').next() == Some(role));
    of_role.flat_map(|binding| binding.pointer("/members").map_or(&[][..], list)).filter_map(Value::as_str).collect()
}
