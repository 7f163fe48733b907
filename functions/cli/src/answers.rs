//! What `--json` prints where the server's own words are not enough. `JSON.md` is made from these types and their
//! comments, and from those of the wire.

use std::collections::BTreeMap;

use rekindle_core::spec::fields::Field;
use rekindle_wire::v1::{CandidateView, ExecWorkerView, VersionView};
use serde::Serialize;
use serde_json::Value;

/// A list of jobs.
#[derive(Debug, Serialize)]
pub(crate) struct Jobs {
    /// The jobs, newest first: each a [`JobView`].
    pub(crate) jobs: Vec<Value>,
}

/// What is on the screen of `rekindle top`, once.
#[derive(Debug, Serialize)]
pub(crate) struct Screen {
    /// The newest 500 jobs: each a [`JobView`].
    pub(crate) jobs: Vec<Value>,
    /// Every TPU: a [`Fleet`].
    pub(crate) fleet: Value,
}

/// What `run` would send.
#[derive(Debug, Serialize)]
pub(crate) struct Sending<'a> {
    /// The job as it would be sent: what `POST /v1/jobs` and the topic take.
    pub(crate) job: &'a Value,
    /// The paths of the files and links that would go along, within their folder, in order. Bytes that are no UTF-8 are
    /// replaced.
    pub(crate) files: Vec<String>,
    /// What would be created, where, at what price, in the order in which it would be asked for; `null` where no server answers.
    pub(crate) candidates: Option<Vec<CandidateView>>,
}

/// The way to a worker.
#[derive(Debug, Serialize)]
pub(crate) struct Login {
    /// The words of the command that goes there, for whoever asked to run.
    pub(crate) command: Vec<String>,
}

/// How the wait for one job ended.
#[derive(Debug, Serialize)]
pub(crate) struct WaitEnd<'a> {
    /// Id of the job.
    pub(crate) job: &'a str,
    /// `succeeded`, `failed`, `cancelled`; `timed_out`: not yet; `no_such_job`.
    pub(crate) outcome: &'a str,
    /// Why it is where it is, in one sentence.
    pub(crate) message: &'a str,
    /// Number of its newest attempt.
    pub(crate) attempts: Option<u32>,
    /// Number of its newest generation.
    pub(crate) generations: Option<u32>,
}

/// Both versions.
#[derive(Debug, Serialize)]
pub(crate) struct Versions<'a> {
    /// Version of this program.
    pub(crate) version: &'a str,
    /// The server, if it answers.
    pub(crate) server: Option<ServerVersion<'a>>,
}

/// The server and its version.
#[derive(Debug, Serialize)]
pub(crate) struct ServerVersion<'a> {
    /// Its address.
    pub(crate) url: &'a str,
    /// Its version.
    pub(crate) version: &'a str,
    /// Installation id: it is in the names of all its TPUs.
    pub(crate) installation: &'a str,
}

impl<'a> ServerVersion<'a> {
    /// What the server at an address says.
    pub(crate) fn of(url: &'a str, view: &'a VersionView) -> Self {
        Self { url, version: &view.version, installation: &view.installation }
    }
}

/// Fields of a job.
#[derive(Debug, Serialize)]
pub(crate) struct Fields<'a> {
    /// In the order in which they stand in a job.
    pub(crate) fields: Vec<FieldLine<'a>>,
}

/// A field of a job.
#[derive(Debug, Serialize)]
pub(crate) struct FieldLine<'a> {
    /// Its path, such as `tpu.zones`; `[]` after a list of maps.
    pub(crate) field: &'a str,
    /// What its value is.
    pub(crate) is: &'a str,
    /// What its absence means; `required` where it is refused.
    pub(crate) default: &'a str,
    /// A value that is accepted, as JSON; empty for what this version refuses.
    pub(crate) example: &'a str,
    /// What it is for.
    pub(crate) meaning: &'a str,
}

impl FieldLine<'static> {
    /// The line of a field.
    pub(crate) fn of(field: &'static Field) -> Self {
        Self {
            field: field.name,
            is: field.is,
            default: field.absent.words(),
            example: field.example,
            meaning: field.meaning,
        }
    }
}

/// What is configured, and where.
#[derive(Debug, Serialize)]
pub(crate) struct Settings<'a> {
    /// Address of the server that is asked.
    pub(crate) server: &'a str,
    /// Who names it: `given` (`--server` or `REKINDLE_SERVER`), `file`, `default`.
    pub(crate) server_from: &'a str,
    /// Where the token for it comes from: `none is sent`, `REKINDLE_TOKEN`, or a command in backquotes.
    pub(crate) token_from: String,
    /// The files that are read.
    pub(crate) files: Vec<SettingsFile>,
    /// The folder that `run` sends where none is named.
    pub(crate) folder: String,
    /// Short names of program arguments, and what each stands for.
    pub(crate) aliases: &'a BTreeMap<String, String>,
    /// What `--preset` takes.
    pub(crate) presets: Vec<String>,
    /// Folders, by the names that `--folder` takes.
    pub(crate) folders: BTreeMap<String, String>,
}

