//! Tests of the places in `deploy/`: the Compose file, the systemd unit, the Helm chart and the
//! plain manifests.
//!
//! There is no container engine and no kubelet in these tests. The Compose file is checked by the
//! reference parser, the unit by systemd's own tools, and the manifests by a real API server, which
//! admits the pods. The broker then runs as in each place: the same program with the same
//! arguments, environment, settings, files, file modes and user. Only ports differ, and all paths
//! are below a temporary folder.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod admission;
mod chart;
mod chart_values;
mod cluster;
mod compose;
mod deployment;
mod manifests;
mod place;
mod systemd;

use std::path::{Path, PathBuf};

/// The version of all programs, charts and images.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the path of a file in `deploy/`.
fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("deploy").join(file)
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
