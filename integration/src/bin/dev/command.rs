//! The command of `--exec`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use integration::process::{Process, Program};
use rustix::process::Signal;

use crate::environment::Variable;
use crate::signals::Signals;

/// Time for the command to end after it was asked to stop.
const GRACE: Duration = Duration::from_secs(10);

/// Runs the command on our own input and output, and returns its status. A signal that stops us
/// stops the command first.
pub(crate) async fn run(
    command: &str,
    variables: &[Variable],
    signals: &mut Signals,
) -> Result<ExitCode> {
    // At a terminal the command must stay in our process group, or it could not read from the
    // terminal; Ctrl-C then reaches it without us, and it handles the signal itself.
    let at_terminal = std::io::stdin().is_terminal();
    let mut program = Program::new("/bin/sh").args(["-c", command]);
    for variable in variables {
        program = match &variable.value {
            Some(value) => program.env(variable.name, value),
            None => program.without_env(variable.name),
        };
    }
    let process = program.spawn_attached(!at_terminal)?;
    let mut asked = false;
    loop {
        tokio::select! {
            status = process.wait() => {
                let status = status.context("the end of the command was not seen")?;
                return Ok(code(status));
            }
            signal = signals.next() => {
                if signal == Signal::INT && at_terminal {
                    continue;
                }
                pass_on(&process, signal, asked).await?;
                asked = true;
            }
        }
    }
}

/// Passes the first signal on and gives the command time to end; a second signal kills it.
async fn pass_on(process: &Process, signal: Signal, again: bool) -> Result<()> {
    if !again {
        process.signal_group(signal)?;
        if tokio::time::timeout(GRACE, process.wait()).await.is_ok() {
            return Ok(());
        }
    }
    process.kill();
    Ok(())
}

fn code(status: std::process::ExitStatus) -> ExitCode {
    let code = integration::process::exit_code(status);
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
