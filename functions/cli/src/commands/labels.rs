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
    let text = options.text.join(" ");
    // Of machines nobody reads what is told beside the answer.
    if !context.printer.is_json {
        let former: JobView = typed(context.api.get(&job_path(&options.job, "")?, &[]).await?)?;
        let former = former.spec.get("notes").and_then(serde_json::Value::as_str).map(str::to_owned);
        let body = LabelsBody { notes: Some(text.clone()), ..LabelsBody::default() };
        change(context, &options.job, &body).await?;
        if let Some(told) = former.and_then(|former| replaced(&former, &text)) {
            context.printer.talk(&told);
        }
        return Ok(());
    }
    change(context, &options.job, &LabelsBody { notes: Some(text), ..LabelsBody::default() }).await
}

/// What became of the note that was there.
fn replaced(former: &str, now: &str) -> Option<String> {
    let is_gone = !former.is_empty() && former != now;
    let what = if now.is_empty() { "removed" } else { "replaced" };
    is_gone.then(|| human::one_line(&format!("note {what}; it was: {former}")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_goes_is_told_once_more() {
        assert_eq!(replaced("a\nb", "c").as_deref(), Some("note replaced; it was: a b"));
        assert_eq!(replaced("a", "").as_deref(), Some("note removed; it was: a"));
        assert_eq!((replaced("", "a"), replaced("a", "a")), (None, None));
    }
}
