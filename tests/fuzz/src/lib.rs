//! Fuzz targets for every decoder of bytes from outside, their corpus, and a driver that runs on stable Rust.
//!
//! `cargo run -p rekindle-fuzz --release -- TARGET --minutes 10` mutates the corpus and keeps what brings a new answer; a
//! panic is written to `corpus/` as well and fails. `cargo nextest run -p rekindle-fuzz` replays the corpus.

use std::path::{Path, PathBuf};

pub mod mutate;
pub mod targets;

pub use targets::{Ground, Target};

/// Folder of a target's corpus.
pub fn corpus_folder(target: Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name())
}

/// The corpus of a target, by file name.
pub fn corpus(target: Target) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(corpus_folder(target))? {
        let entry = entry?;
        found.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Mutations of each file that are tried in a test; the driver tries millions.
    const FEW: usize = 20;

    #[test]
    fn the_corpus_is_read_by_its_targets() {
        let ground = Ground::new().unwrap();
        for target in Target::ALL {
            let corpus = corpus(target).unwrap();
            assert!(corpus.len() >= 3, "{} has a corpus", target.name());
            let mut random = ChaCha8Rng::seed_from_u64(1);
            let mut words = std::collections::BTreeSet::new();
            for (index, (_, input)) in corpus.iter().enumerate() {
                words.insert(ground.run(target, input));
                let other = &corpus[(index + 1) % corpus.len()].1;
                for _ in 0..FEW.min(2000 / corpus.len()) {
                    words.insert(ground.run(target, &mutate::mutate(input, other, &mut random)));
                }
            }
            assert!(words.len() > 2, "{}: {words:?}", target.name());
        }
    }

    #[test]
    fn the_ledger_names_targets_and_results() {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ledger.tsv")).unwrap();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [target, commit, minutes, runs, result] = fields.as_slice() else { panic!("{line}") };
            assert!(Target::parse(target).is_some(), "{line}");
            assert!(commit.len() >= 7 && minutes.parse::<f64>().unwrap() > 0.0 && runs.parse::<u64>().unwrap() > 0);
            assert!(!result.is_empty());
        }
    }

    #[test]
    fn each_decoder_was_fuzzed_for_an_hour_of_a_core() {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ledger.tsv")).unwrap();
        for target in Target::ALL {
            let of = text.lines().skip(1).filter(|line| line.split('\t').next() == Some(target.name()));
            let minutes: f64 = of.map(|line| line.split('\t').nth(2).unwrap().parse::<f64>().unwrap()).sum();
            assert!(minutes >= 60.0, "{} has {minutes} minutes of 60", target.name());
        }
    }
}
