//! One run of the suite, and what it said.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::programs::Programs;
use super::selection::{FOCUS, LEFT_OUT};
use crate::kubectl::Kubectl;
use crate::process::Captured;
use crate::progress::say;
use crate::scratch::private_folder;

/// How many specs run at once.
const PROCESSES: usize = 6;
/// How long a run may take.
const LIMIT: Duration = Duration::from_mins(45);
/// How often it is said how far it is.
const TURN: Duration = Duration::from_secs(15);

/// What a run said.
#[derive(Debug)]
pub struct Outcome {
    /// Each spec that was run, by its whole name.
    pub specs: BTreeMap<String, Spec>,
    /// How long all of it took.
    pub took: Duration,
}

/// What one spec said.
#[derive(Debug)]
pub struct Spec {
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// How many specs passed.
    pub fn passed(&self) -> usize {
        self.specs.values().filter(|spec| spec.failure.is_none()).count()
    }

    /// Those that failed, and why.
    pub fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.specs.iter().filter_map(|(name, spec)| Some((name.as_str(), spec.failure.as_deref()?)))
    }
}

/// Runs the selection with the server and the identity of this kubeconfig; files go to `folder`.
pub(super) async fn run(programs: &Programs, kubeconfig: &Path, folder: &Path) -> Result<Outcome> {
    private_folder(folder)?;
    let kubectl = Kubectl::new(folder, kubeconfig, None)?;
    let skip: Vec<&str> = LEFT_OUT.iter().map(|(pattern, _)| *pattern).collect();
    let start = Instant::now();
    let suite = kubectl
        .other(&programs.ginkgo)
        .arg(format!("--procs={PROCESSES}"))
        .arg(format!("--focus={FOCUS}"))
        .arg(format!("--skip={}", skip.join("|")))
        .args(["--no-color", "--silence-skips", "--json-report=report.json"])
        .arg(format!("--timeout={}s", LIMIT.as_secs()))
        .arg(format!("--output-dir={}", folder.display()))
        .arg(&programs.suite)
        .arg("--")
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--kubectl-path={}", kubectl.program().display()))
        // Neither a cloud nor a container's log is there to be asked.
        .args(["--provider=skeleton", "--dump-logs-on-failure=false", "--disable-log-dump=true"])
        .in_folder(folder)
        .spawn_captured()?;
    watch(&suite, start).await?;
    let finished = suite.finish(Duration::ZERO).await?;
    let took = start.elapsed();
    let report = folder.join("report.json");
    let report = std::fs::read(&report).with_context(|| {
        format!("the suite left no report\n{}\n{}", finished.stdout, finished.stderr)
    })?;
    let specs = parse(&report)?;
    ensure!(!specs.is_empty(), "no spec was run\n{}\n{}", finished.stdout, finished.stderr);
    Ok(Outcome { specs, took })
}

/// Says how far it is until it ends.
async fn watch(suite: &Captured, start: Instant) -> Result<()> {
    while tokio::time::timeout(TURN, suite.process().wait()).await.is_err() {
        if start.elapsed() > LIMIT {
            break;
        }
        let told = suite.stdout()?;
        // A bullet for each spec that has come to its end, and this word if it failed.
        let (ended, failed) = (told.matches('•').count(), told.matches("[FAILED] [").count());
        say(&format!(
            "  {ended} specs have ended, {failed} of them failed, after {} s",
            start.elapsed().as_secs()
        ));
    }
    Ok(())
}

/// The part of ginkgo's JSON report that is read (ginkgo `types.Report`).
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    spec_reports: Vec<SpecReport>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecReport {
    #[serde(default)]
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    /// Nanoseconds.
    run_time: u64,
    #[serde(default)]
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

/// Every spec that was run, and a step of the suite itself that failed.
fn parse(report: &[u8]) -> Result<BTreeMap<String, Spec>> {
    let reports: Vec<Report> = serde_json::from_slice(report).context("read ginkgo's report")?;
    let specs = reports.into_iter().flat_map(|report| report.spec_reports);
    Ok(specs
        .filter(|spec| match spec.state.as_str() {
            "skipped" | "pending" => false,
            "passed" => spec.leaf_node_type == "It",
            _ => true,
        })
        .map(|spec| {
            let mut name = spec.container_hierarchy_texts.unwrap_or_default();
            name.push(spec.leaf_node_text);
            let message = spec.failure.map(|failure| failure.message).unwrap_or_default();
            let failure = (spec.state != "passed").then(|| format!("{}: {message}", spec.state));
            let took = Duration::from_nanos(spec.run_time);
            (name.join(" ").trim().to_owned(), Spec { failure, took })
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_without_what_was_not_run() {
        let report = br#"[{"SpecReports": [
            {"ContainerHierarchyTexts": ["[sig-a] A", "b"], "LeafNodeType": "It",
             "LeafNodeText": "works", "State": "passed", "RunTime": 1500000000},
            {"ContainerHierarchyTexts": ["[sig-a] A"], "LeafNodeType": "It",
             "LeafNodeText": "fails", "State": "failed", "RunTime": 1,
             "Failure": {"Message": "expected"}},
            {"ContainerHierarchyTexts": ["[sig-a] A"], "LeafNodeType": "It",
             "LeafNodeText": "rests", "State": "skipped", "RunTime": 0},
            {"ContainerHierarchyTexts": null, "LeafNodeType": "SynchronizedBeforeSuite",
             "LeafNodeText": "", "State": "passed", "RunTime": 1},
            {"ContainerHierarchyTexts": null, "LeafNodeType": "SynchronizedAfterSuite",
             "LeafNodeText": "", "State": "panicked", "RunTime": 1}
        ]}]"#;
        let specs = parse(report).unwrap();
        let outcome = Outcome { specs, took: Duration::ZERO };
        assert_eq!(outcome.passed(), 1);
        assert_eq!(outcome.specs["[sig-a] A b works"].took, Duration::from_millis(1500));
        let failed: Vec<_> = outcome.failed().collect();
        assert_eq!(failed, [("", "panicked: "), ("[sig-a] A fails", "failed: expected")]);
    }
}
