//! Verification of an exported chain: a file of lines.

use std::io::{self, BufRead, Read as _};

use super::{
    Head, Line, SealedRow, Start, VerificationFault, VerificationReport, line::MAX_LINE_BYTES,
    verify::Verifier,
};
use crate::base::signing::PublicKeys;

/// Lines between two progress reports.
const PROGRESS_INTERVAL_LINES: u64 = 1000;

/// Verifies exported lines, of one export or of several concatenated exports. `progress` is called
/// now and then with the number of verified rows.
///
/// # Errors
/// The file cannot be read.
pub fn verify(
    lines: impl BufRead,
    keys: &PublicKeys,
    start: Start,
    expected: Option<Head>,
    progress: impl FnMut(u64),
) -> io::Result<VerificationReport> {
    verify_rows(lines, keys, start, expected, progress, |_| {})
}

/// Like [`verify`], and gives each row to `read`, in the same pass over the lines. The rows are
/// proven only if the report has no fault.
///
/// # Errors
/// The file cannot be read.
pub fn verify_rows(
    mut lines: impl BufRead,
    keys: &PublicKeys,
    start: Start,
    expected: Option<Head>,
    mut progress: impl FnMut(u64),
    mut read: impl FnMut(SealedRow),
) -> io::Result<VerificationReport> {
    let mut verifier = Verifier::new(keys, start, expected);
    let mut bytes = Vec::new();
    let max_bytes = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
    for number in 1u64.. {
        bytes.clear();
        (&mut lines).take(max_bytes).read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            break;
        }
        let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let parsed = std::str::from_utf8(text)
            .map_err(|error| error.to_string())
            .and_then(Line::parse)
            .map_err(|why| format!("line {number}: {why}"));
        let after = verifier.last().sequence;
        let checked = parsed
            .map_err(|why| VerificationFault::Unreadable { after, why })
            .and_then(|line| verifier.check(&line).map(|()| line));
        match checked {
            Ok(Line::Row(sealed)) => read(*sealed),
            Ok(Line::Start { .. } | Line::Anchor { .. } | Line::Checkpoint { .. }) => {}
            Err(fault) => return Ok(verifier.into_report(Some(fault), None)),
        }
        if number % PROGRESS_INTERVAL_LINES == 0 {
            progress(verifier.rows());
        }
    }
    let fault = verifier.finish().err();
    Ok(verifier.into_report(fault, None))
}
