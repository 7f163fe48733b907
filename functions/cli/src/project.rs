//! What a project and a person have set for all their runs: aliases of arguments, presets of job parts, named folders.
//!
//! `rekindle.toml` in the current folder or the nearest one above it, then the user's configuration, then what is built
//! in: the first that has a name wins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::config;
use crate::fault::{Fault, Result};

/// Name of the project's file.
pub(crate) const FILE: &str = "rekindle.toml";

/// Short names that training programs of the forerunners took.
const ALIASES: [(&str, &str); 7] = [
    ("lr", "--config.training.learning_rate"),
    ("bs", "--config.training.batch_size"),
    ("ep", "--config.training.num_epochs"),
    ("wd", "--config.training.weight_decay"),
    ("b1", "--config.training.adam_b1"),
    ("b2", "--config.training.adam_b2"),
    ("ckpt", "--config.load_from"),
];

/// Accelerators of the presets that are built in.
const PRESET_TPUS: [(&str, &str); 4] = [("v4", "v4-8"), ("v5e", "v5litepod-8"), ("v5p", "v5p-8"), ("v6e", "v6e-8")];
/// How their names begin, and what they buy.
const PRESET_KINDS: [(&str, &str); 2] = [("spot", "spot"), ("ondemand", "on_demand")];

/// Full names of arguments begin so; any other key must be an alias.
const FULL: &str = "config.";

/// Field of a preset that is none of the job: the folder that is sent.
const FOLDER: &str = "folder";

/// `rekindle.toml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    folder: Option<PathBuf>,
    aliases: BTreeMap<String, String>,
    presets: BTreeMap<String, toml::Table>,
    folders: BTreeMap<String, PathBuf>,
}

/// A folder that a file sets: one of the names of any file, or a path from where paths of this file begin: its own folder,
/// for the user's the home folder.
#[derive(Debug, Clone)]
struct Place {
    given: PathBuf,
    base: PathBuf,
    /// The file, for messages.
    file: PathBuf,
}

/// Everything that has a name.
#[derive(Debug, Default)]
pub(crate) struct Project {
    aliases: BTreeMap<String, String>,
    presets: BTreeMap<String, Map<String, Value>>,
    folders: BTreeMap<String, PathBuf>,
    /// What is sent where nothing else is said.
    folder: Option<Place>,
    /// The project's file, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// What is sent with a preset.
    preset_folders: BTreeMap<String, Place>,
}

impl Project {
    /// Reads the files for a folder.
    pub(crate) fn load(folder: &Path, config: Option<&Path>) -> Result<Self> {
        let mut project = Self::default();
        for (name, argument) in ALIASES {
            project.aliases.insert(name.to_owned(), argument.to_owned());
        }
        for (tpu, accelerator) in PRESET_TPUS {
            for (word, kind) in PRESET_KINDS {
                let part = serde_json::json!({"tpu": {"accelerator": accelerator, "capacity": [kind]}});
                project.presets.insert(format!("{word}-{tpu}"), part.as_object().cloned().unwrap_or_default());
            }
        }
        let (user, path) = config::user_file(config)?;
        let base = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let (folder_of_user, aliases, presets, folders) = (user.folder, user.aliases, user.presets, user.folders);
        project.add(File { folder: folder_of_user, aliases, presets, folders }, &base, &path.unwrap_or_default())?;
        if let Some(path) = folder.ancestors().map(|folder| folder.join(FILE)).find(|path| path.is_file()) {
            let base = path.parent().unwrap_or(folder).to_owned();
            project.add(read(&path)?, &base, &path)?;
            project.file = Some(path);
        }
        Ok(project)
    }

