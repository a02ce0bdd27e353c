//! Archives to unpack by hand, by krew and by the installer script: a program with its documents.

use anyhow::Result;
use bytes::Bytes;

use crate::file_tree::{FILE_MODE, FileTree, PROGRAM_MODE};
use crate::plugin_files::PluginFiles;
use crate::source::Source;
use crate::{BROKER, PLUGIN};

/// Builds the archive of the plugin. Everything is at the top, because krew wants the license there;
/// scripts and pages are in folders.
///
/// # Errors
/// A name is no relative path.
pub fn plugin(
    program: Bytes,
    shared: &PluginFiles,
    documents: &FileTree,
    source: &Source,
) -> Result<Vec<u8>> {
    let mut files = documents.clone();
    files.add_file(PLUGIN, PROGRAM_MODE, program);
    let PluginFiles { bash, zsh, fish, kubectl, manual } = shared;
    files.add_file("kubectl_complete-tenant", PROGRAM_MODE, kubectl.clone());
    files.add_file(&format!("completions/{PLUGIN}.bash"), FILE_MODE, bash.clone());
    files.add_file(&format!("completions/_{PLUGIN}"), FILE_MODE, zsh.clone());
    files.add_file(&format!("completions/{PLUGIN}.fish"), FILE_MODE, fish.clone());
    for (name, page) in manual {
        files.add_file(&format!("man/man1/{name}"), FILE_MODE, page.clone());
    }
    files.tar_gz(source.time)
}

/// Builds the archive of the broker, for systems without one of the packages. It has the files of
/// `deploy/systemd`.
///
/// # Errors
/// A name is no relative path.
pub fn broker(
    program: Bytes,
    units: &FileTree,
    documents: &FileTree,
    source: &Source,
) -> Result<Vec<u8>> {
    let mut files = documents.clone();
    files.add_file(BROKER, PROGRAM_MODE, program);
    for (name, content) in units.files() {
        files.add_file(&format!("systemd/{name}"), FILE_MODE, content.clone());
    }
    files.tar_gz(source.time)
}
