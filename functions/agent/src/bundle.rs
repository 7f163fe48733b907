//! The code bundle: fetched, checked against the digest in its name, and unpacked as a whole or not at all.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::backoff;
use crate::files::{self, Layout};
use crate::metadata::Metadata;

mod folders;
mod over;

use folders::{holds_mount, is_folder, is_mount_point, make_writable, remove, remove_folder};
pub(crate) use over::unpack_over;

/// Tries of one fetch. With the waits between them about a minute: longer outages are for the manager to judge.
const TRIES: u32 = 8;
/// A server that sends nothing for so long will not send the rest.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// Brings the working directory to hold the bundle, or to exist if there is none.
///
/// A crash at any await leaves either the old working directory or the new one, and pieces that the next call removes.
pub(crate) async fn prepare(layout: &Layout, metadata: &Metadata, code: Option<&str>) -> anyhow::Result<()> {
    let work = layout.work();
    let Some(code) = code else {
        return tokio::fs::create_dir_all(&work).await.context("cannot make the working directory");
    };
    if work.is_dir() && files::read_json::<String>(&layout.unpacked()).as_deref() == Some(code) {
        return Ok(());
    }
    let bundle = layout.generation().join(format!("{}.tar.zst", digest_of(code)?));
    get(metadata, code, &bundle).await?;
    let (layout, code) = (layout.clone(), code.to_owned());
    exclusive(move || install(&layout, &bundle, &code)).await.context("the unpacking ended")
}

/// [`clean`], beside nobody else who changes the working directory.
pub(crate) async fn empty(layout: &Layout) -> anyhow::Result<()> {
    let layout = layout.clone();
    exclusive(move || clean(&layout)).await.context("the emptying ended")
}

/// Held by the one who changes the working directory.
static CHANGING: Mutex<()> = Mutex::new(());

/// Does something to the working directory when what was begun before has ended: an attempt that is ended while its code is
/// unpacked leaves that to its end. What nobody waits for any more is not begun.
async fn exclusive<T: Send + 'static>(
    change: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let waits = Arc::new(());
    let is_wanted = Arc::downgrade(&waits);
    let done = tokio::task::spawn_blocking(move || {
        let _one = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(is_wanted.strong_count() > 0, "nobody waits for it any more");
        change()
    });
    let done = done.await;
    drop(waits);
    done.context("it broke off")?
}

/// Fetches a bundle to a place, with some patience.
async fn get(metadata: &Metadata, code: &str, bundle: &Path) -> anyhow::Result<()> {
    let digest = digest_of(code)?;
    let mut failures = 0;
    while let Err(error) = fetch(metadata, code, &digest, bundle).await {
        failures += 1;
        if failures == TRIES {
            return Err(error.context(format!("cannot fetch the bundle {code}")));
        }
        tracing::warn!(code, error = format!("{error:#}"), "cannot fetch the bundle; will try again");
        tokio::time::sleep(backoff::after(failures, Duration::from_millis(500), Duration::from_secs(15))).await;
    }
    Ok(())
}

/// Ends the name of a file that is being fetched.
const PART: &str = ".part";

/// Removes what an agent that was killed was fetching. Nothing of this one is under way yet.
pub(crate) fn tidy(layout: &Layout) {
    let entries = std::fs::read_dir(layout.generation()).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().as_encoded_bytes().ends_with(PART.as_bytes())) {
        if let Err(error) = std::fs::remove_file(entry.path()) {
            tracing::warn!(path = %entry.path().display(), %error, "cannot remove a piece of a bundle");
        }
    }
}

/// A file of whoever made this value, under a name that nobody else has: two may fetch one bundle at the same time. It goes with
/// the value, also where its maker was left in the middle (or with [`tidy`], where it was killed), and with what a full disk took of it.
#[derive(Debug)]
struct OwnFile(PathBuf);

