//! Kubeconfig files with everything embedded, for the harness's own identities.

use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use url::Url;

use crate::authority::Identity;
use crate::scratch::write_private;

/// Writes a kubeconfig (mode 0600) for one user of one cluster. `authority` is the CA's PEM.
///
/// # Errors
/// The file cannot be written.
pub fn write(
    file: &Path,
    server: &Url,
    authority: &str,
    user: &str,
    identity: &Identity,
) -> Result<()> {
    let document = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "development",
            // kubectl prints the URL as it stands here: without the slash that `Url` adds.
            "cluster": {
                "server": server.as_str().trim_end_matches('/'),
                "certificate-authority-data": STANDARD.encode(authority),
            },
        }],
        "users": [{
            "name": user,
            "user": {
                "client-certificate-data": STANDARD.encode(&identity.certificate),
                "client-key-data": STANDARD.encode(&identity.key),
            },
        }],
        "contexts": [{
            "name": "development",
            "context": { "cluster": "development", "user": user },
        }],
        "current-context": "development",
    });
    write_private(file, serde_norway::to_string(&document).context("write a kubeconfig")?)
}
