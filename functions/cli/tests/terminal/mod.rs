//! What a person at a terminal has: bars, shells on workers, completion, and a run that is waited for.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{project, rekindle, server, shell};

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json_lines(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn packing_and_uploading_draw_bars_on_a_terminal_and_nowhere_else() {
    let server = server::start().await;
    let home = project();
    let folder = home.path().join("project");
    // Large enough to be worth a bar, and nothing that packing makes smaller.
    let run = "$REKINDLE run --tpu v5litepod-8 -- true";
    let in_terminal = format!(
        "head -c 9437184 /dev/urandom >big; export TERM=xterm; script -qefc 'stty rows 24 cols 100; {run}' /dev/null"
    );
    let output = shell(&server, &folder, &in_terminal).await;
    let shown = stdout(&output);
    assert!(output.status.success(), "{shown}");
    let bar = |word: &str| regex::Regex::new(&format!(r"{word} \[.{{32}}\] [0-9.]+ .?i?B/9\.0")).unwrap();
    for word in ["packing", "uploading"] {
        assert!(bar(word).is_match(&shown), "no bar of {word} in {shown:?}");
    }
    // They are taken away when they are done.
    assert!(shown.contains("sent 5 files"), "{shown:?}");
    assert!(shown.trim_end().ends_with("\nmade-up"), "{shown:?}");
    let without = format!("head -c 9437185 /dev/urandom >big; {run}");
    let output = shell(&server, &folder, &without).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("sent 5 files") && !said.contains('['), "{said}");
}

#[tokio::test]
async fn a_run_that_is_waited_for_tells_its_end_as_json_and_as_exit_code() {
    let server = server::start().await;
    for (id, code) in [("soon", 0), ("bad", 1), ("gone", 3)] {
        let output = rekindle(&server, &format!("rekindle run job.yaml --id {id} --no-code --wait --json")).await;
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let lines = json_lines(&output);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let phase = ["succeeded", "failed", "", "cancelled"][usize::try_from(code).unwrap()];
        assert_eq!((&lines[0]["id"], &lines[0]["phase"]), (&json!(id), &json!(phase)));
    }
    for (id, code) in [("good", 0), ("bad", 1)] {
        let output = rekindle(&server, &format!("rekindle run job.yaml --id {id} --no-code --follow --json")).await;
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let lines = json_lines(&output);
        let [first, said @ .., last] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!((&first["id"], &first["message"]), (&json!(id), &json!("Accepted.")), "what was submitted");
        let said: Vec<&Value> = said.iter().map(|line| &line["line"]).collect();
        assert_eq!(said, ["step 1", "step 1", "step 2", "step 3"], "its output");
        assert_eq!((&last["id"], last["outcome"].is_null()), (&json!(id), false), "how it ended");
    }
}

#[tokio::test]
async fn who_leaves_with_ctrl_c_is_told_that_the_job_goes_on() {
    for (line, again) in [
        ("up rising", ""),
        ("logs quiet -f", "logs -f quiet"),
        ("logs endless -f", "logs -f endless"),
        ("run job.yaml --id endless --no-code -f", "logs -f endless"),
        ("wait endless train-1", "wait endless train-1"),
        ("run job.yaml --id endless --no-code --wait", "wait endless"),
    ] {
        let server = server::start().await;
        let script = format!("echo $$ >pid; exec \"$REKINDLE\" {line}");
        // That it is one is known after the first look.
        let is_workspace = line == "logs quiet -f";
        let home = project();
        let folder = home.path().join("project");
        let run = shell(&server, &folder, &script);
        let leave = async {
            // The handler of the signal is there before the first look that waits for something.
            server.looked(if again.is_empty() || is_workspace { 2 } else { 1 }).await;
            let pid = std::fs::read_to_string(folder.join("pid")).unwrap();
            kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::INT).unwrap();
        };
        let (output, ()) = tokio::join!(run, leave);
        let said = String::from_utf8(output.stderr).unwrap();
        let jobs = again.trim_start_matches("logs -f ").trim_start_matches("wait ");
        let end = if is_workspace {
            "give its TPU back with `rekindle pause quiet`, end it with `rekindle delete quiet`".to_owned()
        } else {
            format!("end with `rekindle cancel {jobs}`")
        };
        let told = format!("ended by that; see again with `rekindle {again}`, {end}");
        let of_workspace = "rising comes up all the same; see it with `rekindle status rising`".to_owned();
        let told = if again.is_empty() { of_workspace } else { told };
        assert!(said.contains(&told) && !said.contains("error:"), "{line}: {said}");
        assert_eq!(output.status.code(), Some(130), "{line}: {said}");
    }
}

