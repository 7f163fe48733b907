//! A client of HTTP that is made at its first call: each reads the roots of trust anew, which takes milliseconds that nobody has
//! who waits for the process to start.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::{Client, redirect};

/// A client that follows no redirects: an answer that points elsewhere is none.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    timeout: Duration,
    made: OnceLock<Client>,
}

impl Http {
    /// After `timeout` a request has failed.
    pub(crate) const fn new(timeout: Duration) -> Self {
        Self { timeout, made: OnceLock::new() }
    }

    /// The client, or why none can be made on this machine.
    pub(crate) fn client(&self) -> Result<&Client, String> {
        if let Some(client) = self.made.get() {
            return Ok(client);
        }
        let made = Client::builder().timeout(self.timeout).redirect(redirect::Policy::none()).build();
        let made = made.map_err(|error| format!("no client can be made: {error}"))?;
        // Made twice at the same time, one of them is dropped.
        Ok(self.made.get_or_init(|| made))
    }
}
