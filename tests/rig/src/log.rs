//! What is logged during a test.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::subscriber::DefaultGuard;

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

    /// Takes the lines so far.
    pub fn take(&self) -> String {
        let taken = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8_lossy(&taken).into_owned()
    }
}
