//! Outputs: files of the working directory that match the job's patterns, collected at the end of a program.
//!
//! Each attempt has a place of its own for them. What is too large or out of reach is left out,
//! with a line of ours in the program's standard error; a pattern that matches nothing has one, too.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use globset::GlobSet;
use jiff::Timestamp;
use rekindle_core::spec;
use tokio::sync::watch;

use crate::api::{Api, CallError};
use crate::backoff;
use crate::exec::Exec;
use crate::files;
use crate::metadata::Node;

/// Largest file, in bytes.
// What `api` takes of one upload in the local mode; in the cloud such files belong into the checkpoint folder.
const FILE_MAX: u64 = 512 << 20;
/// Most bytes of one worker.
const SUM_MAX: u64 = 4 << 30;
/// Most files of one worker.
const FILES_MAX: usize = 2000;
/// Folders in folders are looked into so deep.
const DEPTH_MAX: usize = 32;
/// Entries that are looked at, so that patterns like `**` do not read a disk of small files for ever.
const LOOKS_MAX: usize = 1_000_000;
/// Where no time is left, files are looked for so long all the same.
const MOMENT: Duration = Duration::from_secs(5);
/// Tries of one file.
const TRIES: u32 = 5;

/// Files to collect.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Paths below the working directory, in order.
    files: Vec<PathBuf>,
    /// What is left out, in sentences for people.
    left_out: Vec<String>,
}

/// When outputs are collected, and for how long at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Before the end of the program is told.
    Before(Duration),
    /// After it: the manager keeps the machine meanwhile.
    After(Duration),
    /// Not at all.
    Never,
}

/// When outputs are collected.
///
/// The end of a program is told at once: a success is one from then on, whatever happens to the machine, and after a
/// failure the others of the slice must know. An end that was ordered is told when the outputs are there: it has until
/// the moment at which the machine may go, which is `left` away; after one of the program's own they may take `max`. Under a notice the job goes on elsewhere, and there is nothing to collect.
pub(crate) fn when(is_ordered: bool, is_urgent: bool, left: Duration, max: Duration) -> When {
    match (is_urgent, is_ordered) {
        (true, _) => When::Never,
        (false, true) => When::Before(left),
        (false, false) => When::After(max),
    }
}

/// What is left of the time `max` after a program's end at `ended`.
pub(crate) fn left_after(max: Duration, ended: Timestamp, now: Timestamp) -> Duration {
    max.saturating_sub(Duration::try_from(now.duration_since(ended)).unwrap_or_default())
}

/// What is left until a moment.
pub(crate) fn left_until(at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default()
}

/// Finds the files that match. Links are not followed; what is not looked into for that or another reason is told, and which
/// pattern matches nothing.
fn find(work: &Path, patterns: &[String]) -> Found {
    let mut found = Found::default();
    let set = match spec::outputs::patterns(patterns) {
        Ok(set) => set,
        Err(error) => {
            found.left_out.push(format!("outputs: one is no pattern: {error}"));
            return found;
        }
    };
    let mut search = Search::new(work, patterns, set);
    search.walk(Path::new(""), DEPTH_MAX);
    let mut files = std::mem::take(&mut search.files);
    files.sort();
    found.left_out = search.left_out();
    let (mut sum, mut rest) = (0_u64, 0_usize);
    for (path, size) in files {
        if size > FILE_MAX {
            let mib = size >> 20;
            found.left_out.push(format!(
                "outputs: {} has {mib} MiB, and at most {} are collected; write it to $REKINDLE_CHECKPOINT_DIR",
                path.display(),
                FILE_MAX >> 20
            ));
        } else if found.files.len() >= FILES_MAX || sum + size > SUM_MAX {
            rest += 1;
        } else {
            sum += size;
            found.files.push(path);
        }
    }
    if rest > 0 {
        found.left_out.push(format!(
            "outputs: {rest} files are left out: at most {FILES_MAX} files and {} MiB of a worker are collected",
            SUM_MAX >> 20
        ));
    }
    found
}

/// A walk through the working directory.
struct Search<'a> {
    work: &'a Path,
    patterns: &'a [String],
    set: GlobSet,
    /// Entries that may still be looked at.
    looks: usize,
    /// What matches, with its size in bytes.
    files: Vec<(PathBuf, u64)>,
    /// Numbers of the patterns that match something.
    matched: BTreeSet<usize>,
    /// What could hold a match and was not looked into: links, folders too deep, folders that cannot be read.
    links: Vec<PathBuf>,
    deep: Vec<PathBuf>,
    closed: Vec<PathBuf>,
    /// What matches and is no file: pipes, sockets, devices.
    special: Vec<PathBuf>,
}

