//! Building programs with Go from a module that pins them, once for this user.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::machine;
use crate::process::Program;
use crate::progress::say;

/// How long a build may take, a slow download included.
const LIMIT: Duration = Duration::from_mins(30);

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
    /// For the linker, for example to stamp a version.
    pub(crate) linker_flags: &'a str,
}

impl GoBuild<'_> {
    /// Builds the programs into `cache`, unless another process has done it meanwhile. A program
    /// appears there under its name only when it is complete.
    pub(crate) async fn build(&self, go: &Path, cache: &Path) -> Result<()> {
        fs::create_dir_all(cache)
            .with_context(|| format!("make the folder {}", cache.display()))?;
        let _lock = machine::lock(cache, &format!("builds {}", self.what), LIMIT).await?;
        if self.programs.iter().all(|program| cache.join(program.name).is_file()) {
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
        self.run_go(go, work.path()).await?;
        for program in self.programs {
            let built = work.path().join("bin").join(program.output);
            fs::rename(built, cache.join(program.name)).with_context(|| {
                format!("move the built {} into {}", program.name, cache.display())
            })?;
        }
        Ok(())
    }

    async fn run_go(&self, go: &Path, work: &Path) -> Result<()> {
        let start = Instant::now();
        let build = Program::new(go)
            .args(["build", "-v", "-trimpath", "-mod=readonly", "-ldflags", self.linker_flags])
            .arg("-o")
            .arg(work.join("bin/"))
            .args(self.programs.iter().map(|program| program.package))
            .env("CGO_ENABLED", "0")
            // A person's own defaults must not change what is built.
            .without_env("GOFLAGS")
            .env("GOWORK", "off")
            .in_folder(work)
            .spawn_captured()?;
        while tokio::time::timeout(Duration::from_secs(10), build.process().wait()).await.is_err() {
            if start.elapsed() > LIMIT {
                break;
            }
            let packages = build.stderr()?.lines().count();
            say(&format!("  {packages} packages after {} s", start.elapsed().as_secs()));
        }
        build.finish(Duration::ZERO).await?.success().with_context(|| {
            format!(
                "build {} with Go (1.21 or newer, and a module proxy that it can reach)",
                self.what
            )
        })?;
        say(&format!("  done after {} s", start.elapsed().as_secs()));
        Ok(())
    }
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