#[tokio::test]
async fn a_bar_of_the_program_is_drawn_over_itself_on_a_terminal() {
    let server = server::start().await;
    let follow = "$REKINDLE logs -f forger --color never 2>/dev/null";
    let in_terminal =
        |columns| format!("export TERM=xterm; script -qefc 'stty rows 24 cols {columns}; {follow}' /dev/null");
    let wide = stdout(&shell(&server, project().path(), &in_terminal(100)).await);
    let bars = "[w1]  10%\r\u{1b}[K[w1]  20%\r\n[w2] between\r\n[w1]  30%\r\u{1b}[K[w1] 100%\r\n";
    assert!(wide.ends_with(bars), "{wide:?}");
    // What does not fit cannot be drawn over.
    let narrow = stdout(&shell(&server, project().path(), &in_terminal(9)).await);
    assert!(narrow.ends_with("[w1]  10%\r\n[w1]  20%\r\n[w2] between\r\n[w1]  30%\r\n[w1] 100%\r\n"), "{narrow:?}");
}

#[tokio::test]
async fn what_is_said_begins_a_line_where_a_program_has_not_ended_its_own() {
    let server = server::start().await;
    let exec = "export TERM=xterm; script -qefc '$REKINDLE exec lone --color never -- x' /dev/null";
    let shown = stdout(&shell(&server, project().path(), exec).await);
    assert_eq!(shown, "no end\r\nw1 ended with 3\r\n");
    // What goes elsewhere is left as it came.
    let output = shell(&server, project().path(), "$REKINDLE exec lone -- x").await;
    assert_eq!((stdout(&output).as_str(), output.stderr.as_slice()), ("no end", &b"w1 ended with 3\n"[..]));
}

#[tokio::test]
async fn a_list_that_is_watched_is_drawn_over_itself_and_fits_a_narrow_terminal() {
    let server = server::start().await;
    // The server ends it after one change.
    let watch = "export TERM=xterm; script -qefc 'stty rows 24 cols 60; $REKINDLE ps --watch --color never' /dev/null";
    let shown = stdout(&shell(&server, project().path(), watch).await);
    let frames: Vec<&str> = shown.split("\u{1b}[H").skip(1).collect();
    let table = |frame: &str| {
        let lines = frame.lines().skip_while(|line| !line.contains("JOB"));
        lines.take_while(|line| !line.starts_with("error:")).map(str::to_owned).collect::<Vec<_>>()
    };
    // What comes at once is drawn once.
    let last = table(frames.last().expect("it is drawn"));
    let row = last.iter().find(|line| line.starts_with("train-1 ")).expect("the job that changed");
    assert!(row.contains("recovering"), "{shown:?}");
    for frame in frames {
        let lines = table(frame);
        assert!(lines[0].contains("PHASE") && lines[0].contains("WHY") && !lines[0].contains("OWNER"), "{lines:?}");
        assert!(lines.len() >= 5 && lines.iter().all(|line| line.chars().count() <= 60), "{lines:?}");
    }
}

