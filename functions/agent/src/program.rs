//! One program of an attempt (`setup` or `run`), seen from the agent: start it through its shim, adopt it, learn how
//! it ended.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;

use rekindle_core::classify::Exit;
use rustix::process::Signal;

use crate::files::{self, Layout};
use crate::machine::Name;
use crate::procs::{Birth, Family};
use crate::shim::{self, Ended, Papers, SECRET, Spec, Started};
use crate::stream::TakenOver;

/// A shim that has not started its program after so long never will: the disk hangs, or the binary is gone.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Between looks for the shim's last word: short against every reaction to an exit, and a look is one system call.
const LOOK_EACH: Duration = Duration::from_millis(20);
/// Each so many looks, the processes themselves are looked at.
const LOOKS_UNTIL_CLOSER: u32 = 25;

/// What the files say of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Never started: nobody claimed it.
    NotStarted,
    /// Its shim is at work and has not told of a start yet.
    Starting,
    /// It runs.
    Running(Started),
    /// It ended.
    Ended(Ended),
    /// It was started, and its shim died without a word.
    Lost,
}

/// Looks at the files of a program.
pub(crate) fn standing(papers: &Papers) -> Standing {
    let started = papers.begun();
    let shim = match (&started, papers.claimed()) {
        (Some(started), _) => started.family.shim,
        (None, Some(claim)) => claim,
        // Damaged, or made just after the first look. It is there as a whole or not at all, so a second look tells.
        (None, None) if papers.claim().exists() => match papers.claimed() {
            // Its shim lives, and will put its own there.
            None if papers.is_of_another() => return Standing::Starting,
            claim => claim.unwrap_or(NOBODY),
        },
        (None, None) => return Standing::NotStarted,
    };
    let is_shim_alive = shim.is_alive();
    // Read last: a shim writes this before it leaves.
    match (papers.end(shim), started, is_shim_alive) {
        (Some(ended), _, _) => Standing::Ended(ended),
        (None, Some(started), true) => Standing::Running(started),
        (None, None, true) => Standing::Starting,
        (None, _, false) => Standing::Lost,
    }
}

/// Starts a program for the first time, and waits until that has happened. A claim of another attempt's, which `setup` copied, would
/// be taken for one that is on its way to be put right.
///
/// A crash at any await leaves a claimed program, which [`standing`] shows to the next agent.
pub(crate) async fn start_new(
    shim: &[OsString],
    papers: &Papers,
    spec: &Spec,
    secrets: &BTreeMap<String, String>,
    log: &Path,
) -> anyhow::Result<Standing> {
    if papers.is_of_another() {
        std::fs::remove_file(papers.claim()).context("cannot remove the claim of another attempt")?;
    }
    if standing(papers) == Standing::NotStarted {
        start(shim, papers, spec, secrets, log)?;
    }
    begun(papers).await
}

/// Waits until no claim of another attempt is in these folders, or so long: a shim that lives puts its own in the place of one that its
/// program copied, with its next look. Until then nobody can tell whether it has begun one.
pub(crate) async fn put_right(folders: &[PathBuf], limit: Duration) {
    let limit = Instant::now() + limit;
    while folders.iter().flat_map(|folder| of(folder)).any(|papers| papers.is_of_another()) && Instant::now() < limit {
        tokio::time::sleep(LOOK_EACH).await;
    }
}

