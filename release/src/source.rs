//! The commit that is released: its version, time and origin.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cargo_metadata::MetadataCommand;
use cargo_metadata::semver::Version;
use integration::process::Program;
use jiff::Timestamp;

use crate::BROKER;

/// Time limit of a git command.
const GIT_TIMEOUT: Duration = Duration::from_mins(1);

/// The commit that is released.
#[derive(Clone, Debug)]
pub struct Source {
    /// The root of the checkout.
    pub root: PathBuf,
    /// Folder of cargo's builds.
    pub target_folder: PathBuf,
    /// Version of broker and plugin.
    pub version: Version,
    /// Full hash of the commit.
    pub commit: String,
    /// Time of the commit, or `SOURCE_DATE_EPOCH` (reproducible-builds.org): seconds since 1970.
    /// Every file in every artifact has this time.
    pub time: u32,
    /// URL of the repository, without a slash at the end.
    pub repository: String,
    /// Whether this is a trial, which nobody publishes.
    pub trial: bool,
}

impl Source {
    /// Reads the checkout at `root`. Without `version` the checkout must be clean and have the tag
    /// `vVERSION` of its own version; `allow_dirty` is for trials and accepts any checkout and any
    /// `version`.
    ///
    /// # Errors
    /// The checkout is not what is released, or cargo or git fail.
    pub async fn read(root: &Path, version: Option<Version>, allow_dirty: bool) -> Result<Self> {
        let metadata = MetadataCommand::new()
            .manifest_path(root.join("Cargo.toml"))
            .no_deps()
            .exec()
            .context("read the workspace with cargo metadata")?;
        let package = metadata
            .packages
            .iter()
            .find(|package| package.name == BROKER)
            .with_context(|| format!("the workspace has no package {BROKER}"))?;
        let version = match version {
            Some(version) if !allow_dirty => {
                ensure!(
                    version == package.version,
                    "--version {version}: the programs say {}; change [workspace.package] in \
                     Cargo.toml, or add --allow-dirty for a trial",
                    package.version
                );
                version
            }
            Some(version) => version,
            None => package.version.clone(),
        };
        ensure!(
            version.build.is_empty(),
            "{version} has build metadata (+), which tags of images cannot contain"
        );
        if !allow_dirty {
            check_tag(root, &version).await?;
        }
        let repository = package.repository.as_deref().context("Cargo.toml has no repository")?;
        Ok(Self {
            root: root.to_owned(),
            target_folder: metadata.target_directory.clone().into_std_path_buf(),
            commit: git(root, &["rev-parse", "HEAD"]).await?,
            time: commit_time(root).await?,
            repository: repository.trim_end_matches('/').to_owned(),
            version,
            trial: allow_dirty,
        })
    }

    /// The time of the commit as RFC 3339, in UTC.
    ///
    /// # Errors
    /// Never for a time that [`Source::read`] returned.
    pub fn rfc3339(&self) -> Result<String> {
        let time = Timestamp::from_second(i64::from(self.time)).context("format a time")?;
        Ok(time.to_string())
    }

    /// The version in packages of Debian and RPM, where `~` sorts a pre-release before its release.
    pub fn package_version(&self) -> String {
        let Version { major, minor, patch, pre, .. } = &self.version;
        let release = format!("{major}.{minor}.{patch}");
        // Neither may contain a hyphen, which separates the package's own revision.
        if pre.is_empty() { release } else { format!("{release}~{}", pre.replace('-', ".")) }
    }

    /// Paths of the files below a folder of the checkout that git tracks. Others, such as secrets
    /// that a script made there, are no part of a release.
    ///
    /// # Errors
    /// git fails.
    pub async fn tracked_files(&self, folder: &str) -> Result<Vec<String>> {
        let listed = git(&self.root, &["ls-files", "-z", "--", folder]).await?;
        Ok(listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
    }

    /// Address under which the repository offers an artifact.
    pub fn download_url(&self, file: &str) -> String {
        format!("{}/releases/download/v{}/{file}", self.repository, self.version)
    }
}

/// Checks that the checkout is exactly the commit of its tag.
async fn check_tag(root: &Path, version: &Version) -> Result<()> {
    let changed = git(root, &["status", "--porcelain"]).await?;
    ensure!(
        changed.is_empty(),
        "the checkout has changes that no commit has; commit or remove them (--allow-dirty is for \
         trials):\n{changed}"
    );
    let tags = git(root, &["tag", "--points-at", "HEAD"]).await?;
    let wanted = format!("v{version}");
    ensure!(
        tags.lines().any(|tag| tag == wanted),
        "HEAD has no tag {wanted}: git tag --sign {wanted} (--allow-dirty is for trials)"
    );
    Ok(())
}

async fn commit_time(root: &Path) -> Result<u32> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(seconds) => seconds,
        Err(_) => git(root, &["log", "-1", "--format=%ct"]).await?,
    };
    text.trim().parse().with_context(|| format!("{text:?} is no number of seconds since 1970"))
}

