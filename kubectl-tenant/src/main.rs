//! Arguments in, exit code out.

use std::{ffi::OsString, process::ExitCode};

use kubectl_tenant::{World, run};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    ExitCode::from(run(&args, &mut World::system()))
}
