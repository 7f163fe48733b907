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
const FILE: &str = "rekindle.toml";

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

/// `rekindle.toml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    aliases: BTreeMap<String, String>,
    presets: BTreeMap<String, toml::Table>,
    folders: BTreeMap<String, PathBuf>,
}

/// Everything that has a name.
#[derive(Debug, Default)]
pub(crate) struct Project {
    aliases: BTreeMap<String, String>,
    presets: BTreeMap<String, Map<String, Value>>,
    folders: BTreeMap<String, PathBuf>,
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
        let user = config::user_file(config)?;
        let base = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        project.add(File { aliases: user.aliases, presets: user.presets, folders: user.folders }, &base)?;
        if let Some(path) = folder.ancestors().map(|folder| folder.join(FILE)).find(|path| path.is_file()) {
            let base = path.parent().unwrap_or(folder).to_owned();
            project.add(read(&path)?, &base)?;
        }
        Ok(project)
    }

    /// What comes later wins.
    fn add(&mut self, file: File, base: &Path) -> Result<()> {
        self.aliases.extend(file.aliases);
        for (name, part) in file.presets {
            let value = serde_json::to_value(part)
                .map_err(|error| Fault::input(format!("the preset {name:?} cannot be used")).caused_by(&error))?;
            let Value::Object(part) = value else { continue };
            self.presets.insert(name, part);
        }
        let home = std::env::var_os("HOME").map(PathBuf::from);
        for (name, folder) in file.folders {
            let folder = match (folder.strip_prefix("~"), &home) {
                (Ok(rest), Some(home)) => home.join(rest),
                _ => base.join(folder),
            };
            self.folders.insert(name, folder);
        }
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
        Err(match nearest(key, self.aliases.keys()) {
            Some(near) => fault.next(format!("did you mean {near}={value}? ({near} is {})", self.aliases[near])),
            None => fault.next(format!(
                "aliases are {}; a full name begins with {FULL}; others go into [aliases] of {FILE}, or behind `--`",
                self.aliases.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
            )),
        })
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
        let known: Vec<String> = self.presets.keys().cloned().chain(recovery.map(str::to_owned)).collect();
        let fault = Fault::input(format!("there is no preset {name:?}"));
        Err(match nearest(name, known.iter()) {
            Some(near) => fault.next(format!("did you mean {near}?")),
            None => fault.next(format!("known are {}; more go into [presets.NAME] of {FILE}", known.join(", "))),
        })
    }

    /// A folder: a path that exists, or one by name.
    pub(crate) fn folder(&self, given: &Path) -> Result<PathBuf> {
        if given.is_dir() {
            return Ok(given.to_owned());
        }
        if let Some(folder) = given.to_str().and_then(|name| self.folders.get(name)) {
            return Ok(folder.clone());
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

fn read(path: &Path) -> Result<File> {
    let cannot = |error: &(dyn std::error::Error + 'static)| {
        Fault::input(format!("cannot use {}", path.display())).because(error.to_string().trim_end().to_owned())
    };
    let text = std::fs::read_to_string(path).map_err(|error| cannot(&error))?;
    toml::from_str(&text)
        .map_err(|error| cannot(&error).next("it knows the tables [aliases], [presets.NAME] and [folders]"))
}

/// The most similar of the known words, if one is similar at all.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    const LEAST: f64 = 0.75;
    let scored = known.map(|known| (strsim::jaro_winkler(word, known), known.as_str()));
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= LEAST).then_some(best.1)
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
        assert_eq!(argument("bs=64"), "--config.training.batch_size=64");
        assert_eq!(argument("config.data.filter=a=b c=="), "--config.data.filter=a=b c==");
        assert_eq!(argument("--config.x=1"), "--config.x=1");
        let text = project.argument("dpth=2").unwrap_err().text();
        assert!(text.contains("did you mean depth=2?"), "{text}");
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
    fn a_wrong_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "[alias]\n").unwrap();
        let none = folder.path().join("none.toml");
        let text = Project::load(folder.path(), Some(&none)).unwrap_err().text();
        assert!(text.contains(FILE) && text.contains("alias"), "{text}");
    }
}
