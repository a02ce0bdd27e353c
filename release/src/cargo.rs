//! Calls of cargo in the environment of a release.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration::process::Program;
use integration::progress::print_message;

use crate::source::Source;
use crate::target::Target;

/// Time limit of one build.
const BUILD_TIMEOUT: Duration = Duration::from_hours(2);

/// Builds for one target.
pub(crate) struct Build<'a> {
    pub(crate) source: &'a Source,
    pub(crate) target: Target,
    environment: Vec<(String, OsString)>,
}

impl<'a> Build<'a> {
    pub(crate) fn new(source: &'a Source, target: Target, host: &str) -> Result<Self> {
        let mut environment = target.build_environment(host);
        environment.push(("RUSTFLAGS".to_owned(), flags(&source.root)?.into()));
        environment.push(("SOURCE_DATE_EPOCH".to_owned(), source.time.to_string().into()));
        // The plugin prints it as part of its version.
        environment.push(("TENANT_COMMIT".to_owned(), source.commit.clone().into()));
        Ok(Self { source, target, environment })
    }

    /// Folder of cargo's output, apart from that of daily work, which has other flags.
    pub(crate) fn folder(&self) -> PathBuf {
        self.source.target_folder.join("release-build")
    }

    /// Folder of the built programs.
    pub(crate) fn programs(&self) -> PathBuf {
        self.folder().join(self.target.triple).join("release")
    }

    /// Arguments of cargo that select a package, the target and the output.
    pub(crate) fn arguments(&self, package: &str) -> Vec<OsString> {
        let mut arguments: Vec<OsString> =
            ["--locked", "--package", package, "--target", self.target.triple, "--target-dir"]
                .map(OsString::from)
                .into();
        arguments.push(self.folder().into());
        arguments
    }

    /// Returns a program in the environment of the build.
    pub(crate) fn program(&self, path: impl Into<PathBuf>) -> Program {
        let program = Program::new(path)
            .in_folder(&self.source.root)
            // It would win over RUSTFLAGS.
            .without_env("CARGO_ENCODED_RUSTFLAGS");
        self.environment.iter().fold(program, |program, (name, value)| program.env(name, value))
    }

    /// Runs `cargo build --release` for a package.
    pub(crate) async fn cargo(&self, package: &str) -> Result<()> {
        print_message(&format!("building {package} for {}", self.target.triple));
        let cargo = self.program(cargo()).args(["build", "--release"]);
        run_attached(cargo.args(self.arguments(package)), BUILD_TIMEOUT).await
    }
}

/// The cargo that runs us, or the one on `PATH`.
pub(crate) fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

/// Runs a program with its output on ours.
pub(crate) async fn run_attached(program: Program, limit: Duration) -> Result<()> {
    let process = program.spawn_attached(false)?;
    let ended = tokio::time::timeout(limit, process.wait()).await;
    let ended = ended.with_context(|| format!("{} takes longer than {limit:?}", process.name()))?;
    let status = ended.with_context(|| format!("the end of {} was not seen", process.name()))?;
    ensure!(status.success(), "{} failed with {status}", process.name());
    Ok(())
}

/// Compiler flags that keep the folders of this machine out of panic messages.
fn flags(root: &Path) -> Result<String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.unwrap_or_else(|| home.join(".cargo"));
    let mut flags = Vec::new();
    for (folder, name) in [(root, "/kubectl-tenant"), (cargo_home.as_path(), "/cargo")] {
        let folder = folder.to_str().filter(|text| !text.contains(char::is_whitespace));
        let folder = folder.context("release from a folder without spaces in its path")?;
        flags.push(format!("--remap-path-prefix={folder}={name}"));
    }
    Ok(flags.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_this_machine_are_replaced() {
        let flags = flags(Path::new("/somebody/checkout")).unwrap();
        assert!(flags.starts_with("--remap-path-prefix=/somebody/checkout=/kubectl-tenant "));
        assert!(flags.ends_with("=/cargo"), "{flags}");
        assert!(super::flags(Path::new("/some body/checkout")).is_err());
    }
}
