//! The process table: which processes belong to this worker's programs, and how they are ended for good.
//!
//! **Invariant:** a process is known by its id and its start time together, so a number that the kernel gave to
//! somebody else is never signalled. Programs are found by four marks, any of which is enough: descent from a
//! shim (of whatever program and attempt: it lives as long as anything below it) or from this agent (which people's commands
//! come from, and what a dead shim leaves), session of the current program, process group (that of a person's command is
//! written down), and an environment variable that every child inherits (the only one that a grandchild in a session of its own keeps once its shim
//! and its agent are dead).
//!
//! **Limit:** one thing has none of them, and lives on: what gave up session and environment (`setsid env -i`, and below
//! another program than the current one `env -i` alone), and whose shim *and* agent were both killed while it lived. It is a child of process 1 then. Nothing of ours ends it before its
//! machine, but no attempt begins while it holds a device. So it is where its shim is stuck and the paper that names that is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use procfs::process::{Process, Stat};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::machine::Name;
use crate::shim::{self, Papers};

/// Environment variable that marks a program of ours and everything it starts.
pub(crate) const MARK: &str = "REKINDLE_MARK";

/// After the program itself has ended, what it left behind gets so long between SIGTERM and SIGKILL.
// Helpers of a dead program (data loaders, launchers) save nothing; the next attempt waits for them.
pub(crate) const LEFTOVER_GRACE: Duration = Duration::from_secs(2);

/// Who is told only when the time is over (since a disk or a process table held us up, or the order came late) has so long all the same.
// Half of what is left then until the machine goes, if it goes (`LAST_WORDS`): the other half is for telling how it ended.
const LATE_GRACE: Duration = Duration::from_secs(1);

/// A process, told apart from later ones with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Birth {
    /// Its number.
    pub(crate) pid: i32,
    /// Its start, in clock ticks since the kernel's boot.
    pub(crate) start: u64,
}

impl Birth {
    /// The process that now has this number.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        stat(pid).map(|s| Self { pid, start: s.starttime })
    }

    /// True while it lives; a zombie does not.
    pub(crate) fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|s| s.starttime == self.start && !is_dead(&s))
    }

    fn handle(self) -> Option<Pid> {
        if self.pid > 1 { Pid::from_raw(self.pid) } else { None }
    }

    /// Sends a signal, if it is still the same process.
    pub(crate) fn signal(self, signal: Signal) {
        let Some(pid) = self.handle() else { return };
        // The handle is taken before the look, so that the number cannot change hands in between.
        match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            Ok(fd) => {
                if self.is_alive() {
                    let _ = rustix::process::pidfd_send_signal(&fd, signal);
                }
            }
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) if self.is_alive() => {
                let _ = rustix::process::kill_process(pid, signal);
            }
            Err(_) => {}
        }
    }

    fn is_in_group(self, group: i32) -> bool {
        stat(self.pid).is_some_and(|s| s.starttime == self.start && s.pgrp == group)
    }

    /// Sends a signal to the process group that it leads, if it is still the same process.
    fn signal_group(self, signal: Signal) {
        if let Some(pid) = self.handle().filter(|_| self.is_alive()) {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }
}

/// A program and its shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Family {
    /// The parent, leader of the session.
    pub(crate) shim: Birth,
    /// The program, leader of its process group.
    pub(crate) program: Birth,
}

/// What is to be ended: programs of this worker.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    /// Of the agent: what it marked is its own.
    pub(crate) home: PathBuf,
    /// The program.
    pub(crate) family: Option<Family>,
    /// Leaders of the groups of people's commands, which an earlier agent may have begun: in this boot.
    pub(crate) commands: Vec<Birth>,
    /// Shims of all attempts, perhaps of another boot, which an earlier agent may have begun: that of `setup` lives as long as what `setup` left.
    pub(crate) shims: Vec<Birth>,
}

