//! The section `source` of a job spec: which folder and commit the bundle was made of. For people alone.

use serde_json::Value;

use super::Source;
use super::reader::{Faults, Object};

pub(super) const FIELDS: &[&str] = &["folder", "commit", "branch", "dirty"];

/// Longest text of a field, in bytes: it is shown on one line.
const TEXT_MAX: usize = 256;

/// The section `source`.
pub(super) fn read(top: &Object<'_>, faults: &mut Faults) -> Option<Source> {
    let object = Object::open(top.get("source")?, "source", FIELDS, faults)?;
    let mut short = |field: &str| {
        let text = object.text(field, faults)?;
        if text.len() > TEXT_MAX || text.contains(char::is_control) {
            faults.add(object.at(field), format!("must be one line of at most {TEXT_MAX} bytes"));
        }
        Some(text)
    };
    let (folder, commit, branch) = (short("folder"), short("commit"), short("branch"));
    let dirty = match object.get("dirty") {
        None => false,
        Some(Value::Bool(dirty)) => *dirty,
        Some(_) => {
            faults.add(object.at("dirty"), "must be true or false");
            false
        }
    };
    Some(Source { folder: folder.unwrap_or_default(), commit, branch, dirty })
}
