//! The roles are looked at while the broker runs: an operator that is installed later adds to them.

use std::{collections::BTreeMap, time::Duration};

use super::{Seen, look, named};
use crate::{clock::ticks, cluster::Cluster, problem::chain, telemetry::Metrics};

/// How long a look may take; a cluster that is slower is looked at in the next round.
const LIMIT: Duration = Duration::from_secs(5);

/// Looks at the tiers' roles, and says in log and metric what is new.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The cluster, as the broker.
    pub cluster: Cluster,
    /// Names of the tiers' ClusterRoles.
    pub roles: Vec<String>,
    /// How long the pause between looks is.
    pub every: Duration,
    /// Where the result is shown.
    pub metrics: Metrics,
}

impl Watch {
    /// Looks at once, and then again and again.
    pub async fn keep(self) {
        let mut ticks = ticks(self.every);
        let mut last = BTreeMap::new();
        loop {
            ticks.tick().await;
            for role in &self.roles {
                let seen = match tokio::time::timeout(LIMIT, look(&self.cluster, role)).await {
                    Ok(Ok(seen)) => seen,
                    Ok(Err(error)) => {
                        tracing::warn!(
                            role,
                            error = chain(&error),
                            "cannot read a tier's ClusterRole"
                        );
                        continue;
                    }
                    Err(_) => {
                        tracing::warn!(role, "cannot read a tier's ClusterRole: no answer in time");
                        continue;
                    }
                };
                self.show(role, &seen);
                if last.get(role) != Some(&seen) {
                    tell(role, &seen);
                    last.insert(role.clone(), seen);
                }
            }
        }
    }

    fn show(&self, role: &str, seen: &Seen) {
        if let Seen::Gives(all) = seen {
            self.metrics.role_beyond_admin(role, all.len(), seen.leading_out().len());
        }
    }
}

fn tell(role: &str, seen: &Seen) {
    match seen {
        Seen::Missing => tracing::warn!(role, "a tier's ClusterRole is not there"),
        Seen::Refused => tracing::warn!(
            role,
            "the broker may not read a tier's ClusterRole: run tenant-broker install --apply"
        ),
        Seen::Gives(all) if all.is_empty() => {
            tracing::info!(role, "a tier's ClusterRole gives no more than the built-in admin");
        }
        Seen::Gives(all) => {
            tracing::info!(
                role,
                rights = named(all),
                "a tier's ClusterRole gives more than the built-in admin"
            );
            for (right, why) in seen.leading_out() {
                tracing::warn!(
                    role,
                    right = %right,
                    why,
                    "A TIER'S ROLE LEADS OUT OF THE NAMESPACE: give the tier a ClusterRole of its own, \
                     without aggregationRule"
                );
            }
        }
    }
}
