//! Crashes of the broker at random points of a creation, a suspension and a reconciliation. Each
//! round has tenants of its own, because the lease of a tenant whose run was interrupted has to
//! expire.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use serde_json::{Value, json};
use sqlx::{Connection as _, SqliteConnection};
use tenant_shared::SuspendRequest;
use uuid::Uuid;

use super::crash_tally::{CrashTally, OPERATIONS, OperationEnd};
use super::fixture::{Fixture, RECONCILE_TIMEOUT, SignedIn};
use super::rng::Rng;
use crate::probe::{self, Probe};
use crate::progress::print_message;

/// Rounds whose tenants are made together.
const MAX_CONCURRENT_ROUNDS: usize = 10;
/// Rounds from which on each operation has to be interrupted, and acknowledged, at least once.
const MIN_CHECKED_ROUNDS: usize = 40;
/// By how much the clock is set ahead in the end: leases expire, and a creation may be finished.
const CLOCK_AHEAD: Duration = Duration::from_mins(2);
const BINDINGS: &str = "apis/rbac.authorization.k8s.io/v1/rolebindings";
const TENANTS: &str = "apis/tenant-broker.io/v1alpha1/tenants";

/// The owner, who is also a member.
const OWNER: &str = "owner@example.com";
const VIEWER: &str = "viewer@example.com";
const SUCCESSOR: &str = "successor@example.com";

/// Subjects of the bindings in each namespace, by ClusterRole.
type Roles = BTreeMap<&'static str, BTreeSet<String>>;

/// A tenant of a round, and what the requests in the round allow.
#[derive(Clone, Debug)]
struct Expected {
    tenant: String,
    /// Namespaces that have to exist.
    namespaces: BTreeSet<String>,
    /// A namespace whose creation was not acknowledged.
    may_exist: Option<String>,
    /// Whether it has to be suspended; `None` if the suspension was not acknowledged.
    is_suspended: Option<bool>,
    /// Whether the specification is the second one.
    is_changed: bool,
}

/// What the broker had begun in a round when it was killed.
#[derive(Clone, Copy, Debug)]
struct Begun {
    creation: bool,
    suspension: bool,
    /// A run on the changed Tenant.
    run: bool,
}

/// Kills the broker in each of these rounds, and compares the cluster with what was requested once
/// the broker has run again. The broker is on SQLite.
///
/// # Errors
/// Something is not whole, or no kill interrupted an operation in many rounds; the seed is in the
/// message.
pub async fn check_crashes(fixture: &Fixture, seed: u64, rounds: usize) -> Result<()> {
    let run = async {
        let mut rng = Rng::new(seed);
        let owner = fixture.person("owner").await?;
        let (mut expected, mut tally) = (Vec::new(), CrashTally::new());
        let numbers: Vec<usize> = (0..rounds).collect();
        for numbers in numbers.chunks(MAX_CONCURRENT_ROUNDS) {
            make_tenants(fixture, &owner, numbers).await?;
            for number in numbers {
                let delay = tally.kill_delay(&mut rng, *number);
                let round = Box::pin(round(fixture, &owner, *number, delay));
                let (tenants, ends) = round.await.with_context(|| format!("round {number}"))?;
                expected.extend(tenants);
                tally.add(ends, delay);
            }
        }
        let broker = fixture.world.broker();
        broker.set_clock_ahead(CLOCK_AHEAD);
        broker.crash_and_restart().await?;
        print_message(&format!("  crashes: of {rounds} rounds: {tally}"));
        for tenant in &expected {
            until_whole(fixture, &owner, tenant).await?;
        }
        ensure!(
            rounds < MIN_CHECKED_ROUNDS || tally.has_each_end(),
            "{rounds} crashes have to interrupt each operation at least once, and to come after \
             its acknowledgement at least once: {tally}"
        );
        anyhow::Ok(())
    };
    run.await.with_context(|| format!("crashes with the seed {seed}"))
}

fn names(number: usize) -> [String; 3] {
    ["create", "suspend", "change"].map(|operation| format!("{operation}-{number}"))
}

