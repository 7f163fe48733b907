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
    let width = context.printer.width();
    context.printer.data(&wrapped(&explained.paragraph, width.unwrap_or(PIPE_WIDTH)))?;
    for fact in &explained.facts {
        let text = human::tame(fact);
        // Who reads a pipe finds each fact on a line.
        let text = width.map_or_else(|| text.clone(), |width| human::hung(&text, 4, width));
        context.printer.line(&format!("  {} {text}", "-".dimmed()))?;
    }
    Ok(())
}

/// Text in lines of at most `width` columns, safe for a terminal.
pub(super) fn wrapped(text: &str, width: usize) -> String {
    human::hung(&human::tame(text).split_whitespace().collect::<Vec<_>>().join(" "), 0, width) + "\n"
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
