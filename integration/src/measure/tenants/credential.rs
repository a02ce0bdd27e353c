//! The first credential of a new member, compared with a credential for a membership that exists.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http::Method;

use super::objects::config_maps;
use super::plan::{Measured, TenantPlan};
use super::population::{MEDIUM, NEWCOMERS, NEWCOMERS_TENANT, namespace_of};
use super::testbed::{Member, TenantTestbed};
use crate::measure::figure::{Figure, Threshold};
use crate::measure::raw::ms;

/// Pause between two attempts to use a credential.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(2);
/// Time limit of the first success.
const SUCCESS_TIMEOUT: Duration = Duration::from_secs(30);

/// Measures both in turn, each to the first request that succeeds in a namespace of the tenant.
///
/// # Errors
/// A call fails.
pub(super) async fn measure(testbed: &TenantTestbed, plan: TenantPlan) -> Result<Measured> {
    let known = testbed.member("known", &[NEWCOMERS]).await?;
    let mut newcomers = Vec::with_capacity(plan.members);
    for number in 0..plan.members {
        newcomers.push(testbed.member(&format!("newcomer{number}"), &[NEWCOMERS]).await?);
    }
    first_success(testbed, &known).await?;
    let mut pairs = Vec::with_capacity(plan.members);
    for newcomer in &newcomers {
        testbed.until_quiet().await?;
        let new = first_success(testbed, newcomer).await?;
        testbed.until_quiet().await?;
        pairs.push((new, first_success(testbed, &known).await?));
    }
    let name = format!("first credential of a new group member, {MEDIUM} namespaces");
    let baseline = "for a membership that exists";
    let figure = Figure::of_pairs(name, "ms", baseline, &pairs, Threshold::ValueBelow(250.0));
    Ok(Measured { figures: figure.into_iter().collect(), ..Measured::default() })
}

/// Joins the tenant, gets a credential and uses it in the last namespace. Returns the time in ms.
async fn first_success(testbed: &TenantTestbed, member: &Member) -> Result<f64> {
    let path = config_maps(&namespace_of(NEWCOMERS_TENANT, MEDIUM - 1));
    let began = Instant::now();
    let membership = testbed.join(member, NEWCOMERS_TENANT).await?;
    let credential = member.api.credential(membership.id).await?;
    let direct = testbed.direct(&credential.token)?;
    while !direct.send(Method::GET, &path, None).await?.status.is_success() {
        ensure!(began.elapsed() < SUCCESS_TIMEOUT, "a new member has no rights");
        tokio::time::sleep(ATTEMPT_INTERVAL).await;
    }
    Ok(ms(began.elapsed()))
}
