//! The broker's program: arguments, exit code, nothing else.

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
            #[expect(clippy::print_stderr, reason = "the one place that tells a person why")]
            {
                eprintln!("error: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
