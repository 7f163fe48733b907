//! The command line as it is typed: names, options, help. Nothing here does anything.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::complete;
use crate::demo::plan;

mod seeing;

pub(crate) use seeing::{Account, By, Named, Ps, Show, Since, Top};
mod space;

pub(crate) use space::{Delete, Exec, Outputs, Ssh, Status, Sync, Up};
mod told;

pub(crate) use told::{DeadLetters, Note, Tag, WebhookSecret};

/// Runs training jobs on Cloud TPUs that may be taken away, and brings them back by itself.
#[derive(Debug, Parser)]
#[command(
    name = "rekindle",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 110,
    after_help = EXAMPLES
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  rekindle demo                                  see a job survive
  rekindle dev                                   everything on this machine
  rekindle run --tpu v6e-8 -- python3 train.py   submit a job
  rekindle run job.yaml --follow                 submit it, follow its output
  rekindle ps                                    what runs, what waits, why

Exit codes: 0 done, 1 the input or the job is at fault, 2 something unexpected; of `wait`, `run --wait` and \
`run --follow` also 3 cancelled, 4 not known.

Environment: REKINDLE_SERVER and REKINDLE_CONFIG as --server and --config; REKINDLE_TOKEN is the bearer token, in \
place of the one that `token_command` of the configuration prints, or `gcloud auth print-identity-token`.";

const CANCEL_EXAMPLES: &str = "\
Examples:
  rekindle cancel train-1
  rekindle cancel lr-1 lr-2 lr-3
  rekindle cancel train-1 --if-attempt 3     not if it has come back meanwhile

The program gets SIGTERM and may save. A job that was cancelled stays so; `rekindle pause` keeps one. `rekindle kill` does the same.";

const WAKE_EXAMPLES: &str = "\
Examples:
  rekindle wake train-1

Looks at its TPU and workers at once. A wait that still holds, such as a zone's cool-down, goes on.";

const FLEET_EXAMPLES: &str = "\
Examples:
  rekindle fleet
  rekindle fleet --json | jq '.resources[] | select(.owner == \"ORPHAN\")'

UNUSED: for how long nobody's code has run on it, in the words of `rekindle account`: waiting for the program to begin, or idle.";

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Address of the api service [default: the configuration file's, else http://127.0.0.1:8080]
    #[arg(long, global = true, env = "REKINDLE_SERVER", hide_env_values = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Configuration file: `server`, `token_command`, presets; `rekindle config` shows it [default:
    /// ~/.config/rekindle/config.toml]
    #[arg(long, global = true, env = "REKINDLE_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Bearer token, instead of the one that gcloud gives; only by the environment, which others do not see
    #[arg(long, global = true, env = "REKINDLE_TOKEN", hide_env_values = true, hide = true)]
    pub(crate) token: Option<String>,
    /// JSON on stdout, for machines
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(crate) color: Color,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    // On a terminal, unless NO_COLOR is set. Words in the help would make it three times as long.
    Auto,
    Always,
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Client(Client),
    /// Everything on this machine: functions, store, and a Cloud TPU API with processes as workers
    Dev(Dev),
    /// A real training job on this machine that is preempted twice and ends with the right result
    Demo(Demo),
    /// Tell why a program failed, from its output or a case file
    Classify(Classify),
    /// What may stand in a job: each field, its default, its meaning
    Fields(Fields),
    /// What is configured, and where: the server, its token, presets, aliases, folders
    #[command(after_help = "Examples:\n  rekindle config\n  rekindle config --json | jq -r .server")]
    Config,
    /// Completion for a shell
    Completion(Completion),
    /// Manual pages
    Man(Man),
}

