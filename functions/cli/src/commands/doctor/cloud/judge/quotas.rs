//! Quotas of TPUs against the capacity list, and the limit of creates against the rate at which Rekindle asks.

use std::collections::BTreeSet;

use rekindle_core::catalog;
use rekindle_core::settings::Settings;
use serde_json::Value;

use super::{Bought, Judged, Place, bad, good, list, text, warning};

/// The metric of creates a minute. Ids of quotas are not written down anywhere; this name stands in the API's own refusals.
const CREATES: &str = "tpu.googleapis.com/qps/create";

/// Some quota of TPUs is not zero, none of those that the capacity list needs is, and creates are allowed as often as Rekindle asks.
pub(in super::super) fn quotas(answer: &Value, place: &Place<'_>, capacity: &[Bought]) -> Judged {
    let infos = list(answer);
    let of_chips = |info: &&Value| text(info, "/quotaId").starts_with("TPU");
    let some = infos.iter().filter(of_chips).filter(|info| most(info, |_| true) > Some(0.0)).count();
    let ask = format!(
        "`gcloud beta quotas preferences create --service=tpu.googleapis.com --project={} --quota-id=ID \
         --preferred-value=CHIPS --dimensions=region=REGION` asks for some; see infra/runbooks/quota.md",
        place.project
    );
    if some == 0 {
        return bad("no quota of TPUs: every create will be refused", ask);
    }
    let lacking: BTreeSet<String> = capacity.iter().flat_map(|entry| lacking(infos, entry)).collect();
    if !lacking.is_empty() {
        let lacking: Vec<String> = lacking.into_iter().collect();
        return warning(format!("no quota, or none that is told, of {}", lacking.join(", ")), ask);
    }
    let look = format!("`gcloud beta quotas info list --service=tpu.googleapis.com --project={}` lists", place.project);
    let wanted = Settings::default().creates_per_minute;
    match infos.iter().find(|info| text(info, "/metric") == CREATES).and_then(|info| most(info, |_| true)) {
        None => warning(
            format!("the limit of creates ({CREATES}) is not told; Rekindle asks up to {wanted} times a minute"),
            format!("{look} what limits there are"),
        ),
        Some(allowed) if allowed < f64::from(wanted) => warning(
            format!(
                "{allowed} creates a minute are allowed, and Rekindle asks up to {wanted} times: some will be refused and come later"
            ),
            format!("{look} the id of the limit; {ask}"),
        ),
        Some(allowed) if allowed.is_infinite() => good(format!("{}, creates without limit", told(some))),
        Some(allowed) => good(format!("{}, {allowed} creates a minute", told(some))),
    }
}

fn told(count: usize) -> String {
    format!("{} of TPUs", crate::human::count(count as u64, "quota"))
}

/// The greatest value where the quota holds for such dimensions; `None`: it is told for none.
fn most(info: &Value, is_meant: impl Fn(&Value) -> bool) -> Option<f64> {
    let dimensions = info.pointer("/dimensionsInfos").map_or(&[][..], list);
    let values = dimensions.iter().filter(|d| is_meant(d)).map(|d| {
        let value = text(d, "/details/value").parse::<f64>().unwrap_or_default();
        // -1 is "without limit".
        if value < 0.0 { f64::INFINITY } else { value }
    });
    values.reduce(f64::max)
}

/// What of an entry's types has no quota in its place: family, kind, place.
fn lacking(infos: &[Value], entry: &Bought) -> Vec<String> {
    // What a reservation holds is no quota's.
    if entry.kind == "reserved" {
        return Vec::new();
    }
    let is_preemptible = ["spot", "preemptible"].contains(&entry.kind.as_str());
    // Of an entry for all types nobody knows which are meant to be used.
    let is_meant = |family: &&str| entry.accelerator.split('-').next() == Some(family);
    let lacks = |family: &&str| {
        let of_family = infos.iter().filter(|info| {
            let id = text(info, "/quotaId");
            is_of(id, family) && id.contains("Preemptible") == is_preemptible
        });
        of_family.filter_map(|info| here(info, &entry.zone)).fold(0.0, f64::max) <= 0.0
    };
    let told = |family: &str| format!("{family} ({}) in {}", entry.kind, entry.zone);
    catalog::families().into_iter().filter(is_meant).filter(lacks).map(told).collect()
}

/// `TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI` is of `v5litepod`: after `TPU` the generation, then what it is for.
fn is_of(id: &str, family: &str) -> bool {
    let Some(rest) = id.strip_prefix("TPU").map(str::to_ascii_uppercase) else { return false };
    match family {
        "v5litepod" => rest.starts_with("V5") && rest.contains("LITE"),
        "v5p" => rest.starts_with("V5P") && !rest.starts_with("V5PREEMPTIBLE") && !rest.contains("LITE"),
        other => rest.starts_with(&other.to_ascii_uppercase()),
    }
}

/// The value in a zone: its own or its region's, else what is told for all that have none of their own.
fn here(info: &Value, zone: &str) -> Option<f64> {
    let place = |dimensions: &Value| {
        let names = ["/dimensions/zone", "/dimensions/region"];
        names.iter().map(|name| text(dimensions, name).to_owned()).find(|place| !place.is_empty())
    };
    let is_here = |place: &str| zone == "*" || place == zone || place == catalog::region_of(zone);
    most(info, |d| place(d).is_some_and(|place| is_here(&place))).or_else(|| most(info, |d| place(d).is_none()))
}
