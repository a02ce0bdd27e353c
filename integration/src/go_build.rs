//! Building programs with Go from a module that pins them, once for this user.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::machine;
use crate::process::{Captured, Program};
use crate::progress::say;

/// How long a build may take, a slow download included.
const LIMIT: Duration = Duration::from_mins(30);
/// How often it says how far it is.
const TURN: Duration = Duration::from_secs(10);

/// A program of a Go module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoProgram {
    /// Its name in the cache.
    pub(crate) name: &'static str,
    /// Its package.
    pub(crate) package: &'static str,
    /// The name that `go build` gives to its output.
    pub(crate) output: &'static str,
}

/// The tests of a package, as a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoTests {
    /// Its name in the cache.
    pub(crate) name: &'static str,
    /// The package.
    pub(crate) package: &'static str,
}

/// Programs that one module pins.
#[derive(Debug)]
pub(crate) struct GoBuild<'a> {
    /// What is built, for a person.
    pub(crate) what: &'a str,
    /// How long that takes on 2 cores, for a person who waits.
    pub(crate) takes: &'a str,
    /// The module's `go.mod`.
    pub(crate) go_mod: &'a str,
    /// Its checksums.
    pub(crate) go_sum: &'a str,
    /// The programs.
    pub(crate) programs: &'a [GoProgram],
    /// Tests that are programs.
    pub(crate) tests: &'a [GoTests],
    /// For the linker, for example to stamp a version.
    pub(crate) linker_flags: &'a str,
}

impl GoBuild<'_> {
    /// The folder in our cache that has the programs; they are built if one is not there yet.
    ///
    /// # Errors
    /// There is no cache or no Go, or the build fails.
    pub(crate) async fn in_cache(&self, name: &str, version: &str) -> Result<PathBuf> {
        let cache = machine::cache_folder().context("no HOME, so there is no cache folder")?;
        let cache = cache.join(name).join(version);
        if !self.made().all(|(name, _)| cache.join(name).is_file()) {
            let go = machine::find("go").with_context(|| {
                format!(
                    "there is no Go to build {} with. Install Go (1.21 or newer): apt-get install \
                     golang-go, or brew install go",
                    self.what
                )
            })?;
            self.build(&go, &cache).await?;
        }
        Ok(cache)
    }

    /// Builds the programs into `cache`, unless another process has done it meanwhile. A program
    /// appears there under its name only when it is complete.
    pub(crate) async fn build(&self, go: &Path, cache: &Path) -> Result<()> {
        fs::create_dir_all(cache)
            .with_context(|| format!("make the folder {}", cache.display()))?;
        let _lock = machine::lock(cache, &format!("builds {}", self.what), LIMIT).await?;
        if self.made().all(|(name, _)| cache.join(name).is_file()) {
            return Ok(());
        }
        say(&format!(
            "building {} with {} ({} on 2 cores, once; kept in {})",
            self.what,
            go.display(),
            self.takes,
            cache.display()
        ));
        let work = tempfile::Builder::new()
            .prefix(".building-")
            .tempdir_in(cache)
            .context("make a folder to build in")?;
        fs::write(work.path().join("go.mod"), self.go_mod).context("write go.mod")?;
        fs::write(work.path().join("go.sum"), self.go_sum).context("write go.sum")?;
        let start = Instant::now();
        self.build_programs(go, work.path(), start).await?;
        self.build_tests(go, work.path(), start).await?;
        say(&format!("  done after {} s", start.elapsed().as_secs()));
        for (name, output) in self.made() {
            fs::rename(work.path().join("bin").join(output), cache.join(name))
                .with_context(|| format!("move the built {name} into {}", cache.display()))?;
        }
        Ok(())
    }

    /// Names in the cache, and those that Go gives.
    fn made(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let programs = self.programs.iter().map(|program| (program.name, program.output));
        programs.chain(self.tests.iter().map(|tests| (tests.name, tests.name)))
    }

    async fn build_programs(&self, go: &Path, work: &Path, start: Instant) -> Result<()> {
        let build = self
            .building(go, work)
            .arg("-o")
            .arg(work.join("bin/"))
            .args(self.programs.iter().map(|program| program.package));
        self.finish(build.spawn_captured()?, start, packages).await
    }

    async fn build_tests(&self, go: &Path, work: &Path, start: Instant) -> Result<()> {
        for tests in self.tests {
            // What they are made of comes first, for there Go says how far it is.
            let imports = r#"{{join .TestImports "\n"}}{{"\n"}}{{join .XTestImports "\n"}}"#;
            let list = Self::go(go, work)
                .args(["list", "-mod=readonly", "-f", imports, tests.package])
                .run(LIMIT)
                .await?;
            let list = self.needs(list.success())?;
            let build = self.building(go, work).args(list.stdout.split_whitespace());
            self.finish(build.spawn_captured()?, start, packages).await?;
            let link = Self::go(go, work)
                .args(["test", "-c", "-trimpath", "-mod=readonly", "-ldflags", self.linker_flags])
                .arg("-o")
                .arg(work.join("bin").join(tests.name))
                .arg(tests.package)
                .spawn_captured()?;
            self.finish(link, start, |_| format!("linking {}", tests.name)).await?;
        }
        Ok(())
    }

    fn building(&self, go: &Path, work: &Path) -> Program {
        Self::go(go, work).args([
            "build",
            "-v",
            "-trimpath",
            "-mod=readonly",
            "-ldflags",
            self.linker_flags,
        ])
    }

    /// Waits for the end of a build, and says how far it is by what it told so far.
    async fn finish(
        &self,
        build: Captured,
        start: Instant,
        progress: impl Fn(&str) -> String,
    ) -> Result<()> {
        while tokio::time::timeout(TURN, build.process().wait()).await.is_err() {
            if start.elapsed() > LIMIT {
                break;
            }
            let progress = progress(&build.stderr()?);
            say(&format!("  {progress} after {} s", start.elapsed().as_secs()));
        }
        self.needs(build.finish(Duration::ZERO).await?.success())?;
        Ok(())
    }

    fn go(go: &Path, work: &Path) -> Program {
        Program::new(go)
            .env("CGO_ENABLED", "0")
            // A person's own defaults must not change what is built.
            .without_env("GOFLAGS")
            .env("GOWORK", "off")
            .in_folder(work)
    }

    fn needs<T>(&self, done: Result<T>) -> Result<T> {
        done.with_context(|| {
            format!(
                "build {} with Go (1.21 or newer, and a module proxy that it can reach)",
                self.what
            )
        })
    }
}

/// How far a build is, by what Go told.
fn packages(told: &str) -> String {
    format!("{} packages", told.lines().count())
}

/// The pinned version of a module in the text of a `go.mod`, for example `v1.36.3`.
pub(crate) fn version_of(module: &str, go_mod: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let version = words.next()?;
        (name == module && version.starts_with('v')).then(|| version.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_that_of_the_module_itself() {
        assert_eq!(
            version_of("k8s.io/kubernetes", "\tk8s.io/kubernetes v1.2.3 // indirect"),
            Some("v1.2.3".to_owned())
        );
        assert_eq!(version_of("k8s.io/kubernetes", "\tk8s.io/kubernetes/cmd/kube-apiserver"), None);
    }
}
