//! What is logged during a test.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use rekindle_telemetry::{CloudLayer, Service};
use serde_json::Value;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;

/// Keeps every line, of every level, that this thread writes while a guard of [`Log::listen`] lives.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Listens, to lines as a person's terminal shows them.
    pub fn listen(&self) -> DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::TRACE);
        tracing::subscriber::set_default(subscriber.with_writer(move || log.clone()).finish())
    }

    /// Listens, to lines of level INFO and above as Cloud Logging takes them.
    pub fn listen_as_cloud(&self) -> DefaultGuard {
        let log = self.clone();
        let service = Service { name: "rekindle-test".into(), version: "1".into() };
        let layer = CloudLayer::new("p".into(), service, move || log.clone());
        tracing::subscriber::set_default(tracing_subscriber::registry().with(layer.with_filter(LevelFilter::INFO)))
    }

    /// Takes the lines of [`Log::listen_as_cloud`] so far.
    pub fn take_json(&self) -> Vec<Value> {
        self.take().lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Takes the lines so far.
    pub fn take(&self) -> String {
        let taken = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8_lossy(&taken).into_owned()
    }
}
