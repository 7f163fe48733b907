//! The section `secrets` of a job spec: variables whose values the workers read for themselves.

use std::collections::BTreeMap;

use super::JobSpec;
use super::parse::{faulty_name, object_of};
use super::reader::{Faults, Object, quote};
use crate::access::Borrow;
use crate::settings::Deployment;

/// Most secrets of a job; each worker makes a call for each of them in each attempt.
const SECRETS_MAX: usize = 50;

/// The section `secrets`; a variable is in `env` or here.
pub(super) fn read(top: &Object<'_>, env: &BTreeMap<String, String>, faults: &mut Faults) -> BTreeMap<String, String> {
    let mut secrets = BTreeMap::new();
    let Some(map) = object_of(top, "secrets", "names and versions of secrets", faults) else { return secrets };
    if map.len() > SECRETS_MAX {
        faults.add("secrets", format!("has more than {SECRETS_MAX} secrets; put several values into one"));
    }
    for (name, value) in map {
        let path = format!("secrets.{name}");
        if let Some(fault) = faulty_name(name) {
            faults.add(path, fault);
        } else if env.contains_key(name) {
            faults.add(path, "is set in `env` too; leave it out in one of them");
        } else if let Some(version) = value.as_str().filter(|version| is_version(version)) {
            secrets.insert(name.clone(), version.to_owned());
        } else {
            faults.add(path, "must name a version in Secret Manager: projects/PROJECT/secrets/NAME/versions/latest");
        }
    }
    secrets
}

/// What the job would read must be lent to its owner.
pub(super) fn borrowed(spec: &JobSpec, deployment: &Deployment, lent: &Borrow, faults: &mut Faults) {
    for (name, version) in spec.secrets.iter().filter(|(_, version)| !lent.lends_secret(version)) {
        let path = format!("secrets.{name}");
        if deployment.is_local() {
            // Its policy lends everything that there is.
            faults.add(
                path,
                format!("the local mode has no Secret Manager; give the value in `env`, as `--env {name}` does"),
            );
            continue;
        }
        let told = format!("{} is not lent to {}; leave it out, or ask an admin", quote(version), quote(&spec.owner));
        faults.add(path, told);
    }
}

/// Whether a text is `projects/P/secrets/NAME/versions/V`. It becomes the path of an address, so nothing else may be in it.
fn is_version(text: &str) -> bool {
    let is_name = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':' | b'.');
        (1..=255).contains(&part.len()) && part.bytes().all(is_plain) && !part.bytes().all(|byte| byte == b'.')
    };
    let parts: Vec<&str> = text.split('/').collect();
    match parts.as_slice() {
        ["projects", project, "secrets", secret, "versions", version] => {
            [project, secret, version].into_iter().all(|part| is_name(part))
        }
        _ => false,
    }
}
