//! `freeze` and `thaw`.

use rekindle_wire::v1::FreezeView;
use serde_json::json;

use super::Context;
use crate::api::{new_key, typed};
use crate::fault::Result;

/// Holds creates back, or lets them go on.
pub(crate) async fn run(context: &Context, command: &str) -> Result<()> {
    let (value, _) = context.api.post(&format!("/v1/{command}"), &json!({}), &new_key()).await?;
    if context.printer.is_json {
        return context.printer.json(&value);
    }
    let view: FreezeView = typed(value)?;
    context.printer.line(if view.frozen {
        "frozen: no TPU is created until `rekindle thaw`; running jobs and deletes go on"
    } else {
        "thawed: TPUs are created again"
    })
}
