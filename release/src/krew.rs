//! The manifest of the plugin for krew, the manager of kubectl plugins (API group
//! `krew.googlecontainertools.github.com/v1alpha2`).

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::PLUGIN;
use crate::source::Source;
use crate::target::Target;

/// Name of the plugin, as in `kubectl tenant`, and of the manifest's file.
pub const PLUGIN_NAME: &str = "tenant";
/// Maximum length of the short description, by the rules of krew's index.
const MAX_SHORT_DESCRIPTION: usize = 50;

const SHORT_DESCRIPTION: &str = "Your own namespace, with tokens that renew";
const _: () = assert!(SHORT_DESCRIPTION.len() <= MAX_SHORT_DESCRIPTION);
const DESCRIPTION: &str = "\
Signs you in at your company's tenant broker, creates a namespace of your own in
a shared cluster, and gives kubectl Kubernetes tokens that are valid for two
hours and are renewed in the background. It needs a broker; there is no public
one.
";
const CAVEATS: &str = "\
Sign in once, then use kubectl as usual:
  kubectl tenant login --broker https://BROKER
For completion of `kubectl tenant ...`:
  kubectl tenant completion install --dir FOLDER_OF_YOUR_PATH
Kubeconfigs run the program kubectl-tenant, so krew's folder has to be in PATH.
";

/// An archive for one platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// The target of its program.
    pub target: Target,
    /// File name of the archive.
    pub file: String,
    /// SHA-256 of the archive, in hexadecimal digits.
    pub sha256: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    version: String,
    homepage: &'a str,
    short_description: &'a str,
    description: &'a str,
    caveats: &'a str,
    platforms: Vec<Platform<'a>>,
}

#[derive(Serialize)]
struct Platform<'a> {
    selector: Selector<'a>,
    uri: String,
    sha256: &'a str,
    bin: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Selector<'a> {
    match_labels: Labels<'a>,
}

#[derive(Serialize)]
struct Labels<'a> {
    os: &'a str,
    arch: &'a str,
}

/// Writes the manifest, which offers these archives under the addresses of the release.
///
/// # Errors
/// There is no archive.
pub fn manifest(archives: &[Archive], source: &Source) -> Result<String> {
    ensure!(!archives.is_empty(), "krew's manifest needs an archive");
    let platforms = archives.iter().map(|archive| Platform {
        selector: Selector {
            match_labels: Labels { os: archive.target.os_name(), arch: archive.target.arch.name() },
        },
        uri: source.download_url(&archive.file),
        sha256: &archive.sha256,
        bin: PLUGIN,
    });
    let manifest = Manifest {
        api_version: "krew.googlecontainertools.github.com/v1alpha2",
        kind: "Plugin",
        metadata: Metadata { name: PLUGIN_NAME },
        spec: Spec {
            version: format!("v{}", source.version),
            homepage: &source.repository,
            short_description: SHORT_DESCRIPTION,
            description: DESCRIPTION,
            caveats: CAVEATS,
            platforms: platforms.collect(),
        },
    };
    serde_norway::to_string(&manifest).context("write krew's manifest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_offers_each_archive_for_its_platform() {
        let target = Target::by_triple("aarch64-apple-darwin").unwrap();
        let file = "kubectl-tenant_1.2.3_darwin_arm64.tar.gz".to_owned();
        let archive = Archive { target, file, sha256: "ab".repeat(32) };
        let text = manifest(&[archive], &Source::example("1.2.3")).unwrap();
        let manifest: serde_norway::Value = serde_norway::from_str(&text).unwrap();
        assert_eq!(manifest["metadata"]["name"], "tenant");
        assert_eq!(manifest["spec"]["version"], "v1.2.3");
        let platform = &manifest["spec"]["platforms"][0];
        assert_eq!(platform["selector"]["matchLabels"]["os"], "darwin");
        assert_eq!(platform["selector"]["matchLabels"]["arch"], "arm64");
        assert_eq!(platform["bin"], "kubectl-tenant");
        assert_eq!(
            platform["uri"],
            "https://example.com/owner/name/releases/download/v1.2.3/\
             kubectl-tenant_1.2.3_darwin_arm64.tar.gz"
        );
    }

    #[test]
    fn a_manifest_without_archives_is_refused() {
        assert!(manifest(&[], &Source::example("1.2.3")).is_err());
    }
}
