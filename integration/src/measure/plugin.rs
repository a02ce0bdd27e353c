//! The plugin's cache hit, alone and as kubectl's exec plugin.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::alternation::alternate;
use super::figure::{Figure, Threshold};
use super::process_time::{ProcessUsage, time_one};
use crate::person::Person;
use crate::world::World;

/// The exec info that client-go passes to the plugin.
const EXEC_INFO: &str = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":false}}"#;

/// Times a cache hit and `/bin/true` in turn: wall time, and peak memory.
///
/// # Errors
/// A run fails.
pub async fn cache_hit(person: &Person, world: &World, rounds: usize) -> Result<Vec<Figure>> {
    let parent = world.binaries().time_one();
    let args = exec_args(&person.kubeconfig())?;
    let plugin = world.binaries().kubectl_tenant();
    let hit = || {
        let base = person.kubectl().other(&parent).env("KUBERNETES_EXEC_INFO", EXEC_INFO);
        time_one(base, &plugin, &args)
    };
    let baseline = || time_one(person.kubectl().other(&parent), Path::new("/bin/true"), &[]);
    // The first runs fill the caches of the file system.
    hit().await?;
    baseline().await?;
    let pairs = alternate(rounds, hit, baseline).await?;
    let of = |pick: fn(&ProcessUsage) -> f64| -> Vec<(f64, f64)> {
        pairs.iter().map(|(hit, baseline)| (pick(hit), pick(baseline))).collect()
    };
    let figures = [
        Figure::of_pairs(
            "get-token, cache hit: wall time",
            "ms",
            "/bin/true",
            &of(|taken| taken.wall_ms),
            Threshold::AtMost(1.6),
        ),
        Figure::of_pairs(
            "get-token, cache hit: CPU time",
            "ms",
            "/bin/true",
            &of(|taken| taken.cpu_ms),
            Threshold::None,
        ),
        Figure::of_pairs(
            "get-token, cache hit: peak memory",
            "MiB",
            "/bin/true",
            &of(|taken| taken.peak_mib),
            Threshold::ValueBelow(4.0),
        ),
    ];
    Ok(figures.into_iter().flatten().collect())
}

/// Times `kubectl get` with the exec entry and the same kubectl with a token in its kubeconfig, in
/// turn.
///
/// # Errors
/// A run fails.
pub async fn kubectl_get(person: &Person, world: &World, rounds: usize) -> Result<Option<Figure>> {
    let document = person.api().await?.kubeconfig("static").await?;
    let file = world.folder().join("static.kubeconfig");
    std::fs::write(&file, document).context("write the static kubeconfig")?;
    let static_kubectl = world.kubectl_with(&file)?;
    let time = async |kubectl: &crate::kubectl::Kubectl| -> Result<f64> {
        let began = Instant::now();
        kubectl.run(["get", "configmaps", "-o", "name"]).await?.success()?;
        Ok(began.elapsed().as_secs_f64() * 1e3)
    };
    // The first run of each fills kubectl's discovery cache.
    time(person.kubectl()).await?;
    time(&static_kubectl).await?;
    let exec = async || time(person.kubectl()).await;
    let pairs = alternate(rounds, exec, async || time(&static_kubectl).await).await?;
    Ok(Figure::of_pairs(
        "kubectl get with the exec entry, cache hit",
        "ms",
        "with a static token",
        &pairs,
        Threshold::None,
    ))
}

/// Returns the arguments that the kubeconfig passes to the plugin.
fn exec_args(kubeconfig: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(kubeconfig)
        .with_context(|| format!("read {}", kubeconfig.display()))?;
    let value: Value = serde_norway::from_str(&text).context("read the kubeconfig")?;
    let args: Vec<String> = value["users"][0]["user"]["exec"]["args"]
        .as_array()
        .context("the kubeconfig has no exec entry")?
        .iter()
        .filter_map(|arg| arg.as_str().map(str::to_owned))
        .collect();
    ensure!(args.first().is_some_and(|arg| arg == "get-token"), "odd arguments: {args:?}");
    Ok(args)
}