/// What is asked of a server.
#[derive(Debug, Subcommand)]
pub(crate) enum Client {
    /// Submit a job
    Run(Box<Run>),
    /// List jobs, newest first
    #[command(alias = "check", alias = "list", alias = "ls")]
    Ps(Ps),
    /// One job: phase, TPU, progress, counters, cost
    #[command(alias = "info")]
    Show(Show),
    /// Why a job is where it is, and what happens next
    Explain(OneJob),
    /// Every decision about a job
    History(History),
    /// Output of a job's workers
    Logs(Logs),
    /// Files that a job left at its end
    Outputs(Outputs),
    /// Wait until the end of jobs is known: 0 succeeded, 1 failed, 3 cancelled, 4 not known
    Wait(Wait),
    /// End jobs and give their TPUs back
    #[command(alias = "kill", after_help = CANCEL_EXAMPLES)]
    Cancel(Control),
    /// Give the TPUs of jobs back and keep the jobs
    #[command(
        alias = "zz",
        after_help = "Examples:\n  rekindle pause train-1\n  rekindle pause dev\n\n`rekindle unpause` goes on from the last checkpoint, `rekindle up` brings a workspace back: what `sync` and `exec` brought to it is gone, unless it is in the folder of `up` or in a bucket."
    )]
    Pause(Control),
    /// Go on with paused jobs
    #[command(
        alias = "resume",
        after_help = "Examples:\n  rekindle unpause train-1\n  rekindle unpause lr-1 lr-2 lr-3"
    )]
    Unpause(Control),
    /// Start jobs again, from their last checkpoint, on the same TPU
    #[command(alias = "retry")]
    Restart(Restart),
    /// Start jobs again from scratch
    #[command(hide = true)]
    Rerun(Restart),
    /// Act on jobs now instead of at their next wake-up
    #[command(alias = "ack", after_help = WAKE_EXAMPLES)]
    Wake(Control),
    /// Jobs, shown anew as they change
    #[command(hide = true)]
    Monitor(Ps),
    /// Every TPU in every zone: whose it is, what it costs
    #[command(after_help = FLEET_EXAMPLES)]
    Fleet,
    /// Chip hours and money: useful, repeated, waiting, idle, orphan
    Account(Account),
    /// What happened since you last looked
    #[command(alias = "digest")]
    Since(Since),
    /// Jobs, attempts, workers, fleet and events on the whole screen, as they change
    Top(Top),
    /// Accelerators, zones, prices, runtime versions
    Catalog(Catalog),
    /// The page in a browser: jobs, fleet, cost, events
    Open(Open),
    /// Create no TPU until `thaw`; deletes go on
    #[command(
        after_help = "Examples:\n  rekindle freeze\n\nJobs that run go on; one that loses its TPU waits. For who may stop everyone's jobs."
    )]
    Freeze,
    /// Create TPUs again
    #[command(
        after_help = "Examples:\n  rekindle thaw\n\nJobs that wait go on by themselves. For who may stop everyone's jobs."
    )]
    Thaw,
    /// Check what this machine, the server and its project need
    Doctor(Doctor),
    /// Version of this program, and of the server if it answers
    #[command(after_help = "Examples:\n  rekindle version\n  rekindle version --json | jq .server")]
    Version,
    /// Add tags to jobs, or take them away; also after their end
    Tag(Tag),
    /// Write a note to a job, or take it away; also after its end
    Note(Note),
    /// Keep an interactive TPU alive: a workspace, made or brought back
    Up(Box<Up>),
    /// Workspaces and what they are at
    #[command(alias = "st")]
    Status(Status),
    /// End workspaces and give their TPUs back
    #[command(alias = "down", alias = "rm")]
    Delete(Delete),
    /// Run a command on the workers of a workspace
    Exec(Exec),
    /// Bring files to the workers of a workspace, or from them
    Sync(Sync),
    /// A shell on a worker, by way of gcloud
    Ssh(Ssh),
    /// Messages that could not be used, and what webhooks were not told
    #[command(alias = "undelivered")]
    DeadLetters(DeadLetters),
    /// The secret that signs the webhooks of your jobs
    WebhookSecret(WebhookSecret),
}

/// `open`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle open\n  rekindle open llama-7b-run3")]
pub(crate) struct Open {
    /// Show this job
    #[arg(add = complete::jobs())]
    pub(crate) job: Option<String>,
    /// Only print the address
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// Port of the proxy for a server in the cloud [default: a free one]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "PORT")]
    pub(crate) port: u16,
}

