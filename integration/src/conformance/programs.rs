//! Where the suite comes from: built with Go once, from the module that pins it.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::control_plane::{kubernetes_version, linker_flags};
use crate::go_build::{GoBuild, GoProgram, GoTests, version_of};

/// The Go module that names and pins the programs.
const GO_MOD: &str = include_str!("../../conformance/go.mod");
/// Its checksums.
const GO_SUM: &str = include_str!("../../conformance/go.sum");
const PROGRAMS: [GoProgram; 2] = [
    GoProgram { name: "ginkgo", package: "github.com/onsi/ginkgo/v2/ginkgo", output: "ginkgo" },
    GoProgram {
        name: "kube-scheduler",
        package: "k8s.io/kubernetes/cmd/kube-scheduler",
        output: "kube-scheduler",
    },
];
/// The suite. Its runner takes only files whose name ends so.
const TESTS: [GoTests; 1] = [GoTests { name: "e2e.test", package: "k8s.io/kubernetes/test/e2e" }];

/// The programs of the suite.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    /// The tests.
    pub(super) suite: PathBuf,
    /// What runs them side by side.
    pub(super) ginkgo: PathBuf,
    /// What binds pods to nodes.
    pub(super) kube_scheduler: PathBuf,
}

impl Programs {
    /// The programs; built if they are not in the cache, which takes nine minutes.
    pub(super) async fn find() -> Result<Self> {
        let version = version()?;
        let build = GoBuild {
            what: &format!("the conformance suite of Kubernetes {version}"),
            takes: "nine minutes",
            go_mod: GO_MOD,
            go_sum: GO_SUM,
            programs: &PROGRAMS,
            tests: &TESTS,
            linker_flags: &linker_flags(&version)?,
        };
        let cache = build.in_cache("conformance", &version).await?;
        Ok(Self {
            suite: cache.join("e2e.test"),
            ginkgo: cache.join("ginkgo"),
            kube_scheduler: cache.join("kube-scheduler"),
        })
    }
}

/// The version of the suite: that of the control plane, or it would test something else.
fn version() -> Result<String> {
    let suite = version_of("k8s.io/kubernetes", GO_MOD)
        .context("conformance/go.mod names no version of k8s.io/kubernetes")?;
    let cluster = kubernetes_version()?;
    ensure!(suite == cluster, "the suite is of {suite} and the control plane of {cluster}");
    Ok(suite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_is_of_the_control_planes_version() {
        assert!(version().unwrap().starts_with("v1."));
    }
}
