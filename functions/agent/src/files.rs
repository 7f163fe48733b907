//! The agent's folders, and files that are either old or new but never half.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use rekindle_core::ids::JobId;

use crate::spool;

/// The folders of one generation of one job, under the agent's home.
///
/// What a program writes and what is known of its processes lies in the buffer: in memory on a TPU VM, so that neither a
/// slow nor a full disk holds up a program or loses what it said. A reboot takes it away together with the program.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    home: PathBuf,
    generation: PathBuf,
    buffer: PathBuf,
    root: PathBuf,
}

impl Layout {
    /// The layout of a generation. `buffer` may be `home`.
    pub(crate) fn new(home: &Path, buffer: &Path, job: &JobId, generation: u32) -> Self {
        let of = |root: &Path| root.join("jobs").join(job.as_str()).join(format!("g{generation}"));
        let root = buffer.parent().unwrap_or(buffer).to_owned();
        Self { home: home.to_owned(), generation: of(home), buffer: of(buffer), root }
    }

    /// Makes the folders that do not come and go.
    pub(crate) fn make(&self) -> io::Result<()> {
        let below = self.home.parent().unwrap_or(&self.home);
        // A program may have put a file in the place of one.
        fs::create_dir_all(&self.generation).or_else(|_| spool::again(&self.generation, below))?;
        make_private(&self.buffer).or_else(|_| spool::again(&self.buffer, &self.root))
    }

    /// A machine of its own, whose output waits in memory, which a reboot empties; else a person's or a test's, whose disks are
    /// not to be waited for.
    pub(crate) fn has_buffer(&self) -> bool {
        self.buffer != self.generation
    }

    /// What the buffer was made in, which is not ours: whatever of ours a program removes below it is made again
    /// ([`spool::again`]), as long as it is there itself. It goes with the disk of the machine, in an emulator.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Held by the one agent that acts.
    pub(crate) fn lock(&self) -> PathBuf {
        self.home.join("agent.lock")
    }

    /// What the agent must not forget.
    pub(crate) fn state(&self) -> PathBuf {
        self.generation.join("state.json")
    }

    /// The token of this generation.
    pub(crate) fn token(&self) -> PathBuf {
        self.generation.join("token.json")
    }

    /// Where the program runs.
    pub(crate) fn work(&self) -> PathBuf {
        self.generation.join("work")
    }

    /// Folder of the generation; bundles are unpacked beside the working directory, on the same file system.
    pub(crate) fn generation(&self) -> &Path {
        &self.generation
    }

    /// Names the bundle that the working directory holds.
    pub(crate) fn unpacked(&self) -> PathBuf {
        self.generation.join("code.done")
    }

    /// Present once `setup` ended well.
    pub(crate) fn setup_done(&self) -> PathBuf {
        self.generation.join("setup.done")
    }

    /// Folder of one attempt.
    pub(crate) fn attempt(&self, number: u32) -> PathBuf {
        self.buffer.join(format!("a{number}"))
    }

    /// True once nothing will be written to the folder of an attempt any more.
    pub(crate) fn is_closed(&self, number: u32) -> bool {
        fs::read_link(self.attempt(number).join(CLOSED)).is_ok_and(|said| said == Path::new(&closed(number)))
    }

    /// Says that nothing will be written there any more.
    pub(crate) fn close(&self, number: u32) -> io::Result<()> {
        let folder = self.attempt(number);
        if self.is_closed(number) {
            return Ok(());
        }
        // The program may have removed it.
        spool::again(&folder, &self.root)?;
        let path = folder.join(CLOSED);
        if fs::symlink_metadata(&path).is_ok() {
            put_aside(&path, |_| false)?;
        }
        // It takes no room on a full disk, and no program makes such a thing by chance.
        std::os::unix::fs::symlink(closed(number), path)
    }

    /// How far the output of an attempt was sent, for an agent that finds the buffer empty after a reboot.
    pub(crate) fn sent(&self, number: u32) -> PathBuf {
        self.generation.join(format!("a{number}.sent.json"))
    }

    /// Where the TPU runtime logs for an attempt: too much for the buffer, and it may be lost.
    pub(crate) fn tpu_logs(&self, number: u32) -> PathBuf {
        self.generation.join("tpu_logs").join(format!("a{number}"))
    }

    /// The attempts that have a folder, in order.
    pub(crate) fn attempts(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir(&self.buffer) else { return Vec::new() };
        let mut numbers: Vec<u32> = entries
            .filter_map(Result::ok)
            .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.strip_prefix('a')?.parse().ok()))
            .collect();
        numbers.sort_unstable();
        numbers
    }
}

/// Name of the link, in an attempt's folder, that says that nothing will be written there any more.
const CLOSED: &str = "closed";

/// Where it leads, which is nowhere.
fn closed(number: u32) -> String {
    format!("rekindle: attempt {number} is over")
}

/// Smallest piece of a disk, and of memory.
const PAGE: usize = 4096;

/// The regular file at a path itself. A program may have put something else there.
pub(crate) fn file_at(path: &Path) -> Option<fs::Metadata> {
    fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)
}

