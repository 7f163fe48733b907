//! Faults that no transcript shows: each names its cause and the next step.

mod census;
mod strangers;

use super::{project, server, shell};

/// What is run, what must be said, and what the next step must name.
const FAULTS: &[(&str, &[&str], &str)] = &[
    // Configuration.
    ("$REKINDLE --config / ps", &["cannot read the configuration /", "directory"], "--config"),
    ("echo 'colour = 1' >c; $REKINDLE --config c ps", &["the configuration c is wrong", "colour"], "token_command"),
    (
        "echo 'token_command = []' >c; $REKINDLE --config c ps",
        &["`token_command` in the configuration file is empty"],
        "gcloud",
    ),
    (
        "echo 'token_command = [\"sh\", \"-c\", \"echo no account >&2; exit 1\"]' >c; $REKINDLE --config c ps",
        &["cannot get a token with `sh -c echo no account >&2; exit 1`", "no account"],
        "gcloud auth login",
    ),
    ("echo 'x = [' >rekindle.toml; $REKINDLE run job.yaml", &["rekindle.toml", "x = ["], "[aliases]"),
    (
        "printf '\\377\\n' >rekindle.toml; $REKINDLE run job.yaml",
        &["cannot use /", "rekindle.toml", "valid UTF-8"],
        "save it as UTF-8",
    ),
    (
        "ln -sf /proc/self/mem rekindle.toml; $REKINDLE run job.yaml",
        &["cannot use /", "rekindle.toml", "Input/output error"],
        "make it a file that you may read",
    ),
    // Jobs.
    ("$REKINDLE run job.yaml lr", &["\"lr\" is no argument of the program"], "="),
    (
        "echo 'tpu: {accelerator: v5litepod-8}' >j.yaml; $REKINDLE run j.yaml lr=1",
        &["there is no program for --config.training.learning_rate=1"],
        "--",
    ),
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
    ("$REKINDLE run jbo.yaml", &["cannot read jbo.yaml", "No such file"], "did you mean job.yaml?"),
    ("$REKINDLE run sweep.yml", &["cannot read sweep.yml"], "`rekindle fields` tells what stands in one"),
    ("printf 'run: [a]\\ntpu: [b\\n' >j.yaml; $REKINDLE run j.yaml", &["j.yaml is no job file"], "mend line "),
    (
        "printf 'run: [a\\ntpu: {accelerator: v4-8}\\n' >j.yaml; $REKINDLE run j.yaml",
        &["j.yaml is no job file", "--> j.yaml:2:4", "the [ in line 1 is never closed"],
        "mend line 1 of it",
    ),
    (
        "printf 'run: [a]\\ntpu: v5litepod-8\\n' >j.yaml; $REKINDLE run j.yaml",
        &["`tpu` of the job file is no map", "it is the text v5litepod-8"],
        "write `tpu: {accelerator: v5litepod-8}`",
    ),
    ("printf '[alias]\\n' >rekindle.toml; $REKINDLE run job.yaml", &["unknown field `alias`"], "did you mean aliases?"),
    ("echo 'sever = \"x\"' >c; $REKINDLE --config c ps", &["unknown field `sever`"], "did you mean server?"),
    (
        "printf 'run: python3 a.py | tee log\\n' >j.yaml; $REKINDLE run j.yaml lr=1",
        &["`run` is more than one command", "python3 a.py | tee log"],
        "python3 train.py \"$@\" | tee log",
    ),
    (
        "printf 'run: |\\n  a\\n  b\\n' >j.yaml; $REKINDLE run j.yaml lr=1",
        &["`run` is more than one command, and --config.training.learning_rate=1 may be for any of them"],
        "write \"$@\", with its quotes",
    ),
    (
        "printf '[presets.p]\\nfolder = \"gone\"\\n' >rekindle.toml; $REKINDLE run job.yaml --preset p",
        &["the folder of the preset \"p\" is not there: /"],
        "rekindle.toml",
    ),
    (
        "printf '[folders]\\np = \"gone\"\\n' >rekindle.toml; $REKINDLE run job.yaml --folder p",
        &["the folder of the name p is not there: /"],
        "[folders]",
    ),
    (
        "$REKINDLE dead-letters trian-1",
        &["There is no job \"trian-1\""],
        "did you mean train-1? Otherwise `rekindle ps` lists",
    ),
    ("$REKINDLE fields tpu.zone", &["a job has no field \"tpu.zone\""], "did you mean tpu.zones? Otherwise `rekindle"),
    ("$REKINDLE fields budget", &["a job has no field \"budget\""], "did you mean budgets? Otherwise `rekindle"),
    ("$REKINDLE explain trian-1", &["There is no job \"trian-1\""], "did you mean train-1? Otherwise `rekindle ps`"),
    (
        "$REKINDLE run job.yaml --env NOT_THERE",
        &["--env NOT_THERE: cannot take it from here", "not found"],
        "NOT_THERE=VALUE",
    ),
    ("$REKINDLE run job.yaml --env =x", &["--env =x: the name is missing"], "NAME=VALUE"),
    ("$REKINDLE run job.yaml --set 'notes=[a'", &["--set notes=[a: no YAML"], "quotes"),
    ("$REKINDLE run job.yaml --set code=gs://b/c --folder .", &["the job says `code` already"], "leave out --folder"),
    ("$REKINDLE run job.yaml --folder /", &["/ is the root of all folders; it is not sent as a program"], "--no-code"),
    (
        "echo 'folder = \"gone\"' >rekindle.toml; $REKINDLE run job.yaml",
        &["the folder that is sent by default is not there: /", "gone"],
        "rekindle.toml",
    ),
    ("HOME=$PWD $REKINDLE run job.yaml", &["is your home folder"], "--no-code"),
    (
        "mkdir gone; cd gone; rmdir ../gone; $REKINDLE run --tpu v5litepod-8 -- true",
        &["the current folder is not there any more"],
        "folder",
    ),
    ("$REKINDLE catalog v9-8 --builtin", &["nothing named \"v9-8\" is offered"], "v4-8"),
    // Workspaces.
    (
        "$REKINDLE exec boxx -- true",
        &["there is no workspace boxx"],
        "did you mean box? Otherwise make it: rekindle up",
    ),
    ("$REKINDLE sync . boxx:", &["there is no workspace boxx"], "did you mean box? Otherwise make it"),
    // A job with a program is no workspace.
    (
        "$REKINDLE exec trian-1 -- true",
        &["there is no workspace trian-1", "\nnext: make it: rekindle up trian-1"],
        "`rekindle status` lists",
    ),
    ("$REKINDLE up boxx", &["there is no workspace boxx yet"], "did you mean box? Otherwise say which TPU"),
    (
        "$REKINDLE up old",
        &["the workspace old was deleted\n", "only `pause` keeps what a workspace is made of"],
        "rekindle up old --tpu v5litepod-16 --capacity spot,on_demand --setup 'pip install flax', with its --folder;",
    ),
    (
        "$REKINDLE status old",
        &["the workspace old was deleted\n", "ada@example.com"],
        "rekindle up old --tpu v5litepod-16 ",
    ),
    ("$REKINDLE ssh old", &["the workspace old was deleted\n"], "rekindle up old --tpu v5litepod-16 "),
    ("$REKINDLE exec asleep -- true", &["asleep has no workers: it is paused"], "`rekindle up asleep` brings it up"),
    (
        "$REKINDLE sync piped:pipe new; code=$?; [ ! -e new ] && exit $code",
        &["not every worker has something to bring", "w0: pipe is neither file, folder nor link", "w1: pipe is"],
        "name a file or a folder",
    ),
    ("$REKINDLE sync . asleep:", &["asleep has no workers: it is paused"], "`rekindle up asleep`"),
    ("$REKINDLE ssh asleep", &["asleep has no TPU now: it is paused"], "rekindle up asleep"),
    ("$REKINDLE ssh nobody", &["There is no job \"nobody\""], "rekindle up nobody"),
    ("$REKINDLE exec box --worker 9 -- true", &["\"9\" is no worker; there are w0 to w1"], "name one that is there"),
    ("$REKINDLE sync nothing.txt box:", &["cannot send nothing.txt", "No such file"], "a file that is there"),
    ("mkfifo pipe; $REKINDLE sync pipe box:", &["pipe is neither file nor folder"], "name a folder or a file"),
    ("truncate -s 600M big; $REKINDLE sync big box:", &["the file big is too large to send", "512.0 MiB"], "bucket"),
    ("$REKINDLE exec left -- true", &["left went away before all workers had ended it"], "rekindle explain left"),
    ("$REKINDLE sync . full:", &["not every worker has the files", "w1: No space left on device"], "disk has room"),
    ("$REKINDLE sync a:b c:d", &["both places are in a workspace"], "rekindle"),
    ("mkdir empty; $REKINDLE sync empty box:", &["there is nothing to send in empty"], ".rekindleignore"),
    ("$REKINDLE up restless", &["restless did not come up", "somebody paused it meanwhile"], "rekindle up restless"),
    ("$REKINDLE up stuck", &["stuck did not come up: setup failed"], "rekindle logs stuck"),
    ("PATH= $REKINDLE ssh box", &["cannot start gcloud", "No such file"], "Google Cloud CLI"),
    ("$REKINDLE sync full: out", &["not every worker could send the files", "w1: No space left"], "on each worker"),
    (
        "$REKINDLE sync none: out; CODE=$?; test ! -e out || exit 9; exit $CODE",
        &["not every worker could send", "w1: tar: results: Cannot open"],
        "path",
    ),
    (
        "$REKINDLE sync half: out; CODE=$?; grep -q a out/w0/a.txt || exit 9; exit $CODE",
        &["w1: tar: results: Cannot open: No such file"],
        "path",
    ),
    ("touch file; $REKINDLE sync half: file", &["cannot unpack what came into file", "directory"], "may write to"),
    ("TMPDIR=/nowhere $REKINDLE sync half: out", &["cannot keep what came", "No such file"], "TMPDIR"),
    (
        "$REKINDLE ssh sliced --worker all",
        &["sliced has 4 workers, and a terminal goes to one"],
        "name one with --worker",
    ),
    ("$REKINDLE ssh sliced --worker 2-0", &["sliced has no worker \"2-0\""], "one of s0w0 to s1w1"),
    ("$REKINDLE ssh train-1 --worker 9", &["train-1 has no worker \"9\""], "one of w0 to w3"),
    ("$REKINDLE delete boxx box", &["there is no workspace boxx"], "did you mean box? Otherwise make it"),
    ("$REKINDLE wait trian-1; test $? = 4 || exit 9; exit 1", &["there is no job trian-1"], "did you mean train-1?"),
    ("$REKINDLE cancel trian-1 nobody", &["There is no job \"trian-1\""], "did you mean train-1? Otherwise"),
    ("$REKINDLE sync job.yaml box:half", &["half is a folder on w0 alone"], "write box:half/ for a folder on each"),
    ("$REKINDLE sync job.yaml full:conf/b", &["cannot look at conf/b", "w1: No space left on device"], "disk has room"),
    ("$REKINDLE exec worn -- true", &["worn was made and deleted 500 times"], "another name"),
    ("$REKINDLE exec box -- ''", &["the command to run is empty"], "rekindle exec box -- COMMAND"),
    // Disks and limits.
    ("TMPDIR=/nowhere $REKINDLE run job.yaml", &["cannot write the bundle", "No such file"], "TMPDIR"),
    (
        "head -c 3000000 /dev/urandom >big; trap '' XFSZ; ulimit -f 1; exec $REKINDLE run job.yaml",
        &["cannot write the bundle", "File too large"],
        "disk with room",
    ),
    (
        "trap '' XFSZ; ulimit -f 100; $REKINDLE dev --state s --port 0 --tpu-port 0; CODE=$?
        ls -A s/bin | grep . && exit 9; exit $CODE",
        &["cannot copy this program", "File too large"],
        "--state",
    ),
    (
        "mkfifo .gitignore; $REKINDLE run job.yaml",
        &["/.gitignore is no file: it is a pipe, a socket or a device"],
        "remove it",
    ),
    ("$REKINDLE ps >/dev/full", &["cannot write the output", "No space left on device"], "disk has room"),
    ("ulimit -n 4; exec $REKINDLE ps", &["cannot start", "Too many open files"], "rekindle doctor"),
    // Servers that are none, or whose words break off.
    ("$REKINDLE show torn", &["the answer of http://", "/v1/jobs/torn broke off"], "again"),
    ("$REKINDLE show proxied", &["/v1/jobs/proxied answered 302 Found"], "login page"),
    (
        "$REKINDLE show elsewhere",
        &["/v1/jobs/elsewhere answered 404 Not Found", "<html>404 page not found"],
        "check the address: what answers there is no Rekindle",
    ),
    (
        "$REKINDLE wait elsewhere >out; test $? = 4 || exit 9; test -s out && exit 9; exit 1",
        &["/v1/jobs/elsewhere answered 404 Not Found"],
        "check the address",
    ),
    ("REKINDLE_SERVER= $REKINDLE ps", &["is no address of a server"], "https://"),
    (
        "P=${REKINDLE_SERVER##*:}; $REKINDLE --server http://0.0.0.0:$P open --no-browser --port $P",
        &["cannot listen on 127.0.0.1:", "Address already in use"],
        "leave out --port",
    ),
    (
        "$REKINDLE logs website; test -z \"$($REKINDLE logs website 2>/dev/null)\" || exit 9; exec $REKINDLE logs website -f",
        &["/v1/jobs/website/logs answered a web page", "no Rekindle"],
        "log in where that page says",
    ),
    (
        "$REKINDLE cancel waits torn train-1",
        &[
            "/torn/cancel broke off",
            "`cancel` is not confirmed for torn, and may have taken place; it was not sent for train-1; the server has \
             answered for waits",
        ],
        "`rekindle show torn` tells whether it took place",
    ),
    (
        "$REKINDLE pause waits broken train-1",
        &[
            "/broken/pause answered 502 Bad Gateway",
            "`pause` is not confirmed for broken, and may have taken place; it was not sent for train-1; the server has \
             answered for waits",
        ],
        "`rekindle show broken` tells whether it took place; give the command again for what it did not reach",
    ),
    (
        "$REKINDLE restart broken",
        &["answered 502 Bad Gateway", "`restart` is not confirmed for broken, and may have taken place\n"],
        "`rekindle show broken` tells",
    ),
    (
        "$REKINDLE run job.yaml --no-code --id broken",
        &["/v1/jobs answered 502", "that the job was submitted is not confirmed"],
        "give the command again: a job of one --id",
    ),
    (
        "sed -i /^id/d job.yaml; $REKINDLE run job.yaml --no-code --tag broken",
        &["/v1/jobs answered 502", "that the job was submitted is not confirmed, and may have taken place"],
        "look with `rekindle ps` whether it is there",
    ),
    ("$REKINDLE exec box-lost -- true", &["the command is not confirmed, and may run on box-lost"], "rekindle history"),
    (
        "REKINDLE_SERVER=http://127.0.0.1:1 $REKINDLE pause waits train-1",
        &["cannot reach http://127.0.0.1:1", "`pause` is not confirmed for waits, train-1"],
        "that the server runs",
    ),
    ("$REKINDLE cancel answers-503 nothing", &["this is of `cancel` for "], "rekindle ps"),
    ("$REKINDLE delete torn box", &["/v1/jobs/torn broke off", "`delete` is not confirmed for torn, box"], "again"),
    ("$REKINDLE open trian-1 --no-browser", &["There is no job \"trian-1\""], "did you mean train-1? Otherwise"),
    ("$REKINDLE show garbled", &["/v1/jobs/garbled answered something that is no JSON"], "rekindle doctor"),
    ("$REKINDLE show strange", &["the server answers in a way that this version does not understand"], "version"),
    ("$REKINDLE outputs odd --to here", &["\"../x\" is no path of an output"], "w0/../x"),
    ("touch file; $REKINDLE outputs good --to file", &["cannot write file/w0"], "choose another --to"),
    ("touch file; $REKINDLE man file/man1", &["cannot write manual pages to file/man1"], "share/man"),
    // The local mode.
    ("unset HOME; $REKINDLE dev", &["there is no home folder"], "--state"),
    ("mkdir -p s/store.redb; $REKINDLE dev --state s --port 0 --tpu-port 0", &["cannot start the store"], "--state"),
    (
        "mkdir -p s/bin/rekindle-$(sha256sum $REKINDLE | head -c 16)/x; $REKINDLE dev --state s --port 0 --tpu-port 0",
        &["cannot copy this program"],
        "--state",
    ),
    (
        "mkdir -p s/ports.json/x; $REKINDLE dev --state s --port 0 --tpu-port 0",
        &["cannot write /", "directory"],
        "disk",
    ),
    ("$REKINDLE demo --workers 4096", &["4096"], "--help"),
    ("TMPDIR=/nowhere $REKINDLE demo", &["cannot make a folder for the state", "No such file"], "set TMPDIR"),
    ("touch file; $REKINDLE dev --state file", &["cannot use the state folder file"], "--state"),
    ("$REKINDLE dev --state s --scenario none.json", &["the scenario cannot be used", "none.json"], "--scenario"),
    (
        "$REKINDLE dev --state s --tpu-port 0 --port ${REKINDLE_SERVER##*:}",
        &["cannot listen at 127.0.0.1:", "another `rekindle dev` answers at http://127.0.0.1:"],
        "--port 0 --tpu-port 0 --state FOLDER",
    ),
    (
        "$REKINDLE dev --state s --port 0 --tpu-port ${REKINDLE_SERVER##*:}",
        &["cannot start the Cloud TPU emulator", "the listener at 127.0.0.1:"],
        "take another with --tpu-port",
    ),
    (
        "$REKINDLE dev --state s --port 0 --tpu-port 0 --firestore 127.0.0.1:1",
        &["the Firestore emulator does not answer at 127.0.0.1:1"],
        "gcloud",
    ),
    ("$REKINDLE demo --workers 1", &["one worker has no connection to another that could be cut"], "--grpc-failures 0"),
    ("$REKINDLE demo --preemptions 60 --grpc-failures 60", &["120 faults are too many; at most 100"], "--preemptions"),
];

