//! Small disks that jobs mount for themselves, where they may.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// True if this process may make mounts and cgroups.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Unmounts everything below a folder; whoever uses it keeps it until its end. Answers how much that was.
///
/// # Errors
/// If the list of mounts cannot be read, or a mount stays.
pub fn unmount_below(root: &Path) -> Result<usize> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("the list of mounts")?;
    let places: Vec<&str> = mounts
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .filter(|place| Path::new(place).starts_with(root))
        .collect();
    for place in &places {
        let status = Command::new("umount").args(["--lazy", place]).status().context("umount")?;
        if !status.success() {
            bail!("umount {place}: {status}");
        }
    }
    Ok(places.len())
}
