//! Where the server is and how to prove who one is: options, environment, configuration file, in this order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::fault::{Fault, Result};
use crate::project;

/// What is asked when nothing is configured: the address of `rekindle dev`.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// `config.toml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct File {
    /// Address of the api service.
    pub(crate) server: Option<String>,
    /// Command whose output is the bearer token.
    pub(crate) token_command: Option<Vec<String>>,
    /// Folder that `run` sends where none is named: a name of `folders`, or a path.
    pub(crate) folder: Option<PathBuf>,
    /// Short names of program arguments: `lr = "--config.training.learning_rate"`.
    pub(crate) aliases: BTreeMap<String, String>,
    /// Parts of jobs by name: `[presets.spot-v6e]`, in the form of a job file.
    pub(crate) presets: BTreeMap<String, toml::Table>,
    /// Folders of programs by name.
    pub(crate) folders: BTreeMap<String, PathBuf>,
}

/// Where an address came from, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `--server` or `REKINDLE_SERVER`.
    Given,
    /// The configuration file.
    File(PathBuf),
    /// Nothing is configured.
    Default,
}

/// The server to talk to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// Address without a slash at its end.
    pub(crate) url: String,
    /// Where the address came from.
    pub(crate) origin: Origin,
    /// Command whose output is the bearer token.
    pub(crate) token_command: Option<Vec<String>>,
}

/// The file's usual place: `$XDG_CONFIG_HOME/rekindle/config.toml`, else below `~/.config`.
pub(crate) fn usual_path(get: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let given = |name: &str| get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = given("XDG_CONFIG_HOME").or_else(|| given("HOME").map(|home| home.join(".config")))?;
    Some(base.join("rekindle").join("config.toml"))
}

/// Reads the file. `Ok(None)`: there is none.
pub(crate) fn read(path: &Path) -> Result<Option<File>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Fault::input(format!("cannot read the configuration {}", path.display()))
                .caused_by(&error)
                .next("let this user read it, or name another with --config"));
        }
    };
    toml::from_str(&text).map(Some).map_err(|error| {
        let meant = project::meant(&text, &["server", "token_command", "folder", "aliases", "presets", "folders"]);
        Fault::input(format!("the configuration {} is wrong", path.display()))
            .because(error.to_string().trim_end().to_owned())
            .next(format!(
                "{meant}it knows `server = \"https://…\"`, `token_command = [\"gcloud\", …]`, `folder`, and the tables \
                 [aliases], [presets.NAME] and [folders]"
            ))
    })
}

/// The user's file, and where it is: the one that was named, else the usual one. Absent: empty.
pub(crate) fn user_file(config: Option<&Path>) -> Result<(File, Option<PathBuf>)> {
    let path = match config {
        Some(path) => Some(path.to_owned()),
        None => usual_path(|name| std::env::var_os(name)),
    };
    let file = path.as_deref().map(read).transpose()?.flatten().unwrap_or_default();
    Ok((file, path))
}

/// Finds the server. A file that was named must exist.
pub(crate) fn server(given: Option<&str>, config: Option<&Path>) -> Result<Server> {
    let path = match config {
        Some(path) => Some(path.to_owned()),
        None => usual_path(|name| std::env::var_os(name)),
    };
    let file = path.as_deref().map(read).transpose()?.flatten();
    if let (Some(path), None) = (config, &file) {
        return Err(Fault::input(format!("there is no configuration {}", path.display()))
            .next("name one that is there, or leave out --config"));
    }
    let file = file.unwrap_or_default();
    let (url, origin) = match (given, file.server, path) {
        (Some(url), _, _) => (url.to_owned(), Origin::Given),
        (None, Some(url), Some(path)) => (url, Origin::File(path)),
        _ => (DEFAULT_SERVER.to_owned(), Origin::Default),
    };
    Ok(Server { url: checked(&url)?, origin, token_command: file.token_command })
}

fn checked(url: &str) -> Result<String> {
    let url = url.trim().trim_end_matches('/');
    if url.starts_with("http://") || url.starts_with("https://") {
        return Ok(url.to_owned());
    }
    Err(Fault::input(format!("{url:?} is no address of a server"))
        .next("write it as https://… (or http://127.0.0.1:8080 for `rekindle dev`)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_wins_over_the_file_and_the_file_over_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "server = \"https://a.example/\"\n").unwrap();
        let from_file = server(None, Some(&path)).unwrap();
        assert_eq!(from_file.url, "https://a.example");
        assert_eq!(from_file.origin, Origin::File(path.clone()));
        assert_eq!(server(Some("http://b"), Some(&path)).unwrap().url, "http://b");
        std::fs::write(&path, "").unwrap();
        assert_eq!(server(None, Some(&path)).unwrap().url, DEFAULT_SERVER);
    }

    #[test]
    fn a_wrong_file_or_address_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "sever = \"https://a\"\n").unwrap();
        let text = server(None, Some(&path)).unwrap_err().text();
        assert!(text.contains("config.toml") && text.contains("sever"), "{text}");
        assert!(server(Some("localhost:80"), None).unwrap_err().text().contains("localhost:80"));
        let missing = folder.path().join("none.toml");
        assert!(server(None, Some(&missing)).unwrap_err().text().contains("none.toml"));
    }

    #[test]
    fn the_file_is_where_the_desktop_says() {
        let at = |pairs: &[(&str, &str)]| {
            usual_path(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        };
        assert_eq!(at(&[("HOME", "/h")]), Some("/h/.config/rekindle/config.toml".into()));
        assert_eq!(at(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]), Some("/x/rekindle/config.toml".into()));
        assert_eq!(at(&[]), None);
    }
}
