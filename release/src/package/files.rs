//! The files of the packages.

use std::path::Path;

use anyhow::Result;
use bytes::Bytes;

use super::Format;
use crate::file_tree::{FILE_MODE, FileTree, PROGRAM_MODE, gzip};
use crate::plugin_files::PluginFiles;
use crate::{BROKER, PLUGIN};

/// Mode of `/etc/tenant-broker`, which has keys.
const SETTINGS_MODE: u32 = 0o750;

/// The files of the broker's package: the program, the unit of systemd with its account, and
/// `/etc/tenant-broker`. `units` and `documents` are files by name.
pub fn broker_files(
    program: Bytes,
    units: &FileTree,
    documents: &FileTree,
    format: Format,
) -> FileTree {
    let mut files = FileTree::default();
    files.add_file(&format!("usr/bin/{BROKER}"), PROGRAM_MODE, program);
    // It gets the group of the broker when there is one, by tmpfiles.d.
    files.add_folder("etc/tenant-broker", SETTINGS_MODE, 0);
    add_documents(&mut files, BROKER, documents, format);
    for (name, content) in units.files() {
        let installed = installed_unit(name)
            .unwrap_or_else(|| format!("usr/share/doc/{BROKER}/examples/{name}"));
        files.add_file(&installed, FILE_MODE, content.clone());
    }
    files
}

/// Returns the path of a file that systemd reads; other files of the folder are examples.
fn installed_unit(name: &str) -> Option<String> {
    if Path::new(name).extension().is_some_and(|extension| extension == "service") {
        return Some(format!("usr/lib/systemd/system/{name}"));
    }
    for folder in ["sysusers", "tmpfiles"] {
        if let Some(owner) = name.strip_suffix(&format!(".{folder}.conf")) {
            return Some(format!("usr/lib/{folder}.d/{owner}.conf"));
        }
    }
    None
}

/// The files of the plugin's package: the program, its completion and its manual.
///
/// # Errors
/// Never, because the output of the compression is in memory.
pub fn plugin_files(
    program: Bytes,
    shared: &PluginFiles,
    documents: &FileTree,
    format: Format,
) -> Result<FileTree> {
    let mut files = FileTree::default();
    files.add_file(&format!("usr/bin/{PLUGIN}"), PROGRAM_MODE, program);
    let PluginFiles { bash, zsh, fish, kubectl, manual } = shared;
    files.add_file("usr/bin/kubectl_complete-tenant", PROGRAM_MODE, kubectl.clone());
    let of_bash = format!("usr/share/bash-completion/completions/{PLUGIN}");
    files.add_file(&of_bash, FILE_MODE, bash.clone());
    let of_zsh = match format {
        Format::Deb => "vendor-completions",
        Format::Rpm => "site-functions",
    };
    files.add_file(&format!("usr/share/zsh/{of_zsh}/_{PLUGIN}"), FILE_MODE, zsh.clone());
    let of_fish = format!("usr/share/fish/vendor_completions.d/{PLUGIN}.fish");
    files.add_file(&of_fish, FILE_MODE, fish.clone());
    for (name, page) in manual {
        files.add_file(&format!("usr/share/man/man1/{name}.gz"), FILE_MODE, gzip(page)?);
    }
    add_documents(&mut files, PLUGIN, documents, format);
    Ok(files)
}

fn add_documents(files: &mut FileTree, package: &str, documents: &FileTree, format: Format) {
    let folder = format!("usr/share/doc/{package}");
    for (name, content) in documents.files() {
        files.add_file(&format!("{folder}/{name}"), FILE_MODE, content.clone());
        // Debian wants the license under this name (policy, section 12.5).
        if format == Format::Deb && name == "LICENSE" {
            files.add_file(&format!("{folder}/copyright"), FILE_MODE, content.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_systemd_go_where_it_reads_them() {
        for (name, installed) in [
            ("tenant-broker.service", Some("usr/lib/systemd/system/tenant-broker.service")),
            ("tenant-broker.sysusers.conf", Some("usr/lib/sysusers.d/tenant-broker.conf")),
            ("tenant-broker.tmpfiles.conf", Some("usr/lib/tmpfiles.d/tenant-broker.conf")),
            ("sqlite.conf", None),
            ("broker.toml", None),
        ] {
            assert_eq!(installed_unit(name).as_deref(), installed, "{name}");
        }
    }
}
