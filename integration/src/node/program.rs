//! The KWOK program: from `PATH`, or built once with Go.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::go_build::GoProgram;
use crate::go_tool::GoTool;
use crate::machine;

const TOOL: GoTool = GoTool {
    name: "KWOK",
    cache: "kwok",
    takes: "two minutes",
    module: "sigs.k8s.io/kwok",
    go_mod: include_str!("../../kwok/go.mod"),
    go_sum: include_str!("../../kwok/go.sum"),
    programs: &[GoProgram { name: "kwok", package: "sigs.k8s.io/kwok/cmd/kwok", output: "kwok" }],
    tags: "",
};

/// Returns the program, and builds it if it is missing, which takes two minutes.
pub(super) async fn find() -> Result<PathBuf> {
    if let Some(found) = machine::find("kwok") {
        return Ok(found);
    }
    let built = TOOL.find().await;
    Ok(built.context("KWOK, which plays nodes, is not on PATH")?.join("kwok"))
}
