//! Resident memory of a running process, and its peak growth during an operation.

use anyhow::{Context, Result};

/// Returns the resident memory of a process in MiB; 0 if it is gone.
pub fn rss_mib(pid: u32) -> f64 {
    status_mib(pid, "VmRSS:").unwrap_or_default()
}

/// Reads a size in `/proc/PID/status` (proc(5)), in MiB.
fn status_mib(pid: u32, field: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let size = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: f64 = size.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

/// Peak memory of a process from now on. Linux itself tracks the peak and resets it on request
/// (proc(5), `clear_refs`), so no short peak is missed.
#[derive(Clone, Copy, Debug)]
pub struct PeakMemory {
    pid: u32,
    before: f64,
}

impl PeakMemory {
    /// Starts at the current memory of the process.
    ///
    /// # Errors
    /// The process is gone, or belongs to another user.
    pub fn of(pid: u32) -> Result<Self> {
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5")
            .with_context(|| format!("set the peak of process {pid} back"))?;
        Ok(Self { pid, before: rss_mib(pid) })
    }

    /// Returns by how many MiB the peak since the start exceeds the memory at the start.
    ///
    /// # Errors
    /// The process is gone.
    pub fn grown_mib(&self) -> Result<f64> {
        let peak = status_mib(self.pid, "VmHWM:")
            .context("it is gone, or this system does not say what a process needed at its peak")?;
        Ok(peak - self.before)
    }
}
