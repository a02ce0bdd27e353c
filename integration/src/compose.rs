//! The reference parser of the Compose Specification, which checks Compose files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::go_build::GoProgram;
use crate::go_tool::GoTool;
use crate::process::{Finished, Program};

const TOOL: GoTool = GoTool {
    name: "the Compose parser",
    cache: "compose",
    takes: "half a minute",
    module: "github.com/compose-spec/compose-go/v2",
    go_mod: include_str!("../compose/go.mod"),
    go_sum: include_str!("../compose/go.sum"),
    programs: &[GoProgram {
        name: "compose-spec",
        package: "github.com/compose-spec/compose-go/v2/cmd",
        output: "cmd",
    }],
    tags: "",
};
/// Time limit of one check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// The parser that container engines use. It validates a file against the schema of the
/// specification, and resolves defaults, variables and paths.
#[derive(Clone, Debug)]
pub struct ComposeSpec {
    program: PathBuf,
}

impl ComposeSpec {
    /// Returns the pinned parser, and builds it if it is missing, which takes half a minute.
    ///
    /// # Errors
    /// There is no Go to build it with, or the build fails.
    pub async fn find() -> Result<Self> {
        Ok(Self { program: TOOL.find().await?.join("compose-spec") })
    }

    /// Checks a file, without any variable of our environment. If it conforms to the specification,
    /// the output is the resolved project as JSON; if not, the exit status is a failure.
    ///
    /// # Errors
    /// The parser cannot be started or does not end.
    pub async fn check(&self, file: &Path) -> Result<Finished> {
        let folder = file.parent().context("a Compose file is in a folder")?;
        Program::new(&self.program)
            .args(["-format", "json"])
            .arg(file)
            .clear_env()
            .in_folder(folder)
            .run(CHECK_TIMEOUT)
            .await
    }
}
