//! `sync`: files to the workers of a workspace as a bundle, and from them as archives.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Component, Path, PathBuf};

use rekindle_core::spec::CommandLine;
use rekindle_wire::v1::{ExecBody, ExecView, ExecWorkerView, UnpackBody};

use super::Context;
use super::exec::{Carried, Sink, Target, carry_out, worker};
use crate::answers::Synced;
use crate::args::Sync;
use crate::bundle::{Bundle, Times};
use crate::exit::Exit;
use crate::fault::{Fault, Result};
use crate::human;

/// Packs the place that is its first argument, without the folders above it.
// What tar says of files that change is read, so it says it in English.
const PACK: &str = r#"export LC_ALL=C; if [ -d "$1" ]; then exec tar -C "$1" -cf - .; fi; exec tar -C "$(dirname -- "$1")" -cf - -- "$(basename -- "$1")""#;
/// Ends with 0 if its first argument is a folder, with 1 if it is none.
const IS_FOLDER: &str = r#"[ -d "$1" ]"#;

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
    let target = Target::of(context, name).await?;
    let from = Path::new(&options.from);
    let (bundle, to, place) = if from.is_dir() {
        let bundle = Bundle::of(from, Times::Kept, context.printer)?.ok_or_else(|| {
            Fault::input(format!("there is nothing to send in {}", options.from))
                .next("see what .gitignore and .rekindleignore name")
        })?;
        (bundle, to.to_owned(), String::new())
    } else {
        let (folder, name) = file_at(from, to);
        let is_folder = name_in(to).is_some() && has_folder(context, options, &target, to).await?;
        let (folder, name) = if is_folder { file_at(from, &format!("{to}/")) } else { (folder, name) };
        let place = format!(" as {}", human::tame(&Path::new(&folder).join(&name).to_string_lossy()));
        (Bundle::of_file(from, &name, context.printer)?, folder, place)
    };
    let (code, _) = bundle.send(&context.api, context.printer).await?;
    let unpack = UnpackBody { code, to };
    let body = ExecBody { unpack: Some(unpack), worker: worker(&options.worker), run: None };
    let view = carried_through(carry_out(context, &target, &body, &mut Nowhere).await?)?;
    check(&target, &view, &BTreeMap::new(), "not every worker has the files")?;
    said(
        context,
        &target,
        &format!("{} went to {}{place}", bundle.describe(), human::count(view.workers.len() as u64, "worker")),
        &view,
    )
}

/// The folder that one file goes to, and its name there: as it is called here, unless the place names it.
fn file_at(from: &Path, to: &str) -> (String, String) {
    let own = || from.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match name_in(to) {
        None => (to.to_owned(), own()),
        Some((folder, name)) => (folder.to_owned(), name.to_owned()),
    }
}

/// A folder and the name of a file in it; `None`: the whole names a folder.
fn name_in(to: &str) -> Option<(&str, &str)> {
    let (folder, name) =
        to.rsplit_once('/').map_or(("", to), |(folder, name)| (if folder.is_empty() { "/" } else { folder }, name));
    (!matches!(name, "" | "." | "..")).then_some((folder, name))
}

/// Whether the place for one file is a folder on the workers, so that the file goes into it.
async fn has_folder(context: &Context, options: &Sync, target: &Target, to: &str) -> Result<bool> {
    let words = ["bash", "-c", IS_FOLDER, "sync", to].map(str::to_owned).to_vec();
    let body = ExecBody { run: Some(CommandLine::Argv(words)), unpack: None, worker: worker(&options.worker) };
    let view = carried_through(carry_out(context, target, &body, &mut Nowhere).await?)?;
    let said = |code: i32| {
        let workers = view.workers.iter().filter(|of| of.exit.as_ref().is_some_and(|exit| exit.code == code));
        workers.map(|of| target.label(of)).collect::<Vec<_>>()
    };
    let (with, without) = (said(0), said(1));
    let mut unseen = view.clone();
    unseen.workers.retain(|of| of.exit.as_ref().is_none_or(|exit| exit.code != 0 && exit.code != 1));
    let what = format!("cannot look at {to}");
    check(target, &unseen, &BTreeMap::new(), &what)?;
    match (with.is_empty(), without.is_empty()) {
        (false, false) => Err(Fault::input(format!("{to} is a folder on {} alone", with.join(", ")))
            .next(format!("write {}/ for a folder on each worker, or name one with --worker", options.to))),
        (has_none, _) => Ok(!has_none),
    }
}

