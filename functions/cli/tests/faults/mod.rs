//! Faults that no transcript shows: each names its cause and the next step.

use super::{project, server, shell};

/// What is run, what must be said, and what the next step must name.
const FAULTS: &[(&str, &[&str], &str)] = &[
    // Configuration.
    ("$REKINDLE --config / ps", &["cannot read the configuration /", "directory"], "--config"),
    ("echo 'colour = 1' >c; $REKINDLE --config c ps", &["the configuration c is wrong", "colour"], "token_command"),
    ("echo 'token_command = []' >c; $REKINDLE --config c ps", &["`token_command`", "empty"], "gcloud"),
    (
        "echo 'token_command = [\"sh\", \"-c\", \"echo no account >&2; exit 1\"]' >c; $REKINDLE --config c ps",
        &["cannot get a token with `sh", "no account"],
        "gcloud auth login",
    ),
    ("echo 'x = [' >rekindle.toml; $REKINDLE run job.yaml", &["rekindle.toml", "x = ["], "[aliases]"),
    // Jobs.
    ("$REKINDLE run job.yaml lr", &["\"lr\" is no argument of the program"], "="),
    ("echo 'tpu: {accelerator: v5litepod-8}' >j.yaml; $REKINDLE run j.yaml lr=1", &["there is no program for"], "--"),
    ("$REKINDLE run train.py", &["train.py is no job file"], "`run:`"),
    ("echo '- a' >list.yaml; $REKINDLE run list.yaml", &["list.yaml is no job file", "a list"], "tpu"),
    (
        "printf 'run: [a]\\ntags: x\\n' >j.yaml; $REKINDLE run j.yaml --tag y",
        &["`tags` of the job file is no list"],
        "tags: [",
    ),
    (
        "printf 'run: [a]\\nenv: x\\n' >j.yaml; $REKINDLE run j.yaml --env A=b",
        &["`env` of the job file is no map"],
        "`env:`",
    ),
    ("$REKINDLE run job.yaml --env NOT_THERE", &["cannot take it from here", "not found"], "NOT_THERE=VALUE"),
    ("$REKINDLE run job.yaml --env =x", &["the name is missing"], "NAME=VALUE"),
    ("$REKINDLE run job.yaml --set 'notes=[a'", &["--set notes=[a: no YAML"], "quotes"),
    ("$REKINDLE run job.yaml --set code=gs://b/c --folder .", &["the job says `code` already"], "leave out --folder"),
    ("$REKINDLE run job.yaml --folder /", &["/ is the root of all folders"], "--no-code"),
    ("HOME=$PWD $REKINDLE run job.yaml", &["is your home folder"], "--no-code"),
    ("mkdir gone; cd gone; rmdir ../gone; $REKINDLE run --tpu v5litepod-8 -- true", &["current folder"], "folder"),
    ("$REKINDLE catalog v9-8 --builtin", &["nothing named \"v9-8\" is offered"], "v4-8"),
    // Workspaces.
    ("$REKINDLE exec left -- true", &["left went away before all workers had ended it"], "rekindle status left"),
    ("$REKINDLE sync . full:", &["not every worker has the files", "w1: No space left on device"], "disk has room"),
    ("$REKINDLE sync a:b c:d", &["both places are in a workspace"], "rekindle"),
    ("mkdir empty; $REKINDLE sync empty box:", &["there is nothing to send in empty"], ".rekindleignore"),
    ("$REKINDLE up stuck", &["stuck did not come up: setup failed"], "rekindle logs stuck"),
    ("PATH= $REKINDLE ssh box", &["cannot start gcloud", "No such file"], "Google Cloud CLI"),
    // Servers that are none.
    ("$REKINDLE show website", &["answered something that is no JSON"], "rekindle doctor"),
    ("$REKINDLE show strange", &["does not understand"], "version"),
    ("$REKINDLE outputs odd --to here", &["\"../x\" is no path of an output"], "w0/../x"),
    ("touch file; $REKINDLE outputs good --to file", &["cannot write file/w0"], "choose another --to"),
    ("touch file; $REKINDLE man file/man1", &["cannot write manual pages to file/man1"], "share/man"),
    // The local mode.
    ("touch file; $REKINDLE dev --state file", &["cannot use the state folder file"], "--state"),
    ("$REKINDLE dev --state s --scenario none.json", &["the scenario cannot be used", "none.json"], "--scenario"),
    ("$REKINDLE dev --state s --tpu-port 0 --port ${REKINDLE_SERVER##*:}", &["cannot listen at"], "--port"),
    (
        "$REKINDLE dev --state s --port 0 --tpu-port 0 --firestore 127.0.0.1:1",
        &["does not answer at 127.0.0.1:1"],
        "gcloud",
    ),
    ("$REKINDLE demo --workers 1", &["no connection to another that could be cut"], "--grpc-failures 0"),
    ("$REKINDLE demo --preemptions 60 --grpc-failures 60", &["120 faults are too many"], "--preemptions"),
];

#[tokio::test]
async fn faults_name_the_cause_and_the_next_step() {
    let server = server::start().await;
    let mut wrong = Vec::new();
    for (script, causes, next) in FAULTS {
        let home = project();
        let output = shell(&server, &home.path().join("project"), script).await;
        let said = String::from_utf8(output.stderr).unwrap();
        let step = said.split_once("\nnext: ").map(|(_, step)| step);
        let names_all = causes.iter().all(|cause| said.contains(cause));
        let is_fault =
            said.lines().any(|line| line.starts_with("error: ")) && matches!(output.status.code(), Some(1 | 2));
        if !is_fault || !names_all || step.is_none_or(|step| !step.contains(next)) {
            wrong.push(format!("$ {script}\n{said}? {:?}", output.status.code()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
