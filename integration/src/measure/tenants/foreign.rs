//! What the policies for tenants cost the API server for writes that are in no tenant.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::plan::{Measured, TenantPlan};
use super::population::DEVELOPERS;
use crate::measure::policies::{self, PolicyTestbed, manifest};

/// Compares the policies with tenants with those without.
///
/// # Errors
/// A part does not start, or a request fails.
pub(super) async fn measure(program: &Path, folder: &Path, plan: TenantPlan) -> Result<Measured> {
    let settings = [
        "tenants.enabled=true".to_owned(),
        "tenants.direct_namespaces=true".to_owned(),
        format!("tenants.groups={DEVELOPERS}"),
    ];
    let without = manifest(program, &[]).await?;
    let start = async |name: &str| {
        PolicyTestbed::start(program, &settings, &without, &folder.join(name)).await
    };
    let servers = [start("foreign-one").await?, start("foreign-other").await?];
    // Requests in turn are not measured here, so their length does not matter.
    let plan =
        policies::Plan { rounds: plan.profiles, length: Duration::ZERO, profile: plan.profile };
    let figures = policies::shares(&servers, "without those for tenants", plan).await?;
    Ok(Measured { figures, ..Measured::default() })
}
