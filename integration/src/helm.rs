//! Helm, as one person runs it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::go_build::{GoBuild, GoProgram, version_of};
use crate::kubectl::Kubectl;
use crate::process::Finished;

/// The Go module that names and pins Helm.
const GO_MOD: &str = include_str!("../helm/go.mod");
/// The checksums of the module's dependencies.
const GO_SUM: &str = include_str!("../helm/go.sum");
/// Path of Helm's module.
const MODULE: &str = "helm.sh/helm/v4";
const PROGRAMS: [GoProgram; 1] =
    [GoProgram { name: "helm", package: "helm.sh/helm/v4/cmd/helm", output: "helm" }];
/// Time limit of one command.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(2);

/// Helm with the home and the kubeconfig of a person's kubectl.
#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
    kubectl: Kubectl,
}

impl Helm {
    /// Returns the pinned Helm, and builds it if it is missing, which takes minutes.
    ///
    /// # Errors
    /// There is no Go to build it with, or the build fails.
    pub async fn for_kubectl(kubectl: &Kubectl) -> Result<Self> {
        Ok(Self { program: find().await?, kubectl: kubectl.clone() })
    }

    /// Runs Helm to its end, at most two minutes. A failure exit status is no error here.
    ///
    /// # Errors
    /// Helm cannot be started or does not end.
    pub async fn run<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Finished> {
        self.kubectl.other(&self.program).args(args).run(COMMAND_TIMEOUT).await
    }
}

/// Ignores `PATH`, because the tests need a known version.
async fn find() -> Result<PathBuf> {
    let version = version_of(MODULE, GO_MOD)
        .with_context(|| format!("helm/go.mod names no version of {MODULE}"))?;
    let build = GoBuild {
        what: &format!("Helm {version}"),
        takes: "two minutes",
        go_mod: GO_MOD,
        go_sum: GO_SUM,
        programs: &PROGRAMS,
        tests: &[],
        linker_flags: "-s -w",
        tags: "",
    };
    Ok(build.in_cache("helm", &version).await?.join("helm"))
}
