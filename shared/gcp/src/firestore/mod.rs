//! Firestore as the document store, over its raw `Commit`, `RunQuery` and `BatchGetDocuments` calls.
//!
//! The client is the crate `firestore`'s, the calls are not its fluent ones: of those, reads by name give no read time,
//! reads try again inside and so outlast their time limit, and writes are atomic only after a `BeginTransaction`.
//!
//! A document is three things: the body as one JSON text in the field `body`, so that nothing is lost in Firestore's
//! value types; the indexed fields with their native types under `i_<name>`; and `rev`, random for each write, since a
//! write that changes nothing would keep its update time and let a second precondition on that time pass.
//! **Invariant:** the revision of a document is its update time in microseconds; no call uses a read-write transaction.

use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use firestore::errors::FirestoreError;
use firestore::gcloud_sdk::RequestTimeouts;
use firestore::gcloud_sdk::google::firestore::v1 as proto;
use firestore::gcloud_sdk::tonic::{Code, Request, Status};
use firestore::{FirestoreDb, FirestoreDbOptions};
use rekindle_ports::docs::{Doc, Docs, DocsError, Page, Precondition, Query, Revision, Write};
use rekindle_ports::limits;

use crate::auth::{ConnectError, Service};

#[cfg(test)]
mod indexes;
mod shape;
#[cfg(test)]
mod tests;

/// Longest wait for one call, whatever the service's own setting: a store that is slower than this is not available.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// Where Firestore is.
const GOOGLE: &str = "https://firestore.googleapis.com";

/// The name of the database that every project has.
pub const DEFAULT_DATABASE: &str = "(default)";

/// Documents in one Firestore database.
pub struct FirestoreDocs {
    db: FirestoreDb,
    /// Of each call.
    timeouts: RequestTimeouts,
}

impl FirestoreDocs {
    /// Connects. `database`: [`DEFAULT_DATABASE`], or a named one.
    pub fn connect<'a>(
        project: &'a str,
        database: &'a str,
        service: &'a Service,
    ) -> BoxFuture<'a, Result<Self, ConnectError>> {
        Box::pin(async move {
            let failed = |error: FirestoreError| ConnectError::new("Firestore", error);
            let credentials = service.access.credentials("Firestore")?;
            let timeout = service.timeout.min(TIMEOUT_MAX);
            let options = FirestoreDbOptions::new(project.to_owned())
                .with_database_id(database.to_owned())
                // Always named: without it the client would follow `FIRESTORE_EMULATOR_HOST`, whatever `service` says.
                .with_firebase_api_url(service.endpoint.as_deref().unwrap_or(GOOGLE).to_owned())
                .with_request_timeout(timeout);
            let db = FirestoreDb::with_options_auth(options, credentials).await.map_err(failed)?;
            // The total limit holds for streams too: a page is small, and a page that drips is as useless as none.
            Ok(Self { db, timeouts: RequestTimeouts::new().with_total(timeout) })
        })
    }

    /// `projects/P/databases/D/documents`.
    fn root(&self) -> &str {
        self.db.get_documents_path()
    }

    /// A request with its time limit: the one in the client's options holds for the client's own calls only.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.extensions_mut().insert(self.timeouts);
        request
    }

    async fn batch_get(&self, paths: &[&str]) -> Result<(BTreeMap<String, Doc>, Revision), DocsError> {
        let root = self.root();
        let request = proto::BatchGetDocumentsRequest {
            database: self.db.get_database_path().clone(),
            documents: paths.iter().map(|path| format!("{root}/{path}")).collect(),
            ..Default::default()
        };
        let answer = self.db.client().get().batch_get_documents(self.request(request)).await;
        let mut answers = answer.map_err(|s| read_error(&s))?.into_inner();
        let mut found = BTreeMap::new();
        let mut through = None;
        while let Some(answer) = answers.message().await.map_err(|s| read_error(&s))? {
            // The read time may grow within one answer; the earlier documents have not changed since.
            through = through.max(answer.read_time.as_ref().map(shape::revision));
            if let Some(proto::batch_get_documents_response::Result::Found(document)) = answer.result {
                let doc = shape::doc(root, document).map_err(DocsError::Refused)?;
                found.insert(doc.path.clone(), doc);
            }
        }
        Ok((found, through.ok_or_else(no_read_time)?))
    }
}

#[async_trait]
impl Docs for FirestoreDocs {
    async fn get(&self, path: &str) -> Result<Option<Doc>, DocsError> {
        limits::check_path(path)?;
        let (mut found, _) = self.batch_get(&[path]).await?;
        Ok(found.remove(path))
    }

