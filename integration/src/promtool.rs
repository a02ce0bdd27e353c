//! promtool, which checks and tests Prometheus' rules.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::go_build::GoProgram;
use crate::go_tool::GoTool;
use crate::machine;
use crate::process::{Finished, Program};

const TOOL: GoTool = GoTool {
    name: "promtool",
    cache: "promtool",
    takes: "three minutes",
    // Its version v0.315.0 is the release 3.15.0.
    module: "github.com/prometheus/prometheus",
    go_mod: include_str!("../promtool/go.mod"),
    go_sum: include_str!("../promtool/go.sum"),
    programs: &[GoProgram {
        name: "promtool",
        package: "github.com/prometheus/prometheus/cmd/promtool",
        output: "promtool",
    }],
    // Service discoveries, with the clients of all clouds, are of no use here.
    tags: "remove_all_sd",
};
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
        let built = TOOL.find().await;
        let hint = "promtool is not on PATH (apt-get install prometheus)";
        Ok(Self { program: built.context(hint)?.join("promtool") })
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