#[tokio::test]
async fn the_screen_is_given_back_while_it_is_stopped_and_drawn_anew_when_it_goes_on() {
    let server = server::start_telling().await;
    // A shell that gives each job a group of its own, as one at a terminal does.
    let job = "set -m; bash -c 'echo $$ >pid; exec $REKINDLE top --color never'; stty -a >stopped; echo; echo HERE
        fg >/dev/null; echo ended with $?";
    for stop in [r"printf '\032'", "kill -TSTP $(cat pid)"] {
        let home = project();
        std::fs::write(home.path().join("job.sh"), job).unwrap();
        let script = format!(
            "shows() {{ until [ $(grep -ao \"$1\" shown | wc -l) -ge $2 ]; do sleep 0.02; done; }}
            touch shown
            {{ shows train-1 1; {stop}; shows 1049h 2; printf q; }} |
                TERM=xterm script -qefc 'stty rows 24 cols 100; exec bash job.sh' shown >&2
            cat shown"
        );
        let shown = stdout(&shell(&server, home.path(), &script).await);
        let modes = std::fs::read_to_string(home.path().join("stopped")).unwrap();
        assert!(modes.contains(" icanon") && modes.contains(" echo "), "as it was before: {modes}");
        let (before, after) = shown.split_once("HERE").unwrap_or_else(|| panic!("{shown:?}"));
        for (part, whole) in [("before", before), ("after", after)] {
            let (_, on) = whole.split_once("\u{1b}[?1049h").unwrap_or_else(|| panic!("{part}: {whole:?}"));
            let (on, off) = on.split_once("\u{1b}[?1049l").unwrap_or_else(|| panic!("{part}: {whole:?}"));
            assert!(on.contains("train-1") && on.contains("waits"), "{part}: the whole of it: {on:?}");
            assert!(off.contains("\u{1b}[?25h") && !off.contains("train-1"), "{part}: {off:?}");
        }
        assert!(after.contains("ended with 0"), "{after:?}");
    }
}

#[tokio::test]
async fn a_stopped_screen_can_be_ended_and_takes_no_terminal_in_the_background() {
    let server = server::start_telling().await;
    let home = project();
    let job = "set -m; bash -c 'echo $$ >pid; exec $REKINDLE top --color never'
        bg >/dev/null; until [ -n \"$(jobs -s)\" ]; do sleep 0.02; done
        kill %1; while kill -0 $(cat pid); do sleep 0.02; done 2>&-; echo; echo it has ended";
    std::fs::write(home.path().join("job.sh"), job).unwrap();
    let script = "shows() { until grep -aq \"$1\" shown; do sleep 0.02; done; }
        touch shown
        { shows train-1; kill -TSTP $(cat pid); shows 'it has ended'; } |
            TERM=xterm script -qefc 'stty rows 24 cols 100; exec bash job.sh' shown >&2
        cat shown";
    let shown = stdout(&shell(&server, home.path(), script).await);
    assert!(shown.contains("it has ended"), "{shown:?}");
    assert_eq!(shown.matches("\u{1b}[?1049h").count(), 1, "taken once: {shown:?}");
}

#[tokio::test]
async fn a_list_that_is_watched_is_no_longer_than_the_terminal() {
    let server = server::start().await;
    for rows in [4, 5] {
        let watch = format!("stty rows {rows} cols 60; $REKINDLE ps --watch --color never");
        let watch = format!("export TERM=xterm; script -qefc '{watch}' /dev/null");
        let shown = stdout(&shell(&server, project().path(), &watch).await);
        let frames: Vec<&str> = shown.split("\u{1b}[H\u{1b}[J").skip(1).collect();
        assert!(!frames.is_empty(), "{shown:?}");
        for frame in frames {
            let lines: Vec<&str> = frame.lines().take_while(|line| !line.starts_with("error:")).collect();
            assert_eq!(lines.len(), rows - 1, "the last row is the cursor's: {frame:?}");
            assert!(lines[0].starts_with("JOB "), "its beginning is in sight: {frame:?}");
            let last = lines.last().unwrap();
            assert!(last.starts_with("and ") && last.ends_with(" older; `rekindle ps` lists them"), "{last}");
        }
    }
}

#[tokio::test]
async fn a_colour_that_the_program_leaves_open_ends_with_its_line() {
    let server = server::start().await;
    let show = "export TERM=xterm; script -qefc '$REKINDLE logs rude' /dev/null";
    let shown = stdout(&shell(&server, project().path(), show).await);
    assert!(shown.ends_with("\u{1b}[31mred\u{1b}[0m\r\n"), "{shown:?}");
}

#[tokio::test]
async fn a_folder_without_a_file_is_said_to_be_one() {
    let server = server::start().await;
    let run = "mkdir empty; cd empty; $REKINDLE run --tpu v5litepod-8 -- true";
    let output = shell(&server, project().path(), run).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("/empty is sent: there is none in it"), "{said}");
}