    async fn get_many(&self, paths: &[String]) -> Result<(Vec<Option<Doc>>, Revision), DocsError> {
        for path in paths {
            limits::check_path(path)?;
        }
        let mut wanted: Vec<&str> = paths.iter().map(String::as_str).collect();
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() {
            // Only a read tells the time of the store; this one costs what the read of any absent document does.
            wanted.push("meta/none");
        }
        let (found, through) = self.batch_get(&wanted).await?;
        Ok((paths.iter().map(|path| found.get(path).cloned()).collect(), through))
    }

    async fn query(&self, query: &Query) -> Result<Page, DocsError> {
        limits::check_query(query)?;
        let root = self.root();
        let request = shape::query(root, query);
        let answer = self.db.client().get().run_query(self.request(request)).await;
        let mut answers = answer.map_err(|s| read_error(&s))?.into_inner();
        let mut docs = Vec::new();
        let mut through = None;
        while let Some(answer) = answers.message().await.map_err(|s| read_error(&s))? {
            through = through.max(answer.read_time.as_ref().map(shape::revision));
            if let Some(document) = answer.document {
                docs.push(shape::doc(root, document).map_err(DocsError::Refused)?);
            }
        }
        Ok(Page { docs, read_through: through.ok_or_else(no_read_time)? })
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Revision, DocsError> {
        let bodies = limits::check_commit(&writes)?;
        let guards = Guards::of(&writes);
        let root = self.root();
        let writes = writes.into_iter().zip(bodies).map(|(write, body)| shape::write(root, write, body)).collect();
        let request =
            proto::CommitRequest { database: self.db.get_database_path().clone(), writes, ..Default::default() };
        let answer = self.db.client().get().commit(self.request(request)).await;
        let answer = answer.map_err(|status| commit_error(&status, &guards))?.into_inner();
        let at = answer.commit_time.as_ref().map(shape::revision);
        at.ok_or_else(|| DocsError::Unclear("the commit's answer has no time".into()))
    }
}

/// What a commit's writes demand: needed to read a refusal.
#[derive(Debug, Default)]
struct Guards {
    /// The first path with a precondition.
    first: Option<String>,
    /// Whether a document must exist.
    some_at: bool,
}

impl Guards {
    fn of(writes: &[Write]) -> Self {
        let mut guards = Self::default();
        for write in writes {
            let (Write::Put { path, when, .. } | Write::Delete { path, when }) = write;
            match when {
                Precondition::None => continue,
                Precondition::Absent => {}
                Precondition::At(_) => guards.some_at = true,
            }
            guards.first.get_or_insert_with(|| path.clone());
        }
        guards
    }
}

fn no_read_time() -> DocsError {
    DocsError::Unavailable("the answer has no read time".into())
}

/// What a failed commit means.
fn commit_error(status: &Status, guards: &Guards) -> DocsError {
    let text = text(status);
    let conflict = |path: &String| DocsError::Conflict { path: path.clone() };
    match (status.code(), &guards.first) {
        // A stale update time; a document that is there; one that is not. Without a precondition they mean something
        // else (no such database, a database of another kind).
        (Code::FailedPrecondition | Code::AlreadyExists, Some(path)) => conflict(path),
        (Code::NotFound, Some(path)) if guards.some_at => conflict(path),
        // Contention: nothing was written, and whether the other writer wins is not known either. Not a conflict,
        // since a pass that is told so takes its work for done.
        (Code::Aborted | Code::ResourceExhausted | Code::Unauthenticated, _) => DocsError::Unavailable(text),
        (
            Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Unimplemented
            | Code::OutOfRange
            | Code::FailedPrecondition
            | Code::AlreadyExists
            | Code::NotFound,
            _,
        ) => DocsError::Refused(text),
        (
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss,
            _,
        ) => DocsError::Unclear(text),
    }
}

/// What a failed read means.
fn read_error(status: &Status) -> DocsError {
    let text = text(status);
    match status.code() {
        // FAILED_PRECONDITION on a query: an index is missing, and the text holds the address that makes it.
        Code::InvalidArgument
        | Code::PermissionDenied
        | Code::Unimplemented
        | Code::OutOfRange
        | Code::FailedPrecondition
        | Code::AlreadyExists
        | Code::NotFound => DocsError::Refused(text),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => DocsError::Unavailable(text),
    }
}

fn text(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}
