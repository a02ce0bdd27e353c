//! The files of the image besides the broker and its libraries: accounts, name resolution, root
//! certificates and folders to mount on.

use std::fmt::Write as _;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use super::{STATE_FOLDER, USER};
use crate::file_tree::{FILE_MODE, FOLDER_MODE, FileTree};

/// The file of root certificates that is searched on Debian and in most images. The broker checks
/// the certificates of OpenID providers with it, and an operator may mount another one there.
const ROOTS_FILE: &str = "etc/ssl/certs/ca-certificates.crt";
/// Length of a line of a PEM file (RFC 7468, section 2).
const PEM_LINE: usize = 64;

/// Returns the files.
pub(super) fn tree() -> Result<FileTree> {
    let mut tree = FileTree::default();
    let state = STATE_FOLDER.trim_start_matches('/');
    let passwd = format!(
        "root:x:0:0:root:/:/sbin/nologin\n\
         nonroot:x:{USER}:{USER}:nonroot:{STATE_FOLDER}:/sbin/nologin\n"
    );
    tree.add_file("etc/passwd", FILE_MODE, passwd);
    tree.add_file("etc/group", FILE_MODE, format!("root:x:0:\nnonroot:x:{USER}:\n"));
    // The GNU C library asks DNS only if this says so; /etc/hosts comes first, as everywhere.
    let resolution = "passwd: files\ngroup: files\nhosts: files dns\n";
    tree.add_file("etc/nsswitch.conf", FILE_MODE, resolution);
    tree.add_file(ROOTS_FILE, FILE_MODE, root_certificates()?);
    // Mounted by container runtimes, which cannot create them in a read-only file system.
    for folder in ["dev", "proc", "sys", "run", "etc/tenant-broker"] {
        tree.add_folder(folder, FOLDER_MODE, 0);
    }
    tree.add_folder("tmp", 0o1777, 0);
    tree.add_folder(state, 0o700, USER);
    Ok(tree)
}

/// Returns Mozilla's root certificates for servers as PEM. They come from a package that
/// `Cargo.lock` pins, so that they are the same on every build machine.
fn root_certificates() -> Result<String> {
    let mut pem = String::new();
    for certificate in TLS_SERVER_ROOT_CERTS {
        writeln!(pem, "-----BEGIN CERTIFICATE-----")?;
        let text = STANDARD.encode(certificate);
        for start in (0..text.len()).step_by(PEM_LINE) {
            let end = text.len().min(start + PEM_LINE);
            writeln!(pem, "{}", &text[start..end])?;
        }
        writeln!(pem, "-----END CERTIFICATE-----")?;
    }
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificates_are_pem_with_lines_of_64_letters() {
        let pem = root_certificates().unwrap();
        let count = pem.matches("-----BEGIN CERTIFICATE-----").count();
        assert!(count > 50, "{count}");
        assert_eq!(pem.matches("-----END CERTIFICATE-----\n").count(), count);
        assert_eq!(pem.lines().map(str::len).max(), Some(PEM_LINE));
    }

    #[test]
    fn only_the_broker_may_write_to_its_state() {
        let tree = tree().unwrap();
        let state = tree.entries().find(|(path, _)| *path == "var/lib/tenant-broker").unwrap().1;
        assert_eq!((state.mode, state.owner), (0o700, USER));
        let above = tree.entries().find(|(path, _)| *path == "var/lib").unwrap().1;
        assert_eq!((above.mode, above.owner), (0o755, 0));
    }
}
