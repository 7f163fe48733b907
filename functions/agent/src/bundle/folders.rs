//! Folders that are removed: without what is mounted in them, and also where their modes forbid it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// What the owner of a folder needs to remove what lies in it.
const OWNER_ALL: u32 = 0o700;

/// True if something is mounted on the folder itself.
pub(super) fn is_mount_point(folder: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
    rustix::fs::statx(CWD, folder, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)
        .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

pub(super) fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
}

/// True if something is mounted on a folder or anywhere below it, or if nobody can tell.
pub(super) fn holds_mount(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    let mounts = procfs::process::Process::myself().and_then(|me| me.mountinfo());
    mounts.map_or(true, |mounts| mounts.0.iter().any(|mount| unescaped(&mount.mount_point).starts_with(&folder)))
}

/// A path of the kernel's list of mounts: spaces, tabs, ends of lines and backslashes stand there as `\040` and so on.
fn unescaped(path: &Path) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = path.as_os_str().as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let code = behind.get(..3).and_then(|three| u8::from_str_radix(std::str::from_utf8(three).ok()?, 8).ok());
        if let Some(code) = code.filter(|_| byte == b'\\') {
            bytes.push(code);
            rest = &behind[3..];
        } else {
            bytes.push(byte);
            rest = behind;
        }
    }
    OsString::from_vec(bytes).into()
}

/// Removes a folder, if it is there, as [`remove_folder`] does.
pub(super) fn remove(folder: &Path) -> anyhow::Result<()> {
    match remove_folder(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot remove {}", folder.display())),
    }
}

/// Removes a folder, but for what is mounted below it and the folders above that.
///
/// Programs make folders in which nobody may write, as caches of modules do. Those hold up everybody but root, and an agent
/// on a person's machine is not root.
pub(super) fn remove_folder(folder: &Path) -> io::Result<()> {
    match remove_as_it_is(folder) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            make_all_writable(folder);
            remove_as_it_is(folder)
        }
        done => done,
    }
}

fn remove_as_it_is(folder: &Path) -> io::Result<()> {
    if !holds_mount(folder) {
        return fs::remove_dir_all(folder);
    }
    if is_mount_point(folder) {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_as_it_is(&entry.path())?;
        } else if !is_mount_point(&entry.path()) {
            fs::remove_file(entry.path())?;
        }
    }
    match fs::remove_dir(folder) {
        // What is mounted there keeps it.
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
        done => done,
    }
}

/// Lets the owner of a folder change what lies in it. Links are left alone.
pub(super) fn make_writable(folder: &Path) -> io::Result<()> {
    let meta = folder.symlink_metadata()?;
    let mode = meta.permissions().mode();
    if !meta.is_dir() || mode & OWNER_ALL == OWNER_ALL {
        return Ok(());
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(mode | OWNER_ALL))
}

/// The same for all folders below it, as far as they are ours: what cannot be changed is told by who removes it.
fn make_all_writable(folder: &Path) {
    if is_mount_point(folder) || make_writable(folder).is_err() {
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_all_writable(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use rekindle_core::ids::JobId;
    use rustix::fs::{Gid, Uid};

    use super::*;
    use crate::files::Layout;

    /// Does something as somebody to whom modes of files apply: not as root, whom the tests often run as.
    fn as_nobody<T: Send>(owns: &Path, act: impl FnOnce() -> T + Send) -> T {
        if !rustix::process::geteuid().is_root() {
            return act();
        }
        let (nobody, nogroup) = (Uid::from_raw(65534), Gid::from_raw(65534));
        rustix::fs::chown(owns, Some(nobody), Some(nogroup)).unwrap();
        // The thread's own identity alone is changed, and it ends with it.
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                rustix::thread::set_thread_res_gid(nogroup, nogroup, nogroup).unwrap();
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                act()
            });
            thread.join().unwrap()
        })
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn folders_in_which_nobody_may_write_are_emptied_by_their_owner_who_is_not_root() {
        let home = tempfile::tempdir().unwrap();
        let kept = tempfile::tempdir().unwrap();
        set_mode(kept.path(), 0o555);
        as_nobody(home.path(), || {
            let layout = Layout::new(home.path(), home.path(), &JobId::parse("a").unwrap(), 1);
            layout.make().unwrap();
            let work = layout.work();
            for name in ["mod/pkg/deep", "shut/deep"] {
                fs::create_dir_all(work.join(name)).unwrap();
                fs::write(work.join(name).join("file"), "x").unwrap();
            }
            std::os::unix::fs::symlink(kept.path(), work.join("mod/link")).unwrap();
            for (name, mode) in [("mod/pkg/deep", 0o555), ("mod/pkg", 0o555), ("mod", 0o555), ("shut", 0), ("", 0o555)]
            {
                set_mode(&work.join(name), mode);
            }
            assert!(fs::remove_dir_all(work.join("mod")).is_err(), "else there is nothing to test");

            super::super::clean(&layout).unwrap();
            assert!(work.is_dir() && fs::read_dir(&work).unwrap().next().is_none());
        });
        let mode = kept.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o555, "links are not followed");
        set_mode(kept.path(), 0o755);
    }

    #[test]
    fn what_another_owns_is_told_and_not_tried_for_ever() {
        let home = tempfile::tempdir().unwrap();
        let anothers = home.path().join("anothers");
        fs::create_dir(&anothers).unwrap();
        fs::write(anothers.join("file"), "x").unwrap();
        if !rustix::process::geteuid().is_root() {
            // Nobody else's can be made.
            return;
        }
        let error = as_nobody(home.path(), || remove(&anothers).unwrap_err());
        assert!(format!("{error:#}").contains("anothers: Permission denied"), "{error:#}");
        assert!(anothers.join("file").exists());
    }
}
