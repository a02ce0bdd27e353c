//! krew accepts the manifest and installs the plugin.

use std::path::PathBuf;

use integration::krew::Krew;
use integration::process::Program;
use release::PLUGIN;
use release::krew::PLUGIN_NAME;

use crate::fixture::{Release, TOOL_TIMEOUT};

fn manifest(release: &Release) -> PathBuf {
    release.folder().join(format!("{PLUGIN_NAME}.yaml"))
}

#[tokio::test]
async fn the_manifest_follows_the_rules_of_krews_index() {
    let release = Release::shared().await;
    let krew = Krew::find().await.unwrap();
    krew.validate(&manifest(&release)).await.unwrap().success().unwrap();

    // The check does find faults.
    let text = std::fs::read_to_string(manifest(&release)).unwrap();
    let faulty = release.work_folder("faulty-manifest").join(format!("{PLUGIN_NAME}.yaml"));
    std::fs::write(&faulty, text.replace("version: v", "version: ")).unwrap();
    let refused = krew.validate(&faulty).await.unwrap();
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("not starting with 'v'"), "{}", refused.stderr);
}

#[tokio::test]
async fn krew_installs_the_plugin_with_its_license() {
    let release = Release::shared().await;
    let krew = Krew::find().await.unwrap();
    let root = release.work_folder("krew");
    let archive = release.folder().join(format!("{}.tar.gz", release.stem(PLUGIN)));
    let platform = (release.target.os_name(), release.target.arch.name());
    let installed = krew.install(&root, &manifest(&release), &archive, platform).await.unwrap();
    installed.success().unwrap();
    let version = Program::new(root.join("bin").join(PLUGIN)).arg("--version");
    let version = version.run(TOOL_TIMEOUT).await.unwrap().success().unwrap().stdout;
    assert_eq!(version.trim(), format!("{PLUGIN} {}", release.source.version));
    let store = root.join("store").join(PLUGIN_NAME).join(format!("v{}", release.source.version));
    assert!(store.join("LICENSE").is_file());
}

#[tokio::test]
async fn krew_refuses_an_archive_with_another_checksum_and_windows() {
    let release = Release::shared().await;
    let krew = Krew::find().await.unwrap();
    let root = release.work_folder("krew-refuses");
    let archive = release.folder().join(format!("{}.tar.gz", release.stem(PLUGIN)));
    let other = root.join("other.tar.gz");
    std::fs::write(&other, [std::fs::read(&archive).unwrap(), b"x".to_vec()].concat()).unwrap();
    let platform = (release.target.os_name(), release.target.arch.name());
    let changed = krew.install(&root, &manifest(&release), &other, platform).await.unwrap();
    assert!(!changed.status.success());
    assert!(changed.stderr.contains("checksum does not match"), "{}", changed.stderr);

    let windows =
        krew.install(&root, &manifest(&release), &archive, ("windows", "amd64")).await.unwrap();
    assert!(!windows.status.success());
    assert!(windows.stderr.contains("does not offer installation"), "{}", windows.stderr);
}