async fn fetch(context: &Context, options: &Sync, name: &str, from: &str) -> Result<()> {
    let target = Target::of(context, name).await?;
    let from = if from.is_empty() { "." } else { from };
    let words = ["bash", "-c", PACK, "sync", from].map(str::to_owned).to_vec();
    let body = ExecBody { run: Some(CommandLine::Argv(words)), unpack: None, worker: worker(&options.worker) };
    let mut archives = Archives::default();
    let view = carried_through(carry_out(context, &target, &body, &mut archives).await?)?;
    let to = Path::new(&options.to);
    let cannot = |error: std::io::Error| {
        Fault::unexpected(format!("cannot unpack what came into {}", to.display()))
            .caused_by(&error)
            .next("name a folder that you may write to, on a disk with room")
    };
    // A worker that has no such place does not keep back what the others have, and what changed there not the rest.
    let (well, mut bad): (Vec<_>, Vec<_>) = view.workers.iter().cloned().partition(has_ended_well);
    let mut whole: Vec<String> = well.iter().map(|of| target.label(of)).collect();
    bad.retain(|of| {
        let worker = target.label(of);
        let changed = changed_on(of, archives.errors.get(&worker));
        if let Some(changed) = &changed {
            context.printer.warn(&human::tame(&format!("{worker}: while the files were packed, {changed}")));
            whole.push(worker);
        }
        changed.is_none()
    });
    let (mut bytes, mut nothing) = (0, Vec::new());
    for worker in &whole {
        let Some(mut file) = archives.files.remove(worker) else { continue };
        file.seek(SeekFrom::Start(0)).map_err(cannot)?;
        let place = if view.workers.len() > 1 { Place::Folder(to.join(worker)) } else { Place::of(&options.to) };
        let brought = unpack(file, &place).map_err(cannot)?;
        if brought.is_nothing() {
            nothing.push(worker.clone());
            continue;
        }
        for special in brought.special {
            let path = human::tame(&special.to_string_lossy());
            context.printer.warn(&format!("{worker}: {path} is neither file, folder nor link; it was not brought"));
        }
        bytes += brought.bytes;
    }
    whole.retain(|worker| !nothing.contains(worker));
    if !whole.is_empty() {
        let workers = human::count(view.workers.len() as u64, "worker");
        let from = if whole.len() == view.workers.len() { workers } else { format!("{} of {workers}", whole.len()) };
        said(context, &target, &format!("{} from {from} is in {}", human::bytes(bytes), to.display()), &view)?;
    }
    check(&target, &ExecView { workers: bad, ..view }, &archives.errors, "not every worker could send the files")?;
    if nothing.is_empty() {
        return Ok(());
    }
    let from = human::tame(from);
    let causes = nothing.iter().map(|worker| format!("{worker}: {from} is neither file, folder nor link"));
    let fault = causes.fold(Fault::input("not every worker has something to bring"), Fault::because);
    Err(fault.next("name a file or a folder; what a program writes into a pipe or a socket is kept nowhere"))
}

/// What was carried out, unless the person wanted its end.
fn carried_through(carried: Carried) -> Result<ExecView> {
    if carried.is_interrupted {
        let fault = Fault::input("it was interrupted").because("the workers have ended it; nothing was written");
        return Err(fault.next("run it again for the whole of it").exits(Exit::Interrupted));
    }
    Ok(carried.view)
}

/// Where what one worker packed goes.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Into this folder.
    Folder(PathBuf),
    /// One file is this file; a folder is this folder.
    Named(PathBuf),
}