/// The value of [`MARK`] for what is begun in the folder of an attempt.
pub(crate) fn mark(home: &Path, attempt: &Path) -> String {
    format!("{}#{}", home.display(), attempt.display())
}

/// That of one of its programs.
pub(crate) fn mark_of(home: &Path, attempt: &Path, name: Name) -> String {
    format!("{}#{}", mark(home, attempt), name.as_str())
}

fn stat(pid: i32) -> Option<Stat> {
    Process::new(pid).ok()?.stat().ok()
}

fn is_dead(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X' | 'x')
}

fn table() -> Result<BTreeMap<i32, Stat>, procfs::ProcError> {
    let stats = procfs::process::all_processes()?.flatten().filter_map(|process| process.stat().ok());
    Ok(stats.map(|stat| (stat.pid, stat)).collect())
}

/// Every living process of this worker's programs; shims are none.
///
/// # Errors
/// If the process table cannot be read: then nothing is proved.
pub(crate) fn members(of: &Programs) -> Result<Vec<Birth>, procfs::ProcError> {
    let Programs { home, family, commands, shims } = of;
    let table = table()?;
    let is = |birth: Birth| table.get(&birth.pid).is_none_or(|s| s.starttime == birth.start);
    // A number of ours that now belongs to another process says nothing any more, and one that nobody has only as long as what
    // was below it keeps the kernel from giving it away: of a shim of long ago, or of another boot, that is not known.
    let lives = |birth: &&Birth| table.get(&birth.pid).is_some_and(|s| s.starttime == birth.start);
    let shims = shims.iter().filter(lives).copied().chain(family.map(|f| f.shim).filter(|shim| is(*shim)));
    let shims: BTreeSet<i32> = shims.map(|b| b.pid).collect();
    let leaders = family.map(|f| f.program).into_iter().chain(commands.iter().copied());
    let groups: BTreeSet<i32> = leaders.filter(|b| is(*b)).map(|b| b.pid).collect();
    let children = descendants(&table, shims.iter().copied());
    let me = std::process::id().cast_signed();
    let mine = descendants(&table, Some(me));
    let prefix = format!("{MARK}={}#", home.display()).into_bytes();
    let found = table
        .values()
        .filter(|s| !is_dead(s) && s.pid > 1 && s.pid != me && !shims.contains(&s.pid))
        .filter(|s| {
            shims.contains(&s.session)
                || groups.contains(&s.pgrp)
                || children.contains(&s.pid)
                || has_mark(s.pid, &prefix)
                || (mine.contains(&s.pid) && !is_shim(s.pid))
        })
        .map(|s| Birth { pid: s.pid, start: s.starttime })
        .collect();
    Ok(found)
}

fn descendants(table: &BTreeMap<i32, Stat>, roots: impl IntoIterator<Item = i32>) -> BTreeSet<i32> {
    let mut open: Vec<i32> = roots.into_iter().collect();
    if open.is_empty() {
        return BTreeSet::new();
    }
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for s in table.values() {
        children.entry(s.ppid).or_default().push(s.pid);
    }
    let mut found = BTreeSet::new();
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if found.insert(*child) {
                open.push(*child);
            }
        }
    }
    found
}

/// Whether a child of the agent is the parent of a program, and none itself.
fn is_shim(pid: i32) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split(|b| *b == 0).rev().filter(|word| !word.is_empty());
    words.next().is_some_and(|word| word.ends_with(crate::shim::SPEC.as_bytes())) && words.next() == Some(b"shim")
}

fn has_mark(pid: i32, prefix: &[u8]) -> bool {
    marked(pid, |entry| entry.starts_with(prefix))
}

fn marked(pid: i32, is: impl Fn(&[u8]) -> bool) -> bool {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environ.split(|b| *b == 0).any(is)
}