fn spec(is_changed: bool) -> Value {
    let owner = |name: &str| json!({"kind": "User", "name": name});
    let viewer = |name: &str| {
        let subject = json!({
            "kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io",
        });
        json!([{"clusterRoleName": "view", "subjects": [subject]}])
    };
    let (owners, bindings) = if is_changed {
        (json!([owner(SUCCESSOR)]), viewer(OWNER))
    } else {
        (json!([owner(OWNER)]), viewer(VIEWER))
    };
    json!({
        "owners": owners,
        "additionalRoleBindings": bindings,
        "resourceQuotas": {"scope": "Namespace", "items": [{"hard": {"pods": "4"}}]},
    })
}

/// Subjects of the bindings of a specification, with the ServiceAccount of the owner's membership.
fn roles(is_changed: bool, member: Option<&str>) -> Roles {
    let named = |name: &str| BTreeSet::from([name.to_owned()]);
    let with_member =
        |name: &str| named(name).into_iter().chain(member.map(str::to_owned)).collect();
    let (owners, viewers) = if is_changed {
        (named(SUCCESSOR), with_member(OWNER))
    } else {
        (with_member(OWNER), named(VIEWER))
    };
    let deleters = owners.clone();
    Roles::from([("admin", owners), ("tenant-namespace-deleter", deleters), ("view", viewers)])
}

/// Makes the tenants of these rounds with a namespace each, and the owner a member of those that
/// will be suspended and changed.
async fn make_tenants(fixture: &Fixture, owner: &SignedIn, numbers: &[usize]) -> Result<()> {
    let names: Vec<String> = numbers.iter().flat_map(|number| names(*number)).collect();
    let made = names.into_iter().map(|name| async move {
        fixture.apply(&name, &spec(false)).await?;
        fixture.create_namespace(&name, &format!("{name}-a")).await?;
        fixture.until_state(&name, "Active").await?;
        if !name.starts_with("create") {
            fixture.member(owner, &name).await?;
        }
        let expected = Expected {
            namespaces: BTreeSet::from([format!("{name}-a")]),
            tenant: name,
            may_exist: None,
            is_suspended: Some(false),
            is_changed: false,
        };
        until_whole(fixture, owner, &expected).await
    });
    stream::iter(made.collect::<Vec<_>>()).buffer_unordered(8).try_collect().await
}

/// Begins the operations, kills the broker after this time, and starts it again.
async fn round(
    fixture: &Fixture,
    owner: &SignedIn,
    number: usize,
    delay: Duration,
) -> Result<([Expected; 3], [OperationEnd; OPERATIONS])> {
    let [create, suspend, change] = names(number);
    let (first, second) = (format!("{create}-a"), format!("{create}-b"));
    let reason = SuspendRequest { reason: Some("crash".to_owned()) };
    let (broker, began) = (fixture.world.broker(), Instant::now());
    let (created, suspended, changed, ()) = tokio::join!(
        success_after(began, owner.at(0).create_tenant_namespace(&create, &second)),
        success_after(began, fixture.operator.suspend_tenant(&suspend, &reason)),
        change_until_killed(fixture, &change, began),
        async {
            tokio::time::sleep(delay).await;
            broker.kill();
        }
    );
    let changed = changed?;
    broker.wait().await;
    let interrupted = begun_of(fixture, &second, &suspend, &change).await?;
    let ends = [
        OperationEnd::of(created, interrupted.creation),
        OperationEnd::of(suspended, interrupted.suspension),
        OperationEnd::of(changed, interrupted.run),
    ];
    for tenant in [&create, &suspend, &change] {
        limits_before_rights(fixture, tenant).await?;
    }
    broker.crash_and_restart().await?;
    let mut namespaces = BTreeSet::from([first]);
    let mut may_exist = None;
    if created.is_some() {
        namespaces.insert(second);
    } else {
        may_exist = Some(second);
    }
    let one = |tenant: &str| BTreeSet::from([format!("{tenant}-a")]);
    let of_suspend = one(&suspend);
    let of_change = one(&change);
    let tenants = [
        Expected {
            tenant: create,
            namespaces,
            may_exist,
            is_suspended: Some(false),
            is_changed: false,
        },
        Expected {
            tenant: suspend,
            namespaces: of_suspend,
            may_exist: None,
            is_suspended: suspended.map(|_| true),
            is_changed: false,
        },
        Expected {
            tenant: change,
            namespaces: of_change,
            may_exist: None,
            is_suspended: Some(false),
            is_changed: true,
        },
    ];
    Ok((tenants, ends))
}

