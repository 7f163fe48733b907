//! The environment of one worker, as the contract names it (section 4). Nothing else is read from the process.
//!
//! Every variable has a default, so that the program also runs by hand, as one worker, in an empty folder.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};

/// Who this worker is and where its files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Environment {
    /// Index of this worker over all slices: slice times workers of a slice, plus the index in the slice.
    pub(crate) rank: u32,
    /// Number of workers over all slices.
    pub(crate) world: u32,
    /// `host:port` that rank 0 listens on; empty only when `world` is 1.
    pub(crate) coordinator: String,
    /// Folder of the checkpoints.
    pub(crate) checkpoint_dir: PathBuf,
    /// Whether an earlier attempt may have left a checkpoint to go on from.
    pub(crate) resume: bool,
    /// The fencing token: peers of another attempt are refused.
    pub(crate) attempt: u64,
    /// Where progress lines go.
    pub(crate) progress_file: Option<PathBuf>,
    /// Appears when the slice will be taken away.
    pub(crate) notice_file: Option<PathBuf>,
}

impl Environment {
    /// Reads the variables through `get`, so that tests need not change the process.
    pub(crate) fn read(get: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Self> {
        let text = |name: &str| -> anyhow::Result<Option<String>> {
            match get(name) {
                None => Ok(None),
                Some(value) if value.is_empty() => Ok(None),
                Some(value) => match value.into_string() {
                    Ok(value) => Ok(Some(value)),
                    Err(_) => bail!("{name} is not UTF-8"),
                },
            }
        };
        let number = |name: &str, default: u32| -> anyhow::Result<u32> {
            text(name)?.map_or(Ok(default), |value| value.parse().with_context(|| format!("{name}={value}")))
        };
        let (worker, workers) = (number("REKINDLE_WORKER", 0)?, number("REKINDLE_WORKERS", 1)?);
        let (slice, slices) = (number("REKINDLE_SLICE", 0)?, number("REKINDLE_SLICES", 1)?);
        ensure!(worker < workers, "REKINDLE_WORKER={worker} is not below REKINDLE_WORKERS={workers}");
        ensure!(slice < slices, "REKINDLE_SLICE={slice} is not below REKINDLE_SLICES={slices}");
        let world = workers.checked_mul(slices).context("REKINDLE_WORKERS times REKINDLE_SLICES is too large")?;
        let coordinator = text("REKINDLE_COORDINATOR")?.unwrap_or_default();
        ensure!(world == 1 || !coordinator.is_empty(), "REKINDLE_COORDINATOR is not set and there are {world} workers");
        let resume = match text("REKINDLE_RESUME")?.as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => bail!("REKINDLE_RESUME={other} is neither 0 nor 1"),
        };
        Ok(Self {
            rank: slice * workers + worker,
            world,
            coordinator,
            checkpoint_dir: match text("REKINDLE_CHECKPOINT_DIR")? {
                Some(place) => local_path(&place)?,
                None => PathBuf::from("checkpoints"),
            },
            resume,
            attempt: u64::from(number("REKINDLE_ATTEMPT", 1)?),
            progress_file: get("REKINDLE_PROGRESS_FILE").filter(|path| !path.is_empty()).map(PathBuf::from),
            notice_file: get("REKINDLE_NOTICE_FILE").filter(|path| !path.is_empty()).map(PathBuf::from),
        })
    }

    /// Whether this worker reduces, saves and answers for the others.
    pub(crate) fn leads(&self) -> bool {
        self.rank == 0
    }
}

/// The path of a `file://` URL or of a plain path; any other scheme is refused, because nothing here can write to it.
fn local_path(place: &str) -> anyhow::Result<PathBuf> {
    if let Some(rest) = place.strip_prefix("file://") {
        // A file URL may name this machine; any other host's files are not here.
        let path = rest.strip_prefix("localhost").unwrap_or(rest);
        ensure!(path.starts_with('/'), "REKINDLE_CHECKPOINT_DIR={place} is not a file URL of this machine");
        let path = percent_encoding::percent_decode_str(path).decode_utf8();
        return Ok(PathBuf::from(path.with_context(|| format!("REKINDLE_CHECKPOINT_DIR={place}"))?.into_owned()));
    }
    ensure!(
        !place.contains("://"),
        "REKINDLE_CHECKPOINT_DIR={place}: this program writes to a folder or a file:// URL only"
    );
    Ok(PathBuf::from(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> anyhow::Result<Environment> {
        Environment::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn an_empty_environment_is_one_worker_in_this_folder() {
        let env = read(&[]).unwrap();
        assert_eq!((env.rank, env.world, env.attempt, env.resume), (0, 1, 1, false));
        assert_eq!(env.checkpoint_dir, PathBuf::from("checkpoints"));
        assert!(env.leads());
    }

    #[test]
    fn workers_of_a_later_slice_come_after_all_of_the_earlier_ones() {
        let env = read(&[
            ("REKINDLE_WORKER", "1"),
            ("REKINDLE_WORKERS", "4"),
            ("REKINDLE_SLICE", "2"),
            ("REKINDLE_SLICES", "3"),
            ("REKINDLE_COORDINATOR", "127.0.0.2:9000"),
            ("REKINDLE_RESUME", "1"),
            ("REKINDLE_ATTEMPT", "7"),
            ("REKINDLE_CHECKPOINT_DIR", "file:///ckpt/a%20b/r1"),
        ])
        .unwrap();
        assert_eq!((env.rank, env.world, env.attempt, env.resume), (9, 12, 7, true));
        assert_eq!(env.checkpoint_dir, PathBuf::from("/ckpt/a b/r1"));
        assert!(!env.leads());
    }

    #[test]
    fn a_wrong_variable_is_named() {
        for (variables, name) in [
            (&[("REKINDLE_WORKER", "4"), ("REKINDLE_WORKERS", "4")][..], "REKINDLE_WORKER"),
            (&[("REKINDLE_SLICE", "1")], "REKINDLE_SLICE"),
            (&[("REKINDLE_WORKERS", "2")], "REKINDLE_COORDINATOR"),
            (&[("REKINDLE_WORKERS", "two")], "REKINDLE_WORKERS=two"),
            (&[("REKINDLE_RESUME", "yes")], "REKINDLE_RESUME"),
            (&[("REKINDLE_CHECKPOINT_DIR", "gs://bucket/ckpt")], "gs://bucket/ckpt"),
            (&[("REKINDLE_CHECKPOINT_DIR", "file://other/ckpt")], "file URL"),
        ] {
            let error = format!("{:#}", read(variables).unwrap_err());
            assert!(error.contains(name), "{error}");
        }
    }
}
