//! Faults: each names its cause and the next step.

mod census;
mod space;
mod strangers;
mod table;

use space::WORKSPACES;
use table::FAULTS;

use super::{project, server, shell};

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
async fn a_wait_that_fails_tells_machines_why_and_a_server_that_is_away_is_no_job_without_an_end() {
    let server = server::start().await;
    for (script, exit, cause) in [
        ("$REKINDLE wait nobody --json", 4, "there is no job nobody"),
        (
            "$REKINDLE wait train-1 --timeout 1ms --json",
            4,
            "`rekindle wait train-1` waits on, `rekindle explain train-1` tells what it is at",
        ),
        ("$REKINDLE --server http://127.0.0.1:9 wait train-1 --json", 2, "http://127.0.0.1:9"),
    ] {
        let output = shell(&server, project().path(), script).await;
        let said = String::from_utf8(output.stderr).unwrap();
        let json: serde_json::Value = serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap();
        assert!(said.contains(cause), "{said}");
        assert_eq!((&json["exit_code"], output.status.code()), (&exit.into(), Some(exit)), "{said}");
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
    let next = format!("next: end what uses port {port}, or take another with --port (0 takes a free one)");
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
    let told = ["is stopping\n", "next: start this one again in a few seconds, or"];
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

#[tokio::test(flavor = "multi_thread")]
async fn output_of_a_job_whose_workers_still_send_is_not_called_whole() {
    let server = server::start().await;
    let output = shell(&server, project().path(), "$REKINDLE logs sending").await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !output.stdout.is_empty(), "{said}");
    assert!(said.contains("still send `outputs`") && said.contains("`rekindle logs -f sending` waits"), "{said}");
    let output = shell(&server, project().path(), "$REKINDLE logs train-1").await;
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
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
    assert!(said.contains("next: run it again for the whole of it\n"), "{said}");
    assert!(!said.contains("path") && !said.contains("\nhere"), "{said}");
}

#[tokio::test]
async fn faults_of_one_kind_end_with_one_code() {
    let server = server::start().await;
    let dev = "$REKINDLE dev --state s --port 0 --tpu-port 0";
    for (exit, scripts) in [
        (2, vec!["$REKINDLE since tomorrow".to_owned(), "$REKINDLE logs train-1 --since tomorrow".to_owned()]),
        (
            1,
            vec![
                "$REKINDLE dev --state s --tpu-port 0 --port ${REKINDLE_SERVER##*:}".to_owned(),
                "$REKINDLE dev --state s --port 0 --tpu-port ${REKINDLE_SERVER##*:}".to_owned(),
                format!("mkdir s; touch s/store.redb; flock s/store.redb {dev}"),
                format!("mkdir -p s/tpu; exec 9>s/tpu/lock; flock 9; {dev}"),
            ],
        ),
    ] {
        for script in scripts {
            let output = shell(&server, project().path(), &script).await;
            assert_eq!(output.status.code(), Some(exit), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[tokio::test]
async fn faults_name_the_cause_and_the_next_step() {
    let server = server::start().await;
    let mut wrong = Vec::new();
    for (script, causes, next) in FAULTS.iter().chain(WORKSPACES) {
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