async fn git(root: &Path, args: &[&str]) -> Result<String> {
    let run = Program::new("git").arg("-C").arg(root).args(args).run(GIT_TIMEOUT).await?;
    let done = run.success().with_context(|| format!("git {}", args.join(" ")))?;
    Ok(done.stdout.trim().to_owned())
}

#[cfg(test)]
impl Source {
    /// A source for tests without a checkout. Its time is the beginning of 2026.
    pub(crate) fn example(version: &str) -> Self {
        Self {
            root: PathBuf::new(),
            target_folder: PathBuf::new(),
            version: version.parse().unwrap(),
            commit: "0".repeat(40),
            time: 1_767_225_600,
            repository: "https://example.com/owner/name".to_owned(),
            trial: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_sort_a_pre_release_before_its_release() {
        assert_eq!(Source::example("1.2.3").package_version(), "1.2.3");
        assert_eq!(Source::example("1.2.3-rc.1").package_version(), "1.2.3~rc.1");
        assert_eq!(Source::example("1.2.3-a-b").package_version(), "1.2.3~a.b");
    }

    #[test]
    fn times_and_addresses_are_those_of_the_commit() {
        let source = Source::example("1.2.3");
        assert_eq!(source.rfc3339().unwrap(), "2026-01-01T00:00:00Z");
        assert_eq!(
            source.download_url("SHA256SUMS"),
            "https://example.com/owner/name/releases/download/v1.2.3/SHA256SUMS"
        );
    }

    #[tokio::test]
    async fn a_release_needs_the_tag_of_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let manifest = "[package]\nname = \"tenant-broker\"\nversion = \"1.2.3\"\nedition = \
                        \"2024\"\nrepository = \"https://example.com/owner/name/\"\n";
        std::fs::write(root.join("Cargo.toml"), manifest).unwrap();
        std::fs::create_dir(root.join("src")).unwrap();
        std::fs::write(root.join("src/main.rs"), "fn main() {}\n").unwrap();
        let author = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        git(root, &["init", "--quiet"]).await.unwrap();
        git(root, &["add", "."]).await.unwrap();
        let commit = ["commit", "--quiet", "--no-gpg-sign", "--message", "first"];
        git(root, &[&author[..], &commit[..]].concat()).await.unwrap();

        let untagged = Source::read(root, None, false).await.unwrap_err();
        assert!(untagged.to_string().contains("no tag v1.2.3"), "{untagged:#}");
        git(root, &["tag", "v1.2.3"]).await.unwrap();
        let source = Source::read(root, None, false).await.unwrap();
        std::fs::write(root.join("src/secret"), "untracked").unwrap();
        assert_eq!(source.tracked_files("src").await.unwrap(), ["src/main.rs"]);
        std::fs::remove_file(root.join("src/secret")).unwrap();
        assert_eq!(source.version, Version::new(1, 2, 3));
        assert_eq!(source.repository, "https://example.com/owner/name");
        assert_eq!(source.commit.len(), 40);

        let other = Some(Version::new(1, 2, 4));
        let error = Source::read(root, other.clone(), false).await.unwrap_err();
        assert!(error.to_string().contains("the programs say 1.2.3"), "{error:#}");
        assert_eq!(Source::read(root, other, true).await.unwrap().version, Version::new(1, 2, 4));
        std::fs::write(root.join("src/main.rs"), "fn main() { }\n").unwrap();
        let dirty = Source::read(root, None, false).await.unwrap_err();
        assert!(dirty.to_string().contains("src/main.rs"), "{dirty:#}");
    }
}
