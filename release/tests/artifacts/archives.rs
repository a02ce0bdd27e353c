//! Archives, checksums, and the promise that two builds are equal.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;
use integration::process::Program;
use release::artifacts::CHECKSUMS;
use release::digest::sha256;
use release::{BROKER, PLUGIN};

use crate::fixture::{Release, TOOL_TIMEOUT, tool};

/// Name and content of each file.
fn folder_content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect()
}

/// Mode and content of each file of an archive.
fn archive_content(tar_gz: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut archive = tar::Archive::new(GzDecoder::new(tar_gz));
    let entries = archive.entries().unwrap();
    entries
        .map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let path = entry.path().unwrap().display().to_string();
            (path, (entry.header().mode().unwrap(), content))
        })
        .collect()
}

#[tokio::test]
async fn two_runs_over_the_same_programs_write_the_same_bytes() {
    let release = Release::shared().await;
    let one = folder_content(&release.folder());
    let other = folder_content(&release.make_again().await);
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for (name, content) in &one {
        assert_eq!(sha256(content), sha256(&other[name]), "{name} differs");
    }
}

#[tokio::test]
async fn the_list_of_checksums_covers_every_artifact() {
    let release = Release::shared().await;
    let files = folder_content(&release.folder());
    let list = String::from_utf8(files[CHECKSUMS].clone()).unwrap();
    let listed: BTreeMap<&str, &str> = list
        .lines()
        .map(|line| {
            let (sum, name) = line.split_once("  ").unwrap();
            (name, sum)
        })
        .collect();
    for (name, content) in files.iter().filter(|(name, _)| *name != CHECKSUMS) {
        assert_eq!(listed.get(name.as_str()), Some(&sha256(content).as_str()), "{name}");
    }
    assert_eq!(listed.len() + 1, files.len());
    assert_eq!(release.report.artifacts.len(), files.len());
    let check = Program::new(tool("sha256sum", "coreutils").unwrap())
        .args(["--check", "--strict", CHECKSUMS])
        .in_folder(release.folder());
    check.run(TOOL_TIMEOUT).await.unwrap().success().unwrap();
}

#[tokio::test]
async fn the_archive_of_the_plugin_has_program_license_and_completion() {
    let release = Release::shared().await;
    let archive = archive_content(&release.read(&format!("{}.tar.gz", release.stem(PLUGIN))));
    let (mode, program) = &archive[PLUGIN];
    assert_eq!(*mode, 0o755);
    assert!(program == release.plugin());
    for (file, text) in [
        ("LICENSE", "Apache License"),
        ("README.md", "kubectl tenant login"),
        ("THIRD-PARTY-LICENSES.txt", "Rust standard library"),
        ("kubectl-tenant.cdx.json", "CycloneDX"),
        ("kubectl_complete-tenant", "kubectl-tenant __complete"),
        ("completions/kubectl-tenant.bash", "complete -F _kubectl__tenant"),
        ("completions/_kubectl-tenant", "#compdef kubectl-tenant"),
        ("completions/kubectl-tenant.fish", "complete -c kubectl-tenant"),
        ("man/man1/kubectl-tenant.1", ".TH kubectl-tenant 1 "),
        ("man/man1/kubectl-tenant-login.1", ".TH kubectl-tenant-login 1 "),
    ] {
        let (_, content) = archive.get(file).unwrap_or_else(|| panic!("{file} is missing"));
        assert!(String::from_utf8_lossy(content).contains(text), "{file} lacks {text:?}");
    }
    assert_eq!(archive["kubectl_complete-tenant"].0, 0o755);
}

#[tokio::test]
async fn the_archive_of_the_broker_has_program_license_and_unit() {
    let release = Release::shared().await;
    let archive = archive_content(&release.read(&format!("{}.tar.gz", release.stem(BROKER))));
    assert!(archive[BROKER].1 == release.broker());
    assert!(archive.contains_key("LICENSE") && archive.contains_key("THIRD-PARTY-LICENSES.txt"));
    assert!(archive.contains_key("systemd/tenant-broker.service"));
}

#[tokio::test]
async fn the_archive_for_deployments_has_every_file_of_the_folder() {
    let release = Release::shared().await;
    let file = format!("{BROKER}_{}_deploy.tar.gz", release.source.version);
    let archive = archive_content(&release.read(&file));
    let tracked = release.source.tracked_files("deploy/").await.unwrap();
    assert!(tracked.iter().any(|path| path == "deploy/compose.yaml"), "{tracked:?}");
    for path in &tracked {
        let on_disk = std::fs::read(release.source.root.join(path)).unwrap();
        assert!(archive.get(path).is_some_and(|(_, content)| *content == on_disk), "{path}");
    }
    assert_eq!(archive["deploy/compose/prepare.sh"].0, 0o755);
    assert_eq!(archive["deploy/compose.yaml"].0, 0o644);
}
