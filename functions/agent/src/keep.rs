//! Files that are written beside whoever brings them: a disk that hangs holds nobody up.
//!
//! **Invariants:** one write is under way at a time. What is brought last for a file is what stands there in the end, however
//! long the disk hangs or refuses before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::files;

/// Between two tries on a disk that refuses.
const RETRY: Duration = Duration::from_secs(1);
/// Before something is done that is to be written down first, a disk that hangs is waited for so long.
const MOMENT: Duration = Duration::from_millis(300);

/// What keeps files. Ends when the last one who brings any is gone and all was tried: what a disk refuses then is not written.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    due: Arc<Mutex<Due>>,
    brought: Arc<watch::Sender<u64>>,
    done: watch::Receiver<Done>,
}

/// What is not written yet, by file.
#[derive(Debug, Default)]
struct Due {
    files: BTreeMap<PathBuf, Waiting>,
    last: u64,
}

/// What a file is to hold.
#[derive(Debug, Clone)]
struct Waiting {
    /// Of what was brought for this file, and neither it nor anything newer is there: the oldest.
    since: u64,
    number: u64,
    /// Without any, the file is to be gone.
    bytes: Option<Vec<u8>>,
}

/// How far the disk has come: up to these numbers all was tried, and all is there, or something newer.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    tried: u64,
    kept: u64,
}

/// Something that was brought, on its way to the disk.
#[derive(Debug, Clone)]
pub(crate) struct OnItsWay {
    number: u64,
    done: watch::Receiver<Done>,
}

impl OnItsWay {
    /// Waits until the disk has taken or refused it. True if it is there, or something newer.
    pub(crate) async fn answered(mut self) -> bool {
        let number = self.number;
        self.done.wait_for(|done| done.tried >= number).await.is_ok_and(|done| done.kept >= number)
    }

    /// Waits until it is there, or something newer. False if nobody keeps it any more.
    pub(crate) async fn kept(mut self) -> bool {
        let number = self.number;
        self.done.wait_for(|done| done.kept >= number).await.is_ok()
    }
}

/// Waits until the disk has taken or refused all of these, but no longer than a moment.
pub(crate) async fn a_moment(all: impl IntoIterator<Item = OnItsWay>) {
    let all = async {
        for one in all {
            one.answered().await;
        }
    };
    if tokio::time::timeout(MOMENT, all).await.is_err() {
        tracing::warn!("a disk hangs; what is to be written down before is not waited for");
    }
}

impl Keeper {
    /// Begins to keep.
    pub(crate) fn begin() -> Self {
        let due = Arc::<Mutex<Due>>::default();
        let (brought, news) = watch::channel(0);
        let (answers, done) = watch::channel(Done::default());
        tokio::spawn(write_all(Arc::clone(&due), news, answers));
        Self { due, brought: Arc::new(brought), done }
    }

    /// Brings the whole content of a file, which is JSON; without any, it is removed.
    pub(crate) fn put(&self, path: PathBuf, bytes: Option<Vec<u8>>) -> OnItsWay {
        let number = {
            let mut due = lock(&self.due);
            due.last += 1;
            let number = due.last;
            let since = due.files.get(&path).map_or(number, |older| older.since);
            due.files.insert(path, Waiting { since, number, bytes });
            number
        };
        self.brought.send_replace(number);
        OnItsWay { number, done: self.done.clone() }
    }

    /// [`Keeper::put`] with JSON.
    pub(crate) fn put_json<T: serde::Serialize>(&self, path: PathBuf, value: &T) -> OnItsWay {
        // Only a map whose keys are no text is no JSON.
        self.put(path, Some(serde_json::to_vec(value).unwrap_or_default()))
    }
}

fn lock(due: &Mutex<Due>) -> MutexGuard<'_, Due> {
    due.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn write_all(due: Arc<Mutex<Due>>, mut news: watch::Receiver<u64>, answers: watch::Sender<Done>) {
    let mut was_refused = false;
    loop {
        if was_refused {
            let news = tokio::time::timeout(RETRY, news.changed()).await;
            if matches!(news, Ok(Err(_))) {
                return;
            }
        } else if news.changed().await.is_err() {
            return;
        }
        let due = Arc::clone(&due);
        let round = tokio::task::spawn_blocking(move || write_due(&due, was_refused)).await;
        let Ok((done, is_refused)) = round else { return };
        was_refused = is_refused;
        answers.send_replace(done);
    }
}

