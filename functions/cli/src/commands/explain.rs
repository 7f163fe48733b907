//! `explain`: one paragraph, and the facts it rests on.

use owo_colors::OwoColorize as _;
use serde_json::Value;

use super::{Context, job_path};
use crate::fault::Result;
use crate::human;

/// Explains where a job is.
pub(crate) async fn run(context: &Context, job: &str) -> Result<()> {
    let value = context.api.get(&job_path(job, "/explain")?, &[]).await?;
    if context.printer.is_json {
        return context.printer.json(&value);
    }
    let paragraph = ["text", "paragraph", "explanation", "summary"].iter().find_map(|name| value.get(name)?.as_str());
    context.printer.data(&wrapped(paragraph.unwrap_or_default(), context.printer.width().unwrap_or(100)))?;
    for fact in value.get("facts").and_then(Value::as_array).into_iter().flatten() {
        context.printer.line(&format!("  {} {}", "-".dimmed(), human::tame(&words(fact))))?;
    }
    Ok(())
}

/// A fact as text: itself, or its members by name.
fn words(fact: &Value) -> String {
    match fact {
        Value::String(text) => text.clone(),
        Value::Object(members) => {
            let each = members.iter().filter(|(_, value)| !value.is_null());
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            each.map(|(name, value)| format!("{name}: {}", text(value))).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// The paragraph in lines of at most `width` columns.
fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in human::tame(text).split_whitespace() {
        let len = word.chars().count();
        if column > 0 && column + 1 + len > width {
            out.push('\n');
            column = 0;
        }
        if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += len;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_is_broken_between_words() {
        assert_eq!(wrapped("one two three four", 9), "one two\nthree\nfour\n");
        assert_eq!(wrapped("averyverylongword x", 4), "averyverylongword\nx\n");
    }
}
