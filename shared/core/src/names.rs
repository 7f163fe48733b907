//! Names and labels of the resources of a job, and their exact inverse.
//!
//! **Invariant:** different (installation, job, generation) have different names, and [`parse`] gives back exactly what
//! a name was made of, or nothing. Nothing is normalised or cut: the ids are short enough (see [`JobId::LEN_MAX`]), so
//! the name of one job can never be another's. Ids are unique over all owners, so owners are no part of a name.
//! A name alone proves nothing: whose a resource is, is told by its labels.

use sha2::{Digest, Sha256};

use crate::ids::{InstallationId, JobId};
use crate::observation::SliceLabels;

#[cfg(test)]
mod tests;

/// Label key of the installation id.
pub const LABEL_INSTALLATION: &str = "rekindle-installation";
/// Label key of the job id.
pub const LABEL_JOB: &str = "rekindle-job";
/// Label key of the generation.
pub const LABEL_GENERATION: &str = "rekindle-generation";
/// Label key of the first characters of the spec hash.
pub const LABEL_SPEC: &str = "rekindle-spec";

/// Characters of the spec hash in the label.
// 64 bits: enough to tell the specs of one job id apart, and a label value has 63 characters at most.
const SPEC_LABEL_LEN: usize = 16;

const PREFIX: &str = "rk-";

/// What a name was made of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parsed {
    /// The installation.
    pub installation: InstallationId,
    /// The job.
    pub job: JobId,
    /// The generation.
    pub generation: u32,
    /// The slice, for one of the nodes `<name>-0`, `<name>-1`, … that a multislice queued resource makes.
    pub slice: Option<u32>,
}

/// The id of the node or queued resource of a generation: `rk-<installation>-<job>-g<generation>`.
///
/// At most 62 characters of `[a-z0-9-]`, as Compute Engine wants them (63), since worker VM names derive from it.
pub fn generation_name(installation: &InstallationId, job: &JobId, generation: u32) -> String {
    format!("{PREFIX}{installation}-{job}-g{generation}")
}

/// The id of one node of a multislice queued resource, as the API makes it of the prefix: `<name>-<slice>`.
pub fn slice_name(generation_name: &str, slice: u32) -> String {
    format!("{generation_name}-{slice}")
}

/// The inverse of [`generation_name`] and [`slice_name`]. `None` for every name that these do not make.
///
/// Takes the last part of a resource name, not its path.
pub fn parse(name: &str) -> Option<Parsed> {
    let (rest, last) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
    // A generation's last part begins with `g`, a slice's with a digit: no name reads both ways.
    let (rest, generation, slice) = if let Some(generation) = last.strip_prefix('g') {
        (rest, generation, None)
    } else {
        let (rest, generation) = rest.rsplit_once('-')?;
        (rest, generation.strip_prefix('g')?, Some(number(last)?))
    };
    let (installation, job) = rest.split_once('-')?;
    Some(Parsed {
        installation: InstallationId::parse(installation).ok()?,
        job: JobId::parse(job).ok()?,
        generation: number(generation)?,
        slice,
    })
}

/// A number as `Display` writes it: no sign, no leading zero. Others would be second spellings of one name.
fn number(text: &str) -> Option<u32> {
    let is_written_so = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| is_written_so)
}

/// The labels of a generation's resources. `spec_hash` is the job's; its beginning is kept.
pub fn labels(installation: &InstallationId, job: &JobId, generation: u32, spec_hash: &str) -> SliceLabels {
    SliceLabels {
        installation: installation.to_string(),
        job: job.to_string(),
        generation: generation.to_string(),
        spec: spec_hash.chars().take(SPEC_LABEL_LEN).collect(),
    }
}

/// Whether these are the [`labels`] of that generation's resources.
pub fn are_labels_of(
    labels: &SliceLabels,
    installation: &InstallationId,
    job: &JobId,
    generation: u32,
    spec_hash: &str,
) -> bool {
    labels.installation == installation.as_str()
        && labels.job == job.as_str()
        && number(&labels.generation) == Some(generation)
        && labels.spec.chars().eq(spec_hash.chars().take(SPEC_LABEL_LEN))
}

/// A job id for a submit without one, from the id of its message: `job-` and 12 characters, the same for the same seed.
// A hash, never a normalised or cut form of the seed: `A_b` and `a-b` must not meet. 60 bits: with a million jobs, a
// chance of one in two million that any two seeds meet, and then the second submit is refused, not mixed up.
pub fn generated_job_id(seed: &str) -> JobId {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let digest = Sha256::digest(seed.as_bytes());
    let bits = digest.iter().take(8).fold(0_u64, |bits, byte| (bits << 8) | u64::from(*byte));
    let tail: String = (0..12).map(|i| char::from(ALPHABET[((bits >> (59 - 5 * i)) & 31) as usize])).collect();
    JobId::parse(&format!("job-{tail}")).expect("letters and digits after `job-`, 16 characters")
}
