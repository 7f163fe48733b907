//! What answers in place of a server of ours, with an answer that looks like a success.

use axum::Router;
use axum::http::header;

use crate::{project, server, shell};

/// All that asks a server for something.
const COMMANDS: [&str; 13] = [
    "show a",
    "explain a",
    "history a",
    "outputs a",
    "logs a",
    "logs a -f",
    "wait a",
    "cancel a",
    "run job.yaml --no-code",
    "fleet",
    "ps",
    "status",
    "account --csv",
];

#[tokio::test]
async fn a_page_in_place_of_an_answer_is_told_as_that_by_every_command() {
    let server = server::start().await;
    for (kind, body, told) in [
        ("text/html; charset=utf-8", "<html>Please log in", "answered a web page"),
        ("text/plain", "Access is blocked.", "is not answered by Rekindle"),
        ("text/event-stream", ": Access is blocked.", "is not answered by Rekindle"),
        ("application/json", "{\"blocked\": true}", "is not answered by Rekindle"),
    ] {
        let answer = async move || ([(header::CONTENT_TYPE, kind)], body);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        for command in COMMANDS {
            let folder = project();
            let script = format!("$REKINDLE --server {url} {command}");
            let output = shell(&server, &folder.path().join("project"), &script).await;
            let said = String::from_utf8(output.stderr).unwrap();
            let begin = said.find("error: ").map_or("", |at| &said[at..]);
            let causes = ["\n  - what answers there is no Rekindle: a proxy", &format!("\n  - it begins: {body}\n")];
            assert!(begin.starts_with(&format!("error: {url}/v1/")) && begin.contains(told), "{command}: {said}");
            assert!(causes.iter().all(|cause| said.contains(cause)), "{command}: {said}");
            assert!(said.contains("\nnext: ") && said.contains("check the address"), "{command}: {said}");
            assert!(output.stdout.is_empty() && !output.status.success(), "{command}: {:?}", output.stdout);
        }
        task.abort();
    }
}

#[tokio::test]
async fn a_server_from_before_the_mark_is_taken_for_one_of_ours() {
    let (earlier, today) = (server::start_earlier().await, server::start().await);
    let folder = project();
    // JSON, a list, text, a stream, CSV, and what changes something.
    for command in [
        "show train-1",
        "history train-1",
        "explain train-1",
        "ps",
        "logs train-1",
        "logs moved -f",
        "account --csv",
        "cancel train-1",
    ] {
        let run = async |server: &server::Server| {
            let output = shell(server, &folder.path().join("project"), &format!("$REKINDLE {command}")).await;
            let said = String::from_utf8(output.stderr).unwrap().replace(&server.url(), "http://SERVER");
            (output.status.code(), said, output.stdout.is_empty())
        };
        let of_earlier = run(&earlier).await;
        assert_eq!(of_earlier, run(&today).await, "{command}");
        assert!(of_earlier.0 == Some(0) && !of_earlier.2, "{command}: {of_earlier:?}");
    }
    // What it is asked for is told, and which version goes with it.
    let output = shell(&earlier, folder.path(), "$REKINDLE version; $REKINDLE doctor").await;
    let shown = String::from_utf8(output.stdout).unwrap();
    let version = format!("server   0.0.9 (installation abc123) at {}\n", earlier.url());
    let install = "`cargo install --locked --path functions/cli` in a clone of version 0.0.9\n";
    assert!(shown.contains(&version) && shown.contains(install), "{shown}");
    // A page in its place is told as ever, and so is an answer that is no JSON.
    for (job, told) in [("website", "answered a web page"), ("garbled", "answered something that is no JSON")] {
        let output = shell(&earlier, folder.path(), &format!("$REKINDLE show {job}")).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(told) && !output.status.success(), "{said}");
    }
}

#[tokio::test]
async fn a_stranger_is_told_by_version_and_doctor_too_and_also_where_it_never_ends() {
    let endless = || {
        let piece = || Ok::<_, std::io::Error>(bytes::Bytes::from_static(b"Access is blocked.\n"));
        let body = axum::body::Body::from_stream(futures::stream::repeat_with(piece));
        ([(header::CONTENT_TYPE, "text/event-stream")], body)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(async move || endless());
    let task = tokio::spawn(async move { axum::serve(listener, app).await });
    let server = server::start().await;
    for command in ["logs a -f", "logs a", "account --csv", "show a", "version", "doctor"] {
        let output = shell(&server, project().path(), &format!("$REKINDLE --server {url} {command}")).await;
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("is not answered by Rekindle"), "{command}: {said}");
    }
    task.abort();
}
