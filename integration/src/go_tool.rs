//! Programs of other projects that the tests run, built with Go as their authors build them.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::go_build::{GoBuild, GoProgram, version_of};

/// The programs of a Go module of another project.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoTool {
    /// Name for messages.
    pub(crate) name: &'static str,
    /// Name of the folder in the cache.
    pub(crate) cache: &'static str,
    /// Duration of the build on 2 cores, for messages.
    pub(crate) takes: &'static str,
    /// Path of the module.
    pub(crate) module: &'static str,
    /// Text of the `go.mod` that names and pins the module.
    pub(crate) go_mod: &'static str,
    /// Text of the `go.sum` with the checksums of its dependencies.
    pub(crate) go_sum: &'static str,
    /// The programs.
    pub(crate) programs: &'static [GoProgram],
    /// Build tags, separated by commas.
    pub(crate) tags: &'static str,
}

impl GoTool {
    /// Returns the folder with the programs, and builds them if they are missing.
    ///
    /// # Errors
    /// There is no Go to build them with, or the build fails.
    pub(crate) async fn find(&self) -> Result<PathBuf> {
        let version = version_of(self.module, self.go_mod).with_context(|| {
            format!("{}/go.mod names no version of {}", self.cache, self.module)
        })?;
        let build = GoBuild {
            what: &format!("{} {version}", self.name),
            takes: self.takes,
            go_mod: self.go_mod,
            go_sum: self.go_sum,
            programs: self.programs,
            tests: &[],
            linker_flags: "-s -w",
            tags: self.tags,
        };
        build.in_cache(self.cache, &version).await
    }
}
