//! `webhook-secret`: what a receiver checks the signatures of webhooks with.

use rekindle_wire::v1::WebhookSecretView;

use super::Context;
use crate::api::typed;
use crate::args::WebhookSecret;
use crate::fault::Result;

/// Shows the secret.
pub(crate) async fn run(context: &Context, options: &WebhookSecret) -> Result<()> {
    let value = context.api.get("/v1/webhook-secret", &[("owner", options.owner.clone())]).await?;
    if context.printer.is_json {
        return context.printer.json(&value);
    }
    let view: WebhookSecretView = typed(value)?;
    context
        .printer
        .talk(&format!("webhooks of the jobs of {} are signed with this (standardwebhooks.com):", view.owner));
    context.printer.line(&view.secret)
}
