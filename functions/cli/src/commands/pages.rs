//! `completion` and `man`: made from the command line itself, so that they are never out of date.

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::answers::{ManPage, ManPages, Script};
use crate::args::{Cli, Completion, Man};
use crate::complete;
use crate::fault::{Fault, Result};
use crate::printer::Printer;

/// Writes the completion script of a shell.
pub(crate) fn completion(options: &Completion, printer: Printer) -> Result<ExitCode> {
    let script = complete::script(options.shell)?;
    if printer.is_json {
        let (shell, script) = (options.shell.name(), String::from_utf8_lossy(&script));
        printer.json_line(&Script { shell, script: &script })?;
        return Ok(ExitCode::SUCCESS);
    }
    printer.bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// How many pages are of a command and those below it: `generate_to` leaves hidden ones out.
fn written(command: &clap::Command) -> usize {
    1 + command.get_subcommands().filter(|one| !one.is_hide_set()).map(written).sum::<usize>()
}

/// Writes the main page, or the pages of all commands into a folder.
pub(crate) fn man(options: &Man, printer: Printer) -> Result<ExitCode> {
    let Some(folder) = &options.folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        if printer.is_json {
            printer.json_line(&ManPage { page: &String::from_utf8_lossy(&page) })?;
        } else {
            printer.bytes(&page)?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    let cannot = |error: std::io::Error| {
        Fault::input(format!("cannot write manual pages to {}", folder.display()))
            .caused_by(&error)
            .next("name a folder that you may write to, such as ~/.local/share/man/man1")
    };
    std::fs::create_dir_all(folder).map_err(cannot)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(cannot)?;
    let count = written(&Cli::command());
    if printer.is_json {
        printer.json_line(&ManPages { folder: &folder.to_string_lossy(), pages: count })?;
        return Ok(ExitCode::SUCCESS);
    }
    printer.talk(&format!("{} in {}", crate::human::count(count as u64, "page"), folder.display()));
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_that_are_written_are_counted_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        clap_mangen::generate_to(Cli::command(), folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), written(&Cli::command()));
    }

    #[test]
    fn the_page_of_a_command_names_its_options() {
        let folder = tempfile::tempdir().unwrap();
        clap_mangen::generate_to(Cli::command(), folder.path()).unwrap();
        let page = std::fs::read_to_string(folder.path().join("rekindle-logs.1")).unwrap();
        assert!(page.contains(r"\fB\-\-since\fR"), "{page}");
    }
}
