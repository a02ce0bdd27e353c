//! `cargo acceptance`: checks that take too long, or need too much, for every test run.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use integration::acceptance::tenants::{self, TenantsRun};
use integration::acceptance::{conformance, keycloak, restore, streams, upgrade, watches};
use integration::progress::print_message;

/// Checks the whole product against programs that companies really use. Prints each step with its
/// time and keeps screenshots of the pages in target/screenshots.
#[derive(Debug, Parser)]
#[command(name = "cargo acceptance")]
struct Args {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Kubernetes conformance suite, directly and through the gateway (needs Go; ten minutes, and
    /// nine to build it the first time)
    Conformance,
    /// Sign-in with Keycloak and a real browser (needs Java, Maven and Chromium; five minutes)
    Keycloak,
    /// Backup and restore of many workspaces, on both engines, with a release build
    Restore {
        /// Number of rows of workspaces
        #[arg(long, default_value_t = 100_000)]
        workspaces: u32,
        /// Number of workspaces that exist in the cluster, 400 at most; their ServiceAccounts are
        /// replaced
        #[arg(long, default_value_t = 100)]
        real: usize,
    },
    /// kubectl streams that stay idle for eleven minutes, directly and through the gateway
    Streams {
        /// Idle time in minutes
        #[arg(long, default_value_t = 11)]
        minutes: u64,
    },
    /// Rights in random Tenants, first requests in new namespaces, and crashes of the broker
    Tenants {
        /// Number of random changes, after each of which everybody's rights are compared
        #[arg(long, default_value_t = 100)]
        changes: usize,
        /// Number of namespaces with a first request each
        #[arg(long, default_value_t = 500)]
        namespaces: usize,
        /// Number of crashes
        #[arg(long, default_value_t = 100)]
        crashes: usize,
        /// Number of moves of a namespace with a kill each
        #[arg(long, default_value_t = 12)]
        moves: usize,
        /// Seed of the random numbers, to repeat a run; by default another one each time
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Rolling upgrade of two replicas from another version of the broker, while people work
    Upgrade {
        /// The commit of that version; its broker is built once
        #[arg(long, value_name = "COMMIT")]
        from: String,
    },
    /// Idle watches through the gateway of a release build
    Watches {
        /// Idle time in minutes
        #[arg(long, default_value_t = 60)]
        minutes: u64,
        /// Number of concurrent watches
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
            print_message(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<()> {
    match args.part {
        Part::Conformance => Box::pin(conformance::run()).await,
        Part::Keycloak => Box::pin(keycloak::run()).await,
        Part::Restore { workspaces, real } => Box::pin(restore::run(workspaces, real)).await,
        Part::Streams { minutes } => Box::pin(streams::run(Duration::from_mins(minutes))).await,
        Part::Tenants { changes, namespaces, crashes, moves, seed } => {
            let seed = match seed {
                Some(seed) => seed,
                None => random_seed()?,
            };
            Box::pin(tenants::run(TenantsRun { changes, namespaces, crashes, moves, seed })).await
        }
        Part::Upgrade { ref from } => Box::pin(upgrade::run(from)).await,
        Part::Watches { minutes, watches } => {
            Box::pin(watches::run(watches, Duration::from_mins(minutes))).await
        }
    }
}

fn random_seed() -> Result<u64> {
    let bytes = integration::random::bytes(4)?;
    Ok(bytes.into_iter().fold(0, |seed, byte| (seed << 8) | u64::from(byte)))
}
