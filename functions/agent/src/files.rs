//! The agent's folders, and files that are either old or new but never half.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, OFlags, RenameFlags};
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

    /// Those of all attempts that have one.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        self.attempts().into_iter().map(|number| self.attempt(number)).collect()
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

/// Moves what a program put in the place of a file or folder of ours to a name beside it, where only the last such thing is kept,
/// whatever lies there. What is ours there stays, as another keeper may have put it right meanwhile.
pub(crate) fn put_aside(path: &Path, is_ours: impl Fn(&fs::Metadata) -> bool) -> io::Result<()> {
    if is_ours(&fs::symlink_metadata(path)?) {
        return Ok(());
    }
    let away = beside(path, "away");
    fs::rename(path, &away)?;
    let moved = fs::symlink_metadata(&away)?;
    // It was put right just now.
    if is_ours(&moved) && rustix::fs::renameat_with(CWD, &away, CWD, path, RenameFlags::NOREPLACE).is_ok() {
        return Ok(());
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(if moved.is_dir() { ".folder" } else { ".aside" });
    let aside = path.with_file_name(name);
    tracing::warn!(path = %path.display(), aside = %aside.display(), "somebody put something else in the place of what is ours");
    remove_any(&aside);
    // Where that cannot be removed, the other name is as good.
    let _ = fs::rename(&away, aside);
    Ok(())
}

/// A name beside a path that nobody else has: another process may do the same at this moment.
pub(crate) fn beside(path: &Path, word: &str) -> PathBuf {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{word}.{}.{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}

/// Removes a file, a folder with all that is in it, or whatever else there is.
fn remove_any(path: &Path) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
}

/// Opens a file of ours. The folder is open to the program: a pipe there would be waited for, and a link leads to what is not ours.
pub(crate) fn open_file(options: &mut fs::OpenOptions, path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no file")) }
}

/// Opens a file of ours to append to it, and to read it; what else is there is put aside.
pub(crate) fn append_to(path: &Path) -> io::Result<fs::File> {
    let open = || open_file(fs::OpenOptions::new().read(true).append(true).create(true), path);
    open().or_else(|error| {
        if fs::symlink_metadata(path).map_or(true, |there| there.is_file()) {
            return Err(error);
        }
        put_aside(path, fs::Metadata::is_file).and_then(|()| open())
    })
}

/// Makes a file in the place of whatever is there.
pub(crate) fn make_anew(path: &Path) -> io::Result<fs::File> {
    remove_any(path);
    fs::File::create_new(path)
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

/// Replaces a file as a whole; only its owner may read it. Nothing that lies in the way is waited for.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = beside(path, "new");
    let make = || fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let file = make().or_else(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        // A process that had the same number was killed, or the program knows the number.
        remove_any(&new);
        make()
    })?;
    put(file, &new, path, bytes)
}

/// [`replace`] by way of a name that is always the same for a process, which no program makes by chance. What hangs, a disk or a pipe that
/// has the name, holds up who calls this: what is written beside the machine, by a thread for it alone.
fn replace_slowly(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    put(file, &new, path, bytes)
}

/// Writes a new file and puts it in the place of another.
fn put(mut file: fs::File, new: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let done = file.write_all(bytes);
    drop(file);
    let put = || match fs::rename(new, path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            put_aside(path, fs::Metadata::is_file).and_then(|()| fs::rename(new, path))
        }
        put => put,
    };
    // A full disk is not made fuller.
    done.and_then(|()| put()).inspect_err(|_| drop(fs::remove_file(new)))
}

/// [`replace`] with JSON.
pub(crate) fn replace_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    replace(path, &serde_json::to_vec(value).map_err(io::Error::other)?)
}

/// [`replace`] with JSON, and where the disk has no room for a second file, over the first: such a paper can be written as
/// long as it is there.
pub(crate) fn rewrite_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let json = serde_json::to_vec(value).map_err(io::Error::other)?;
    replace(path, &json).or_else(|error| overwrite(path, json).map_err(|_| error))
}

/// The same by [`replace_slowly`].
pub(crate) fn rewrite_slowly(path: &Path, json: &[u8]) -> io::Result<()> {
    replace_slowly(path, json).or_else(|error| overwrite(path, json.to_vec()).map_err(|_| error))
}

/// Puts bytes over a file that is there. They need no room, and an agent that is killed leaves old or new ones: both are within
/// the one page that the file has.
fn overwrite(path: &Path, mut bytes: Vec<u8>) -> io::Result<()> {
    let file = open_file(fs::OpenOptions::new().write(true), path)?;
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
    let mut bytes = Vec::new();
    open_file(fs::OpenOptions::new().read(true), path).ok()?.read_to_end(&mut bytes).ok()?;
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
        make_fifo(&aside);
        fs::write(&path, "ours").unwrap();
        put_aside(&path, fs::Metadata::is_file).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ours");
        put_aside(&path, fs::Metadata::is_dir).unwrap();
        assert_eq!((fs::read(&aside).unwrap().as_slice(), path.exists()), (&b"ours"[..], false));
        fs::create_dir_all(path.join("deep")).unwrap();
        put_aside(&path, fs::Metadata::is_file).unwrap();
        assert!(folder.path().join("paper.folder/deep").is_dir());
    }

    fn make_fifo(path: &Path) {
        rustix::fs::mknodat(CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    }

    #[test]
    fn what_lies_where_something_is_put_aside_is_no_hindrance() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("paper");
        let lies: [&dyn Fn(&Path); 4] = [
            &|at| fs::write(at, "a file").unwrap(),
            &|at| fs::create_dir_all(at.join("deep")).unwrap(),
            &|at| std::os::unix::fs::symlink("/x/y", at).unwrap(),
            &|at| make_fifo(at),
        ];
        for before in lies {
            for instead in &lies[1..] {
                for aside in ["paper.aside", "paper.folder"] {
                    remove_any(&folder.path().join(aside));
                    before(&folder.path().join(aside));
                }
                remove_any(&path);
                instead(&path);
                append_to(&path).unwrap().write_all(b"ours").unwrap();
                assert_eq!(fs::read(&path).unwrap(), b"ours");
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing else is left there");
            }
        }
    }

    #[test]
    fn a_paper_is_replaced_also_where_a_program_that_knows_its_keeper_put_pipes_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let (path, me) = (folder.path().join("paper"), std::process::id());
        make_fifo(&folder.path().join(format!("paper.{me}.new")));
        for number in 0..100 {
            make_fifo(&folder.path().join(format!("paper.new.{me}.{number}")));
        }
        for text in ["1", "2"] {
            rewrite_json(&path, &text).unwrap();
            assert_eq!(read_json::<String>(&path).as_deref(), Some(text));
        }
        let files = fs::read_dir(folder.path()).unwrap().flatten().filter(|entry| entry.file_type().unwrap().is_file());
        assert_eq!(files.count(), 1, "nothing is left of it");
    }

    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        make_fifo(&pipe);
        fs::write(folder.path().join("elsewhere"), "[1]").unwrap();
        std::os::unix::fs::symlink("elsewhere", &link).unwrap();
        for path in [&pipe, &link] {
            open_file(fs::OpenOptions::new().read(true), path).unwrap_err();
            open_file(fs::OpenOptions::new().write(true), path).unwrap_err();
            overwrite(path, b"[2]".to_vec()).unwrap_err();
            assert_eq!(read_json::<Vec<u8>>(path), None);
            // A name that is used by chance, or on purpose.
            make_anew(path).unwrap();
        }
        assert_eq!(fs::read(folder.path().join("elsewhere")).unwrap(), b"[1]");
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
