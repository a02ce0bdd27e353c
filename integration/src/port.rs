//! Free ports of 127.0.0.1.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

/// Ports of servers that tests start. They are below the ephemeral ports of outgoing connections (from
/// 32768 on Linux, from 49152 on macOS), because such a connection could take the port of a server
/// between its stop and its next start. Node ports of Kubernetes begin at 30000.
const PORTS: Range<u16> = 20_000..30_000;
/// Number of ports that are tried before [`free`] fails.
const MAX_ATTEMPTS: usize = 1_000;

/// Ports that [`free`] returned in this process.
static RETURNED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Returns a port that is free now and that this process gets only once, so that a server can stop
/// and listen on it again. Another process may take it before it is used, so the caller retries
/// with another port when the server's log says [`is_taken`].
///
/// # Errors
/// No free port was found, or the system has no random numbers.
pub fn free() -> Result<u16> {
    let mut returned = RETURNED.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..MAX_ATTEMPTS {
        let random = getrandom::u32().context("choose a port at random")?;
        let count = u32::from(PORTS.end - PORTS.start);
        let port = PORTS.start + u16::try_from(random % count).context("choose a port")?;
        if is_free(port) && returned.insert(port) {
            return Ok(port);
        }
    }
    bail!("found no free port from {} to {}", PORTS.start, PORTS.end - 1)
}

/// Returns this port if it is free, else another one.
///
/// # Errors
/// The system has no free port.
pub fn prefer(port: u16) -> Result<u16> {
    if is_free(port) { Ok(port) } else { free() }
}

/// Whether this port is free.
pub fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Whether a server's output says that its port was taken. Go, Rust and PostgreSQL all print the
/// system's text for EADDRINUSE.
pub fn is_taken(output: &str) -> bool {
    output.to_ascii_lowercase().contains("address already in use")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_returned_once_and_is_no_ephemeral_one() {
        let ports: Vec<u16> = (0..200).map(|_| free().unwrap()).collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
        assert!(ports.iter().all(|port| PORTS.contains(port)));
    }
}
