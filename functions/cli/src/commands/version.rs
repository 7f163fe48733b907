//! `version`: of this program, and of the server if it answers.

use rekindle_wire::v1::VersionView;

use super::Context;
use crate::answers::{ServerVersion, Versions};
use crate::api::typed;
use crate::fault::Result;

/// Shows both versions. A server that nobody configured and that is not there is no fault.
pub(crate) async fn run(context: &Context) -> Result<()> {
    let own = env!("CARGO_PKG_VERSION");
    let answer = context.api.get("/version", &[]).await;
    let server: Option<VersionView> = match answer {
        Ok(value) => Some(typed(value)?),
        Err(fault) if context.api.is_default() || fault.status().is_none() => {
            if !context.api.is_default() {
                context.printer.warn(fault.what());
            }
            None
        }
        Err(fault) => return Err(fault),
    };
    if context.printer.is_json {
        return context.printer.json(&Versions {
            version: own,
            server: server.as_ref().map(|view| ServerVersion::of(context.api.url(), view)),
        });
    }
    context.printer.line(&format!("rekindle {own}"))?;
    if let Some(view) = server {
        let url = context.api.url();
        context.printer.line(&format!("server   {} (installation {}) at {url}", view.version, view.installation))?;
    }
    Ok(())
}