/// Writes what is due now, each file on its own.
fn write_due(due: &Mutex<Due>, was_refused: bool) -> (Done, bool) {
    let (all, last) = {
        let due = lock(due);
        (due.files.clone(), due.last)
    };
    let mut is_refused = false;
    for (path, Waiting { number, bytes, .. }) in all {
        match write(&path, bytes.as_deref()) {
            Ok(()) => {
                let files = &mut lock(due).files;
                match files.get_mut(&path) {
                    Some(newer) if newer.number > number => newer.since = number + 1,
                    Some(_) | None => drop(files.remove(&path)),
                }
            }
            Err(error) => {
                is_refused = true;
                // Once, and not with each try.
                if !was_refused {
                    tracing::error!(path = %path.display(), %error, "cannot write a file; will try again");
                }
            }
        }
    }
    let waits_from = lock(due).files.values().map(|waiting| waiting.since).min();
    (Done { tried: last, kept: waits_from.map_or(last, |from| last.min(from - 1)) }, is_refused)
}

fn write(path: &Path, bytes: Option<&[u8]>) -> std::io::Result<()> {
    match bytes {
        Some(bytes) => files::rewrite_slowly(path, bytes),
        None => match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_brought_last_stands_there_also_after_a_disk_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("later/file");
        let keeper = Keeper::begin();
        let first = keeper.put(path.clone(), Some(b"first".to_vec()));
        assert!(!first.clone().answered().await, "there is no folder");
        std::fs::create_dir(folder.path().join("later")).unwrap();
        assert!(first.kept().await, "it is tried again without a word");
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        let all: Vec<OnItsWay> = (0..100).map(|n| keeper.put_json(path.clone(), &n)).collect();
        for one in all {
            assert!(one.answered().await);
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"99");
        assert!(keeper.put(path.clone(), None).answered().await && !path.exists());
        assert!(keeper.put(path, None).answered().await, "what is gone is gone");
    }

    #[tokio::test]
    async fn a_paper_that_is_there_is_written_over_where_there_is_no_room_for_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let keeper = Keeper::begin();
        assert!(keeper.put_json(path.clone(), &"the first").answered().await);
        // No file can be made in its place, as on a full disk.
        std::fs::create_dir(folder.path().join(format!("file.{}.new", std::process::id()))).unwrap();
        assert!(keeper.put_json(path.clone(), &"second").answered().await);
        assert_eq!(files::read_json::<String>(&path).as_deref(), Some("second"));
    }

    #[tokio::test]
    async fn what_was_refused_is_not_kept_since_something_newer_is_refused_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("later/file");
        let keeper = Keeper::begin();
        let first = keeper.put(path.clone(), Some(b"first".to_vec()));
        assert!(!first.clone().answered().await, "there is no folder");
        let second = keeper.put(path.clone(), Some(b"second".to_vec()));
        assert!(!second.clone().answered().await, "there is none yet");
        assert_eq!(first.clone().kept().now_or_never(), None, "neither it nor the newer one is there");
        std::fs::create_dir(folder.path().join("later")).unwrap();
        assert!(first.kept().await && second.kept().await);
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
    }

    #[tokio::test]
    async fn a_disk_that_hangs_holds_nobody_up_and_has_the_newest_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        // To open a pipe waits for who reads it.
        let hangs = folder.path().join(format!("file.{}.new", std::process::id()));
        rustix::fs::mknodat(rustix::fs::CWD, &hangs, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let keeper = Keeper::begin();
        let first = keeper.put(path.clone(), Some(b"first".to_vec()));
        a_moment([first.clone()]).await;
        assert!(!first.clone().kept().now_or_never().unwrap_or(false), "it hangs");
        let last = keeper.put(path.clone(), Some(b"last".to_vec()));
        let read = tokio::task::spawn_blocking(move || std::fs::read(hangs)).await.unwrap();
        assert_eq!(read.unwrap(), b"first");
        assert!(first.kept().await && last.kept().await);
        assert_eq!(std::fs::read(path).unwrap(), b"last");
    }
}
