//! What of a folder is taken: everything but what `.gitignore` and `.rekindleignore` name, and what is of this machine alone:
//! `.git`, caches of Python and its notebooks, and virtual environments.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ignore::WalkBuilder;
use indicatif::ProgressBar;

use super::secret;
use crate::fault::{Fault, Result};
use crate::human;

/// Ignore rules of git.
const GIT_IGNORE_FILE: &str = ".gitignore";
/// Ignore rules of ours; they win over `.gitignore`.
const IGNORE_FILE: &str = ".rekindleignore";
/// Never taken: of no use to a program, and different on each machine.
const NEVER: [&str; 3] = [".git", "__pycache__", ".ipynb_checkpoints"];
/// What makes a folder a virtual environment of Python: links to programs and paths of this machine.
const ENVIRONMENT: &str = "pyvenv.cfg";
/// What `venv` and `virtualenv` put into one; all else in it is somebody's own.
const OF_ENVIRONMENT: [&str; 8] =
    [ENVIRONMENT, "bin", "include", "lib", "lib64", "share", GIT_IGNORE_FILE, "CACHEDIR.TAG"];
/// More entries than this are no program.
const ENTRIES_MAX: usize = 200_000;

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    /// A link to this target, kept as it is.
    Link(PathBuf),
}

/// One thing to pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Path within the folder.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    /// Permissions.
    pub(super) mode: u32,
    /// Bytes of a file, else 0.
    pub(super) size: u64,
    /// When it was changed last, in seconds since 1970.
    pub(super) changed_at: u64,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Sorted by path.
    pub(super) entries: Vec<Entry>,
    /// What is left out though nobody asked for it, in words.
    pub(super) skipped: Vec<String>,
    /// How many of each kind.
    skipped_of: BTreeMap<&'static str, usize>,
    /// Whether a virtual environment is among it.
    pub(super) has_environment: bool,
}

/// Kinds of what is left out, as they are counted.
const OUTWARD: &str = "links that lead out of the folder";
const SPECIAL: &str = "that are neither file, folder nor link";
/// So many of a kind are named.
const SKIPPED_SHOWN: usize = 3;

impl Found {
    /// Notes what is left out. A folder such as `/usr` has hundreds of a kind.
    fn skip(&mut self, kind: &'static str, what: String) {
        let count = self.skipped_of.entry(kind).or_default();
        *count += 1;
        if *count <= SKIPPED_SHOWN {
            self.skipped.push(what);
        }
    }

    /// Says how many more there were of each kind.
    fn count_untold(&mut self) {
        let more = self.skipped_of.iter().filter(|(_, count)| **count > SKIPPED_SHOWN);
        self.skipped.extend(more.map(|(kind, count)| format!("and {} more {kind}", count - SKIPPED_SHOWN)));
    }

    /// The files whose names say that they hold a secret.
    pub(super) fn secrets(&self) -> Vec<&Path> {
        let files = self.entries.iter().filter(|entry| entry.kind == Kind::File);
        files.map(|entry| entry.path.as_path()).filter(|path| secret::is_named(path)).collect()
    }

    /// The largest files and folders (which end with a slash) at the top, largest first.
    pub(super) fn largest(&self, count: usize) -> Vec<(String, u64)> {
        let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
        // Of a folder only what is in it has a size.
        for entry in self.entries.iter().filter(|entry| entry.kind != Kind::Folder) {
            // Two levels tell where it comes from: data/train, not each of its files.
            let top: PathBuf = entry.path.components().take(2).collect();
            let slash = if top == entry.path { "" } else { "/" };
            *sizes.entry(human::tame(&format!("{}{slash}", top.to_string_lossy()))).or_default() += entry.size;
        }
        let mut sizes: Vec<(String, u64)> = sizes.into_iter().collect();
        sizes.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        sizes.truncate(count);
        sizes
    }
}

/// Whether the folder lies below the root of a repository whose `.gitignore` holds for it too.
fn is_within_repository(root: &Path) -> bool {
    let is_root = |folder: &Path| folder.join(".git").symlink_metadata().is_ok();
    !is_root(root) && root.ancestors().any(is_root)
}

