//! The programs of the conformance suite, built once with Go from the module that pins them.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::control_plane::{kubernetes_version, linker_flags};
use crate::go_build::{GoBuild, GoProgram, GoTests, version_of};

/// The Go module that names and pins the programs.
const GO_MOD: &str = include_str!("../../conformance/go.mod");
/// The checksums of the module's dependencies.
const GO_SUM: &str = include_str!("../../conformance/go.sum");
const PROGRAMS: [GoProgram; 2] = [
    GoProgram { name: "ginkgo", package: "github.com/onsi/ginkgo/v2/ginkgo", output: "ginkgo" },
    GoProgram {
        name: "kube-scheduler",
        package: "k8s.io/kubernetes/cmd/kube-scheduler",
        output: "kube-scheduler",
    },
];
/// The suite. Its runner accepts only files whose name ends in `.test`.
const TESTS: [GoTests; 1] = [GoTests { name: "e2e.test", package: "k8s.io/kubernetes/test/e2e" }];

/// The programs of the suite.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    /// The test binary.
    pub(super) suite: PathBuf,
    /// The runner, which runs the specs in parallel.
    pub(super) ginkgo: PathBuf,
    /// The scheduler, which binds pods to nodes.
    pub(super) kube_scheduler: PathBuf,
}

impl Programs {
    /// Finds the programs in the cache, or builds them, which takes nine minutes.
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
            tags: "",
        };
        let cache = build.in_cache("conformance", &version).await?;
        Ok(Self {
            suite: cache.join("e2e.test"),
            ginkgo: cache.join("ginkgo"),
            kube_scheduler: cache.join("kube-scheduler"),
        })
    }
}

/// Returns the version of the suite, which must be the control plane's.
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
    fn the_suite_has_the_control_planes_version() {
        assert!(version().unwrap().starts_with("v1."));
    }
}
