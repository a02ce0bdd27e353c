//! The versions of the control plane, read from the Go module that pins them.

use anyhow::{Context, Result};

use super::prerequisites::{self, GO_MOD};
use crate::go_build::{GoProgram, version_of};

/// The checksums of the module's dependencies.
pub(super) const GO_SUM: &str = include_str!("../../controlplane/go.sum");
/// The three programs of the control plane.
pub(super) const PROGRAMS: [GoProgram; 3] = [
    GoProgram { name: "etcd", package: "go.etcd.io/etcd/server/v3", output: "server" },
    GoProgram {
        name: "kube-apiserver",
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
        output: "kube-apiserver",
    },
    GoProgram {
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        output: "kube-controller-manager",
    },
];

/// Returns the Kubernetes version that is built and cached, for example `v1.36.3`.
///
/// # Errors
/// `controlplane/go.mod` does not require `k8s.io/kubernetes`.
pub fn kubernetes_version() -> Result<String> {
    prerequisites::kubernetes_version()
        .map(str::to_owned)
        .context("controlplane/go.mod names no version of k8s.io/kubernetes")
}

/// Returns the etcd version that is built and cached, for example `v3.6.8`.
///
/// # Errors
/// `controlplane/go.mod` does not require etcd's server.
pub(super) fn etcd_version() -> Result<String> {
    version_of("go.etcd.io/etcd/server/v3", GO_MOD)
        .context("controlplane/go.mod names no version of go.etcd.io/etcd/server/v3")
}

/// Returns the linker flags that stamp the version: a plain build calls itself
/// `v0.0.0-master+$Format:%H$`, which kubectl and other clients cannot parse.
pub(crate) fn linker_flags(version: &str) -> Result<String> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let major = numbers.next().unwrap_or_default();
    let minor = numbers.next().with_context(|| format!("{version:?} is no version"))?;
    let mut flags = "-s -w".to_owned();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (variable, value) in [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor)]
        {
            flags.extend([" -X ", package, ".", variable, "=", value]);
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_module_file() {
        let kubernetes = kubernetes_version().unwrap();
        assert!(GO_MOD.contains(&format!("k8s.io/kubernetes {kubernetes}")));
        assert!(etcd_version().unwrap().starts_with("v3."));
    }

    #[test]
    fn the_version_is_stamped_where_servers_and_clients_look() {
        let flags = linker_flags("v1.36.3").unwrap();
        assert!(flags.contains("-X k8s.io/component-base/version.gitVersion=v1.36.3"));
        assert!(flags.contains("-X k8s.io/client-go/pkg/version.gitMinor=36"));
    }
}