/// A file of rules in a folder that is neither file nor folder, if there is one: reading a pipe or a device may never end.
fn endless_rules(folder: &Path) -> Option<PathBuf> {
    [GIT_IGNORE_FILE, IGNORE_FILE].map(|name| folder.join(name)).into_iter().find(|path| {
        // Where a link leads to is what would be read.
        path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
    })
}

/// Refuses rules above a folder that cannot be read to an end.
fn refuse_endless_rules(root: &Path, is_within: bool) -> Result<()> {
    let mut above = root.ancestors().take(if is_within { usize::MAX } else { 1 });
    above.find_map(endless_rules).map_or(Ok(()), |path| Err(no_rules(&path)))
}

fn no_rules(path: &Path) -> Fault {
    Fault::input(format!("{} is no file: it is a pipe, a socket or a device", path.display()))
        .next("remove it, or put a file with the rules in its place")
}

/// Whether an entry is looked at. Rules in it that have no end are kept in `endless`, virtual environments in the other.
fn is_taken(entry: &ignore::DirEntry, endless: &OnceLock<PathBuf>, environments: &Mutex<Vec<PathBuf>>) -> bool {
    if NEVER.iter().any(|name| entry.file_name() == *name) {
        return false;
    }
    // The rules of a folder are read before anything in it is seen.
    let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
    // The folder itself may be one, and is what was asked for.
    if is_folder && entry.depth() > 0 && entry.path().join(ENVIRONMENT).is_file() {
        environments.lock().unwrap_or_else(PoisonError::into_inner).push(entry.path().to_owned());
        return false;
    }
    let Some(path) = is_folder.then(|| endless_rules(entry.path())).flatten() else { return true };
    // The first is enough to refuse the whole.
    let _known = endless.set(path);
    false
}

/// The part of a path within the folder that is not taken whatever the rules say, and whether it is a virtual environment.
pub(super) fn never(root: &Path, path: &Path) -> Option<(PathBuf, bool)> {
    let parts: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    // The walk comes from above.
    parts.into_iter().rev().find_map(|part| {
        let is_never = part.file_name().is_some_and(|name| NEVER.iter().any(|never| name == *never));
        let is_environment = || root.join(part).join(ENVIRONMENT).is_file();
        (is_never || is_environment()).then(|| (part.to_owned(), !is_never))
    })
}

/// Whether a folder is itself a virtual environment: `Some(true)` when nothing else is in it.
pub(super) fn environment(root: &Path) -> Option<bool> {
    let is_own = |entry: std::fs::DirEntry| !OF_ENVIRONMENT.iter().any(|name| entry.file_name() == *name);
    let has_own = || std::fs::read_dir(root).is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(is_own)));
    root.join(ENVIRONMENT).is_file().then(|| !has_own())
}

