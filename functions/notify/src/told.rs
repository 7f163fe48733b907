//! Which webhooks are done with an event that comes again for the others.

use rekindle_core::spec::Notify as Hook;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::{Kind, short_hash};
use rekindle_ports::store::{StoreError, ToldDoc};

use crate::Notify;

/// What is known of one event.
pub(crate) struct Told<'a> {
    notify: &'a Notify,
    kind: Kind,
    doc: ToldDoc,
    /// More than one webhook: else there is nobody to be spared.
    is_kept: bool,
}

impl<'a> Told<'a> {
    /// What earlier deliveries of the event kept.
    pub(crate) async fn of(notify: &'a Notify, event: &str, hooks: usize) -> Result<Self, StoreError> {
        let (kind, is_kept) = (Kind::Told(event.to_owned()), hooks > 1);
        let known = if is_kept { notify.ports.store.read::<ToldDoc>(&kind).await? } else { None };
        Ok(Self { notify, kind, doc: known.map(|known| known.value).unwrap_or_default(), is_kept })
    }

    /// True when a webhook took the event, or refused it for good.
    pub(crate) fn has(&self, hook: &Hook) -> bool {
        self.doc.hooks.contains_key(&digest(hook))
    }

    /// A webhook took the event, or refused it for good for a reason.
    pub(crate) fn note(&mut self, hook: &Hook, refusal: Option<String>) {
        self.doc.hooks.insert(digest(hook), refusal);
    }

    /// Why webhooks refused it, in their order.
    pub(crate) fn refusals(&self, hooks: &[&Hook]) -> impl Iterator<Item = String> {
        let reasons = hooks.iter().filter_map(|hook| self.doc.hooks.get(&digest(hook)).cloned().flatten());
        reasons.collect::<Vec<_>>().into_iter()
    }

    /// Keeps it for the next delivery. Where that fails, somebody is told twice.
    pub(crate) async fn keep(&self) {
        if !self.is_kept || self.doc.hooks.is_empty() {
            return;
        }
        // Of two deliveries at once the later one wins, and at worst a webhook is told again.
        if let Err(error) = self.notify.ports.store.write(&self.kind, &self.doc, Precondition::None).await {
            tracing::warn!(%error, "which webhooks took an event could not be kept");
        }
    }
}

/// Addresses hold secrets, so only their digest is kept.
fn digest(hook: &Hook) -> String {
    short_hash(&hook.webhook)
}