    /// What comes later wins.
    fn add(&mut self, file: File, base: &Path, path: &Path) -> Result<()> {
        let place = |given: PathBuf| Place { given, base: base.to_owned(), file: path.to_owned() };
        self.aliases.extend(file.aliases);
        self.folder = file.folder.map(place).or_else(|| self.folder.take());
        for (name, mut part) in file.presets {
            match part.remove(FOLDER) {
                Some(toml::Value::String(given)) => self.preset_folders.insert(name.clone(), place(given.into())),
                Some(_) => {
                    return Err(Fault::input(format!("the folder of the preset {name:?} is no text"))
                        .next(format!("write folder = \"NAME or path\" in {}", path.display())));
                }
                None => self.preset_folders.remove(&name),
            };
            let value = serde_json::to_value(part)
                .map_err(|error| Fault::input(format!("the preset {name:?} cannot be used")).caused_by(&error))?;
            let Value::Object(part) = value else { continue };
            self.presets.insert(name, part);
        }
        self.folders.extend(file.folders.into_iter().map(|(name, folder)| (name, from(base, &folder))));
        Ok(())
    }

    /// The program argument for `key=value`.
    pub(crate) fn argument(&self, pair: &str) -> Result<String> {
        let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(Fault::input(format!("{pair:?} is no argument of the program"))
                .next("write KEY=VALUE; the program itself goes behind `--`"));
        };
        if let Some(argument) = self.aliases.get(key) {
            return Ok(format!("{argument}={value}"));
        }
        let bare = key.strip_prefix("--").unwrap_or(key);
        if bare.len() > FULL.len() && bare.starts_with(FULL) {
            return Ok(format!("--{bare}={value}"));
        }
        let fault = Fault::input(format!("{key:?} is no known argument"));
        // By what they stand for, too: `learning_rate` is `lr`.
        let words = self.aliases.iter().flat_map(|(alias, full)| [alias.as_str(), last_part(full)]);
        let near = nearest(bare, words.filter(|word| is_slip(bare, word)), LEAST);
        let alias = near.and_then(|near| {
            let stands = |(alias, full): &(&String, &String)| alias.as_str() == near || last_part(full) == near;
            self.aliases.iter().find(stands)
        });
        Err(match alias {
            Some((near, full)) => fault.next(format!("did you mean {near}={value}? ({near} is {full})")),
            None => fault.next(format!(
                "aliases are {}; a full name begins with {FULL}; others go into [aliases] of {FILE}, or into the program's own words",
                self.aliases.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
            )),
        })
    }

    /// Short names of the program's arguments.
    pub(crate) fn alias_names(&self) -> Vec<String> {
        self.aliases.keys().cloned().collect()
    }

    /// Short names of the program's arguments, and what each stands for.
    pub(crate) fn aliases(&self) -> &BTreeMap<String, String> {
        &self.aliases
    }

    /// Folders by name.
    pub(crate) fn folders(&self) -> &BTreeMap<String, PathBuf> {
        &self.folders
    }

    /// Every name that `--preset` takes.
    pub(crate) fn preset_names(&self) -> Vec<String> {
        let recovery = rekindle_core::policy::Preset::ALL.map(rekindle_core::policy::Preset::as_str);
        self.presets.keys().cloned().chain(recovery.map(str::to_owned)).collect()
    }

    /// The part of a job with that name; `None`: it is a word for what to do about failures.
    pub(crate) fn preset(&self, name: &str) -> Result<Option<&Map<String, Value>>> {
        let recovery = rekindle_core::policy::Preset::ALL.map(rekindle_core::policy::Preset::as_str);
        if let Some(part) = self.presets.get(name) {
            return Ok(Some(part));
        }
        if recovery.contains(&name) {
            return Ok(None);
        }
        let known = self.preset_names();
        let fault = Fault::input(format!("there is no preset {name:?}"));
        Err(match nearest(name, known.iter().map(String::as_str), LEAST) {
            Some(near) => fault.next(format!("did you mean {near}?")),
            None => fault.next(format!("known are {}; more go into [presets.NAME] of {FILE}", known.join(", "))),
        })
    }

    /// The folder that the last of these presets with one sets.
    pub(crate) fn preset_folder(&self, presets: &[String]) -> Result<Option<PathBuf>> {
        let last = presets.iter().rev().find_map(|name| Some((name, self.preset_folders.get(name)?)));
        last.map(|(name, place)| self.at(place, &format!("of the preset {name:?}"))).transpose()
    }

    /// The folder that is sent where none is named: of the last preset with one, else of the project, else of the user.
    pub(crate) fn default_folder(&self, presets: &[String]) -> Result<Option<PathBuf>> {
        match (self.preset_folder(presets)?, &self.folder) {
            (None, Some(place)) => self.at(place, "that is sent by default").map(Some),
            (folder, _) => Ok(folder),
        }
    }

    fn at(&self, place: &Place, which: &str) -> Result<PathBuf> {
        let named = place.given.to_str().and_then(|name| self.folders.get(name)).cloned();
        let folder = named.unwrap_or_else(|| from(&place.base, &place.given));
        if folder.is_dir() {
            return Ok(folder);
        }
        let what = format!("the folder {which} is not there: {}", folder.display());
        let file = place.file.display();
        Err(Fault::input(what).next(format!("make it, change `folder` in {file}, or name another with --folder")))
    }

    /// A folder: a path that exists, or one by name.
    pub(crate) fn folder(&self, given: &Path) -> Result<PathBuf> {
        if given.is_dir() {
            return Ok(given.to_owned());
        }
        if let Some(folder) = given.to_str().and_then(|name| self.folders.get(name)) {
            if folder.is_dir() {
                return Ok(folder.clone());
            }
            let what = format!("the folder of the name {} is not there: {}", given.display(), folder.display());
            return Err(Fault::input(what).next(format!("make it, or change [folders] in {FILE} or the configuration")));
        }
        let fault = Fault::input(format!("there is no folder {}", given.display()));
        let named: Vec<&str> = self.folders.keys().map(String::as_str).collect();
        Err(if named.is_empty() {
            fault.next(format!("name one that exists; [folders] of {FILE} gives folders names"))
        } else {
            fault.next(format!("name one that exists, or one of {}", named.join(", ")))
        })
    }
}

