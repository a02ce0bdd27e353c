//! How much memory a running process needs, and how much more at its peak than before something was done
//! to it.

use anyhow::{Context, Result};

/// Resident memory of a process, in MiB; 0 if it is gone.
pub fn rss_mib(pid: u32) -> f64 {
    status_mib(pid, "VmRSS:").unwrap_or_default()
}

/// A size of `/proc/PID/status` (proc(5)), in MiB.
fn status_mib(pid: u32, field: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let size = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: f64 = size.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

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
        let peak = status_mib(self.pid, "VmHWM:")
            .context("it is gone, or this system does not say what a process needed at its peak")?;
        Ok(peak - self.before)
    }
}
