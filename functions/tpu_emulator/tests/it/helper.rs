//! A small program that startup scripts run on emulated workers: this test binary itself, told by the environment
//! what to do. Without that it is a test that does nothing.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

const ROLE: &str = "EMULATOR_TEST_ROLE";

/// A script that runs the program in a role.
pub(crate) fn script(role: &str) -> String {
    let own = std::env::current_exe().unwrap();
    format!("{ROLE}={role} exec '{}' --exact helper::program --nocapture", own.display())
}

/// A script in which worker 0 listens and the others connect to it.
pub(crate) fn slice_script() -> String {
    let (listen, connect) = (script("listen"), script("connect"));
    format!("if [ \"$({FETCH})\" = 0 ]; then {listen}; else {connect}; fi")
}

/// Prints this worker's index with nothing but bash.
pub(crate) const FETCH: &str = "exec 3<>/dev/tcp/${GCE_METADATA_HOST%:*}/${GCE_METADATA_HOST#*:}; \
    printf 'GET /computeMetadata/v1/instance/attributes/agent-worker-number HTTP/1.0\\r\\n' >&3; \
    printf 'Metadata-Flavor: Google\\r\\n\\r\\n' >&3; \
    tail -n 1 <&3";

#[test]
fn program() {
    match std::env::var(ROLE).as_deref() {
        Ok("listen") => listen(),
        Ok("connect") => connect(),
        Ok("count") => count(),
        _ => {}
    }
}

fn shared(name: &str) -> PathBuf {
    PathBuf::from(std::env::var("TEST_FOLDER").unwrap()).join(name)
}

/// Accepts connections of the other workers and answers each byte; ends never by itself.
fn listen() {
    let host = std::env::var("GCE_METADATA_HOST").unwrap();
    let ip = host.split(':').next().unwrap();
    let listener = TcpListener::bind((ip, 0)).unwrap();
    std::fs::write(shared("address.new"), listener.local_addr().unwrap().to_string()).unwrap();
    std::fs::rename(shared("address.new"), shared("address")).unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        std::thread::spawn(move || {
            let mut byte = [0];
            while matches!(stream.read(&mut byte), Ok(1)) && stream.write_all(&byte).is_ok() {}
        });
    }
}

/// Talks with worker 0 without end, and tells the test over a connection of its own when that ends.
fn connect() {
    let mut test = TcpStream::connect(std::env::var("TEST_ADDRESS").unwrap()).unwrap();
    let mut stream = loop {
        match std::fs::read_to_string(shared("address")) {
            Ok(address) => break TcpStream::connect(address).unwrap(),
            Err(_) => std::thread::park_timeout(Duration::from_millis(5)),
        }
    };
    let mut byte = [7];
    let mut rounds = 0_u32;
    loop {
        if stream.write_all(&byte).is_err() || !matches!(stream.read(&mut byte), Ok(1)) {
            break;
        }
        rounds += 1;
        if rounds == 10 {
            test.write_all(b"talking\n").unwrap();
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    test.write_all(b"cut\n").unwrap();
}

/// Writes a growing number to its own folder.
fn count() {
    for number in 0_u64.. {
        std::fs::write("count.new", number.to_string()).unwrap();
        std::fs::rename("count.new", "count").unwrap();
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