/// What a server answers, and what the next step must name.
const ANSWERS: &[(u16, &str)] = &[
    (400, "--help"),
    (401, "gcloud auth login"),
    (403, "administrator"),
    (404, "rekindle ps"),
    (405, "rekindle version"),
    (409, "rekindle explain"),
    (413, "make it smaller"),
    (422, "--help"),
    (429, "again in a few seconds"),
    (500, "the server's log"),
    (503, "again in a few seconds"),
    (504, "the server's log"),
];

#[tokio::test]
async fn each_answer_of_a_server_names_the_cause_and_the_next_step() {
    let server = server::start().await;
    let home = project();
    for (status, next) in ANSWERS {
        let script = format!("$REKINDLE show answers-{status}; $REKINDLE show answers-{status} --json");
        let output = shell(&server, home.path(), &script).await;
        let said = String::from_utf8(output.stderr).unwrap();
        let (text, json) = said.trim_end().rsplit_once('\n').unwrap();
        assert!(text.starts_with(&format!("error: It is answered {status}.\nnext: ")) && text.contains(next), "{said}");
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        // The person's part, or what passes.
        let exit = if *status < 500 && *status != 429 { 1 } else { 2 };
        assert_eq!((&json["status"], &json["exit_code"]), (&(*status).into(), &exit.into()), "{said}");
        assert_eq!(output.status.code(), Some(exit), "{said}");
    }
}

