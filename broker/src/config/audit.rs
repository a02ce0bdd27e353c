//! Settings of the audit trail (`audit.*`).

use std::path::PathBuf;

use super::{
    Settings,
    declaration::{Declaration, Setting},
    parse::{list, optional, within},
};
use crate::{audit::AuditSettings, issuer::IssuerSettings};

pub(super) const SIGNING_KEY_FILES: Setting<Vec<PathBuf>> = Setting::new(
    "audit.signing_key_files",
    "",
    list,
    "PEM files with EC P-256 keys; the first key of the first file signs the audit trail's \
     checkpoints, all verify them. They are read again when they change. Empty: the issuer's.",
);
pub(super) const KNOWN_KEYS_FILE: Setting<Option<PathBuf>> = Setting::new(
    "audit.known_keys_file",
    "",
    optional,
    "JSON Web Key Set with public keys that signed checkpoints earlier. It is read again when it \
     changes.",
);
const RETENTION_DAYS: Setting<u32> = Setting::new(
    "audit.retention_days",
    "0",
    within::<0, 36_500>,
    "Days after which audit rows are deleted, at the latest a day later; 0 keeps them for ever.",
);
pub(super) const SETTINGS: &[&dyn Declaration] =
    &[&SIGNING_KEY_FILES, &KNOWN_KEYS_FILE, &RETENTION_DAYS];

pub(super) fn read(s: &mut Settings, issuer: &IssuerSettings) -> AuditSettings {
    let mut signing_key_files = SIGNING_KEY_FILES.read(s);
    if signing_key_files.is_empty() {
        signing_key_files.clone_from(&issuer.signing_key_files);
    }
    AuditSettings {
        signing_key_files,
        known_keys_file: KNOWN_KEYS_FILE.read(s),
        retention_days: RETENTION_DAYS.read(s),
    }
}