/// A file of settings.
#[derive(Debug, Serialize)]
pub(crate) struct SettingsFile {
    /// Whose it is: `user`, `project`.
    pub(crate) of: String,
    /// Where it is, or would be.
    pub(crate) path: String,
    /// Whether it is there.
    pub(crate) is_there: bool,
}

/// A line of output of a job.
#[derive(Debug, Serialize)]
pub(crate) struct LogLine<'a> {
    /// The attempt that wrote it.
    pub(crate) attempt: u32,
    /// The worker: `w0`; `s0w0` where there are slices.
    pub(crate) worker: &'a str,
    /// The line without its end.
    pub(crate) line: &'a str,
}

/// A line that a command wrote on a worker, as it comes.
#[derive(Debug, Serialize)]
pub(crate) struct ExecLine<'a> {
    /// The worker: `w0`; `s0w0` where there are slices.
    pub(crate) worker: &'a str,
    /// `stdout` or `stderr`.
    pub(crate) stream: &'a str,
    /// The line without its end.
    pub(crate) line: &'a str,
}

/// How a command ended on a worker, after all lines.
#[derive(Debug, Serialize)]
pub(crate) struct ExecEnd<'a> {
    /// The worker.
    pub(crate) worker: &'a str,
    /// Exit code; of a command that a signal ended 128 and its number, as shells say it.
    pub(crate) exit: i32,
    /// Why it could not be carried out, or was ended before its time.
    pub(crate) error: Option<&'a str>,
}

/// How files went to workers, or came from them.
#[derive(Debug, Serialize)]
pub(crate) struct Synced {
    /// The workers, each called as in the lines of `exec`, and how it went on each.
    pub(crate) workers: Vec<ExecWorkerView>,
}

/// Where the page is.
#[derive(Debug, Serialize)]
pub(crate) struct Address<'a> {
    /// Its address; for a server in the cloud it holds the key to a proxy on this machine.
    pub(crate) url: &'a str,
}

/// One check of `rekindle doctor`.
#[derive(Debug, Serialize)]
pub(crate) struct CheckLine<'a> {
    /// What was checked.
    pub(crate) check: &'a str,
    /// `good`, `warning`, `bad`.
    pub(crate) verdict: &'a str,
    /// What was found.
    pub(crate) found: &'a str,
    /// What to do now, unless it is good.
    pub(crate) next: Option<&'a str>,
}

/// The completion of a shell.
#[derive(Debug, Serialize)]
pub(crate) struct Script<'a> {
    /// The shell.
    pub(crate) shell: &'a str,
    /// What it is to read.
    pub(crate) script: &'a str,
}

/// The main page of the manual.
#[derive(Debug, Serialize)]
pub(crate) struct ManPage<'a> {
    /// The page in roff.
    pub(crate) page: &'a str,
}

/// The pages of all commands.
#[derive(Debug, Serialize)]
pub(crate) struct ManPages<'a> {
    /// The folder as it was named.
    pub(crate) folder: &'a str,
    /// Files in it.
    pub(crate) pages: usize,
}

/// Where `rekindle dev` answers, as soon as it does.
#[derive(Debug, Serialize)]
pub(crate) struct Places<'a> {
    /// Address of the api: for `--server`.
    pub(crate) url: &'a str,
    /// Address of the emulated Cloud TPU API.
    pub(crate) tpu_url: &'a str,
    /// Folder of the state.
    pub(crate) state: &'a str,
}

/// What the demonstration saw.
#[derive(Debug, Serialize)]
pub(crate) struct Demonstration<'a> {
    /// `succeeded`, `failed`, `cancelled`; `unknown`: it did not end.
    pub(crate) outcome: &'a str,
    /// Starts of the program.
    pub(crate) attempts: u32,
    /// TPUs that were made for it.
    pub(crate) generations: u32,
    /// Preemptions that it survived.
    pub(crate) preemptions: u32,
    /// Broken connections that it survived.
    pub(crate) infra_failures: u32,
    /// Steps that were computed again after a resume.
    pub(crate) steps_repeated: u64,
    /// TPUs and queued resources after its end.
    pub(crate) resources_left: usize,
    /// Digest of the final parameters, `sha256:…`.
    pub(crate) digest: Option<&'a str>,
    /// The same of a run that nobody disturbed.
    pub(crate) undisturbed_digest: &'a str,
    /// Of each preemption: milliseconds from the notice to the next create request.
    pub(crate) reaction_ms: Vec<u64>,
    /// Of each preemption: milliseconds from the notice to the first new step.
    pub(crate) recovery_ms: Vec<u64>,
    /// Processes after its end.
    pub(crate) processes_left: usize,
    /// Starts that went on from a checkpoint.
    pub(crate) resumes: u32,
}

/// What went wrong, on stderr.
#[derive(Debug, Serialize)]
pub(crate) struct FaultLine<'a> {
    /// What went wrong.
    pub(crate) error: &'a str,
    /// Why, outermost first.
    pub(crate) causes: &'a [String],
    /// What to do now.
    pub(crate) next: &'a str,
    /// The HTTP status of the server's answer, if it was one that told it.
    pub(crate) status: Option<u16>,
    /// The exit code that the command ends with.
    pub(crate) exit_code: u8,
}
