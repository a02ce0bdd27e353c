//! The OCI image of the broker, as a tar of an image layout. No container engine is involved.
//!
//! There is no shell, no package manager and no set-uid program in it. The first layer changes with
//! the system that builds it and with the root certificates, the second one with each version. Two
//! images of the same files have the same digest.

mod layout;
mod system_files;

use std::collections::HashMap;

use anyhow::{Context, Result};
use bytes::Bytes;
use oci_spec::image::{
    ANNOTATION_CREATED, ANNOTATION_DESCRIPTION, ANNOTATION_DOCUMENTATION, ANNOTATION_LICENSES,
    ANNOTATION_REVISION, ANNOTATION_SOURCE, ANNOTATION_TITLE, ANNOTATION_URL, ANNOTATION_VERSION,
    Config, ConfigBuilder, History, HistoryBuilder, ImageConfigurationBuilder, Os, RootFsBuilder,
};

use crate::BROKER;
use crate::c_library::Library;
use crate::digest::sha256;
use crate::file_tree::{FileTree, PROGRAM_MODE, gzip};
use crate::source::Source;
use crate::target::Arch;

use layout::Layout;

/// User and group that the broker runs as; `nonroot` of other images without a shell.
pub const USER: u32 = 65_532;
/// Folder of the broker's state: the default of `state_dir`.
pub const STATE_FOLDER: &str = "/var/lib/tenant-broker";
/// Path of the broker in the image.
pub const PROGRAM: &str = "/usr/bin/tenant-broker";

/// What an image is made of.
#[derive(Clone, Debug)]
pub struct Contents<'a> {
    /// The architecture of the program.
    pub arch: Arch,
    /// The broker.
    pub program: Bytes,
    /// Loader and shared libraries; none for a static program.
    pub libraries: &'a [Library],
    /// Documents such as the license list, by path.
    pub documents: &'a FileTree,
}

/// An image.
#[derive(Clone, Debug)]
pub struct Image {
    /// A tar of the image layout (OCI image specification 1.1).
    pub tar: Vec<u8>,
    /// SHA-256 of the manifest, in hexadecimal digits: what `@sha256:` refers to.
    pub digest: String,
    /// Compressed size of each layer, in bytes.
    pub layer_sizes: Vec<usize>,
}

/// Builds the image.
///
/// # Errors
/// A path is not relative, or a value is refused by the specification's types.
pub fn build(contents: &Contents<'_>, source: &Source) -> Result<Image> {
    let mut system = system_files::tree()?;
    for library in contents.libraries {
        system.add_file(&library.path, PROGRAM_MODE, library.content.clone());
    }
    let mut program = FileTree::default();
    program.add_file(PROGRAM.trim_start_matches('/'), PROGRAM_MODE, contents.program.clone());
    program.add_all(contents.documents);

    let layers = [("system files", system), (BROKER, program)];
    let mut layout = Layout::default();
    let (mut descriptors, mut diff_ids, mut history) = (Vec::new(), Vec::new(), Vec::new());
    for (name, tree) in layers {
        let tar = tree.tar(source.time)?;
        diff_ids.push(format!("sha256:{}", sha256(&tar)));
        descriptors.push(layout.add_layer(gzip(&tar)?)?);
        history.push(layer_history(name, source)?);
    }
    let layer_sizes = descriptors
        .iter()
        .map(|layer| usize::try_from(layer.size()).context("measure a layer"))
        .collect::<Result<_>>()?;
    let configuration = ImageConfigurationBuilder::default()
        .created(source.rfc3339()?)
        .architecture(contents.arch.oci())
        .os(Os::Linux)
        .config(config(source)?)
        .rootfs(RootFsBuilder::default().typ("layers").diff_ids(diff_ids).build()?)
        .history(history)
        .build()?;
    let digest = layout.finish(&configuration, descriptors, contents.arch, source)?;
    Ok(Image { tar: layout.tar(source.time)?, digest, layer_sizes })
}

fn layer_history(name: &str, source: &Source) -> Result<History> {
    let history = HistoryBuilder::default()
        .created(source.rfc3339()?)
        .created_by(format!("cargo make-release: {name}"))
        .build()?;
    Ok(history)
}

/// How a container of the image runs.
fn config(source: &Source) -> Result<Config> {
    let config = ConfigBuilder::default()
        .user(format!("{USER}:{USER}"))
        // The default ports of `listen` and `operator_listen`, whose default addresses are on
        // loopback.
        .exposed_ports(["8080/tcp", "8081/tcp"].map(str::to_owned))
        // SQLite's temporary files need a folder that can be written to; the root file system may
        // be read-only and without `/tmp`.
        .env([format!("SQLITE_TMPDIR={STATE_FOLDER}")])
        .entrypoint([PROGRAM.to_owned()])
        .cmd(["serve".to_owned()])
        .volumes([STATE_FOLDER.to_owned()])
        .working_dir(STATE_FOLDER)
        .labels(labels(source)?)
        .stop_signal("SIGTERM")
        .build()?;
    Ok(config)
}

/// The labels of the image, which are also annotations of its manifest.
fn labels(source: &Source) -> Result<HashMap<String, String>> {
    let repository = &source.repository;
    let labels = [
        (ANNOTATION_TITLE, BROKER.to_owned()),
        (
            ANNOTATION_DESCRIPTION,
            "Gives each person a namespace of their own and 2-hour credentials for it.".to_owned(),
        ),
        (ANNOTATION_VERSION, source.version.to_string()),
        (ANNOTATION_REVISION, source.commit.clone()),
        (ANNOTATION_CREATED, source.rfc3339()?),
        (ANNOTATION_SOURCE, repository.clone()),
        (ANNOTATION_URL, repository.clone()),
        (ANNOTATION_DOCUMENTATION, format!("{repository}/blob/v{}/README.md", source.version)),
        (ANNOTATION_LICENSES, "Apache-2.0".to_owned()),
    ];
    Ok(labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
