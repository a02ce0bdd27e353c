//! The tenant who floods the gateway.

use url::Url;

/// The flooding tenant, and the paths that the tenant can request.
#[derive(Clone, Debug)]
pub(super) struct FloodingTenant {
    pub(super) gateway: Url,
    /// The CA as PEM.
    pub(super) authority: String,
    pub(super) token: String,
    /// Path of one small object.
    pub(super) small: String,
    /// Path of a list of 1 MiB.
    pub(super) list: String,
}
