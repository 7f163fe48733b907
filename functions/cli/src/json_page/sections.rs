//! What each command prints, and by which line of a transcript that is shown.

/// How a command writes.
pub(super) enum Form {
    /// One value of this type.
    One(&'static str),
    /// One value a line, each of one of these types.
    Lines(&'static [&'static str]),
    /// What the text says.
    Other,
}

pub(super) struct Section {
    /// The command, and what of it.
    pub(super) name: &'static str,
    /// What a reader must know beside the type.
    pub(super) says: &'static str,
    pub(super) form: Form,
    /// The line of a transcript; empty: none.
    pub(super) example: &'static str,
}

const fn one(name: &'static str, of: &'static str, example: &'static str, says: &'static str) -> Section {
    Section { name, says, form: Form::One(of), example }
}

const fn lines(name: &'static str, of: &'static [&'static str], example: &'static str, says: &'static str) -> Section {
    Section { name, says, form: Form::Lines(of), example }
}

const fn other(name: &'static str, example: &'static str, says: &'static str) -> Section {
    Section { name, says, form: Form::Other, example }
}

const JOB: &str = "JobView";
const JOB_EACH: &[&str] = &[JOB];
const AFTER: &str = "Each job as it is after the command.";

/// In the order of `rekindle --help`.
pub(super) const SECTIONS: &[Section] = &[
    one(
        "run",
        JOB,
        "rekindle run job.yaml --no-code --json",
        "The job as it was accepted. With `--wait` the job as it ended, instead; with `--follow` both, and the lines \
         of `logs` between them.",
    ),
    other(
        "run --dry-run",
        "rekindle run job.yaml --no-code --dry-run --json",
        "The job as it would be sent: what `POST /v1/jobs` and the topic take. Where it would run and at what price is \
         told by `POST /v1/jobs?dry_run=true` with this as its body: it stores nothing, and answers with `candidates` \
         (`accelerator`, `zone`, `capacity`, `chips`, `workers`, `slices`, `usd_per_hour`) in the order in which they \
         would be asked for.",
    ),
    one("run --dry-run --files", "Sending", "rekindle run job.yaml --dry-run --files --json", ""),
    one("ps", "Jobs", "rekindle ps waits --json", ""),
    lines("ps --watch", JOB_EACH, "rekindle ps --watch --json", "Each job, and each again when it changes, for ever."),
    one("show", JOB, "rekindle show waits --json", ""),
    one("explain", "ExplainView", "rekindle explain train-1 --json", ""),
    lines("history", &["HistoryEntry"], "rekindle history past --json", "The oldest decision first."),
    lines(
        "logs",
        &["LogLine"],
        "rekindle logs past --json",
        "Lines in the order in which they came in: of one stream of a worker as they were written; of its two streams, \
         which are sent every two seconds, standard output before standard error.",
    ),
    one("outputs", "OutputList", "rekindle outputs good --json", "With `--to` once the files are here."),
    lines(
        "wait",
        &["WaitEnd"],
        "rekindle wait good bad --json",
        "Each job, in the order of their names on the line. The exit code is the greatest of theirs: 3 (one was cancelled) or \
         4 may hide that another failed, which `outcome` tells.",
    ),
    lines("cancel", JOB_EACH, "rekindle cancel train-1 --json", AFTER),
    lines("pause", JOB_EACH, "rekindle pause train-1 --json", AFTER),
    lines("unpause", JOB_EACH, "rekindle unpause train-1 --json", AFTER),
    lines("restart", JOB_EACH, "rekindle restart train-1 --new-slice --json", AFTER),
    lines(
        "rerun",
        JOB_EACH,
        "rekindle rerun train-1 --json",
        "An alias of `restart --from-scratch`, which the help does not list.",
    ),
    lines("wake", JOB_EACH, "rekindle wake train-1 --json", AFTER),
    lines("monitor", JOB_EACH, "rekindle monitor --json", "An alias of `ps --watch`, which the help does not list."),
    one("fleet", "Fleet", "rekindle fleet --json", ""),
    one("account", "AccountView", "rekindle account --by job --json", "`--csv` has the same as a table."),
    one("since", "DigestView", "rekindle since 12h --json", ""),
    one("top", "Screen", "rekindle top --json", "What would be on the screen, once."),
    one("catalog", "Catalog", "rekindle catalog v5litepod-4 --builtin --json", "Also what the deployment forbids."),
    one(
        "open",
        "Address",
        "rekindle open --no-browser --json",
        "For a server in the cloud it then serves the page until Ctrl-C.",
    ),
    one("freeze", "FreezeView", "rekindle freeze --json", ""),
    one("thaw", "FreezeView", "rekindle thaw --json", ""),
    lines("doctor", &["CheckLine"], "rekindle doctor --json", ""),
    one("version", "Versions", "rekindle version --json", ""),
    one("tag", JOB, "rekindle tag train-1 best --json", ""),
    one("note", JOB, "rekindle note train-1 better --json", ""),
    one("up", JOB, "rekindle up box --json", "A workspace is a job: this is its job, once it is up."),
    other(
        "up --dry-run",
        "rekindle up dev --tpu v5litepod-8 --dry-run --json",
        "The job of the workspace as it would be sent, as of `run --dry-run`; of one that is there the job that it is.",
    ),
    one("status", "Jobs", "rekindle status --json", "With a name as `show`."),
    lines("delete", JOB_EACH, "rekindle delete box --json", AFTER),
    lines(
        "exec",
        &["ExecLine", "ExecEnd"],
        "rekindle exec box --json -- hostname",
        "Lines as they come; when all workers have ended, one line for each of them.",
    ),
    one("sync", "Synced", "rekindle sync . box: --json", ""),
    one("ssh", "Login", "rekindle ssh train-1 --json", "It is told and not run, since a terminal is no JSON."),
    one("dead-letters", "DeadLetterList", "rekindle dead-letters --json", "With a job those about it."),
    one("webhook-secret", "WebhookSecretView", "rekindle webhook-secret --json", ""),
    one("dev", "Places", "rekindle dev --json", "As soon as it answers; then it runs on."),
    one("demo", "Demonstration", "rekindle demo --json", "At its end; what happens on the way is told on stderr."),
    lines("classify", &["Report"], "rekindle classify train.py --json", "A line for each file."),
    one("fields", "Fields", "rekindle fields limits.total --json", "The same as a page: [JOB.md](JOB.md)."),
    one("config", "Settings", "rekindle config --json", "The token itself is not shown."),
    one("completion", "Script", "rekindle completion bash --json | head -c 30", "Here only how it begins."),
    one("man", "ManPage", "rekindle man --json | head -c 30", "Without a folder; here only how it begins."),
    one("man DIR", "ManPages", "rekindle man pages --json", ""),
];
