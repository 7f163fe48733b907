//! The git commit of a folder, if it is in a repository and git is there.

use std::path::Path;
use std::process::{Command, Stdio};

/// What is checked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) commit: String,
    /// `None`: a commit without a branch is checked out.
    pub(super) branch: Option<String>,
    /// Whether files of the folder differ from the commit, new ones included.
    pub(super) is_dirty: bool,
}

/// Asks git. `None`: no repository, no commit yet, or no git.
pub(super) fn state(folder: &Path) -> Option<State> {
    let commit = git(folder, &["rev-parse", "HEAD"])?;
    let branch = git(folder, &["symbolic-ref", "--short", "-q", "HEAD"]).filter(|name| !name.is_empty());
    let is_dirty = git(folder, &["status", "--porcelain", "--", "."]).is_none_or(|changes| !changes.is_empty());
    Some(State { commit, branch, is_dirty })
}

fn git(folder: &Path, words: &[&str]) -> Option<String> {
    let run = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(words)
        // Looking must not write (the index) nor ask.
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    run.status.success().then(|| String::from_utf8_lossy(&run.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_and_what_differs_from_it_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(state(root), None);
        let run = |words: &[&str]| {
            let who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"];
            assert!(git(root, &[&who[..], words].concat()).is_some(), "{words:?}");
        };
        run(&["init", "-q", "-b", "main"]);
        assert_eq!(state(root), None, "no commit yet");
        std::fs::write(root.join("a"), "1").unwrap();
        run(&["add", "a"]);
        run(&["commit", "-q", "-m", "a"]);
        let clean = state(root).unwrap();
        assert_eq!((clean.commit.len(), clean.branch.as_deref(), clean.is_dirty), (40, Some("main"), false));
        std::fs::write(root.join("b"), "2").unwrap();
        assert!(state(root).unwrap().is_dirty);
    }
}
