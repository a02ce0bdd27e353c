//! Wall time, CPU time and peak memory of one process that ends, and CPU time of a running one.
//!
//! Each ending process has a parent of its own: the kernel's accounting of the parent's children is
//! then that of this one process, and a program that checks its parent sees a new one each time, as
//! it does below kubectl.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process::Program;

/// Resources that one process used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessUsage {
    /// Wall time in milliseconds.
    pub wall_ms: f64,
    /// User and system time, in milliseconds.
    pub cpu_ms: f64,
    /// Peak resident memory, in MiB.
    pub peak_mib: f64,
}

/// The JSON that the parent prints.
#[derive(Deserialize)]
struct TimeOneOutput {
    wall_us: u32,
    cpu_us: u32,
    peak_kib: u32,
}

/// Runs `program` once below a new parent (`time-one`). `parent` is that program in the environment
/// to run in.
///
/// # Errors
/// The program fails.
pub async fn time_one(parent: Program, program: &Path, args: &[String]) -> Result<ProcessUsage> {
    let finished =
        parent.arg(program).args(args).run(std::time::Duration::from_mins(1)).await?.success()?;
    let printed: TimeOneOutput =
        serde_json::from_str(&finished.stdout).context("read what the process took")?;
    Ok(ProcessUsage {
        wall_ms: f64::from(printed.wall_us) / 1e3,
        cpu_ms: f64::from(printed.cpu_us) / 1e3,
        peak_mib: f64::from(printed.peak_kib) / 1024.0,
    })
}

/// Returns the user and system time of a running process so far, in milliseconds, by the kernel's
/// clock of that process (`clock_getcpuclockid`(3)).
///
/// # Errors
/// The process is gone.
pub fn cpu_ms(pid: u32) -> Result<f64> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).context("name a process")?);
    let time = nix::time::clock_getcpuclockid(pid)
        .and_then(nix::time::clock_gettime)
        .with_context(|| format!("read the CPU time of process {pid}"))?;
    Ok(std::time::Duration::from(time).as_secs_f64() * 1e3)
}
