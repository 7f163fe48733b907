//! What the command line remembers between two commands: below `$XDG_STATE_HOME`, else `~/.local/state`.

use std::ffi::OsString;
use std::path::PathBuf;

/// Our folder there. `None` without a home folder.
pub(crate) fn folder(get: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let given = |name: &str| get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = given("XDG_STATE_HOME").or_else(|| given("HOME").map(|home| home.join(".local/state")))?;
    Some(base.join("rekindle"))
}
