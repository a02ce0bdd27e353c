//! How much more memory a running process needed at its peak than before something was done to it.

use anyhow::{Context, Result};

use super::issuance::rss_mib;

/// What a process needs from now on. Linux keeps the peak itself and sets it back on request
/// (proc(5), `clear_refs`), so nothing that lasts for a moment is overlooked.
#[derive(Clone, Copy, Debug)]
pub struct PeakMemory {
    pid: u32,
    before: f64,
}

impl PeakMemory {
    /// Begins with what the process needs now.
    ///
    /// # Errors
    /// It is gone, or somebody else's.
    pub fn of(pid: u32) -> Result<Self> {
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5")
            .with_context(|| format!("set the peak of process {pid} back"))?;
        Ok(Self { pid, before: rss_mib(pid) })
    }

    /// So many MiB more than at the beginning it needed at once since then.
    ///
    /// # Errors
    /// It is gone.
    pub fn grown_mib(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))
            .context("read what a process needs")?;
        let peak: f64 = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok())
            .context("this system does not say what a process needed at its peak")?;
        Ok(peak / 1024.0 - self.before)
    }
}
