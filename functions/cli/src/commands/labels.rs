//! `tag` and `note`: what people write on a job, at any time.

use rekindle_wire::v1::{JobView, LabelsBody};

use super::{Context, job_path};
use crate::api::typed;
use crate::args::{Note, Tag};
use crate::fault::{Fault, Result};
use crate::human;

/// Adds tags and takes tags away.
pub(crate) async fn tag(context: &Context, options: Tag) -> Result<()> {
    // `'one, two'` means two words, as in `run --tag`.
    let trimmed = |tags: Vec<String>| tags.iter().map(|tag| tag.trim().to_owned()).collect();
    let body = LabelsBody { add_tags: trimmed(options.add), remove_tags: trimmed(options.remove), notes: None };
    change(context, &options.job, &body).await
}

/// Writes the note.
pub(crate) async fn note(context: &Context, options: Note) -> Result<()> {
    change(context, &options.job, &LabelsBody { notes: Some(options.text), ..LabelsBody::default() }).await
}

async fn change(context: &Context, job: &str, body: &LabelsBody) -> Result<()> {
    let body = serde_json::to_value(body).map_err(|error| Fault::unexpected("no JSON").caused_by(&error))?;
    let value = context.api.patch(&job_path(job, "")?, &body).await?;
    if context.printer.is_json {
        return context.printer.json(&value);
    }
    let view: JobView = typed(value)?;
    let tags = if view.tags.is_empty() { "no tags".to_owned() } else { format!("tags {}", view.tags.join(", ")) };
    let notes = view.spec.get("notes").and_then(serde_json::Value::as_str);
    let notes = notes.map_or_else(|| "no note".to_owned(), |notes| format!("note: {notes}"));
    context.printer.line(&human::one_line(&format!("{job} has {tags}; {notes}")))
}