#[tokio::test]
async fn ctrl_c_ends_a_command_on_its_workers_and_a_second_one_leaves() {
    let server = server::start().await;
    let begin =
        "$REKINDLE exec NAME -- make >out 2>err & pid=$!; until [ -s out ]; do sleep 0.02; done; kill -INT $pid";
    let end = "wait $pid; echo $?; cat err";
    let one = stdout(&shell(&server, project().path(), &format!("{begin}; {end}").replace("NAME", "busy")).await);
    assert!(one.starts_with("143\nending it on the workers; Ctrl-C again does not wait for that\n"), "{one}");
    assert!(one.ends_with("w1 ended with 143\n"), "{one}");
    assert!(!one.contains("warning"), "a server that cannot tell them at once is asked again: {one}");
    let firm = stdout(&shell(&server, project().path(), &format!("{begin}; {end}").replace("NAME", "firm")).await);
    assert!(firm.contains("warning: the workers were not told to end it: ") && firm.starts_with("143\n"), "{firm}");
    let again = "until grep -q ending err; do sleep 0.02; done; kill -INT $pid";
    let script = format!("{begin}; {again}; {end}").replace("NAME", "deaf");
    let two = stdout(&shell(&server, project().path(), &script).await);
    assert!(two.starts_with("130\n") && two.contains("error: order 1 of deaf may still run on w1\n"), "{two}");
    assert!(two.contains("you left before its workers were told to end it\n"), "{two}");
    assert!(two.contains("\nnext: `rekindle exec deaf -- ps aux`"), "{two}");
    // Again and again, because nothing is seen of it before the server answers.
    let script = "$REKINDLE exec hung -- $PWD/asked 2>err & pid=$!; until [ -e asked ]; do sleep 0.02; done
        while kill -INT $pid; do sleep 0.02; done 2>&-";
    let unknown = stdout(&shell(&server, project().path(), &format!("{script}; {end}")).await);
    assert!(unknown.starts_with("130\nerror: the command may run on hung\n"), "{unknown}");
    let next = "next: `rekindle exec hung -- ps aux` shows what runs there; `rekindle pause hung` ends all of it\n";
    assert!(unknown.contains(next), "{unknown}");
}

#[tokio::test]
async fn a_piece_of_output_that_cannot_be_had_at_once_is_asked_for_again() {
    let server = server::start().await;
    let output = rekindle(&server, "rekindle exec shaky -- make").await;
    let said = ["[w0] stdout 0 of worker 0-0\n", "[w1] stdout 0 of worker 0-1\n"].concat();
    assert_eq!((stdout(&output), output.status.code()), (said, Some(3)), "{output:?}");
}

