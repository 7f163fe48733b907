//! One stream of a program: from its pipe to its file.
//!
//! The program has a pipe and not the file, so that neither a full disk nor an `open("/dev/stderr", "w")` costs a byte. It
//! holds both directions of the pipe: without its keeper it is then not killed by SIGPIPE, it waits for the next.

use std::fs::OpenOptions;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use procfs::process::FDTarget;
use tokio::net::unix::pipe;

use crate::logs::STREAMS;
use crate::spool::Spool;

/// Read at once. A pipe holds 64 KiB unless somebody asks for more.
const READ: usize = 64 << 10;
/// Most bytes that a pipe holds where the administrator allows no more.
const PIPE_MAX: usize = 1 << 20;
/// What a keeper that was killed had read and not yet written is lost; nobody knows how much that was.
pub(crate) const CUT: &str = "\nrekindle: output may be missing here: the process that keeps it was killed\n";
/// After its program, a stream whose disk takes nothing is kept for so long.
pub(crate) const KEPT: Duration = Duration::from_mins(10);

/// The keeper's side of a stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pipe: pipe::Receiver,
    spool: Spool,
}

impl Stream {
    /// A stream to the file at `path`, which is made again below `root`, and the end that the program gets.
    ///
    /// # Errors
    /// If there are no more descriptors or threads.
    pub(crate) fn new(path: PathBuf, root: &Path) -> std::io::Result<(Self, OwnedFd)> {
        let (end, pipe) = pipe::pipe()?;
        let end = end.into_blocking_fd()?;
        // Without /proc the program has the one direction that it needs.
        let both = OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", end.as_raw_fd()));
        let end = both.map_or(end, OwnedFd::from);
        Ok((Self { pipe, spool: Spool::open(path, root)? }, end))
    }

    /// The stream whose pipe has this number, as long as any process holds it.
    async fn of_pipe(number: u64, path: PathBuf, root: &Path) -> anyhow::Result<Self> {
        let held = tokio::task::spawn_blocking(move || holder(number)).await?;
        let held = held.context("no process holds it any more")?;
        let pipe = pipe::OpenOptions::new().open_receiver(&held);
        let pipe = pipe.with_context(|| format!("cannot open {}", held.display()))?;
        Ok(Self { pipe, spool: Spool::open(path, root)? })
    }

    /// The number by which the kernel knows the pipe; 0 if it does not tell.
    pub(crate) fn number(&self) -> u64 {
        rustix::fs::fstat(&self.pipe).map_or(0, |stat| stat.st_ino)
    }

    /// Keeps what comes until nobody can write any more.
    pub(crate) async fn pump(&self) {
        let mut bytes = vec![0; READ];
        loop {
            // Before it is read: what is read is on its way to the file at once, so that its order cannot change.
            self.spool.room().await;
            if self.pipe.readable().await.is_err() {
                return;
            }
            match self.pipe.try_read(&mut bytes) {
                Ok(0) => return,
                Ok(read) => self.spool.push(&bytes[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// Takes what is in the pipe now: after a process has ended, everything that it wrote.
    pub(crate) fn catch_up(&self) {
        let mut bytes = vec![0; READ];
        let mut taken = 0;
        while taken < PIPE_MAX {
            match rustix::io::read(self.pipe.as_fd(), &mut bytes) {
                Ok(0) => return,
                Ok(read) => {
                    self.spool.push(&bytes[..read]);
                    taken += read;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Adds words of ours.
    pub(crate) fn say(&self, bytes: &[u8]) {
        self.spool.push(bytes);
    }

    /// Makes the file again, if somebody has removed it.
    pub(crate) fn look(&self) {
        self.spool.look();
    }

    /// Waits until everything is in the file; gives up when the disk has taken nothing for `patience`.
    pub(crate) async fn settled(&self, patience: Duration) {
        self.spool.settled(patience).await;
    }
}

async fn say_cut(path: PathBuf, root: &Path) {
    match Spool::open(path, root) {
        Ok(spool) => {
            spool.push(CUT.as_bytes());
            spool.settled(KEPT).await;
        }
        Err(error) => tracing::warn!(%error, "cannot say that output may be missing"),
    }
}

/// A descriptor, of whatever process, that is this pipe.
fn holder(number: u64) -> Option<PathBuf> {
    procfs::process::all_processes().ok()?.flatten().find_map(|process| {
        let mut open = process.fd().ok()?.flatten();
        let held = open.find(|fd| matches!(fd.target, FDTarget::Pipe(pipe) if pipe == number))?;
        Some(PathBuf::from(format!("/proc/{}/fd/{}", process.pid(), held.fd)))
    })
}

/// The streams that the agent keeps itself, since their shim was killed.
#[derive(Debug, Clone)]
pub(crate) struct TakenOver {
    count: Arc<AtomicUsize>,
    root: PathBuf,
}

impl TakenOver {
    /// None yet. Below `root` their files are made again ([`crate::spool::again`]).
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { count: Arc::default(), root }
    }

    /// Takes over the streams of a program, standard output first, by the numbers of their pipes. Where that is not possible it is said there
    /// that some may be missing.
    pub(crate) fn begin(&self, pipes: [u64; 2], folder: &Path) {
        let (count, root, folder) = (Arc::clone(&self.count), self.root.clone(), folder.to_owned());
        count.fetch_add(STREAMS.len(), Ordering::SeqCst);
        tokio::spawn(async move {
            let open = |index: usize| Stream::of_pipe(pipes[index], folder.join(STREAMS[index]), &root);
            // Both before either is read: a program that waits for one may go on then, and end with its last words in the other.
            let (stdout, stderr) = tokio::join!(open(0), open(1));
            for (stream, name) in [stdout, stderr].into_iter().zip(STREAMS) {
                let (path, count, root) = (folder.join(name), Arc::clone(&count), root.clone());
                tokio::spawn(async move {
                    match stream {
                        Ok(stream) => {
                            stream.say(CUT.as_bytes());
                            stream.pump().await;
                            stream.settled(KEPT).await;
                        }
                        Err(error) => {
                            tracing::warn!(error = format!("{error:#}"), name, "cannot take over a stream");
                            say_cut(path, &root).await;
                        }
                    }
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
    }

    /// Says of the streams of a program that ended before they were taken over that some may be missing.
    pub(crate) fn missed(&self, folder: &Path) {
        for name in STREAMS {
            let (path, count, root) = (folder.join(name), Arc::clone(&self.count), self.root.clone());
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                say_cut(path, &root).await;
                count.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }

    /// True while anything is kept.
    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }
}
