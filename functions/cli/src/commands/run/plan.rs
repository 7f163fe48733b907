//! `--dry-run` of `run` and `up`: the job, and what would be created for it, where, at what price. Nothing is sent or stored.

use rekindle_wire::v1::{CandidateView, PlanView};
use serde_json::{Map, Value, json};

use super::Context;
use crate::answers::Sending;
use crate::api::{new_key, typed};
use crate::bundle::Bundle;
use crate::fault::Result;
use crate::human;
use crate::table::{Table, number, text};

/// Places that are shown.
const PLACES_SHOWN: usize = 12;

/// Shows the plan: the job on stdout, the rest beside it; `has_files`: also each file that would be sent. In JSON the job alone,
/// which may be sent as it is; with files a [`Sending`].
pub(in crate::commands) async fn show(
    context: &Context,
    mut message: Map<String, Value>,
    bundle: Option<&Bundle>,
    has_files: bool,
) -> Result<()> {
    let printer = context.printer;
    let mut is_known = true;
    if let Some(bundle) = bundle {
        let is_there = match bundle.place(&context.api).await {
            Ok((code, is_there)) => {
                message.insert("code".to_owned(), json!(code));
                is_there
            }
            Err(fault) if fault.status().is_none() => {
                is_known = false;
                message.insert("code".to_owned(), json!(format!("bundles/{}.tar.zst", bundle.digest())));
                false
            }
            Err(fault) => return Err(fault),
        };
        message.entry("source").or_insert_with(|| bundle.source());
        if !printer.is_json {
            let how = if is_there { "the server has it already:" } else { "would send" };
            printer.talk(&format!("{how} {}", bundle.describe()));
            printer.talk(&format!("  {}", bundle.describe_largest()));
            if has_files {
                bundle.paths().for_each(|path| printer.talk(&format!("  {}", human::tame(&path))));
            }
        }
    }
    let message = Value::Object(message);
    let plan = if is_known { ask(context, &message).await? } else { None };
    if printer.is_json && has_files {
        let files = bundle.map(|bundle| bundle.paths().collect()).unwrap_or_default();
        return printer.json_line(&Sending { job: &message, files, candidates: plan.map(|plan| plan.candidates) });
    }
    if printer.is_json {
        return printer.json_line(&message);
    }
    printer.line(&human::json(&message))?;
    match plan {
        Some(plan) => places(context, &plan),
        None => printer.talk("no server answers: the job is not checked, and where it would run is not known"),
    }
    warn_of_regions(context, &message);
    Ok(())
}

/// Asks the server what it would do. `None`: no server is there to ask.
async fn ask(context: &Context, message: &Value) -> Result<Option<PlanView>> {
    let query = [("dry_run", Some("true".to_owned()))];
    match context.api.post_with("/v1/jobs", &query, message, &new_key()).await {
        Ok((value, _)) => typed(value).map(Some),
        Err(fault) if fault.status().is_none() => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn places(context: &Context, plan: &PlanView) {
    let mut table = Table::new(&[
        text("TPU", 0),
        text("ZONE", 0),
        text("BOUGHT", 0),
        number("SLICES", 3),
        number("WORKERS", 2),
        number("CHIPS", 1),
        number("$/H", 0),
    ]);
    for place in plan.candidates.iter().take(PLACES_SHOWN) {
        table.row(row(place));
    }
    context.printer.talk("would ask for, in this order until one is had:");
    context.printer.talk(table.render(None).trim_end());
    let more = plan.candidates.len().saturating_sub(PLACES_SHOWN);
    if more > 0 {
        context.printer.talk(&format!("and {}", human::count(more as u64, "further place")));
    }
}

fn row(place: &CandidateView) -> Vec<String> {
    vec![
        place.accelerator.clone(),
        place.zone.clone(),
        place.capacity.as_str().to_owned(),
        place.slices.to_string(),
        place.workers.to_string(),
        place.chips.to_string(),
        format!("{:.2}", place.usd_per_hour),
    ]
}

/// What it costs to compute far from the data.
pub(super) fn warn_of_regions(context: &Context, message: &Value) {
    if message.get("regions").and_then(Value::as_str) == Some("any") {
        context.printer.warn(
            "regions: any may run far from the checkpoint bucket; Cloud Storage then charges about 2 US cents a GiB \
             within a continent and 5 to 15 between continents, each way",
        );
    }
}
