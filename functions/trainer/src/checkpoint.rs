//! Checkpoints on disk: written whole or not at all, checked when read, the last three kept.
//!
//! File: 16 bytes of magic, the protobuf encoding of a [`Snapshot`], SHA-256 of that encoding. A file that does not
//! check is set aside and the next older one is used. Only worker 0 touches this folder.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::data;
use crate::model::PARAMETERS;
use crate::talk::say;

const MAGIC: &[u8; 16] = b"rekindle-ckpt 1\n";
const DIGEST_BYTES: usize = 32;
/// Two would do; three leave one to go back to when the newest two are damaged together.
const KEPT: usize = 3;

/// Everything that the next step depends on. The random streams are functions of the seed and the position.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Snapshot {
    /// Completed steps.
    #[prost(uint64, tag = "1")]
    pub(crate) step: u64,
    /// Rows read so far, over all workers.
    #[prost(uint64, tag = "2")]
    pub(crate) position: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) seed: u64,
    /// SHA-256 of the dataset.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) dataset: Vec<u8>,
    /// Mean loss of the last step, before its update.
    #[prost(double, tag = "5")]
    pub(crate) loss: f64,
    #[prost(double, repeated, tag = "6")]
    pub(crate) parameters: Vec<f64>,
    #[prost(double, repeated, tag = "7")]
    pub(crate) velocity: Vec<f64>,
    /// The attempt that wrote it, for people who look.
    #[prost(uint64, tag = "8")]
    pub(crate) attempt: u64,
}

/// A folder of checkpoints.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    /// Opens the folder, makes it when absent, and removes drafts that an earlier attempt left half written.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Self> {
        let named = || format!("checkpoint folder {}", folder.display());
        fs::create_dir_all(folder).with_context(named)?;
        for entry in fs::read_dir(folder).with_context(named)? {
            let entry = entry.with_context(named)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(".step-") && name.contains(".ckpt.tmp-") {
                fs::remove_file(entry.path()).with_context(named)?;
            }
        }
        Ok(Self { folder: folder.to_path_buf() })
    }

    /// The newest checkpoint that checks. Each one that does not is renamed to `….corrupt` and said so.
    pub(crate) fn newest(&self) -> anyhow::Result<Option<Snapshot>> {
        for (step, path) in self.files()?.into_iter().rev() {
            let file = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            match decode(&file, step) {
                Ok(snapshot) => return Ok(Some(snapshot)),
                Err(error) => {
                    say(format_args!("checkpoint {} skipped: {error:#}", path.display()));
                    rename_aside(&path, "corrupt")?;
                }
            }
        }
        Ok(None)
    }

    /// Takes all checkpoints out of sight, because the run begins from scratch: they would be newer than its own.
    pub(crate) fn set_aside(&self, attempt: u64) -> anyhow::Result<()> {
        for (_, path) in self.files()? {
            say(format_args!("checkpoint {} set aside: this attempt begins from scratch", path.display()));
            rename_aside(&path, &format!("before-attempt-{attempt}"))?;
        }
        Ok(())
    }

    /// Writes a checkpoint and removes all but the last three.
    pub(crate) fn save(&self, snapshot: &Snapshot) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(format!("step-{:08}.ckpt", snapshot.step));
        let body = snapshot.encode_to_vec();
        let file = [MAGIC.as_slice(), &body, &Sha256::digest(&body)].concat();
        data::write(&path, &file).with_context(|| format!("write checkpoint {}", path.display()))?;
        let files = self.files()?;
        for (_, old) in &files[..files.len().saturating_sub(KEPT)] {
            // Gone already is as good; anything else costs only space, and must not end the run.
            if let Err(error) = fs::remove_file(old)
                && error.kind() != ErrorKind::NotFound
            {
                say(format_args!("checkpoint {} not removed: {error}", old.display()));
            }
        }
        Ok(path)
    }

    /// The checkpoint files, oldest first.
    fn files(&self) -> anyhow::Result<Vec<(u64, PathBuf)>> {
        let named = || format!("checkpoint folder {}", self.folder.display());
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder).with_context(named)? {
            let entry = entry.with_context(named)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let step = name.strip_prefix("step-").and_then(|rest| rest.strip_suffix(".ckpt")).map(str::parse);
            if let Some(Ok(step)) = step {
                files.push((step, entry.path()));
            }
        }
        files.sort_unstable();
        Ok(files)
    }
}

