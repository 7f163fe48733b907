//! The address of an upload that is under way, remembered so that the next command goes on behind what the store has when
//! this one is killed.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::state;

/// Older addresses are forgotten: Cloud Storage keeps a resumable session for a week.
const KEPT: Duration = Duration::from_hours(7 * 24);

/// Where the address of one bundle's upload to one server is remembered.
#[derive(Debug)]
pub(super) struct Session(Option<PathBuf>);

impl Session {
    /// Of a bundle and a server. Without a home folder nothing is remembered.
    pub(super) fn of(digest: &str, server: &str) -> Self {
        let folder = state::folder(|name| std::env::var_os(name)).map(|folder| folder.join("uploads"));
        let name = server.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_");
        Self(folder.map(|folder| folder.join(format!("{digest}.{name}"))))
    }

    /// The address that an earlier command had.
    pub(super) fn address(&self) -> Option<String> {
        let path = self.0.as_ref()?;
        let age = SystemTime::now().duration_since(std::fs::metadata(path).ok()?.modified().ok()?).ok()?;
        std::fs::read_to_string(path).ok().filter(|_| age < KEPT)
    }

    /// Remembers an address, for this user alone: it is the right to write. Where that fails, an upload that is cut
    /// off begins anew.
    pub(super) fn remember(&self, address: &str) {
        let Some(path) = &self.0 else { return };
        let write = || -> std::io::Result<()> {
            let folder = path.parent().unwrap_or(path);
            std::fs::create_dir_all(folder)?;
            // Readable by its owner only.
            let file = tempfile::NamedTempFile::new_in(folder)?;
            std::fs::write(file.path(), address)?;
            file.persist(path)?;
            Ok(())
        };
        let _ = write();
    }

    /// The upload is done.
    pub(super) fn forget(&self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}
