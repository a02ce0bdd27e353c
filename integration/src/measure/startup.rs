//! Start time of the broker, and its memory when idle.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::figure::{Figure, Threshold};
use super::process_memory::rss_mib;
use crate::process::Program;
use crate::world::World;

/// Times the broker's start until it is ready and its shortest command, in turn; and compares its
/// idle memory with the peak of that command.
///
/// # Errors
/// The broker does not start.
pub async fn start_to_ready(world: &World, rounds: usize) -> Result<Vec<Figure>> {
    let broker = world.broker();
    let program = world.binaries().tenant_broker();
    let parent = world.binaries().time_one();
    let mut times = Vec::with_capacity(rounds);
    let mut memory = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        broker.stop().await?;
        let baseline =
            super::process_time::time_one(Program::new(&parent), &program, &["--version".into()])
                .await?;
        let began = Instant::now();
        broker.start().await?;
        times.push((began.elapsed().as_secs_f64() * 1e3, baseline.wall_ms));
        // Memory that only the start needed is returned within a moment.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let pid = broker.pid().context("the broker has stopped")?;
        memory.push((rss_mib(pid), baseline.peak_mib));
    }
    let figures = [
        Figure::of_pairs(
            "broker: start to ready",
            "ms",
            "tenant-broker --version",
            &times,
            Threshold::None,
        ),
        Figure::of_pairs(
            "broker: resident memory, idle",
            "MiB",
            "tenant-broker --version",
            &memory,
            Threshold::None,
        ),
    ];
    Ok(figures.into_iter().flatten().collect())
}
