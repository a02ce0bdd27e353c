//! The entry point of `tenant-broker`: parses the arguments, starts the runtime, sets the exit
//! code.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = tenant_broker::cli::Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result =
        runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(cli.run()));
    match result {
        Ok(code) => code,
        Err(error) => {
            #[expect(
                clippy::print_stderr,
                reason = "the one place that prints the error of a command"
            )]
            {
                eprintln!("error: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
