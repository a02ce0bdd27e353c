//! One run of the conformance suite and its result.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::programs::Programs;
use super::selection::{FOCUS, SKIPPED};
use crate::kubectl::Kubectl;
use crate::process::Captured;
use crate::progress::print_message;
use crate::scratch::private_folder;

/// Number of parallel processes.
const PROCESSES: usize = 6;
/// Time limit of a run.
const SUITE_TIMEOUT: Duration = Duration::from_mins(45);
/// Interval between two progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(15);

/// The result of one run.
#[derive(Debug)]
pub struct SuiteResult {
    /// Result of each spec that was run, by its full name.
    pub specs: BTreeMap<String, SpecResult>,
    /// Duration of the whole run.
    pub took: Duration,
}

/// The result of one spec.
#[derive(Debug)]
pub struct SpecResult {
    /// Failure message, if it failed.
    pub failure: Option<String>,
    /// Duration of the spec.
    pub took: Duration,
}

impl SuiteResult {
    /// Number of specs that passed.
    pub fn passed(&self) -> usize {
        self.specs.values().filter(|spec| spec.failure.is_none()).count()
    }

    /// Names and messages of the specs that failed.
    pub fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.specs.iter().filter_map(|(name, spec)| Some((name.as_str(), spec.failure.as_deref()?)))
    }
}

/// Runs the selected specs with the server and the identity of this kubeconfig; files go to
/// `folder`.
pub(super) async fn run(
    programs: &Programs,
    kubeconfig: &Path,
    folder: &Path,
) -> Result<SuiteResult> {
    private_folder(folder)?;
    let kubectl = Kubectl::new(folder, kubeconfig, None)?;
    let skip: Vec<&str> = SKIPPED.iter().map(|(pattern, _)| *pattern).collect();
    let start = Instant::now();
    let suite = kubectl
        .other(&programs.ginkgo)
        .arg(format!("--procs={PROCESSES}"))
        .arg(format!("--focus={FOCUS}"))
        .arg(format!("--skip={}", skip.join("|")))
        .args(["--no-color", "--silence-skips", "--json-report=report.json"])
        .arg(format!("--timeout={}s", SUITE_TIMEOUT.as_secs()))
        .arg(format!("--output-dir={}", folder.display()))
        .arg(&programs.suite)
        .arg("--")
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--kubectl-path={}", kubectl.program().display()))
        // There is neither a cloud provider nor a container log to query.
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
    Ok(SuiteResult { specs, took })
}

/// Prints the progress until the run ends.
async fn watch(suite: &Captured, start: Instant) -> Result<()> {
    while tokio::time::timeout(PROGRESS_INTERVAL, suite.process().wait()).await.is_err() {
        if start.elapsed() > SUITE_TIMEOUT {
            break;
        }
        let output = suite.stdout()?;
        // ginkgo prints a bullet for each finished spec, and this word if it failed.
        let (ended, failed) = (output.matches('•').count(), output.matches("[FAILED] [").count());
        print_message(&format!(
            "  {ended} specs have ended, {failed} of them failed, after {} s",
            start.elapsed().as_secs()
        ));
    }
    Ok(())
}

/// The fields of ginkgo's JSON report that are read (ginkgo `types.Report`).
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
    /// In nanoseconds.
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

/// Returns every spec that was run, and every failed setup node of the suite itself.
fn parse(report: &[u8]) -> Result<BTreeMap<String, SpecResult>> {
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
            (name.join(" ").trim().to_owned(), SpecResult { failure, took })
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_that_did_not_run_are_left_out_of_the_report() {
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
        let outcome = SuiteResult { specs, took: Duration::ZERO };
        assert_eq!(outcome.passed(), 1);
        assert_eq!(outcome.specs["[sig-a] A b works"].took, Duration::from_millis(1500));
        let failed: Vec<_> = outcome.failed().collect();
        assert_eq!(failed, [("", "panicked: "), ("[sig-a] A fails", "failed: expected")]);
    }
}
