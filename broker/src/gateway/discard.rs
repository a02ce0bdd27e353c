//! Discarding of the bodies of refused requests.

use std::{net::IpAddr, time::Duration};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use crate::base::rate_limit::{Client, RateLimiter};

/// Bytes of a refused request that are read and dropped.
const MAX_BYTES: usize = 1024 * 1024;
/// Frames of a refused request that are read and dropped.
const MAX_FRAMES: usize = 16_384;
/// How long a refused request is read and dropped.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Reads and drops the rest of a refused request, because a client that is still sending would not
/// see the response but a closed connection. If too many bodies are being discarded, nothing is
/// read, and the server closes the connection (HTTP/2: the stream) after the response.
pub(super) fn discard(limits: &RateLimiter, body: Incoming, address: Option<IpAddr>) {
    if body.is_end_stream() {
        return;
    }
    let Some(slot) = limits.discard_body(Client::from_address(address)) else { return };
    tokio::spawn(async move {
        let _ = tokio::time::timeout(TIMEOUT, drop_frames(body)).await;
        drop(slot);
    });
}

/// Reads a body frame by frame and drops the frames.
async fn drop_frames(mut body: Incoming) {
    let (mut bytes, mut frames) = (0, 0);
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
        frames += 1;
        if bytes > MAX_BYTES || frames > MAX_FRAMES {
            break;
        }
    }
}
