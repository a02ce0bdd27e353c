//! Concurrent requests at two replicas, whose controllers compare all tenants every second.

mod deletions;
mod quota;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use http::{Method, StatusCode};
use integration::acceptance::tenants::{Credential, Fixture, RECONCILE_TIMEOUT, SignedIn};
use integration::api::{ApiError, Refused};
use integration::control_plane::BROKER_USER;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};
use tenant_shared::{Code, StepResult, SuspendRequest};

use super::rest::until_rights_are_late;

const ROLE_BINDINGS: &str = "apis/rbac.authorization.k8s.io/v1/rolebindings";

/// Two owners, who create namespaces at once.
struct Owners {
    alice: SignedIn,
    bob: SignedIn,
}

/// `spec` with these owners.
fn owned_by(owners: &[&SignedIn]) -> Value {
    let owners: Vec<Value> =
        owners.iter().map(|owner| json!({"kind": "User", "name": owner.email})).collect();
    json!({"owners": owners})
}

impl Owners {
    /// Makes a tenant of both, with further fields.
    async fn make(&self, fixture: &Fixture, tenant: &str, fields: Value) {
        let mut spec = owned_by(&[&self.alice, &self.bob]);
        for (field, value) in fields.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        fixture.apply(tenant, &spec).await.unwrap();
        fixture.until_state(tenant, "Active").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_operations_at_two_replicas_keep_every_rule() {
    let builder = World::builder().postgres().replicas(2).setting("drift_seconds", 1);
    let fixture = Fixture::start(builder).await.unwrap();
    let owners = Owners {
        alice: fixture.person("alice").await.unwrap(),
        bob: fixture.person("bob").await.unwrap(),
    };
    tokio::join!(
        twenty_creations_at_a_quota_of_five(&fixture, &owners),
        creations_during_a_suspension(&fixture, &owners),
        creations_during_the_deletion_of_the_tenant(&fixture, &owners),
        creations_of_an_owner_who_is_removed(&fixture, &owners),
    );
    quota::a_limit_for_the_whole_tenant_is_never_exceeded(&fixture, &owners).await;
    replicas_write_nothing_once_a_tenant_is_as_it_should_be(&fixture, &owners).await;
    deletions::freed_amounts_are_used_within_the_limit(&fixture, &owners).await;
}

async fn create(
    owner: &SignedIn,
    replica: usize,
    tenant: &str,
    name: &str,
) -> Result<(), Box<Refused>> {
    match owner.at(replica).create_tenant_namespace(tenant, name).await {
        Ok(_) => Ok(()),
        Err(ApiError::Refused(refused)) => Err(refused),
        Err(ApiError::Broken(error)) => panic!("{name}: {error:#}"),
    }
}

/// Whether somebody can read and write in a namespace.
async fn can_use(fixture: &Fixture, who: &Credential, namespace: &str) -> bool {
    let path = format!("api/v1/namespaces/{namespace}/configmaps?dryRun=All");
    let object = json!({"metadata": {"generateName": "tried-"}});
    let sent = fixture.cluster().send(who, Method::POST, &path, Some(&object)).await;
    let (status, answer) = sent.unwrap();
    let is_refused = matches!(status, StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED);
    assert!(is_refused || status == StatusCode::CREATED, "{status} {answer}");
    !is_refused
}

/// Checks that the creator can use a namespace once its creation was acknowledged. If a broker has logged
/// that the API server is late, they can use it a moment later.
async fn is_usable_at_once(fixture: &Fixture, creator: &Credential, namespace: &str) {
    if !can_use(fixture, creator, namespace).await {
        until_rights_are_late(&fixture.world, namespace).await;
        until_used(fixture, creator, namespace, true).await;
    }
}

async fn twenty_creations_at_a_quota_of_five(fixture: &Fixture, owners: &Owners) {
    let tenant = "five";
    owners.make(fixture, tenant, json!({"namespaceOptions": {"quota": 5}})).await;
    let people = [&owners.alice, &owners.bob];
    let mut tokens = Vec::new();
    for person in people {
        tokens.push(fixture.member(person, tenant).await.unwrap().1);
    }
    let creations = (0..20).map(|number| async move {
        let name = format!("{tenant}-{number}");
        let created = create(people[number % 2], number / 2, tenant, &name).await;
        (number, name, created)
    });
    let mut made = Vec::new();
    for (number, name, created) in join_all(creations).await {
        match created {
            Ok(()) => {
                is_usable_at_once(fixture, &tokens[number % 2], &name).await;
                made.push(name);
            }
            Err(refused) => {
                let code = (refused.status, refused.code());
                assert_eq!(
                    code,
                    (StatusCode::FORBIDDEN, Code::NamespaceQuotaExceeded),
                    "{refused}"
                );
            }
        }
    }
    assert_eq!(made.len(), 5, "{made:?}");
    let mut live = fixture.namespaces_of(tenant).await.unwrap();
    live.sort();
    made.sort();
    assert_eq!(live, made);
    for (token, name) in tokens.iter().flat_map(|token| made.iter().map(move |it| (token, it))) {
        assert!(can_use(fixture, token, name).await, "{name}");
    }
}

/// Creates namespaces until this is over and a creation was refused. Returns those that were
/// acknowledged.
async fn creator(
    owner: &SignedIn,
    replica: usize,
    tenant: &str,
    name: &str,
    is_over: &AtomicBool,
) -> Vec<String> {
    let mut made = Vec::new();
    for number in 0.. {
        let name = format!("{tenant}-{name}{number}");
        let was_over = is_over.load(Ordering::SeqCst);
        match create(owner, replica, tenant, &name).await {
            Ok(()) => {
                assert!(!was_over, "{name} was created after the end");
                made.push(name);
            }
            Err(refused) => {
                let code = refused.code();
                let is_expected = matches!(
                    code,
                    Code::TenantNotActive
                        | Code::NotFound
                        | Code::NotTenantOwner
                        | Code::WorkspaceSuspended
                        | Code::WorkspaceNotReady
                );
                assert!(is_expected, "{refused}");
                if was_over {
                    break;
                }
            }
        }
    }
    made
}

async fn until_namespaces(fixture: &Fixture, tenant: &str, count: usize) {
    probe::until("namespaces", RECONCILE_TIMEOUT, || async {
        let names = fixture.namespaces_of(tenant).await?;
        let are_enough = names.len() >= count;
        Ok(if are_enough { Probe::Ready(()) } else { Probe::NotYet(format!("{names:?}")) })
    })
    .await
    .unwrap();
}

async fn until_no_bindings(fixture: &Fixture, tenant: &str) {
    probe::until("the end of all bindings", RECONCILE_TIMEOUT, || async {
        let bindings = fixture.objects_of(tenant, ROLE_BINDINGS).await?;
        let first = bindings.first().map(ToString::to_string);
        Ok(first.map_or(Probe::Ready(()), Probe::NotYet))
    })
    .await
    .unwrap();
}

async fn creations_during_a_suspension(fixture: &Fixture, owners: &Owners) {
    let (tenant, Owners { alice, bob }) = ("pause", owners);
    owners.make(fixture, tenant, json!({})).await;
    let (_, old) = fixture.member(alice, tenant).await.unwrap();
    let is_over = AtomicBool::new(false);
    let reason = SuspendRequest { reason: Some("race".to_owned()) };
    let suspension = async {
        until_namespaces(fixture, tenant, 3).await;
        let operator = fixture.operator_at(1).unwrap();
        probe::until("the suspension", RECONCILE_TIMEOUT, || async {
            let answer = operator.suspend_tenant(tenant, &reason).await?;
            let is_done = answer.steps.iter().all(|step| step.result == StepResult::Done);
            let is_done = is_done && answer.state == "Suspended";
            Ok(if is_done { Probe::Ready(()) } else { Probe::NotYet(format!("{answer:?}")) })
        })
        .await
        .unwrap();
        is_over.store(true, Ordering::SeqCst);
        for name in fixture.namespaces_of(tenant).await.unwrap() {
            until_used(fixture, &old, &name, false).await;
        }
    };
    let (by_alice, by_bob, ()) = tokio::join!(
        creator(alice, 0, tenant, "a", &is_over),
        creator(bob, 1, tenant, "b", &is_over),
        suspension,
    );
    until_no_bindings(fixture, tenant).await;
    let is_labelled = |it: &Value| it["metadata"]["labels"]["tenant-broker.io/suspended"] == "true";
    probe::until("the labels", RECONCILE_TIMEOUT, || async {
        let namespaces = fixture.objects_of(tenant, "api/v1/namespaces").await?;
        let are_all = namespaces.iter().all(is_labelled);
        Ok(if are_all { Probe::Ready(()) } else { Probe::NotYet(format!("{namespaces:?}")) })
    })
    .await
    .unwrap();

    let operator = fixture.operator_at(0).unwrap();
    probe::until("the resumption", RECONCILE_TIMEOUT, || async {
        Ok(match operator.resume_tenant(tenant, &reason).await {
            Ok(answer) if answer.state == "Active" => Probe::Ready(()),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
    let (_, new) = fixture.member(alice, tenant).await.unwrap();
    // Those whose creation was interrupted are the tenant's as well.
    let live = fixture.namespaces_of(tenant).await.unwrap();
    assert!(by_alice.iter().chain(&by_bob).all(|name| live.contains(name)), "{live:?}");
    for name in &live {
        until_used(fixture, &new, name, true).await;
        assert!(!can_use(fixture, &old, name).await, "{name}");
    }
}

/// Waits until somebody can, or can no longer, use a namespace.
async fn until_used(fixture: &Fixture, who: &Credential, namespace: &str, expected: bool) {
    let what = format!("the use of {namespace}: {expected}");
    probe::until(&what, RECONCILE_TIMEOUT, || async {
        let is_so = can_use(fixture, who, namespace).await == expected;
        Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(String::new()) })
    })
    .await
    .unwrap();
}

async fn creations_during_the_deletion_of_the_tenant(fixture: &Fixture, owners: &Owners) {
    let (tenant, Owners { alice, bob }) = ("gone", owners);
    owners.make(fixture, tenant, json!({})).await;
    let (_, token) = fixture.member(alice, tenant).await.unwrap();
    let is_over = AtomicBool::new(false);
    let deletion = async {
        until_namespaces(fixture, tenant, 3).await;
        fixture.delete_and_keep_namespaces(tenant).await.unwrap();
        is_over.store(true, Ordering::SeqCst);
    };
    tokio::join!(
        creator(alice, 0, tenant, "a", &is_over),
        creator(bob, 1, tenant, "b", &is_over),
        deletion,
    );
    until_no_bindings(fixture, tenant).await;
    for name in fixture.namespaces_of(tenant).await.unwrap() {
        until_used(fixture, &token, &name, false).await;
    }
}

async fn creations_of_an_owner_who_is_removed(fixture: &Fixture, owners: &Owners) {
    let (tenant, Owners { alice, bob }) = ("removed", owners);
    owners.make(fixture, tenant, json!({})).await;
    let (_, of_alice) = fixture.member(alice, tenant).await.unwrap();
    let (_, of_bob) = fixture.member(bob, tenant).await.unwrap();
    let is_over = AtomicBool::new(false);
    let removal = async {
        until_namespaces(fixture, tenant, 3).await;
        fixture.apply(tenant, &owned_by(&[bob])).await.unwrap();
        is_over.store(true, Ordering::SeqCst);
    };
    let (first, second, ()) = tokio::join!(
        creator(alice, 0, tenant, "a", &is_over),
        creator(alice, 1, tenant, "b", &is_over),
        removal,
    );
    let live = fixture.namespaces_of(tenant).await.unwrap();
    assert!(first.iter().chain(&second).all(|name| live.contains(name)), "{live:?}");
    for name in &live {
        until_used(fixture, &of_bob, name, true).await;
        until_used(fixture, &of_alice, name, false).await;
    }
}

/// Writes of the broker on the Tenant, its home and its namespaces so far.
fn writes(fixture: &Fixture, tenant: &str) -> Vec<Value> {
    let user = format!("\"username\":\"{BROKER_USER}\"");
    let events = fixture.world.cluster().audit_events(&user).unwrap();
    let is_write = |event: &Value| {
        let verb = event["verb"].as_str().unwrap_or_default();
        let of = |field: &str| event["objectRef"][field].as_str().unwrap_or_default().to_owned();
        matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection")
            && (of("namespace").contains(tenant) || of("name").contains(tenant))
    };
    events.into_iter().filter(is_write).collect()
}

/// Reconciliations by each replica so far.
async fn reconciles(fixture: &Fixture) -> Vec<f64> {
    let mut counts = Vec::new();
    for broker in fixture.world.brokers() {
        let series = "tenant_broker_tenant_reconciles_total{outcome=\"done\"}";
        counts.push(broker.metric(series).await.unwrap());
    }
    counts
}

/// Both reconcile it once a second.
async fn replicas_write_nothing_once_a_tenant_is_as_it_should_be(
    fixture: &Fixture,
    owners: &Owners,
) {
    let tenant = quota::TENANT;
    for number in 0..21 {
        let owner = if number % 2 == 0 { &owners.bob } else { &owners.alice };
        let mut spec = owned_by(&[owner]);
        spec["resourceQuotas"] = quota::limit();
        fixture.apply(tenant, &spec).await.unwrap();
    }
    fixture.until_state(tenant, "Active").await.unwrap();
    fixture.member(&owners.bob, tenant).await.unwrap();
    for name in fixture.namespaces_of(tenant).await.unwrap() {
        let bindings = format!("apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings");
        for binding in fixture.objects_of(tenant, &bindings).await.unwrap() {
            let subjects = binding["subjects"].as_array().unwrap();
            let names: BTreeSet<&str> =
                subjects.iter().map(|subject| subject["name"].as_str().unwrap()).collect();
            let account = format!("member-{}", owners.bob.id);
            assert_eq!(names, [account.as_str(), owners.bob.email.as_str()].into(), "{binding}");
        }
    }
    let before = reconciles(fixture).await;
    let written = writes(fixture, tenant).len();
    assert!(written > 0, "the audit log has the broker's writes");
    probe::until("both replicas to reconcile", RECONCILE_TIMEOUT, || async {
        let now = reconciles(fixture).await;
        let mut pairs = before.iter().zip(&now);
        let is_so = pairs.all(|(before, now)| now - before >= 10.0);
        Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(format!("{now:?}")) })
    })
    .await
    .unwrap();
    let all = writes(fixture, tenant);
    let later: Vec<&Value> = all.iter().skip(written).collect();
    assert!(later.is_empty(), "{later:#?}");
}
