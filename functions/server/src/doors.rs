//! Doors by identity tokens: which audience and which accounts each of them takes.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use http::HeaderMap;

use jiff::Timestamp;
use rekindle_gcp::oidc::{self, AuthError, BadOidcSettings, Emails, Expect, Identity, Mode, OidcSettings};
use rekindle_ports::world::Clock;
use rekindle_web::{Caller, Door, Machine, Refused, Verifier};

use crate::config::Callers;

/// Checks callers by their identity tokens.
pub struct OidcDoors {
    verifier: oidc::Verifier,
    mode: Mode,
    audiences: Vec<String>,
    callers: Callers,
    admins: BTreeSet<String>,
    /// What each door takes, made once: it is asked for with every request.
    expects: [Expect; DOORS.len()],
}

/// All of them, in the order in which they are declared.
const DOORS: [Door; 6] = [Door::Jobs, Door::TpuEvents, Door::Notify, Door::Reconcile, Door::Tick, Door::People];

impl OidcDoors {
    /// Refuses settings that would let anyone in.
    pub fn new(
        settings: OidcSettings,
        audiences: Vec<String>,
        callers: Callers,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BadOidcSettings> {
        let mode = settings.mode;
        if let Some(open) = audiences.iter().find(|taken| mode == Mode::Verify && oidc::audience::is_open(taken)) {
            return Err(BadOidcSettings::OpenAudience(open.clone()));
        }
        let verifier = oidc::Verifier::new(settings, clock)?;
        let admins = callers.admins.iter().map(|email| email.to_ascii_lowercase()).collect();
        let expects = DOORS.map(|door| expected(door, &audiences, &callers));
        Ok(Self { verifier, mode, audiences, callers, admins, expects })
    }

    /// What a door takes.
    pub(crate) fn expect(&self, door: Door) -> &Expect {
        &self.expects[door as usize]
    }

    /// The second chance of people: gcloud's own client id as the audience, which their `print-identity-token` carries and
    /// which says nothing of us; so it is taken of those alone who are named.
    pub(crate) fn expect_by_name(&self, door: Door) -> Option<Expect> {
        let callers = &self.callers;
        if door != Door::People || callers.people_audiences.is_empty() {
            return None;
        }
        let named = callers.people.iter().chain(&callers.admins).filter(|p| *p != "*").cloned().collect();
        Some(Expect { audiences: callers.people_audiences.clone(), emails: Emails::Only(named) })
    }

    async fn identity(&self, door: Door, headers: &HeaderMap) -> Result<Identity, AuthError> {
        let token = oidc::bearer(headers);
        match self.verifier.verify(token, self.expect(door)).await {
            Err(error @ AuthError::Bad(_)) => match self.expect_by_name(door) {
                // What is wrong beside the audience was told the first time.
                Some(expect) => match self.verifier.verify(token, &expect).await {
                    Err(AuthError::Bad(_)) => Err(error),
                    done => done,
                },
                None => Err(error),
            },
            done => done,
        }
    }
}

/// An empty list lets nobody in.
fn expected(door: Door, audiences: &[String], callers: &Callers) -> Expect {
    let only = |emails: &[String]| Emails::Only(emails.to_vec());
    let emails = match door {
        Door::Jobs | Door::Notify => only(&callers.push),
        Door::TpuEvents => only(&[callers.push.as_slice(), callers.eventarc.as_slice()].concat()),
        Door::Reconcile => only(&[callers.push.as_slice(), callers.tasks.as_slice()].concat()),
        Door::Tick => only(&callers.scheduler),
        Door::People if callers.people.iter().any(|p| p == "*") => Emails::Any,
        Door::People => only(&callers.people),
    };
    Expect { audiences: audiences.to_vec(), emails }
}

#[async_trait]
impl Verifier for OidcDoors {
    async fn verify(&self, door: Door, headers: &HeaderMap) -> Result<Caller, Refused> {
        let identity = self.identity(door, headers).await.map_err(|error| refused(&error))?;
        // Only people act for owners: a trigger that shares an admin's account is still a trigger.
        let is_admin = self.mode == Mode::None || (door == Door::People && self.admins.contains(&identity.email));
        Ok(Caller { identity: identity.email, is_admin })
    }

    async fn machine(&self, headers: &HeaderMap) -> Result<Option<Machine>, Refused> {
        if self.mode == Mode::None {
            return Ok(None);
        }
        let expect = Expect { audiences: self.audiences.clone(), emails: Emails::Any };
        let identity = self.verifier.verify(oidc::bearer(headers), &expect).await.map_err(|error| refused(&error))?;
        let told = identity.machine.ok_or_else(|| {
            Refused::Forbidden(format!("the token of {} tells of no machine (format=full)", identity.email))
        })?;
        let created_at = told.instance_creation_timestamp.and_then(|secs| Timestamp::from_second(secs).ok());
        Ok(Some(Machine { email: identity.email, instance: told.instance_name, zone: told.zone, created_at }))
    }
}

fn refused(error: &AuthError) -> Refused {
    let told = error.to_string();
    match error {
        AuthError::Missing | AuthError::Bad(_) => Refused::Unauthenticated(told),
        AuthError::WrongPrincipal(_) => Refused::Forbidden(told),
        AuthError::Unavailable(_) => Refused::Unavailable(told),
    }
}