/// `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle doctor\n  rekindle doctor --project=my-project --region=us-central1")]
pub(crate) struct Doctor {
    /// Project of the deployment: its parts are checked with gcloud and your own rights
    #[arg(long, requires = "region", value_name = "ID")]
    pub(crate) project: Option<String>,
    /// Region of its services
    #[arg(long, requires = "project", value_name = "REGION")]
    pub(crate) region: Option<String>,
    /// Its Firestore database
    #[arg(long, default_value = "rekindle", value_name = "NAME")]
    pub(crate) database: String,
    /// State folder of a `rekindle dev` on this machine, for its disk [default: ~/.local/state/rekindle/dev]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// `run`.
#[derive(Debug, Default, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct Run {
    /// Job file in YAML or JSON (`-` is stdin), then arguments of the program as KEY=VALUE: an alias such as `lr`, or a
    /// full name such as `config.model.depth`. In a `run` of several commands they go where "$@" stands
    #[arg(add = complete::words_of_run(), value_name = "FILE | KEY=VALUE")]
    pub(crate) words: Vec<String>,
    /// Folder with the program, or its name in the configuration; equal folders are sent once, so its files come with the
    /// same time everywhere [default: `folder` of the preset, of rekindle.toml or of the configuration, else the current]
    #[arg(add = complete::folders(), long, value_name = "DIR", conflicts_with = "no_code")]
    pub(crate) folder: Option<PathBuf>,
    /// Send no folder: the program is on the machine already, or the job says `code`
    #[arg(long)]
    pub(crate) no_code: bool,
    /// Accelerator type; several in order of preference
    #[arg(add = complete::accelerators(), long, value_name = "TYPE", value_delimiter = ',')]
    pub(crate) tpu: Vec<String>,
    /// Id of the job; the same id and job again is no new job while it has not ended, and refused afterwards
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Zone; several in order of preference [default: all that the deployment allows]
    #[arg(add = complete::zones(), long, value_name = "ZONE", value_delimiter = ',')]
    pub(crate) zone: Vec<String>,
    /// spot, preemptible, on_demand, reserved; several in order of preference
    #[arg(add = complete::capacities(), long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) capacity: Vec<String>,
    /// Slices; more than one is multislice, all or nothing
    #[arg(long, value_name = "N")]
    pub(crate) slices: Option<u32>,
    /// Part of a job by name, such as spot-v6e, from rekindle.toml, the configuration or built in; or what to do about
    /// failures: pre, resume, reapply, rerun, pass. May be repeated
    #[arg(add = complete::presets(), long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) preset: Vec<String>,
    /// Folder of the checkpoints; with --resume the one that an ended job has left
    #[arg(long, value_name = "PLACE")]
    pub(crate) checkpoint: Option<String>,
    /// Go on from what lies in `checkpoint`: REKINDLE_RESUME is 1 from the first attempt on
    #[arg(long)]
    pub(crate) resume: bool,
    /// Environment variable of the program; without a value it is taken from here
    #[arg(long, value_name = "NAME[=VALUE]", short = 'e')]
    pub(crate) env: Vec<String>,
    /// Once on each worker before the program, by bash
    #[arg(long, value_name = "COMMAND")]
    pub(crate) setup: Option<String>,
    /// Runtime version [default: the right one for the accelerator]
    #[arg(long, value_name = "VERSION")]
    pub(crate) runtime_version: Option<String>,
    /// 0 to 100, higher first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) priority: Option<u8>,
    /// Who pays
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// Label for people; several with commas
    #[arg(add = complete::tags(), long, value_name = "TAG", value_delimiter = ',')]
    pub(crate) tag: Vec<String>,
    /// Free text for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) notes: Option<String>,
    /// Any field of the job: `--set limits.total=2h`
    #[arg(add = complete::assignments(), long, value_name = "FIELD=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print the job, and what would be created, where, at what price; send and submit nothing
    #[arg(long = "dry-run")]
    pub(crate) is_dry: bool,
    /// With --dry-run, also list the files that would be sent
    #[arg(long = "files", requires = "is_dry")]
    pub(crate) has_files: bool,
    /// Wait for the end; exit codes as of `wait`
    #[arg(long)]
    pub(crate) wait: bool,
    /// Follow the output to the end; exit codes as of `wait`
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    /// The program and its arguments, run on every worker; one word with blanks alone is a line for bash
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    /// It is a workspace, which has no program.
    #[arg(skip)]
    pub(crate) is_workspace: bool,
    /// `up --idle`.
    #[arg(skip)]
    pub(crate) idle: Option<String>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  rekindle run job.yaml lr=0.01 config.model.depth=24
  rekindle run --tpu v5litepod-16 --tag ablation -- python3 train.py --lr=0.01
  rekindle run --tpu v6e-8 --zone us-east5-b -- 'cd src && ./train.sh | tee log'
  rekindle run job.yaml --id lr-sweep-3 --set limits.total=12h --follow

`gcloud pubsub topics publish rekindle-jobs --message=\"$(rekindle run job.yaml --no-code --dry-run --json)\"` \
submits the same by way of Pub/Sub.

A script that the program names (`python3 train.py`, `./go.sh`) and the folder lacks is refused before anything \
is sent; where `setup` may make it there is a warning.";

/// A command on one job.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle explain train-1")]
pub(crate) struct OneJob {
    /// The job
    #[arg(add = complete::jobs())]
    pub(crate) job: String,
}

/// `history`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle history train-1\n  rekindle history train-1 --json | jq .message")]
pub(crate) struct History {
    /// The job
    #[arg(add = complete::jobs())]
    pub(crate) job: String,
    /// With who or what caused each decision
    #[arg(long, short = 'v')]
    pub(crate) verbose: bool,
}

/// `logs`.
#[derive(Debug, Args)]
#[command(after_help = LOGS_EXAMPLES)]
pub(crate) struct Logs {
    /// The job
    #[arg(add = complete::jobs())]
    pub(crate) job: String,
    /// Go on with what comes, over attempts, until the job ends
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    /// Only this attempt
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// Only this worker: w3, or s1w3 where there are slices; `all` is every worker
    #[arg(long, value_name = "wN|all", default_value = "all")]
    pub(crate) worker: String,
    /// Only what came in since then: so long ago, such as 10m, a time of day in UTC, such as 11:05, `yesterday`, a day, such as
    /// 2026-11-27, or a day and time
    #[arg(long, value_name = "TIME", value_parser = crate::moment::argument)]
    pub(crate) since: Option<jiff::Timestamp>,
    /// Only lines that match this regular expression
    #[arg(long, value_name = "PATTERN")]
    pub(crate) grep: Option<regex::bytes::Regex>,
    /// Only the last N lines of each worker, of the newest 4 to 16 MiB; with -f also what comes
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) tail: Option<usize>,
}

