//! Structured logs as Cloud Logging reads them from stdout.
//!
//! | field of an event or span | place |
//! |---|---|
//! | `trace_id`, `span_id`, `sampled`; else the trace that is worked for | `logging.googleapis.com/trace`, `/spanId`, `/trace_sampled` |
//! | `insert_id` | `logging.googleapis.com/insertId` |
//! | `job`, `attempt`, `generation`, `reason`, `labels.*` | `logging.googleapis.com/labels`, as text |
//! | `http.method`, `http.path`, `http.status`, `http.latency_ms` | `httpRequest` |
//! | anything else | a field of its own, beside `message` |
//!
//! Lines of level ERROR are in the form that Error Reporting groups.

use std::fmt::{self, Debug};
use std::io::Write;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::{Service, Sink, trace};

const TRACE: &str = "logging.googleapis.com/trace";
const SPAN: &str = "logging.googleapis.com/spanId";
const SAMPLED: &str = "logging.googleapis.com/trace_sampled";
const INSERT_ID: &str = "logging.googleapis.com/insertId";
const LABELS: &str = "logging.googleapis.com/labels";
const LOCATION: &str = "logging.googleapis.com/sourceLocation";
const ERROR_EVENT: &str = "type.googleapis.com/google.devtools.clouderrorreporting.v1beta1.ReportedErrorEvent";

/// Writes each event as one JSON object and a line feed, in one write.
pub struct CloudLayer<W> {
    project: String,
    service: Service,
    sink: W,
}

impl<W: Sink> CloudLayer<W> {
    /// Over a sink.
    pub fn new(project: String, service: Service, sink: W) -> Self {
        Self { project, service, sink }
    }

    fn line(&self, metadata: &Metadata<'_>, fields: Map<String, Value>, now: Timestamp) -> Map<String, Value> {
        let mut line = Map::new();
        let (mut labels, mut http) = (Map::new(), Map::new());
        line.insert("severity".into(), json!(severity(*metadata.level())));
        line.insert("time".into(), json!(now.to_string()));
        for (name, value) in fields {
            match name.as_str() {
                "trace_id" => {
                    let id = text(&value);
                    line.insert(TRACE.into(), json!(format!("projects/{}/traces/{id}", self.project)));
                }
                "span_id" => drop(line.insert(SPAN.into(), value)),
                "sampled" => drop(line.insert(SAMPLED.into(), value)),
                "insert_id" => drop(line.insert(INSERT_ID.into(), value)),
                "http.method" => drop(http.insert("requestMethod".into(), value)),
                "http.path" => drop(http.insert("requestUrl".into(), value)),
                "http.status" => drop(http.insert("status".into(), value)),
                "http.latency_ms" => {
                    let secs = value.as_f64().unwrap_or_default() / 1e3;
                    http.insert("latency".into(), json!(format!("{secs:.6}s")));
                }
                // What people look for in every service: as labels they are found by one filter.
                "job" | "attempt" | "generation" | "reason" => drop(labels.insert(name, json!(text(&value)))),
                // For the exporter of spans.
                other if other.starts_with("otel.") => {}
                other => match other.strip_prefix("labels.") {
                    Some(label) => drop(labels.insert(label.to_owned(), json!(text(&value)))),
                    None => drop(line.insert(name, value)),
                },
            }
        }
        // Without a message Cloud Logging shows the whole object as one text.
        line.entry("message").or_insert_with(|| json!(metadata.name()));
        for (name, map) in [(LABELS, labels), ("httpRequest", http)] {
            if !map.is_empty() {
                line.insert(name.into(), Value::Object(map));
            }
        }
        self.locate(metadata, &mut line);
        line
    }

    fn locate(&self, metadata: &Metadata<'_>, line: &mut Map<String, Value>) {
        let (Some(file), Some(number)) = (metadata.file(), metadata.line()) else { return };
        line.insert(LOCATION.into(), json!({"file": file, "line": number.to_string(), "function": metadata.target()}));
        if *metadata.level() == Level::ERROR {
            line.insert("@type".into(), json!(ERROR_EVENT));
            line.insert(
                "serviceContext".into(),
                json!({"service": self.service.name, "version": self.service.version}),
            );
            let place = json!({"filePath": file, "lineNumber": number, "functionName": metadata.target()});
            line.insert("context".into(), json!({"reportLocation": place}));
        }
    }
}

fn severity(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        Level::DEBUG | Level::TRACE => "DEBUG",
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Fields of a span, kept in its extensions.
struct SpanFields(Map<String, Value>);

/// Collects fields as JSON.
struct Collect<'a>(&'a mut Map<String, Value>);

impl Visit for Collect<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), Value::String(format!("{value:?}")));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), json!(value));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), json!(value));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.0.insert(field.name().to_owned(), Value::String(Chain(value).to_string()));
    }
}

/// An error with its sources, `a: b: c`.
struct Chain<'a>(&'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(error) = next {
            write!(f, ": {error}")?;
            next = error.source();
        }
        Ok(())
    }
}

impl<S, W> Layer<S> for CloudLayer<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Sink,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Map::new();
        attributes.record(&mut Collect(&mut fields));
        span.extensions_mut().insert(SpanFields(fields));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(SpanFields(fields)) = span.extensions_mut().get_mut::<SpanFields>() {
            values.record(&mut Collect(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Map::new();
        // From the root inwards: what is nearer to the event wins.
        for span in context.event_scope(event).into_iter().flat_map(tracing_subscriber::registry::Scope::from_root) {
            if let Some(SpanFields(of)) = span.extensions().get::<SpanFields>() {
                fields.extend(of.clone());
            }
        }
        event.record(&mut Collect(&mut fields));
        if let Some(trace) = trace::current()
            && !fields.contains_key("trace_id")
        {
            fields.insert("trace_id".into(), json!(trace.trace_id.to_string()));
            fields.insert("span_id".into(), json!(trace.span_id.to_string()));
            fields.insert("sampled".into(), json!(trace.sampled));
        }
        let line = self.line(event.metadata(), fields, Timestamp::now());
        let Ok(mut bytes) = serde_json::to_vec(&line) else { return };
        bytes.push(b'\n');
        // Nothing can be done about a log that cannot be written, and the handler's work matters more.
        let _ = self.sink.make_writer_for(event.metadata()).write_all(&bytes);
    }
}

#[cfg(test)]
mod tests;