/// Walks a folder; `bar` counts what was found.
pub(super) fn folder(root: &Path, bar: &ProgressBar) -> Result<Found> {
    let mut found = Found::default();
    // What counts above the folder ends at the repository's root, as for git; without one nothing above it counts.
    let is_within = is_within_repository(root);
    refuse_endless_rules(root, is_within)?;
    let endless: Arc<OnceLock<PathBuf>> = Arc::default();
    let environments: Arc<Mutex<Vec<PathBuf>>> = Arc::default();
    let (seen, left_out) = (Arc::clone(&endless), Arc::clone(&environments));
    let walk = WalkBuilder::new(root)
        // Hidden files are part of programs; rules hold also where there is no repository.
        .hidden(false)
        .require_git(is_within)
        .parents(is_within)
        // Rules of this machine alone, or of other tools, would leave files out that the next person sends.
        .ignore(false)
        .git_global(false)
        .git_exclude(false)
        .follow_links(false)
        .add_custom_ignore_filename(IGNORE_FILE)
        .filter_entry(move |entry| is_taken(entry, &seen, &left_out))
        .build();
    for step in walk {
        let step = step.map_err(|error| unreadable(&format!("the folder {}", root.display()), &error))?;
        let Ok(path) = step.path().strip_prefix(root) else { continue };
        if path.as_os_str().is_empty() {
            continue;
        }
        let cannot = |error: io::Error| {
            if error.kind() == io::ErrorKind::InvalidFilename {
                return too_deep(path, root, &error);
            }
            unreadable(&format!("{} in {}", path.display(), root.display()), &error)
        };
        let metadata = step.path().symlink_metadata().map_err(cannot)?;
        let Some(kind) = kind_of(step.path(), &metadata).map_err(cannot)? else {
            found.skip(SPECIAL, format!("{} is neither file, folder nor link; it is not sent", path.display()));
            continue;
        };
        if let Kind::Link(target) = &kind
            && leads_out(path, target)
        {
            let (path, target) = (path.display(), target.display());
            found.skip(OUTWARD, format!("the link {path} leads out of the folder, to {target}, which is not sent"));
        }
        let size = if kind == Kind::File { metadata.len() } else { 0 };
        let mode = metadata.permissions().mode() & 0o7777;
        found.entries.push(Entry { path: path.to_owned(), kind, mode, size, changed_at: changed_at(&metadata) });
        bar.inc(1);
        if found.entries.len() > ENTRIES_MAX {
            return Err(too_many(root));
        }
    }
    if let Some(path) = endless.get() {
        return Err(no_rules(path));
    }
    found.count_untold();
    for path in environments.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        found.has_environment = true;
        let path = path.strip_prefix(root).unwrap_or(path).display();
        let told = format!("the virtual environment {path} is not sent");
        found.skipped.push(format!("{told}: let `setup` make one where the job runs"));
    }
    found.entries.sort_by(|a, b| a.path.as_os_str().as_bytes().cmp(b.path.as_os_str().as_bytes()));
    Ok(found)
}

/// What an entry is; `None`: a pipe, a socket or a device.
fn kind_of(path: &Path, metadata: &std::fs::Metadata) -> io::Result<Option<Kind>> {
    Ok(if metadata.is_dir() {
        Some(Kind::Folder)
    } else if metadata.is_symlink() {
        Some(Kind::Link(std::fs::read_link(path)?))
    } else {
        metadata.is_file().then_some(Kind::File)
    })
}

