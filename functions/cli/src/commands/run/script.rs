//! The script that the program names, and whether the folder that is sent has it. Without it each worker of a TPU that was waited for
//! ends with "no such file", and the job does so twice: such an end is answered by `setup` and a second attempt.
//!
//! What cannot be told for certain (a `cd` before it, a variable, a module of Python) is not looked at: a job that would run is never refused.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use crate::bundle::{Bundle, LeftOut};
use crate::fault::{Fault, Result};
use crate::human;
use crate::printer::Printer;
use crate::project::nearest;

/// Names of files less similar than this were not meant: their endings are alike already.
const NEAR: f64 = 0.85;

/// Shells that take a script as their first word.
const SHELLS: [&str; 4] = ["bash", "sh", "dash", "zsh"];

/// Refuses a program whose script is not in the folder; where `setup` may make it there is a warning only.
///
/// Without a bundle nothing of the folder is sent.
pub(super) fn check(job: &Map<String, Value>, folder: &Path, bundle: Option<&Bundle>, printer: Printer) -> Result<()> {
    // What lies in an image is not known here.
    if job.contains_key("image") {
        return Ok(());
    }
    let Some(Script { path: script, is_run }) = job.get("run").and_then(script_of) else { return Ok(()) };
    let Some(path) = within(&script) else { return Ok(()) };
    let has_setup = job.get("setup").is_some_and(|setup| !setup.is_null());
    if bundle.is_some_and(|bundle| has(bundle, &path)) {
        // `setup` may give it the bit.
        return if is_run && !has_setup { executable(&script, &folder.join(&path)) } else { Ok(()) };
    }
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let is = folder.join(&path);
    let folder = folder.display();
    if has_setup {
        let told = format!("the program {script} is not in {folder}, which is sent: `setup` has to make it");
        printer.warn(&human::tame(&told));
        return Ok(());
    }
    let fault = Fault::input(format!("the program {script} is not in the folder that is sent, {folder}"));
    if is.is_file() {
        let why = bundle.map_or_else(|| LeftOut::Rules(Vec::new()), |bundle| bundle.left_out(&path));
        return Err(left_out(fault, why));
    }
    let fault = if is.is_dir() { fault.because("a folder is called so, and no file") } else { fault };
    Err(match bundle.and_then(|bundle| near(bundle, &path)) {
        Some(near) => fault.next(format!("did you mean {near}?")),
        None => fault.next(
            "name a file of that folder (`--dry-run --files` lists what is sent), or another folder with --folder; or let `setup` \
             make it",
        ),
    })
}

/// Refuses a program that no worker may execute.
fn executable(script: &str, path: &Path) -> Result<()> {
    let is_none = path.metadata().is_ok_and(|is| is.is_file() && is.permissions().mode() & 0o111 == 0);
    if !is_none {
        return Ok(());
    }
    let fault = Fault::input(format!("the program {script} may not be executed"))
        .because("its mode has no x, and goes along as it is");
    let by = match path.extension().and_then(std::ffi::OsStr::to_str) {
        Some("py") => format!(", or let Python run it: python3 {script}"),
        Some("sh") => format!(", or let bash run it: bash {script}"),
        Some(_) | None => String::new(),
    };
    Err(fault.next(format!("chmod +x {script}{by}")))
}

/// Why a script that is there is not sent, and how it comes along.
fn left_out(fault: Fault, why: LeftOut) -> Fault {
    match why {
        LeftOut::Environment(part) => fault
            .because(format!("it is in the virtual environment {}, which is not sent", part.display()))
            .next("let `setup` make one where the job runs"),
        LeftOut::Never(part) => fault
            .because(format!("it is in {}, which is never sent", part.display()))
            .next("move it to another place in the folder"),
        LeftOut::Rules(rules) => {
            let fault = fault.because("it is there, and .gitignore or .rekindleignore leaves it out");
            fault.next(match rules.as_slice() {
                [] => "take the line that does so out of them".to_owned(),
                [_] => format!("write {} at the end of .rekindleignore", rules.concat()),
                [first @ .., last] => format!(
                    "write {} and {last}, each on a line of its own and in this order, at the end of .rekindleignore",
                    first.join(", ")
                ),
            })
        }
    }
}

