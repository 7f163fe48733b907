//! Where an accelerator can be had: zones that offer it, the capacity list, the regions of the checkpoints.

use super::*;

#[test]
fn an_accelerator_is_offered_in_the_zones_given() {
    let value = with(&["tpu", "zones"], json!(["us-central2-b"]));
    refuses(&value, "tpu.accelerator", "name one of these in `zones`, or leave `zones` out");
}

#[test]
fn nothing_outside_the_capacity_list_is_taken() {
    let mut deployment = deployment(vec![
        entry("v5litepod-*", "us-west4-a", CapacityKind::Spot),
        CapacityEntry { max_chips: Some(32), ..entry("v6e-16", "us-east5-b", CapacityKind::OnDemand) },
    ]);
    assert!(parse_in(&deployment, &small()).is_ok());
    let says = |value: &Value, deployment: &Deployment, words: &str| {
        let (field, message) = fault(deployment, value);
        assert_eq!(field, "tpu.accelerator");
        assert!(message.contains(words), "{message}");
    };
    says(&with(&["tpu", "accelerator"], json!("v4-8")), &deployment, "which has v5litepod-*, v6e-16");
    says(&with(&["tpu", "accelerator"], json!("v6e-16")), &deployment, "it has it as on_demand (tpu.capacity)");
    says(&with(&["tpu", "zones"], json!(["us-central1-a"])), &deployment, "it has it in us-west4-a");
    // Nobody is sent to a zone that is refused then.
    let far = Deployment { bucket_regions: vec!["us-central1".into()], ..deployment.clone() };
    says(&small(), &far, "it has it only in us-west4-a, outside the regions of the checkpoint bucket (us-central1)");
    let typo = super::deployment(vec![entry("v5litepod-*", "us-west4-z", CapacityKind::Spot)]);
    let told = "has v5litepod-16 only in us-west4-z, which does not offer it; it is offered in ";
    says(&with(&["tpu", "accelerator"], json!("v5litepod-16")), &typo, told);
    let three = json!({"accelerator": "v6e-16", "capacity": "on_demand", "slices": 3});
    says(&with(&["tpu"], three), &deployment, "48 chips, more than the capacity list allows at once");
    // A zone of which the list knows nothing is no fault while another is left, and is never used.
    let both = with(&["tpu", "zones"], json!(["us-central1-a", "us-west4-a"]));
    let spec = parse_in(&deployment, &both).unwrap().spec;
    let zones: Vec<String> =
        placement::candidates(&spec, &deployment).into_iter().map(|candidate| candidate.placement.zone).collect();
    assert_eq!(zones, ["us-west4-a"]);
    deployment.capacity.clear();
    says(&small(), &deployment, "which has nothing");
}

#[test]
fn zones_lie_in_the_regions_of_the_checkpoints() {
    let mut deployment = open_deployment();
    deployment.bucket_regions = vec!["us-central1".into()];
    assert!(parse_in(&deployment, &small()).is_ok());
    let value = with(&["tpu", "zones"], json!(["us-central1-a", "us-west4-a"]));
    let (field, message) = fault(&deployment, &value);
    assert_eq!(field, "tpu.zones[1]");
    assert!(message.contains("outside the regions of the checkpoint bucket (us-central1)"), "{message}");
    let (field, message) = fault(&deployment, &with(&["tpu", "accelerator"], json!("v4-8")));
    assert_eq!(field, "tpu.accelerator");
    assert!(message.contains("it is offered in us-central2-b"), "{message}");
    let mut anywhere = with(&["tpu", "accelerator"], json!("v4-8"));
    anywhere["regions"] = json!("any");
    let spec = parse_in(&deployment, &anywhere).unwrap().spec;
    assert_eq!(placement::candidates(&spec, &deployment)[0].placement.zone, "us-central2-b");
    anywhere["checkpoint"] = json!({"us-central1": "gs://central"});
    assert_eq!(fault(&deployment, &anywhere).0, "regions");
    // Another bucket's regions are not known; a map says its own.
    let mut value = with(&["checkpoint"], json!("gs://other/x"));
    value["tpu"]["zones"] = json!(["us-west4-a"]);
    assert!(parse_in(&deployment, &value).is_ok());
    value["checkpoint"] = json!("gs://rekindle-demo/x");
    assert_eq!(fault(&deployment, &value).0, "tpu.zones[0]");
    value["checkpoint"] = json!({"us-west4": "gs://west", "us-central1": "gs://central"});
    assert!(parse_in(&deployment, &value).is_ok());
    value["checkpoint"] = json!({"us-west1": "gs://west"});
    assert_eq!(fault(&deployment, &value).0, "tpu.zones[0]");
    value["checkpoint"] = json!({"us-west4-a": "gs://west", "us-west4": "gs://west"});
    assert_eq!(
        fault(&deployment, &value),
        ("checkpoint.us-west4-a".into(), { "is no region with TPUs; did you mean `us-west4`?".into() })
    );
    deployment.bucket_regions = vec!["US".into()];
    assert!(parse_in(&deployment, &with(&["tpu", "zones"], json!(["us-west4-a"]))).is_ok());
}
