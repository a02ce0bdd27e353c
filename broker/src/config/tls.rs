//! Settings of the listener's certificate (`tls.*`).

use std::path::PathBuf;

use super::{
    Settings,
    declaration::{Declaration, Setting},
    parse::optional,
};
use crate::server::TlsFiles;

pub(super) const CERT_FILE: Setting<Option<PathBuf>> = Setting::new(
    "tls.cert_file",
    "",
    optional,
    "PEM certificate chain; with tls.key_file the broker serves TLS. Both are read again when they \
     change, and are used for new connections.",
);
pub(super) const KEY_FILE: Setting<Option<PathBuf>> =
    Setting::new("tls.key_file", "", optional, "PEM private key.");
pub(super) const SETTINGS: &[&dyn Declaration] = &[&CERT_FILE, &KEY_FILE];

pub(super) fn read(s: &mut Settings) -> Option<TlsFiles> {
    match (CERT_FILE.read(s), KEY_FILE.read(s)) {
        (Some(cert_file), Some(key_file)) => Some(TlsFiles { cert_file, key_file }),
        (None, None) => None,
        (Some(_), None) => {
            KEY_FILE.fault(s, "missing beside tls.cert_file");
            None
        }
        (None, Some(_)) => {
            CERT_FILE.fault(s, "missing beside tls.key_file");
            None
        }
    }
}
