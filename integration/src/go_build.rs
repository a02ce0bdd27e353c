//! Builds of Go programs from a module that pins them, once for this user.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::machine;
use crate::process::{Captured, Program};
use crate::progress::print_message;

/// Time limit of a build, including a slow download. A slow machine with other work takes half an hour
/// for the control plane.
const BUILD_TIMEOUT: Duration = Duration::from_hours(1);
/// Interval between two progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// A program of a Go module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoProgram {
    /// File name in the cache.
    pub(crate) name: &'static str,
    /// Import path of its package.
    pub(crate) package: &'static str,
    /// File name that `go build` gives to its output.
    pub(crate) output: &'static str,
}

/// The tests of a package, compiled into a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoTests {
    /// File name in the cache.
    pub(crate) name: &'static str,
    /// Import path of the package.
    pub(crate) package: &'static str,
}

/// The programs that one module pins.
#[derive(Debug)]
pub(crate) struct GoBuild<'a> {
    /// Name of the programs, for messages.
    pub(crate) what: &'a str,
    /// Duration of the build on 2 cores, for messages.
    pub(crate) takes: &'a str,
    /// Text of the module's `go.mod`.
    pub(crate) go_mod: &'a str,
    /// Text of the module's `go.sum`.
    pub(crate) go_sum: &'a str,
    /// Programs to build.
    pub(crate) programs: &'a [GoProgram],
    /// Test programs to build.
    pub(crate) tests: &'a [GoTests],
    /// Linker flags, for example to stamp a version.
    pub(crate) linker_flags: &'a str,
    /// Build tags, separated by commas.
    pub(crate) tags: &'a str,
}

impl GoBuild<'_> {
    /// Returns the folder in our cache that has the programs, and builds them if one is missing.
    ///
    /// # Errors
    /// There is no cache folder or no Go, or the build fails.
    pub(crate) async fn in_cache(&self, name: &str, version: &str) -> Result<PathBuf> {
        let cache = machine::cache_folder().context("no HOME, so there is no cache folder")?;
        let cache = cache.join(name).join(version);
        if !self.made().all(|(name, _)| cache.join(name).is_file()) {
            let go = machine::find("go").with_context(|| {
                format!(
                    "there is no Go to build {} with. Install Go (1.26 or later): apt-get install \
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
        let _lock = machine::lock(cache, &format!("builds {}", self.what), BUILD_TIMEOUT).await?;
        if self.made().all(|(name, _)| cache.join(name).is_file()) {
            return Ok(());
        }
        print_message(&format!(
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
        print_message(&format!("  go, {}: done after {} s", self.what, start.elapsed().as_secs()));
        for (name, output) in self.made() {
            fs::rename(work.path().join("bin").join(output), cache.join(name))
                .with_context(|| format!("move the built {name} into {}", cache.display()))?;
        }
        Ok(())
    }

    /// Pairs of the name in the cache and the name of Go's output.
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
        self.finish(build.spawn_captured()?, start, progress).await
    }

    async fn build_tests(&self, go: &Path, work: &Path, start: Instant) -> Result<()> {
        for tests in self.tests {
            // The imports are built first, because Go prints its progress for them.
            let imports = r#"{{join .TestImports "\n"}}{{"\n"}}{{join .XTestImports "\n"}}"#;
            let list = Self::go(go, work)
                .args(["list", "-mod=readonly", "-f", imports, tests.package])
                .run(BUILD_TIMEOUT)
                .await?;
            let list = self.needs(list.success())?;
            let build = self.building(go, work).args(list.stdout.split_whitespace());
            self.finish(build.spawn_captured()?, start, progress).await?;
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
            "-tags",
            self.tags,
        ])
    }

    /// Waits for the end of a build and prints its progress, derived from its output.
    async fn finish(
        &self,
        build: Captured,
        start: Instant,
        progress: impl Fn(&str) -> String,
    ) -> Result<()> {
        while tokio::time::timeout(PROGRESS_INTERVAL, build.process().wait()).await.is_err() {
            if start.elapsed() > BUILD_TIMEOUT {
                build.process().kill();
                bail!(
                    "Go did not finish building {} within {} minutes; run the command again, which \
                     continues from Go's cache",
                    self.what,
                    BUILD_TIMEOUT.as_secs() / 60
                );
            }
            let progress = progress(&build.stderr()?);
            let seconds = start.elapsed().as_secs();
            print_message(&format!("  go, {}: {progress} after {seconds} s", self.what));
        }
        self.needs(build.finish(Duration::ZERO).await?.success())?;
        Ok(())
    }

    fn go(go: &Path, work: &Path) -> Program {
        let mut program = Program::new(go);
        // Go keeps its own cache there.
        if let Some(cache) = machine::cache_home() {
            program = program.env("XDG_CACHE_HOME", cache);
        }
        program
            .env("CGO_ENABLED", "0")
            // A person's own defaults must not change the build.
            .without_env("GOFLAGS")
            .env("GOWORK", "off")
            // Go leaves gigabytes there if it is killed.
            .env("GOTMPDIR", work)
            .in_folder(work)
    }

    fn needs<T>(&self, done: Result<T>) -> Result<T> {
        done.with_context(|| {
            format!(
                "build {} with Go (1.26 or later, and a module proxy that it can reach)",
                self.what
            )
        })
    }
}

/// Counts the downloads and packages in Go's output, as progress. Lines about modules begin with
/// `go:`; each other line is a package that is built.
fn progress(output: &str) -> String {
    let downloads = output.lines().filter(|line| line.starts_with("go: downloading ")).count();
    let packages = output.lines().filter(|line| !line.starts_with("go:")).count();
    match downloads {
        0 => format!("{packages} packages"),
        _ => format!("{downloads} modules downloaded, {packages} packages"),
    }
}

/// Returns the pinned version of a module from the text of a `go.mod`, for example `v1.36.3`.
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
    fn downloads_and_packages_are_counted_apart() {
        let built = "internal/abi\nk8s.io/klog/v2\n";
        assert_eq!(progress(built), "2 packages");
        let first = format!("go: downloading k8s.io/klog/v2 v2.130.1\n{built}");
        assert_eq!(progress(&first), "1 modules downloaded, 2 packages");
        assert_eq!(progress("go: finding module for package x\n"), "0 packages");
    }

    #[test]
    fn a_version_is_that_of_the_module_itself() {
        assert_eq!(
            version_of("k8s.io/kubernetes", "\tk8s.io/kubernetes v1.2.3 // indirect"),
            Some("v1.2.3".to_owned())
        );
        assert_eq!(version_of("k8s.io/kubernetes", "\tk8s.io/kubernetes/cmd/kube-apiserver"), None);
    }
}