fn rename_aside(path: &Path, why: &str) -> anyhow::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{why}"));
    fs::rename(path, &aside).with_context(|| format!("rename {}", path.display()))
}

fn decode(file: &[u8], step: u64) -> anyhow::Result<Snapshot> {
    let rest = file.strip_prefix(MAGIC).context("no checkpoint, or cut short")?;
    let Some(length) = rest.len().checked_sub(DIGEST_BYTES) else { bail!("cut short") };
    let (body, digest) = rest.split_at(length);
    ensure!(Sha256::digest(body).as_slice() == digest, "its digest does not match its content");
    let snapshot = Snapshot::decode(body).context("content not understood")?;
    ensure!(snapshot.step == step, "its name says step {step} and its content step {}", snapshot.step);
    let (parameters, velocity) = (snapshot.parameters.len(), snapshot.velocity.len());
    ensure!(parameters == PARAMETERS && velocity == PARAMETERS, "it holds another model ({parameters} parameters)");
    Ok(snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(step: u64) -> Snapshot {
        Snapshot {
            step,
            parameters: vec![step as f64 + 0.5; PARAMETERS],
            velocity: vec![-1.0; PARAMETERS],
            ..Snapshot::default()
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_last_three_are_kept_and_the_newest_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("r0")).unwrap();
        assert_eq!(store.newest().unwrap(), None);
        for step in [25, 50, 75, 100] {
            store.save(&snapshot(step)).unwrap();
        }
        assert_eq!(
            names(&folder.path().join("r0")),
            ["step-00000050.ckpt", "step-00000075.ckpt", "step-00000100.ckpt"]
        );
        assert_eq!(store.newest().unwrap(), Some(snapshot(100)));
    }

    #[test]
    fn a_damaged_or_half_file_gives_way_to_the_next_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        for step in [25, 50, 75] {
            store.save(&snapshot(step)).unwrap();
        }
        let half = fs::read(folder.path().join("step-00000075.ckpt")).unwrap();
        fs::write(folder.path().join("step-00000075.ckpt"), &half[..half.len() / 2]).unwrap();
        let mut flipped = fs::read(folder.path().join("step-00000050.ckpt")).unwrap();
        flipped[40] ^= 0x10;
        fs::write(folder.path().join("step-00000050.ckpt"), flipped).unwrap();
        fs::write(folder.path().join(".step-00000100.ckpt.tmp-1"), b"draft").unwrap();

        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.newest().unwrap(), Some(snapshot(25)));
        assert_eq!(
            names(folder.path()),
            ["step-00000025.ckpt", "step-00000050.ckpt.corrupt", "step-00000075.ckpt.corrupt"]
        );
    }

    #[test]
    fn a_renamed_file_is_not_taken_for_a_later_step() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store.save(&snapshot(25)).unwrap();
        fs::copy(folder.path().join("step-00000025.ckpt"), folder.path().join("step-00000900.ckpt")).unwrap();
        assert_eq!(store.newest().unwrap(), Some(snapshot(25)));
    }

    #[test]
    fn a_run_from_scratch_is_not_confused_by_newer_files() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        for step in [300, 325, 350] {
            store.save(&snapshot(step)).unwrap();
        }
        store.set_aside(4).unwrap();
        store.save(&snapshot(25)).unwrap();
        assert_eq!(store.newest().unwrap(), Some(snapshot(25)));
        assert!(names(folder.path()).contains(&"step-00000350.ckpt.before-attempt-4".to_owned()));
    }
}
