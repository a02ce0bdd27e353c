//! The image layout: blobs by digest, an index, and the version of the layout.

use std::str::FromStr as _;

use anyhow::{Context, Result};
use oci_spec::image::{
    ANNOTATION_REF_NAME, Descriptor, ImageConfiguration, ImageIndexBuilder, ImageManifestBuilder,
    MediaType, OciLayoutBuilder, Os, PlatformBuilder, Sha256Digest,
};
use serde::Serialize;

use super::labels;
use crate::digest::sha256;
use crate::file_tree::{FILE_MODE, FileTree};
use crate::source::Source;
use crate::target::Arch;

/// Version of manifests and indexes.
const SCHEMA_VERSION: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Layout {
    files: FileTree,
}

impl Layout {
    /// Adds a layer: a tar stream, compressed with gzip.
    pub(super) fn add_layer(&mut self, layer: Vec<u8>) -> Result<Descriptor> {
        self.add_blob(MediaType::ImageLayerGzip, layer)
    }

    /// Adds configuration, manifest and index; returns the digest of the manifest.
    pub(super) fn finish(
        &mut self,
        configuration: &ImageConfiguration,
        layers: Vec<Descriptor>,
        arch: Arch,
        source: &Source,
    ) -> Result<String> {
        let configuration = self.add_blob(MediaType::ImageConfig, json(configuration)?)?;
        let manifest = ImageManifestBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageManifest)
            .config(configuration)
            .layers(layers)
            .annotations(labels(source)?)
            .build()?;
        let mut manifest = self.add_blob(MediaType::ImageManifest, json(&manifest)?)?;
        let digest = manifest.digest().digest().to_owned();
        let platform = PlatformBuilder::default().architecture(arch.oci()).os(Os::Linux).build()?;
        manifest.set_platform(Some(platform));
        let name = (ANNOTATION_REF_NAME.to_owned(), source.version.to_string());
        manifest.set_annotations(Some([name].into()));
        let index = ImageIndexBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageIndex)
            .manifests([manifest])
            .build()?;
        self.files.add_file("index.json", FILE_MODE, json(&index)?);
        let layout = OciLayoutBuilder::default().image_layout_version("1.0.0").build()?;
        self.files.add_file("oci-layout", FILE_MODE, json(&layout)?);
        Ok(digest)
    }

    /// Returns the layout as a tar stream.
    pub(super) fn tar(&self, time: u32) -> Result<Vec<u8>> {
        self.files.tar(time)
    }

    fn add_blob(&mut self, media_type: MediaType, bytes: Vec<u8>) -> Result<Descriptor> {
        let digest = sha256(&bytes);
        let size = u64::try_from(bytes.len()).context("measure a blob")?;
        self.files.add_file(&format!("blobs/sha256/{digest}"), FILE_MODE, bytes);
        Ok(Descriptor::new(media_type, size, Sha256Digest::from_str(&digest)?))
    }
}

/// Writes a document with sorted keys, because the types of the specification have hash maps, whose
/// order differs from run to run.
fn json(document: &impl Serialize) -> Result<Vec<u8>> {
    let mut value = serde_json::to_value(document).context("write a document of the image")?;
    value.sort_all_objects();
    serde_json::to_vec(&value).context("write a document of the image")
}
