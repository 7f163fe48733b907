//! Messages that cannot be used: recorded with their reason, forwarded, acknowledged.

use bytes::Bytes;

use rekindle_core::ids::JobId;
use rekindle_ports::Ports;
use rekindle_ports::kinds::short_hash;
use rekindle_ports::store::DeadDoc;
use rekindle_wire::delivery::Delivery;

use crate::answer::Answer;

/// Most of a message that its record keeps, in bytes of text.
// Enough to see what it was; the whole message is in the dead-letter topic.
const EXCERPT_MAX: usize = 4096;

/// Records a delivery that `function` cannot use, and forwards it to the dead-letter topic.
///
/// Both are safe before the answer says so. A crash between them brings the delivery again: the record is there
/// already, the forward is
/// repeated. Answers `Recorded`, or `Transient` when one of both did not succeed.
pub async fn record(ports: &Ports, function: &str, delivery: &Delivery, reason: &str) -> Answer {
    record_of(ports, function, None, delivery, reason).await
}

/// The same of a delivery that is about a job: who may see the job may see that, and why.
pub async fn record_of(
    ports: &Ports,
    function: &str,
    job: Option<&JobId>,
    delivery: &Delivery,
    reason: &str,
) -> Answer {
    let data = delivery.data.as_deref().unwrap_or_default();
    let doc = letter(ports, function, job, delivery, reason);
    let (key, source) = (doc.key.clone(), doc.source.clone());
    tracing::warn!(delivery = %key, source, reason, "a message cannot be used");
    if let Err(error) = ports.store.bury(format!("{source}\n{key}"), &doc).await {
        return Answer::Transient(format!("the message could not be recorded: {error}"));
    }
    match ports.dead_letters.send(&source, reason, Bytes::copy_from_slice(data)).await {
        Ok(()) => Answer::Recorded,
        Err(error) => Answer::Transient(error.to_string()),
    }
}

/// What is kept of a delivery that `function` cannot use now.
pub fn letter(ports: &Ports, function: &str, job: Option<&JobId>, delivery: &Delivery, reason: &str) -> DeadDoc {
    let text = String::from_utf8_lossy(delivery.data.as_deref().unwrap_or_default());
    DeadDoc {
        key: delivery.id.clone().unwrap_or_else(|| short_hash(&text)),
        source: format!("{function}/{}", delivery.via.as_str()),
        reason: reason.to_owned(),
        at: ports.clock.now(),
        excerpt: text[..text.floor_char_boundary(EXCERPT_MAX)].to_owned(),
        job: job.cloned(),
        tried_until: None,
    }
}
