//! The section `outputs` of a job spec, and what its patterns match.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::reader::{Faults, Object};

/// Patterns of outputs that a job may have.
const OUTPUTS_MAX: usize = 50;

/// Longest pattern, in bytes.
const PATTERN_MAX: usize = 1024;

/// The section `outputs`.
pub(super) fn read(top: &Object<'_>, faults: &mut Faults) -> Vec<String> {
    let words = top.words("outputs", faults);
    if words.len() > OUTPUTS_MAX {
        faults.add("outputs", format!("has more than {OUTPUTS_MAX} patterns; use `**`, as in results/**"));
    }
    for word in words.iter().take(OUTPUTS_MAX) {
        let text = &word.text;
        if text.starts_with('/') || text.split('/').any(|part| part == "..") {
            faults.add(&word.path, "must be a pattern within the working directory, such as results/**");
        } else if text.len() > PATTERN_MAX {
            faults.add(&word.path, format!("has {} bytes; a pattern has at most {PATTERN_MAX}", text.len()));
        } else if let Err(error) = patterns(std::slice::from_ref(text)) {
            // A worker would find out only when the program has ended, and collect nothing.
            let why = error.kind();
            faults.add(&word.path, format!("is no pattern: {why}; write one such as results/*.png, and [[] for a ["));
        }
    }
    words.into_iter().map(|word| word.text).collect()
}

/// What a job's `outputs` match, as paths below the working directory. `*` stays within a folder, and a pattern that names
/// a folder means everything in it.
///
/// Errors: one of them is no pattern.
pub fn patterns(outputs: &[String]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in outputs {
        let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
        for text in [pattern.to_owned(), format!("{pattern}/**")] {
            set.add(GlobBuilder::new(&text).literal_separator(true).build()?);
        }
    }
    set.build()
}
