//! Suspension of a tenant with 20 namespaces, compared with that of one workspace.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;
use tenant_shared::{SuspendRequest, WorkspaceStatus};

use super::objects::config_maps;
use super::plan::{Measured, TenantPlan};
use super::population::{MEDIUM, namespace_of, suspended_tenant};
use super::testbed::{Member, TenantTestbed};
use crate::http_client;
use crate::measure::figure::{Figure, Threshold};
use crate::measure::raw::ms;
use crate::measure::tenant_requests::{RequestTarget, SentRequest, TenantRequests};

/// Interval of the requests, which read and write in each namespace in turn.
const REQUEST_INTERVAL: Duration = Duration::from_millis(2);
/// Times that each kind of request in each namespace passes before the suspension, and is refused
/// after it.
const TURNS: usize = 3;

/// The latencies of one suspension, in ms.
#[derive(Clone, Copy, Debug)]
struct Latency {
    /// From the call to the end of the last read that passed.
    read: f64,
    write: f64,
    /// To the response of the broker.
    answer: f64,
}

/// Suspends a tenant and a workspace in turn.
///
/// # Errors
/// A call fails, or a suspension stays incomplete.
pub(super) async fn measure(testbed: &TenantTestbed, plan: TenantPlan) -> Result<Measured> {
    let member = testbed.member("suspended", &[]).await?;
    let mut pairs = Vec::with_capacity(plan.suspensions);
    for round in 0..plan.suspensions {
        let tenant = suspend_tenant(testbed, &member, round).await?;
        testbed.until_idle().await?;
        pairs.push((tenant, suspend_workspace(testbed, round).await?));
    }
    let figure = |what: &str, threshold, pick: fn(&Latency) -> f64| {
        let name = format!("suspension of {MEDIUM} namespaces, call to {what}");
        let pairs: Vec<_> = pairs.iter().map(|(one, other)| (pick(one), pick(other))).collect();
        Figure::of_pairs(name, "ms", "one workspace", &pairs, threshold)
    };
    let figures = [
        figure("the last read that passed", Threshold::AtMost(4.0), |latency| latency.read),
        figure("the last write that passed", Threshold::AtMost(4.0), |latency| latency.write),
        figure("its answer", Threshold::AtMost(8.0), |latency| latency.answer),
    ];
    Ok(Measured { figures: figures.into_iter().flatten().collect(), ..Measured::default() })
}

async fn suspend_tenant(testbed: &TenantTestbed, member: &Member, round: usize) -> Result<Latency> {
    let tenant = suspended_tenant(round);
    let membership = testbed.join(member, &tenant).await?;
    let token = member.api.credential(membership.id).await?.token;
    let namespaces: Vec<String> = (0..MEDIUM).map(|number| namespace_of(&tenant, number)).collect();
    let requests = start(testbed, &namespaces, &token).await?;
    testbed.until_idle().await?;
    let called = Instant::now();
    let suspension = testbed.operator().suspend_tenant(&tenant, &reason()).await?;
    let answered = Instant::now();
    ensure!(suspension.state == "Suspended", "not suspended: {suspension:?}");
    end(requests, MEDIUM, called, answered).await
}

async fn suspend_workspace(testbed: &TenantTestbed, round: usize) -> Result<Latency> {
    let person = testbed.world().person(&format!("workspace{round}")).await?;
    let api = person.api().await?;
    let (workspace, _) = api.init("basic").await?;
    let token = api.credential(workspace.id).await?.token;
    let requests = start(testbed, std::slice::from_ref(&workspace.namespace), &token).await?;
    testbed.until_idle().await?;
    let called = Instant::now();
    let suspension = testbed.operator().suspend(workspace.id, &reason()).await?;
    let answered = Instant::now();
    ensure!(suspension.status == WorkspaceStatus::Suspended, "not suspended: {suspension:?}");
    end(requests, 1, called, answered).await
}

fn reason() -> SuspendRequest {
    SuspendRequest { reason: Some("measured".to_owned()) }
}

/// Reads and writes in these namespaces; a write changes nothing.
async fn start(
    testbed: &TenantTestbed,
    namespaces: &[String],
    token: &str,
) -> Result<TenantRequests> {
    let cluster = testbed.world().cluster();
    let client = http_client::http_client(Some(cluster.authority().certificate()))?;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"generateName": "measured-"}});
    let targets = namespaces.iter().flat_map(|namespace| {
        let url = format!("{}{}", cluster.url(), config_maps(namespace));
        let write = RequestTarget {
            method: Method::POST,
            url: format!("{url}?dryRun=All"),
            body: Some(body.clone()),
        };
        [RequestTarget::get(url), write]
    });
    let requests =
        TenantRequests::start(client, targets.collect(), token, REQUEST_INTERVAL).await?;
    requests.until_passed(TURNS * 2 * namespaces.len()).await?;
    Ok(requests)
}

async fn end(
    requests: TenantRequests,
    namespaces: usize,
    called: Instant,
    answered: Instant,
) -> Result<Latency> {
    requests.until_refused(TURNS * 2 * namespaces).await?;
    let sent = requests.stop().await?;
    let late = sent.iter().filter(|one| one.passed && one.sent > answered).count();
    ensure!(late == 0, "{late} requests passed that were sent after the answer");
    let last = |of_kind: fn(&SentRequest) -> bool| {
        let passed = sent.iter().filter(|one| one.passed && of_kind(one));
        let last = passed.map(|one| one.answered).max().context("nothing passed")?;
        anyhow::Ok(ms(last.saturating_duration_since(called)))
    };
    Ok(Latency {
        read: last(|one| one.target % 2 == 0)?,
        write: last(|one| one.target % 2 == 1)?,
        answer: ms(answered - called),
    })
}