#[tokio::test]
async fn ssh_goes_to_the_first_worker_and_through_the_proxy_where_it_is_told_to() {
    let server = server::start().await;
    let home = project();
    let gcloud = home.path().join("gcloud");
    std::fs::write(&gcloud, "#!/bin/bash\nprintf '%s\\n' \"$@\"\nexit 7\n").unwrap();
    std::fs::set_permissions(&gcloud, std::fs::Permissions::from_mode(0o755)).unwrap();
    let to = async |words: &str| {
        let line = format!("PATH=$PWD:$PATH exec \"$REKINDLE\" ssh {words}");
        shell(&server, home.path(), &line).await
    };
    let ssh = async |words: &str| to(&format!("train-1 {words}")).await;
    let plain = ["compute", "tpus", "tpu-vm", "ssh", "rk-abc123-train-1-g2", "--zone=us-central1-a", "--worker=0"];
    let output = ssh("").await;
    assert_eq!(stdout(&output).lines().collect::<Vec<_>>(), plain);
    assert_eq!(output.status.code(), Some(7), "it ends as gcloud does");
    let output = ssh("--iap -- -L 9000:localhost:9000").await;
    let proxied = [&["alpha"], &plain[..], &["--tunnel-through-iap", "--", "-L", "9000:localhost:9000"]].concat();
    assert_eq!(stdout(&output).lines().collect::<Vec<_>>(), proxied);
    // What came through the queue is a node too, and one of several slices has its own name.
    // Where it has no external address, the proxy is the usual way.
    for (words, node, worker, way) in [
        ("queued --worker w3", "queued-g2", 3, ["alpha", "--tunnel-through-iap"]),
        ("queued --internal-ip", "queued-g2", 0, ["", "--internal-ip"]),
        ("sliced", "sliced-g2-0", 0, ["", ""]),
        ("sliced --worker 1-1", "sliced-g2-1", 1, ["", ""]),
    ] {
        let output = to(words).await;
        let node = format!("rk-abc123-{node}");
        let worker = format!("--worker={worker}");
        let begin = [way[0], "compute", "tpus", "tpu-vm", "ssh", &node, "--zone=us-central1-a", &worker, way[1]];
        let want: Vec<&str> = begin.into_iter().filter(|word| !word.is_empty()).collect();
        assert_eq!(stdout(&output).lines().collect::<Vec<_>>(), want, "{words}");
    }
    // gcloud takes several at once only with a command.
    let output = ssh("--worker all").await;
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("", Some(1)), "{output:?}");
    let output = ssh("--iap --internal-ip").await;
    assert_eq!(output.status.code(), Some(2), "one way or the other");
    assert!(stdout(&output).is_empty(), "{output:?}");
}

#[tokio::test]
async fn up_that_is_only_tried_sends_nothing_and_makes_nothing() {
    let server = server::start().await;
    let home = project();
    for (name, is_there) in [("dev", false), ("old", false), ("asleep", true), ("box", true)] {
        let line = format!("$REKINDLE up {name} --tpu v5litepod-8 --folder project --dry-run --json");
        let output = shell(&server, home.path(), &line).await;
        let job: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!((&job["workspace"], output.status.code()), (&true.into(), Some(0)), "{output:?}");
        // What is there has a definition already.
        let code = job["code"].as_str().unwrap_or_default();
        assert_eq!(code.starts_with("gs://bucket/bundles/"), !is_there, "{job}");
    }
    assert_eq!((server.bodies(), server.uploads()), (vec![], vec![]));
}

#[tokio::test]
async fn exec_says_that_what_is_piped_in_reaches_nobody() {
    let server = server::start().await;
    let home = project();
    for (script, is_told) in [
        ("echo words >file; exec <file", true),
        ("mkfifo pipe; exec 0<>pipe; echo words >&0", true),
        (": >empty; exec <empty", false),
        ("exec </dev/null", false),
    ] {
        let script = format!("{script}; \"$REKINDLE\" exec box -- hostname");
        let output = shell(&server, home.path(), &script).await;
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        assert!(said.contains("rekindle sync FILE box:") == is_told, "{script}: {output:?}");
        assert_eq!(said.matches("gets no input").count(), usize::from(is_told), "{script}: {said}");
    }
}