impl Place {
    /// As it was given: a folder that is there, or is meant to be, is no name for a file.
    fn of(to: &str) -> Self {
        let path = PathBuf::from(to);
        if path.is_dir() || to.ends_with(['/', '.']) { Self::Folder(path) } else { Self::Named(path) }
    }
}

/// What came out of an archive.
#[derive(Debug, Default)]
struct Brought {
    /// The sum of its files.
    bytes: u64,
    /// How many files, folders and links came out of it.
    count: usize,
    /// What was left out: pipes and devices, which the crate would make into files.
    special: Vec<PathBuf>,
}

impl Brought {
    /// All that there was is left out.
    fn is_nothing(&self) -> bool {
        self.count == 0 && !self.special.is_empty()
    }
}

/// Unpacks an archive.
fn unpack(file: File, place: &Place) -> std::io::Result<Brought> {
    let mut archive = tar::Archive::new(file);
    let (mut folders, mut brought) = (Vec::new(), Brought::default());
    let mut is_first = true;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let is_one = std::mem::take(&mut is_first) && kind.is_file();
        let to = match place {
            // A folder begins with itself, so what begins with a file is that file alone.
            Place::Named(name) if is_one => {
                let above = name.parent().filter(|above| !above.as_os_str().is_empty());
                above.map_or(Ok(()), std::fs::create_dir_all)?;
                brought.bytes += entry.size();
                brought.count += 1;
                entry.unpack(file_to_write(name)?)?;
                continue;
            }
            Place::Named(folder) | Place::Folder(folder) => folder,
        };
        let is_special = kind.is_fifo() || kind.is_character_special() || kind.is_block_special();
        if is_special || is_no_file(&place_of(to, &entry.path()?)) {
            brought.special.push(entry.path()?.into_owned());
            continue;
        }
        std::fs::create_dir_all(to)?;
        brought.count += 1;
        if kind.is_dir() {
            // At the end, with their permissions: one may forbid writing into it.
            folders.push((to, entry));
        } else {
            brought.bytes += entry.size();
            // Entries that would leave the folder are left out.
            entry.unpack_in(to)?;
        }
    }
    folders.sort_by(|(_, a), (_, b)| b.path_bytes().cmp(&a.path_bytes()));
    for (to, mut folder) in folders {
        folder.unpack_in(to)?;
    }
    Ok(brought)
}

/// Where an entry goes, as the crate does it: what begins at the root lies below the folder all the same.
fn place_of(to: &Path, named: &Path) -> PathBuf {
    to.join(named.components().filter(|part| matches!(part, Component::Normal(_))).collect::<PathBuf>())
}

/// Where one file is written: what a link leads to, and never in the place of a device or a pipe, which the crate would remove.
fn file_to_write(name: &Path) -> std::io::Result<PathBuf> {
    if is_no_file(name) {
        return Err(std::io::Error::other("it is neither file nor folder here"));
    }
    let is_link = name.symlink_metadata().is_ok_and(|found| found.is_symlink());
    if is_link && name.exists() { name.canonicalize() } else { Ok(name.to_owned()) }
}

/// Whether something is there that is neither file nor folder, itself or behind a link.
fn is_no_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn said(context: &Context, target: &Target, text: &str, view: &ExecView) -> Result<()> {
    if context.printer.is_json {
        let named = |of: &ExecWorkerView| ExecWorkerView { worker: target.label(of), ..of.clone() };
        return context.printer.json(&Synced { workers: view.workers.iter().map(named).collect() });
    }
    context.printer.talk(text);
    Ok(())
}

fn has_ended_well(of: &ExecWorkerView) -> bool {
    of.exit.as_ref().is_some_and(|exit| exit.code == 0)
}