/// How long after the beginning an operation succeeded; `None` if it failed.
async fn success_after<T, E>(
    began: Instant,
    operation: impl Future<Output = Result<T, E>>,
) -> Option<Duration> {
    operation.await.is_ok().then(|| began.elapsed())
}

/// Changes a Tenant, and waits until the broker has carried the change out, or has ended. Returns how
/// long after the beginning its status said so; `None` if it does not.
async fn change_until_killed(
    fixture: &Fixture,
    tenant: &str,
    began: Instant,
) -> Result<Option<Duration>> {
    fixture.apply(tenant, &spec(true)).await?;
    tokio::select! {
        reconciled = fixture.until_state(tenant, "Active") => reconciled?,
        _ = fixture.world.broker().wait() => {}
    }
    let (status, object) =
        fixture.cluster().admin(Method::GET, &format!("{TENANTS}/{tenant}"), None).await?;
    ensure!(status.is_success(), "{status}: {object}");
    let is_reconciled = object["status"]["observedGeneration"] == object["metadata"]["generation"];
    Ok(is_reconciled.then(|| began.elapsed()))
}

/// What the database says that the broker had begun. The broker does not run.
async fn begun_of(
    fixture: &Fixture,
    namespace: &str,
    suspended: &str,
    changed: &str,
) -> Result<Begun> {
    let url = fixture.world.database_url()?;
    let mut database = SqliteConnection::connect(url.as_str()).await?;
    let creation = "SELECT EXISTS (SELECT 1 FROM tenant_namespaces WHERE name = $1)";
    let creation: bool =
        sqlx::query_scalar(creation).bind(namespace).fetch_one(&mut database).await?;
    let status = "SELECT status FROM tenants WHERE name = $1";
    let status: String =
        sqlx::query_scalar(status).bind(suspended).fetch_one(&mut database).await?;
    let id = "SELECT id FROM tenants WHERE name = $1";
    let id: Uuid = sqlx::query_scalar(id).bind(changed).fetch_one(&mut database).await?;
    // A run holds the lease of its tenant until its end.
    let run = "SELECT EXISTS (SELECT 1 FROM leases WHERE name = $1)";
    let run: bool =
        sqlx::query_scalar(run).bind(format!("tenant/{id}")).fetch_one(&mut database).await?;
    database.close().await?;
    Ok(Begun { creation, suspension: status != "active", run })
}

/// Checks that nobody is bound in a namespace without a quota, at whatever point the broker ended.
async fn limits_before_rights(fixture: &Fixture, tenant: &str) -> Result<()> {
    let bindings = fixture.objects_of(tenant, BINDINGS).await?;
    let quotas = quotas_of(fixture, tenant).await?;
    for binding in &bindings {
        let namespace = text(binding, "/metadata/namespace");
        let is_limited = namespace.starts_with("tenant-") || quotas.contains_key(&namespace);
        ensure!(is_limited, "there are rights and no quota in {namespace}: {binding}");
    }
    Ok(())
}

