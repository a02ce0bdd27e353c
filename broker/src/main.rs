//! The entry point of `tenant-broker`: parses the arguments, starts the runtime, sets the exit
//! code.

use std::{process::ExitCode, time::Duration};

use clap::Parser as _;

/// How long the end of the process waits for blocking calls, because a file system may hang.
const BLOCKING_CALLS_TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let cli = tenant_broker::cli::Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(cli.run());
        runtime.shutdown_timeout(BLOCKING_CALLS_TIMEOUT);
        result
    });
    match result {
        Ok(code) => code,
        Err(error) => {
            tenant_broker::cli::print_error(&error);
            ExitCode::FAILURE
        }
    }
}
