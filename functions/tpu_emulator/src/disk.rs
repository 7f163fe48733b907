//! The disks of VMs, which are folders of a person's machine.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// What the owner of a folder needs to remove what lies in it.
const OWNER_ALL: u32 = 0o700;

/// Removes a folder, also where programs made folders in it in which nobody may write, as caches of modules do: those hold up
/// everybody but root, and a disk that goes with its VM asks nobody.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            make_writable(folder);
            fs::remove_dir_all(folder)
        }
        done => done,
    }
}

/// Lets the owner change a folder and all below it. What cannot be changed is told by who removes it.
fn make_writable(folder: &Path) {
    let Ok(meta) = folder.symlink_metadata() else { return };
    let mode = meta.permissions().mode();
    if mode & OWNER_ALL != OWNER_ALL {
        let _ = fs::set_permissions(folder, fs::Permissions::from_mode(mode | OWNER_ALL));
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_goes_with_folders_in_which_nobody_may_write_also_where_we_are_not_root() {
        let home = tempfile::tempdir().unwrap();
        let kept = tempfile::tempdir().unwrap();
        let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set_mode(kept.path(), 0o555);
        let disk = home.path().join("vm");
        let act = || {
            fs::create_dir_all(disk.join("mod/deep")).unwrap();
            fs::write(disk.join("mod/deep/file"), "x").unwrap();
            std::os::unix::fs::symlink(kept.path(), disk.join("mod/link")).unwrap();
            for (name, mode) in [("mod/deep", 0), ("mod", 0o555), ("", 0o555)] {
                set_mode(&disk.join(name), mode);
            }
            assert!(fs::remove_dir_all(&disk).is_err(), "else there is nothing to test");
            remove(&disk).unwrap();
        };
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = (rustix::fs::Uid::from_raw(65534), rustix::fs::Gid::from_raw(65534));
            rustix::fs::chown(home.path(), Some(uid), Some(gid)).unwrap();
            // The thread's own identity alone is changed, and it ends with it.
            std::thread::scope(|scope| {
                let nobody = scope.spawn(|| {
                    rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
                    rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
                    act();
                });
                nobody.join().unwrap();
            });
        } else {
            act();
        }
        assert!(!disk.exists());
        let mode = kept.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o555, "links are not followed");
        set_mode(kept.path(), 0o755);
    }
}
