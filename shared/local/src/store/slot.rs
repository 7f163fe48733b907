//! The file while it is open. After an error of the disk redb takes and gives nothing more until it is opened anew, which
//! happens here, in the same process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redb::{Database, DatabaseError};

use super::{FILE_SCHEMA, OpenError, write};

/// With less room on the disk, in bytes, nothing is written: a write that fails costs an opening of the file, which reads all of it.
// A few times what a busy store writes between two looks. More would refuse what still has its place.
pub const ROOM_MIN: u64 = 4 << 20;
/// Between two looks whether the last reader has left.
const LOOK_EACH: Duration = Duration::from_millis(1);

/// The file.
pub(super) struct Slot {
    path: PathBuf,
    /// Or why it is not open.
    db: RwLock<Result<Arc<Database>, String>>,
}

impl Slot {
    /// Opens the file, or makes it. Answers also the last revision in it.
    pub(super) fn open(path: &Path) -> Result<(Self, i64), OpenError> {
        let (db, last) = load(path, Database::create(path))?;
        Ok((Self { path: path.to_owned(), db: RwLock::new(Ok(db)) }, last))
    }

    /// The open file, or why there is none now. Whoever keeps it long keeps a broken file from being opened anew.
    pub(super) fn get(&self) -> Result<Arc<Database>, String> {
        self.db.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Closes the file after an error, and opens it anew. Answers the last revision in it. Blocks until all reads that are
    /// under way have ended.
    pub(super) fn reopen(&self) -> Result<i64, OpenError> {
        let closed = Err(format!("{} is being opened anew after an error of its disk", self.path.display()));
        if let Ok(db) = self.set(closed) {
            // Its lock is given back by the last who holds it.
            while Arc::strong_count(&db) > 1 {
                std::thread::sleep(LOOK_EACH);
            }
        }
        // Never made: a store without what it held would be another installation.
        match load(&self.path, Database::open(&self.path)) {
            Ok((db, last)) => {
                drop(self.set(Ok(db)));
                Ok(last)
            }
            Err(error) => {
                drop(self.set(Err(error.to_string())));
                Err(error)
            }
        }
    }

    fn set(&self, new: Result<Arc<Database>, String>) -> Result<Arc<Database>, String> {
        std::mem::replace(&mut *self.db.write().unwrap_or_else(PoisonError::into_inner), new)
    }

    /// Refuses a write for which the disk has no room. A disk that does not tell is not asked.
    pub(super) fn room(&self) -> Result<(), String> {
        let Ok(stat) = rustix::fs::statvfs(&self.path) else { return Ok(()) };
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free >= ROOM_MIN {
            return Ok(());
        }
        let (path, kib) = (self.path.display(), free >> 10);
        Err(format!(
            "the disk of {path} is full ({kib} KiB are free): make room on it, and the store goes on by itself"
        ))
    }
}

fn load(path: &Path, opened: Result<Database, DatabaseError>) -> Result<(Arc<Database>, i64), OpenError> {
    let name = || path.display().to_string();
    let broken = |why: String| OpenError::Broken { path: name(), why };
    let db = match opened {
        Ok(db) => Arc::new(db),
        Err(DatabaseError::DatabaseAlreadyOpen) => return Err(OpenError::InUse(name())),
        Err(error) => return Err(broken(error.to_string())),
    };
    let (found, last) = write::prepare(&db).map_err(|e| broken(e.to_string()))?;
    if found != FILE_SCHEMA {
        return Err(OpenError::Newer { path: name(), found });
    }
    Ok((db, last))
}