#[tokio::test]
async fn a_port_that_something_else_has_is_told_with_what_to_do() {
    let server = server::start().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("$REKINDLE dev --state s --tpu-port 0 --port {port}");
    let answer = std::thread::spawn(move || {
        // It takes the question, and ends without an answer.
        drop(listener.accept());
    });
    let output = shell(&server, project().path(), &script).await;
    answer.join().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let cause = format!("what has port {port} is no `rekindle dev`");
    let next = format!("next: end what uses port {port}, or take another with --port");
    assert!(said.contains(&cause) && said.contains(&next), "{said}");
}

#[tokio::test]
async fn a_port_of_one_that_is_stopping_is_free_soon() {
    let server = server::start().await;
    let stopping = async || (axum::http::StatusCode::SERVICE_UNAVAILABLE, "stopping");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = axum::Router::new().route("/version", axum::routing::get(stopping));
    let task = tokio::spawn(async { axum::serve(listener, router).await });
    let script = format!("$REKINDLE dev --state s --tpu-port 0 --port {port}");
    let output = shell(&server, project().path(), &script).await;
    task.abort();
    let said = String::from_utf8(output.stderr).unwrap();
    let told = ["is stopping\n", "next: start this one again in a few seconds"];
    assert!(told.iter().all(|told| said.contains(told)) && output.status.code() == Some(1), "{said}");
}

