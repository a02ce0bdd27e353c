//! Kills of the broker at each request of a creation, and during moves of a namespace. A run that
//! was killed keeps its lease until that expires, so that a step takes up to a minute and a half.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};

use super::fixture::{Fixture, SignedIn};
use super::move_recorder::MoveRecorder;
use crate::fault_proxy::{Fault, Rule};
use crate::probe::{self, Probe};

/// Limit of the time until a killed run is finished: the lease is valid for 75 s, and then another
/// run has to begin.
const FINISH_TIMEOUT: Duration = Duration::from_mins(4);
const BINDINGS: &str = "apis/rbac.authorization.k8s.io/v1/rolebindings";
/// The requests of a creation in their order: ends of their paths.
const REQUESTS: [&str; 4] = ["/namespaces", "/resourcequotas", "/limitranges", "/rolebindings"];
/// The tenants that a namespace moves between, with their amounts of pods.
const PODS: [(&str, &str); 2] = [("north", "4"), ("south", "3")];

fn spec(owner: &str, pods: &str) -> Value {
    let range = json!({"limits": [{"type": "Container", "max": {"cpu": "2"}}]});
    json!({
        "owners": [{"kind": "User", "name": owner, "clusterRoles": ["admin", "view"]}],
        "resourceQuotas": {"scope": "Namespace", "items": [{"hard": {"pods": pods}}]},
        "limitRanges": {"items": [range]},
    })
}

/// Kills the broker after each request of a creation, with a tenant each, and waits until the
/// namespaces have all of their objects. The world has a fault proxy.
///
/// # Errors
/// A namespace is not finished.
pub async fn check_interrupted_creations(fixture: &Fixture) -> Result<()> {
    let proxy = fixture.world.proxy().context("the world has no fault proxy")?;
    let owner = fixture.person("interrupted").await?;
    for (number, path_end) in REQUESTS.into_iter().enumerate() {
        let tenant = format!("killed{number}");
        fixture.apply(&tenant, &spec(&owner.email, "4")).await?;
        fixture.until_state(&tenant, "Active").await?;
        fixture.member(&owner, &tenant).await?;
        fixture.until_state(&tenant, "Active").await?;
        let name = format!("{tenant}-a");
        let broker = fixture.world.broker().clone();
        let kill = move |_| {
            broker.kill();
            std::future::ready(())
        };
        let path = if number == 0 { path_end.to_owned() } else { format!("/{name}{path_end}") };
        let rule = Rule::new(Fault::after(kill)).when(move |seen| seen.is(&Method::POST, &path));
        let rule = proxy.add(rule.nth(1));
        let created = owner.at(0).create_tenant_namespace(&tenant, &name).await;
        ensure!(created.is_err() && rule.fired() == 1, "it was not killed at {path_end}");
        proxy.clear();
        fixture.world.broker().crash_and_restart().await?;
        let what = format!("{name} to be complete after a kill at {path_end}");
        until_complete(fixture, &owner, (&tenant, &name), &what).await?;
    }
    Ok(())
}

/// Waits until a namespace is active, with a quota, limits and two bindings.
async fn until_complete(
    fixture: &Fixture,
    owner: &SignedIn,
    (tenant, name): (&str, &str),
    what: &str,
) -> Result<()> {
    probe::until(what, FINISH_TIMEOUT, || async {
        // A refusal until the broker has read the Tenants.
        let listed = owner.at(0).tenant_namespaces(tenant).await;
        let mut rows = listed.iter().flat_map(|listed| &listed.items);
        let is_active = rows.any(|row| row.name == name && row.status == "active");
        Ok(if is_active { Probe::Ready(()) } else { Probe::NotYet(format!("{listed:?}")) })
    })
    .await?;
    for (path, count) in [("api/v1/resourcequotas", 1), ("api/v1/limitranges", 1), (BINDINGS, 2)] {
        let objects = fixture.objects_of(tenant, path).await?;
        let objects: Vec<_> =
            objects.iter().filter(|it| it["metadata"]["namespace"] == name).collect();
        ensure!(objects.len() == count, "{what}: {objects:?}");
    }
    Ok(())
}

