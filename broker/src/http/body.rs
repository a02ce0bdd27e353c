//! Bodies of responses.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full, combinators::BoxBody};

/// Body of a response.
pub type Body = BoxBody<Bytes, std::io::Error>;

/// An extension of responses whose body holds a permit of its tenant's limits until it is sent.
/// They do not count against the limit of the broker's own responses.
#[derive(Clone, Copy, Debug)]
pub struct WithinTenantLimits;

/// A body with these bytes.
pub fn full(bytes: Bytes) -> Body {
    if bytes.is_empty() {
        return Empty::new().map_err(|never| match never {}).boxed();
    }
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// Data of a body that hold a permit until the server has written them to the connection, or has
/// dropped them with it. The body itself cannot hold the permit that long, because h2 takes over
/// all data of a body as soon as the client allows a single byte to be sent, and the body is then
/// dropped.
pub fn with_permit<P: Send + Sync + 'static>(data: Bytes, permit: Arc<P>) -> Bytes {
    Bytes::from_owner(PermitBytes { data, _permit: permit })
}

/// Bytes and the permit that they hold.
struct PermitBytes<P> {
    data: Bytes,
    _permit: Arc<P>,
}

impl<P> AsRef<[u8]> for PermitBytes<P> {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_hold_their_permit_until_the_last_part_is_dropped() {
        let permit = Arc::new(());
        let mut data = with_permit(Bytes::from_static(b"two parts"), Arc::clone(&permit));
        let first = data.split_to(3);
        assert_eq!((&first[..], &data[..]), (&b"two"[..], &b" parts"[..]));
        drop(first);
        assert_eq!(Arc::strong_count(&permit), 2);
        drop(data);
        assert_eq!(Arc::strong_count(&permit), 1);
    }
}