/// Starts the shim of a program.
fn start(
    shim: &[OsString],
    papers: &Papers,
    spec: &Spec,
    secrets: &BTreeMap<String, String>,
    log: &Path,
) -> anyhow::Result<()> {
    files::replace_json(&papers.spec(), spec).context("cannot write what to start")?;
    let (binary, arguments) = shim.split_first().context("no shim")?;
    let log = files::append_to(log).context("cannot open the shim's log")?;
    // The child is not waited for here: the agent reaps whatever ends below it (`reap`).
    // A program that removed all that is the agent's took that too, and the agent is still what it was started from.
    let myself = Path::new("/proc/self/exe");
    let mut command = Command::new(if Path::new(binary).exists() { binary.as_os_str() } else { myself.as_os_str() });
    command
        .args(arguments)
        .arg(papers.spec())
        .envs(secrets.iter().map(|(name, value)| (format!("{SECRET}{name}"), value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    shim::spawn_kept(&mut command).context("cannot start the shim")?;
    Ok(())
}

/// Waits until the shim of a program has started it.
pub(crate) async fn begun(papers: &Papers) -> anyhow::Result<Standing> {
    let limit = Instant::now() + START_LIMIT;
    loop {
        match standing(papers) {
            Standing::NotStarted | Standing::Starting if Instant::now() < limit => {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Standing::NotStarted | Standing::Starting => anyhow::bail!("the shim has not started the program"),
            done @ (Standing::Running(_) | Standing::Ended(_) | Standing::Lost) => return Ok(done),
        }
    }
}

/// Waits until a program has ended, and says how. Its output is taken over meanwhile, if its shim dies.
pub(crate) async fn end_of(papers: Papers, started: Started, reaped: Reaped, taken_over: TakenOver) -> Ended {
    let paper = papers.ended();
    let program = started.family.program;
    let (mut is_kept, mut dead_since) = (true, None);
    // It lives as long as anything that the program left: without a place for it, its word may never come.
    let mut is_word_due =
        || program.is_alive() || dead_since.get_or_insert_with(Instant::now).elapsed() < papers.told_within();
    for look in 0_u32.. {
        // The shim's word comes at the end; everything else is only needed for a shim that was killed.
        if paper.exists() || look.is_multiple_of(LOOKS_UNTIL_CLOSER) {
            // Looked at before: it writes before it leaves. Papers that were removed it makes anew.
            let is_shim_alive = started.family.shim.is_alive();
            if let Some(ended) = papers.end(started.family.shim) {
                return ended;
            }
            match standing(&papers) {
                Standing::Running(_) | Standing::Starting if is_shim_alive => {}
                Standing::Ended(_) | Standing::Lost | Standing::NotStarted if is_shim_alive && is_word_due() => {}
                Standing::Ended(_)
                | Standing::Lost
                | Standing::NotStarted
                | Standing::Running(_)
                | Standing::Starting => {
                    // Without its shim, the program is a child of the agent, if it was this agent that started it.
                    let end = reaped.get(program.pid).or_else(|| (!program.is_alive()).then_some(Exit::Silent));
                    if let Some(exit) = end {
                        if is_kept {
                            taken_over.missed(papers.folder());
                        }
                        return Ended { exit, at: Timestamp::now() };
                    }
                    if std::mem::take(&mut is_kept) {
                        taken_over.begin(started.pipes, papers.folder());
                    }
                }
            }
        }
        tokio::time::sleep(LOOK_EACH).await;
    }
    Ended { exit: Exit::Silent, at: Timestamp::now() }
}

/// Waits until nobody adds to the output of the attempt in this folder any more: no shim, whether its papers are there or it is this
/// one that is known, and not the agent for one. True if that is so before `limit`.
pub(crate) async fn is_written(
    folder: &Path,
    known: Option<Birth>,
    taken_over: &TakenOver,
    limit: Option<Duration>,
) -> bool {
    let limit = limit.map(|limit| Instant::now() + limit);
    let papers = of(folder);
    let is_writing = || {
        let mut shims = papers.iter().filter_map(Papers::claimed).chain(known);
        taken_over.is_any() || shims.any(Birth::is_alive)
    };
    while is_writing() {
        if limit.is_some_and(|limit| Instant::now() >= limit) {
            return false;
        }
        tokio::time::sleep(LOOK_EACH / 4).await;
    }
    true
}

/// In the place of a shim's claim: no shim may start the program any more. It is no process, so none that lives.
pub(crate) const NOBODY: Birth = Birth { pid: 0, start: 0 };

/// Sees to it that no program of the attempt in this folder is started from now on, however late its shim comes. A shim that is
/// on the way to a start is ended; answers the families that it may have begun, for who ends all that lives. `live` is known to be
/// begun: its papers the program may have removed.
pub(crate) async fn forbid(folder: &Path, live: Option<(Name, Family)>) -> Vec<Family> {
    let mut begun = Vec::new();
    for (papers, name) in of(folder).iter().zip(NAMES) {
        let known = live.filter(|(live, _)| *live == name).map(|(_, family)| family);
        let started = || papers.begun().map(|started| started.family).or(known);
        // That of a shim that lives stays its own: it is waited for by that.
        let claim = papers.paper(started().map_or(NOBODY, |family| family.shim));
        if let Err(error) = files::create_json(&papers.claim(), &claim) {
            // Where the disk is full, a second name for a paper that is there needs less.
            let linked = std::fs::hard_link(papers.spec(), papers.claim());
            tracing::warn!(%error, is_linked = linked.is_ok(), "cannot claim a program");
        }
        let Some(shim) = papers.claimed().filter(|claim| *claim != NOBODY) else { continue };
        if started().is_some() && !shim.is_alive() || papers.end(shim).is_some() {
            continue;
        }
        while started().is_none() && shim.is_alive() {
            shim.signal(Signal::KILL);
            tokio::time::sleep(LOOK_EACH).await;
        }
        // It leads a session, and what it has just begun is in there.
        begun.push(started().unwrap_or(Family { shim, program: shim }));
    }
    begun
}

/// The shims that were begun on this slice, by this agent or an earlier one.
pub(crate) fn shims(layout: &Layout) -> Vec<Birth> {
    let folders = layout.attempts().into_iter().map(|attempt| layout.attempt(attempt));
    let claims = folders.flat_map(|folder| of(&folder)).filter_map(|papers| papers.claimed());
    claims.filter(|claim| *claim != NOBODY).collect()
}

/// Both programs of an attempt.
const NAMES: [Name; 2] = [Name::Setup, Name::Run];

/// Their papers.
fn of(folder: &Path) -> [Papers; 2] {
    NAMES.map(|name| Papers::new(folder, name.as_str()))
}

/// Takes back [`forbid`].
pub(crate) fn allow(folder: &Path) {
    for papers in of(folder) {
        if papers.claimed() == Some(NOBODY) {
            let _ = std::fs::remove_file(papers.claim());
        }
    }
}

/// Exit statuses of children that the agent reaped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reaped(std::sync::Arc<std::sync::Mutex<BTreeMap<i32, Exit>>>);

impl Reaped {
    // Enough for the programs of several attempts; orphans that come to the agent by the thousand must not fill its
    // memory.
    const KEPT: usize = 1000;

    /// Starts a child whose end [`Reaped::get`] will tell: nobody else waits for it.
    pub(crate) fn spawn(
        &self,
        spawn: impl FnOnce() -> std::io::Result<std::process::Child>,
    ) -> std::io::Result<std::process::Child> {
        // Held meanwhile, so that no earlier process of the same number is taken for it.
        let mut kept = self.0.lock().map_err(|_| std::io::Error::other("a lock is broken"))?;
        let child = spawn()?;
        kept.remove(&child.id().cast_signed());
        Ok(child)
    }

    /// How a child ended, if it has.
    pub(crate) fn get(&self, pid: i32) -> Option<Exit> {
        self.0.lock().ok()?.get(&pid).copied()
    }

    /// Takes the status of every child that has ended.
    pub(crate) fn reap(&self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {
            if let Ok(mut kept) = self.0.lock() {
                if kept.len() >= Self::KEPT {
                    kept.clear();
                }
                kept.insert(pid.as_raw_nonzero().get(), crate::shim::exit_of(status));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_is_made_between_two_looks_is_no_death() {
        let folder = tempfile::tempdir().unwrap();
        let papers = Papers::new(folder.path(), "run");
        let me = Birth::of(std::process::id().cast_signed()).unwrap();
        for _ in 0..500 {
            let claims = std::thread::scope(|scope| {
                scope.spawn(|| files::create_json(&papers.claim(), &papers.paper(me)).unwrap());
                std::iter::repeat_with(|| standing(&papers)).find(|s| *s != Standing::NotStarted)
            });
            assert_eq!(claims, Some(Standing::Starting), "the shim, which is this process, lives");
            papers.remove();
        }
    }

    #[tokio::test]
    async fn a_shim_that_comes_after_the_end_starts_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let papers = Papers::new(folder.path(), "run");
        let spec = Spec {
            argv: vec!["true".into()],
            env: BTreeMap::new(),
            secrets: Vec::new(),
            cwd: folder.path().into(),
            boot_id: String::new(),
            syncs: false,
            root: folder.path().to_owned(),
            stdout: folder.path().join("stdout"),
            stderr: folder.path().join("stderr"),
        };
        files::replace_json(&papers.spec(), &spec).unwrap();
        assert!(forbid(folder.path(), None).await.is_empty(), "nothing was begun");
        let late = papers.spec();
        tokio::task::spawn_blocking(move || crate::shim::run(&late)).await.unwrap().unwrap();
        assert!(!papers.started().exists() && !papers.ended().exists());
        assert_eq!(standing(&papers), Standing::Lost);
        allow(folder.path());
        assert_eq!(standing(&papers), Standing::NotStarted);
    }

    #[tokio::test]
    async fn a_shim_that_lives_has_the_time_to_put_its_own_claim_in_the_place_of_another() {
        let home = tempfile::tempdir().unwrap();
        let folders = ["a1", "a2"].map(|name| home.path().join(name));
        for folder in &folders {
            std::fs::create_dir(folder).unwrap();
        }
        let [first, second] = folders.each_ref().map(|folder| Papers::new(folder, "run"));
        let me = Birth::of(std::process::id().cast_signed()).unwrap();
        files::replace_json(&first.claim(), &first.paper(NOBODY)).unwrap();
        std::fs::copy(first.claim(), second.claim()).unwrap();
        put_right(&folders, Duration::ZERO).await;
        assert!(second.is_of_another(), "no longer than that");
        let shim = async {
            tokio::task::yield_now().await;
            files::replace_json(&second.claim(), &second.paper(me)).unwrap();
        };
        tokio::join!(put_right(&folders, Duration::from_hours(1)), shim);
        assert_eq!(second.claimed(), Some(me));
    }

    #[tokio::test]
    async fn a_shim_whose_papers_are_removed_is_known_to_keep_the_output() {
        let folder = tempfile::tempdir().unwrap();
        let papers = Papers::new(folder.path(), "run");
        let me = Birth::of(std::process::id().cast_signed()).unwrap();
        let family = Family { shim: me, program: Birth { pid: 0, start: 1 } };
        let (taken_over, now) = (TakenOver::new(folder.path().into()), Some(Duration::ZERO));
        assert_eq!(forbid(folder.path(), Some((Name::Run, family))).await, [family], "it is not ended");
        assert_eq!(papers.claimed(), Some(me), "also for the next agent");
        assert!(!is_written(folder.path(), None, &taken_over, now).await);
        // Where nothing can be written down, this agent knows it.
        std::fs::remove_dir_all(folder.path()).unwrap();
        forbid(folder.path(), Some((Name::Run, family))).await;
        assert!(is_written(folder.path(), None, &taken_over, now).await);
        assert!(!is_written(folder.path(), Some(me), &taken_over, now).await);
    }
}
