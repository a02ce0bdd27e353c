//! Progress lines for a person at the terminal.

use std::io::Write;

/// Prints one line on standard error. It bypasses the test runner's capture, so that a first run
/// that builds for minutes does not look stuck.
pub fn print_message(line: &str) {
    // An error means that standard error is closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}
