//! The official emulators of Firestore and Pub/Sub, for tests that need the real wire.
//!
//! One that already runs is used when `FIRESTORE_EMULATOR_HOST` or `PUBSUB_EMULATOR_HOST` names it. Otherwise one is
//! started from the Google Cloud SDK, by Java itself, on a free port of loopback. It ends when its [`Emulator`] is
//! dropped, and also when the test process dies: a small shell beside it waits for the end of a pipe that only we
//! hold.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longest wait for an emulator. It takes 1 to 3 s; a machine that builds beside it may take ten times that.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// Ends the emulator when the pipe ends, whatever ended its other side. `$1…` is the emulator's command line.
const GUARD: &str = r#""$@" </dev/null & cat >/dev/null; kill -9 $!; wait $! 2>/dev/null"#;

/// Starts emulators.
#[derive(Debug, Clone, Copy)]
pub struct Emulators;

/// A running emulator.
#[derive(Debug)]
pub struct Emulator {
    address: String,
    guard: Option<Child>,
}

impl Emulators {
    /// The Firestore emulator. Any project and database exists in it, empty, so a test takes a project name of its own.
    ///
    /// `None`, with a notice: it is not installed here. Panics instead when `CI` is `true`, and when it does not come
    /// up.
    pub fn firestore() -> Option<Emulator> {
        emulator("Firestore", "FIRESTORE_EMULATOR_HOST", |sdk| {
            let jar = sdk.join("platform/cloud-firestore-emulator/cloud-firestore-emulator.jar");
            // The jar names no main class of its own.
            let main = "com.google.cloud.datastore.emulator.firestore.CloudFirestore";
            jar.is_file()
                .then(|| vec!["-Duser.language=en".into(), "-cp".into(), jar.into(), main.into(), "start".into()])
        })
    }

    /// The Pub/Sub emulator; as [`Self::firestore`].
    pub fn pubsub() -> Option<Emulator> {
        emulator("Pub/Sub", "PUBSUB_EMULATOR_HOST", |sdk| {
            let lib = std::fs::read_dir(sdk.join("platform/pubsub-emulator/lib")).ok()?;
            let jars = lib.filter_map(Result::ok).map(|entry| entry.path());
            let jar = jars.into_iter().find(|jar| {
                let name = jar.file_name().unwrap_or_default().to_string_lossy().into_owned();
                name.starts_with("cloud-pubsub-emulator-") && name.ends_with("-all.jar")
            })?;
            Some(vec!["-jar".into(), jar.into()])
        })
    }
}

impl Emulator {
    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            // The guard ends by itself once its pipe has ended; nothing can be done if it does not.
            let _status = guard.wait();
        }
    }
}

fn emulator(name: &str, variable: &str, command: impl Fn(&Path) -> Option<Vec<OsString>>) -> Option<Emulator> {
    if let Ok(address) = std::env::var(variable)
        && !address.is_empty()
    {
        return Some(Emulator { address, guard: None });
    }
    let found = sdk_root().and_then(|sdk| command(sdk).ok_or_else(|| "it is no part of this Google Cloud SDK".into()));
    let arguments = match found {
        Ok(arguments) => arguments,
        Err(why) => {
            let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!ci, "the {name} emulator is needed, and absent: {why}");
            // Straight to the stream, so that the notice is seen although the test passes.
            let notice = format!("NOTICE: skipped what needs the {name} emulator: {why}; or set {variable}\n");
            let _closed = std::io::stderr().write_all(notice.as_bytes());
            return None;
        }
    };
    // Another process may take the port between our look and the emulator's start.
    let mut last = String::new();
    for _ in 0..3 {
        match start(&arguments) {
            Ok(emulator) => return Some(emulator),
            Err(why) => last = why,
        }
    }
    panic!("the {name} emulator does not come up: {last}");
}

fn start(arguments: &[OsString]) -> Result<Emulator, String> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map_err(|e| e.to_string())?.port();
    let address = format!("127.0.0.1:{port}");
    let mut log = tempfile::tempfile().map_err(|e| e.to_string())?;
    let copy = |log: &File| log.try_clone().map_err(|e| e.to_string());
    let guard = Command::new("sh")
        .args(["-c", GUARD, "sh", "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"])
        .args(arguments)
        .args(["--host=127.0.0.1".to_owned(), format!("--port={port}")])
        .stdin(Stdio::piped())
        .stdout(copy(&log)?)
        .stderr(copy(&log)?)
        .spawn()
        .map_err(|e| e.to_string())?;
    let emulator = Emulator { address, guard: Some(guard) };
    let deadline = Instant::now() + READY_WITHIN;
    while Instant::now() < deadline {
        if answers(&emulator.address) {
            return Ok(emulator);
        }
        std::thread::park_timeout(Duration::from_millis(25));
    }
    drop(emulator);
    Err(tail(&mut log))
}

/// Whether `GET /` is answered 200.
fn answers(address: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok(String::from_utf8_lossy(&head).into_owned())
    };
    ask().is_ok_and(|head| head == "HTTP/1.1 200")
}

fn tail(log: &mut File) -> String {
    use std::io::{Seek, SeekFrom};
    let mut text = Vec::new();
    let read = log.seek(SeekFrom::Start(0)).and_then(|_| log.read_to_end(&mut text));
    match read {
        Ok(_) => String::from_utf8_lossy(&text[text.len().saturating_sub(4_000)..]).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// The folder of the Google Cloud SDK; asking takes a second, so it is asked once.
fn sdk_root() -> Result<&'static Path, String> {
    static ROOT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        let java = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        java.map_err(|e| format!("no Java ({e})"))?;
        let said = Command::new("gcloud").args(["info", "--format=value(installation.sdk_root)"]).output();
        let said = said.map_err(|e| format!("no gcloud ({e})"))?;
        let root = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        if root.is_empty() { Err("gcloud does not tell where it is installed".into()) } else { Ok(root.into()) }
    });
    root.as_deref().map_err(Clone::clone)
}
