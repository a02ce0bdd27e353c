//! Creation of a namespace directly at the API server, from the 201 to the owner's first success.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http::{Method, StatusCode};

use super::objects::{NAMESPACES, config_maps, plain_namespace, role_binding, role_bindings, user};
use super::plan::{Measured, TenantPlan};
use super::population::{DEVELOPERS, DIRECT, DIRECTOR};
use super::testbed::TenantTestbed;
use crate::measure::figure::{Figure, Threshold};
use crate::measure::raw::{RawApi, ms};

/// Pause between two attempts of a person without rights.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(2);
/// Time limit of the first success.
const SUCCESS_TIMEOUT: Duration = Duration::from_secs(30);
/// User who gets a single RoleBinding.
const BOUND: &str = "bound";

/// Measures both in turn.
///
/// # Errors
/// A request fails, or a person gets no rights.
pub(super) async fn measure(testbed: &TenantTestbed, plan: TenantPlan) -> Result<Measured> {
    let cluster = testbed.world().cluster();
    let client =
        |user: &str, group| RawApi::direct(cluster, &cluster.authority().client(user, group)?);
    let (director, bound) = (client(DIRECTOR, Some(DEVELOPERS))?, client(BOUND, None)?);
    let mut pairs = Vec::with_capacity(plan.requests);
    for number in 0..=plan.requests {
        testbed.until_quiet().await?;
        let namespace = format!("{DIRECT}-d{number:04}");
        let object = plain_namespace(&namespace);
        director.succeed(Method::POST, NAMESPACES, Some(&object)).await?;
        let created = until_success(&director, &namespace).await?;
        testbed.until_quiet().await?;
        let namespace = format!("bound-{number:04}");
        let object = plain_namespace(&namespace);
        testbed.admin().succeed(Method::POST, NAMESPACES, Some(&object)).await?;
        let binding = role_binding(&namespace, "bound", "admin", &user(BOUND));
        let path = role_bindings(&namespace);
        testbed.admin().succeed(Method::POST, &path, Some(&binding)).await?;
        let single = until_success(&bound, &namespace).await?;
        if number > 0 {
            pairs.push((created, single));
        }
    }
    let name = "namespace made directly, from the 201 to the owner's first success";
    let baseline = "one RoleBinding";
    let figures = [
        Figure::of_pairs(name, "ms", baseline, &pairs, Threshold::AtMost(3.0)),
        Figure::of_pairs(
            format!("{name}: slowest"),
            "ms",
            baseline,
            &pairs,
            Threshold::ValueBelow(1e3),
        ),
    ];
    Ok(Measured { figures: figures.into_iter().flatten().collect(), ..Measured::default() })
}

/// Repeats a request until it succeeds, and returns the time that it took in ms.
async fn until_success(person: &RawApi, namespace: &str) -> Result<f64> {
    let (began, path) = (Instant::now(), config_maps(namespace));
    loop {
        let answer = person.send(Method::GET, &path, None).await?;
        if answer.status.is_success() {
            return Ok(ms(began.elapsed()));
        }
        ensure!(answer.status == StatusCode::FORBIDDEN, "{path} was answered {}", answer.status);
        ensure!(began.elapsed() < SUCCESS_TIMEOUT, "nobody has rights in {namespace}");
        tokio::time::sleep(ATTEMPT_INTERVAL).await;
    }
}