const LOGS_EXAMPLES: &str = "\
Examples:
  rekindle logs train-1 -f
  rekindle logs train-1 -n 20 -f
  rekindle logs train-1 --worker 3 --attempt 2
  rekindle logs train-1 --since 10m --grep 'loss=nan|Error'
  rekindle logs train-1 --since 11:05   # in UTC, as ps --watch prints it";

fn least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("{text:?} is no number above 0"))
}

/// `fields`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle fields\n  rekindle fields limits\n  rekindle fields tpu.capacity")]
pub(crate) struct Fields {
    /// Only this field, or this section
    #[arg(add = complete::fields())]
    pub(crate) field: Option<String>,
}

/// `completion`.
#[derive(Debug, Args)]
#[command(
    after_help = "Jobs, workspaces and presets are proposed as they are when the key is pressed.\nExamples:\n  echo 'source <(rekindle completion bash)' >>~/.bashrc\n  rekindle completion fish | source"
)]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: complete::Shell,
}

/// `man`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle man | man -l -\n  rekindle man ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Folder for the pages of all commands; without it the main page goes to stdout
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}

/// `wait`.
#[derive(Debug, Args)]
#[command(after_help = WAIT_HELP)]
pub(crate) struct Wait {
    /// The jobs
    #[arg(add = complete::jobs(), required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// Give up after so long, with exit code 4
    #[arg(long, value_parser = crate::moment::span)]
    pub(crate) timeout: Option<std::time::Duration>,
}

