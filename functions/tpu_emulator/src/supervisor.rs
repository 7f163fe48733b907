//! The supervisor of one emulated VM: a process of its own that outlives the emulator.
//!
//! It leads a session, adopts every orphan among its descendants, serves the VM's metadata server, runs the startup
//! script, and ends the whole tree when it is told to, when its folder is gone, or when the emulator has been away
//! for too long. Entry point: [`supervisor_main`], reached through a hidden subcommand of whichever binary embeds the
//! emulator.
//!
//! **Invariant:** when the supervisor has ended by itself, no process of the VM is left.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc;

use crate::vm::{BootDir, MARKER, VmExit, VmProgram, VmRecord, VmSpec, read_json, write_json};

mod metadata;
mod sockets;
pub(crate) mod tree;

/// How often the supervisor looks for its folder and for the emulator's sign of life.
const WATCH_PERIOD: Duration = Duration::from_millis(250);

/// The first wait before a startup script that ended with an error is started again, as systemd waits for the agent; each next one is
/// twice as long.
const RESTART_MIN: Duration = Duration::from_secs(1);

/// The longest such wait: as long as the script itself waits at most between two tries.
const RESTART_MAX: Duration = Duration::from_secs(20);

/// What a control call asks of the supervisor's main loop.
pub(crate) enum Order {
    /// Kill everything on the VM and end.
    End(tokio::sync::oneshot::Sender<()>),
}

