//! The parent of one measured process; see `integration::measure::process_time`.
//!
//! Until a child executes its own program, the memory of its parent is counted as its own. This
//! program is therefore small: its few pages are the lowest value that can be measured.

use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the measuring process reads it")]
fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let Some(program) = args.next() else {
        eprintln!("time-one PROGRAM [ARGUMENT …]: runs it and prints what it took as JSON");
        return ExitCode::from(2);
    };
    let mut command = Command::new(&program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let began = Instant::now();
    let status = command.status();
    let wall = began.elapsed();
    match (status, getrusage(UsageWho::RUSAGE_CHILDREN)) {
        (Ok(status), Ok(usage)) if status.success() => {
            let microseconds =
                |time: nix::sys::time::TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
            println!(
                "{{\"wall_us\":{},\"cpu_us\":{},\"peak_kib\":{}}}",
                wall.as_micros(),
                microseconds(usage.user_time()) + microseconds(usage.system_time()),
                usage.max_rss()
            );
            ExitCode::SUCCESS
        }
        (status, usage) => {
            eprintln!("{}: {status:?}, {usage:?}", program.display());
            ExitCode::FAILURE
        }
    }
}
