//! Other people's checks: Terraform's formatter and checkov. Where a tool is missing its test is skipped by name; under CI that is a failure.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::files::{infra, modules, root};

/// The version of checkov that the exceptions were written against.
const CHECKOV: &str = "checkov==3.3.30";

/// Says that a test is skipped; under CI it fails.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("skipped: {why}\n").as_bytes());
}

/// `None`: the program is not there.
fn run(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("{command:?}: {error}"),
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn terraform_files_are_formatted() {
    let Some(output) = run(Command::new("terraform").args(["fmt", "-check", "-recursive", "-diff"]).arg(infra()))
    else {
        return skip("terraform is not installed");
    };
    assert!(output.status.success(), "{}", said(&output));
}

/// A private environment with checkov, made once below cargo's own folder for such things.
fn checkov() -> Result<PathBuf, String> {
    let home = root().join("target").join(CHECKOV.replace("==", "-"));
    let program = home.join("bin/checkov");
    if program.is_file() {
        return Ok(program);
    }
    // Under another name until it is whole, so that a cut installation is not taken for one.
    let part = home.with_extension(format!("part{}", std::process::id()));
    let step = |command: &mut Command| match run(command) {
        Some(output) if output.status.success() => Ok(()),
        Some(output) => Err(format!("{command:?}: {}", said(&output))),
        None => Err(format!("{command:?}: no such program")),
    };
    let made = step(Command::new("python3").args(["-m", "venv"]).arg(&home))
        .and_then(|()| step(Command::new(home.join("bin/python")).args(["-m", "pip", "install", "--quiet", CHECKOV])));
    if let Err(why) = made {
        let _ = std::fs::rename(&home, &part);
        let _ = std::fs::remove_dir_all(&part);
        return Err(why);
    }
    Ok(program)
}

#[test]
fn checkov_finds_nothing() {
    let program = match checkov() {
        Ok(program) => program,
        Err(why) => return skip(&format!("checkov cannot be had from its package: {why}")),
    };
    let mut command = Command::new(program);
    command.args(["--framework", "terraform", "dockerfile", "--compact", "--quiet", "--skip-download", "--directory"]);
    let output = run(command.arg(infra()).arg("--output").arg("json")).unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let reports: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let reports = reports.as_array().cloned().unwrap_or_else(|| vec![reports]);
    let passed: u64 = reports.iter().map(|r| r["summary"]["passed"].as_u64().unwrap_or(0)).sum();
    let failed: u64 = reports.iter().map(|r| r["summary"]["failed"].as_u64().unwrap_or(0)).sum();
    let unread: u64 = reports.iter().map(|r| r["summary"]["parsing_errors"].as_u64().unwrap_or(0)).sum();
    assert_eq!((failed, unread), (0, 0), "{text}");
    assert!(passed > 50, "only {passed} checks passed: was anything looked at?");
}

/// The lines that hold back a check of checkov.
fn exceptions(file: &Path) -> Vec<String> {
    let source = std::fs::read_to_string(file).unwrap();
    source.lines().filter(|l| l.contains("checkov:skip=")).map(|l| l.trim().to_owned()).collect()
}

#[test]
fn each_exception_stands_beside_its_resource_with_its_reason() {
    let mut count = 0;
    for module in modules() {
        for entry in std::fs::read_dir(&module.dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != "tf") {
                continue;
            }
            for line in exceptions(&path) {
                let reason =
                    line.split_once("checkov:skip=").and_then(|(_, rest)| rest.split_once(':')).map(|(_, r)| r);
                let words = reason.unwrap_or_default().split_whitespace().count();
                assert!(words >= 5, "{}: {line}", path.display());
                count += 1;
            }
        }
    }
    assert!(count > 0);
}
