//! The tables against each other and against the rules of the documentation.

use super::*;

#[test]
fn each_size_follows_its_topology_and_name() {
    assert_eq!(accelerators().len(), 136);
    for accelerator in accelerators() {
        let product: u32 = accelerator.topology.split('x').map(|side| side.parse::<u32>().unwrap()).product();
        assert_eq!(accelerator.chips, product, "{}", accelerator.name);
        assert_eq!(accelerator.chips, accelerator.workers * accelerator.chips_per_worker, "{}", accelerator.name);
        let (family, size) = accelerator.name.rsplit_once('-').unwrap();
        assert_eq!(accelerator.family, family);
        let size: u32 = size.parse().unwrap();
        let per_chip = if matches!(family, "v5litepod" | "v6e") { 1 } else { 2 };
        assert_eq!(size, accelerator.chips * per_chip, "{}", accelerator.name);
    }
}

#[test]
fn every_accelerator_is_offered_somewhere_and_every_offer_is_sorted() {
    for accelerator in accelerators() {
        assert!(!zones_offering(&accelerator.name).is_empty(), "{}", accelerator.name);
        assert!(runtime_fits(&accelerator.name, default_runtime(&accelerator.name)), "{}", accelerator.name);
    }
    assert!(OFFERS.is_sorted_by_key(|(zone, family, _)| (*zone, *family)));
    assert!(PRICES.is_sorted_by_key(|(region, family, ..)| (*region, *family)));
    assert_eq!(families(), ["v2", "v3", "v4", "v5litepod", "v5p", "v6e"]);
}

#[test]
fn zones_follow_the_sizes() {
    assert_eq!(zones_offering("v4-32"), ["us-central2-b"]);
    assert_eq!(zones_offering("v3-8"), ["europe-west4-a", "us-central1-a", "us-central1-b"]);
    assert_eq!(zones_offering("v3-32"), ["europe-west4-a", "us-east1-d"]);
    assert!(!is_offered("v6e-1", "us-central2-b"));
    assert!(zones_offering("v9-8").is_empty());
    assert_eq!(region_of("us-south1-ai1b"), "us-south1");
    assert!(accelerators_in("us-central2-b").iter().all(|accelerator| accelerator.family == "v4"));
}

#[test]
fn prices_know_spot_and_pods() {
    assert_eq!(price_per_chip_hour("v5litepod", "us-west4", true), Some(0.48));
    assert_eq!(price_per_chip_hour("v5litepod", "us-west4", false), Some(1.20));
    assert_eq!(price_per_chip_hour("v6e", "southamerica-west1", true), None);
    assert_eq!(price_in_zone("v2-8", "us-central1-b", false), Some(1.125));
    assert_eq!(price_in_zone("v2-32", "us-central1-a", false), Some(1.50));
    assert_eq!(price_in_zone("v2-32", "us-central1-b", false), None);
    assert_eq!(price_in_zone("v6e-8", "europe-west4-a", true), Some(1.037));
}

#[test]
fn a_wrong_runtime_is_told_from_a_right_one() {
    assert!(runtime_fits("v5litepod-16", "v2-alpha-tpuv5-lite"));
    assert!(!runtime_fits("v5litepod-16", "v2-alpha-tpuv5"));
    assert!(!runtime_fits("v6e-8", "tpu-ubuntu2204-base"));
    assert!(runtime_fits("v4-8", "tpu-vm-tf-2.17.0-pjrt"));
    assert!(!runtime_fits("v4-16", "tpu-vm-tf-2.17.0-pjrt"));
    assert!(runtime_fits("v4-16", "tpu-vm-tf-2.17.0-pod-pjrt"));
    assert!(!runtime_exists("tpu-vm-tf-2.17"));
    assert!(!runtime_fits("v4-8", "debian-12"));
    assert!(runtime_versions().iter().all(|version| runtime_exists(version)));
}

#[test]
fn suggestions_mean_what_the_person_meant() {
    assert_eq!(nearest("v5e-16"), ["v5litepod-16"]);
    assert_eq!(nearest("V6E-8"), ["v6e-8"]);
    assert_eq!(nearest("v6e-12"), ["v6e-8", "v6e-16"]);
    assert_eq!(nearest("v5litpod-16"), ["v5litepod-16"]);
    assert!(nearest("a100").is_empty());
    assert!(!queueing_supported("v5litepod-1"));
    assert!(queueing_supported("v6e-1"));
}
