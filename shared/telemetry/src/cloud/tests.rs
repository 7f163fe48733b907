//! Lines as Cloud Logging gets them.

use std::io;
use std::sync::{Arc, Mutex};

use tracing_subscriber::layer::SubscriberExt;

use super::*;

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lines(of: impl FnOnce()) -> Vec<Value> {
    let kept = Kept::default();
    let sink = {
        let kept = kept.clone();
        move || kept.clone()
    };
    let service = Service { name: "rekindle-api".into(), version: "1.2.3".into() };
    let layer = CloudLayer::new("proj".into(), service, sink);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), of);
    let bytes = kept.0.lock().unwrap().clone();
    assert!(bytes.is_empty() || bytes.ends_with(b"\n"));
    bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect()
}

#[test]
fn special_fields_get_their_places_and_others_stay() {
    let lines = lines(|| {
        let span = tracing::info_span!(
            "request",
            trace_id = "abc",
            span_id = "01",
            sampled = true,
            job = "outer",
            otel.kind = "server"
        );
        let _entered = span.enter();
        tracing::warn!(
            insert_id = "i",
            labels.zone = "z",
            labels.count = 3,
            http.method = "POST",
            http.status = 503,
            http.latency_ms = 12.5,
            job = "inner",
            attempt = 4_u64,
            "a {}",
            "message"
        );
    });
    let [line] = lines.as_slice() else { panic!("one line: {lines:?}") };
    assert_eq!(line["severity"], "WARNING");
    assert_eq!(line["message"], "a message");
    assert_eq!(line["logging.googleapis.com/trace"], "projects/proj/traces/abc");
    assert_eq!(line["logging.googleapis.com/spanId"], "01");
    assert_eq!(line["logging.googleapis.com/trace_sampled"], true);
    assert_eq!(line["logging.googleapis.com/insertId"], "i");
    assert_eq!(
        line["logging.googleapis.com/labels"],
        json!({"zone": "z", "count": "3", "job": "inner", "attempt": "4"})
    );
    assert_eq!(line["httpRequest"], json!({"requestMethod": "POST", "status": 503, "latency": "0.012500s"}));
    assert!(line.get("job").is_none() && line.get("otel.kind").is_none());
    assert!(line["logging.googleapis.com/sourceLocation"]["file"].as_str().unwrap().ends_with("tests.rs"));
    assert!(line["time"].as_str().unwrap().parse::<Timestamp>().is_ok());
    assert!(line.get("@type").is_none(), "no error report");
}

#[test]
fn lines_belong_to_the_trace_that_is_worked_for() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let came = trace::TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let lines = lines(|| {
        let work = async { tracing::info!("inside") };
        runtime.block_on(trace::within(|| tracing::info_span!("request"), came, work));
        tracing::info!("outside");
    });
    assert_eq!(lines[0]["logging.googleapis.com/trace"], "projects/proj/traces/4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(lines[0]["logging.googleapis.com/spanId"], "00f067aa0ba902b7");
    assert_eq!(lines[0]["logging.googleapis.com/trace_sampled"], true);
    assert!(lines[1].get("logging.googleapis.com/trace").is_none(), "{lines:?}");
}

#[test]
fn errors_are_reported_with_service_place_and_sources() {
    #[derive(Debug)]
    struct Outer(io::Error);
    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("outer")
        }
    }
    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let error = Outer(io::Error::other("inner"));
    let lines = lines(|| tracing::error!(error = &error as &dyn std::error::Error, "it broke"));
    let line = &lines[0];
    assert_eq!((&line["severity"], &line["error"]), (&json!("ERROR"), &json!("outer: inner")));
    assert_eq!(line["@type"], ERROR_EVENT);
    assert_eq!(line["serviceContext"], json!({"service": "rekindle-api", "version": "1.2.3"}));
    assert!(line["context"]["reportLocation"]["lineNumber"].is_u64());
}

#[test]
fn every_event_is_one_line_whatever_it_holds() {
    let lines = lines(|| {
        tracing::info!(text = "a\nb\u{0}\u{2028}\"", "line\nbreak");
        tracing::debug!(only = 1);
        let span = tracing::info_span!("late", late = tracing::field::Empty);
        span.record("late", 7);
        span.in_scope(|| tracing::trace!("traced"));
    });
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["message"], "line\nbreak");
    assert_eq!(lines[0]["text"], "a\nb\u{0}\u{2028}\"");
    assert!(lines[1]["message"].is_string(), "a message is always there");
    assert_eq!((&lines[2]["late"], &lines[2]["severity"]), (&json!(7), &json!("DEBUG")));
}
