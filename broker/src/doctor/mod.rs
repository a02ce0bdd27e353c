//! `tenant-broker doctor`: with the broker's own credential it tries what must work and what must
//! not, and looks at what makes a cluster slow or wrong. It changes nothing.

mod facts;
mod report;
mod rights;
mod tenants;
mod walls;

pub use report::{Check, Outcome, Report};

use crate::{
    clock::Clock, cluster::Cluster, cluster::ClusterError, install::Parameters, problem::chain,
};

/// Examines a cluster. An API server that does not answer is a failed check, not an error.
pub async fn examine(cluster: &Cluster, parameters: &Parameters, clock: &Clock) -> Report {
    let mut checks = Vec::new();
    if let Err(error) = all(cluster, parameters, clock, &mut checks).await {
        checks.push(Check::failed("the API server answers", chain(&error)));
    }
    Report::new(checks)
}

async fn all(
    cluster: &Cluster,
    parameters: &Parameters,
    clock: &Clock,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    facts::server(cluster, clock, checks).await?;
    facts::policies(cluster, parameters, checks).await?;
    rights::needed(cluster, parameters, checks).await?;
    rights::forbidden(cluster, checks).await?;
    walls::hold(cluster, parameters, clock, checks).await?;
    tenants::roles(cluster, parameters, checks).await?;
    tenants::bindings(cluster, checks).await?;
    tenants::quotas(cluster, checks).await?;
    tenants::tier_labels(cluster, parameters, checks).await?;
    facts::tokens(cluster, clock, checks).await
}