impl<'a> Search<'a> {
    fn new(work: &'a Path, patterns: &'a [String], set: GlobSet) -> Self {
        let (files, matched) = (Vec::new(), BTreeSet::new());
        let (links, deep, closed, special) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { work, patterns, set, looks: LOOKS_MAX, files, matched, links, deep, closed, special }
    }

    fn walk(&mut self, below: &Path, depth: usize) {
        let Ok(entries) = std::fs::read_dir(self.work.join(below)) else {
            if self.may_hold(below) {
                self.closed.push(below.to_owned());
            }
            return;
        };
        for entry in entries.flatten() {
            if self.looks == 0 {
                return;
            }
            self.looks -= 1;
            let Ok(meta) = entry.metadata() else { continue };
            let path = below.join(entry.file_name());
            let matches = self.set.matches(&path);
            if meta.is_dir() && depth > 0 {
                self.walk(&path, depth - 1);
            } else if meta.is_dir() {
                if !matches.is_empty() || self.may_hold(&path) {
                    self.deep.push(path);
                }
            } else if meta.is_symlink() {
                let is_folder = std::fs::metadata(self.work.join(&path)).is_ok_and(|of| of.is_dir());
                if !matches.is_empty() || (is_folder && self.may_hold(&path)) {
                    self.links.push(path);
                }
            } else if meta.is_file() && !matches.is_empty() {
                // Each pattern is two of the set: itself, and all below it.
                self.matched.extend(matches.into_iter().map(|number| number / 2));
                self.files.push((path, meta.len()));
            } else if !matches.is_empty() {
                self.special.push(path);
            }
        }
    }

    /// Whether a match can lie below a folder, as far as the words before the first wildcard tell.
    fn may_hold(&self, folder: &Path) -> bool {
        self.patterns.iter().any(|pattern| {
            let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
            let fixed = pattern.split('/').take_while(|part| !part.contains(['*', '?', '[', '{']));
            let fixed: PathBuf = fixed.collect();
            let is_deep = pattern.contains('/') || pattern == "**" || fixed == Path::new(pattern);
            is_deep && (folder.starts_with(&fixed) || fixed.starts_with(folder))
        })
    }

    /// What is left out for another reason than its size.
    fn left_out(&self) -> Vec<String> {
        let mut told = Vec::new();
        let unmatched = self.patterns.iter().enumerate().filter(|(number, _)| !self.matched.contains(number));
        let unmatched: Vec<&str> = unmatched.map(|(_, pattern)| pattern.as_str()).collect();
        if !unmatched.is_empty() {
            let names = unmatched.join(", ");
            told.push(format!("outputs: no file of the working directory matches {names}"));
        }
        if self.looks == 0 {
            told.push(format!("outputs: only the first {LOOKS_MAX} files were looked at"));
        }
        let links = "is a link, and links are not followed; write into a folder of the working directory";
        let deep = format!("is more than {DEPTH_MAX} folders deep, and not looked into; write less deep");
        let closed = "cannot be read";
        let special = "is a pipe, a socket or a device, and files alone are collected";
        let all = [(&self.links, links), (&self.deep, &deep), (&self.closed, closed), (&self.special, special)];
        for (paths, why) in all {
            let Some(first) = paths.iter().min() else { continue };
            let more = match paths.len() - 1 {
                0 => String::new(),
                more => format!(" ({more} more like it)"),
            };
            told.push(format!("outputs: {} {why}{more}", first.display()));
        }
        told
    }
}

/// Sends files, each on its own: what cannot be sent does not hold up the others. Answers what was left out.
async fn send(
    api: &Api,
    node: &Node,
    token: &watch::Receiver<Option<String>>,
    (attempt, work): (u32, &Path),
    files: Vec<PathBuf>,
) -> Vec<String> {
    let mut left_out = Vec::new();
    for path in files {
        if let Err(error) = send_one(api, node, token, (attempt, work), &path).await {
            tracing::warn!(path = %path.display(), error = format!("{error:#}"), "an output cannot be sent");
            left_out.push(format!("outputs: {} could not be sent: {error:#}", path.display()));
        }
    }
    left_out
}