/// Moves a namespace between two tenants, kills one of two replicas or both in each round, and checks
/// that each round ends with a whole state, and what the watches of the API server showed.
///
/// # Errors
/// A move is not finished; two tenants have rights at a moment, or one has them without limits.
pub async fn check_interrupted_moves(fixture: &Fixture, rounds: usize) -> Result<()> {
    let namespace = "north-a";
    let owner = fixture.person("mover").await?;
    for (tenant, pods) in PODS {
        fixture.apply(tenant, &spec(&owner.email, pods)).await?;
        fixture.until_state(tenant, "Active").await?;
    }
    fixture.create_namespace("north", namespace).await?;
    until_moved(fixture, "north", namespace).await?;
    let admin = fixture.world.admin_kubectl()?;
    let recorder = MoveRecorder::start(&admin, namespace, &PODS).await?;
    for round in 0..rounds {
        let to = PODS[(round + 1) % PODS.len()].0;
        let move_and_kill = Box::pin(move_and_kill(fixture, round, to, namespace));
        move_and_kill.await.with_context(|| format!("round {round}"))?;
    }
    let changes = recorder.check()?;
    ensure!(changes == rounds, "the rights went from one tenant to the other {changes} times");
    Ok(())
}

/// Begins a move, and kills the first replica, the second, or both.
async fn move_and_kill(fixture: &Fixture, round: usize, to: &str, namespace: &str) -> Result<()> {
    let brokers = fixture.world.brokers();
    let is_killed = |number: usize| round % 3 == 2 || round % 3 == number;
    let labels = announce(fixture, to, namespace).await?;
    let delay = crate::random::bytes(1)?.first().copied().unwrap_or_default();
    let admin = fixture.world.admin_kubectl()?;
    let patch = json!({"metadata": {"labels": labels}}).to_string();
    let labelled = admin.run(["patch", "namespace", namespace, "--type=merge", "-p", &patch]);
    let killed = async {
        tokio::time::sleep(Duration::from_millis(2 * u64::from(delay))).await;
        for (_, broker) in brokers.iter().enumerate().filter(|(number, _)| is_killed(*number)) {
            broker.kill();
        }
    };
    let (labelled, ()) = tokio::join!(labelled, killed);
    labelled?.success()?;
    for (_, broker) in brokers.iter().enumerate().filter(|(number, _)| is_killed(*number)) {
        broker.crash_and_restart().await?;
    }
    until_moved(fixture, to, namespace).await
}

/// Announces a move, and returns the labels of its plan.
async fn announce(fixture: &Fixture, to: &str, namespace: &str) -> Result<Value> {
    let path = format!("tenants/{to}/moves/{namespace}");
    // A replica that was started just now has not read the Tenants yet.
    probe::until("the announcement of a move", FINISH_TIMEOUT, || async {
        let plan = fixture.operator.request(Method::GET, &path)?.send().await?;
        if !plan.status().is_success() {
            return Ok(Probe::NotYet(plan.text().await?));
        }
        let plan: Value = plan.json().await?;
        let mut body = json!({"namespace_uid": plan["namespace_uid"], "reason": "test"});
        if !plan["from"].is_null() {
            body["from"] = plan["from"].clone();
        }
        let announced = fixture.operator.request(Method::POST, &path)?.json(&body).send().await?;
        if !announced.status().is_success() {
            return Ok(Probe::NotYet(announced.text().await?));
        }
        let announced: Value = announced.json().await?;
        Ok(Probe::Ready(announced["labels"].clone()))
    })
    .await
}

/// Waits until a tenant has the namespace, and only its bindings are in it.
async fn until_moved(fixture: &Fixture, to: &str, namespace: &str) -> Result<()> {
    let others = PODS.into_iter().map(|(tenant, _)| tenant).filter(|tenant| *tenant != to);
    let others: Vec<&str> = others.collect();
    probe::until(&format!("{namespace} in {to}"), FINISH_TIMEOUT, || async {
        let rows = match fixture.operator.tenant_namespaces(to).await {
            Ok(rows) => rows.items,
            Err(error) => return Ok(Probe::NotYet(error.to_string())),
        };
        let is_active = rows.iter().any(|row| row.name == namespace && row.status == "active");
        let bindings = fixture.objects_of(to, BINDINGS).await?;
        let is_bound = bindings.iter().any(|it| it["metadata"]["namespace"] == namespace);
        let mut is_left = false;
        for other in &others {
            let bindings = fixture.objects_of(other, BINDINGS).await?;
            is_left |= bindings.iter().any(|it| it["metadata"]["namespace"] == namespace);
        }
        let is_done = is_active && is_bound && !is_left;
        Ok(if is_done { Probe::Ready(()) } else { Probe::NotYet(format!("{rows:?}")) })
    })
    .await
}
