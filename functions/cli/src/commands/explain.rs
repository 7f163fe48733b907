//! `explain`: one paragraph, and the facts it rests on.

use owo_colors::OwoColorize as _;
use rekindle_wire::v1::ExplainView;

use super::{Context, job_path, workspace};
use crate::api::typed;
use crate::fault::Result;
use crate::human;

/// Width of the paragraph where there is no terminal.
const PIPE_WIDTH: usize = 100;

/// Explains where a job is.
pub(crate) async fn run(context: &Context, job: &str) -> Result<()> {
    let value = context.api.get(&job_path(job, "/explain")?, &[]).await?;
    if context.printer.is_json {
        return context.printer.json(&value);
    }
    workspace::tell_follower_of(context, job).await;
    let explained: ExplainView = typed(value)?;
    context.printer.data(&wrapped(&explained.paragraph, context.printer.width().unwrap_or(PIPE_WIDTH)))?;
    for fact in &explained.facts {
        context.printer.line(&format!("  {} {}", "-".dimmed(), human::tame(fact)))?;
    }
    Ok(())
}

/// Text in lines of at most `width` columns, safe for a terminal.
pub(super) fn wrapped(text: &str, width: usize) -> String {
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
