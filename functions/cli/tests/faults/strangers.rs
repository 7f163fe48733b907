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
