//! Files of at most 600 lines, functions of at most 70, lines of at most 120 characters; a header in every file.

use syn::spanned::Spanned;
use syn::visit::Visit;

use crate::tree::{files, is_kind, text};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARS_MAX: usize = 120;

fn rust_files() -> Vec<(String, String)> {
    files().into_iter().filter(|f| is_kind(f, &["rs"])).filter_map(|f| text(&f).map(|t| (f, t))).collect()
}

struct Functions<'a> {
    file: &'a str,
    long: &'a mut Vec<String>,
}

impl Functions<'_> {
    fn measure(&mut self, name: &syn::Ident, block: &syn::Block) {
        let lines = block.span().end().line - block.span().start().line + 1;
        if lines > FUNCTION_LINES_MAX {
            self.long.push(format!("{}: fn {name} has {lines} lines", self.file));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        self.measure(&node.sig.ident, &node.block);
        syn::visit::visit_item_fn(self, node);
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        self.measure(&node.sig.ident, &node.block);
        syn::visit::visit_impl_item_fn(self, node);
    }
}

#[test]
fn files_and_functions_are_of_a_readable_size() {
    let mut faults = Vec::new();
    for (file, source) in rust_files() {
        let lines = source.lines().count();
        if lines > FILE_LINES_MAX {
            faults.push(format!("{file} has {lines} lines"));
        }
        match syn::parse_file(&source) {
            Ok(tree) => Functions { file: &file, long: &mut faults }.visit_file(&tree),
            Err(error) => faults.push(format!("{file} does not parse: {error}")),
        }
    }
    assert!(faults.is_empty(), "split by meaning:\n{}", faults.join("\n"));
}

#[test]
fn lines_are_of_a_readable_length() {
    let mut faults = Vec::new();
    for (file, source) in rust_files() {
        for (number, line) in source.lines().enumerate() {
            let is_long = line.chars().count() > LINE_CHARS_MAX;
            // Text that a program prints or a test compares is not cut; comments and code are.
            if is_long && !line.contains('"') && !line.trim_start().starts_with("//") {
                faults.push(format!("{file}:{}", number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "longer than {LINE_CHARS_MAX} characters:\n{}", faults.join("\n"));
}

#[test]
fn every_file_says_what_it_owns() {
    let silent: Vec<String> =
        rust_files().into_iter().filter(|(_, source)| !source.starts_with("//!")).map(|(file, _)| file).collect();
    assert!(silent.is_empty(), "no `//!` header:\n{}", silent.join("\n"));
}
