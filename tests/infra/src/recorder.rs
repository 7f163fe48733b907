//! An HTTP server that writes down what it is asked, and answers with as little as gcloud is content with.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Ends when it is dropped.
pub(crate) struct Recorder {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

/// The path that ends it.
const END: &str = "/end-of-recording";

impl Recorder {
    /// On a free port of loopback.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that goes away in the middle is none of our business.
                let Ok(request) = stream.and_then(|s| serve(&s)) else { continue };
                if request.contains(END) {
                    return;
                }
                kept.lock().unwrap().push(request);
            }
        });
        Self { address, requests, thread: Some(thread) }
    }

    /// `http://…/`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// What came since the last time, as `METHOD /path`.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Ok(mut stream) = TcpStream::connect(self.address) {
            let _ = stream.write_all(format!("GET {END} HTTP/1.0\r\n\r\n").as_bytes());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: &TcpStream) -> std::io::Result<String> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    reader.by_ref().take(length).read_to_end(&mut Vec::new())?;
    let body = if first.contains(":publish") { r#"{"messageIds": ["1"]}"# } else { "{}" };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let answer = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    (&*stream).write_all(answer.as_bytes())?;
    Ok(first.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}
