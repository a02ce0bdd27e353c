//! Reads through the gateway: the list of namespaces of an owner of few, and a request of a person
//! with many tenants.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tenant_shared::{HOME_LABEL, TENANT_LABEL};

use super::objects::{NAMESPACES, role_bindings};
use super::plan::{Measured, TenantPlan};
use super::population::{LISTED, MANY, SINGLE, SMALL, namespace_of, tenant_of_many};
use super::testbed::TenantTestbed;
use crate::measure::figure::{Figure, Threshold};
use crate::measure::gateway::caller::Caller;
use crate::measure::gateway::route::Route;
use crate::measure::raw::ms;

/// Requests that find connections and caches cold.
const WARM_UP_REQUESTS: usize = 10;

/// Measures the list of namespaces, compared with lists that are not forwarded.
///
/// # Errors
/// A request fails.
pub(super) async fn list(testbed: &TenantTestbed, plan: TenantPlan) -> Result<Measured> {
    let lister = testbed.member("lister", &[]).await?;
    // The first list makes the membership.
    let answer = testbed.gateway(&lister)?.get(NAMESPACES).await?;
    let found = answer["items"].as_array().map_or(0, Vec::len);
    ensure!(found == SMALL, "an owner of {SMALL} namespaces lists {found}");
    let (gateway, admin) = (testbed.gateway_route(&lister)?, testbed.admin_route().await?);
    let path = format!("/{NAMESPACES}");
    let selector = format!("{TENANT_LABEL}%20in%20({LISTED}),!{HOME_LABEL}");
    let labelled = format!("{path}?labelSelector={selector}");
    let all = pairs((&gateway, &path), (&admin, &path), plan.requests).await?;
    let few = pairs((&gateway, &path), (&admin, &labelled), plan.cheap_requests).await?;
    let name = format!("list of namespaces, owner of {SMALL} of {}", testbed.size().namespaces);
    let figures = [
        Figure::of_pairs(&name, "ms", "all of them, directly", &all, Threshold::AtMost(0.2)),
        Figure::of_pairs(&name, "ms", "raw list with the label", &few, Threshold::AtMost(1.3)),
    ];
    Ok(Measured { figures: figures.into_iter().flatten().collect(), ..Measured::default() })
}

/// Measures a GET of a person with many tenants, compared with that of a person with one.
///
/// # Errors
/// A request fails.
pub(super) async fn get(testbed: &TenantTestbed, plan: TenantPlan) -> Result<Measured> {
    let (many, single) = (testbed.member("many", &[]).await?, testbed.member("single", &[]).await?);
    for number in 0..MANY {
        testbed.join(&many, &tenant_of_many(number)).await?;
    }
    testbed.join(&single, SINGLE).await?;
    testbed.until_quiet().await?;
    let path = |tenant: &str| {
        let namespace = namespace_of(tenant, 0);
        format!("/{}/tenant-{tenant}-admin", role_bindings(&namespace))
    };
    let (of_many, of_single) = (path(&tenant_of_many(MANY / 2)), path(SINGLE));
    let (many, single) = (testbed.gateway_route(&many)?, testbed.gateway_route(&single)?);
    let (mut many, mut single) =
        (caller(&many, &of_many).await?, caller(&single, &of_single).await?);
    let mut pairs = Vec::with_capacity(plan.turns);
    for turn in 0..plan.turns {
        // The mean, because the broker looks at a session again once a second.
        pairs.push(if turn % 2 == 0 {
            let value = mean(&mut many, &of_many, plan.turn).await?;
            (value, mean(&mut single, &of_single, plan.turn).await?)
        } else {
            let baseline = mean(&mut single, &of_single, plan.turn).await?;
            (mean(&mut many, &of_many, plan.turn).await?, baseline)
        });
    }
    let name =
        format!("GET in a tenant's namespace through the gateway, person with {MANY} tenants");
    let figure = Figure::of_pairs(name, "ms", "with one tenant", &pairs, Threshold::AtMost(1.05));
    Ok(Measured { figures: figure.into_iter().collect(), ..Measured::default() })
}

/// Sends two requests in turn, and returns their times in ms.
async fn pairs(
    (value, value_path): (&Route, &str),
    (baseline, baseline_path): (&Route, &str),
    count: usize,
) -> Result<Vec<(f64, f64)>> {
    let mut value = caller(value, value_path).await?;
    let mut baseline = caller(baseline, baseline_path).await?;
    let mut pairs = Vec::with_capacity(count);
    for number in 0..count {
        pairs.push(if number % 2 == 0 {
            let time = timed(&mut value, value_path).await?;
            (time, timed(&mut baseline, baseline_path).await?)
        } else {
            let time = timed(&mut baseline, baseline_path).await?;
            (timed(&mut value, value_path).await?, time)
        });
    }
    Ok(pairs)
}

async fn caller(route: &Route, path: &str) -> Result<Caller> {
    let mut caller = Caller::connect(route, false).await?;
    for _ in 0..WARM_UP_REQUESTS {
        caller.get(path).await?;
    }
    Ok(caller)
}

async fn timed(caller: &mut Caller, path: &str) -> Result<f64> {
    let began = Instant::now();
    caller.get(path).await?;
    Ok(ms(began.elapsed()))
}

/// Repeats a request for this time, and returns the mean of its times in ms.
async fn mean(caller: &mut Caller, path: &str, length: Duration) -> Result<f64> {
    let (began, mut count) = (Instant::now(), 0_u32);
    while began.elapsed() < length {
        caller.get(path).await?;
        count += 1;
    }
    Ok(ms(began.elapsed()) / f64::from(count))
}
