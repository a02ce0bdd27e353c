//! Kubeconfig files with embedded credentials, for the harness's own identities.

use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
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
    let credential = json!({
        "client-certificate-data": STANDARD.encode(&identity.certificate),
        "client-key-data": STANDARD.encode(&identity.key),
    });
    write_with(file, server, authority, user, &credential)
}

/// Writes the same for a user with a bearer token.
///
/// # Errors
/// The file cannot be written.
pub fn write_for_bearer(
    file: &Path,
    server: &Url,
    authority: &str,
    token: &SecretString,
) -> Result<()> {
    write_with(file, server, authority, "bearer", &json!({"token": token.expose_secret()}))
}

fn write_with(
    file: &Path,
    server: &Url,
    authority: &str,
    user: &str,
    credential: &Value,
) -> Result<()> {
    let document = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "development",
            // kubectl prints the URL as it is here: without the slash that `Url` appends.
            "cluster": {
                "server": server.as_str().trim_end_matches('/'),
                "certificate-authority-data": STANDARD.encode(authority),
            },
        }],
        "users": [{ "name": user, "user": credential }],
        "contexts": [{
            "name": "development",
            "context": { "cluster": "development", "user": user },
        }],
        "current-context": "development",
    });
    write_private(file, serde_norway::to_string(&document).context("write a kubeconfig")?)
}
