//! `tenant-broker doctor`: diagnoses a cluster with the broker's own credential. It tries what must
//! be allowed and what must be refused, and checks what makes a cluster slow or insecure. It
//! changes nothing.

mod database;
mod model_services;
mod permissions;
mod policy_checks;
mod report;
mod server_checks;
mod tenant_objects;
mod tenant_policy_checks;
mod tenants;

pub use database::{check_database, unreachable_database};
pub use report::{Check, CheckOutcome, Report};

use crate::{
    base::{clock::Clock, error_chain},
    cluster::{Cluster, ClusterError},
    install::Parameters,
};

/// Runs all checks against a cluster. An API server that does not answer is a failed check, not an
/// error.
pub async fn examine(cluster: &Cluster, parameters: &Parameters, clock: &Clock) -> Report {
    let mut checks = Vec::new();
    if let Err(error) = run_checks(cluster, parameters, clock, &mut checks).await {
        checks.push(Check::failed("the API server answers", error_chain(&error)));
    }
    Report::new(checks)
}

async fn run_checks(
    cluster: &Cluster,
    parameters: &Parameters,
    clock: &Clock,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    server_checks::server(cluster, clock, checks).await?;
    server_checks::policies(cluster, parameters, checks).await?;
    permissions::needed(cluster, parameters, checks).await?;
    permissions::forbidden(cluster, parameters, checks).await?;
    policy_checks::run(cluster, parameters, clock, checks).await?;
    tenant_policy_checks::run(cluster, parameters, clock, checks).await?;
    tenants::roles(cluster, parameters, checks).await?;
    tenants::bindings(cluster, checks).await?;
    tenants::quotas(cluster, checks).await?;
    tenants::tier_labels(cluster, parameters, checks).await?;
    if parameters.tenants.enabled {
        tenant_objects::definition(cluster, checks).await?;
        tenant_objects::labels(cluster, parameters, checks).await?;
        tenant_objects::labelled_bindings(cluster, checks).await?;
        tenant_objects::lists(cluster, parameters, checks).await;
    }
    if parameters.model_services.enabled {
        model_services::rights(cluster, parameters, checks).await?;
        model_services::roles(cluster, checks).await?;
    }
    if parameters.model_services.reads_cluster_domain {
        model_services::domain(cluster, checks).await;
    }
    server_checks::tokens(cluster, clock, checks).await
}
