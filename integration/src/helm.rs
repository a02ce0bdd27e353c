//! Helm, as one person runs it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::go_build::GoProgram;
use crate::go_tool::GoTool;
use crate::kubectl::Kubectl;
use crate::process::Finished;

const TOOL: GoTool = GoTool {
    name: "Helm",
    cache: "helm",
    takes: "two minutes",
    module: "helm.sh/helm/v4",
    go_mod: include_str!("../helm/go.mod"),
    go_sum: include_str!("../helm/go.sum"),
    programs: &[GoProgram { name: "helm", package: "helm.sh/helm/v4/cmd/helm", output: "helm" }],
    tags: "",
};
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
        // A Helm on PATH is ignored, because the tests need a known version.
        Ok(Self { program: TOOL.find().await?.join("helm"), kubectl: kubectl.clone() })
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
