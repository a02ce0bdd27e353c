//! Free ports of 127.0.0.1.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result};

/// Returns a port that is free now. Another process may take it before it is used, so the caller
/// retries with another port when the server's log says [`is_taken`].
///
/// # Errors
/// The system has no free port.
pub fn free() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    Ok(listener.local_addr().context("find a free port")?.port())
}

/// Returns a port that is free now and is not `other`, which nobody listens on yet.
///
/// # Errors
/// The system has no free port.
pub fn free_except(other: u16) -> Result<u16> {
    loop {
        let port = free()?;
        if port != other {
            return Ok(port);
        }
    }
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
