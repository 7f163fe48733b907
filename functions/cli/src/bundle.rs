//! A folder as one file: what is taken, the bytes, where they go.
//!
//! **Invariant:** equal folders give equal bytes, whoever packs them and when: names are sorted, owners are left out, and
//! for a job also times. So the digest names the content, and what was uploaded once is never uploaded again.

mod collect;
mod git;
mod pack;
mod secret;
mod session;
mod upload;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::api::Api;
use crate::fault::{Fault, Result};
use crate::human;
use crate::printer::Printer;

/// Largest sum of all files, in bytes.
// What `api` takes of a bundle; data belongs into a bucket, since each worker of each slice fetches the bundle.
const SIZE_MAX: u64 = 512 * 1024 * 1024;
/// Paths that a refusal names.
const LARGEST_SHOWN: usize = 5;

/// What becomes of the times of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// One for all: the digest names the content alone.
    Fixed,
    /// As they are here. Python takes a compiled file as current when time and size of its source are as they were: in a
    /// workspace, which keeps what was compiled, a change of equal length would not be seen otherwise.
    Kept,
}

/// Why a file of the folder is not in the bundle.
pub(crate) enum LeftOut {
    /// It is in this virtual environment.
    Environment(PathBuf),
    /// It is in a place of this name, which is never sent.
    Never(PathBuf),
    /// Ignore rules name it, or a folder above it; these lines in `.rekindleignore` bring it back.
    Rules(Vec<String>),
}

/// A packed folder, or one file.
pub(crate) struct Bundle {
    /// Of one file its own path.
    folder: PathBuf,
    /// The files and links in it, by their paths within the folder.
    files: BTreeSet<PathBuf>,
    /// How many of these are links.
    links: usize,
    /// The largest files, or folders of them, with their bytes.
    largest: Vec<(String, u64)>,
    packed: pack::Packed,
    bytes: u64,
}

impl Bundle {
    /// Packs a folder. `None`: there is nothing in it.
    pub(crate) fn of(folder: &Path, times: Times, printer: Printer) -> Result<Option<Self>> {
        let folder = folder.canonicalize().map_err(|error| {
            Fault::input(format!("cannot bundle the folder {}", folder.display()))
                .caused_by(&error)
                .next("name one that is there with --folder, or send none with --no-code")
        })?;
        refuse_places(&folder)?;
        if collect::environment(&folder) == Some(false) {
            printer.warn(&mixed(&folder));
        }
        let bar = pack::walking(printer);
        let found = collect::folder(&folder, &bar);
        bar.finish_and_clear();
        let found = found?;
        for skipped in &found.skipped {
            printer.warn(&human::tame(skipped));
        }
        if let Some(told) = secrets_go_along(&found) {
            printer.warn(&told);
        }
        let bytes = found.entries.iter().map(|entry| entry.size).sum();
        if bytes > SIZE_MAX {
            return Err(too_large(&folder, &found, bytes));
        }
        let files = sent(&found);
        let links = found.entries.iter().filter(|entry| matches!(entry.kind, collect::Kind::Link(_))).count();
        if files.is_empty() {
            let has_any = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
            let why = match (found.has_environment, has_any) {
                (true, _) => {
                    "but a virtual environment there is none in it that .gitignore or .rekindleignore do not name"
                }
                (false, true) => ".gitignore or .rekindleignore name every one",
                (false, false) => "there is none in it",
            };
            printer.warn(&format!("no file of {} is sent: {why}", folder.display()));
            return Ok(None);
        }
        let packed = pack::pack(&folder, &found.entries, times, &pack::progress(printer, bytes))?;
        let largest = found.largest(LARGEST_SHOWN);
        Ok(Some(Self { folder, files, links, largest, packed, bytes }))
    }

    /// Packs one file, under that name, with its time.
    pub(crate) fn of_file(file: &Path, name: &str, printer: Printer) -> Result<Self> {
        let entry = collect::file(file, name)?;
        let bytes = entry.size;
        if bytes > SIZE_MAX {
            let what = format!("the file {} is too large to send", file.display());
            return Err(Fault::input(what)
                .because(format!("it has {}, where {} are allowed", human::bytes(bytes), human::bytes(SIZE_MAX)))
                .next("bring it by way of a bucket"));
        }
        let packed = pack::pack(file, &[entry], Times::Kept, &pack::progress(printer, bytes))?;
        let (files, largest) = (BTreeSet::from([name.into()]), vec![(name.to_owned(), bytes)]);
        Ok(Self { folder: file.to_owned(), files, links: 0, largest, packed, bytes })
    }

    /// sha256 of the bytes, in lower-case hex.
    pub(crate) fn digest(&self) -> &str {
        &self.packed.digest
    }

    /// The section `source` of the job.
    pub(crate) fn source(&self) -> Value {
        let name = self.folder.file_name().map(|name| human::tame(&name.to_string_lossy())).unwrap_or_default();
        let mut source = json!({"folder": name.chars().take(100).collect::<String>()});
        if let Some(state) = git::state(&self.folder, &self.files) {
            source["commit"] = json!(state.commit);
            source["dirty"] = json!(state.is_dirty);
            if let Some(branch) = state.branch {
                source["branch"] = json!(branch);
            }
        }
        source
    }

    /// `3 files and 1 link of ~/train (12.5 KiB, 4.0 KiB packed)`; of one file `~/train/a.py (812 B)`.
    pub(crate) fn describe(&self) -> String {
        let (folder, bytes) = (self.folder.display(), human::bytes(self.bytes));
        if self.folder.is_file() {
            return format!("{folder} ({bytes})");
        }
        let files = human::count((self.files.len() - self.links) as u64, "file");
        let links =
            if self.links == 0 { String::new() } else { format!(" and {}", human::count(self.links as u64, "link")) };
        format!("{files}{links} of {folder} ({bytes}, {} packed)", human::bytes(self.packed.size))
    }

