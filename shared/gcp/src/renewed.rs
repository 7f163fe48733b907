//! Credentials that outlive what their library takes for final: after one answer of the metadata server that it cannot use (a 404, a body that
//! was cut) it asks no more, and answers every later call with that error. These are made anew then.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use google_cloud_auth::credentials::idtoken::{IDTokenCredentials, IDTokenCredentialsProvider};
use google_cloud_auth::credentials::{CacheableResource, Credentials, CredentialsProvider};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap};

/// Those that were made last are kept for as long, whatever they answer: what is wrong for good is not asked for with every call.
const REST: Duration = Duration::from_secs(10);

/// Makes credentials; the error is for people.
type Make<C> = dyn Fn() -> Result<C, String> + Send + Sync;

/// Credentials, and how others are made in their place.
pub(crate) struct Renewed<C> {
    /// Those of now, and when they took the place of others.
    now: Mutex<(C, Option<Instant>)>,
    make: Box<Make<C>>,
}

impl<C: Clone> Renewed<C> {
    /// Those that are made now; and others, made the same way, once they have given up.
    pub(crate) fn new(make: impl Fn() -> Result<C, String> + Send + Sync + 'static) -> Result<Self, String> {
        Ok(Self { now: Mutex::new((make()?, None)), make: Box::new(make) })
    }

    fn current(&self) -> C {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Others, where these have given up with that error. `None`: they only cannot answer at the moment, or were made just now.
    fn after(&self, error: &CredentialsError) -> Option<C> {
        if error.is_transient() {
            return None;
        }
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.1.is_some_and(|made_at| made_at.elapsed() < REST) {
            return None;
        }
        tracing::warn!(%error, "credentials gave up, and are made anew");
        let made = (self.make)();
        let made = made.inspect_err(|why| tracing::warn!(error = why, "credentials cannot be made anew")).ok()?;
        *now = (made.clone(), Some(Instant::now()));
        Some(made)
    }
}

impl<C> fmt::Debug for Renewed<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewed").finish_non_exhaustive()
    }
}

impl CredentialsProvider for Renewed<Credentials> {
    async fn headers(&self, extensions: Extensions) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        match self.current().headers(extensions.clone()).await {
            Ok(headers) => Ok(headers),
            Err(error) => match self.after(&error) {
                Some(others) => others.headers(extensions).await,
                None => Err(error),
            },
        }
    }

    async fn universe_domain(&self) -> Option<String> {
        self.current().universe_domain().await
    }
}

impl IDTokenCredentialsProvider for Renewed<IDTokenCredentials> {
    async fn id_token(&self) -> Result<String, CredentialsError> {
        match self.current().id_token().await {
            Ok(token) => Ok(token),
            Err(error) => match self.after(&error) {
                Some(others) => others.id_token().await,
                None => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// The error of this one, permanent or not; `None`: it has a token.
    #[derive(Debug)]
    struct Given(Option<bool>);

    impl IDTokenCredentialsProvider for Given {
        async fn id_token(&self) -> Result<String, CredentialsError> {
            match self.0 {
                None => Ok("token".into()),
                Some(is_transient) => Err(CredentialsError::from_msg(is_transient, "404 of the metadata server")),
            }
        }
    }

    impl CredentialsProvider for Given {
        async fn headers(&self, _: Extensions) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
            self.id_token().await.map(|_| CacheableResource::NotModified)
        }

        async fn universe_domain(&self) -> Option<String> {
            None
        }
    }

    /// The first that are made answer so, all others with a token; and how many were made.
    fn renewed<C: Clone + From<Given>>(first: Option<bool>) -> (Renewed<C>, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        let count = made.clone();
        let make = move || {
            let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
            Ok(C::from(Given(first.filter(|_| is_first))))
        };
        (Renewed::new(make).unwrap(), made)
    }

    #[tokio::test]
    async fn credentials_that_gave_up_are_made_anew_and_those_that_wait_are_not() {
        for (first, is_well, count) in [(None, true, 1), (Some(true), false, 1), (Some(false), true, 2)] {
            let (tokens, made) = renewed::<IDTokenCredentials>(first);
            for _ in 0..2 {
                assert_eq!(tokens.id_token().await.is_ok(), is_well, "{first:?}");
            }
            assert_eq!(made.load(Ordering::Relaxed), count, "{first:?}");
            let (headers, made) = renewed::<Credentials>(first);
            assert_eq!(headers.headers(Extensions::new()).await.is_ok(), is_well, "{first:?}");
            assert_eq!(made.load(Ordering::Relaxed), count, "{first:?}");
        }
    }

    #[tokio::test]
    async fn what_is_wrong_for_good_is_not_made_anew_with_every_call() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = made.clone();
        let make = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(IDTokenCredentials::from(Given(Some(false))))
        };
        let tokens = Renewed::new(make).unwrap();
        for _ in 0..9 {
            assert!(tokens.id_token().await.is_err());
        }
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }
}
