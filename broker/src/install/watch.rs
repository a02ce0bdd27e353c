//! The broker does not run where nothing holds it and its tenants.

use std::time::Duration;

use super::{Parameters, standing};
use crate::{cluster::Cluster, problem::chain, telemetry::Metrics};

/// How long a look may take; a cluster that is slower counts as away.
const LIMIT: Duration = Duration::from_secs(5);
/// Pause until a cluster that was away is asked again.
const AGAIN: Duration = Duration::from_secs(2);

/// Looks at the policies at the start and while the broker runs.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The cluster, as the broker.
    pub cluster: Cluster,
    /// What it should have.
    pub parameters: Parameters,
    /// Whether faults are no reason not to run.
    pub allow_missing: bool,
    /// How long the pause between looks is.
    pub every: Duration,
    /// Where the result is shown.
    pub metrics: Metrics,
}

/// The cluster does not hold the broker as it should.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the cluster's admission policies are not what this broker expects:\n  {}\n\
     An administrator puts them right with `tenant-broker install --config FILE --apply`. To run \
     without them, at the price that a stolen credential of the broker reaches the whole cluster, \
     set cluster.allow_missing_policies = true",
    .0.join("\n  ")
)]
pub struct NotHeld(Vec<String>);

/// What is known of the policies.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    /// The cluster was away.
    Nothing,
    /// Looked at, with these faults.
    Faults(Vec<String>),
}

impl Watch {
    /// Looks for the first time, and returns whether the cluster answered. One that is away is no
    /// reason not to start: nobody gets a token before it is back, and [`Watch::keep`] looks then.
    ///
    /// # Errors
    /// The policies are missing or changed.
    pub async fn start(&self) -> Result<bool, NotHeld> {
        let seen = self.look().await;
        self.judge(&seen)?;
        Ok(seen != Seen::Nothing)
    }

    /// Looks again and again. Returns only if the first look of all finds faults; later ones are
    /// told in log and metric, for an administrator may be at work on the policies.
    pub async fn keep(self, mut known: bool) -> NotHeld {
        let mut last = Seen::Faults(Vec::new());
        loop {
            tokio::time::sleep(if known { self.every } else { AGAIN }).await;
            let seen = self.look().await;
            if seen == Seen::Nothing {
                continue;
            }
            if !known && let Err(why) = self.judge(&seen) {
                return why;
            }
            if known && seen != last {
                tell(&seen);
            }
            known = true;
            last = seen;
        }
    }

    async fn look(&self) -> Seen {
        let seen =
            match tokio::time::timeout(LIMIT, standing::faults(&self.cluster, &self.parameters))
                .await
            {
                Ok(Ok(faults)) => Seen::Faults(faults),
                Ok(Err(error)) => {
                    tracing::warn!(error = chain(&error), "cannot look at the admission policies");
                    Seen::Nothing
                }
                Err(_) => {
                    tracing::warn!("cannot look at the admission policies: no answer in time");
                    Seen::Nothing
                }
            };
        if let Ok(Ok(true)) =
            tokio::time::timeout(LIMIT, standing::spare_right(&self.cluster, &self.parameters))
                .await
        {
            tracing::warn!(
                "the broker may create and delete Secrets although cluster.bind_tokens_to_secrets \
                 is off; two hours after it was switched off run tenant-broker install --apply"
            );
        }
        if let Seen::Faults(faults) = &seen {
            self.metrics.policies_in_force(faults.is_empty());
        }
        seen
    }

    fn judge(&self, seen: &Seen) -> Result<(), NotHeld> {
        match seen {
            Seen::Faults(faults) if !faults.is_empty() && !self.allow_missing => {
                Err(NotHeld(faults.clone()))
            }
            seen => {
                tell(seen);
                Ok(())
            }
        }
    }
}

fn tell(seen: &Seen) {
    match seen {
        Seen::Faults(faults) if faults.is_empty() => {
            tracing::info!("the admission policies are in force");
        }
        Seen::Faults(faults) => {
            for fault in faults {
                tracing::error!(
                    fault,
                    "NOT HELD BY THE CLUSTER: a stolen credential of the broker reaches further than it should, or tenants do"
                );
            }
        }
        Seen::Nothing => {}
    }
}
