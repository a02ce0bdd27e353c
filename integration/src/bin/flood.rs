//! The flooding client: a tenant who floods the gateway (`integration::measure::gateway::flood`),
//! or, with an argument, unauthenticated clients (`integration::measure::flood`).

use std::process::ExitCode;

use integration::measure::{flood, gateway};
use integration::progress::print_message;

fn main() -> ExitCode {
    let result = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| {
            if std::env::args().nth(1).as_deref() == Some(flood::ARGUMENT) {
                runtime.block_on(flood::flood())
            } else {
                runtime.block_on(gateway::flood())
            }
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_message(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
