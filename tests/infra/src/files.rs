//! The Terraform files as parsed trees, one module for each folder.

use std::path::{Path, PathBuf};

use hcl::{Block, Body, Structure};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// `infra/`.
pub(crate) fn infra() -> PathBuf {
    root().join("infra")
}

/// The text of a file below the root.
pub(crate) fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The text of every Rust source file below these folders, tests left out.
pub(crate) fn sources(folders: &[&str]) -> String {
    let mut all = String::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|f| root().join(f)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "tests" && name != "target" {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|e| e == "rs") && name != "tests.rs" {
                all.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    all
}

/// A folder of Terraform files.
#[derive(Debug, Clone)]
pub(crate) struct Module {
    /// The folder.
    pub(crate) dir: PathBuf,
    /// All top-level blocks of all files.
    pub(crate) blocks: Vec<Block>,
}

impl Module {
    /// Reads all files of a folder.
    pub(crate) fn read(dir: &Path) -> Self {
        let dir = dir.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let mut files: Vec<PathBuf> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
        files.retain(|f| f.extension().is_some_and(|e| e == "tf"));
        files.sort();
        let mut blocks = Vec::new();
        for file in files {
            let source = std::fs::read_to_string(&file).unwrap();
            let body: Body = hcl::parse(&source).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            for structure in body {
                match structure {
                    Structure::Block(block) => blocks.push(block),
                    Structure::Attribute(a) => panic!("{}: {} stands outside of a block", file.display(), a.key()),
                }
            }
        }
        Self { dir, blocks }
    }

    /// The folder, relative to the repository.
    pub(crate) fn name(&self) -> String {
        self.dir.strip_prefix(root()).unwrap().display().to_string()
    }

    /// The blocks of a kind, such as `resource`.
    pub(crate) fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Block> + 'a {
        self.blocks.iter().filter(move |b| b.identifier() == kind)
    }
}

/// The label of a block, as text.
pub(crate) fn label(block: &Block, n: usize) -> &str {
    block.labels().get(n).unwrap_or_else(|| panic!("a {} without label {n}", block.identifier())).as_str()
}

/// The expression of an attribute of a body.
pub(crate) fn attribute<'a>(body: &'a Body, name: &str) -> Option<&'a hcl::Expression> {
    body.attributes().find(|a| a.key() == name).map(hcl::Attribute::expr)
}

/// Every module below `infra/`.
pub(crate) fn modules() -> Vec<Module> {
    let mut found = Vec::new();
    let mut folders = vec![infra()];
    while let Some(folder) = folders.pop() {
        let mut has_files = false;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.file_name().unwrap().to_string_lossy().starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "tf") {
                has_files = true;
            }
        }
        if has_files {
            found.push(Module::read(&folder));
        }
    }
    found.sort_by(|a, b| a.dir.cmp(&b.dir));
    found
}

#[test]
fn the_modules_are_there() {
    let names: Vec<String> = modules().iter().map(Module::name).collect();
    for module in ["bootstrap", "identity", "network", "observability", "service", "store", "trigger"] {
        assert!(names.contains(&format!("infra/modules/{module}")), "{names:?}");
    }
    assert!(names.contains(&"infra/envs/example".to_owned()), "{names:?}");
}