#[tokio::test]
async fn the_local_mode_has_no_machines_to_log_in_to() {
    let server = server::start_local().await;
    let output = shell(&server, project().path(), "$REKINDLE up box").await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("rekindle exec box -- COMMAND, rekindle pause box") && !said.contains("ssh"), "{said}");
    for (job, next) in [("box", "rekindle exec box -- COMMAND"), ("train-1", "rekindle logs -f train-1")] {
        let output = shell(&server, project().path(), &format!("PATH= $REKINDLE ssh {job}")).await;
        let said = String::from_utf8(output.stderr).unwrap();
        let cause = format!("error: {job} has no machine to log in to\n  - {} is `rekindle dev`", server.url());
        assert!(said.starts_with(&cause) && said.contains("\nnext: ") && said.contains(next), "{said}");
        // Who points gcloud to the emulator means it.
        let script =
            format!("export CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU=http://127.0.0.1:1/; PATH= $REKINDLE ssh {job}");
        let output = shell(&server, project().path(), &script).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("cannot start gcloud"), "{said}");
    }
}

#[tokio::test]
async fn an_output_that_breaks_off_is_told_of_and_gone_on_with() {
    let server = server::start().await;
    let output = shell(&server, project().path(), "$REKINDLE logs cut -f").await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("warning: the stream of {} broke off; going on as soon", server.url())), "{said}");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && shown.contains("[w0] step 1\n") && shown.contains("[w0] step 2\n"), "{shown}");
}