const WAIT_HELP: &str = "\
Exit codes: 0 succeeded, 1 failed, 3 cancelled, 4 not known. Of several jobs the greatest is the answer: 3 or 4 \
may hide that another failed, which its line tells, and `outcome` with --json.

Examples:
  rekindle wait train-1 && ./evaluate.sh
  rekindle wait a b c --timeout 2h
  rekindle wait a b c --json | jq -r 'select(.outcome == \"failed\").job'";

/// A command on jobs.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// The jobs
    #[arg(add = complete::jobs(), required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// Only if the job is at this attempt
    #[arg(long, value_name = "N")]
    pub(crate) if_attempt: Option<u32>,
}

/// `restart`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle restart train-1\n  rekindle restart train-1 --new-slice --from-scratch")]
pub(crate) struct Restart {
    #[command(flatten)]
    pub(crate) control: Control,
    /// On a new TPU
    #[arg(long)]
    pub(crate) new_slice: bool,
    /// Without the checkpoints so far; they are kept
    #[arg(long)]
    pub(crate) from_scratch: bool,
}

/// `catalog`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle catalog v5litepod\n  rekindle catalog v6e-8 --zone us-east5-b")]
pub(crate) struct Catalog {
    /// Only accelerators whose name begins so, such as `v5litepod` or `v6e-8`
    #[arg(add = complete::accelerators())]
    pub(crate) accelerator: Option<String>,
    /// Only this zone
    #[arg(add = complete::zones(), long)]
    pub(crate) zone: Option<String>,
    /// The catalogue of this program, without asking a server
    #[arg(long)]
    pub(crate) builtin: bool,
}

/// `classify`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle classify stderr.txt\n  python3 train.py 2>&1 | rekindle classify -")]
pub(crate) struct Classify {
    /// Case files or plain logs; `-` is stdin
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// `dev`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle dev\n  rekindle dev --port 0 --tpu-port 0 --state /tmp/mine --speed 10")]
pub(crate) struct Dev {
    /// Port of every function; 0 takes a free one
    #[arg(long, default_value_t = 8080)]
    pub(crate) port: u16,
    /// Port of the Cloud TPU API; 0 takes a free one
    #[arg(long, default_value_t = 8470)]
    pub(crate) tpu_port: u16,
    /// Folder of the state [default: ~/.local/state/rekindle/dev]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Capacity, quota and latencies of the emulated zones
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// Seed of the emulator's random choices
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Divides the waits of emulator and manager alike
    #[arg(long, default_value_t = 1.0, value_parser = parse_speed)]
    pub(crate) speed: f64,
    /// Use the Firestore adapter on this emulator
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) firestore: Option<String>,
    /// Use the Pub/Sub adapter on this emulator
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) pubsub: Option<String>,
    /// Most bytes of output that wait on a worker for their upload, for each stream
    #[arg(long, value_name = "BYTES", hide = true)]
    pub(crate) log_backlog: Option<u64>,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if (0.01..=1000.0).contains(&speed) { Ok(speed) } else { Err("a speed is between 0.01 and 1000".to_owned()) }
}

/// `demo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle demo\n  rekindle demo --preemptions 3 --json")]
pub(crate) struct Demo {
    /// How many times its TPU is taken away
    #[arg(long, value_name = "N", default_value_t = 2, allow_negative_numbers = true, value_parser = plan::faults)]
    pub(crate) preemptions: u32,
    /// How many times its gRPC connections are cut
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = plan::faults)]
    pub(crate) grpc_failures: u32,
    /// Workers of the slice
    #[arg(long, value_name = "N", default_value_t = 4, allow_negative_numbers = true, value_parser = plan::workers)]
    pub(crate) workers: u32,
    /// Seed of the training data and of the moments of the faults
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_parser = plan::seed)]
    pub(crate) seed: u64,
    /// Keep the state folder and say where it is
    #[arg(long, hide = true)]
    pub(crate) keep: bool,
}

#[cfg(test)]
mod tests;
