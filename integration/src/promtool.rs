//! promtool, which checks and tests Prometheus' rules.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::go_build::{GoBuild, GoProgram, version_of};
use crate::machine;
use crate::process::{Finished, Program};

/// The Go module that names and pins Prometheus.
const GO_MOD: &str = include_str!("../promtool/go.mod");
/// The checksums of the module's dependencies.
const GO_SUM: &str = include_str!("../promtool/go.sum");
/// Path of Prometheus' module. Its version v0.315.0 is the release 3.15.0.
const MODULE: &str = "github.com/prometheus/prometheus";
const PROGRAMS: [GoProgram; 1] = [GoProgram {
    name: "promtool",
    package: "github.com/prometheus/prometheus/cmd/promtool",
    output: "promtool",
}];
/// Time limit of one command.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// promtool.
#[derive(Clone, Debug)]
pub struct Promtool {
    program: PathBuf,
}

impl Promtool {
    /// Finds promtool on `PATH` (Debian's package `prometheus` has it), or builds the pinned one,
    /// which takes minutes.
    ///
    /// # Errors
    /// It is missing and there is no Go to build it with, or the build fails.
    pub async fn find() -> Result<Self> {
        if let Some(program) = machine::find("promtool") {
            return Ok(Self { program });
        }
        let version = version_of(MODULE, GO_MOD)
            .with_context(|| format!("promtool/go.mod names no version of {MODULE}"))?;
        let build = GoBuild {
            what: &format!("promtool {version}"),
            takes: "three minutes",
            go_mod: GO_MOD,
            go_sum: GO_SUM,
            programs: &PROGRAMS,
            tests: &[],
            linker_flags: "-s -w",
            // Service discoveries, with the clients of all clouds, are of no use here.
            tags: "remove_all_sd",
        };
        let cache = build.in_cache("promtool", &version).await;
        let hint = "promtool is not on PATH (apt-get install prometheus)";
        Ok(Self { program: cache.context(hint)?.join("promtool") })
    }

    /// Runs promtool in this folder to its end, at most a minute. A failure exit status is no error
    /// here.
    ///
    /// # Errors
    /// It cannot be started or does not end.
    pub async fn run<A: AsRef<OsStr>>(
        &self,
        folder: &Path,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Finished> {
        Program::new(&self.program).args(args).in_folder(folder).run(COMMAND_TIMEOUT).await
    }
}
