//! What a person at the terminal is told while they wait.

use std::io::Write;

/// One line on standard error. It goes past the test runner's capture, so that a first run that
/// builds for minutes does not look stuck.
pub fn say(line: &str) {
    // With standard error closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{line}");
}
