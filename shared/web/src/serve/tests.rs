//! Limits on heads, and the end, on the wire.

use std::fmt::Write as _;

use axum::routing::post;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;

use super::*;

/// A server; its address, what stops it, and its end.
async fn start() -> (std::net::SocketAddr, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    start_with(HEAD_FOR).await
}

async fn start_with(head_for: Duration) -> (std::net::SocketAddr, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    serving(Router::new().route("/", post(async |body: String| body)), head_for).await
}

async fn serving(
    router: Router,
    head_for: Duration,
) -> (std::net::SocketAddr, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    (at, stop, tokio::spawn(serve_heads(listener, router, async { drop(stopped.await) }, head_for)))
}

/// A head with so many headers, of so many bytes in all.
fn head(headers: usize, size: usize) -> String {
    let mut head = "POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 2\r\n".to_owned();
    for n in 3..headers {
        write!(head, "x-{n}: y\r\n").unwrap();
    }
    let rest = size.saturating_sub(head.len() + "x-last: \r\n\r\n".len());
    write!(head, "x-last: {}\r\n\r\n", "y".repeat(rest)).unwrap();
    head
}

/// Sends bytes and reads one answer; its first line, and whether the connection is still open.
async fn told(stream: &mut TcpStream, bytes: &str) -> String {
    // What is refused is not read to its end.
    let _ = stream.write_all(bytes.as_bytes()).await;
    let mut answer = Vec::new();
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut answer).await.unwrap_or(0) == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn heads_have_a_limit_in_number_and_in_size() {
    let (at, _stop, _ended) = start().await;
    for (name, head, status) in [
        ("as many headers as may be", head(HEADERS_MAX, 0), "200 OK"),
        ("one more", head(HEADERS_MAX + 1, 0), "431 Request Header Fields Too Large"),
        ("as large as may be", head(4, HEAD_MAX), "200 OK"),
        ("one byte more", head(4, HEAD_MAX + 1), "431 Request Header Fields Too Large"),
        (
            "without an end",
            "POST / HTTP/1.1\r\nx: ".to_owned() + &"y".repeat(HEAD_MAX),
            "431 Request Header Fields Too Large",
        ),
        ("a line without an end", "POST /".to_owned() + &"y".repeat(HEAD_MAX), "431 Request Header Fields Too Large"),
    ] {
        let mut stream = TcpStream::connect(at).await.unwrap();
        assert_eq!(told(&mut stream, &(head + "{}")).await, format!("HTTP/1.1 {status}"), "{name}");
    }
}

#[tokio::test]
async fn who_calls_and_whom_is_said_once() {
    let (at, _stop, _ended) = start().await;
    for (more, status) in [
        ("", "200 OK"),
        ("origin: http://here\r\n", "200 OK"),
        ("cookie: a=1\r\ncookie: b=2\r\n", "200 OK"),
        ("host: here\r\n", "400 Bad Request"),
        ("Host: elsewhere\r\n", "400 Bad Request"),
        ("origin: http://here\r\norigin: http://elsewhere\r\n", "400 Bad Request"),
        ("authorization: Bearer a\r\nX-Serverless-Authorization: Bearer b\r\n", "200 OK"),
        ("authorization: Bearer a\r\nAuthorization: Bearer b\r\n", "400 Bad Request"),
        ("X-Serverless-Authorization: Bearer a\r\nx-serverless-authorization: Bearer a\r\n", "400 Bad Request"),
    ] {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let head = head(4, 0).replacen("content-length", &format!("{more}content-length"), 1);
        assert_eq!(told(&mut stream, &(head + "{}")).await, format!("HTTP/1.1 {status}"), "{more}");
    }
}

#[tokio::test]
async fn trailers_have_them_too() {
    let (at, _stop, _ended) = start().await;
    let chunked = |trailer: usize| {
        let head = "POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n";
        format!("{head}2\r\n{{}}\r\n0\r\nx: {}\r\n\r\n", "y".repeat(trailer))
    };
    let mut stream = TcpStream::connect(at).await.unwrap();
    assert_eq!(told(&mut stream, &chunked(10)).await, "HTTP/1.1 200 OK");
    let mut stream = TcpStream::connect(at).await.unwrap();
    assert_ne!(told(&mut stream, &chunked(HEAD_MAX)).await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_head_that_does_not_end_is_not_waited_for_and_neither_is_the_next_one() {
    let (at, _stop, _ended) = start_with(Duration::from_millis(20)).await;
    let mut slow = TcpStream::connect(at).await.unwrap();
    assert_eq!(told(&mut slow, "POST / HTTP/1.1\r\nhost: he").await, "", "closed");
    let mut idle = TcpStream::connect(at).await.unwrap();
    assert_eq!(told(&mut idle, &(head(4, 0) + "{}")).await, "HTTP/1.1 200 OK");
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    assert!(HEAD_FOR > Duration::from_mins(10), "later than the load balancers");
    assert!(HEAD_FOR_HERE <= Duration::from_secs(30), "where there are none");
}

#[tokio::test]
async fn a_stop_closes_idle_connections_and_takes_no_new_ones() {
    let (at, stop, ended) = start().await;
    let mut stream = TcpStream::connect(at).await.unwrap();
    let ask = head(4, 0) + "{}";
    assert_eq!(told(&mut stream, &ask).await, "HTTP/1.1 200 OK");
    stop.send(()).unwrap();
    ended.await.unwrap();
    assert_eq!(told(&mut stream, &ask).await, "", "closed");
    assert!(TcpStream::connect(at).await.is_err());
}

#[tokio::test]
async fn a_stop_ends_streams_of_events_whole_and_waits_for_what_else_is_under_way() {
    let events = async || {
        let first = futures::stream::iter([Ok::<_, std::io::Error>("data: one\n\n")]);
        let body = Body::from_stream(first.chain(futures::stream::pending()));
        ([(header::CONTENT_TYPE, "text/event-stream")], body)
    };
    let (at, stop, ended) = serving(Router::new().route("/", post(events)), HEAD_FOR).await;
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all((head(4, 0) + "{}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    while !answer.contains("data: one") {
        let mut piece = [0; 1024];
        let read = stream.read(&mut piece).await.unwrap();
        answer += std::str::from_utf8(&piece[..read]).unwrap();
    }
    stop.send(()).unwrap();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("\r\n0\r\n\r\n"), "an end, no break: {answer}");
    ended.await.unwrap();
}

#[tokio::test]
async fn a_handler_comes_to_its_end_though_its_caller_is_gone() {
    let (begun, mut begins) = tokio::sync::mpsc::channel::<()>(1);
    let (done, mut is_done) = tokio::sync::mpsc::channel::<()>(1);
    let go = std::sync::Arc::new(tokio::sync::Notify::new());
    let waits = std::sync::Arc::clone(&go);
    let handler = async move || {
        begun.send(()).await.unwrap();
        waits.notified().await;
        done.send(()).await.unwrap();
    };
    let (at, stop, ended) = serving(Router::new().route("/", post(handler)), HEAD_FOR).await;
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all((head(4, 0) + "{}").as_bytes()).await.unwrap();
    begins.recv().await.unwrap();
    // As the kernel does for a process that is killed. The server has seen it when its own end waits for this request alone.
    drop(stream);
    stop.send(()).unwrap();
    while TcpStream::connect(at).await.is_ok() {}
    go.notify_one();
    assert!(is_done.recv().await.is_some(), "what was begun is brought to its end");
    ended.await.unwrap();
}
