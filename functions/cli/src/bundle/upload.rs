//! Brings a bundle to the object store, once, and goes on where it broke off, also when that was an earlier command.

use std::time::Duration;

use rekindle_wire::v1::BundleView;
use serde_json::{Value, json};

use super::pack::{self, Packed};
use super::session::Session;
use crate::api::{Api, Uploaded, new_key, typed};
use crate::fault::Result;
use crate::printer::Printer;

/// Tries of one upload, each going on behind what the store has.
const TRIES: u32 = 6;
/// Before the second try; doubled for each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

/// Where a bundle is or would be, without sending anything.
pub(super) async fn place(api: &Api, digest: &str) -> Result<(String, bool)> {
    let view: Value = api.get(&format!("/v1/bundles/{digest}"), &[]).await?;
    let view: BundleView = typed(view)?;
    Ok((view.code, view.present))
}

/// Whether the bundle is known to be there by now.
async fn is_there(api: &Api, digest: &str) -> bool {
    place(api, digest).await.is_ok_and(|(_, is_present)| is_present)
}

/// Sends a bundle unless it is there.
pub(super) async fn send(api: &Api, packed: &Packed, printer: Printer) -> Result<(String, bool)> {
    let path = format!("/v1/bundles/{}", packed.digest);
    let (value, _) = api.post(&path, &json!({}), &new_key()).await?;
    let view: BundleView = typed(value)?;
    let session = Session::of(&packed.digest, api.url());
    let Some(mut address) = view.upload else {
        session.forget();
        return Ok((view.code, false));
    };
    let mut from = 0;
    if let Some(earlier) = session.address() {
        match api.uploaded(&earlier, packed.size).await {
            // It was broken off before its last answer came.
            Uploaded::All => {
                session.forget();
                return Ok((view.code, true));
            }
            Uploaded::UpTo(0) => {}
            Uploaded::UpTo(bytes) => (address, from) = (earlier, bytes),
        }
    }
    session.remember(&address);
    let bar = pack::bar(printer, packed.size, "uploading", 1 << 20);
    let mut pause = PAUSE_FIRST;
    for attempt in 1..=TRIES {
        bar.set_position(from);
        match api.upload(&address, &packed.file, from, packed.size, &bar).await {
            Ok(()) => break,
            // Its answer may be all that was lost, or somebody else was faster.
            Err(_) if is_there(api, &packed.digest).await => break,
            Err(fault) if attempt == TRIES || !fault.may_pass => {
                if !fault.may_pass {
                    // The address may be the cause.
                    session.forget();
                }
                return Err(fault.fault);
            }
            Err(fault) => {
                bar.suspend(|| printer.warn(&format!("{}; trying again", fault.fault.what())));
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        }
        match api.uploaded(&address, packed.size).await {
            Uploaded::All => break,
            Uploaded::UpTo(bytes) => from = bytes,
        }
    }
    session.forget();
    bar.finish_and_clear();
    Ok((view.code, true))
}
