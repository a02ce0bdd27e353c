//! `cargo acceptance`: what takes too long, or needs too much, for every run of the tests.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use integration::acceptance::{conformance, keycloak, streams, watches};
use integration::progress::say;

/// Tries the whole product against programs that companies really have. Prints each step with its
/// time; pictures of the pages are kept in target/screenshots.
#[derive(Debug, Parser)]
#[command(name = "cargo acceptance")]
struct Args {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// The conformance suite of Kubernetes, directly and through the gateway (needs Go; ten minutes,
    /// and nine to build it the first time)
    Conformance,
    /// Sign-in at Keycloak with a real browser (needs Java, Maven and Chromium; five minutes)
    Keycloak,
    /// Streams of kubectl that nobody uses for eleven minutes, directly and through the gateway
    Streams {
        /// For how many minutes instead
        #[arg(long, default_value_t = 11)]
        minutes: u64,
    },
    /// Idle watches through the gateway, whose broker is the one that is shipped
    Watches {
        /// For how many minutes
        #[arg(long, default_value_t = 60)]
        minutes: u64,
        /// How many at once
        #[arg(long, default_value_t = 10_000)]
        watches: usize,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = tokio::runtime::Runtime::new()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(&args)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<()> {
    match args.part {
        Part::Conformance => Box::pin(conformance::run()).await,
        Part::Keycloak => Box::pin(keycloak::run()).await,
        Part::Streams { minutes } => Box::pin(streams::run(Duration::from_mins(minutes))).await,
        Part::Watches { minutes, watches } => {
            Box::pin(watches::run(watches, Duration::from_mins(minutes))).await
        }
    }
}
