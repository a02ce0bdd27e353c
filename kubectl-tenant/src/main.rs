//! Arguments in, exit code out.

use std::{ffi::OsString, process::ExitCode};

use kubectl_tenant::{World, run_after};
use tenant_cached_token::{Outcome, hit_of_this_process};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    match hit_of_this_process(&args) {
        Outcome::Printed(Ok(())) => ExitCode::SUCCESS,
        hit => ExitCode::from(run_after(hit, &args, &mut World::system())),
    }
}
