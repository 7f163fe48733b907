//! The planted faults of the simulation fit the code as it stands: a patch that nobody builds would rot in silence.

use std::process::Command;

use crate::tree::{root, text};

const PATCH: &str = "tests/sim/planted/faults.patch";

#[test]
fn the_planted_faults_can_be_planted() {
    let out = Command::new("git").args(["apply", "--check", PATCH]).current_dir(root()).output().unwrap();
    let why = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{PATCH} must follow the code that it changes (tests/sim/README.md):\n{why}");
}

#[test]
fn each_fault_of_the_list_is_in_the_patch() {
    let (patch, list) = (text(PATCH).unwrap(), text("tests/sim/planted/list.tsv").unwrap());
    let numbers: Vec<&str> = list.lines().filter_map(|line| line.split('\t').next()).collect();
    assert!(numbers.len() >= 20, "{} faults", numbers.len());
    for number in numbers {
        assert!(patch.contains(&format!("planted({number})")), "fault {number} is in the list and not in the patch");
    }
}
