//! Building the control plane with Go, once for this user.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::release::{self, GO_MOD, GO_SUM};
use crate::machine;
use crate::process::Program;
use crate::progress::say;

/// Package of each program, and the name that `go build` gives to its output.
const PACKAGES: [(&str, &str, &str); 3] = [
    ("etcd", "go.etcd.io/etcd/server/v3", "server"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
    (
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-controller-manager",
    ),
];

/// How long a build may take, a slow download included.
const LIMIT: Duration = Duration::from_mins(30);

/// Builds the three programs into `cache`, unless another process has done it meanwhile. A program
/// appears there under its name only when it is complete.
pub(super) async fn build(go: &Path, cache: &Path) -> Result<()> {
    fs::create_dir_all(cache).with_context(|| format!("make the folder {}", cache.display()))?;
    let _lock = machine::lock(cache, "builds the control plane", LIMIT).await?;
    if PACKAGES.iter().all(|(name, ..)| cache.join(name).is_file()) {
        return Ok(());
    }
    let version = release::kubernetes_version()?;
    say(&format!(
        "building kube-apiserver, kube-controller-manager and etcd {version} with {} \
         (under four minutes on 2 cores, once; kept in {})",
        go.display(),
        cache.display()
    ));
    let work = tempfile::Builder::new()
        .prefix(".building-")
        .tempdir_in(cache)
        .context("make a folder to build in")?;
    fs::write(work.path().join("go.mod"), GO_MOD).context("write go.mod")?;
    fs::write(work.path().join("go.sum"), GO_SUM).context("write go.sum")?;
    run_go(go, work.path(), &release::linker_flags(&version)?).await?;
    for (name, _, output) in PACKAGES {
        fs::rename(work.path().join("bin").join(output), cache.join(name))
            .with_context(|| format!("move the built {name} into {}", cache.display()))?;
    }
    Ok(())
}

async fn run_go(go: &Path, work: &Path, linker_flags: &str) -> Result<()> {
    let start = Instant::now();
    let build = Program::new(go)
        .args(["build", "-v", "-trimpath", "-mod=readonly", "-ldflags", linker_flags, "-o"])
        .arg(work.join("bin/"))
        .args(PACKAGES.map(|(_, package, _)| package))
        .env("CGO_ENABLED", "0")
        // A person's own defaults must not change what is built.
        .without_env("GOFLAGS")
        .env("GOWORK", "off")
        .in_folder(work)
        .spawn_captured()?;
    while tokio::time::timeout(Duration::from_secs(10), build.process().wait()).await.is_err() {
        if start.elapsed() > LIMIT {
            break;
        }
        let packages = build.stderr()?.lines().count();
        say(&format!("  {packages} packages after {} s", start.elapsed().as_secs()));
    }
    build.finish(Duration::ZERO).await?.success().context(
        "build the control plane with Go (1.21 or newer, and a module proxy that it can reach)",
    )?;
    say(&format!("  done after {} s", start.elapsed().as_secs()));
    Ok(())
}
