//! `config`: which server is asked, with which token, and what the files of settings hold. Asks nobody.

use std::path::Path;
use std::process::ExitCode;

use super::current_folder;
use crate::answers::{Settings, SettingsFile};
use crate::api::Tokens;
use crate::args::Global;
use crate::config::{self, Origin};
use crate::fault::Result;
use crate::human;
use crate::printer::Printer;
use crate::project::{FILE, Project};

/// Shows what is configured.
pub(crate) fn run(global: &Global, printer: Printer) -> Result<ExitCode> {
    let server = config::server(global.server.as_deref(), global.config.as_deref())?;
    let tokens = Tokens::new(&server, global.token.clone().filter(|token| !token.is_empty()));
    let here = current_folder()?;
    let project = Project::load(&here, global.config.as_deref())?;
    let (_, user) = config::user_file(global.config.as_deref())?;
    let file = |of: &str, path: &Path| SettingsFile {
        of: of.to_owned(),
        path: path.display().to_string(),
        is_there: path.is_file(),
    };
    let of_project = file("project", &project.file.clone().unwrap_or_else(|| here.join(FILE)));
    let settings = Settings {
        server: &server.url,
        server_from: match &server.origin {
            Origin::Given => "given",
            Origin::File(_) => "file",
            Origin::Default => "default",
        },
        token_from: tokens.told(),
        files: user.iter().map(|path| file("user", path)).chain([of_project]).collect(),
        folder: project.default_folder(&[])?.unwrap_or(here).display().to_string(),
        aliases: project.aliases(),
        presets: project.preset_names(),
        folders: project.folders().iter().map(|(name, path)| (name.clone(), path.display().to_string())).collect(),
    };
    if printer.is_json {
        printer.json(&settings)?;
        return Ok(ExitCode::SUCCESS);
    }
    let from = match &server.origin {
        Origin::Given => "--server or REKINDLE_SERVER".to_owned(),
        Origin::File(path) => format!("`server` in {}", path.display()),
        Origin::Default => "nothing names another: that of `rekindle dev`".to_owned(),
    };
    let mut lines: Vec<(&str, String)> =
        vec![("server", format!("{} ({from})", settings.server)), ("token", settings.token_from.clone())];
    for file in &settings.files {
        lines.push((&file.of, if file.is_there { file.path.clone() } else { format!("{} (not there)", file.path) }));
    }
    lines.push(("folder", settings.folder.clone()));
    lines.push(("presets", settings.presets.join(", ")));
    lines.extend(settings.aliases.iter().map(|(alias, full)| ("alias", format!("{alias} is {full}"))));
    lines.extend(settings.folders.iter().map(|(name, path)| ("folder", format!("{name} is {path}"))));
    for (what, told) in lines {
        printer.line(&format!("{what:<8} {}", human::tame(&told)))?;
    }
    Ok(ExitCode::SUCCESS)
}
