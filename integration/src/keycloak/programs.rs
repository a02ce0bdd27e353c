//! The Keycloak distribution, downloaded once from Maven Central.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::machine;
use crate::process::Program;
use crate::progress::print_message;

/// The pinned version.
pub(super) const VERSION: &str = "26.7.3";
/// Maven's own plugin that downloads and unpacks an archive.
const UNPACK: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack";
/// Time limit of the download.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_mins(10);

/// Returns the folder of the unpacked server, from the cache or downloaded now.
pub(super) async fn folder() -> Result<PathBuf> {
    ensure!(
        machine::find("java").is_some(),
        "Keycloak needs Java 17 or later: apt-get install default-jre-headless, or brew install openjdk"
    );
    let cache = machine::cache_folder().context("no HOME, so there is no cache folder")?;
    let folder = cache.join("keycloak");
    let home = folder.join(format!("keycloak-{VERSION}"));
    if !home.join("bin/kc.sh").is_file() {
        print_message(&format!("keycloak: downloading version {VERSION} (about 180 MB)"));
        unpack(&folder).await?;
        ensure!(home.join("bin/kc.sh").is_file(), "Maven unpacked no {}", home.display());
    }
    Ok(home)
}

/// Unpacks next to the target and renames, so that the target is complete or absent.
async fn unpack(folder: &Path) -> Result<()> {
    let maven = machine::find("mvn")
        .context("getting Keycloak needs Maven: apt-get install maven, or brew install maven")?;
    std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let temporary = tempfile::tempdir_in(folder)?;
    Program::new(maven)
        .args(["-q", "-B", UNPACK])
        .arg(format!("-Dartifact=org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"))
        .arg(format!("-DoutputDirectory={}", temporary.path().join("out").display()))
        .arg(format!("-Dmaven.repo.local={}", temporary.path().join("m2").display()))
        .run(DOWNLOAD_TIMEOUT)
        .await?
        .success()
        .context("get Keycloak with Maven")?;
    let name = format!("keycloak-{VERSION}");
    let target = folder.join(&name);
    match std::fs::rename(temporary.path().join("out").join(&name), &target) {
        // Another run was faster.
        Err(_) if target.is_dir() => Ok(()),
        renamed => renamed.with_context(|| format!("make {}", target.display())),
    }
}
