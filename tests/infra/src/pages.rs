//! The pages below `infra/`, and the commands in their shell blocks; and those of our own command line in the root README.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Every page below `infra/`.
pub fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("infra")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.file_name().unwrap_or_default().to_string_lossy().starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Where a page's fences are wrong: one that does not begin its line, or one without its pair. What stands behind such a fence is
/// neither shown as commands nor seen by [`lines`].
pub fn faults_of_fences(page: &str) -> Vec<String> {
    let fences = page.lines().enumerate().filter(|(_, line)| line.contains("```"));
    let mut faults: Vec<String> = fences
        .clone()
        .filter(|(_, line)| !line.starts_with("```"))
        .map(|(at, line)| format!("line {}: a fence begins its line: {line}", at + 1))
        .collect();
    let mut inside = false;
    for (at, line) in fences.filter(|(_, line)| line.starts_with("```")) {
        if inside && line != "```" {
            faults.push(format!("line {}: a block begins in another: {line}", at + 1));
        }
        inside = !inside;
    }
    if inside {
        faults.push("the last block has no end".to_owned());
    }
    faults
}

/// Which variables a line of shell sets for the lines after it: by `export`, by assignment, by `for` and by `read`.
pub fn sets(line: &str) -> Vec<String> {
    let name = |word: &str| -> Option<String> {
        let (name, _) = word.split_once('=')?;
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_name.then(|| name.to_owned())
    };
    let words: Vec<&str> = line.split([' ', ';']).filter(|word| !word.is_empty()).collect();
    match words.split_first() {
        Some((&"export", rest)) => rest.iter().map_while(|word| name(word)).collect(),
        Some((&"for", rest)) => rest.first().map(|word| (*word).to_owned()).into_iter().collect(),
        Some((&"read", rest)) => rest.last().map(|word| (*word).to_owned()).into_iter().collect(),
        Some((first, _)) => name(first).into_iter().collect(),
        None => Vec::new(),
    }
}

/// The lines of the shell blocks of a page.
pub fn lines(page: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside && !line.starts_with('#') && !line.trim().is_empty() {
            found.push(line.to_owned());
        }
    }
    found
}

/// The lines of the shell blocks of all pages, each with the path of its page below the repository.
pub fn all_lines() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for page in pages() {
        let name = page.strip_prefix(root()).expect("below the repository").display().to_string();
        found.extend(lines(&std::fs::read_to_string(&page).expect("a page")).into_iter().map(|l| (name.clone(), l)));
    }
    found
}

/// How a line of the root README calls our command line: installed, or from the clone.
const OURS: [&str; 2] = ["rekindle ", "cargo run --release -- "];

/// The calls of our command line in the shell blocks of the root README, each as `rekindle` and its words.
pub fn ours() -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(root().join("README.md")).expect("the README");
    lines(&page).iter().filter_map(|line| our_call(line)).collect()
}

/// The words of a line that calls our command line, without the remark behind them.
pub fn our_call(line: &str) -> Option<Vec<String>> {
    let call = OURS.iter().find_map(|begin| line.strip_prefix(begin))?;
    let call = call.split_once("  #").map_or(call, |(call, _)| call);
    commands(&format!("rekindle {call}")).into_iter().next()
}

/// The lines of a page that call our command line where none of its shell blocks has them: nobody parses those.
pub fn strays(page: &str) -> Vec<String> {
    let seen = lines(page);
    let calls = page.lines().filter(|line| OURS.iter().any(|begin| line.starts_with(begin)));
    calls.filter(|line| !seen.iter().any(|one| one == line)).map(str::to_owned).collect()
}

/// The commands of a line, as words: those inside `$(…)` too.
pub fn commands(line: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut rest = line.to_owned();
    while let Some(start) = rest.find("$(") {
        let mut depth = 0;
        let end = rest[start + 1..].char_indices().find_map(|(at, c)| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            (depth == 0).then_some(start + 1 + at)
        });
        let end = end.unwrap_or_else(|| panic!("no end of $( in {line}"));
        all.extend(commands(&rest[start + 2..end]));
        rest.replace_range(start..=end, "X");
    }
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for c in rest.chars().chain([';']) {
        match (quote, c) {
            (Some(q), _) if c == q => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ' | ';' | '|' | '&') => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                if c != ' ' && !words.is_empty() {
                    all.push(std::mem::take(&mut words));
                }
            }
            (Some(_) | None, _) => word.push(c),
        }
    }
    let keyword = |w: &String| w == "do" || w == "export" || w.contains('=') && !w.starts_with('-');
    all.into_iter()
        .map(|words| words.into_iter().skip_while(keyword).collect())
        .filter(|w: &Vec<String>| !w.is_empty())
        .collect()
}
