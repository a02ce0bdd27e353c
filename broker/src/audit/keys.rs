//! Keys of the audit trail.

use std::{path::PathBuf, sync::Arc};

use secrecy::ExposeSecret as _;

use super::AuditSettings;
use crate::base::{
    reload::{FileError, FileSource, Files, Loaded},
    signing::{JwksError, KeyError, PrivateKey, PublicKeys},
};

/// The signing keys of the audit trail.
#[derive(Clone, Debug)]
pub struct AuditKeys {
    /// Signs checkpoints.
    pub signing: Arc<PrivateKey>,
    /// Public keys that verify checkpoints, also those of earlier signing keys.
    pub known: PublicKeys,
}

/// A key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuditKeyError {
    /// A signing key.
    #[error("audit.signing_key_files, or issuer.signing_key_files without it")]
    Signing(#[from] KeyError),
    /// The file with earlier public keys cannot be read.
    #[error("audit.known_keys_file")]
    Known(#[from] FileError),
    /// The file with earlier public keys contains something else.
    #[error("{path} (audit.known_keys_file)", path = path.display())]
    KnownKeys {
        /// Path of the file.
        path: PathBuf,
        /// The error of the parser.
        source: JwksError,
    },
}

/// The files with the keys.
#[derive(Clone, Debug)]
pub struct AuditKeyFiles(pub AuditSettings);

impl FileSource for AuditKeyFiles {
    type Value = AuditKeys;
    type Error = AuditKeyError;

    const ADVICE: &'static str = "repair the key files (audit.signing_key_files, or \
                                  issuer.signing_key_files without it, and \
                                  audit.known_keys_file); they are read again by themselves";

    fn load(&self, files: &mut Files) -> Result<Loaded<AuditKeys>, AuditKeyError> {
        let Self(AuditSettings { signing_key_files, known_keys_file, .. }) = self;
        let keys = PrivateKey::load(signing_key_files, files)?;
        let mut known = PublicKeys::from_private(&keys);
        if let Some(path) = known_keys_file {
            let text = files.read_text(path)?;
            let set = PublicKeys::parse(text.expose_secret())
                .map_err(|source| AuditKeyError::KnownKeys { path: path.clone(), source })?;
            known.extend(set.jwks().cloned());
        }
        let signing = keys.into_iter().next().ok_or(KeyError::None)?;
        Ok(Loaded::without_end(AuditKeys { signing: Arc::new(signing), known }))
    }
}
