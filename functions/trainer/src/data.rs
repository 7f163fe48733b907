//! The dataset: made once from a seed, written to a file, read back by every worker; and the order it is read in.
//!
//! The task is regression on a hidden small network with noise. Only additions, multiplications and comparisons are
//! used, so that the same seed gives the same bits on every machine.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};

/// Numbers in one input.
pub(crate) const INPUTS: usize = 16;
/// Numbers in one target.
pub(crate) const OUTPUTS: usize = 4;
/// Rows of a generated dataset. Small enough to be made in milliseconds, large enough for several epochs of nothing
/// being seen twice in a short run.
const ROWS: usize = 2048;
const ROW: usize = INPUTS + OUTPUTS;
const TEACHER_HIDDEN: usize = 8;
const MAGIC: &[u8; 16] = b"rekindle-data 1\n";
const DIGEST_BYTES: usize = 32;

/// A random stream of its own for each purpose, so that one more draw in one place never moves another.
pub(crate) fn stream(seed: u64, purpose: &str, index: u64) -> ChaCha8Rng {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update(index.to_le_bytes());
    hash.update(purpose.as_bytes());
    ChaCha8Rng::from_seed(hash.finalize().into())
}

/// A number in [-1, 1), with 53 random bits: exact, so the same on every machine.
pub(crate) fn symmetric(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// Rows of inputs and targets, all in memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dataset {
    values: Vec<f64>,
    /// SHA-256 of the rows' bytes: part of what all workers and all checkpoints of one run must agree on.
    pub(crate) digest: [u8; DIGEST_BYTES],
}

impl Dataset {
    /// Makes the rows of `seed`: random inputs, and what a hidden network answers to them, plus noise.
    pub(crate) fn generate(seed: u64) -> Self {
        let mut teacher = stream(seed, "teacher", 0);
        let hidden: Vec<f64> = (0..TEACHER_HIDDEN * INPUTS).map(|_| symmetric(&mut teacher)).collect();
        let output: Vec<f64> = (0..OUTPUTS * TEACHER_HIDDEN).map(|_| symmetric(&mut teacher)).collect();
        let mut rng = stream(seed, "rows", 0);
        let mut values = Vec::with_capacity(ROWS * ROW);
        for _ in 0..ROWS {
            let input: Vec<f64> = (0..INPUTS).map(|_| symmetric(&mut rng)).collect();
            let middle: Vec<f64> = hidden.chunks_exact(INPUTS).map(|weights| dot(weights, &input).max(0.0)).collect();
            values.extend_from_slice(&input);
            for weights in output.chunks_exact(TEACHER_HIDDEN) {
                values.push(dot(weights, &middle) + 0.05 * symmetric(&mut rng));
            }
        }
        Self::of(values)
    }

    fn of(values: Vec<f64>) -> Self {
        let digest = Sha256::digest(bytes_of(&values)).into();
        Self { values, digest }
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.values.len() / ROW
    }

    /// The input and the target of one row.
    pub(crate) fn row(&self, index: usize) -> (&[f64], &[f64]) {
        self.values[index * ROW..(index + 1) * ROW].split_at(INPUTS)
    }

    fn encode(&self) -> Vec<u8> {
        [MAGIC.as_slice(), &bytes_of(&self.values), &self.digest].concat()
    }

    /// Reads a file that [`Dataset::encode`] wrote.
    fn decode(file: &[u8]) -> anyhow::Result<Self> {
        let body = file.strip_prefix(MAGIC).context("not a dataset of this program")?;
        let (rows, digest) = body.split_at_checked(body.len().wrapping_sub(DIGEST_BYTES)).context("cut short")?;
        ensure!(!rows.is_empty() && rows.len() % (ROW * size_of::<f64>()) == 0, "cut short: {} bytes", file.len());
        let data =
            Self::of(rows.chunks_exact(8).map(|c| f64::from_le_bytes(c.try_into().unwrap_or_default())).collect());
        ensure!(data.digest == digest, "its digest does not match its rows");
        Ok(data)
    }
}

/// Reads the dataset file; a generated one is written first when it is absent or damaged.
///
/// Writing is a rename of a whole file, and every writer of one seed writes the same bytes, so that workers that do it
/// at the same moment cannot harm each other.
pub(crate) fn open(given: Option<&Path>, checkpoint_dir: &Path, seed: u64) -> anyhow::Result<(PathBuf, Dataset)> {
    let (path, owned) = match given {
        Some(path) => (path.to_path_buf(), false),
        None => (checkpoint_dir.with_file_name(format!("dataset-seed{seed}.bin")), true),
    };
    let first = read(&path);
    match first {
        Ok(Some(data)) => return Ok((path, data)),
        Err(error) if !owned => return Err(error),
        Ok(None) if path.is_dir() => bail!("dataset {} is a folder", path.display()),
        Ok(None) => {}
        Err(error) => crate::talk::complain(format_args!("{error:#}; written again")),
    }
    write(&path, &Dataset::generate(seed).encode()).with_context(|| format!("write dataset {}", path.display()))?;
    let data = read(&path)?.with_context(|| format!("dataset {} vanished", path.display()))?;
    Ok((path, data))
}

