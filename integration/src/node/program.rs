//! The KWOK program: from `PATH`, or built once with Go.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::go_build::{GoBuild, GoProgram, version_of};
use crate::machine;

/// The Go module that names and pins KWOK.
const GO_MOD: &str = include_str!("../../kwok/go.mod");
/// The checksums of the module's dependencies.
const GO_SUM: &str = include_str!("../../kwok/go.sum");
const PROGRAMS: [GoProgram; 1] =
    [GoProgram { name: "kwok", package: "sigs.k8s.io/kwok/cmd/kwok", output: "kwok" }];

/// Returns the program, and builds it if it is missing, which takes two minutes.
pub(super) async fn find() -> Result<PathBuf> {
    if let Some(found) = machine::find("kwok") {
        return Ok(found);
    }
    let version = version_of("sigs.k8s.io/kwok", GO_MOD)
        .context("kwok/go.mod names no version of sigs.k8s.io/kwok")?;
    let build = GoBuild {
        what: &format!("KWOK {version}"),
        takes: "two minutes",
        go_mod: GO_MOD,
        go_sum: GO_SUM,
        programs: &PROGRAMS,
        tests: &[],
        linker_flags: "-s -w",
        tags: "",
    };
    let cache = build.in_cache("kwok", &version).await;
    Ok(cache.context("KWOK, which plays nodes, is not on PATH")?.join("kwok"))
}