/// Runs the supervisor of one VM; `args` are the arguments after the hidden subcommand: exactly one, the folder of
/// the boot. Returns when the VM is off.
pub fn supervisor_main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let [folder] = args.as_slice() else {
        return ExitCode::from(2);
    };
    let _ = tracing_subscriber::fmt().with_ansi(false).with_writer(io::stderr).log_internal_errors(false).try_init();
    match run(&BootDir(folder.into())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(dir: &BootDir) -> anyhow::Result<()> {
    // First of all: a Ctrl-C at the emulator's terminal must not reach the VM. Fails only for a session leader.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let lock = File::create(dir.lock())?;
    if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        // Another supervisor of this boot was started by an emulator that died before it saw us.
        return Ok(());
    }
    let spec: VmSpec = read_json(&dir.spec()).ok_or_else(|| anyhow::anyhow!("no spec in {}", dir.0.display()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(supervise(dir, Arc::new(spec)))
}

async fn supervise(dir: &BootDir, spec: Arc<VmSpec>) -> anyhow::Result<()> {
    let mut children = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child())?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let listener = bind(&spec).await?;
    let address = listener.local_addr()?;
    let own = procfs::process::Process::myself()?.stat()?;
    let record = VmRecord { pid: own.pid, start_time: own.starttime, machine_boot: machine_boot()?, address };
    let (orders, mut inbox) = mpsc::channel(4);
    let server = metadata::router(spec.clone(), dir.clone(), address, orders);
    tokio::spawn(async move { axum::serve(listener, server).await });
    if dir.off().exists() {
        return Ok(());
    }
    let begun = start(dir, &spec, address).and_then(|program| {
        write_json(&dir.record(), &record)?;
        Ok(program)
    });
    let program = match begun {
        Ok(program) => program,
        Err(error) => {
            // The script may run already, and this boot is begun anew.
            tree::kill_descendants(|| {}).await?;
            return Err(error);
        }
    };
    let mut script = Script { program, is_untold: false, restart: Restart::new(spec.restarts_script) };
    let mut watch = tokio::time::interval(WATCH_PERIOD);
    let mut sign_of_life = SignOfLife::new(&spec);
    loop {
        tokio::select! {
            _ = children.recv() => reap(dir, &mut script),
            _ = watch.tick() => {
                reap(dir, &mut script);
                if !dir.spec().exists() {
                    return end(dir, &mut script, "the folder of the VM is gone").await;
                }
                if dir.off().exists() {
                    return end(dir, &mut script, "power-off").await;
                }
                if sign_of_life.is_over() {
                    return end(dir, &mut script, "the emulator was away for too long").await;
                }
                if script.restart.is_due(Instant::now()) {
                    script.start_again(dir, &spec, address);
                }
            }
            _ = terminate.recv() => return end(dir, &mut script, "SIGTERM").await,
            Some(Order::End(done)) = inbox.recv() => {
                end(dir, &mut script, "power-off").await?;
                let _ = done.send(());
                // The answer goes out before the process ends; the caller waits for the end of the process anyway.
                tokio::task::yield_now().await;
                return Ok(());
            }
        }
    }
}

/// The port of the earlier boot where it is free, else any.
async fn bind(spec: &VmSpec) -> io::Result<tokio::net::TcpListener> {
    if let Some(port) = spec.port
        && let Ok(listener) = tokio::net::TcpListener::bind((spec.ip, port)).await
    {
        return Ok(listener);
    }
    tokio::net::TcpListener::bind((spec.ip, 0)).await
}

/// The boot id of the machine.
pub(crate) fn machine_boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

fn start(dir: &BootDir, spec: &VmSpec, address: std::net::SocketAddr) -> anyhow::Result<Option<VmProgram>> {
    std::fs::create_dir_all(&spec.home)?;
    std::fs::create_dir_all(&spec.tmp)?;
    let Some(text) = &spec.startup_script else { return Ok(None) };
    let script = dir.0.join("startup-script");
    std::fs::write(&script, text)?;
    let address = address.to_string();
    let mut command = Command::new("/bin/bash");
    command.arg(&script).current_dir(&spec.home).env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
        .env("HOME", &spec.home)
        .env("TMPDIR", &spec.tmp)
        .env("USER", "root")
        .env("LOGNAME", "root")
        .env("SHELL", "/bin/bash")
        .env("LANG", "C.UTF-8")
        .env("GCE_METADATA_HOST", &address)
        .env("GCE_METADATA_ROOT", &address)
        .env("GCE_METADATA_IP", &address)
        .env(MARKER, &spec.marker)
        .envs(&spec.env)
        .stdin(Stdio::null())
        .stdout(File::options().create(true).append(true).open(dir.stdout())?)
        .stderr(File::options().create(true).append(true).open(dir.stderr())?);
    let pid = command.spawn()?.id().cast_signed();
    let program = VmProgram { pid, exit: None };
    write_json(&dir.program(), &program)?;
    Ok(Some(program))
}

/// The startup script, and what the emulator knows of it.
struct Script {
    program: Option<VmProgram>,
    /// It has ended, and that is not written yet: the disk may be full.
    is_untold: bool,
    restart: Restart,
}

impl Script {
    /// Starts it once more.
    fn start_again(&mut self, dir: &BootDir, spec: &VmSpec, address: std::net::SocketAddr) {
        match start(dir, spec, address) {
            Ok(program) => (self.program, self.is_untold) = (program, false),
            Err(error) => {
                tracing::warn!("the startup script cannot be started again: {error:#}");
                self.restart.ended(true, Instant::now());
            }
        }
    }

    /// Writes down how it ended, unless that is done.
    fn tell(&mut self, dir: &BootDir) {
        if !self.is_untold {
            return;
        }
        match self.program.as_ref().map(|program| write_json(&dir.program(), program)) {
            None | Some(Ok(())) => self.is_untold = false,
            Some(Err(error)) => tracing::warn!("cannot write the exit of the startup script yet: {error}"),
        }
    }
}

/// Takes in every child that has ended: the startup script, and orphans that came to us.
fn reap(dir: &BootDir, script: &mut Script) {
    while let Ok(Some((pid, status))) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {
        let ended = script.program.as_mut().filter(|program| program.pid == pid.as_raw_nonzero().get());
        let Some(program) = ended else { continue };
        let status = std::process::ExitStatus::from_raw(status.as_raw());
        program.exit = Some(VmExit { code: status.code(), signal: status.signal(), at: jiff::Timestamp::now() });
        script.is_untold = true;
        // One that was killed is left dead: that is what `kill-worker` is for.
        script.restart.ended(status.code().is_some_and(|code| code != 0), Instant::now());
    }
    script.tell(dir);
}

async fn end(dir: &BootDir, script: &mut Script, reason: &str) -> anyhow::Result<()> {
    tracing::info!("the VM ends: {reason}");
    tree::kill_descendants(|| reap(dir, script)).await?;
    if dir.0.exists() {
        crate::vm::write_atomically(&dir.end(), reason.as_bytes())?;
    }
    Ok(())
}

/// When a startup script that ended with an error is started again.
#[derive(Debug)]
struct Restart {
    is_wanted: bool,
    begun_at: Instant,
    failures: u32,
    due_at: Option<Instant>,
}

impl Restart {
    fn new(is_wanted: bool) -> Self {
        Self { is_wanted, begun_at: Instant::now(), failures: 0, due_at: None }
    }

    /// The script has ended, or could not be started.
    fn ended(&mut self, is_failure: bool, now: Instant) {
        if !(self.is_wanted && is_failure) {
            return;
        }
        // One that ran for longer than the longest wait did what it is for.
        let is_first = now.duration_since(self.begun_at) > RESTART_MAX;
        self.failures = if is_first { 0 } else { self.failures + 1 };
        let wait = RESTART_MIN.saturating_mul(1 << self.failures.saturating_sub(1).min(10)).min(RESTART_MAX);
        tracing::warn!("the startup script ended with an error, and is started again in {wait:?}");
        self.due_at = Some(now + wait);
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.due_at.take_if(|at| *at <= now).is_some();
        if is_due {
            self.begun_at = now;
        }
        is_due
    }
}

/// When the emulator last touched its file. Counted on our own clock, so that a clock that is set does no harm.
struct SignOfLife<'a> {
    file: &'a Path,
    limit: Duration,
    seen: Option<SystemTime>,
    changed_at: Instant,
}