/// A path as it stands in a file: from `base`, or with `~` from the home folder.
fn from(base: &Path, folder: &Path) -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    match (folder.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => base.join(folder),
    }
}

fn read(path: &Path) -> Result<File> {
    let cannot = |error: &(dyn std::error::Error + 'static)| {
        Fault::input(format!("cannot use {}", path.display())).because(error.to_string().trim_end().to_owned())
    };
    let text = std::fs::read_to_string(path).map_err(|error| {
        let is_text = error.kind() != std::io::ErrorKind::InvalidData;
        let next = if is_text { "make it a file that you may read, or move it away" } else { "save it as UTF-8" };
        cannot(&error).next(next)
    })?;
    toml::from_str(&text).map_err(|error| {
        let meant = meant(&text, &FIELDS[..]);
        cannot(&error).next(format!("{meant}it knows `folder`, and the tables [aliases], [presets.NAME] and [folders]"))
    })
}

/// What stands in the project's file.
const FIELDS: [&str; 4] = ["folder", "aliases", "presets", "folders"];

/// `did you mean aliases? ` where a file of settings has a field that is like a known one; else nothing.
pub(crate) fn meant(text: &str, known: &[&str]) -> String {
    let fields = text.parse::<toml::Table>().unwrap_or_default();
    let mut unknown = fields.keys().filter(|field| !known.contains(&field.as_str()));
    let near = unknown.find_map(|field| nearest(field, known.iter().copied(), LEAST));
    near.map(|near| format!("did you mean {near}? ")).unwrap_or_default()
}

/// Words less similar than this have nothing to do with each other.
const LEAST: f64 = 0.75;

/// The most similar of the known words, if one is so similar (0 to 1).
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>, least: f64) -> Option<&'a str> {
    let scored = known.map(|known| (strsim::jaro_winkler(word, known), known));
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= least).then_some(best.1)
}

