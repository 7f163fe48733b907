//! `sync`: files to the workers of a workspace as a bundle, and from them as archives.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use rekindle_core::spec::CommandLine;
use rekindle_wire::v1::{ExecBody, ExecView, UnpackBody};
use serde_json::json;

use super::exec::{Sink, carry_out, label, worker};
use super::{Context, workspace};
use crate::args::Sync;
use crate::bundle::Bundle;
use crate::fault::{Fault, Result};
use crate::human;

/// Packs the place that is its first argument, without the folders above it.
const PACK: &str =
    r#"if [ -d "$1" ]; then exec tar -C "$1" -cf - .; fi; exec tar -C "$(dirname "$1")" -cf - "$(basename "$1")""#;

/// Brings files one way or the other.
pub(crate) async fn run(context: &Context, options: &Sync) -> Result<()> {
    match (remote(&options.from), remote(&options.to)) {
        (None, Some((name, to))) => send(context, options, name, to).await,
        (Some((name, from)), None) => fetch(context, options, name, from).await,
        (None, None) => Err(Fault::input("neither place is in a workspace").next("write NAME:PATH for one of them")),
        (Some(_), Some(_)) => Err(Fault::input("both places are in a workspace")
            .next("one of them must be here; within a workspace `rekindle exec NAME -- cp` copies")),
    }
}

/// `NAME:PATH`; a path with a slash before its colon is one of this machine.
fn remote(text: &str) -> Option<(&str, &str)> {
    text.split_once(':').filter(|(name, _)| !name.is_empty() && !name.contains(['/', '.']))
}

async fn send(context: &Context, options: &Sync, name: &str, to: &str) -> Result<()> {
    let (id, _) = workspace::live(context, name).await?;
    let folder = Path::new(&options.from);
    if !folder.is_dir() {
        return Err(Fault::input(format!("{} is no folder", options.from)).next("name the folder that holds the file"));
    }
    let Some(bundle) = Bundle::of(folder, context.printer)? else {
        return Err(Fault::input(format!("there is nothing to send in {}", options.from))
            .next("see what .gitignore and .rekindleignore name"));
    };
    let (code, _) = bundle.send(&context.api, context.printer).await?;
    let unpack = UnpackBody { code, to: to.to_owned() };
    let body = ExecBody { unpack: Some(unpack), worker: worker(&options.worker), run: None };
    let view = carry_out(context, &id, &body, &mut Nowhere).await?;
    check(&view, &[])?;
    said(
        context,
        &format!("{} went to {}", bundle.describe(), human::count(view.workers.len() as u64, "worker")),
        &view,
    )
}

async fn fetch(context: &Context, options: &Sync, name: &str, from: &str) -> Result<()> {
    let (id, _) = workspace::live(context, name).await?;
    let from = if from.is_empty() { "." } else { from };
    let words = ["bash", "-c", PACK, "sync", from].map(str::to_owned).to_vec();
    let body = ExecBody { run: Some(CommandLine::Argv(words)), unpack: None, worker: worker(&options.worker) };
    let mut archives = Archives::default();
    let view = carry_out(context, &id, &body, &mut archives).await?;
    check(&view, &archives.errors)?;
    let to = Path::new(&options.to);
    let cannot = |error: std::io::Error| Fault::unexpected("cannot unpack what came").caused_by(&error);
    for (worker, mut file) in archives.files {
        let place = if view.workers.len() > 1 { to.join(worker) } else { to.to_owned() };
        std::fs::create_dir_all(&place).map_err(cannot)?;
        file.seek(SeekFrom::Start(0)).map_err(cannot)?;
        // The crate refuses entries that would leave the folder.
        tar::Archive::new(file).unpack(&place).map_err(cannot)?;
    }
    let workers = human::count(view.workers.len() as u64, "worker");
    said(context, &format!("{} from {workers} is in {}", human::bytes(archives.bytes), to.display()), &view)
}

fn said(context: &Context, text: &str, view: &ExecView) -> Result<()> {
    if context.printer.is_json {
        return context.printer.json(&json!({"workers": view.workers}));
    }
    context.printer.talk(text);
    Ok(())
}

/// A fault that names each worker on which it did not go well.
fn check(view: &ExecView, errors: &[u8]) -> Result<()> {
    let mut fault = Fault::input("not every worker has the files");
    let mut is_bad = false;
    for of in &view.workers {
        let Some(exit) = of.exit.as_ref().filter(|exit| exit.code != 0) else { continue };
        is_bad = true;
        let why = exit.error.clone().unwrap_or_else(|| format!("ended with {}", exit.code));
        fault = fault.because(human::tame(&format!("{}: {why}", label(of))));
    }
    if !is_bad {
        return Ok(());
    }
    let said = String::from_utf8_lossy(errors);
    for line in said.lines().take(3) {
        fault = fault.because(human::tame(line));
    }
    Err(fault.next("see that the path is there, and that the disk has room"))
}

/// An unpacked bundle says nothing.
struct Nowhere;

impl Sink for Nowhere {
    fn begin(&mut self, _: usize) {}

    fn piece(&mut self, _: &str, _: bool, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// What workers pack, on the disk: it may be large.
#[derive(Default)]
struct Archives {
    files: BTreeMap<String, File>,
    errors: Vec<u8>,
    bytes: u64,
}

impl Sink for Archives {
    fn begin(&mut self, _: usize) {}

    fn piece(&mut self, worker: &str, is_error: bool, bytes: &[u8]) -> Result<()> {
        if is_error {
            self.errors.extend_from_slice(bytes);
            return Ok(());
        }
        self.bytes += bytes.len() as u64;
        let cannot = |error: std::io::Error| Fault::unexpected("cannot keep what came").caused_by(&error);
        if !self.files.contains_key(worker) {
            self.files.insert(worker.to_owned(), tempfile::tempfile().map_err(cannot)?);
        }
        match self.files.get_mut(worker) {
            Some(file) => file.write_all(bytes).map_err(cannot),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_workspace_begins_with_its_name() {
        assert_eq!(remote("dev:results"), Some(("dev", "results")));
        assert_eq!(remote("dev:"), Some(("dev", "")));
        for here in ["results", "./a:b", "/tmp/a:b", "../dev:x", ":x"] {
            assert_eq!(remote(here), None, "{here}");
        }
    }
}