/// What must not live when a program is started: other attempts' processes and its own. It is known by the mark alone, whatever has
/// become of the papers, which may be gone or copied. What a shim that lives keeps is spared: it is to be adopted.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    /// Of the agent.
    pub(crate) home: PathBuf,
    /// Of the attempt.
    pub(crate) folder: PathBuf,
    /// What is to be started.
    pub(crate) name: Name,
}

impl Fence {
    /// Who lives, and whether that is of this very program.
    fn alive(&self) -> Result<(Vec<Birth>, bool), procfs::ProcError> {
        let attempt = mark(&self.home, &self.folder);
        let (ours, of_program) = (format!("{}#", self.home.display()), mark_of(&self.home, &self.folder, self.name));
        // What `setup` left may serve the program. One of a former form carries no more than its attempt.
        let serves = [attempt.clone(), mark_of(&self.home, &self.folder, Name::Setup)];
        let is_stray =
            |mark: &str| mark.starts_with(&ours) && (self.name == Name::Setup || !serves.iter().any(|of| of == mark));
        let (mut alive, mut is_begun) = (Vec::new(), false);
        for stat in table()?.values().filter(|stat| !is_dead(stat) && stat.pid > 1) {
            let Some(mark) = mark_in(stat.pid).filter(|mark| is_stray(mark)) else { continue };
            // People's commands come after it.
            is_begun |= mark == of_program || mark.starts_with(&format!("{attempt}/"));
            alive.push(Birth { pid: stat.pid, start: stat.starttime });
        }
        Ok((alive, is_begun))
    }

    /// True where a shim that lives has claimed the program: what is alive of it is kept.
    pub(crate) fn is_kept(&self) -> bool {
        Papers::new(&self.folder, self.name.as_str()).claimed().is_some_and(Birth::is_alive)
    }

