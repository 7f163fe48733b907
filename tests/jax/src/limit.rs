//! What the kernel takes away: memory of a process.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// A memory cgroup with a limit, v1 or v2. Gone with this value, once nothing lives in it.
#[derive(Debug)]
pub struct MemoryLimit {
    folder: PathBuf,
}

impl MemoryLimit {
    /// Makes a cgroup with room for so many bytes.
    ///
    /// # Errors
    /// If the machine has no memory cgroups, or this process may not make one.
    pub fn new(bytes: u64) -> Result<Self> {
        let name = format!("rekindle-jax-{}", std::process::id());
        let (v1, v2) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
        if v1.join("memory.limit_in_bytes").exists() {
            let limit = Self::make(v1.join(name))?;
            limit.write("memory.limit_in_bytes", bytes)?;
            // Without accounting of swap there is no such file, and nothing to limit.
            let _absent = limit.write("memory.memsw.limit_in_bytes", bytes);
            return Ok(limit);
        }
        let controllers = fs::read_to_string(v2.join("cgroup.controllers")).context("no cgroups are mounted")?;
        if !controllers.split_whitespace().any(|name| name == "memory") {
            bail!("the cgroups of this machine have no memory controller");
        }
        // Refused where it is on already for somebody else; the write of the limit tells.
        let _on = fs::write(v2.join("cgroup.subtree_control"), "+memory");
        let limit = Self::make(v2.join(name))?;
        limit.write("memory.max", bytes)?;
        let _absent = limit.write("memory.swap.max", 0);
        Ok(limit)
    }

    fn make(folder: PathBuf) -> Result<Self> {
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder })
    }

    fn write(&self, file: &str, value: u64) -> Result<()> {
        fs::write(self.folder.join(file), value.to_string()).with_context(|| format!("cannot write {file}"))
    }

    /// Puts a process under the limit. What it holds already is not counted.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn hold(&self, pid: i32) -> Result<()> {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).context("cannot move the process")
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        // Its last process may still be on its way out.
        while fs::remove_dir(&self.folder).is_err() && self.folder.exists() && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}
