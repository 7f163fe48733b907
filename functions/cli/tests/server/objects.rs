//! Output as the server gives it to the command line: an object for each line.

use serde_json::{Value, json};

/// One attempt, whose program says what looks like the words of others, and draws a bar.
pub(super) const FORGED: &str = concat!(
    "id: 1;a\ndata: {\"attempt\":1,\"workers\":4}\n",
    "data: {\"attempt\":1,\"workers\":4,\"worker\":\"w0\",\"line\":\"== attempt 9 ==\"}\n",
    "data: {\"attempt\":1,\"workers\":4,\"worker\":\"w0\",\"line\":\"[w3] not w3\"}\n\n",
    "id: 1;b\ndata: {\"attempt\":1,\"workers\":4,\"worker\":\"w1\",\"line\":\" 10%\",\"is_open\":true}\n\n",
    "id: 1;c\ndata: {\"attempt\":1,\"workers\":4,\"worker\":\"w1\",\"line\":\" 20%\",\"is_open\":true}\n\n",
    "id: 1;d\ndata: {\"attempt\":1,\"workers\":4,\"worker\":\"w2\",\"line\":\"between\"}\n\n",
    "id: 1;e\ndata: {\"attempt\":1,\"workers\":4,\"worker\":\"w1\",\"line\":\" 30%\",\"is_open\":true}\n\n",
    "id: 1;f\ndata: {\"attempt\":1,\"workers\":4,\"worker\":\"w1\",\"line\":\"100%\"}\n\n",
    "id: 1;g\nevent: end\ndata: succeeded\n\n",
);

/// The one worker's program leaves a colour open.
pub(super) const RED: &str = "{\"attempt\":1,\"workers\":1,\"worker\":\"w0\",\"line\":\"\\u001b[31mred\"}\n";

/// A line of text as an object; the attempt is that of the last heading.
fn object(line: &str, attempt: &mut u32) -> Value {
    if let Some(number) = line.strip_prefix("== attempt ").and_then(|rest| rest.strip_suffix(" ==")) {
        *attempt = number.parse().unwrap();
        return json!({"attempt": *attempt, "workers": 4});
    }
    let (worker, said) = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).unwrap();
    json!({"attempt": *attempt, "workers": 4, "worker": worker, "line": said})
}

/// Lines of text as objects.
pub(super) fn lines(text: &str) -> String {
    let mut attempt = 1;
    text.lines().map(|line| object(line, &mut attempt).to_string() + "\n").collect()
}

/// Events with lines of text as events with objects; an event of a kind of its own stays as it is.
pub(super) fn events(stream: &str) -> String {
    let mut attempt = 1;
    let mut out = Vec::new();
    let mut is_end = false;
    for line in stream.split('\n') {
        is_end = (is_end || line.starts_with("event: ")) && !line.is_empty();
        // Of a stream that begins again in the midst of an attempt, the id tells which.
        if let Some(id) = line.strip_prefix("id: ").and_then(|id| id.split_once(';')) {
            attempt = id.0.parse().unwrap();
        }
        match line.strip_prefix("data: ").filter(|_| !is_end) {
            Some(data) => out.push(format!("data: {}", object(data, &mut attempt))),
            None => out.push(line.to_owned()),
        }
    }
    out.join("\n")
}