/// The amounts of the quota in each namespace of a tenant.
async fn quotas_of(fixture: &Fixture, tenant: &str) -> Result<BTreeMap<String, Value>> {
    let quotas = fixture.objects_of(tenant, "api/v1/resourcequotas").await?;
    let amounts =
        quotas.iter().map(|it| (text(it, "/metadata/namespace"), it["spec"]["hard"].clone()));
    Ok(amounts.collect())
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Waits until a tenant is as it was requested.
async fn until_whole(fixture: &Fixture, owner: &SignedIn, expected: &Expected) -> Result<()> {
    let what = format!("{} to be whole", expected.tenant);
    probe::until(&what, RECONCILE_TIMEOUT, || async {
        Ok(match fault(fixture, owner, expected).await? {
            None => Probe::Ready(()),
            Some(fault) => Probe::NotYet(format!("{fault}; {expected:?}")),
        })
    })
    .await
}

/// What is not as it was requested.
async fn fault(fixture: &Fixture, owner: &SignedIn, expected: &Expected) -> Result<Option<String>> {
    let tenant = expected.tenant.as_str();
    let info = match fixture.operator.tenant(tenant).await {
        Ok(info) => info,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let is_suspended = info.state == "Suspended";
    if !is_suspended && info.state != "Active" || expected.is_suspended == Some(!is_suspended) {
        return Ok(Some(format!("its state is {}", info.state)));
    }
    let live: BTreeSet<String> = fixture.namespaces_of(tenant).await?.into_iter().collect();
    let mut wanted = expected.namespaces.clone();
    wanted.extend(expected.may_exist.clone().filter(|name| live.contains(name)));
    let rows = match fixture.operator.tenant_namespaces(tenant).await {
        Ok(rows) => rows.items,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let active = rows.iter().filter(|row| row.status == "active").map(|row| row.name.clone());
    let active: BTreeSet<String> = active.collect();
    if live != wanted || active != live || rows.len() != active.len() {
        return Ok(Some(format!("there are the namespaces {live:?}, and the rows {rows:?}")));
    }
    let account = format!("member-{}", owner.id);
    let path = format!("api/v1/namespaces/tenant-{tenant}/serviceaccounts/{account}");
    let (status, _) = fixture.cluster().admin(Method::GET, &path, None).await?;
    let has_account = status.is_success();
    let bindings = bindings_of(fixture, tenant).await?;
    if is_suspended {
        let namespaces = fixture.objects_of(tenant, "api/v1/namespaces").await?;
        let label = |it: &Value| it["metadata"]["labels"]["tenant-broker.io/suspended"] == "true";
        let is_revoked = bindings.is_empty() && !has_account && namespaces.iter().all(label);
        return Ok((!is_revoked).then(|| format!("{bindings:?}, {has_account}, {namespaces:?}")));
    }
    let members = match fixture.operator.tenant_members(tenant).await {
        Ok(members) => members.items,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let is_member = members.iter().any(|member| member.user == owner.id);
    if is_member != has_account {
        return Ok(Some(format!("a ServiceAccount of the owner: {has_account}; {members:?}")));
    }
    let roles = roles(expected.is_changed, is_member.then_some(&*account));
    let mut desired = BTreeMap::new();
    for (role, subjects) in &roles {
        for namespace in &live {
            let name = format!("tenant-{tenant}-{role}");
            desired.insert((namespace.clone(), name), subjects.clone());
        }
    }
    let name = format!("tenant-{tenant}-tenant-owner");
    desired.insert((format!("tenant-{tenant}"), name), roles["admin"].clone());
    if bindings != desired {
        return Ok(Some(format!("bindings {bindings:?} instead of {desired:?}")));
    }
    let amount = json!({"pods": "4"});
    let quotas = quotas_of(fixture, tenant).await?;
    let is_limited = quotas.len() == live.len() && quotas.values().all(|hard| *hard == amount);
    Ok((!is_limited).then(|| format!("quotas {quotas:?}")))
}

/// Subjects of all bindings of a tenant, by namespace and name.
async fn bindings_of(
    fixture: &Fixture,
    tenant: &str,
) -> Result<BTreeMap<(String, String), BTreeSet<String>>> {
    let bindings = fixture.objects_of(tenant, BINDINGS).await?;
    let of = |binding: &Value| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        let subjects = subjects.map(|subject| text(subject, "/name")).collect();
        ((text(binding, "/metadata/namespace"), text(binding, "/metadata/name")), subjects)
    };
    Ok(bindings.iter().map(of).collect())
}
