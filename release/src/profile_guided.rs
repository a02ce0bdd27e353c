//! The broker with profile-guided optimization (PGO): an instrumented build, two measurements that
//! record what it does, and the build that uses the record.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use integration::machine;
use integration::process::Program;
use integration::progress::print_message;

use crate::BROKER;
use crate::cargo::{Build, cargo, run_attached};
use crate::target;

/// Version of the tool that is used.
const CARGO_PGO: &str = "0.3.0";
/// Time limit of each step.
const STEP_TIMEOUT: Duration = Duration::from_hours(2);
/// What `cargo measure` prints if a figure is too high, as all figures of the slow instrumented
/// broker are.
const TOO_SLOW: &str = "promises not kept";

/// Builds the broker. Takes half an hour on two cores.
///
/// # Errors
/// A tool is missing, or a step fails.
pub(crate) async fn build_broker(build: &Build<'_>) -> Result<()> {
    check_profile_tool().await?;
    let tool = tool().await?;
    print_message("building the instrumented broker");
    let instrumented = build.program(&tool).args(["pgo", "build", "--"]);
    run_attached(instrumented.args(build.arguments(BROKER)), STEP_TIMEOUT).await?;
    let broker = build.programs().join(BROKER);
    let parts: [&[&str]; 2] = [&[], &["gateway"]];
    for part in parts {
        print_message(&format!("recording a profile: cargo measure {}", part.join(" ")));
        measure(&build.source.root, &broker, part).await?;
    }
    print_message("building the broker with the profile");
    let optimized = build.program(&tool).args(["pgo", "optimize", "build", "--"]);
    run_attached(optimized.args(build.arguments(BROKER)), STEP_TIMEOUT).await
}

/// Runs `cargo measure` with the instrumented broker.
async fn measure(root: &Path, broker: &Path, part: &[&str]) -> Result<()> {
    let ended = Program::new(cargo())
        .args(["run", "--release", "--locked", "--package", "integration", "--bin", "measure"])
        .args(["--", "--quick", "--broker"])
        .arg(broker)
        .args(part)
        .in_folder(root)
        .run(STEP_TIMEOUT)
        .await?;
    let too_slow = ended.stderr.contains(TOO_SLOW);
    ensure!(ended.status.success() || too_slow, "cargo measure failed:\n{}", ended.stderr);
    Ok(())
}

/// Checks that the tool that merges profiles belongs to the compiler. cargo-pgo would take any other
/// one from `PATH`, which cannot read the profiles of a newer compiler.
async fn check_profile_tool() -> Result<()> {
    let libraries = target::libraries_of_host().await?;
    let tool = libraries.parent().context("the compiler has no folder")?.join("bin/llvm-profdata");
    if !tool.is_file() {
        bail!(
            "a release needs llvm-profdata of the compiler: rustup component add llvm-tools \
             (--no-pgo builds without a profile)"
        );
    }
    Ok(())
}

/// Returns the pinned cargo-pgo from our cache, and installs it there if it is missing.
async fn tool() -> Result<PathBuf> {
    let cache = machine::cache_folder().context("no HOME, so there is no cache folder")?;
    let folder = cache.join("tools").join(format!("cargo-pgo-{CARGO_PGO}"));
    let tool = folder.join("bin/cargo-pgo");
    if !tool.is_file() {
        print_message(&format!(
            "installing cargo-pgo {CARGO_PGO}, once; kept in {}",
            folder.display()
        ));
        let install = Program::new(cargo())
            .args(["install", "--locked", "--version", CARGO_PGO, "--root"])
            .arg(&folder)
            .arg("cargo-pgo")
            // Its packages are no part of this workspace's builds.
            .without_env("CARGO_TARGET_DIR")
            .without_env("RUSTFLAGS");
        run_attached(install, STEP_TIMEOUT).await?;
    }
    Ok(tool)
}