/// The commands that the help lists.
async fn commands(server: &server::Server) -> Vec<String> {
    let help = stdout(&rekindle(server, "rekindle --help").await);
    super::commands(&help).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn each_shell_gets_a_completion_of_every_command() {
    let server = server::start().await;
    let commands = commands(&server).await;
    for (name, mark) in
        [("bash", "complete -o nospace"), ("zsh", "#compdef rekindle"), ("fish", "complete --keep-order")]
    {
        let script = stdout(&rekindle(&server, &format!("rekindle completion {name}")).await);
        assert!(script.contains(mark) && script.contains("REKINDLE_COMPLETE"), "{name}: {script}");
        let ask =
            format!("REKINDLE_COMPLETE={name} _CLAP_COMPLETE_INDEX=1 _CLAP_IFS=$'\\n' \"$REKINDLE\" -- rekindle ''");
        let offered = stdout(&shell(&server, project().path(), &ask).await);
        let is_offered =
            |command: &&String| offered.lines().any(|line| line.split([':', '\t']).next() == Some(command.as_str()));
        let missing: Vec<&String> = commands.iter().filter(|command| !is_offered(command)).collect();
        assert!(missing.is_empty(), "{name} does not offer {missing:?}: {offered}");
        if !shell(&server, project().path(), &format!("command -v {name}")).await.status.success() {
            let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!is_ci, "{name} is to be there in CI (Debian's package {name})");
            writeln!(std::io::stderr(), "skipped: {name} is not there to read its completion").unwrap();
            continue;
        }
        let read = format!("\"$REKINDLE\" completion {name} >script; exec {name} -n script");
        let output = shell(&server, project().path(), &read).await;
        assert!(output.status.success(), "{name}: {output:?}");
    }
    // No script is offered that nobody has tried.
    let others = shell(&server, project().path(), "\"$REKINDLE\" completion elvish").await;
    let said = String::from_utf8(others.stderr).unwrap();
    assert!(said.contains("[possible values: bash, zsh, fish]") && others.status.code() == Some(2), "{said}");
    assert_eq!(proposed(&server, "cance").await, "cancel\n");
}

/// What bash proposes for the last word.
async fn proposed(server: &server::Server, words: &str) -> String {
    let script = format!(
        "rekindle() {{ \"$REKINDLE\" \"$@\"; }}; source <(rekindle completion bash); COMP_WORDS=(rekindle {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
         _clap_complete_rekindle rekindle \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[*]}}\""
    );
    stdout(&shell(server, &project().path().join("project"), &script).await)
}

#[tokio::test]
async fn jobs_workspaces_and_presets_are_proposed_as_they_are_now() {
    let server = server::start().await;
    for (words, want) in [
        ("show tr", "train-1\n"),
        ("wait good b", "bad box\n"),
        ("logs -f wai", "waits\n"),
        ("exec b", "box\n"),
        ("run --preset sm", "small\n"),
        ("run --preset rer", "rerun\n"),
        // train.py is none.
        ("run --folder tra", "\n"),
        ("run --folder ../pro", "../project/\n"),
        ("ps --owner res", "research\n"),
        ("ps --tag abl", "ablation\n"),
        ("sync bo", "box:\n"),
        ("sync train. bo", "box:\n"),
        ("run --tpu v4-8,v6e-6", "v4-8,v6e-64\n"),
        ("up dev --zone us-west4", "us-west4-a\n"),
        ("ps --phase prov", "provisioning\n"),
        ("fields tpu.zo", "tpu.zones\n"),
        ("run job.yaml dep", "depth=\n"),
        ("run jo", "job.yaml\n"),
        ("run --set limits.to", "limits.total=\n"),
        ("--server http://127.0.0.1:1 show tr", "\n"),
    ] {
        assert_eq!(proposed(&server, words).await, want, "{words}");
    }
}
