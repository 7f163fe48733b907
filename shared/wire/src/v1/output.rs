//! Output as machines read it, and how workers are called there.

use rekindle_core::ids::WorkerKey;
use serde::{Deserialize, Serialize};

/// One line of output: an object of `GET /v1/jobs/{id}/logs?form=lines`.
///
/// What a program says stands in `line` alone, so that it cannot be taken for anything else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputLine {
    /// The attempt that said it.
    pub attempt: u32,
    /// How many workers the job has.
    pub workers: u32,
    /// Who said it, as [`worker_label`] has it; empty where there is no line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub worker: String,
    /// What was said; absent where the output of the attempt begins. A part, if it is longer than 256 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// It is the state of a progress bar: the next line of this worker takes its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_open: bool,
}

/// What a worker is called: `w3`, or `s0w3` where the job has several slices.
pub fn worker_label(key: WorkerKey, has_slices: bool) -> String {
    key.label(has_slices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::worker_key;

    #[test]
    fn a_worker_is_read_by_every_name_that_it_has() {
        let key = WorkerKey { slice: 1, worker: 3 };
        assert_eq!(
            (worker_label(key, true).as_str(), worker_key("s1w3"), worker_key("1-3")),
            ("s1w3", Some(key), Some(key))
        );
        let key = WorkerKey { slice: 0, worker: 3 };
        for name in ["w3", "s0w3", "3", "0-3"] {
            assert_eq!(worker_key(name), Some(key), "{name}");
        }
        assert_eq!(worker_label(key, false), "w3");
        for none in ["", "w", "swan", "xw3", "s1", "all"] {
            assert_eq!(worker_key(none), None, "{none}");
        }
    }
}