impl OwnFile {
    fn beside(path: &Path) -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}{PART}", MADE.fetch_add(1, Ordering::Relaxed)));
        Self(name.into())
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        // Mostly it has another name by now.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn extract(bundle: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let mut archive = tar::Archive::new(zstd::Decoder::new(File::open(bundle)?)?);
    archive.set_preserve_permissions(true);
    // The crate refuses entries that would leave the folder.
    archive.unpack(to).context("cannot unpack the bundle")
}

/// Empties the working directory and forgets that code and `setup` are there.
///
/// The folder itself stays, since something may be mounted on it, and so does what is mounted anywhere below it. A
/// crash in between leaves pieces, and nothing that takes them for a whole.
fn clean(layout: &Layout) -> anyhow::Result<()> {
    for mark in [layout.setup_done(), layout.unpacked()] {
        if let Err(error) = std::fs::remove_file(&mark)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("cannot remove {}", mark.display()));
        }
    }
    let work = layout.work();
    let entries = match make_writable(&work).and_then(|()| std::fs::read_dir(&work)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", work.display())),
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        let removed = if entry.file_type()?.is_dir() {
            remove_folder(&path)
        } else if is_mount_point(&path) {
            Ok(())
        } else {
            std::fs::remove_file(&path)
        };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

fn digest_of(code: &str) -> anyhow::Result<String> {
    let name = code.split(['?', '#']).next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    let digest = name.strip_suffix(".tar.zst").unwrap_or_default();
    let is_digest = digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    ensure!(is_digest, "the bundle {code} is not named <sha256>.tar.zst");
    Ok(digest.to_owned())
}

async fn fetch(metadata: &Metadata, code: &str, digest: &str, to: &Path) -> anyhow::Result<()> {
    if to.is_file() && hash_file(to).await? == digest {
        return Ok(());
    }
    let own = OwnFile::beside(to);
    let part = &own.0;
    match code.split_once("://") {
        Some(("file", path)) => {
            tokio::fs::copy(path, part).await.with_context(|| format!("cannot copy {path}"))?;
        }
        Some(("gs", path)) => download(metadata, gcs_url(path)?, true, part).await?,
        Some(("http" | "https", _)) => download(metadata, reqwest::Url::parse(code)?, false, part).await?,
        _ => bail!("{code} is no gs://, file://, http:// or https:// address"),
    }
    let found = hash_file(part).await?;
    if found != digest {
        // Short, for the line is shown as evidence; and with the next step, since nobody sends what has the name already.
        let (found, named) = (&found[..12], &digest[..12]);
        bail!(
            "the bundle has digest {found}…, not {named}… as its name says: remove it, and `rekindle run` sends it anew"
        );
    }
    tokio::fs::rename(part, to).await.context("cannot keep the bundle")
}

/// The address of an object's content in the JSON API.
fn gcs_url(path: &str) -> anyhow::Result<reqwest::Url> {
    let (bucket, object) = path.split_once('/').context("no object in the address")?;
    let base = std::env::var("STORAGE_EMULATOR_HOST").ok().filter(|host| !host.is_empty());
    let base = match &base {
        Some(host) if host.contains("://") => host.trim_end_matches('/').to_owned(),
        Some(host) => format!("http://{host}"),
        None => "https://storage.googleapis.com".to_owned(),
    };
    let mut url = reqwest::Url::parse(&base)?;
    url.path_segments_mut()
        .map_err(|()| anyhow::anyhow!("{base} is no address"))?
        .pop_if_empty()
        .extend(["storage", "v1", "b", bucket, "o", object]);
    url.set_query(Some("alt=media"));
    Ok(url)
}

async fn download(metadata: &Metadata, url: reqwest::Url, with_token: bool, to: &Path) -> anyhow::Result<()> {
    let mut http = reqwest::Client::builder().connect_timeout(STALL_LIMIT).read_timeout(STALL_LIMIT);
    if url.scheme() == "http" {
        http = http.no_proxy();
    }
    let mut request = http.build()?.get(url);
    if with_token {
        request = request.bearer_auth(metadata.access_token().await?);
    }
    let mut answer = request.send().await?.error_for_status()?;
    let mut file = files::make_anew(to).context("cannot write the bundle")?;
    while let Some(bytes) = answer.chunk().await? {
        file.write_all(&bytes).context("cannot write the bundle")?;
    }
    Ok(())
}

async fn hash_file(path: &Path) -> anyhow::Result<String> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || {
        let mut file = File::open(&path)?;
        let mut hasher = Sha256::new();
        let mut buffer = vec![0_u8; 1 << 20];
        loop {
            let n = file.read(&mut buffer)?;
            if n == 0 {
                return Ok(hex::encode(hasher.finalize()));
            }
            hasher.update(&buffer[..n]);
        }
    })
    .await
    .context("the hashing ended")?
}

