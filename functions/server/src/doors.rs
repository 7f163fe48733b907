//! Doors by identity tokens: which audience and which accounts each of them takes.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use http::HeaderMap;

use rekindle_gcp::oidc::{self, AuthError, BadOidcSettings, Emails, Expect, Mode, OidcSettings};
use rekindle_ports::world::Clock;
use rekindle_web::{Caller, Door, Refused, Verifier};

use crate::config::Callers;

/// Checks callers by their identity tokens.
pub(crate) struct OidcDoors {
    verifier: oidc::Verifier,
    mode: Mode,
    audiences: Vec<String>,
    callers: Callers,
    admins: BTreeSet<String>,
}

impl OidcDoors {
    /// Refuses settings that would let anyone in.
    pub(crate) fn new(
        mode: Mode,
        audiences: Vec<String>,
        callers: Callers,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BadOidcSettings> {
        let on_cloud_run = std::env::var_os("K_SERVICE").is_some();
        let verifier = oidc::Verifier::new(OidcSettings::google(mode, on_cloud_run), clock)?;
        let admins = callers.admins.iter().map(|email| email.to_ascii_lowercase()).collect();
        Ok(Self { verifier, mode, audiences, callers, admins })
    }

    /// An empty list lets nobody in.
    pub(crate) fn expect(&self, door: Door) -> Expect {
        let callers = &self.callers;
        let mut audiences = self.audiences.clone();
        let only = |emails: &[String]| Emails::Only(emails.to_vec());
        let emails = match door {
            Door::Jobs | Door::Notify => only(&callers.push),
            Door::TpuEvents => only(&[callers.push.as_slice(), callers.eventarc.as_slice()].concat()),
            Door::Reconcile => only(&[callers.push.as_slice(), callers.tasks.as_slice()].concat()),
            Door::Tick => only(&callers.scheduler),
            Door::People => {
                audiences.extend(callers.people_audiences.iter().cloned());
                if callers.people.iter().any(|p| p == "*") { Emails::Any } else { only(&callers.people) }
            }
        };
        Expect { audiences, emails }
    }
}

#[async_trait]
impl Verifier for OidcDoors {
    async fn verify(&self, door: Door, headers: &HeaderMap) -> Result<Caller, Refused> {
        match self.verifier.verify(oidc::bearer(headers), &self.expect(door)).await {
            Ok(identity) => {
                let is_admin = self.mode == Mode::None || self.admins.contains(&identity.email);
                Ok(Caller { identity: identity.email, is_admin })
            }
            Err(error @ (AuthError::Missing | AuthError::Bad(_))) => Err(Refused::Unauthenticated(error.to_string())),
            Err(error @ AuthError::WrongPrincipal(_)) => Err(Refused::Forbidden(error.to_string())),
            Err(error @ AuthError::Unavailable(_)) => Err(Refused::Unavailable(error.to_string())),
        }
    }
}
