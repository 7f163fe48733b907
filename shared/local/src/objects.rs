//! Objects on disk: one file for each, named as the object.
//!
//! **Invariant:** a file under its name is whole. It is written beside, flushed, renamed, and the folder is flushed,
//! so that a killed process leaves the old object or the new one. Uploads by others need an address that
//! [`FileObjects::upload_address`] gave out.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use rekindle_ports::world::{OBJECT_NAME_MAX, Objects, WorldError};

/// How long an upload address is good for.
const UPLOAD_FOR: Duration = Duration::from_mins(15);

/// Longest part of an object's name between two slashes, in bytes: it is the name of a file.
const PART_MAX: usize = 255;

/// Where half-written files stand. Names of objects never begin with a dot.
const UNFINISHED: &str = ".unfinished";

/// Name of the file that holds the key of upload addresses.
const KEY_FILE: &str = ".upload-key";

/// Why an upload was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UploadRefused {
    /// The address was not given out by us, or for another object.
    #[error("this address was not given out for this object")]
    Forged,
    /// It was given out too long ago.
    #[error("this address has expired; ask for a new one")]
    Expired,
}

struct Inner {
    dir: PathBuf,
    base_url: String,
    key: [u8; 32],
}

/// Objects under one folder.
#[derive(Clone)]
pub struct FileObjects {
    inner: Arc<Inner>,
}

impl FileObjects {
    /// Opens the folder, or makes it. `base_url` is where `GET` and `PUT` of `<base_url>/objects/<name>` are served.
    /// Blocks.
    pub fn open(dir: impl Into<PathBuf>, base_url: impl Into<String>) -> Result<Self, WorldError> {
        let (dir, base_url) = (dir.into(), base_url.into());
        let opened = || -> std::io::Result<[u8; 32]> {
            let unfinished = dir.join(UNFINISHED);
            if unfinished.exists() {
                std::fs::remove_dir_all(&unfinished)?;
            }
            std::fs::create_dir_all(&unfinished)?;
            upload_key(&dir)
        };
        let key = opened().map_err(|e| failed("open the object store", &dir.display().to_string(), &e))?;
        let base_url = base_url.trim_end_matches('/').to_owned();
        Ok(Self { inner: Arc::new(Inner { dir, base_url, key }) })
    }

    /// Checks what came with an upload to `name`: the `expires` and `signature` of the address's query.
    pub fn accept_upload(&self, name: &str, expires: i64, signature: &str) -> Result<(), UploadRefused> {
        let given = blake3::Hash::from_hex(signature).map_err(|_| UploadRefused::Forged)?;
        // `Hash` compares in constant time.
        if given != self.inner.sign(name, expires) {
            return Err(UploadRefused::Forged);
        }
        if Timestamp::now().as_second() > expires {
            return Err(UploadRefused::Expired);
        }
        Ok(())
    }

    async fn blocking<T: Send + 'static>(
        &self,
        what: &'static str,
        name: &str,
        work: impl FnOnce(&Inner, &Path) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, WorldError> {
        let path = self.inner.path(what, name)?;
        let inner = Arc::clone(&self.inner);
        let done = tokio::task::spawn_blocking(move || work(&inner, &path)).await;
        let done = done.unwrap_or_else(|ended| Err(std::io::Error::other(ended)));
        done.map_err(|e| failed(what, name, &e))
    }
}

impl Inner {
    fn path(&self, what: &'static str, name: &str) -> Result<PathBuf, WorldError> {
        if is_name(name) {
            return Ok(self.dir.join(name));
        }
        Err(WorldError { what, why: format!("{name:?} is no object name") })
    }

    fn sign(&self, name: &str, expires: i64) -> blake3::Hash {
        blake3::keyed_hash(&self.key, format!("PUT\n{name}\n{expires}").as_bytes())
    }