/// Folders inside a working directory that is a mount point, where a bundle is unpacked and the old content waits.
const NEW: &str = ".rekindle-new";
const OLD: &str = ".rekindle-old";

fn install(layout: &Layout, bundle: &Path, code: &str) -> anyhow::Result<()> {
    let work = layout.work();
    if holds_mount(&work) {
        install_below(layout, bundle)?;
    } else {
        install_whole(layout, bundle)?;
    }
    // A machine that loses power keeps the mark and not the files otherwise, and every attempt after it would run half of them.
    if layout.has_buffer() {
        let synced = File::open(&work).and_then(|folder| Ok(rustix::fs::syncfs(folder)?));
        synced.with_context(|| format!("cannot write {} to the disk", work.display()))?;
    }
    files::replace_json(&layout.unpacked(), &code)?;
    // What `setup` made in the old folder is gone with it.
    let _ = std::fs::remove_file(layout.setup_done());
    remove(&layout.generation().join("work.old"))?;
    remove(&work.join(OLD))
}

/// The new folder takes the place of the old one at once.
fn install_whole(layout: &Layout, bundle: &Path) -> anyhow::Result<()> {
    let (new, old) = (layout.generation().join("work.new"), layout.generation().join("work.old"));
    unpack(bundle, &new)?;
    let work = layout.work();
    remove(&old)?;
    let _ = std::fs::remove_file(layout.unpacked());
    if work.exists() {
        std::fs::rename(&work, &old)?;
    }
    std::fs::rename(&new, &work)?;
    Ok(())
}

/// Nothing can take the place of a mount point (`EBUSY`), nor come into it from another file system (`EXDEV`): the
/// bundle is unpacked inside, and then what lies in the folder is exchanged, entry by entry.
///
/// The mark that names the bundle is gone before the first exchange and comes after the last one, so that whoever was
/// interrupted in between begins again.
fn install_below(layout: &Layout, bundle: &Path) -> anyhow::Result<()> {
    let work = layout.work();
    let (new, old) = (work.join(NEW), work.join(OLD));
    remove(&old)?;
    unpack(bundle, &new)?;
    let _ = std::fs::remove_file(layout.unpacked());
    std::fs::create_dir(&old).with_context(|| format!("cannot make {}", old.display()))?;
    move_entries(&work, &old)?;
    move_entries(&new, &work)?;
    remove(&new)
}

/// Moves all that lies in a folder, our own two folders apart. Mounts stay where they are, and with them the folders above.
fn move_entries(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let name = entry?.file_name();
        if name == NEW || name == OLD {
            continue;
        }
        let (old, new) = (from.join(&name), to.join(&name));
        if is_mount_point(&old) {
            // That is the machine's, and no part of a bundle.
            continue;
        }
        let is_kept = is_folder(&new) && !is_mount_point(&new);
        if is_folder(&old) && (is_kept || holds_mount(&old)) {
            std::fs::create_dir_all(&new).with_context(|| format!("cannot make {}", new.display()))?;
            move_entries(&old, &new)?;
        } else {
            std::fs::rename(&old, &new).with_context(|| format!("cannot move {}", old.display()))?;
        }
    }
    Ok(())
}

