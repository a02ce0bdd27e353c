//! Conditions that are checked before a build that takes minutes: kubectl, Go and its version, the
//! folder of `KUBEBUILDER_ASSETS`, and the port of the broker.
//!
//! `xtask` has this file as a module, too, because it checks them before cargo builds the harness.
//! `xtask` has no dependencies, so this file uses the standard library alone.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

/// The Go module that names and pins the programs of a control plane.
pub(crate) const GO_MOD: &str = include_str!("../../controlplane/go.mod");
/// Names of these programs.
pub(crate) const PROGRAM_NAMES: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "etcd"];
/// Cost of their build, for messages.
pub(crate) const BUILD_TAKES: &str = "a download of 0.6 GB and about ten minutes";
/// Error text for a machine without kubectl.
pub(crate) const NO_KUBECTL: &str = "kubectl is not on PATH. Install it:\n    \
    Debian, Ubuntu: apt-get install kubectl, from the Kubernetes repository (Debian's own \
    kubernetes-client is older than 1.22 and cannot run credential plugins)\n    \
    macOS: brew install kubernetes-cli";
/// Commands that install Go.
const INSTALL_GO: &str = "Debian, Ubuntu: apt-get install golang-go (1.26 or later; else the \
    archive of go.dev)\n    \
    macOS: brew install go";

/// Returns the Kubernetes version that is built and cached, for example `v1.36.3`.
pub(crate) fn kubernetes_version() -> Option<&'static str> {
    GO_MOD.lines().find_map(|line| {
        let (module, rest) = line.trim().split_once(' ')?;
        let version = rest.split(' ').next()?;
        (module == "k8s.io/kubernetes" && version.starts_with('v')).then_some(version)
    })
}

/// Returns the error text for missing programs, with every way to get them. `cache` is our folder
/// for them.
pub(crate) fn install_hint(missing: &[&str], cache: Option<&Path>) -> String {
    let version = kubernetes_version().unwrap_or_default();
    let cache = cache.map_or_else(
        || "the cache folder (set HOME or XDG_CACHE_HOME, there is none now)".to_owned(),
        |cache| cache.display().to_string(),
    );
    format!(
        "not found: {}. Any one of these helps:\n\
         - install Go, and they are built once ({BUILD_TAKES} on 2 cores, Kubernetes \
         {version}):\n    \
             {INSTALL_GO}\n\
         - set KUBEBUILDER_ASSETS to a folder that has {}\n\
         - put them on PATH\n\
         - put them into {cache}",
        missing.join(", "),
        PROGRAM_NAMES.join(", ")
    )
}

/// Returns the error text if this folder, which `KUBEBUILDER_ASSETS` names, lacks a program.
pub(crate) fn assets_fault(folder: &Path) -> Option<String> {
    let is_missing = |name: &&str| !folder.join(name).is_file();
    let missing: Vec<&str> = PROGRAM_NAMES.into_iter().filter(is_missing).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "KUBEBUILDER_ASSETS is {}, where these files are missing: {}. Add them, or unset the \
             variable",
            folder.display(),
            missing.join(", ")
        )
    })
}

/// Returns the error text if this Go is older than the module needs. `answer` is the output of
/// `go env GOVERSION`, for example `go1.26.8`; Go before 1.16 prints an empty line.
pub(crate) fn go_version_fault(go: &Path, answer: &str) -> Option<String> {
    let needed = GO_MOD.lines().find_map(|line| line.strip_prefix("go ")).unwrap_or_default();
    let is_recent = version_numbers(answer) >= version_numbers(needed);
    (!is_recent).then(|| {
        let found = answer.trim();
        let found = if found.is_empty() { "too old to name its version" } else { found };
        format!(
            "{} is {found}, but the build of the control plane needs Go {needed} or later. Install \
             it:\n    \
             {INSTALL_GO}",
            go.display()
        )
    })
}

/// Returns the numbers of a version such as `1.26.0`, `go1.27rc1` or `devel go1.27-1f0c044d60`.
/// Missing ones are 0.
fn version_numbers(version: &str) -> [u32; 3] {
    let numbers = version.split_once("go").map_or(version, |(_, numbers)| numbers);
    let mut numbers = numbers.split('.').map(|number| {
        let end = number.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(number.len());
        number[..end].parse::<u32>().unwrap_or(0)
    });
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

/// Returns the error text if nobody can listen on this port of 127.0.0.1.
pub(crate) fn port_fault(port: u16) -> Option<String> {
    let error = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).err()?;
    Some(if error.kind() == ErrorKind::AddrInUse {
        format!("port {port} of 127.0.0.1 is taken; choose another one")
    } else {
        format!("cannot listen on port {port} of 127.0.0.1: {error}; choose another one")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_go_is_refused_with_the_install_command() {
        let go = Path::new("/usr/bin/go");
        let recent = ["go1.26.0\n", "go1.26.8", "go1.27rc1", "go2.0", "devel go1.27-1f0c044d60"];
        for answer in recent {
            assert_eq!(go_version_fault(go, answer), None, "{answer}");
        }
        for answer in ["go1.19.8\n", "go1.25.11", "\n", "gccgo"] {
            let text = go_version_fault(go, answer).unwrap();
            assert!(text.starts_with("/usr/bin/go is "), "{text}");
            assert!(text.contains("brew install go"), "{text}");
        }
    }

    #[test]
    fn the_version_of_kubernetes_is_that_of_the_module_itself() {
        let version = kubernetes_version().unwrap();
        assert!(GO_MOD.contains(&format!("\tk8s.io/kubernetes {version} ")), "{version}");
    }

    #[test]
    fn a_taken_port_is_refused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(port_fault(port).unwrap().contains("is taken"));
        assert_eq!(port_fault(0), None);
    }
}