/// Whether it is sent, or lies behind a link that is.
fn has(bundle: &Bundle, path: &Path) -> bool {
    path.ancestors().any(|part| bundle.files().contains(part))
}

/// The path within the folder in its simplest form; `None`: it leads out of it.
fn within(script: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(script).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => path.push(name),
            // What stands before it may be a link.
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!path.as_os_str().is_empty()).then_some(path)
}

/// The file that was meant: the same name elsewhere in the folder, else the most similar one.
fn near(bundle: &Bundle, path: &Path) -> Option<String> {
    let name = path.file_name();
    let same = bundle.files().iter().find(|file| file.file_name() == name);
    if let Some(same) = same {
        return Some(same.display().to_string());
    }
    let wanted = path.to_str()?;
    let alike = bundle.files().iter().filter(|file| file.extension() == path.extension());
    nearest(wanted, alike.filter_map(|file| file.to_str()), NEAR).map(str::to_owned)
}

/// What a program's words name.
#[derive(Debug, PartialEq, Eq)]
struct Script {
    /// A relative path.
    path: String,
    /// It is the program itself, and no interpreter's.
    is_run: bool,
}

/// The script in `run`, if it names one.
fn script_of(run: &Value) -> Option<Script> {
    match run {
        Value::Array(words) => of_words(&words.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?),
        Value::String(line) => of_line(line),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// The first command of a line of bash, as far as its words are what they look like, where nothing but it and what is done after
/// it went well stands there: bash goes on after another that fails.
fn of_line(line: &str) -> Option<Script> {
    let is_plain = |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c));
    // A line that goes on below is one, unless the backslash is part of a comment or is itself escaped.
    let is_joined = !line.contains('#') && !line.contains("\\\\");
    let line = if is_joined { line.replace("\\\n", " ") } else { line.to_owned() };
    let line = line.trim();
    // `2>&1`, `&>file` and `|&` put nothing into the background.
    let rest = ["&&", ">&", "&>", "|&"].iter().fold(line.to_owned(), |rest, harmless| rest.replace(harmless, " "));
    // Nor does bash ask how what stands before a pipe ended.
    let is_hidden = line.contains("&&") && line.contains('|');
    if is_hidden || line.contains("||") || rest.contains(['\n', ';', '&']) {
        return None;
    }
    let words = line.split_ascii_whitespace().take_while(is_plain).collect::<Vec<_>>();
    let words = words.strip_prefix(&["exec"][..]).unwrap_or(&words);
    let assigned = words.iter().take_while(|word| is_assignment(word)).count();
    of_words(words.get(assigned..)?)
}

/// `NAME=VALUE` before a command.
fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name).unwrap_or_default();
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn of_words(words: &[&str]) -> Option<Script> {
    let script = |word: &str, is_run| Script { path: word.to_owned(), is_run };
    let words = match words {
        ["env", rest @ ..] => &rest[rest.iter().take_while(|word| is_assignment(word)).count()..],
        words => words,
    };
    let (program, rest) = words.split_first()?;
    let name = program.rsplit('/').next()?;
    if is_python(name) {
        return first_word(rest, "cm", "WX").filter(|word| is_script(word)).map(|word| script(word, false));
    }
    if SHELLS.contains(&name) {
        if let [options, line] = rest
            && options.starts_with('-')
            && options.ends_with('c')
        {
            return of_line(line);
        }
        return first_word(rest, "cs", "oO").filter(|word| is_script(word)).map(|word| script(word, false));
    }
    // A word without a slash is looked for where programs are.
    (program.contains('/') && !program.starts_with('/')).then(|| script(program, true))
}