    fn write(&self, path: &Path, body: &[u8]) -> std::io::Result<()> {
        let unfinished = self.dir.join(UNFINISHED).join(format!("{:032x}", rand::random::<u128>()));
        self.write_beside(&unfinished, path, body).inspect_err(|_| {
            // On a full disk half a file would keep the room that the next one needs. Best effort: what is left is taken away at the
            // next start.
            let _left = std::fs::remove_file(&unfinished);
        })
    }

    fn write_beside(&self, unfinished: &Path, path: &Path, body: &[u8]) -> std::io::Result<()> {
        let mut file = std::fs::File::create(unfinished)?;
        file.write_all(body)?;
        file.sync_all()?;
        let folder = path.parent().unwrap_or(&self.dir);
        make_folders(&self.dir, folder)?;
        std::fs::rename(unfinished, path)?;
        sync_folder(folder)
    }

    fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> std::io::Result<Vec<String>> {
        // Only folders that a name with the prefix can be in.
        let start = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut names = Vec::new();
        if start.is_empty() || is_name(start) {
            walk(&self.dir, start, &mut names)?;
        }
        names.retain(|n| n.starts_with(prefix) && after.is_none_or(|a| n.as_str() > a));
        names.sort_unstable();
        names.truncate(limit);
        Ok(names)
    }
}

#[async_trait]
impl Objects for FileObjects {
    async fn put(&self, name: &str, body: Bytes) -> Result<(), WorldError> {
        self.blocking("write an object", name, move |inner, path| inner.write(path, &body)).await
    }

    async fn get(&self, name: &str, from: u64, len: u64) -> Result<Option<Bytes>, WorldError> {
        // What is asked for comes from outside, and what cannot be named is not there.
        if !is_name(name) {
            return Ok(None);
        }
        self.blocking("read an object", name, move |_, path| {
            let Some(mut file) = open(path)? else { return Ok(None) };
            file.seek(SeekFrom::Start(from))?;
            let mut body = Vec::new();
            file.take(len).read_to_end(&mut body)?;
            Ok(Some(body.into()))
        })
        .await
    }

    async fn size(&self, name: &str) -> Result<Option<u64>, WorldError> {
        if !is_name(name) {
            return Ok(None);
        }
        self.blocking("look at an object", name, |_, path| {
            open(path)?.map(|file| file.metadata().map(|m| m.len())).transpose()
        })
        .await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<String>, WorldError> {
        let inner = Arc::clone(&self.inner);
        let (owned, after) = (prefix.to_owned(), after.map(str::to_owned));
        let listed = tokio::task::spawn_blocking(move || inner.list(&owned, after.as_deref(), limit)).await;
        let listed = listed.unwrap_or_else(|ended| Err(std::io::Error::other(ended)));
        listed.map_err(|e| failed("list objects", prefix, &e))
    }

    async fn upload_address(&self, name: &str) -> Result<String, WorldError> {
        self.inner.path("give out an upload address", name)?;
        let expires = Timestamp::now().as_second() + UPLOAD_FOR.as_secs().cast_signed();
        let signature = self.inner.sign(name, expires);
        Ok(format!("{}/objects/{name}?expires={expires}&signature={signature}", self.inner.base_url))
    }

    fn part_max(&self) -> usize {
        PART_MAX
    }
}

/// Whether it is a name of an object: segments of `[A-Za-z0-9._=+@~-]`, none beginning with a dot.
pub fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'=' | b'+' | b'@' | b'~' | b'-');
    let well = |s: &str| !s.is_empty() && !s.starts_with('.') && s.len() <= PART_MAX && s.bytes().all(plain);
    name.len() <= OBJECT_NAME_MAX && name.split('/').all(well)
}

fn open(path: &Path) -> std::io::Result<Option<std::fs::File>> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    match std::fs::File::open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(Some(file)),
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a folder and those above it, and flushes each one that got a new entry.
fn make_folders(root: &Path, folder: &Path) -> std::io::Result<()> {
    if folder == root || folder.is_dir() {
        return Ok(());
    }
    let above = folder.parent().unwrap_or(root);
    make_folders(root, above)?;
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_folder(above),
    }
}