impl<'a> SignOfLife<'a> {
    fn new(spec: &'a VmSpec) -> Self {
        let limit = Duration::from_millis(spec.away_limit_ms);
        Self { file: &spec.alive_file, limit, seen: None, changed_at: Instant::now() }
    }

    fn is_over(&mut self) -> bool {
        let touched = std::fs::metadata(self.file).and_then(|metadata| metadata.modified()).ok();
        if touched != self.seen {
            self.seen = touched;
            self.changed_at = Instant::now();
        }
        self.changed_at.elapsed() > self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_that_the_disk_refused_is_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let dir = BootDir(folder.path().to_owned());
        let exit = VmExit { code: Some(1), signal: None, at: jiff::Timestamp::UNIX_EPOCH };
        let program = VmProgram { pid: 7, exit: Some(exit) };
        let mut script = Script { program: Some(program.clone()), is_untold: true, restart: Restart::new(false) };
        std::fs::create_dir(dir.program()).unwrap();
        script.tell(&dir);
        assert!(script.is_untold, "nothing can be written there");
        std::fs::remove_dir(dir.program()).unwrap();
        script.tell(&dir);
        assert!(!script.is_untold);
        assert_eq!(read_json::<VmProgram>(&dir.program()), Some(program));
    }

    #[test]
    fn a_script_that_fails_is_started_again_after_longer_and_longer_waits() {
        let second = Duration::from_secs(1);
        let mut restart = Restart::new(true);
        let mut now = restart.begun_at;
        restart.ended(false, now);
        assert!(!restart.is_due(now + 100 * second), "one that ended well has done what it is for");
        for wait in [1, 2, 4, 8, 16, 20, 20] {
            restart.ended(true, now);
            assert!(!restart.is_due(now + (wait - 1) * second));
            now += wait * second;
            assert!(restart.is_due(now) && !restart.is_due(now), "once");
        }
        now += 21 * second;
        restart.ended(true, now);
        assert!(restart.is_due(now + second), "it had run for long");
        let mut restart = Restart::new(false);
        restart.ended(true, now);
        assert!(!restart.is_due(now + 100 * second), "as on a real VM");
    }
}