async fn send_one(
    api: &Api,
    node: &Node,
    token: &watch::Receiver<Option<String>>,
    (attempt, work): (u32, &Path),
    path: &Path,
) -> anyhow::Result<()> {
    let name = path.to_str().context("its name is no UTF-8")?;
    let mut failures = 0;
    loop {
        // After a reboot it comes with the first hello, which may take long; how long all may take is bounded by who waits for it.
        let known = token.clone().wait_for(Option::is_some).await.ok().and_then(|known| known.clone());
        let sent = match known {
            Some(token) => api.put_output(&token, node, attempt, name, &work.join(path)).await,
            None => Err(anyhow::anyhow!("there is no token")),
        };
        let Err(error) = sent else { return Ok(()) };
        failures += 1;
        // A name that is too long stays so, and others wait for their turn.
        let is_final = error.downcast_ref().is_some_and(CallError::is_final);
        if is_final || failures == TRIES {
            return Err(error);
        }
        tokio::time::sleep(backoff::after(failures, Duration::from_millis(300), Duration::from_secs(5))).await;
    }
}

/// What the collecting of outputs needs.
pub(crate) struct Collecting {
    /// Calls, and who this is.
    pub(crate) exec: Exec,
    /// Whose they are.
    pub(crate) attempt: u32,
    /// The working directory.
    pub(crate) work: PathBuf,
    /// Where people look.
    pub(crate) stderr: PathBuf,
    /// What is collected.
    pub(crate) patterns: Vec<String>,
}