fn unreadable(what: &str, error: &(dyn std::error::Error + 'static)) -> Fault {
    let fault = Fault::input(format!("cannot read {what}")).caused_by(error);
    fault.next(format!("make it readable, or name it in {IGNORE_FILE}"))
}

/// Systems list more than they open: a name whose whole path is longer than 4096 bytes.
fn too_deep(path: &Path, root: &Path, error: &io::Error) -> Fault {
    let parts: Vec<_> = path.iter().map(|part| human::tame(&part.to_string_lossy())).collect();
    // Thousands of bytes that say nothing lie between.
    let named = match parts.as_slice() {
        [first, second, .., last] => format!("{first}/{second}/…/{last}"),
        _ => parts.join("/"),
    };
    Fault::input(format!("{named} in {} is too deep to be read: {} folders", root.display(), parts.len() - 1))
        .caused_by(error)
        .next(format!("move it up, or name a folder above it in {IGNORE_FILE}"))
}

/// One file, to be packed under that name. Ignore rules do not count: it was named.
pub(super) fn file(path: &Path, name: &str) -> Result<Entry> {
    let metadata = path.metadata().map_err(|error| {
        let fault = Fault::input(format!("cannot send {}", path.display())).caused_by(&error);
        fault.next("name a folder or a file that is there")
    })?;
    if !metadata.is_file() {
        return Err(Fault::input(format!("{} is neither file nor folder", path.display()))
            .next("name a folder or a file; what a pipe gives can be written to one first"));
    }
    let mode = metadata.permissions().mode() & 0o7777;
    let (size, changed_at) = (metadata.len(), changed_at(&metadata));
    Ok(Entry { path: name.into(), kind: Kind::File, mode, size, changed_at })
}

/// What lies before 1970 is no time that an archive can hold.
fn changed_at(metadata: &std::fs::Metadata) -> u64 {
    u64::try_from(metadata.mtime()).unwrap_or(0)
}

fn too_many(root: &Path) -> Fault {
    Fault::input(format!("the folder {} has more than {ENTRIES_MAX} files", root.display()))
        .next(format!("name what is no program in {IGNORE_FILE}"))
}

/// Whether a link at `path` points above the folder.
fn leads_out(path: &Path, target: &Path) -> bool {
    if target.is_absolute() {
        return true;
    }
    let mut depth = path.components().count() as i64 - 1;
    for part in target.components() {
        match part {
            std::path::Component::ParentDir => depth -= 1,
            std::path::Component::Normal(_) => depth += 1,
            std::path::Component::CurDir | std::path::Component::RootDir | std::path::Component::Prefix(_) => {}
        }
        if depth < 0 {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_read_or_is_too_full_is_named() {
        let text = folder(Path::new("/nowhere"), &ProgressBar::hidden()).unwrap_err().text();
        let said =
            ["cannot read the folder /nowhere", "No such file", "make it readable, or name it in .rekindleignore"];
        assert!(said.iter().all(|word| text.contains(word)), "{text}");
        let text = too_many(Path::new("/data")).text();
        assert!(text.contains("the folder /data has more than 200000 files"), "{text}");
        assert!(text.contains("name what is no program in .rekindleignore"), "{text}");
    }

    #[test]
    fn a_path_that_is_too_deep_is_named_and_can_be_left_out() {
        use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "data/a.py", "");
        let mut at = openat(CWD, root.path().join("data"), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let name = "d".repeat(250);
        for folder in std::iter::once("old").chain(std::iter::repeat_n(name.as_str(), 17)) {
            mkdirat(&at, folder, Mode::RWXU).unwrap();
            let below = openat(&at, folder, OFlags::DIRECTORY, Mode::empty()).unwrap();
            at = below;
        }
        let text = folder(root.path(), &ProgressBar::hidden()).unwrap_err().text();
        // Linux takes paths below 4096 bytes.
        let above = root.path().join("data/old").as_os_str().len();
        let (root_is, folders) = (root.path().display(), (4096 - above).div_ceil(251) + 1);
        let want = format!("data/old/…/{name} in {root_is} is too deep to be read: {folders} folders");
        assert!(text.contains(&want) && text.contains("move it up, or name a folder above it in .rek"), "{text}");
        write(root.path(), IGNORE_FILE, "data/old/\n");
        assert_eq!(taken(root.path()), [IGNORE_FILE, "data", "data/a.py"]);
    }

    #[test]
    fn ignored_files_are_left_out_and_hidden_ones_and_links_are_taken() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for (path, text) in [
            (".gitignore", "*.log\ndata/\n"),
            (".rekindleignore", "big/\n!keep.log\n"),
            (".env", "A=1"),
            (".git/config", ""),
            ("train.py", "print()"),
            ("run.log", ""),
            ("keep.log", ""),
            ("data/x", ""),
            ("big/y", ""),
            ("lib/__pycache__/a.pyc", ""),
            ("lib/a.py", ""),
            ("lib/.ipynb_checkpoints/a.ipynb", ""),
            ("tools/env/pyvenv.cfg", "home = /usr/bin"),
            ("tools/env/bin/activate", ""),
        ] {
            write(root, path, text);
        }
        std::os::unix::fs::symlink("a.py", root.join("lib/b.py")).unwrap();
        std::os::unix::fs::symlink("../../x", root.join("lib/out")).unwrap();
        let found = folder(root, &ProgressBar::hidden()).unwrap();
        let paths: Vec<&str> = found.entries.iter().map(|entry| entry.path.to_str().unwrap()).collect();
        let want = [
            ".env",
            ".gitignore",
            ".rekindleignore",
            "keep.log",
            "lib",
            "lib/a.py",
            "lib/b.py",
            "lib/out",
            "tools",
            "train.py",
        ];
        assert_eq!(paths, want);
        assert_eq!(found.entries[6].kind, Kind::Link("a.py".into()));
        assert_eq!(found.skipped.len(), 2, "{:?}", found.skipped);
        assert!(found.skipped[1].starts_with("the virtual environment tools/env is not sent"), "{:?}", found.skipped);
        assert_eq!(found.secrets(), [Path::new(".env")]);
        assert!(found.skipped[0].contains("lib/out"), "{:?}", found.skipped);
    }

    #[test]
    fn of_many_links_that_lead_out_three_are_named() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a.py", "");
        write(root.path(), "env/pyvenv.cfg", "home = /usr/bin");
        for number in 0..10 {
            std::os::unix::fs::symlink("/x", root.path().join(format!("link{number}"))).unwrap();
        }
        let found = folder(root.path(), &ProgressBar::hidden()).unwrap();
        assert_eq!(found.entries.len(), 11, "they are sent as they are");
        assert_eq!(found.skipped.len(), 5, "{:?}", found.skipped);
        assert_eq!(found.skipped[3], "and 7 more links that lead out of the folder");
        assert!(found.skipped[4].contains("virtual environment"), "{:?}", found.skipped);
    }

    #[test]
    fn rules_in_a_pipe_are_refused_and_not_waited_for() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "repo/.git/HEAD", "");
        write(root.path(), "repo/sub/deep/a.py", "");
        for (rules, from) in [
            ("repo/.gitignore", "repo/sub"),
            ("repo/sub/.rekindleignore", "repo/sub"),
            ("repo/sub/deep/.gitignore", "repo"),
        ] {
            let rules = root.path().join(rules);
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
            rustix::fs::mknodat(rustix::fs::CWD, &rules, kind, mode, 0).unwrap();
            let text = folder(&root.path().join(from), &ProgressBar::hidden()).unwrap_err().text();
            assert!(text.contains(&format!("{} is no file", rules.display())) && text.contains("remove it"), "{text}");
            std::fs::remove_file(rules).unwrap();
        }
        assert!(folder(&root.path().join("repo"), &ProgressBar::hidden()).is_ok());
    }

    fn taken(root: &Path) -> Vec<String> {
        let entries = folder(root, &ProgressBar::hidden()).unwrap().entries;
        entries.iter().map(|entry| entry.path.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn rules_above_the_folder_count_up_to_the_root_of_the_repository() {
        let above = tempfile::tempdir().unwrap();
        let above = above.path();
        for (path, text) in [
            (".gitignore", "*.py\n"),
            ("repo/.git/info/exclude", "own.py\n"),
            ("repo/.gitignore", "/sub/data/\n*.bin\n"),
            ("repo/sub/.gitignore", "!keep.bin\n"),
            ("repo/sub/.ignore", "train.py\n"),
            ("repo/sub/train.py", ""),
            ("repo/sub/own.py", ""),
            ("repo/sub/a.bin", ""),
            ("repo/sub/keep.bin", ""),
            ("repo/sub/data/x.txt", ""),
            ("repo/top.py", ""),
        ] {
            write(above, path, text);
        }
        let want = [".gitignore", ".ignore", "keep.bin", "own.py", "train.py"];
        assert_eq!(taken(&above.join("repo/sub")), want);
        let of_root = taken(&above.join("repo"));
        assert!(of_root.contains(&"top.py".to_owned()) && of_root.contains(&"sub/train.py".to_owned()), "{of_root:?}");
        assert!(!of_root.iter().any(|path| path.ends_with("a.bin") || path.contains("data")), "{of_root:?}");
        std::fs::remove_dir_all(above.join("repo/.git")).unwrap();
        let alone = taken(&above.join("repo/sub"));
        assert!(alone.contains(&"a.bin".to_owned()) && alone.contains(&"train.py".to_owned()), "{alone:?}");
    }

    #[test]
    fn the_largest_places_are_named_at_two_levels() {
        let entry = |path: &str, size| Entry { path: path.into(), kind: Kind::File, mode: 0o644, size, changed_at: 0 };
        let empty = Entry { kind: Kind::Folder, ..entry("empty", 0) };
        let entries =
            vec![empty, entry("a.py", 1), entry("data/train/1", 50), entry("data/train/2", 50), entry("w/x", 70)];
        let found = Found { entries, ..Found::default() };
        assert_eq!(found.largest(2), [("data/train/".to_owned(), 100), ("w/x".to_owned(), 70)]);
        assert_eq!(found.largest(9).len(), 3, "a folder is no file");
    }
}