fn sync_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

fn walk(root: &Path, folder: &str, names: &mut Vec<String>) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(root.join(folder)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let Ok(leaf) = entry.file_name().into_string() else { continue };
        if leaf.starts_with('.') {
            continue;
        }
        let name = if folder.is_empty() { leaf } else { format!("{folder}/{leaf}") };
        if entry.file_type()?.is_dir() {
            walk(root, &name, names)?;
        } else {
            names.push(name);
        }
    }
    Ok(())
}

/// Reads the key, or makes it. It is kept, so that addresses stay good over a restart.
fn upload_key(dir: &Path) -> std::io::Result<[u8; 32]> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = dir.join(KEY_FILE);
    // A pipe would be waited for.
    if std::fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
        return Err(std::io::Error::other(format!("{KEY_FILE} is no regular file; without any a new one is made")));
    }
    if let Ok(kept) = std::fs::read(&path)
        && let Ok(key) = <[u8; 32]>::try_from(kept)
    {
        return Ok(key);
    }
    let key: [u8; 32] = rand::random();
    let mut file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
    file.write_all(&key)?;
    file.sync_all()?;
    Ok(key)
}

fn failed(what: &'static str, name: &str, error: &std::io::Error) -> WorldError {
    WorldError { what, why: format!("{name}: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_the_place_of_the_key_is_refused_by_name_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(KEY_FILE);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let Err(refused) = FileObjects::open(dir.path(), "http://127.0.0.1:1/") else { panic!("it is no key") };
        assert!(refused.to_string().contains(".upload-key is no regular file"), "{refused}");
    }

    fn store(dir: &Path) -> FileObjects {
        FileObjects::open(dir, "http://127.0.0.1:1/").unwrap()
    }

    #[tokio::test]
    async fn what_is_written_is_read_back_in_parts_and_over_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let objects = store(dir.path());
        objects.put("jobs/a/logs/0001", Bytes::from_static(b"old and longer")).await.unwrap();
        objects.put("jobs/a/logs/0001", Bytes::from_static(b"hello")).await.unwrap();
        let objects = store(dir.path());
        assert_eq!(objects.size("jobs/a/logs/0001").await.unwrap(), Some(5));
        assert_eq!(objects.get("jobs/a/logs/0001", 1, 3).await.unwrap().unwrap(), "ell");
        assert_eq!(objects.get("jobs/a/logs/0001", 9, 3).await.unwrap().unwrap(), "");
        for absent in ["jobs/a/logs", "jobs/a/logs/2", "jobs/a/logs/0001/x"] {
            assert_eq!(objects.get(absent, 0, 9).await.unwrap(), None, "{absent}");
            assert_eq!(objects.size(absent).await.unwrap(), None, "{absent}");
        }
    }

    #[tokio::test]
    async fn names_that_lead_elsewhere_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let objects = store(&dir.path().join("objects"));
        let names = [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "a/../../x",
            "a//b",
            "a/",
            "a/.",
            ".upload-key",
            "a\0b",
            "a b",
            "%2e",
            &"long".repeat(80),
            &"a/".repeat(600),
        ];
        for name in names {
            assert!(objects.put(name, Bytes::new()).await.is_err(), "{name:?}");
            assert_eq!(objects.get(name, 0, 1).await.unwrap(), None, "{name:?}");
            assert_eq!(objects.size(name).await.unwrap(), None, "{name:?}");
            assert!(objects.upload_address(name).await.is_err(), "{name:?}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn whatever_is_not_too_long_can_be_written_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let objects = store(dir.path());
        let part = "x".repeat(PART_MAX);
        let longest = format!("{part}/{part}/{part}/{}", "y".repeat(OBJECT_NAME_MAX - 3 * (PART_MAX + 1)));
        assert_eq!(objects.too_long(&longest), None);
        objects.put(&longest, Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(objects.get(&longest, 0, 9).await.unwrap().unwrap(), "x");
        assert_eq!(objects.list("", None, 9).await.unwrap(), [longest.as_str()]);
        for (name, why) in [(format!("{longest}y"), "of 1001 bytes"), (format!("a/{part}x"), "a part of 256 bytes")] {
            assert!(objects.too_long(&name).unwrap().contains(why), "{name}");
            assert!(objects.put(&name, Bytes::new()).await.is_err(), "{name}");
        }
    }

    #[tokio::test]
    async fn nothing_is_left_of_a_write_that_failed() {
        let dir = tempfile::tempdir().unwrap();
        let objects = store(dir.path());
        objects.put("a", Bytes::from_static(b"a file")).await.unwrap();
        objects.put("b/c", Bytes::new()).await.unwrap();
        // A folder cannot be made where a file is, and no file can take the place of a folder.
        for name in ["a/b", "b"] {
            assert!(objects.put(name, Bytes::from_static(b"x")).await.is_err(), "{name}");
        }
        let unfinished = dir.path().join(UNFINISHED);
        assert_eq!(std::fs::read_dir(&unfinished).unwrap().count(), 0);
        // A killed process leaves some: the next one begins without them.
        std::fs::write(unfinished.join("half"), "x").unwrap();
        let objects = store(dir.path());
        assert_eq!(std::fs::read_dir(&unfinished).unwrap().count(), 0);
        objects.put("a", Bytes::from_static(b"new")).await.unwrap();
    }

    #[tokio::test]
    async fn lists_are_in_order_and_go_on_after_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let objects = store(dir.path());
        for name in ["jobs/b/2", "jobs/a-b/1", "jobs/a/2", "jobs/a/1", "bundles/x"] {
            objects.put(name, Bytes::new()).await.unwrap();
        }
        let list = async |prefix, after, limit| objects.list(prefix, after, limit).await.unwrap();
        assert_eq!(list("", None, 9).await, ["bundles/x", "jobs/a-b/1", "jobs/a/1", "jobs/a/2", "jobs/b/2"]);
        assert_eq!(list("jobs/a", None, 9).await, ["jobs/a-b/1", "jobs/a/1", "jobs/a/2"]);
        assert_eq!(list("jobs/a/", Some("jobs/a/1"), 9).await, ["jobs/a/2"]);
        assert_eq!(list("jobs/", None, 2).await, ["jobs/a-b/1", "jobs/a/1"]);
        assert!(list("../", None, 9).await.is_empty());
        assert!(list("nothing/", None, 9).await.is_empty());
    }

    #[tokio::test]
    async fn an_upload_needs_the_address_of_its_own_object() {
        let dir = tempfile::tempdir().unwrap();
        let objects = store(dir.path());
        let address = objects.upload_address("bundles/x").await.unwrap();
        let (place, query) = address.split_once('?').unwrap();
        assert_eq!(place, "http://127.0.0.1:1/objects/bundles/x");
        let (expires, signature) = query.split_once('&').unwrap();
        let expires: i64 = expires.strip_prefix("expires=").unwrap().parse().unwrap();
        let signature = signature.strip_prefix("signature=").unwrap();
        // A restart keeps the key.
        let objects = store(dir.path());
        assert_eq!(objects.accept_upload("bundles/x", expires, signature), Ok(()));
        assert_eq!(objects.accept_upload("bundles/y", expires, signature), Err(UploadRefused::Forged));
        assert_eq!(objects.accept_upload("bundles/x", expires + 1, signature), Err(UploadRefused::Forged));
        assert_eq!(objects.accept_upload("bundles/x", expires, "00"), Err(UploadRefused::Forged));
        let old = objects.inner.sign("bundles/x", 1).to_hex();
        assert_eq!(objects.accept_upload("bundles/x", 1, &old), Err(UploadRefused::Expired));
    }
}
