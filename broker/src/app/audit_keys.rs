//! Keys of the audit trail.

use std::sync::Arc;

use anyhow::Context as _;

use crate::{
    base::signing::{PrivateKey, PublicKeys},
    config::Config,
};

/// The signing keys of the audit trail.
#[derive(Debug)]
pub struct AuditKeys {
    /// Signs checkpoints.
    pub signing: Arc<PrivateKey>,
    /// Public keys that verify checkpoints, also those of earlier signing keys.
    pub known: PublicKeys,
}

/// Loads the keys of the audit trail.
///
/// # Errors
/// A key file cannot be used. The text names the setting.
pub fn audit_keys(config: &Config) -> anyhow::Result<AuditKeys> {
    const SETTING: &str = "audit.signing_key_files, or issuer.signing_key_files without it";
    let keys = PrivateKey::load(&config.audit.signing_key_files).context(SETTING)?;
    let mut known = PublicKeys::from_private(&keys);
    if let Some(path) = &config.audit.known_keys_file {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {} (audit.known_keys_file)", path.display()))?;
        let set = PublicKeys::parse(&text).context("audit.known_keys_file")?;
        known.extend(set.jwks().cloned());
    }
    let signing = keys.into_iter().next().context(SETTING)?;
    Ok(AuditKeys { signing: Arc::new(signing), known })
}
