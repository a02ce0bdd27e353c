//! The chain as it was exported: a file of lines.

use std::io::{self, BufRead, Read as _};

use super::{Expected, Fault, Line, Outcome, Start, line::MOST_LINE_BYTES, verify::Verifier};
use crate::signing::PublicKeys;

/// Lines between two reports of progress.
const REPORT: u64 = 1000;

/// Verifies exported lines, one export or several behind each other. `progress` hears now and then
/// how many rows were looked at.
///
/// # Errors
/// The file cannot be read.
pub fn verify(
    mut lines: impl BufRead,
    keys: &PublicKeys,
    start: Start,
    expected: Option<Expected>,
    mut progress: impl FnMut(u64),
) -> io::Result<Outcome> {
    let mut verifier = Verifier::new(keys, start, expected);
    let mut bytes = Vec::new();
    let most = u64::try_from(MOST_LINE_BYTES).unwrap_or(u64::MAX);
    for number in 1u64.. {
        bytes.clear();
        (&mut lines).take(most).read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            break;
        }
        let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let parsed = std::str::from_utf8(text)
            .map_err(|error| error.to_string())
            .and_then(Line::parse)
            .map_err(|why| format!("line {number}: {why}"));
        let after = verifier.last().sequence;
        let taken = parsed
            .map_err(|why| Fault::Unreadable { after, why })
            .and_then(|line| verifier.take(&line));
        if let Err(fault) = taken {
            return Ok(verifier.outcome(Some(fault), None));
        }
        if number % REPORT == 0 {
            progress(verifier.rows());
        }
    }
    let fault = verifier.finish().err();
    Ok(verifier.outcome(fault, None))
}
