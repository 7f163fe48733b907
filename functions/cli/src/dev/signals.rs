//! Ctrl-C, SIGTERM and a closed terminal, as one wish: end in order.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::fault::{Fault, Result};

/// The signals that end us.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Listens from now on. Must be called inside a runtime.
    pub(crate) fn listen() -> Result<Self> {
        let listen =
            |kind| signal(kind).map_err(|error| Fault::unexpected("cannot listen for signals").caused_by(&error));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next of them.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
