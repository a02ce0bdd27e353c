//! The folder `deploy` of the checkout: the units of systemd, the Helm chart, and the whole folder.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::BROKER;
use crate::file_tree::{FILE_MODE, FileTree, PROGRAM_MODE};
use crate::source::Source;

/// The folder.
const FOLDER: &str = "deploy/";
/// Folder of the chart in it.
const CHART: &str = "helm/tenant-broker/";
/// Folder of the chart's example values, which its `.helmignore` leaves out.
const EXAMPLE_VALUES: &str = "ci/";
/// Folder of the units in it.
const UNITS: &str = "systemd/";

/// The versions in `Chart.yaml`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chart {
    version: String,
    app_version: String,
}

/// Reads the files of the folder that git tracks, by their paths in it.
///
/// # Errors
/// git fails, or a file cannot be read.
pub async fn files(source: &Source) -> Result<FileTree> {
    let mut files = FileTree::default();
    for path in source.tracked_files(FOLDER).await? {
        let content =
            std::fs::read(source.root.join(&path)).with_context(|| format!("read {path}"))?;
        let is_script = Path::new(&path).extension().is_some_and(|extension| extension == "sh");
        let mode = if is_script { PROGRAM_MODE } else { FILE_MODE };
        files.add_file(path.trim_start_matches(FOLDER), mode, content);
    }
    Ok(files)
}

/// Returns the units of systemd with their accounts and examples, by name.
pub fn units(files: &FileTree) -> FileTree {
    below(files, UNITS)
}

/// Packs the Helm chart, as `helm package` lays it out.
///
/// # Errors
/// There is no chart, or it is not of the source's version.
pub fn chart(files: &FileTree, source: &Source) -> Result<Vec<u8>> {
    let files = below(files, CHART);
    let description = files.files().find(|(path, _)| *path == "Chart.yaml");
    let (_, text) =
        description.with_context(|| format!("git tracks no {FOLDER}{CHART}Chart.yaml"))?;
    let chart: Chart = serde_norway::from_slice(text).context("read the chart's Chart.yaml")?;
    let version = source.version.to_string();
    ensure!(
        chart.version == version && chart.app_version == version,
        "{FOLDER}{CHART}Chart.yaml has version {} and appVersion {}, but the release is {version}",
        chart.version,
        chart.app_version
    );
    let mut packed = FileTree::default();
    for (path, content) in files.files().filter(|(path, _)| !path.starts_with(EXAMPLE_VALUES)) {
        packed.add_file(&format!("{BROKER}/{path}"), FILE_MODE, content.clone());
    }
    packed.tar_gz(source.time)
}

/// Packs the whole folder, from which every installation of `docs/deployment.md` can be made:
/// Compose, systemd, the chart with its example values, manifests, dashboard and alerts.
///
/// # Errors
/// Never, because paths that git tracks are relative.
pub fn whole(files: &FileTree, source: &Source) -> Result<Vec<u8>> {
    let mut packed = FileTree::default();
    for (path, entry) in files.entries() {
        if let Some(content) = &entry.content {
            packed.add_file(&format!("{FOLDER}{path}"), entry.mode, content.clone());
        }
    }
    packed.tar_gz(source.time)
}

/// Returns the files below a folder, by their paths in it.
fn below(files: &FileTree, folder: &str) -> FileTree {
    let mut found = FileTree::default();
    for (path, content) in files.files() {
        if let Some(path) = path.strip_prefix(folder) {
            found.add_file(path, FILE_MODE, content.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(tar_gz: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(tar_gz));
        let entries = archive.entries().unwrap();
        entries.map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect()
    }

    fn tree() -> FileTree {
        let mut files = FileTree::default();
        let chart = "version: 1.2.3\nappVersion: \"1.2.3\"\n";
        files.add_file("helm/tenant-broker/Chart.yaml", FILE_MODE, chart);
        files.add_file("helm/tenant-broker/templates/a.yaml", FILE_MODE, "a");
        files.add_file("helm/tenant-broker/ci/values.yaml", FILE_MODE, "a");
        files.add_file("systemd/tenant-broker.service", FILE_MODE, "a");
        files
    }

    #[test]
    fn the_chart_is_packed_without_its_example_values() {
        let source = Source::example("1.2.3");
        assert_eq!(
            paths(&chart(&tree(), &source).unwrap()),
            [
                "tenant-broker/",
                "tenant-broker/Chart.yaml",
                "tenant-broker/templates/",
                "tenant-broker/templates/a.yaml"
            ]
        );
    }

    #[test]
    fn the_whole_folder_and_the_units_are_found_by_their_paths() {
        let mut packed = paths(&whole(&tree(), &Source::example("1.2.3")).unwrap());
        packed.retain(|path| !path.ends_with('/'));
        assert_eq!(
            packed,
            [
                "deploy/helm/tenant-broker/Chart.yaml",
                "deploy/helm/tenant-broker/ci/values.yaml",
                "deploy/helm/tenant-broker/templates/a.yaml",
                "deploy/systemd/tenant-broker.service"
            ]
        );
        let units = units(&tree());
        assert_eq!(
            units.files().map(|(name, _)| name).collect::<Vec<_>>(),
            ["tenant-broker.service"]
        );
    }

    #[test]
    fn a_chart_of_another_version_is_refused() {
        let error = chart(&tree(), &Source::example("1.2.4")).unwrap_err();
        assert!(error.to_string().contains("the release is 1.2.4"), "{error}");
    }

    #[test]
    fn a_checkout_without_the_chart_is_refused() {
        let error = chart(&FileTree::default(), &Source::example("1.2.3")).unwrap_err();
        assert!(error.to_string().contains("tracks no deploy/helm/"), "{error}");
    }
}