fn unpack(bundle: &Path, to: &Path) -> anyhow::Result<()> {
    remove(to)?;
    extract(bundle, to)
}

#[cfg(test)]
mod tests {
    use rekindle_core::ids::JobId;

    use super::*;

    fn bundle(folder: &Path) -> String {
        let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 0).unwrap());
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o755);
        tar.append_data(&mut header, "bin/train.sh", &b"hi\n"[..]).unwrap();
        let bytes = tar.into_inner().unwrap().finish().unwrap();
        let digest = hex::encode(Sha256::digest(&bytes));
        let path = folder.join(format!("{digest}.tar.zst"));
        std::fs::write(&path, bytes).unwrap();
        format!("file://{}", path.display())
    }

    #[tokio::test]
    async fn unpacks_a_bundle_once_and_refuses_a_wrong_one() {
        let folder = tempfile::tempdir().unwrap();
        let code = bundle(folder.path());
        let home = folder.path().join("home");
        let layout = Layout::new(&home, &home, &JobId::parse("a").unwrap(), 1);
        layout.make().unwrap();
        let metadata = Metadata::new("127.0.0.1:9").unwrap();
        prepare(&layout, &metadata, Some(&code)).await.unwrap();
        let script = layout.work().join("bin/train.sh");
        assert_eq!(std::fs::read(&script).unwrap(), b"hi\n");
        std::fs::write(layout.work().join("made"), "").unwrap();
        prepare(&layout, &metadata, Some(&code)).await.unwrap();
        assert!(layout.work().join("made").exists(), "the same bundle is not unpacked again");

        let (_, path) = code.split_once("file://").unwrap();
        let wrong = folder.path().join(format!("{}.tar.zst", "0".repeat(64)));
        std::fs::copy(path, &wrong).unwrap();
        let to = layout.generation().join("x.tar.zst");
        let error = fetch(&metadata, &format!("file://{}", wrong.display()), &"0".repeat(64), &to).await.unwrap_err();
        assert!(format!("{error:#}").contains("the bundle has digest"), "{error:#}");
        let left = names(layout.generation());
        assert!(!left.iter().any(|name| name.starts_with("x.")), "what was fetched for nothing is gone: {left:?}");
    }

    /// What lies in a folder, by name.
    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn content_is_exchanged_inside_a_folder_and_an_interrupted_exchange_begins_again() {
        let folder = tempfile::tempdir().unwrap();
        let code = bundle(folder.path());
        let packed = Path::new(code.strip_prefix("file://").unwrap());
        let home = folder.path().join("home");
        let layout = Layout::new(&home, &home, &JobId::parse("a").unwrap(), 1);
        layout.make().unwrap();
        let work = layout.work();
        std::fs::create_dir_all(work.join("bin")).unwrap();
        std::fs::write(work.join("bin/train.sh"), "of the last bundle").unwrap();
        std::fs::write(work.join("cache"), "x").unwrap();
        // An agent died in the middle of an exchange: pieces of both lie there.
        std::fs::create_dir_all(work.join(NEW).join("half")).unwrap();
        std::fs::create_dir_all(work.join(OLD).join("half")).unwrap();
        files::replace_json(&layout.unpacked(), &"another").unwrap();

        install_below(&layout, packed).unwrap();
        assert!(!layout.unpacked().exists(), "not marked before all of it is there");
        assert_eq!(names(&work), [OLD, "bin"]);
        assert_eq!(names(&work.join(OLD)), ["bin", "cache"]);
        assert_eq!(std::fs::read(work.join("bin/train.sh")).unwrap(), b"hi\n");
    }

    #[tokio::test]
    async fn a_bundle_is_installed_into_a_folder_that_is_a_mount_point() {
        const NAME: &str = "a_bundle_is_installed_into_a_folder_that_is_a_mount_point";
        if !rustix::process::geteuid().is_root() {
            return skipped(NAME, "a mount needs root");
        }
        let folder = tempfile::tempdir().unwrap();
        let code = bundle(folder.path());
        let home = folder.path().join("home");
        let layout = Layout::new(&home, &home, &JobId::parse("a").unwrap(), 1);
        layout.make().unwrap();
        let work = layout.work();
        std::fs::create_dir(&work).unwrap();
        let Some(_outer) = Mount::new(&work) else { return skipped(NAME, "no tmpfs can be mounted here") };
        let data = work.join("data");
        std::fs::create_dir(&data).unwrap();
        let _inner = Mount::new(&data).unwrap();
        std::fs::write(work.join("data/shard"), "kept").unwrap();
        assert!(is_mount_point(&work) && !is_mount_point(layout.generation()));
        assert!(std::fs::rename(&work, layout.generation().join("x")).is_err(), "else there is nothing to test");

        let metadata = Metadata::new("127.0.0.1:9").unwrap();
        prepare(&layout, &metadata, Some(&code)).await.unwrap();
        assert_eq!(names(&work), ["bin", "data"]);
        std::fs::write(work.join("cache"), "x").unwrap();
        clean(&layout).unwrap();
        assert_eq!(names(&work), ["data"]);
        prepare(&layout, &metadata, Some(&code)).await.unwrap();
        assert_eq!(std::fs::read(work.join("bin/train.sh")).unwrap(), b"hi\n");
        assert_eq!(std::fs::read(work.join("data/shard")).unwrap(), b"kept", "mounts are the machine's");
    }

    #[tokio::test]
    async fn what_is_mounted_below_the_working_directory_stays_where_it_is() {
        const NAME: &str = "what_is_mounted_below_the_working_directory_stays_where_it_is";
        if !rustix::process::geteuid().is_root() {
            return skipped(NAME, "a mount needs root");
        }
        let folder = tempfile::tempdir().unwrap();
        let code = bundle(folder.path());
        let home = folder.path().join("home");
        let layout = Layout::new(&home, &home, &JobId::parse("a").unwrap(), 1);
        layout.make().unwrap();
        let work = layout.work();
        // One on an entry, one deeper, in a folder that the bundle has too, and under a name that the kernel escapes in its list.
        let [flat, deep] = ["data", "bin/deep/all my\\data"].map(|name| work.join(name));
        std::fs::create_dir_all(&flat).unwrap();
        std::fs::create_dir_all(&deep).unwrap();
        let Some(_flat) = Mount::new(&flat) else { return skipped(NAME, "no tmpfs can be mounted here") };
        let _deep = Mount::new(&deep).unwrap();
        let metadata = Metadata::new("127.0.0.1:9").unwrap();
        for (round, text) in ["first", "second"].iter().enumerate() {
            for mounted in [&flat, &deep] {
                std::fs::write(mounted.join(format!("ckpt-{round}")), text).unwrap();
            }
            std::fs::write(work.join("bin/deep/junk"), "x").unwrap();
            std::fs::write(work.join("junk"), "x").unwrap();
            empty(&layout).await.unwrap();
            assert_eq!(
                (names(&work), names(&work.join("bin/deep"))),
                (vec!["bin".into(), "data".into()], vec!["all my\\data".into()])
            );
            prepare(&layout, &metadata, Some(&code)).await.unwrap();
            assert_eq!(std::fs::read(work.join("bin/train.sh")).unwrap(), b"hi\n");
            assert_eq!(names(&work), ["bin", "data"], "no pieces lie about");
            for mounted in [&flat, &deep] {
                assert_eq!(std::fs::read_to_string(mounted.join(format!("ckpt-{round}"))).unwrap(), *text);
                assert_eq!(names(mounted).len(), round + 1);
            }
        }
    }

    #[tokio::test]
    async fn a_change_that_nobody_waits_for_any_more_is_not_begun_and_the_next_waits_for_one_under_way() {
        let (begun, is_begun) = std::sync::mpsc::channel();
        let (go, may_go) = std::sync::mpsc::channel::<()>();
        let (done, is_done) = std::sync::mpsc::channel();
        let said = done.clone();
        let first = tokio::spawn(exclusive(move || {
            begun.send(()).unwrap();
            let _ = may_go.recv();
            said.send("first").map_err(anyhow::Error::from)
        }));
        tokio::task::spawn_blocking(move || is_begun.recv()).await.unwrap().unwrap();
        let said = done.clone();
        let second = tokio::spawn(exclusive(move || said.send("second").map_err(anyhow::Error::from)));
        tokio::task::yield_now().await;
        for task in [first, second] {
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
        }
        let third = tokio::spawn(exclusive(move || done.send("third").map_err(anyhow::Error::from)));
        drop(go);
        third.await.unwrap().unwrap();
        let said = tokio::task::spawn_blocking(move || is_done.iter().collect::<Vec<_>>()).await.unwrap();
        assert_eq!(said, ["first", "third"]);
    }

    /// A file system in memory, unmounted with this value.
    struct Mount<'a>(&'a Path);

    impl<'a> Mount<'a> {
        fn new(at: &'a Path) -> Option<Self> {
            let done = std::process::Command::new("mount").args(["-t", "tmpfs", "none"]).arg(at).status();
            done.is_ok_and(|status| status.success()).then_some(Self(at))
        }
    }

    impl Drop for Mount<'_> {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg("--lazy").arg(self.0).status();
        }
    }

    /// Says by name that a test cannot run here; with CI=true that is a failure.
    fn skipped(test: &str, why: &str) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{test} must not be skipped in CI: {why}");
        std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes()).unwrap();
    }

    #[tokio::test]
    async fn an_emptied_folder_holds_nothing_but_the_code() {
        let folder = tempfile::tempdir().unwrap();
        let code = bundle(folder.path());
        let home = folder.path().join("home");
        let layout = Layout::new(&home, &home, &JobId::parse("a").unwrap(), 1);
        layout.make().unwrap();
        clean(&layout).unwrap();
        let metadata = Metadata::new("127.0.0.1:9").unwrap();
        prepare(&layout, &metadata, Some(&code)).await.unwrap();
        files::replace_json(&layout.setup_done(), &"x").unwrap();
        let work = layout.work();
        std::fs::create_dir_all(work.join("cache/deep")).unwrap();
        std::fs::write(work.join("cache/deep/shard"), "x").unwrap();
        std::fs::write(work.join("bin/train.sh"), "changed").unwrap();
        std::fs::write(folder.path().join("elsewhere"), "kept").unwrap();
        std::os::unix::fs::symlink(folder.path(), work.join("link")).unwrap();

        clean(&layout).unwrap();
        assert!(work.is_dir() && std::fs::read_dir(&work).unwrap().next().is_none());
        assert!(!layout.setup_done().exists(), "setup runs again");
        assert_eq!(std::fs::read(folder.path().join("elsewhere")).unwrap(), b"kept", "links are not followed");
        prepare(&layout, &metadata, Some(&code)).await.unwrap();
        assert_eq!(std::fs::read(work.join("bin/train.sh")).unwrap(), b"hi\n", "the code is unpacked anew");
    }

    #[test]
    fn reads_the_digest_of_an_address() {
        let digest = "a".repeat(64);
        assert_eq!(digest_of(&format!("gs://b/x/{digest}.tar.zst")).unwrap(), digest);
        assert_eq!(digest_of(&format!("http://h/{digest}.tar.zst?sig=1")).unwrap(), digest);
        assert!(digest_of("gs://b/x/code.tar.zst").is_err());
    }

    #[test]
    fn an_object_with_slashes_is_one_segment() {
        let url = gcs_url("bucket/bundles/a.tar.zst").unwrap();
        assert!(url.as_str().ends_with("/storage/v1/b/bucket/o/bundles%2Fa.tar.zst?alt=media"), "{url}");
    }
}
