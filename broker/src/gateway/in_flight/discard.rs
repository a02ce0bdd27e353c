//! Discarding of request bodies that nobody reads any more, because the response is known.

use std::{net::IpAddr, time::Duration};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::runtime::Handle;

use crate::base::rate_limit::{ClientNetwork, RateLimiter};

/// Bytes of a refused request that are read and dropped.
const MAX_BYTES: usize = 1024 * 1024;
/// Frames of a refused request that are read and dropped.
const MAX_FRAMES: usize = 16_384;
/// How long a refused request is read and dropped.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection is kept open after one of the limits, so that the client, whose writes then
/// block, reads the response before it sees the connection closed.
const CLOSE_DELAY: Duration = Duration::from_secs(1);

/// Discards the body of a request of one client.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct Discarder {
    /// Limits the number of bodies that are discarded concurrently.
    pub(in crate::gateway) limits: RateLimiter,
    /// Address of the client.
    pub(in crate::gateway) address: Option<IpAddr>,
}

impl Discarder {
    /// Reads and drops the rest of a body, because a client that is still sending would not see the
    /// response but a closed connection. If too many bodies are being discarded, nothing is read,
    /// and the server closes the connection (HTTP/2: the stream) after the response.
    pub(in crate::gateway) fn discard(&self, mut body: Incoming) {
        if body.is_end_stream() {
            return;
        }
        let Some(slot) = self.limits.discard_body(ClientNetwork::from_address(self.address)) else {
            return;
        };
        // A body that is dropped when the runtime ends is not discarded.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let complete = tokio::time::timeout(TIMEOUT, drop_frames(&mut body)).await;
            if complete == Ok(false) {
                tokio::time::sleep(CLOSE_DELAY).await;
            }
            drop((body, slot));
        });
    }
}

/// Reads a body frame by frame and drops the frames. Returns whether the body has ended; `false`
/// beyond one of the limits.
async fn drop_frames(body: &mut Incoming) -> bool {
    let (mut bytes, mut frames) = (0, 0);
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
        frames += 1;
        if bytes > MAX_BYTES || frames > MAX_FRAMES {
            return false;
        }
    }
    true
}
