//! The command of `--exec`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use integration::process::{Process, Program};
use rustix::process::Signal;

use crate::environment::Variable;
use crate::signals::Signals;

/// How long the command may go on after it was asked to stop.
const GRACE: Duration = Duration::from_secs(10);

/// Runs it on our own input and output, and returns its status. What stops us, stops it first.
pub(crate) async fn run(
    command: &str,
    variables: &[Variable],
    signals: &mut Signals,
) -> Result<ExitCode> {
    // At a terminal it must stay in our process group, or it could not read from there; Ctrl-C
    // then reaches it without us, and what it makes of that is its own affair.
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

/// The first signal is passed on, with time to obey; a second one ends it.
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
