//! Wall time, CPU time and peak memory of one process.
//!
//! Each process is started by a parent made for it alone: the kernel's account of a parent's
//! children is then the account of this one process, and a program that looks at its parent sees a
//! new one each time, as it does below kubectl.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use crate::process::{Finished, Program};

/// Argument that makes `measure` the parent of one process.
pub const PARENT: &str = "time-one";

/// What one process took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// From its start to its end, in milliseconds.
    pub wall_ms: f64,
    /// User and system time, in milliseconds.
    pub cpu_ms: f64,
    /// Peak resident memory, in MiB.
    pub peak_mib: f64,
}

/// The parent's part: runs the program with our environment and prints what it took as JSON.
///
/// # Errors
/// The program cannot be started or fails.
#[expect(clippy::print_stdout, reason = "the measuring process reads it")]
pub fn be_parent(program: &str, args: &[String]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let began = Instant::now();
    let status = command.status().with_context(|| format!("start {program}"))?;
    let wall = began.elapsed();
    if !status.success() {
        bail!("{program} failed with {status}");
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("ask for the children's usage")?;
    let milliseconds = |time: nix::sys::time::TimeVal| {
        let microseconds = time.tv_sec() * 1_000_000 + time.tv_usec();
        std::time::Duration::from_micros(u64::try_from(microseconds).unwrap_or(0)).as_secs_f64()
            * 1e3
    };
    let kib = f64::from(u32::try_from(usage.max_rss()).unwrap_or(u32::MAX));
    let taken = Taken {
        wall_ms: wall.as_secs_f64() * 1e3,
        cpu_ms: milliseconds(usage.user_time()) + milliseconds(usage.system_time()),
        peak_mib: kib / 1024.0,
    };
    println!("{}", serde_json::to_string(&taken)?);
    Ok(())
}

/// Runs `program` once below a new parent. `base` is the environment to run it in.
///
/// # Errors
/// It fails.
pub async fn time_one(base: Program, program: &Path, args: &[String]) -> Result<Taken> {
    let finished: Finished = base
        .arg(PARENT)
        .arg(program)
        .args(args)
        .run(std::time::Duration::from_mins(1))
        .await?
        .success()?;
    serde_json::from_str(&finished.stdout).context("read what the process took")
}