#[tokio::test]
async fn a_proxy_that_once_has_words_of_its_own_does_not_end_a_wait() {
    for (job, answer) in
        [("strayed", "404 Not Found"), ("crowded", "429 Too Many Requests"), ("locked", "403 Forbidden")]
    {
        let server = server::start().await;
        let output = shell(&server, project().path(), &format!("$REKINDLE wait {job}")).await;
        let said = String::from_utf8(output.stderr).unwrap();
        let told = format!("warning: {}/v1/jobs/{job} answered {answer}; waiting for it", server.url());
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains(&told), "{said}{shown}");
        assert_eq!(shown, format!("{job} succeeded: All 4 workers ended well.\n"), "{said}");
    }
}

#[tokio::test]
async fn a_server_that_goes_away_with_the_end_of_the_output_is_waited_for() {
    let server = server::start().await;
    let output = shell(&server, project().path(), "$REKINDLE logs ending -f").await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("going on as soon as it is back"), "{said}");
}

#[tokio::test]
async fn an_output_whose_server_is_restarted_before_its_first_line_is_gone_on_with() {
    // Also where what stands before the server has a page of its own meanwhile.
    for job in ["young", "gated"] {
        goes_on(job).await;
    }
}

async fn goes_on(job: &str) {
    let server = server::start().await;
    let output = shell(&server, project().path(), &format!("$REKINDLE logs {job} -f")).await;
    let said = String::from_utf8(output.stderr).unwrap();
    let told = format!("warning: the stream of {} broke off; going on as soon", server.url());
    assert_eq!(said.matches("going on as soon").count(), 1, "{said}");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains(&told) && shown.contains("[w0] step 2\n"), "{said}{shown}");
}

#[tokio::test]
async fn ctrl_c_ends_a_sync_and_is_no_fault_of_the_path() {
    let server = server::start().await;
    // Once it listens for the signal.
    let caught = "$(( 0x$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$pid/status) & 2 ))";
    let script = format!(
        "$REKINDLE sync busy:big here 2>err & pid=$!; until [ {caught} -ne 0 ]; do sleep 0.02; done
        kill -INT $pid; wait $pid; echo $?; cat err; ls"
    );
    let said = String::from_utf8(shell(&server, project().path(), &script).await.stdout).unwrap();
    assert!(said.starts_with("130\n") && said.contains("error: it was interrupted\n"), "{said}");
    assert!(!said.contains("path") && !said.contains("\nhere"), "{said}");
}

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
