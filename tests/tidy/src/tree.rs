//! The files under version control, and the map of folders in the README.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every file under version control (or new and not ignored), relative to the root.
pub(crate) fn files() -> Vec<String> {
    let out = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "git ls-files failed");
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().filter(|f| root().join(f).is_file()).map(str::to_owned).collect()
}

/// True if the file's extension is one of these.
pub(crate) fn is_kind(file: &str, extensions: &[&str]) -> bool {
    Path::new(file).extension().is_some_and(|e| extensions.iter().any(|known| e == *known))
}

/// The text of a file; `None` if it is not text.
pub(crate) fn text(file: &str) -> Option<String> {
    std::fs::read(root().join(file)).ok().and_then(|bytes| String::from_utf8(bytes).ok())
}

#[test]
fn the_programs_of_the_readme_are_the_files() {
    let readme = text("README.md").unwrap();
    let programs: Vec<String> = files().into_iter().filter(|f| f.starts_with("tests/programs/")).collect();
    assert!(programs.len() >= 3, "{programs:?}");
    for file in programs.iter().filter(|f| is_kind(f, &["py"])) {
        let shown = readme.split_once(&format!("(`{file}`):\n\n```python\n"));
        let shown = shown.and_then(|(_, behind)| behind.split_once("```")).map(|(code, _)| code);
        assert_eq!(shown, text(file).as_deref(), "{file}");
    }
}

#[test]
fn the_top_level_is_fixed() {
    let allowed = [
        ".ci",
        ".config",
        ".gitignore",
        "CHANGELOG.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "clippy.toml",
        "deny.toml",
        "functions",
        "infra",
        "rustfmt.toml",
        "shared",
        "tests",
    ];
    for file in files() {
        let top = file.split('/').next().unwrap();
        assert!(
            allowed.contains(&top),
            "{file}: the top level is Cargo.toml functions shared infra tests README.md and tool files"
        );
    }
}

#[test]
fn what_was_run_by_hand_says_how_it_differs_from_what_is_there() {
    use sha2::Digest as _;

    let program = text("tests/programs/pytorch.py").unwrap();
    let digest = hex::encode(sha2::Sha256::digest(program.as_bytes()));
    let transcript = text("tests/programs/pytorch.txt").unwrap();
    let is_told = ["# What ran has the sha256 {}.", "# What stands there now has {}: "];
    assert!(
        is_told.iter().any(|told| transcript.contains(&told.replace("{}", &digest))),
        "tests/programs/pytorch.py has changed ({digest}): run it again, or say in pytorch.txt how it differs from what was run"
    );
}

#[test]
fn the_readme_maps_every_folder() {
    let readme = text("README.md").unwrap();
    let mut missing = Vec::new();
    for file in files() {
        let parts: Vec<&str> = file.split('/').collect();
        if parts.len() > 2 && ["functions", "shared", "tests", "infra"].contains(&parts[0]) {
            let folder = format!("{}/{}", parts[0], parts[1]);
            if !readme.contains(&format!("`{folder}`")) && !missing.contains(&folder) {
                missing.push(folder);
            }
        }
    }
    assert!(missing.is_empty(), "README.md does not name {missing:?}");
}
