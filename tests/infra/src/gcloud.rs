//! What gcloud takes, by gcloud's own word.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// gcloud's own tree of commands and flags, as its completion uses it. `None`: there is no gcloud.
pub fn tree() -> Option<Value> {
    let info = Command::new("gcloud").args(["info", "--format=value(installation.sdk_root)"]).output().ok()?;
    let home = String::from_utf8(info.stdout).ok()?;
    let program = "import sys, json; sys.path.insert(0, sys.argv[1]); import gcloud_completions as g; json.dump(g.STATIC_COMPLETION_CLI_TREE, sys.stdout)";
    let folder = format!("{}/data/cli", home.trim());
    let out = Command::new("python3").args(["-B", "-c", program, &folder]).output().ok()?;
    serde_json::from_slice(&out.stdout).ok()
}

/// Whether a command line that begins with `gcloud` is a whole command of the tree, with flags that it has.
///
/// # Errors
/// The word or flag that gcloud does not know.
pub fn check(tree: &Value, words: &[String]) -> Result<(), String> {
    let mut node = tree;
    let mut flags: BTreeSet<&str> = BTreeSet::from(["--project", "--quiet", "--format", "--filter", "--limit"]);
    for word in &words[1..] {
        flags.extend(node["flags"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()));
        if let Some(flag) = word.split('=').next().filter(|f| f.starts_with("--")) {
            let positive = flag.replacen("--no-", "--", 1);
            if !flags.contains(flag) && !flags.contains(positive.as_str()) {
                return Err(format!("no flag {flag}"));
            }
        } else if let Some(next) = node["commands"].get(word) {
            node = next;
        } else if node["commands"].as_object().is_some_and(|c| !c.is_empty()) {
            return Err(format!("no command {word}"));
        }
    }
    if node["commands"].as_object().is_some_and(|c| !c.is_empty()) { Err("is no whole command".into()) } else { Ok(()) }
}
