//! What the agent is told by its command line and environment. Everything about the job comes from node metadata.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Where the agent keeps everything on a TPU VM.
pub const DEFAULT_HOME: &str = "/var/lib/rekindle";

/// Command line of the agent, also as environment variables.
#[derive(Debug, Clone, clap::Args)]
pub struct AgentArgs {
    /// What to do instead of being the agent.
    #[command(subcommand)]
    pub command: Option<AgentCommand>,
    /// Folder for state, bundles, output and the program's working directory.
    #[arg(long, env = "REKINDLE_HOME", default_value = DEFAULT_HOME)]
    pub home: PathBuf,
    /// Host, or host and port, of the metadata server.
    #[arg(long, env = "GCE_METADATA_HOST", default_value = "metadata.google.internal")]
    pub metadata_host: String,
    /// Boot id, where machines share one kernel.
    #[arg(long, env = "REKINDLE_BOOT_ID")]
    pub boot_id: Option<String>,
    /// File with the boot id, where none is given.
    #[arg(long, env = "REKINDLE_BOOT_ID_FILE", default_value = "/proc/sys/kernel/random/boot_id")]
    pub boot_id_file: PathBuf,
    /// Folder of device files.
    #[arg(long, env = "REKINDLE_DEV_DIR", default_value = "/dev", hide = true)]
    pub dev_dir: PathBuf,
    /// Lock file of the TPU runtime.
    #[arg(long, env = "REKINDLE_LIBTPU_LOCK", default_value = "/tmp/libtpu_lockfile", hide = true)]
    pub libtpu_lock: PathBuf,
    /// Folder below which the kernel's files (proc, sys, dev/kmsg) are read for evidence.
    #[arg(long, env = "REKINDLE_KERNEL_ROOT", default_value = "/", hide = true)]
    pub kernel_root: PathBuf,
    /// Folder in memory for the programs' output until it is sent [default: the home folder].
    #[arg(long, env = "REKINDLE_BUFFER_DIR", hide = true)]
    pub buffer_dir: Option<PathBuf>,
    /// Milliseconds between two uploads of output.
    #[arg(long, env = "REKINDLE_LOG_FLUSH_MS", default_value_t = 2000, hide = true)]
    pub log_flush_ms: u64,
    /// Most bytes of output that wait for their upload; older ones are dropped.
    #[arg(long, env = "REKINDLE_LOG_BACKLOG_BYTES", default_value_t = 256 << 20, hide = true)]
    pub log_backlog_bytes: u64,
    /// Milliseconds from `preempted` = TRUE to the end of the machine.
    #[arg(long, env = "REKINDLE_PREEMPTION_NOTICE_MS", default_value_t = 30_000, hide = true)]
    pub preemption_notice_ms: u64,
    /// Milliseconds for which outputs are collected after a program's own end.
    #[arg(long, env = "REKINDLE_OUTPUTS_MS", default_value_t = 240_000, hide = true)]
    pub outputs_ms: u64,
}

/// Hidden ways to run the agent's binary.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum AgentCommand {
    /// The parent of one program: starts it, waits for it, writes down how it ended.
    #[command(hide = true)]
    Shim {
        /// The file that says what to start.
        spec: PathBuf,
    },
}

/// Everything that [`crate::run`] needs to know.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// Folder for state, bundles, output and the program's working directory; absolute.
    pub home: PathBuf,
    /// Host, or host and port, of the metadata server.
    pub metadata_host: String,
    /// Boot id of this machine.
    pub boot_id: String,
    /// Folder of device files.
    pub dev_dir: PathBuf,
    /// Lock file of the TPU runtime.
    pub libtpu_lock: PathBuf,
    /// Folder below which the kernel's files are read for evidence; processes themselves are always the machine's.
    pub kernel_root: PathBuf,
    /// Folder for output that is not sent yet; absolute. The home folder, or one in memory.
    pub buffer: PathBuf,
    /// Between two uploads of output.
    pub log_flush: Duration,
    /// Most bytes of output that wait for their upload, for each stream.
    pub log_backlog_bytes: u64,
    /// From `preempted` = TRUE to the end of the machine.
    // Compute Engine gives at most about 30 s; the TPU API has no field for the longer notice (tpu-api.md section 4.4).
    pub preemption_notice: Duration,
    /// For so long outputs are collected after a program's own end.
    // Less than the manager keeps the machine for them, which counts from the end of the last worker (`Settings::outputs_wait`).
    pub outputs_max: Duration,
    /// Command line of the shim, without the path of its file.
    pub shim: Vec<OsString>,
}

impl AgentConfig {
    /// Reads the boot id and finds this binary. `prefix` is what stands before the agent's own arguments (`__agent` in
    /// the CLI).
    ///
    /// # Errors
    /// If the home folder cannot be made, or the boot id cannot be read.
    pub fn from_args(prefix: &[&str], args: AgentArgs) -> anyhow::Result<Self> {
        use anyhow::Context as _;

        std::fs::create_dir_all(&args.home).with_context(|| format!("cannot make {}", args.home.display()))?;
        let home = args.home.canonicalize().with_context(|| format!("cannot resolve {}", args.home.display()))?;
        let buffer = match args.buffer_dir.filter(|dir| !dir.as_os_str().is_empty()) {
            // Without memory to buffer in, the disk is better than no output.
            Some(dir) => std::fs::create_dir_all(&dir).and_then(|()| dir.canonicalize()).unwrap_or_else(|error| {
                tracing::warn!(dir = %dir.display(), %error, "output is buffered in the home folder");
                home.clone()
            }),
            None => home.clone(),
        };
        let boot_id = match args.boot_id.filter(|id| !id.is_empty()) {
            Some(id) => id,
            None => std::fs::read_to_string(&args.boot_id_file)
                .with_context(|| format!("cannot read the boot id from {}", args.boot_id_file.display()))?
                .trim()
                .to_owned(),
        };
        let mut shim = vec![std::env::current_exe().context("cannot find this binary")?.into_os_string()];
        shim.extend(prefix.iter().map(OsString::from));
        shim.push("shim".into());
        Ok(Self {
            home,
            buffer,
            metadata_host: args.metadata_host,
            boot_id,
            dev_dir: args.dev_dir,
            libtpu_lock: args.libtpu_lock,
            kernel_root: args.kernel_root,
            log_flush: Duration::from_millis(args.log_flush_ms.max(20)),
            log_backlog_bytes: args.log_backlog_bytes.max(64 << 10),
            preemption_notice: Duration::from_millis(args.preemption_notice_ms),
            outputs_max: Duration::from_millis(args.outputs_ms),
            shim,
        })
    }
}
