//! File descriptors: their limit for the process, and the number of connections that it permits.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

use super::accept::{ConnectionLimits, Connections};

/// File descriptors that are not for connections of clients: listeners, files, the database, and
/// idle connections to the API server.
const RESERVED: u64 = 256;
/// File descriptors of a connection: its own, and that of a request to the API server.
const PER_CONNECTION: u64 = 2;
/// Connections at least: a listener that waits for one takes it out of the limit, and there may be
/// two listeners.
const MIN_CONNECTIONS: usize = 2;
/// One address may have a connection in this many.
const CONNECTIONS_PER_ADDRESS_DIVISOR: usize = 4;

/// Raises the soft limit of file descriptors (`RLIMIT_NOFILE`) of this process to the hard one,
/// because most systems start programs with 1,024, for the sake of those that use select(2).
/// Returns the limit from now on; `None` if there is none, or it cannot be read.
pub fn raise_descriptor_limit() -> Option<u64> {
    let (soft, hard) = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok(limits) => limits,
        Err(error) => {
            tracing::warn!(%error, "cannot read the limit of file descriptors");
            return None;
        }
    };
    let mut limit = soft;
    // Where both are the same the call may be forbidden (SystemCallFilter= of systemd).
    if soft < hard {
        match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
            Ok(()) => limit = hard,
            Err(error) => tracing::warn!(%error, "cannot raise the limit of file descriptors"),
        }
    }
    (limit != RLIM_INFINITY).then_some(limit)
}

impl Connections {
    /// The connections of all listeners of this process, within the default limits, which are
    /// lowered to what this number of file descriptors permits; `None` permits any number.
    pub fn within_descriptors(descriptors: Option<u64>) -> Self {
        Self::new(ConnectionLimits::default().within_descriptors(descriptors))
    }
}

impl ConnectionLimits {
    /// These limits, lowered to what this number of file descriptors permits; `None` permits any
    /// number. Logs the result.
    fn within_descriptors(self, descriptors: Option<u64>) -> Self {
        let limits = descriptors.map_or(self, |descriptors| self.clamp(descriptors));
        let Self { total: connections, per_client: connections_per_address } = limits;
        if limits == self {
            tracing::info!(
                descriptors,
                connections,
                connections_per_address,
                "limits of connections"
            );
        } else {
            tracing::warn!(
                descriptors,
                connections,
                connections_per_address,
                "the limit of file descriptors lowers the limits of connections; raise the hard \
                 limit (LimitNOFILE= of systemd, ulimit -n)"
            );
        }
        limits
    }

    fn clamp(self, descriptors: u64) -> Self {
        let reserved = RESERVED.min(descriptors / 2);
        let permitted = (descriptors - reserved) / PER_CONNECTION;
        let permitted = usize::try_from(permitted).unwrap_or(usize::MAX).max(MIN_CONNECTIONS);
        Self {
            total: self.total.min(permitted),
            per_client: self.per_client.min((permitted / CONNECTIONS_PER_ADDRESS_DIVISOR).max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_lower_the_limits_of_connections() {
        let within = |descriptors: Option<u64>| {
            let limits = ConnectionLimits::default().within_descriptors(descriptors);
            (limits.total, limits.per_client)
        };
        let unlimited = (16_384, 4_096);
        for (descriptors, expected) in [
            (None, unlimited),
            (Some(u64::MAX), unlimited),
            // The limit of deploy/systemd and deploy/compose.yaml.
            (Some(65_536), unlimited),
            (Some(33_024), unlimited),
            (Some(33_022), (16_383, 4_095)),
            (Some(1_024), (384, 96)),
            (Some(256), (64, 16)),
            (Some(0), (2, 1)),
        ] {
            assert_eq!(within(descriptors), expected, "{descriptors:?}");
        }
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(raise_descriptor_limit().unwrap_or(RLIM_INFINITY), hard);
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
    }
}