/// What changed while a worker packed it, if that is all that went wrong there: `log.txt changed, and old.txt was removed`.
///
/// GNU tar ends with 1 then, and its archive is whole. Others end with 1 for any fault, and do not say such things.
fn changed_on(of: &ExecWorkerView, said: Option<&Vec<u8>>) -> Option<String> {
    const NAMED: usize = 20;
    let exit = of.exit.as_ref().filter(|exit| exit.code == 1 && exit.error.is_none());
    let said = String::from_utf8_lossy(exit.and(said)?).into_owned();
    let changes: Vec<String> = said.lines().filter_map(change).collect();
    let more = changes.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("{more} more changed"));
    let named: Vec<String> = changes.into_iter().take(NAMED).chain(more).collect();
    let (last, rest) = named.split_last()?;
    Some(if rest.is_empty() { last.clone() } else { format!("{}, and {last}", rest.join(", ")) })
}

/// What a line of GNU tar says of a file that changed under it.
fn change(line: &str) -> Option<String> {
    let (name, what) = line.strip_prefix("tar: ")?.rsplit_once(": ")?;
    let what = match what {
        "file changed as we read it" => "changed",
        "File removed before we read it" => "was removed",
        _ if what.starts_with("File shrank by ") => "became shorter, with zeros for the rest",
        _ => return None,
    };
    Some(format!("{} {what}", name.strip_prefix("./").filter(|name| !name.is_empty()).unwrap_or(name)))
}

/// A fault that names each worker on which it did not go well, and what was said there.
fn check(target: &Target, view: &ExecView, errors: &BTreeMap<String, Vec<u8>>, what: &str) -> Result<()> {
    let bad: Vec<&ExecWorkerView> = view.workers.iter().filter(|of| !has_ended_well(of)).collect();
    if bad.is_empty() {
        return Ok(());
    }
    let causes = bad.iter().map(|of| {
        let worker = target.label(of);
        let said = String::from_utf8_lossy(errors.get(&worker).map_or(&[][..], Vec::as_slice)).into_owned();
        let exit = of.exit.as_ref();
        let why = exit
            .and_then(|exit| exit.error.clone())
            .or_else(|| said.lines().find(|line| change(line).is_none()).map(str::to_owned));
        let why = why.unwrap_or_else(|| format!("ended with {}", exit.map_or(0, |exit| exit.code)));
        human::tame(&format!("{worker}: {why}"))
    });
    let fault = causes.fold(Fault::input(what), Fault::because);
    // With a cause of its own, and it could be started: something else ended it.
    let is_cut = |of: &&ExecWorkerView| of.exit.as_ref().is_some_and(|exit| exit.error.is_some() && exit.code != 126);
    Err(fault.next(if bad.iter().all(is_cut) {
        let id = target.id();
        format!("run it again once `rekindle status {id}` says that it is up")
    } else {
        "see that the path is there on each worker, and that its disk has room".to_owned()
    }))
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
    /// Of each worker its archive.
    files: BTreeMap<String, File>,
    /// Of each worker what went wrong, in its words.
    errors: BTreeMap<String, Vec<u8>>,
}

impl Sink for Archives {
    fn begin(&mut self, _: usize) {}

