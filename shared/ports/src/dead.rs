//! Dead letters in the typed store: messages that could not be used, and webhooks that could not be told.

use std::sync::Arc;

use jiff::Timestamp;
use rekindle_core::ids::JobId;
use serde::{Deserialize, Serialize};

use crate::docs::{Content, Cursor, Index, IndexValue, Op, Precondition, Query, Write};
use crate::kinds::Kind;
use crate::store::{Store, StoreError, cursor, decode, encode};

/// `dead/{hash}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadDoc {
    /// Message id or digest.
    pub key: String,
    /// Where it came from: the function, and the way it was called.
    pub source: String,
    /// Why it cannot be used. Of a webhook only its host: the rest of the address is often a token. Of several webhooks one a line.
    pub reason: String,
    /// When; of one that is tried again, the last time.
    pub at: Timestamp,
    /// Its first 4 kB as text.
    pub excerpt: String,
    /// The job that it is about, if it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// It is not given up yet: it is tried again at least until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried_until: Option<Timestamp>,
}

/// Where an event is kept while it is tried again.
fn waiting(event: &str) -> Kind {
    Kind::Dead(format!("waiting\n{event}"))
}

impl Store {
    /// Keeps a dead letter under a name; the first of that name stays.
    pub async fn bury(&self, name: String, doc: &DeadDoc) -> Result<(), StoreError> {
        match self.commit(vec![put_letter(&Kind::Dead(name), doc, Precondition::Absent)]).await {
            Ok(_) | Err(StoreError::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Keeps that an event is tried again, and why; its last failure stays.
    pub async fn keep_waiting(&self, event: &str, doc: &DeadDoc) -> Result<(), StoreError> {
        self.commit(vec![put_letter(&waiting(event), doc, Precondition::None)]).await.map(|_| ())
    }

    /// The event is tried no more: it was told, or is among the dead letters. No error where it was never kept.
    pub async fn drop_waiting(&self, event: &str) -> Result<(), StoreError> {
        let delete = Write::Delete { path: waiting(event).path(), when: Precondition::None };
        self.commit(vec![delete]).await.map(|_| ())
    }

    /// Dead letters, newest first; of one job, if it is given. Those that an earlier version kept are in no list.
    pub async fn dead_letters(
        &self,
        job: Option<&JobId>,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Arc<DeadDoc>>, Option<Cursor>), StoreError> {
        let of = |id: &JobId| ("job".to_owned(), Op::Eq, IndexValue::Text(id.to_string()));
        let query = Query {
            collection: "dead".into(),
            filters: job.map(of).into_iter().collect(),
            order_by: Some("at_us".into()),
            descending: true,
            after,
            limit,
        };
        let page = self.docs().query(&query).await?;
        let next = (page.docs.len() == limit).then(|| page.docs.last().map(|doc| cursor(doc, "at_us"))).flatten();
        let letters = page.docs.iter().map(|doc| decode(&doc.path, &doc.content.body)).collect::<Result<_, _>>()?;
        Ok((letters, next))
    }
}

/// The write of a letter, with what it is listed by.
fn put_letter(kind: &Kind, doc: &DeadDoc, when: Precondition) -> Write {
    let mut index = Index::from([("at_us".into(), IndexValue::Int(doc.at.as_microsecond()))]);
    if let Some(job) = &doc.job {
        index.insert("job".into(), IndexValue::Text(job.to_string()));
    }
    let content = Content { body: encode(Arc::new(doc.clone())), index: Arc::new(index) };
    Write::Put { path: kind.path(), content, when }
}
