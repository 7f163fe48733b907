//! `fields`: what may stand in a job. Works without a server, from the table in this program.

use std::process::ExitCode;

use rekindle_core::spec::fields::{self, FIELDS, Field};

use crate::answers::{FieldLine, Fields};
use crate::args::Fields as Options;
use crate::fault::{Fault, Result};
use crate::printer::Printer;
use crate::project;
use crate::table::{Table, text};

/// Shows the fields that a word means, or all.
pub(crate) fn run(options: &Options, printer: Printer) -> Result<ExitCode> {
    let found: Vec<&Field> = match &options.field {
        Some(word) => fields::named(word).collect(),
        None => FIELDS.iter().collect(),
    };
    if found.is_empty() {
        let word = options.field.as_deref().unwrap_or_default();
        let sections = "run, env, tpu, limits, budgets, recovery, notify";
        let all = format!("`rekindle fields` lists them all; sections are {sections}");
        let next = match like(word) {
            Some(near) => format!("did you mean {near}? Otherwise {all}"),
            None => all,
        };
        return Err(Fault::input(format!("a job has no field {word:?}")).next(next));
    }
    if printer.is_json {
        printer.json(&Fields { fields: found.into_iter().map(FieldLine::of).collect() })?;
        return Ok(ExitCode::SUCCESS);
    }
    if let [one] = found.as_slice() {
        let example = if one.example.is_empty() { String::new() } else { format!("\nexample: {}", one.example) };
        let (name, is, absent) = (one.name, one.is, one.absent.words());
        printer.line(&format!("{name}: {is}; default: {absent}\n{}.{example}", one.meaning))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&[text("FIELD", 0), text("IS", 2), text("DEFAULT", 1), text("MEANING", 0)]);
    for field in found {
        let cells = [field.name, field.is, field.absent.words(), field.meaning];
        table.row(cells.map(str::to_owned).to_vec());
    }
    printer.data(&table.render(printer.width()))?;
    Ok(ExitCode::SUCCESS)
}

/// The field or section that a word is nearest to.
fn like(word: &str) -> Option<&'static str> {
    /// Less similar names were not meant.
    const LEAST: f64 = 0.9;
    let sections = FIELDS.iter().filter_map(|field| Some(field.name.split_once('.')?.0.trim_end_matches("[]")));
    project::nearest(word, sections.chain(FIELDS.iter().map(|field| field.name)), LEAST)
}