    /// `largest: data/train (1.2 MiB), model.py (3 KiB)`.
    pub(crate) fn describe_largest(&self) -> String {
        let named = self.largest.iter().map(|(path, size)| format!("{path} ({})", human::bytes(*size)));
        format!("largest: {}", named.collect::<Vec<_>>().join(", "))
    }

    /// The paths of its files and links, in order, as they are.
    pub(crate) fn paths(&self) -> impl Iterator<Item = String> {
        self.files.iter().map(|path| path.to_string_lossy().into_owned())
    }

    /// The files and links in it, by their paths within the folder.
    pub(crate) fn files(&self) -> &BTreeSet<PathBuf> {
        &self.files
    }

    /// What leaves a file of the folder out of it.
    pub(crate) fn left_out(&self, path: &Path) -> LeftOut {
        match collect::never(&self.folder, path) {
            Some((part, true)) => LeftOut::Environment(part),
            Some((part, false)) => LeftOut::Never(part),
            None => LeftOut::Rules(self.rules_for(path)),
        }
    }

    /// Rules that bring a file back, and nothing beside it. The walk goes into no folder that is left out, so each is named.
    fn rules_for(&self, path: &Path) -> Vec<String> {
        let written = |path: &Path| rule(&path.to_string_lossy());
        let mut above: Vec<&Path> = path.ancestors().skip(1).filter(|part| !part.as_os_str().is_empty()).collect();
        above.reverse();
        let is_closed = |folder: &&Path| !self.files.iter().any(|file| file.starts_with(folder));
        let mut rules: Vec<String> = above
            .into_iter()
            .filter(is_closed)
            .flat_map(|folder| [format!("!/{}", written(folder)), format!("/{}/*", written(folder))])
            .collect();
        rules.push(format!("!/{}", written(path)));
        rules
    }

    /// Where it is or would be: the address for `code`, and whether it is there.
    pub(crate) async fn place(&self, api: &Api) -> Result<(String, bool)> {
        upload::place(api, self.digest()).await
    }

    /// Brings it to the server unless it is there; answers the address for `code`, and whether it was sent.
    pub(crate) async fn send(&self, api: &Api, printer: Printer) -> Result<(String, bool)> {
        upload::send(api, &self.packed, printer).await
    }
}

/// A path as a rule names it alone.
fn rule(path: &str) -> String {
    path.chars().flat_map(|c| "*?[]{}\\ ".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

/// The files and links of what was found.
fn sent(found: &collect::Found) -> BTreeSet<PathBuf> {
    let files = found.entries.iter().filter(|entry| entry.kind != collect::Kind::Folder);
    files.map(|entry| entry.path.clone()).collect()
}

/// One line about files that may hold secrets, with how to leave them out. Nothing is left out for its name alone: a program may
/// need it.
fn secrets_go_along(found: &collect::Found) -> Option<String> {
    let secrets = found.secrets();
    let named: Vec<String> =
        secrets.iter().take(LARGEST_SHOWN).map(|path| human::tame(&path.to_string_lossy())).collect();
    let more = secrets.len().saturating_sub(named.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let (go, lines) = if secrets.len() == 1 {
        ("goes", "a line in .rekindleignore leaves it out")
    } else {
        ("go", "lines in .rekindleignore leave them out")
    };
    (!named.is_empty()).then(|| {
        format!(
            "{}{more} may hold secrets, and {go} along for every worker to read; {lines}, and `secrets:` of the job hands over \
             single values",
            named.join(", ")
        )
    })
}

/// Folders that nobody means to send.
fn refuse_places(folder: &Path) -> Result<()> {
    let home = std::env::var_os("HOME").map(PathBuf::from).and_then(|home| home.canonicalize().ok());
    let what = if folder.parent().is_none() {
        "the root of all folders"
    } else if home.as_deref() == Some(folder) {
        "your home folder"
    } else if collect::environment(folder) == Some(true) {
        "a virtual environment of Python, which works on this machine alone"
    } else {
        return Ok(());
    };
    Err(Fault::input(format!("{} is {what}; it is not sent as a program", folder.display()))
        .next("go to the folder of the program, name it with --folder, or send none with --no-code"))
}

/// One line about a program in the folder of a virtual environment: what is whose cannot be told by names.
fn mixed(folder: &Path) -> String {
    format!(
        "{} is itself a virtual environment (pyvenv.cfg), which works on this machine alone, and is sent as it is; move the \
         program into a folder of its own, or name bin, lib and the like in .rekindleignore, and let `setup` make one",
        folder.display()
    )
}

fn too_large(folder: &Path, found: &collect::Found, bytes: u64) -> Fault {
    let what = format!(
        "the folder {} is too large to send: {}, where {} are allowed",
        folder.display(),
        human::bytes(bytes),
        human::bytes(SIZE_MAX)
    );
    let largest = found.largest(LARGEST_SHOWN);
    let fault = largest
        .into_iter()
        .fold(Fault::input(what), |fault, (path, size)| fault.because(format!("{} {path}", human::bytes(size))));
    fault.next("name what is no program in .rekindleignore (as in .gitignore), and read data from a bucket")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_went_away_is_named() {
        let printer = Printer::new(false, anstream::ColorChoice::Never);
        let text = Bundle::of(Path::new("/nowhere/at/all"), Times::Fixed, printer).err().unwrap().text();
        let said = [
            "cannot bundle the folder /nowhere/at/all",
            "No such file",
            "name one that is there with --folder, or send none with --no-code",
        ];
        assert!(said.iter().all(|word| text.contains(word)), "{text}");
    }
}