/// `python`, `python3`, `python3.12`.
fn is_python(name: &str) -> bool {
    name.strip_prefix("python").is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

fn is_script(word: &str) -> bool {
    !word.starts_with('/') && [".py", ".sh"].iter().any(|ending| word.len() > ending.len() && word.ends_with(ending))
}

/// The first word that is no option. `None` also where an option of one of `others` has something else run in its place;
/// those of `with_word` take the next word with them.
fn first_word<'a>(words: &[&'a str], others: &str, with_word: &str) -> Option<&'a str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(flags) = word.strip_prefix('-').or_else(|| word.strip_prefix('+')) else { return Some(word) };
        match flags {
            // What follows is none, whatever it begins with; `-` alone is what comes through a pipe.
            "-" => return words.next().copied(),
            "" => return None,
            // A long one may have a word of its own.
            long if long.starts_with('-') => return None,
            short if short.contains(|c| others.contains(c)) => return None,
            short if short.len() == 1 && with_word.contains(short) => drop(words.next()),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const IGNORE: &str = ".rekindleignore";

    #[test]
    fn a_script_is_found_where_it_is_certain() {
        for (run, want) in [
            (json!(["python3", "trian.py", "--lr=1"]), "trian.py"),
            (json!(["/usr/bin/python3.12", "-u", "-W", "ignore", "a/b.py"]), "a/b.py"),
            (json!(["env", "A=1", "python", "--", "x.py"]), "x.py"),
            (json!(["bash", "-e", "-o", "pipefail", "go.sh"]), "go.sh"),
            (json!(["./go", "x"]), "./go"),
            (json!(["tools/go.sh"]), "tools/go.sh"),
            (json!(["bash", "-ec", "python3 a.py"]), "a.py"),
            (json!("A=1 B=c python3 a.py \"$@\" | tee log"), "a.py"),
            (json!("exec ./go.sh && python3 b.py"), "./go.sh"),
            (json!("python3 a.py\n"), "a.py"),
            (json!("python3 a.py \\\n  --lr 1 \\\n  --x 2\n"), "a.py"),
            (json!("python3 a.py --lr 1 >log 2>&1"), "a.py"),
        ] {
            let script = script_of(&run).unwrap();
            assert_eq!((script.path.as_str(), script.is_run), (want, want.contains("go") && want != "go.sh"), "{run}");
        }
    }

    #[test]
    fn what_may_be_anything_is_no_script() {
        for run in [
            json!(["python3", "-m", "train.py"]),
            json!(["python3", "-uc", "train.py"]),
            json!(["python3", "-", "train.py"]),
            json!(["python3", "--check-hash-based-pycs", "never", "a.py"]),
            json!(["python3", "/opt/train.py"]),
            json!(["python3", "folder"]),
            json!(["python3"]),
            json!(["pythonic", "a.py"]),
            json!(["bash", "-s", "a.sh"]),
            json!(["/opt/go.sh"]),
            json!(["go.sh"]),
            json!(["torchrun", "a.py"]),
            json!(["env", "-i", "python3", "a.py"]),
            json!("cd sub && python3 a.py"),
            json!("python3 $SCRIPT a.py"),
            json!("python3 'a b.py'"),
            json!("# python3 a.py"),
            json!("python3 a.py; true"),
            json!("./a.sh || true"),
            json!("./a.sh\npython3 b.py"),
            json!("./a.sh # \\\npython3 b.py"),
            json!("./a.sh 2>x; true"),
            json!("./a.sh | tee log && python3 b.py"),
            json!("./a.sh & python3 b.py"),
            json!("./a.sh >x & python3 b.py"),
            json!(["bash", "-c", "./a.sh || true"]),
            json!(""),
            json!([]),
            json!(null),
        ] {
            assert_eq!(script_of(&run), None, "{run}");
        }
    }

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What is said of this program with that folder; `None`: it may run.
    fn said(root: &Path, script: &str) -> Option<String> {
        let printer = Printer::new(false, anstream::ColorChoice::Never);
        let bundle = Bundle::of(root, crate::bundle::Times::Fixed, printer).unwrap();
        let job = json!({"run": [script]});
        let fault = check(job.as_object().unwrap(), root, bundle.as_ref(), printer).err()?;
        Some(anstream::adapter::strip_str(&fault.text()).to_string())
    }

    #[test]
    fn what_the_hint_names_brings_a_left_out_script_back_and_nothing_else() {
        for (rules, script, beside) in [
            ("build/\n", "build/go", "build/other"),
            ("/build\n", "build/deep/go", "build/deep/other"),
            ("build/*\n", "build/deep/go", "build/deep/other"),
            ("go\n", "open/go", "open/sub/go"),
            ("*.sh\n", "a*[1] {b}.sh", "ab.sh"),
        ] {
            let root = tempfile::tempdir().unwrap();
            let root = root.path();
            for (path, text) in
                [(script, ""), (beside, ""), ("open/x", ""), (".gitignore", rules), (IGNORE, "# ours\n")]
            {
                write(root, path, text);
            }
            let text = said(root, &format!("./{script}")).unwrap();
            assert!(text.contains(".gitignore or .rekindleignore leaves it out"), "{text}");
            let (_, next) = text.split_once("next: write ").unwrap();
            let (lines, _) = next.split_once(", each on a line").or_else(|| next.split_once(" at the end of")).unwrap();
            write(root, IGNORE, &format!("# ours\n{}\n", lines.replace(", ", "\n").replace(" and ", "\n")));
            assert_eq!(said(root, &format!("./{script}")), None, "{next}");
            let printer = Printer::new(false, anstream::ColorChoice::Never);
            let bundle = Bundle::of(root, crate::bundle::Times::Fixed, printer).unwrap().unwrap();
            assert!(!bundle.files().contains(Path::new(beside)), "{next}");
        }
    }

    #[test]
    fn a_program_without_the_bit_is_refused_and_an_interpreters_is_not() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for path in ["train.py", "go", "deep/go.sh", "fine"] {
            write(root, path, "");
            let mode = if path == "fine" { 0o755 } else { 0o644 };
            std::fs::set_permissions(root.join(path), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let text = said(root, "./train.py").unwrap();
        assert!(text.contains("the program ./train.py may not be executed\n"), "{text}");
        assert!(text.contains("next: chmod +x ./train.py, or let Python run it: python3 ./train.py"), "{text}");
        assert!(said(root, "deep/go.sh").unwrap().contains("or let bash run it: bash deep/go.sh"));
        assert!(said(root, "./go").unwrap().ends_with("next: chmod +x ./go\n"));
        assert_eq!(said(root, "./fine"), None);
        let printer = Printer::new(false, anstream::ColorChoice::Never);
        let bundle = Bundle::of(root, crate::bundle::Times::Fixed, printer).unwrap();
        for job in [json!({"run": ["python3", "train.py"]}), json!({"run": ["./go"], "setup": "chmod +x go"})] {
            assert!(check(job.as_object().unwrap(), root, bundle.as_ref(), printer).is_ok(), "{job}");
        }
    }

    #[test]
    fn what_no_rule_brings_back_is_not_laid_to_the_rules() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for path in ["train.py", ".venv/pyvenv.cfg", ".venv/bin/torchrun", "lib/.git/hooks/go", "go/inner.sh"] {
            write(root, path, "");
        }
        for (script, why, next) in [
            (
                ".venv/bin/torchrun",
                "in the virtual environment .venv, which is not sent",
                "let `setup` make one where the job runs",
            ),
            ("lib/.git/hooks/go", "it is in lib/.git, which is never sent", "move it to another place in the folder"),
            ("./go", "a folder is called so, and no file", "name a file of that folder"),
        ] {
            let text = said(root, script).unwrap();
            assert!(text.contains(why) && text.contains(next) && !text.contains(IGNORE), "{text}");
        }
    }

    #[test]
    fn a_path_is_simple_and_within_the_folder() {
        for (script, want) in
            [("./a.py", Some("a.py")), ("a/./b.py", Some("a/b.py")), ("../a.py", None), ("a/../b.py", None)]
        {
            assert_eq!(within(script), want.map(PathBuf::from), "{script}");
        }
    }
}
