//! The periodic check of the admission policies: `serve` does not start without them.

use std::time::Duration;

use super::{Parameters, verify};
use crate::{
    base::{error_chain, telemetry::Metrics},
    cluster::Cluster,
};

/// Timeout of a check; a cluster that is slower counts as unreachable.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of checks while the cluster is unreachable.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Checks the policies at the start and while the broker runs.
#[derive(Clone, Debug)]
pub struct PolicyWatcher {
    /// The cluster, reached with the broker's credential.
    pub cluster: Cluster,
    /// Parameters of the expected policies.
    pub parameters: Parameters,
    /// Whether the broker starts in spite of faults.
    pub allow_missing: bool,
    /// Interval between checks.
    pub interval: Duration,
    /// Metrics for the result.
    pub metrics: Metrics,
}

/// Admission policies are missing or changed: one sentence for each fault.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the cluster's admission policies are not what this broker expects:\n  {}\n\
     An administrator repairs them with `tenant-broker install --config FILE --apply`. To run \
     without them, at the risk that a stolen credential of the broker reaches the whole cluster, \
     set cluster.allow_missing_policies = true",
    .0.join("\n  ")
)]
pub struct PoliciesNotInForce(Vec<String>);

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CheckResult {
    /// The cluster did not answer.
    Unreachable,
    /// The cluster answered; the policies have these faults.
    Faults(Vec<String>),
}

impl PolicyWatcher {
    /// Checks the policies for the first time, and returns whether the cluster answered. The broker
    /// starts without the cluster: nobody gets a token until the cluster answers, and
    /// [`PolicyWatcher::run`] checks the policies then.
    ///
    /// # Errors
    /// The policies are missing or changed.
    pub async fn start(&self) -> Result<bool, PoliciesNotInForce> {
        let result = self.check().await;
        self.decide(&result)?;
        Ok(result != CheckResult::Unreachable)
    }

    /// Checks the policies at the interval. It returns only if the first answer of the cluster has
    /// faults; later faults go to log and metric only, because an administrator may be changing the
    /// policies.
    pub async fn run(self, mut checked: bool) -> PoliciesNotInForce {
        let mut last = CheckResult::Faults(Vec::new());
        loop {
            tokio::time::sleep(if checked { self.interval } else { RETRY_INTERVAL }).await;
            let result = self.check().await;
            if result == CheckResult::Unreachable {
                continue;
            }
            if !checked && let Err(error) = self.decide(&result) {
                return error;
            }
            if checked && result != last {
                log_result(&result);
            }
            checked = true;
            last = result;
        }
    }

    async fn check(&self) -> CheckResult {
        let result = match tokio::time::timeout(
            CHECK_TIMEOUT,
            verify::faults(&self.cluster, &self.parameters),
        )
        .await
        {
            Ok(Ok(faults)) => CheckResult::Faults(faults),
            Ok(Err(error)) => {
                tracing::warn!(error = error_chain(&error), "cannot check the admission policies");
                CheckResult::Unreachable
            }
            Err(_) => {
                tracing::warn!(
                    "cannot check the admission policies: the cluster did not answer in time"
                );
                CheckResult::Unreachable
            }
        };
        if let Ok(Ok(true)) = tokio::time::timeout(
            CHECK_TIMEOUT,
            verify::unneeded_permission(&self.cluster, &self.parameters),
        )
        .await
        {
            tracing::warn!(
                "the broker may create and delete Secrets although cluster.bind_tokens_to_secrets \
                 is off; two hours after it was switched off run tenant-broker install --apply"
            );
        }
        if let CheckResult::Faults(faults) = &result {
            self.metrics.policies_in_force(faults.is_empty());
        }
        result
    }

    /// Logs the result, or returns its faults as an error unless they are allowed.
    fn decide(&self, result: &CheckResult) -> Result<(), PoliciesNotInForce> {
        match result {
            CheckResult::Faults(faults) if !faults.is_empty() && !self.allow_missing => {
                Err(PoliciesNotInForce(faults.clone()))
            }
            result => {
                log_result(result);
                Ok(())
            }
        }
    }
}

fn log_result(result: &CheckResult) {
    match result {
        CheckResult::Faults(faults) if faults.is_empty() => {
            tracing::info!("admission policies are in force");
        }
        CheckResult::Faults(faults) => {
            for fault in faults {
                tracing::error!(
                    fault,
                    "admission policies missing or changed: the broker or tenants may do more than \
                     they should"
                );
            }
        }
        CheckResult::Unreachable => {}
    }
}
