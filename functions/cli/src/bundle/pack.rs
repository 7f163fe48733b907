//! The bytes of a bundle: a tar archive in zstd, and their digest.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sha2::{Digest as _, Sha256};

use super::Times;
use super::collect::{Entry, Kind};
use crate::fault::{Fault, Result};
use crate::printer::Printer;

/// The time of every entry whose own is left out: 2000-01-01. Not 1970, which some tools (ZIP among them) cannot write.
const MTIME: u64 = 946_684_800;
/// Fast, and small enough: code is small.
const LEVEL: i32 = 6;

/// A packed folder.
pub(super) struct Packed {
    /// It has no name, so that nothing is left of it however the command ends.
    pub(super) file: File,
    /// sha256 of the bytes, in lower-case hex.
    pub(super) digest: String,
    /// Bytes.
    pub(super) size: u64,
}

/// A bar on a terminal, else nothing.
pub(super) fn progress(printer: Printer, bytes: u64) -> ProgressBar {
    // Below this it is done before anybody could read it.
    const WORTH_IT: u64 = 8 << 20;
    bar(printer, bytes, "packing", WORTH_IT)
}

/// Counts what is found in a folder, where somebody looks: it may be a home with a million files.
pub(super) fn walking(printer: Printer) -> ProgressBar {
    if !printer.is_talk_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::no_length().with_message("looking through the folder");
    match ProgressStyle::with_template("{msg}: {human_pos} found, {elapsed}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A bar of bytes, if there are at least so many and somebody looks.
pub(super) fn bar(printer: Printer, bytes: u64, word: &'static str, at_least: u64) -> ProgressBar {
    if bytes < at_least || !printer.is_talk_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let bar = ProgressBar::new(bytes).with_message(word);
    let template = "{msg:>9} [{bar:32}] {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Packs the entries of a folder, in their order. A root that is a file is the one entry's own.
pub(super) fn pack(root: &Path, entries: &[Entry], times: Times, bar: &ProgressBar) -> Result<Packed> {
    let cannot = |error: io::Error| unwritable(&error);
    let file = tempfile::tempfile().map_err(cannot)?;
    let (digest, size) = write(&file, root, entries, times, bar)?;
    bar.finish_and_clear();
    Ok(Packed { file, digest, size })
}

fn write(file: &File, root: &Path, entries: &[Entry], times: Times, bar: &ProgressBar) -> Result<(String, u64)> {
    let cannot = |error: io::Error| unwritable(&error);
    let out = Hashing { inner: BufWriter::new(file), hash: Sha256::new(), size: 0 };
    let encoder = zstd::Encoder::new(out, LEVEL).map_err(cannot)?;
    let mut tar = tar::Builder::new(encoder);
    tar.follow_symlinks(false);
    for entry in entries {
        append(&mut tar, root, entry, times, bar)?;
    }
    let mut out = tar.into_inner().and_then(zstd::Encoder::finish).map_err(cannot)?;
    out.flush().map_err(cannot)?;
    Ok((hex::encode(out.hash.finalize()), out.size))
}

fn unwritable(error: &io::Error) -> Fault {
    Fault::unexpected("cannot write the bundle")
        .caused_by(error)
        .next("set TMPDIR to a folder that you may write to, on a disk with room")
}

fn append<W: Write>(
    tar: &mut tar::Builder<W>,
    root: &Path,
    entry: &Entry,
    times: Times,
    bar: &ProgressBar,
) -> Result<()> {
    let cannot = |error: &io::Error| {
        // What is read never has these.
        if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge) {
            return unwritable(error);
        }
        let changed = "if it changes all the time, name it in .rekindleignore; else run the command again";
        Fault::input(format!("cannot bundle {}", entry.path.display())).caused_by(error).next(changed)
    };
    let mut header = tar::Header::new_gnu();
    header.set_mtime(match times {
        Times::Fixed => MTIME,
        Times::Kept => entry.changed_at,
    });
    header.set_uid(0);
    header.set_gid(0);
    header.set_mode(entry.mode);
    header.set_size(entry.size);
    match &entry.kind {
        Kind::Folder => {
            header.set_entry_type(tar::EntryType::Directory);
            tar.append_data(&mut header, &entry.path, io::empty())
        }
        Kind::Link(target) => {
            header.set_entry_type(tar::EntryType::Symlink);
            // Links have no permissions of their own; systems show different ones.
            header.set_mode(0o777);
            set_target(tar, &mut header, target.as_os_str().as_bytes()).map_err(|error| cannot(&error))?;
            tar.append_data(&mut header, &entry.path, io::empty())
        }
        Kind::File => {
            header.set_entry_type(tar::EntryType::Regular);
            let from = if root.is_file() { root.to_owned() } else { root.join(&entry.path) };
            let file = File::open(from).map_err(|error| cannot(&error))?;
            tar.append_data(&mut header, &entry.path, Exact { inner: bar.wrap_read(file), left: entry.size })
        }
    }
    .map_err(|error| cannot(&error))
}

/// Where a link leads, byte for byte: what writes whole links in the crate makes `//` of `/`, and `/usr/bin` of `//usr//bin`.
fn set_target<W: Write>(tar: &mut tar::Builder<W>, header: &mut tar::Header, target: &[u8]) -> io::Result<()> {
    const LONG: &[u8] = b"././@LongLink";
    if target.len() <= header.as_old().linkname.len() {
        return header.set_link_name_literal(target);
    }
    // As GNU tar and the crate write it: an entry before, which ends with a zero.
    let mut long = tar::Header::new_gnu();
    long.as_old_mut().name[..LONG.len()].copy_from_slice(LONG);
    long.set_mode(0o644);
    long.set_uid(0);
    long.set_gid(0);
    long.set_mtime(0);
    long.set_size(target.len() as u64 + 1);
    long.set_entry_type(tar::EntryType::GNULongLink);
    long.set_cksum();
    tar.append(&long, target.chain(&b"\0"[..]))
}

/// Exactly so many bytes: a file that grows meanwhile is cut, one that shrinks is an error, since the archive has
/// promised its length.
struct Exact<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Exact<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.inner.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

struct Hashing<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, SystemTime};

    use super::super::collect;
    use super::*;

    fn make(root: &Path, age: u64) {
        std::fs::create_dir(root.join("bin")).unwrap();
        std::fs::write(root.join("bin/go.sh"), "#!/bin/sh\necho hi\n").unwrap();
        std::fs::set_permissions(root.join("bin/go.sh"), std::fs::Permissions::from_mode(0o750)).unwrap();
        std::fs::set_permissions(root.join("bin"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("bin/go.sh", root.join("go")).unwrap();
        let long = "a".repeat(180);
        std::fs::write(root.join(&long), "long name").unwrap();
        std::fs::set_permissions(root.join(&long), std::fs::Permissions::from_mode(0o644)).unwrap();
        let file = File::options().write(true).open(root.join("bin/go.sh")).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }

    fn packed(root: &Path) -> Packed {
        let entries = collect::folder(root, &ProgressBar::hidden()).unwrap().entries;
        pack(root, &entries, Times::Fixed, &ProgressBar::hidden()).unwrap()
    }

    #[test]
    fn equal_folders_give_equal_bytes_and_come_back_as_they_were() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        make(one.path(), 10);
        make(other.path(), 100_000);
        let (a, b) = (packed(one.path()), packed(other.path()));
        assert_eq!(a.digest, b.digest);
        let mut bytes = Vec::new();
        (&a.file).seek(io::SeekFrom::Start(0)).unwrap();
        (&a.file).read_to_end(&mut bytes).unwrap();
        assert_eq!((bytes.len() as u64, hex::encode(Sha256::digest(&bytes))), (a.size, a.digest));
        let to = tempfile::tempdir().unwrap();
        let mut archive = tar::Archive::new(zstd::Decoder::new(&bytes[..]).unwrap());
        archive.set_preserve_permissions(true);
        archive.unpack(to.path()).unwrap();
        assert_eq!(std::fs::read_link(to.path().join("go")).unwrap(), Path::new("bin/go.sh"));
        assert_eq!(std::fs::read(to.path().join("a".repeat(180))).unwrap(), b"long name");
        let mode = std::fs::metadata(to.path().join("go")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o750);
        std::fs::write(other.path().join("bin/go.sh"), "#!/bin/sh\necho ho\n").unwrap();
        assert_ne!(packed(other.path()).digest, packed(one.path()).digest);
    }

    #[test]
    fn links_lead_where_they_led_byte_for_byte() {
        let long = |end: &str| format!("//usr/./{}//{end}", "deep/".repeat(30));
        // The last one has room in a header if it is written shorter.
        let edge = format!("//{}//b", "a".repeat(96));
        let targets =
            ["/", "//", "//usr//bin", "./a/../b/", "a/./b", "..", &long("b"), &long(""), &"a".repeat(100), &edge];
        let folder = tempfile::tempdir().unwrap();
        for (number, target) in targets.iter().enumerate() {
            std::os::unix::fs::symlink(target, folder.path().join(number.to_string())).unwrap();
            // With a long path of its own, too.
            std::os::unix::fs::symlink(target, folder.path().join(format!("{number}{}", "-".repeat(150)))).unwrap();
        }
        let mut packed = packed(folder.path());
        packed.file.seek(io::SeekFrom::Start(0)).unwrap();
        let to = tempfile::tempdir().unwrap();
        tar::Archive::new(zstd::Decoder::new(packed.file).unwrap()).unpack(to.path()).unwrap();
        for (number, target) in targets.iter().enumerate() {
            for name in [number.to_string(), format!("{number}{}", "-".repeat(150))] {
                let found = std::fs::read_link(to.path().join(&name)).unwrap();
                assert_eq!(found.as_os_str().as_bytes(), target.as_bytes(), "{name}");
            }
        }
    }

    #[test]
    fn times_are_kept_where_compiled_files_may_lie_beside_what_is_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.py");
        std::fs::write(&path, "LR = 1\n").unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
        for (times, want) in [(Times::Kept, 1_700_000_000), (Times::Fixed, MTIME)] {
            for (root, entries) in [
                (folder.path(), collect::folder(folder.path(), &ProgressBar::hidden()).unwrap().entries),
                (path.as_path(), vec![collect::file(&path, "model.py").unwrap()]),
            ] {
                let mut packed = pack(root, &entries, times, &ProgressBar::hidden()).unwrap();
                packed.file.seek(io::SeekFrom::Start(0)).unwrap();
                let mut archive = tar::Archive::new(zstd::Decoder::new(packed.file).unwrap());
                let found: Vec<u64> =
                    archive.entries().unwrap().map(|entry| entry.unwrap().header().mtime().unwrap()).collect();
                assert_eq!(found, [want], "{times:?}");
            }
        }
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("log"), "abc").unwrap();
        let mut entries = collect::folder(folder.path(), &ProgressBar::hidden()).unwrap().entries;
        entries[0].size = 10;
        let fault = pack(folder.path(), &entries, Times::Fixed, &ProgressBar::hidden()).err().unwrap();
        assert!(fault.text().contains("cannot bundle log"), "{}", fault.text());
    }
}
