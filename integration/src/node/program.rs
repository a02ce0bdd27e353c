//! Where KWOK comes from: `PATH`, or built with Go once.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::go_build::{GoBuild, GoProgram, version_of};
use crate::machine;

/// The Go module that names and pins it.
const GO_MOD: &str = include_str!("../../kwok/go.mod");
/// Its checksums.
const GO_SUM: &str = include_str!("../../kwok/go.sum");
const PROGRAMS: [GoProgram; 1] =
    [GoProgram { name: "kwok", package: "sigs.k8s.io/kwok/cmd/kwok", output: "kwok" }];

/// The program; built if it is nowhere, which takes two minutes.
pub(super) async fn find() -> Result<PathBuf> {
    if let Some(found) = machine::find("kwok") {
        return Ok(found);
    }
    let version = version_of("sigs.k8s.io/kwok", GO_MOD)
        .context("kwok/go.mod names no version of sigs.k8s.io/kwok")?;
    let cache = machine::cache_folder().context("no HOME, so there is no cache folder")?;
    let cache = cache.join("kwok").join(&version);
    let program = cache.join("kwok");
    if !program.is_file() {
        let go = machine::find("go").context(
            "KWOK, which plays nodes, is not on PATH, and there is no Go to build it with. \
             Install Go (1.21 or newer): apt-get install golang-go, or brew install go",
        )?;
        let build = GoBuild {
            what: &format!("KWOK {version}"),
            takes: "two minutes",
            go_mod: GO_MOD,
            go_sum: GO_SUM,
            programs: &PROGRAMS,
            tests: &[],
            linker_flags: "-s -w",
        };
        build.build(&go, &cache).await?;
    }
    Ok(program)
}
