//! The reference parser of the Compose Specification, which checks Compose files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::go_build::{GoBuild, GoProgram, version_of};
use crate::process::{Finished, Program};

/// The Go module that names and pins the parser.
const GO_MOD: &str = include_str!("../compose/go.mod");
/// The checksums of the module's dependencies.
const GO_SUM: &str = include_str!("../compose/go.sum");
/// Path of the parser's module.
const MODULE: &str = "github.com/compose-spec/compose-go/v2";
const PROGRAMS: [GoProgram; 1] = [GoProgram {
    name: "compose-spec",
    package: "github.com/compose-spec/compose-go/v2/cmd",
    output: "cmd",
}];
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
        let version = version_of(MODULE, GO_MOD)
            .with_context(|| format!("compose/go.mod names no version of {MODULE}"))?;
        let build = GoBuild {
            what: &format!("the Compose parser {version}"),
            takes: "half a minute",
            go_mod: GO_MOD,
            go_sum: GO_SUM,
            programs: &PROGRAMS,
            tests: &[],
            linker_flags: "-s -w",
            tags: "",
        };
        let folder = build.in_cache("compose", &version).await?;
        Ok(Self { program: folder.join("compose-spec") })
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
