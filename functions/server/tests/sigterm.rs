//! The real server, and the signal by which Cloud Run ends it: what is under way is answered, and what was answered is kept.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rekindle_fakes::Emulators;
use rustix::process::{Pid, Signal, kill_process};

/// Cloud Run kills so long after its signal.
const KILLED_AFTER: Duration = Duration::from_secs(10);
/// No step takes longer, unless something is broken.
const PATIENCE: Duration = Duration::from_mins(1);

const CAPACITY: &str = "- {accelerator: v5litepod-*, zone: us-central1-a, kind: spot, usd_per_chip_hour: 0.5}";

/// A server with what it logs.
struct Server {
    child: Child,
    lines: Receiver<String>,
    address: String,
}

impl Server {
    /// One that serves.
    fn start((firestore, pubsub): (&str, &str), project: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rekindle-server"))
            .args(["api", "--host=127.0.0.1", "--port=0", "--auth=none", "--bucket=gs://b", "--capacity", CAPACITY])
            .args([
                "--api-url=http://127.0.0.1:1",
                "--reconcile-url=http://127.0.0.1:1",
                "--tasks-location=us-central1",
            ])
            .arg(format!("--project={project}"))
            .arg(format!("--firestore-emulator={firestore}"))
            // It has no topic for hints, and says so at once: the tick finds the job.
            .arg(format!("--pubsub-emulator={pubsub}"))
            .args(["--storage-emulator=127.0.0.1:1", "--tasks-emulator=127.0.0.1:1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, lines) = mpsc::channel();
        let log = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || log.lines().map_while(Result::ok).all(|line| tell.send(line).is_ok()));
        let mut server = Self { child, lines, address: String::new() };
        let line = server.line("serving");
        let address = line.split_whitespace().find_map(|word| word.strip_prefix("address=")).expect(&line);
        address.clone_into(&mut server.address);
        server
    }

    /// The next line that says this.
    fn line(&self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => all.push(line),
                Err(error) => panic!("{text:?}: {error}: {all:#?}"),
            }
        }
    }

    /// A POST of a job of which the server has the head, and waits for its body.
    fn begun(&self, length: usize) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "POST /v1/jobs HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
             expect: 100-continue\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut said = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(said, *b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let ask = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        stream.write_all(ask.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_is_under_way_is_answered_and_kept_and_the_rest_is_cut_before_the_platform_kills() {
    let (Some(firestore), Some(pubsub)) = (Emulators::firestore(), Emulators::pubsub()) else { return };
    let emulators = (firestore.address(), pubsub.address());
    let project = format!("sigterm-{}", std::process::id());
    let mut server = Server::start(emulators, &project);
    let job = r#"{"id": "last", "run": "true", "tpu": {"accelerator": "v5litepod-4"}}"#;
    let mut under_way = server.begun(job.len());
    let mut never_sent = server.begun(job.len());

    let signalled = Instant::now();
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    server.line("no new connections are taken");
    assert!(TcpStream::connect(&server.address).is_err(), "new ones go to another instance");
    under_way.write_all(job.as_bytes()).unwrap();
    let mut answer = String::new();
    under_way.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    // One that never ends does not keep it.
    let status = server.child.wait().unwrap();
    assert!(signalled.elapsed() < KILLED_AFTER, "{:?}", signalled.elapsed());
    assert!(status.success(), "{status}");
    let mut cut = String::new();
    let _ = never_sent.read_to_string(&mut cut);
    assert_eq!(cut, "", "its caller comes again");

    let next = Server::start(emulators, &project);
    let kept = next.get("/v1/jobs/last");
    assert!(kept.starts_with("HTTP/1.1 200 ") && kept.contains("\"last\""), "{kept}");
}