fn read(path: &Path) -> anyhow::Result<Option<Dataset>> {
    match fs::read(path) {
        Ok(file) => Ok(Some(Dataset::decode(&file).with_context(|| format!("dataset {}", path.display()))?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read dataset {}", path.display())),
    }
}

/// Writes a file so that a reader sees all of it or nothing, also after a crash of the machine.
pub(crate) fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.join(format!(".{name}.tmp-{}", std::process::id()));
    let written = (|| {
        let mut file = fs::File::create(&draft)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        // The rename itself is durable only once the folder is.
        fs::File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

/// The bytes of some numbers, little-endian, in order.
pub(crate) fn bytes_of(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The sum of products from the first to the last: the order is part of the result.
pub(crate) fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).fold(0.0, |sum, (a, b)| sum + a * b)
}

/// The order in which rows are read: each epoch is a new permutation, a pure function of the seed and the epoch.
///
/// A position counts rows over all workers since the start of the run, so that it means the same after a resume.
#[derive(Debug)]
pub(crate) struct Order {
    seed: u64,
    rows: usize,
    /// The last two epochs used: a batch may begin in one and end in the next.
    epochs: [Option<(u64, Vec<u32>)>; 2],
}

impl Order {
    /// The order over `rows` rows.
    pub(crate) fn new(seed: u64, rows: usize) -> Self {
        Self { seed, rows, epochs: [None, None] }
    }

    /// The row at one position.
    pub(crate) fn row_at(&mut self, position: u64) -> usize {
        let (epoch, offset) = (position / self.rows as u64, (position % self.rows as u64) as usize);
        let slot = &mut self.epochs[(epoch % 2) as usize];
        let kept = slot.take().filter(|(number, _)| *number == epoch);
        let (_, permutation) = slot.insert(kept.unwrap_or_else(|| (epoch, permutation(self.seed, epoch, self.rows))));
        permutation[offset] as usize
    }
}

/// Fisher-Yates, written out, because a library may change its shuffle between versions and the data order with it.
fn permutation(seed: u64, epoch: u64, rows: usize) -> Vec<u32> {
    let mut rng = stream(seed, "epoch", epoch);
    let mut order: Vec<u32> = (0..rows as u32).collect();
    for last in (1..rows).rev() {
        order.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_reads_every_row_once_and_the_next_in_another_order() {
        let mut order = Order::new(3, 100);
        let first: Vec<usize> = (0..100).map(|position| order.row_at(position)).collect();
        let second: Vec<usize> = (100..200).map(|position| order.row_at(position)).collect();
        assert_ne!(first, second);
        for mut epoch in [first.clone(), second] {
            epoch.sort_unstable();
            assert_eq!(epoch, (0..100).collect::<Vec<_>>());
        }
        let again: Vec<usize> = (0..100).map(|position| Order::new(3, 100).row_at(position)).collect();
        assert_eq!(first, again, "the order does not depend on what was read before");
    }

    #[test]
    fn the_file_is_written_once_and_read_by_all() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = folder.path().join("checkpoints");
        let (path, data) = open(None, &checkpoints, 5).unwrap();
        let written_at = fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(open(None, &checkpoints, 5).unwrap(), (path.clone(), data.clone()));
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written_at);
        assert_eq!(data, Dataset::generate(5));
        assert_ne!(data.digest, Dataset::generate(6).digest);
        assert_eq!(data.rows(), ROWS);
    }

    #[test]
    fn a_damaged_file_is_made_again_only_when_it_is_ours() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = folder.path().join("checkpoints");
        let (path, data) = open(None, &checkpoints, 5).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[100] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let error = open(Some(&path), &checkpoints, 5).unwrap_err();
        assert!(format!("{error:#}").contains("digest"), "{error:#}");
        assert_eq!(open(None, &checkpoints, 5).unwrap().1, data);
        fs::write(&path, &bytes[..5000]).unwrap();
        assert_eq!(open(None, &checkpoints, 5).unwrap().1, data);
    }

    #[test]
    fn a_given_file_that_is_absent_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("rows.bin");
        let (used, data) = open(Some(&path), folder.path(), 5).unwrap();
        assert_eq!(used, path);
        assert_eq!(data, Dataset::generate(5));
    }
}