/// Whether few enough letters differ for their length: names of two letters share one with nearly every word.
fn is_slip(typed: &str, known: &str) -> bool {
    strsim::normalized_damerau_levenshtein(typed, known) >= LEAST_SLIP
}

/// Arguments less similar than this are two of them.
const LEAST_SLIP: f64 = 0.6;

/// `learning_rate` of `--config.training.learning_rate`.
fn last_part(full: &str) -> &str {
    full.rsplit('.').next().unwrap_or(full)
}

/// Puts a part of a job over another one: maps are joined, everything else is replaced.
pub(crate) fn join(job: &mut Map<String, Value>, part: &Map<String, Value>) {
    for (field, value) in part {
        match (job.get_mut(field), value) {
            (Some(Value::Object(below)), Value::Object(above)) => join(below, above),
            _ => {
                job.insert(field.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn project(text: &str) -> (tempfile::TempDir, Project) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        let none = folder.path().join("none.toml");
        let project = Project::load(&folder.path().join("a/b"), Some(&none)).unwrap();
        (folder, project)
    }

    #[test]
    fn aliases_and_full_names_become_arguments_and_values_may_hold_anything() {
        let (_folder, project) = project("[aliases]\nlr = \"--lr\"\ndepth = \"--config.model.depth\"\n");
        let argument = |pair: &str| project.argument(pair).unwrap();
        assert_eq!(argument("lr=0.1"), "--lr=0.1", "the project's word wins");
        for (short, full) in [
            ("bs", "training.batch_size"),
            ("ep", "training.num_epochs"),
            ("wd", "training.weight_decay"),
            ("b1", "training.adam_b1"),
            ("b2", "training.adam_b2"),
            ("ckpt", "load_from"),
        ] {
            assert_eq!(argument(&format!("{short}=64")), format!("--config.{full}=64"));
        }
        assert_eq!(argument("config.data.filter=a=b c=="), "--config.data.filter=a=b c==");
        assert_eq!(argument("--config.x=1"), "--config.x=1");
        let text = project.argument("dpth=2").unwrap_err().text();
        assert!(text.contains("did you mean depth=2?"), "{text}");
        let text = self::project("").1.argument("depth=3").unwrap_err().text();
        assert!(!text.contains("did you mean") && text.contains("[aliases]") && text.contains("config."), "{text}");
        let text = project.argument("zzz=2").unwrap_err().text();
        assert!(text.contains("config.") && text.contains("bs"), "{text}");
        assert!(project.argument("lr").unwrap_err().text().contains("KEY=VALUE"));
    }

    #[test]
    fn presets_are_found_in_the_nearest_file_and_built_in() {
        let (_folder, project) = project("[presets.mine]\ntpu = { accelerator = \"v4-8\" }\npriority = 70\n");
        let mine = project.preset("mine").unwrap().unwrap();
        assert_eq!(Value::Object(mine.clone()), json!({"tpu": {"accelerator": "v4-8"}, "priority": 70}));
        let built_in = project.preset("spot-v6e").unwrap().unwrap();
        assert_eq!(built_in["tpu"], json!({"accelerator": "v6e-8", "capacity": ["spot"]}));
        assert_eq!(project.preset("rerun").unwrap(), None);
        assert!(project.preset("spot-v6").unwrap_err().text().contains("did you mean spot-v6e?"));
    }

    #[test]
    fn every_preset_that_is_built_in_is_of_the_catalogue() {
        for (_, accelerator) in PRESET_TPUS {
            assert!(rekindle_core::catalog::accelerator(accelerator).is_some(), "{accelerator}");
        }
    }

    #[test]
    fn folders_have_names() {
        let (folder, project) = project("[folders]\ntrain = \"a\"\n");
        assert_eq!(project.folder(Path::new("train")).unwrap(), folder.path().join("a"));
        assert_eq!(project.folder(folder.path()).unwrap(), folder.path());
        assert!(project.folder(Path::new("trane")).unwrap_err().text().contains("train"));
    }

    #[test]
    fn the_folder_that_is_sent_has_defaults() {
        let text = "folder = \"train\"\n[folders]\ntrain = \"a\"\naway = \"b\"\n[presets.deep]\nfolder = \"a/b\"\npriority = 1\n\
                    [presets.flat]\npriority = 2\n[presets.lost]\nfolder = \"gone\"\n[presets.odd]\nfolder = \"train\"\n";
        let (folder, project) = project(text);
        let sent = |presets: &[&str]| {
            let presets: Vec<String> = presets.iter().map(|&name| name.to_owned()).collect();
            project.default_folder(&presets)
        };
        let here = folder.path();
        assert_eq!(sent(&[]).unwrap(), Some(here.join("a")));
        assert_eq!(sent(&["deep"]).unwrap(), Some(here.join("a/b")), "the preset's wins");
        assert_eq!(sent(&["deep", "odd", "flat"]).unwrap(), Some(here.join("a")), "the last that has one");
        assert_eq!(sent(&["flat", "spot-v6e"]).unwrap(), Some(here.join("a")));
        assert_eq!(project.preset_folder(&["flat".to_owned()]).unwrap(), None);
        let deep = project.preset("deep").unwrap().unwrap();
        assert_eq!(Value::Object(deep.clone()), json!({"priority": 1}), "it is no field of the job");
        let text = sent(&["lost"]).unwrap_err().text();
        let said = ["the folder of the preset \"lost\" is not there", "gone", FILE, "--folder"];
        assert!(said.iter().all(|word| text.contains(word)), "{text}");
        let text = project.folder(Path::new("away")).unwrap_err().text();
        assert!(text.contains("the folder of the name away is not there") && text.contains("[folders]"), "{text}");
    }

    #[test]
    fn the_preset_of_the_readme_goes_over_the_fields_it_names_and_leaves_the_others() {
        let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
        let part = |begin: &str| readme.split_once(begin).unwrap().1.split("```").next().unwrap().to_owned();
        let job = format!("id: llama{}", part("\nid: llama"));
        let mut job: Map<String, Value> = serde_saphyr::from_str(&job).unwrap();
        assert!(readme.contains("--preset big: over these fields of the file, lists whole"));
        let (_folder, project) = project(&part("```toml\n").replace('~', "/nonexistent"));
        join(&mut job, project.preset("big").unwrap().unwrap());
        let tpu = json!({
            "accelerator": "v5litepod-64", "zones": ["us-central1-a", "us-west4-a"], "capacity": ["spot"],
        });
        assert_eq!(job["tpu"], tpu);
        let part = json!({"tpu": {"zones": ["us-east5-b"]}});
        join(&mut job, part.as_object().unwrap());
        assert_eq!(job["tpu"]["zones"], json!(["us-east5-b"]), "a list is replaced");
    }

    #[test]
    fn the_users_default_folder_yields_to_the_projects() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["mine", "here/sub", "elsewhere"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        let mine = format!("folder = \"mine\"\n[folders]\nmine = {:?}\n", at("mine"));
        std::fs::write(at("config.toml"), mine).unwrap();
        std::fs::write(at("here").join(FILE), "folder = \"sub\"\n").unwrap();
        let of = |name: &str| {
            Project::load(&at(name), Some(&at("config.toml"))).unwrap().default_folder(&[]).unwrap().unwrap()
        };
        assert_eq!(of("here"), at("here/sub"));
        assert_eq!(of("elsewhere"), at("mine"));
        std::fs::write(at("here").join(FILE), "[presets.a]\nfolder = 1\n").unwrap();
        let text = Project::load(&at("here"), None).unwrap_err().text();
        assert!(text.contains("the folder of the preset \"a\" is no text") && text.contains(FILE), "{text}");
    }

    #[test]
    fn a_wrong_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "[alias]\n").unwrap();
        let none = folder.path().join("none.toml");
        let text = Project::load(folder.path(), Some(&none)).unwrap_err().text();
        assert!(text.contains(FILE) && text.contains("alias"), "{text}");
    }
}
