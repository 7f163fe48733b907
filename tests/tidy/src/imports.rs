//! The import law, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::tree::root;

struct Package {
    folder: String,
    dependencies: BTreeSet<String>,
    dev_dependencies: BTreeSet<String>,
}

fn packages() -> BTreeMap<String, Package> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).unwrap();
    let base = root();
    let mut all = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let manifest = std::path::Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap().strip_prefix(&base).unwrap().display().to_string();
        let of = |dev: bool| {
            let list = package["dependencies"].as_array().unwrap().iter();
            list.filter(|d| (d["kind"] == "dev") == dev).map(|d| d["name"].as_str().unwrap().to_owned()).collect()
        };
        let (dependencies, dev_dependencies) = (of(false), of(true));
        all.insert(package["name"].as_str().unwrap().to_owned(), Package { folder, dependencies, dev_dependencies });
    }
    all
}

#[test]
fn the_import_law_holds() {
    let all = packages();
    let mut faults = Vec::new();
    for (name, package) in &all {
        let inner: Vec<&String> = package.dependencies.iter().filter(|d| all.contains_key(*d)).collect();
        for dependency in &inner {
            let target = &all[*dependency].folder;
            let allowed = match package.folder.as_str() {
                "shared/core" => false,
                "shared/ports" => target == "shared/core",
                "shared/engine" => target == "shared/core" || target == "shared/ports",
                "functions/server" | "functions/cli" => !target.starts_with("tests/"),
                folder if folder.starts_with("functions/") => target.starts_with("shared/"),
                folder if folder.starts_with("shared/") => target.starts_with("shared/"),
                _ => true,
            };
            if !allowed {
                faults.push(format!("{name} ({}) must not depend on {dependency}", package.folder));
            }
        }
        let in_tests = package.folder.starts_with("tests/");
        for dependency in package.dependencies.iter().chain(&package.dev_dependencies) {
            let google =
                dependency.starts_with("google-cloud-") || dependency == "firestore" || dependency == "gcloud-sdk";
            let is_dev = package.dev_dependencies.contains(dependency) && !package.dependencies.contains(dependency);
            if google && package.folder != "shared/gcp" && !in_tests && !is_dev {
                faults.push(format!("{name}: only shared/gcp knows Google types, not {dependency}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_dependency_is_in_the_one_table() {
    let mut faults = Vec::new();
    for (name, package) in packages() {
        let manifest = std::fs::read_to_string(root().join(&package.folder).join("Cargo.toml")).unwrap();
        let mut in_table = false;
        for line in manifest.lines() {
            if line.starts_with('[') {
                in_table = line.contains("dependencies");
            } else if in_table
                && line.contains('=')
                && !line.contains("workspace = true")
                && package.folder != "tests/tidy"
            {
                faults.push(format!("{name}: {line}"));
            }
        }
    }
    assert!(faults.is_empty(), "take these from the workspace's table:\n{}", faults.join("\n"));
}