impl Collecting {
    /// True if the job asks for any.
    pub(crate) fn is_due(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// Collects until it is to be over, which tells why; that is in so much time as far as is known. What is left out is said
    /// where people look.
    pub(crate) async fn before(&self, limit: Duration, is_over: impl Future<Output = &'static str>) {
        if !self.is_due() {
            return;
        }
        if limit.is_zero() {
            // Not where nothing is due: the last agent has sent all, or no file matches, as far as that is seen in a moment.
            let is_done = files::read_json(&self.done()) == Some(self.attempt);
            let is_due = async || !tokio::time::timeout(MOMENT, self.find()).await.is_ok_and(|found| found.is_empty());
            if !is_done && is_due().await {
                self.say("outputs: not all could be sent: no time was left for it");
            }
            return;
        }
        let begun = Instant::now();
        let all = async {
            self.send(self.find().await).await;
            if let Err(error) = files::replace_json(&self.done(), &self.attempt) {
                tracing::warn!(%error, "cannot write down that the outputs were sent");
            }
        };
        tokio::select! {
            () = all => {}
            why = is_over => {
                self.say(&format!("outputs: not all could be sent within {} s{why}", begun.elapsed().as_secs()));
            }
        }
    }

    /// Holds the number of the attempt once its outputs were sent.
    fn done(&self) -> PathBuf {
        self.stderr.with_file_name("outputs.done.json")
    }

    async fn find(&self) -> Vec<PathBuf> {
        let (work, patterns) = (self.work.clone(), self.patterns.clone());
        let found = tokio::task::spawn_blocking(move || find(&work, &patterns)).await.unwrap_or_default();
        for line in &found.left_out {
            self.say(line);
        }
        found.files
    }

    async fn send(&self, files: Vec<PathBuf>) {
        let Exec { api, node, token, .. } = &self.exec;
        for line in send(api, node, token, (self.attempt, &self.work), files).await {
            self.say(&line);
        }
    }

    fn say(&self, line: &str) {
        if let Ok(mut file) = files::append_to(&self.stderr) {
            let _ = writeln!(file, "rekindle: {line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::http::StatusCode;

    use super::*;
    use crate::metadata::Metadata;

    fn found(patterns: &[&str]) -> Found {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.png", "b.txt", "out/c.png", "out/deep/d.txt", "outer/e.txt"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        std::os::unix::fs::symlink("/etc/hostname", folder.path().join("link.png")).unwrap();
        std::fs::File::create(folder.path().join("huge.bin")).unwrap().set_len(FILE_MAX + 1).unwrap();
        find(folder.path(), &patterns.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    fn names(found: &Found) -> Vec<&str> {
        found.files.iter().filter_map(|path| path.to_str()).collect()
    }

    #[test]
    fn patterns_find_files_and_whole_folders_and_follow_no_links() {
        assert_eq!(names(&found(&["*.png"])), ["a.png"]);
        assert_eq!(names(&found(&["**/*.png"])), ["a.png", "out/c.png"]);
        assert_eq!(names(&found(&["out"])), ["out/c.png", "out/deep/d.txt"]);
        assert_eq!(names(&found(&["./out/", "b.txt"])), ["b.txt", "out/c.png", "out/deep/d.txt"]);
        assert_eq!(names(&found(&["none"])), [""; 0]);
    }

    #[test]
    fn what_is_out_of_reach_and_what_matches_nothing_is_told() {
        assert_eq!(
            found(&["none", "b.txt", "results/*.png"]).left_out,
            ["outputs: no file of the working directory matches none, results/*.png"]
        );
        let link = "is a link, and links are not followed; write into a folder of the working directory";
        assert_eq!(found(&["**/*.png"]).left_out, [format!("outputs: link.png {link}")]);
        assert_eq!(found(&["b.txt"]).left_out, [""; 0], "what is not asked for is not told");

        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("a.png"), "a").unwrap();
        std::fs::write(folder.path().join("b.png"), "b").unwrap();
        let deep = format!("results/{}", "d/".repeat(DEPTH_MAX));
        std::fs::create_dir_all(folder.path().join(&deep)).unwrap();
        std::fs::write(folder.path().join(&deep).join("c.png"), "c").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("linked")).unwrap();
        let told = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(|&text| text.to_owned()).collect();
            find(folder.path(), &patterns).left_out.join("; ")
        };
        for (pattern, links, deep) in [
            ("linked/*.png", true, false),
            ("linked", true, false),
            ("results", false, true),
            ("results/**/*.png", false, true),
            ("**/*.png", true, true),
            ("*.png", false, false),
            ("b.png", false, false),
        ] {
            let told = told(&[pattern]);
            assert_eq!(told.contains(&format!("linked {link}")), links, "{pattern}: {told}");
            assert_eq!(told.contains("is more than 32 folders deep"), deep, "{pattern}: {told}");
        }
    }

    #[test]
    fn what_matches_and_is_no_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("b.png")).unwrap();
        std::fs::write(folder.path().join("a.png"), "a").unwrap();
        let found = find(folder.path(), &["*.png".to_owned()]);
        assert_eq!(names(&found), ["a.png"]);
        let said = "outputs: b.png is a pipe, a socket or a device, and files alone are collected";
        assert_eq!(found.left_out, [said]);
    }

    #[test]
    fn what_is_too_large_is_left_out_with_a_reason() {
        let found = found(&["*.bin", "b.txt"]);
        assert_eq!(names(&found), ["b.txt"]);
        let said = "outputs: huge.bin has 512 MiB, and at most 512 are collected; write it to $REKINDLE_CHECKPOINT_DIR";
        assert_eq!(found.left_out, [said]);
        let bad = super::find(Path::new("/nowhere"), &["a[".to_owned()]);
        assert!(bad.left_out[0].contains("is no pattern"), "{bad:?}");
    }

    #[test]
    fn an_end_is_told_before_its_outputs_are_collected_unless_we_ordered_it() {
        let (left, max) = (Duration::from_secs(9), Duration::from_mins(4));
        assert_eq!(when(false, false, left, max), When::After(max));
        assert_eq!(when(true, false, left, max), When::Before(left));
        for is_ordered in [true, false] {
            assert_eq!(when(is_ordered, true, left, max), When::Never, "it goes on elsewhere");
        }
        let ended: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(left_after(max, ended, ended + Duration::from_mins(1)), Duration::from_mins(3));
        assert_eq!(left_after(max, ended, ended + Duration::from_mins(5)), Duration::ZERO);
    }

    /// What is said of a file for which a place is asked, and how often it was: the first is answered with one status, all others
    /// with that of a name that is too long.
    async fn asked(first: StatusCode) -> (Vec<String>, u32) {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let answer = async move || {
            let problem = serde_json::json!({"title": "path", "detail": "a name of 1001 bytes, 1000 at most"});
            let status = if count.fetch_add(1, Ordering::Relaxed) == 0 { first } else { StatusCode::BAD_REQUEST };
            (status, axum::Json(problem))
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let app = axum::Router::new().route("/agent/v1/outputs", axum::routing::post(answer));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let node = Node::of(base);
        let api = Api::new(&node, Metadata::new("127.0.0.1:9").unwrap()).unwrap();
        let (_token, token) = watch::channel(Some("t".to_owned()));
        let told = send(&api, &node, &token, (1, Path::new("/")), vec!["long".into()]).await;
        (told, asked.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_file_that_has_no_place_is_said_with_the_reason_and_asked_for_once() {
        let due =
            "outputs: long could not be sent: api refuses with 400 Bad Request: a name of 1001 bytes, 1000 at most";
        assert_eq!(asked(StatusCode::BAD_REQUEST).await, (vec![due.to_owned()], 1));
        assert_eq!(asked(StatusCode::PAYLOAD_TOO_LARGE).await.1, 1);
    }

    #[tokio::test]
    async fn a_refusal_that_may_pass_is_not_the_last_word_about_a_file() {
        for passes in [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND] {
            assert_eq!(asked(passes).await.1, 2, "{passes}");
        }
    }
}