/// Moves what a program put in the place of a file or folder of ours to a name beside it, where only the last such thing is kept. What
/// is ours there stays, as another keeper may have put it right meanwhile.
pub(crate) fn put_aside(path: &Path, is_ours: impl Fn(&fs::Metadata) -> bool) -> io::Result<()> {
    let is_folder = fs::symlink_metadata(path)?.is_dir();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(if is_folder { ".folder" } else { ".aside" });
    let aside = path.with_file_name(name);
    tracing::warn!(path = %path.display(), aside = %aside.display(), "somebody put something else in the place of what is ours");
    // Of the same kind as what was seen there, for what is put right from now on. What else is there may be a pipe, which is waited for.
    let _ = fs::remove_file(&aside).or_else(|_| fs::remove_dir_all(&aside));
    let made = if is_folder { fs::create_dir(&aside) } else { fs::File::create_new(&aside).map(drop) };
    made.or_else(|error| if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })?;
    if fs::symlink_metadata(path).is_ok_and(|there| is_ours(&there)) {
        return Ok(());
    }
    fs::rename(path, aside)
}

/// Makes a folder of an attempt.
pub(crate) fn make_folder(folder: &Path) {
    if let Err(error) = fs::create_dir_all(folder) {
        tracing::error!(path = %folder.display(), %error, "cannot make a folder of the attempt");
    }
}

/// Makes a folder of the buffer, and what it is in; only their owner may look into them.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Replaces a file as a whole; only its owner may read it.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let done = file.write_all(bytes);
    drop(file);
    let put = || match fs::rename(&new, path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            put_aside(path, fs::Metadata::is_file).and_then(|()| fs::rename(&new, path))
        }
        put => put,
    };
    // A full disk is not made fuller.
    done.and_then(|()| put()).inspect_err(|_| drop(fs::remove_file(&new)))
}

/// [`replace`] with JSON.
pub(crate) fn replace_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    replace(path, &serde_json::to_vec(value).map_err(io::Error::other)?)
}

/// [`replace`] with JSON, and where the disk has no room for a second file, over the first: such a paper can be written as
/// long as it is there.
pub(crate) fn rewrite(path: &Path, json: &[u8]) -> io::Result<()> {
    replace(path, json).or_else(|error| overwrite(path, json.to_vec()).map_err(|_| error))
}

/// [`rewrite`] with what is no JSON yet.
pub(crate) fn rewrite_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    rewrite(path, &serde_json::to_vec(value).map_err(io::Error::other)?)
}

/// Puts bytes over a file that is there. They need no room, and an agent that is killed leaves old or new ones: both are within
/// the one page that the file has.
fn overwrite(path: &Path, mut bytes: Vec<u8>) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(path)?;
    let was = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    if was == 0 || was.max(bytes.len()) > PAGE {
        return Err(io::ErrorKind::StorageFull.into());
    }
    bytes.resize(was.max(bytes.len()), b' ');
    file.write_all_at(&bytes, 0)
}

/// Makes a file with JSON, as a whole; `false` if it was there already.
pub(crate) fn create_json<T: Serialize>(path: &Path, value: &T) -> io::Result<bool> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.mine", std::process::id()));
    let mine = path.with_file_name(name);
    replace_json(&mine, value)?;
    let linked = fs::hard_link(&mine, path);
    fs::remove_file(&mine)?;
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads JSON. A file that is missing or damaged (a machine that lost power) is `None`.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    // A pipe would be waited for.
    file_at(path)?;
    let bytes = fs::read(path).ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(value) => Some(value),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a damaged file is taken for missing");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_right_meanwhile_is_not_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("paper"), folder.path().join("paper.aside"));
        // A pipe would be waited for.
        rustix::fs::mknodat(rustix::fs::CWD, &aside, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        fs::write(&path, "ours").unwrap();
        put_aside(&path, fs::Metadata::is_file).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ours");
        put_aside(&path, fs::Metadata::is_dir).unwrap();
        assert_eq!((fs::read(&aside).unwrap().as_slice(), path.exists()), (&b"ours"[..], false));
        fs::create_dir_all(path.join("deep")).unwrap();
        put_aside(&path, fs::Metadata::is_file).unwrap();
        assert!(folder.path().join("paper.folder/deep").is_dir());
    }

    #[test]
    fn what_is_written_over_a_paper_is_read_as_if_it_were_new() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("paper");
        overwrite(&path, b"[1]".to_vec()).expect_err("there is none");
        replace(&path, b"[1,2,3]").unwrap();
        for text in ["[4]", "[1,2,3,4,5]"] {
            overwrite(&path, text.into()).unwrap();
            assert_eq!(read_json::<Vec<u8>>(&path), serde_json::from_str(text).ok());
        }
        overwrite(&path, vec![b' '; PAGE + 1]).expect_err("it would need room");
        assert_eq!(read_json::<Vec<u8>>(&path), Some(vec![1, 2, 3, 4, 5]));
    }
}