    fn piece(&mut self, worker: &str, is_error: bool, bytes: &[u8]) -> Result<()> {
        if is_error {
            self.errors.entry(worker.to_owned()).or_default().extend_from_slice(bytes);
            return Ok(());
        }
        let cannot = |error: std::io::Error| {
            Fault::unexpected("cannot keep what came")
                .caused_by(&error)
                .next("set TMPDIR to a folder that you may write to, on a disk with room")
        };
        if !self.files.contains_key(worker) {
            self.files.insert(worker.to_owned(), tempfile::tempfile().map_err(cannot)?);
        }
        let Some(file) = self.files.get_mut(worker) else { return Ok(()) };
        file.write_all(bytes).map_err(cannot)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn pipes_and_devices_are_left_out_and_named() {
        let mut archive = tar::Builder::new(tempfile::tempfile().unwrap());
        let mut add = |name: &str, kind: tar::EntryType, mode: u32, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, name, bytes).unwrap();
        };
        add("closed", tar::EntryType::Directory, 0o555, b"");
        add("closed/pipe", tar::EntryType::Fifo, 0o644, b"");
        add("null", tar::EntryType::Char, 0o644, b"");
        add("closed/a.txt", tar::EntryType::Regular, 0o644, b"a");
        let mut file = archive.into_inner().unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let to = tempfile::tempdir().unwrap();
        let brought = unpack(file, &Place::Folder(to.path().to_owned())).unwrap();
        assert_eq!(brought.special, [Path::new("closed/pipe"), Path::new("null")]);
        assert_eq!(brought.bytes, 1, "the files alone");
        assert_eq!(std::fs::read(to.path().join("closed/a.txt")).unwrap(), b"a");
        assert!(!to.path().join("closed/pipe").exists() && !to.path().join("null").exists());
    }

    #[test]
    fn a_pipe_here_stays_one_also_where_it_is_named_from_the_root() {
        for name in ["pipe", "/pipe", "./pipe"] {
            let mut archive = tar::Builder::new(tempfile::tempfile().unwrap());
            let mut header = tar::Header::new_gnu();
            // As it is: the crate writes no absolute one by itself.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_mode(0o644);
            header.set_size(1);
            header.set_cksum();
            archive.append(&header, &b"a"[..]).unwrap();
            let mut file = archive.into_inner().unwrap();
            file.seek(SeekFrom::Start(0)).unwrap();
            let to = tempfile::tempdir().unwrap();
            let pipe = to.path().join("pipe");
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            let brought = unpack(file, &Place::Folder(to.path().to_owned())).unwrap();
            assert_eq!(brought.special, [Path::new(name)]);
            assert!(!pipe.metadata().unwrap().is_file(), "{name}");
        }
    }

    #[test]
    fn a_place_whose_name_looks_like_an_option_is_packed() {
        let there = tempfile::tempdir().unwrap();
        std::fs::create_dir(there.path().join("-d")).unwrap();
        for name in ["-x", "--help", "-d/-C"] {
            std::fs::write(there.path().join(name), name).unwrap();
            let mut pack = std::process::Command::new("bash");
            let packed = pack.args(["-c", PACK, "sync", name]).current_dir(there.path()).output().unwrap();
            let said = String::from_utf8_lossy(&packed.stderr).into_owned();
            let mut entries = tar::Archive::new(&packed.stdout[..]);
            let entry = entries.entries().unwrap().next().unwrap_or_else(|| panic!("{name}: {said}")).unwrap();
            assert_eq!(Some(entry.path().unwrap().as_os_str()), Path::new(name).file_name(), "{said}");
        }
    }

    #[test]
    fn what_changes_while_it_is_packed_is_named_and_brought_all_the_same() {
        const SIZE: u64 = 4 << 20;
        let change = |change: &dyn Fn(&File)| {
            let there = tempfile::tempdir().unwrap();
            std::fs::write(there.path().join("log.txt"), vec![b'a'; usize::try_from(SIZE).unwrap()]).unwrap();
            let log = File::options().append(true).open(there.path().join("log.txt")).unwrap();
            let mut pack = std::process::Command::new("bash")
                .args(["-c", PACK, "sync", "."])
                .current_dir(there.path())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let (mut archive, mut first) = (tempfile::tempfile().unwrap(), [0]);
            // It has begun, and cannot go to the end before more is taken of it: a pipe holds less.
            pack.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
            change(&log);
            archive.write_all(&first).unwrap();
            std::io::copy(pack.stdout.as_mut().unwrap(), &mut archive).unwrap();
            let output = pack.wait_with_output().unwrap();
            archive.seek(SeekFrom::Start(0)).unwrap();
            let to = tempfile::tempdir().unwrap();
            let brought = unpack(archive, &Place::Folder(to.path().to_owned())).unwrap();
            (brought.bytes, ended(output.status.code().unwrap()), output.stderr)
        };
        let (bytes, ended_with, said) = change(&|mut log| log.write_all(b"b").unwrap());
        assert_eq!((bytes, changed_on(&ended_with, Some(&said)).unwrap().as_str()), (SIZE, "log.txt changed"));
        let (bytes, ended_with, said) = change(&|log| log.set_len(SIZE / 2).unwrap());
        let told = "log.txt became shorter, with zeros for the rest";
        assert_eq!((bytes, changed_on(&ended_with, Some(&said)).unwrap().as_str()), (SIZE, told));
    }

    fn ended(code: i32) -> ExecWorkerView {
        let view = serde_json::json!({"worker": "0-0", "stdout": 1, "stderr": 1, "exit": {"code": code}});
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn only_what_gnu_tar_calls_a_change_is_one() {
        let changed = |code: i32, said: &str| changed_on(&ended(code), Some(&said.as_bytes().to_vec()));
        let both = "tar: .: file changed as we read it\ntar: ./a: b: File removed before we read it\n";
        assert_eq!(changed(1, both).as_deref(), Some(". changed, and a: b was removed"));
        assert_eq!(changed(2, both), None, "something else went wrong, too");
        for said in ["", "tar: a: Cannot stat: No such file or directory\n", "bsdtar: a: truncated\n"] {
            assert_eq!(changed(1, said), None, "{said}");
        }
        let many = "tar: ./9: file changed as we read it\n".repeat(30);
        assert!(changed(1, &many).unwrap().ends_with(", 9 changed, and 10 more changed"));
    }

    #[test]
    fn one_file_is_a_file_on_the_other_side_too() {
        let names = |to: &str| file_at(Path::new("conf/a.yaml"), to);
        let at = |folder: &str, name: &str| (folder.to_owned(), name.to_owned());
        assert_eq!(names(""), at("", "a.yaml"));
        assert_eq!(names("b.yaml"), at("", "b.yaml"));
        assert_eq!(names("conf/b.yaml"), at("conf", "b.yaml"));
        assert_eq!(names("conf/"), at("conf/", "a.yaml"));
        assert_eq!(names("."), at(".", "a.yaml"));
        assert_eq!(names("/b.yaml"), at("/", "b.yaml"));
        let here = tempfile::tempdir().unwrap();
        let one = || {
            let mut archive = tar::Builder::new(tempfile::tempfile().unwrap());
            let mut header = tar::Header::new_gnu();
            header.set_size(1);
            header.set_mode(0o644);
            archive.append_data(&mut header, "a.txt", &b"a"[..]).unwrap();
            let mut file = archive.into_inner().unwrap();
            file.seek(SeekFrom::Start(0)).unwrap();
            file
        };
        for (to, file) in [("new/b.txt", "new/b.txt"), ("new", "new/a.txt"), ("made/", "made/a.txt"), ("c", "c")] {
            let to = format!("{}/{to}", here.path().display());
            assert_eq!(unpack(one(), &Place::of(&to)).unwrap().bytes, 1);
            assert_eq!(std::fs::read(here.path().join(file)).unwrap(), b"a", "{to}");
        }
        // A device or a pipe stays one, and a link is followed.
        let place = |name: &str| here.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(place("pipe")).status().unwrap();
        assert!(made.success());
        for to in ["pipe", "to-pipe"] {
            let _ = std::os::unix::fs::symlink("pipe", place("to-pipe"));
            let refused = unpack(one(), &Place::Named(place(to))).unwrap_err();
            assert!(refused.to_string().contains("neither file nor folder"), "{refused}");
        }
        std::fs::rename(place("pipe"), place("a.txt")).unwrap();
        assert_eq!(unpack(one(), &Place::Folder(here.path().to_owned())).unwrap().special, [Path::new("a.txt")]);
        assert!(is_no_file(&place("a.txt")), "it is still a pipe");
        std::os::unix::fs::symlink("c", place("link")).unwrap();
        std::fs::write(place("c"), "").unwrap();
        unpack(one(), &Place::Named(place("link"))).unwrap();
        assert!(place("link").is_symlink() && std::fs::read(place("c")).unwrap() == b"a");
    }

    #[test]
    fn a_place_in_a_workspace_begins_with_its_name() {
        assert_eq!(remote("dev:results"), Some(("dev", "results")));
        assert_eq!(remote("dev:"), Some(("dev", "")));
        for here in ["results", "./a:b", "/tmp/a:b", "../dev:x", ":x"] {
            assert_eq!(remote(here), None, "{here}");
        }
    }
}
