//! The program: passes the arguments to the fast path, then to the library, and returns the exit
//! code.

use std::{ffi::OsString, process::ExitCode};

use kubectl_tenant::{World, run_after};
use tenant_cached_token::{HitOutcome, try_hit_in_process};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    match try_hit_in_process(&args) {
        HitOutcome::Printed(Ok(())) => ExitCode::SUCCESS,
        hit => ExitCode::from(run_after(hit, &args, &mut World::system())),
    }
}
