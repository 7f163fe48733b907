//! Which processes of the demonstration still live: those that carry its state folder in their environment or on their
//! command line, wherever they were moved to.

use std::path::Path;
use std::time::{Duration, Instant};

/// Ended processes need a moment until the kernel has removed them.
const WAIT_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The ids of what lives.
pub(crate) fn processes(root: &Path) -> Vec<u32> {
    let needle = root.as_os_str().as_encoded_bytes();
    let own = std::process::id();
    let ids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| *id != own && !is_dead(*id))
        .filter(|id| {
            ["environ", "cmdline"]
                .iter()
                .any(|file| std::fs::read(format!("/proc/{id}/{file}")).is_ok_and(|bytes| contains(&bytes, needle)))
        })
        .collect()
}

/// Waits until none is left; answers those that stay.
pub(crate) async fn until_none(root: &Path) -> Vec<u32> {
    let begin = Instant::now();
    loop {
        let left = processes(root);
        if left.is_empty() || begin.elapsed() > WAIT_MAX {
            return left;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A zombie runs nothing; its parent has only not asked yet.
fn is_dead(id: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { return true };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    !needle.is_empty() && bytes.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_found_by_its_environment_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").env("STATE", folder.path()).spawn().unwrap();
        // Until the child has become `sleep`, its environment is ours.
        let begin = Instant::now();
        while processes(folder.path()) != [child.id()] {
            assert!(begin.elapsed() < WAIT_MAX, "{:?}", processes(folder.path()));
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(until_none(folder.path()).await, Vec::<u32>::new());
    }
}
