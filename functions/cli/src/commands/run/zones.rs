//! A TPU that a preset asks for, and the zones of the job it goes into.

use std::cmp::Reverse;

use rekindle_core::catalog;
use serde_json::{Map, Value};

use crate::fault::Fault;

/// A preset names an accelerator, and the zones of the file offer it nowhere. What is not known here the server decides.
pub(super) fn elsewhere(job: &Map<String, Value>, preset: &str) -> Option<Fault> {
    let tpu = job.get("tpu")?;
    let zones = tpu.get("zones")?.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
    let accelerator = tpu.get("accelerator")?;
    let accelerators = match accelerator.as_array() {
        Some(all) => all.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?,
        None => vec![accelerator.as_str()?],
    };
    let offers = |zone: &str| accelerators.iter().any(|accelerator| catalog::is_offered(accelerator, zone));
    let is_known = |zone: &&str| !catalog::accelerators_in(zone).is_empty();
    if zones.is_empty() || !zones.iter().all(is_known) || zones.iter().any(|zone| offers(zone)) {
        return None;
    }
    let offering = accelerators.iter().flat_map(|accelerator| catalog::zones_offering(accelerator));
    let near = most_alike(&zones, offering)?;
    let (accelerators, zones) = (accelerators.join(", "), zones.join(", "));
    let fault = Fault::input(format!(
        "the preset {preset} asks for {accelerators}, which `tpu.zones` of the job do not offer: {zones}"
    ));
    Some(fault.next(format!(
        "name a zone that does, as --zone {near} (`rekindle catalog` lists them), or leave `zones` out: then every allowed zone that \
         has it is tried"
    )))
}

/// The zone whose name begins most like one of `given`: it is near the bucket of the job, which `given` was chosen by.
fn most_alike<'a>(given: &[&str], zones: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let alike = |one: &str, other: &str| one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    zones.min_by_key(|zone| Reverse(given.iter().map(|given| alike(given, zone)).max()))
}

#[cfg(test)]
mod tests {
    use super::super::message::message;
    use super::*;
    use crate::args::Run;
    use crate::project::Project;

    #[test]
    fn what_set_asks_for_is_no_wish_of_the_preset() {
        let folder = tempfile::tempdir().unwrap();
        let project = Project::load(folder.path(), Some(&folder.path().join("none.toml"))).unwrap();
        let made = |set: &[&str]| {
            let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
            let options = Run {
                preset: words(&["spot-v6e"]),
                zone: words(&["us-central1-a"]),
                set: words(set),
                command: words(&["a"]),
                ..Run::default()
            };
            message(&options, &project)
        };
        let text = made(&["priority=60"]).unwrap_err().text();
        assert!(text.contains("the preset spot-v6e asks for v6e-8"), "{text}");
        assert_eq!(made(&["tpu.accelerator=v4-8"]).unwrap()["tpu"]["accelerator"], "v4-8");
        assert!(made(&["tpu={accelerator: v4-8, zones: [us-central1-a]}"]).is_ok());
    }

    #[test]
    fn the_zone_most_alike_is_named_and_of_those_the_first() {
        let zones = ["asia-northeast1-b", "us-central1-b", "us-central1-c", "us-east5-a"];
        let near = |given: &[&str]| most_alike(given, zones.into_iter());
        assert_eq!(near(&["us-central1-a"]), Some("us-central1-b"));
        assert_eq!(near(&["us-east1-d"]), Some("us-east5-a"));
        assert_eq!(near(&["europe-west4-b", "asia-east1-c"]), Some("asia-northeast1-b"));
        assert_eq!(most_alike(&["us-central1-a"], std::iter::empty()), None);
    }
}
