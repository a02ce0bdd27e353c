//! Random bytes for names, passwords and protocol values.

use std::fmt::Write;

use anyhow::{Result, anyhow};
use rustls::crypto::ring;

/// Returns `count` random bytes from the system, as the TLS library draws them.
///
/// # Errors
/// The system has no random bytes.
pub fn bytes(count: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| anyhow!("the system gives no random bytes"))?;
    Ok(bytes)
}

/// Returns `count` random bytes as lower-case hexadecimal digits.
///
/// # Errors
/// The system has no random bytes.
pub fn hex(count: usize) -> Result<String> {
    let mut digits = String::with_capacity(2 * count);
    for byte in bytes(count)? {
        write!(digits, "{byte:02x}")?;
    }
    Ok(digits)
}
