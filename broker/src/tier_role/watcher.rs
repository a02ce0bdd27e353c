//! Periodic inspection of the tiers' roles, because an operator that is installed later may add
//! permissions to them.

use std::{collections::BTreeMap, time::Duration};

use super::{RoleReport, inspect, summary};
use crate::{
    base::{clock::ticks, error_chain, telemetry::Metrics},
    cluster::Cluster,
};

/// Timeout of the inspection of one role. A role that could not be read in time is inspected again
/// in the next round.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Inspects the tiers' roles periodically, sets a metric and logs changes.
#[derive(Clone, Debug)]
pub struct RoleWatcher {
    /// The cluster, with the broker's credentials.
    pub cluster: Cluster,
    /// Names of the tiers' ClusterRoles.
    pub roles: Vec<String>,
    /// Interval between two inspections.
    pub interval: Duration,
    /// Receives the number of extra permissions of each role.
    pub metrics: Metrics,
}

impl RoleWatcher {
    /// Inspects the roles at once and then at every interval. Never returns.
    pub async fn run(self) {
        let mut ticks = ticks(self.interval);
        let mut last = BTreeMap::new();
        loop {
            ticks.tick().await;
            for role in &self.roles {
                let report =
                    match tokio::time::timeout(REQUEST_TIMEOUT, inspect(&self.cluster, role)).await
                    {
                        Ok(Ok(report)) => report,
                        Ok(Err(error)) => {
                            tracing::warn!(
                                role,
                                error = error_chain(&error),
                                "cannot read a tier's ClusterRole"
                            );
                            continue;
                        }
                        Err(_) => {
                            tracing::warn!(role, "cannot read a tier's ClusterRole: timed out");
                            continue;
                        }
                    };
                self.record_metrics(role, &report);
                if last.get(role) != Some(&report) {
                    log_report(role, &report);
                    last.insert(role.clone(), report);
                }
            }
        }
    }

    fn record_metrics(&self, role: &str, report: &RoleReport) {
        if let RoleReport::Grants(all) = report {
            self.metrics.role_beyond_admin(role, all.len(), report.escapes().len());
        }
    }
}

fn log_report(role: &str, report: &RoleReport) {
    match report {
        RoleReport::Missing => tracing::warn!(role, "a tier's ClusterRole does not exist"),
        RoleReport::Refused => tracing::warn!(
            role,
            "the broker may not read a tier's ClusterRole: run tenant-broker install --apply"
        ),
        RoleReport::Grants(all) if all.is_empty() => {
            tracing::info!(role, "a tier's ClusterRole grants no more than the built-in admin");
        }
        RoleReport::Grants(all) => {
            tracing::info!(
                role,
                rights = summary(all),
                "a tier's ClusterRole grants more than the built-in admin"
            );
            for (permission, why) in report.escapes() {
                tracing::warn!(
                    role,
                    right = %permission,
                    why,
                    "a tier's ClusterRole allows an escape from the namespace: give the tier its \
                     own ClusterRole, without aggregationRule"
                );
            }
        }
    }
}
