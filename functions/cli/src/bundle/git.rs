//! The git commit of a folder, if it is in a repository and git is there.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is checked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) commit: String,
    /// `None`: a commit without a branch is checked out.
    pub(super) branch: Option<String>,
    /// Whether files of the commit differ in the folder, or files are sent that are not in the commit.
    pub(super) is_dirty: bool,
}

/// Asks git. `sent` are the paths of the files within the folder that are sent. `None`: no repository, no commit yet, or
/// no git.
pub(super) fn state(folder: &Path, sent: &BTreeSet<PathBuf>) -> Option<State> {
    let commit = git(folder, &["rev-parse", "HEAD"])?;
    let branch = git(folder, &["symbolic-ref", "--short", "-q", "HEAD"]).filter(|name| !name.is_empty());
    let is_dirty = differs(folder, sent).unwrap_or(true);
    Some(State { commit, branch, is_dirty })
}

/// What git ignores may be sent all the same, and settings of git may hide what is new: so both are asked for, and what is
/// sent decides. `None`: git does not tell.
fn differs(folder: &Path, sent: &BTreeSet<PathBuf>) -> Option<bool> {
    // The paths that are told begin at the root of the repository.
    let prefix = bytes(folder, &["rev-parse", "--show-prefix"])?;
    let prefix = Path::new(OsStr::from_bytes(prefix.strip_suffix(b"\n").unwrap_or(&prefix)));
    let words = ["status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignored=matching", "--", "."];
    let told = bytes(folder, &words)?;
    Some(told.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).any(|entry| {
        let Some(path) = entry.strip_prefix(b"?? ").or_else(|| entry.strip_prefix(b"!! ")) else {
            // A file of the commit that is changed, gone or renamed.
            return true;
        };
        // A path outside of the folder cannot be told: then it is better to be wrong on this side.
        let Ok(path) = Path::new(OsStr::from_bytes(path)).strip_prefix(prefix) else { return true };
        // Of a folder that is ignored whole, its own name is told.
        sent.range(path.to_owned()..).next().is_some_and(|first| first.starts_with(path))
    }))
}

fn git(folder: &Path, words: &[&str]) -> Option<String> {
    bytes(folder, words).map(|told| String::from_utf8_lossy(&told).trim().to_owned())
}

fn bytes(folder: &Path, words: &[&str]) -> Option<Vec<u8>> {
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
    run.status.success().then_some(run.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::{collect, sent};

    fn now(folder: &Path) -> Option<State> {
        state(folder, &sent(&collect::folder(folder, &indicatif::ProgressBar::hidden()).unwrap()))
    }

    fn run(root: &Path, words: &[&str]) {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"];
        assert!(git(root, &[&who[..], words].concat()).is_some(), "{words:?}");
    }

    #[test]
    fn a_commit_and_what_differs_from_it_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(now(root), None);
        run(root, &["init", "-q", "-b", "main"]);
        assert_eq!(now(root), None, "no commit yet");
        std::fs::write(root.join("a"), "1").unwrap();
        run(root, &["add", "a"]);
        run(root, &["commit", "-q", "-m", "a"]);
        let clean = now(root).unwrap();
        assert_eq!((clean.commit.len(), clean.branch.as_deref(), clean.is_dirty), (40, Some("main"), false));
        std::fs::write(root.join("b"), "2").unwrap();
        assert!(now(root).unwrap().is_dirty);
        std::fs::remove_file(root.join("b")).unwrap();
        assert!(!now(root).unwrap().is_dirty);
        std::fs::write(root.join("a"), "2").unwrap();
        assert!(now(root).unwrap().is_dirty);
    }

    #[test]
    fn what_is_sent_beside_the_commit_makes_it_dirty_whatever_git_hides_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        run(root, &["init", "-q", "-b", "main"]);
        write(".gitignore", "*.log\n/sub/data/\n/data/\n");
        write("sub/.rekindleignore", "scratch\n!keep.log\n");
        write("sub/train.py", "");
        run(root, &["add", "."]);
        run(root, &["commit", "-q", "-m", "a"]);
        let (sub, is_dirty) = (root.join("sub"), |folder: &Path| now(folder).unwrap().is_dirty);
        // Neither sent nor in the commit: no difference between the two.
        for path in ["sub/run.log", "sub/scratch", "sub/data/x", "sub/__pycache__/train.pyc", "data/y", "new.py"] {
            write(path, "");
        }
        assert!(!is_dirty(&sub), "{:?}", sent(&collect::folder(&sub, &indicatif::ProgressBar::hidden()).unwrap()));
        assert!(is_dirty(root), "new.py is sent from here");
        // Sent, and hidden from a plain `git status`.
        write(".git/info/exclude", "own.py\n");
        for (path, hide) in [
            ("sub/own.py", &["config", "status.showUntrackedFiles", "all"][..]),
            ("sub/keep.log", &["config", "status.showUntrackedFiles", "all"]),
            ("sub/new/a b\n\u{e4}.py", &["config", "status.showUntrackedFiles", "no"]),
        ] {
            run(root, hide);
            write(path, "");
            assert!(is_dirty(&sub), "{path:?}");
            std::fs::remove_file(root.join(path)).unwrap();
            assert!(!is_dirty(&sub), "without {path:?}");
        }
        write("excludes", "*.mine\n");
        run(root, &["config", "core.excludesFile", root.join("excludes").to_str().unwrap()]);
        write("sub/a.mine", "");
        assert!(is_dirty(&sub), "named by this machine's own excludes");
    }
}