    /// Waits until nothing of an earlier attempt lives, which is ended; of `setup`, nothing of an earlier start of it, too. True if the
    /// program itself was begun and lives, and no shim keeps it: one that does puts its papers there again, and has the time for that.
    pub(crate) async fn is_begun(&self) -> bool {
        let (mut kill_at, mut kept_by, mut looks_empty, mut is_warned) = (None, None, 0, false);
        loop {
            let fence = self.clone();
            let look = tokio::task::spawn_blocking(move || (fence.is_kept(), fence.alive())).await;
            let Ok((is_kept, Ok((alive, is_begun)))) = look else {
                tracing::warn!("the process table cannot be read; nothing is proved to have ended");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            };
            if is_kept {
                return false;
            }
            if is_begun && Instant::now() < *kept_by.get_or_insert_with(|| Instant::now() + 2 * shim::LOOK_EACH) {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            if is_begun && self.name == Name::Run {
                return true;
            }
            if alive.is_empty() {
                // Twice, as in [`end`].
                looks_empty += 1;
                if looks_empty == 2 {
                    return false;
                }
                continue;
            }
            looks_empty = 0;
            let is_first = kill_at.is_none();
            let is_over = Instant::now() >= *kill_at.get_or_insert_with(|| Instant::now() + LEFTOVER_GRACE);
            if is_over && !std::mem::replace(&mut is_warned, true) {
                tracing::warn!(?alive, "what was begun before has not ended in time; it is killed and waited for");
            }
            for birth in alive {
                if is_over {
                    birth.signal(Signal::KILL);
                } else if is_first {
                    birth.signal(Signal::TERM);
                    birth.signal(Signal::CONT);
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The value of [`MARK`] in the environment of a process.
fn mark_in(pid: i32) -> Option<String> {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = format!("{MARK}=").into_bytes();
    let value = environ.split(|b| *b == 0).find_map(|entry| entry.strip_prefix(prefix.as_slice()))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Every living process of one command: its leader's group and descendants, and what carries its own mark, wherever it went.
fn members_of(mark: &str, leader: Birth) -> Result<Vec<Birth>, procfs::ProcError> {
    let table = table()?;
    let group = table.get(&leader.pid).is_none_or(|s| s.starttime == leader.start).then_some(leader.pid);
    let children = descendants(&table, group);
    let entry = format!("{MARK}={mark}").into_bytes();
    let is_of = |s: &&Stat| {
        Some(s.pgrp) == group || children.contains(&s.pid) || marked(s.pid, |known| known == entry.as_slice())
    };
    let me = std::process::id().cast_signed();
    let living = table.values().filter(|s| !is_dead(s) && s.pid > 1 && s.pid != me);
    Ok(living.filter(is_of).map(|s| Birth { pid: s.pid, start: s.starttime }).collect())
}

/// Ends a command and everything it started: SIGTERM, and after the grace SIGKILL. What a process starts in order to save is
/// left in peace until then.
pub(crate) async fn end_command(mark: String, leader: Birth, grace: Duration) {
    let kill_at = Instant::now() + grace;
    // What even SIGKILL does not end is stuck in the kernel, and nobody waits for it.
    let give_up_at = kill_at + LEFTOVER_GRACE;
    for look in 0_u32.. {
        let of = mark.clone();
        let Ok(Ok(alive)) = tokio::task::spawn_blocking(move || members_of(&of, leader)).await else {
            tracing::warn!("the process table cannot be read; a command may live on");
            return;
        };
        let now = Instant::now();
        if alive.is_empty() || now >= give_up_at {
            return;
        }
        for birth in alive {
            if now >= kill_at {
                birth.signal(Signal::KILL);
            } else if look == 0 {
                birth.signal(Signal::TERM);
                birth.signal(Signal::CONT);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Who has had a SIGTERM.
#[derive(Debug, Default)]
struct Told {
    /// The program's group has.
    is_program: bool,
    /// What was there at the first look and has none yet.
    due: Option<BTreeSet<Birth>>,
    /// What had it when the time was over, and until when it lives.
    late: BTreeSet<Birth>,
    late_until: Option<Instant>,
}

impl Told {
    /// Sends a SIGTERM to whoever is to have it now: the program, and what is beside it once the program is gone or the time is
    /// over.
    fn tell(&mut self, alive: &[Birth], program: Option<Birth>, (now, is_over): (Instant, bool)) {
        let leader = program.filter(|leader| alive.contains(leader));
        let due = self.due.get_or_insert_with(|| alive.iter().copied().collect());
        let is_in_group = |birth: &Birth| program.is_some_and(|program| birth.is_in_group(program.pid));
        if self.is_program || leader.is_some() {
            // Who is in the group has had it, or is about to.
            due.retain(|birth| !is_in_group(birth));
        }
        let mut now_told = Vec::new();
        if let Some(leader) = leader.filter(|_| !self.is_program) {
            self.is_program = true;
            now_told.extend(alive.iter().copied().filter(is_in_group));
            leader.signal_group(Signal::TERM);
            // A stopped process would never read the first.
            leader.signal_group(Signal::CONT);
        }
        if leader.is_none() || is_over {
            for birth in std::mem::take(due) {
                birth.signal(Signal::TERM);
                birth.signal(Signal::CONT);
                now_told.push(birth);
            }
        }
        if is_over && !now_told.is_empty() {
            self.late.extend(now_told);
            self.late_until = Some(now + LATE_GRACE);
        }
    }

    /// True while it is not killed yet, since it was told late.
    fn is_late(&self, birth: &Birth, now: Instant) -> bool {
        self.late_until.is_some_and(|until| now < until) && self.late.contains(birth)
    }
}

/// Ends every program of this worker and returns only when none of its processes lives: SIGTERM to the program's
/// group, SIGKILL at `kill_at` (which may be moved while it waits).
///
/// What lives beside the program has its SIGTERM when the program is gone, and then until `kill_at`; with `leftovers` no
/// longer than that. Nothing has two of them, and what is started later, in order to save, has none. Nothing that was there is
/// killed without one: what has had none by then has it then, and [`LATE_GRACE`]. A process that even
/// SIGKILL does not end (stuck in the kernel) keeps this waiting for ever: the device is not free. With `is_told` the
/// program's group has had its SIGTERM before, or none: of an agent that died just then it is not known, and two are worse.
pub(crate) async fn end(
    programs: Programs,
    is_told: bool,
    kill_at: watch::Receiver<Instant>,
    leftovers: Option<Duration>,
) {
    let mut told = Told { is_program: is_told, ..Told::default() };
    let mut leftovers_until: Option<Instant> = None;
    let mut looks_empty = 0;
    let mut pause = Duration::from_millis(5);
    loop {
        let of = programs.clone();
        let look = tokio::task::spawn_blocking(move || members(&of)).await;
        let Ok(Ok(alive)) = look else {
            tracing::warn!("the process table cannot be read; nothing is proved to have ended");
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        if alive.is_empty() {
            // Twice, because a process that was being forked during the first look is in the second.
            looks_empty += 1;
            if looks_empty == 2 {
                return;
            }
            continue;
        }
        looks_empty = 0;
        let program = programs.family.map(|f| f.program);
        let leader = program.filter(|leader| alive.contains(leader));
        let now = Instant::now();
        if leader.is_none() && leftovers_until.is_none() {
            leftovers_until = leftovers.map(|time| now + time);
        }
        let deadline = leftovers_until.map_or(*kill_at.borrow(), |until| until.min(*kill_at.borrow()));
        told.tell(&alive, program, (now, now >= deadline));
        if now >= deadline {
            alive.iter().filter(|birth| !told.is_late(birth, now)).for_each(|birth| birth.signal(Signal::KILL));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// [`end`] for each of these that is not the program itself: what had begun to start it when it was forbidden.
pub(crate) async fn end_strays(programs: &Programs, strays: &[Family], kill_at: &watch::Receiver<Instant>) {
    for stray in strays.iter().filter(|stray| Some(**stray) != programs.family) {
        let stray = Programs { family: Some(*stray), ..programs.clone() };
        end(stray, false, kill_at.clone(), Some(LEFTOVER_GRACE)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A session that has no leader any more; answers its number, and a process in it.
    fn session() -> (i32, Birth) {
        let text = "echo $$; sleep 987 >/dev/null & echo $!";
        let mut leader: Child =
            Command::new("setsid").args(["bash", "-c", text]).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(leader.stdout.take().unwrap()).lines();
        let said: Vec<i32> = said.map(|line| line.unwrap().parse().unwrap()).collect();
        leader.wait().unwrap();
        (said[0], Birth::of(said[1]).unwrap())
    }

    #[test]
    fn a_session_is_ours_by_a_shim_that_lives_or_by_that_of_the_current_program() {
        let (number, other) = session();
        let dead = Birth { pid: number, start: 1 };
        let home = tempfile::tempdir().unwrap();
        let of = |family: Option<Family>, shims: &[Birth]| {
            let programs =
                Programs { home: home.path().to_owned(), family, commands: Vec::new(), shims: shims.to_owned() };
            members(&programs).unwrap()
        };
        assert_eq!(table().unwrap().get(&number).map(is_dead), None, "nobody has the number");
        assert!(!of(None, &[dead]).contains(&other), "it may be anybody's");
        assert!(of(Some(Family { shim: dead, program: dead }), &[]).contains(&other), "its shim has just died");
        // Below one that lives.
        let mut shim = Command::new("setsid").args(["bash", "-c", "sleep 986 & wait"]).spawn().unwrap();
        let birth = Birth::of(shim.id().cast_signed()).unwrap();
        while of(None, &[birth]).is_empty() {
            assert!(birth.is_alive());
        }
        for birth in of(None, &[birth]).into_iter().chain([birth, other]) {
            birth.signal(Signal::KILL);
        }
        shim.wait().unwrap();
    }
}
