//! Bodies of responses.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full, combinators::BoxBody};

/// Body of a response.
pub type Body = BoxBody<Bytes, std::io::Error>;

/// A body with these bytes.
pub fn full(bytes: Bytes) -> Body {
    if bytes.is_empty() {
        return Empty::new().map_err(|never| match never {}).boxed();
    }
    Full::new(bytes).map_err(|never| match never {}).boxed()
}
