//! Versions of broker and plugin that work together.
//!
//! The table in `docs/kubectl-tenant.md` has a row for each release. A release that needs a newer
//! peer than before raises one of the two minima here and adds a row.

/// Response header with the version of the broker (Semantic Versioning 2.0.0). Only responses of the
/// HTTP API to an authenticated caller have it, because a version helps whoever looks for known
/// defects.
pub const BROKER_VERSION_HEADER: &str = "tenant-broker-version";
/// Response header with [`MIN_PLUGIN_VERSION`] of the broker, beside [`BROKER_VERSION_HEADER`].
pub const MIN_PLUGIN_VERSION_HEADER: &str = "tenant-min-plugin-version";
/// Oldest version of the plugin that this version of the broker supports.
pub const MIN_PLUGIN_VERSION: &str = "0.1.0";
/// Oldest version of the broker that this version of the plugin supports.
pub const MIN_BROKER_VERSION: &str = "0.1.0";
