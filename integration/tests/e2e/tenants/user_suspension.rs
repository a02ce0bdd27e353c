//! Suspension of a person who is a member of several tenants, and the way back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use integration::acceptance::tenants::{Credential, Fixture, RECONCILE_TIMEOUT, SignedIn};
use integration::api::Api;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::json;
use tenant_shared::{Code, StepResult, SuspendRequest, WorkspaceStatus};
use uuid::Uuid;

use super::reconcile::subjects;
use crate::refused;

const SOLAR: &str = "solar";
const LUNAR: &str = "lunar";
const TENANTS: [&str; 2] = [SOLAR, LUNAR];
const ROLE_BINDINGS: &str = "apis/rbac.authorization.k8s.io/v1/rolebindings";

/// Two tenants of alice, each with two namespaces and another owner: bob owns `solar`, and carol
/// `lunar`.
struct Tenants {
    fixture: Fixture,
    alice: Person,
    /// Her memberships and tokens, in the order of [`TENANTS`].
    memberships: Vec<(Uuid, Credential)>,
    /// The tokens of bob and carol, in the order of [`TENANTS`].
    others: Vec<Credential>,
}

fn namespaces_of(tenant: &str) -> [String; 2] {
    ["a", "b"].map(|name| format!("{tenant}-{name}"))
}

impl Tenants {
    async fn start() -> Self {
        let builder = World::builder().setting("drift_seconds", 3600);
        let fixture = Fixture::start(builder).await.unwrap();
        let alice = fixture.world.person("alice").await.unwrap();
        let api = alice.api().await.unwrap();
        let others = [fixture.person("bob").await.unwrap(), fixture.person("carol").await.unwrap()];
        let (mut memberships, mut tokens) = (Vec::new(), Vec::new());
        for (tenant, other) in TENANTS.into_iter().zip(&others) {
            let owner = |name: &str| json!({"kind": "User", "name": name});
            let owners = [owner(alice.email()), owner(&other.email)];
            fixture.apply(tenant, &json!({"owners": owners})).await.unwrap();
            fixture.until_state(tenant, "Active").await.unwrap();
            tokens.push(make_namespaces(&fixture, other, tenant).await);
            let (membership, _) = api.join_tenant(tenant).await.unwrap();
            memberships.push((membership.id, credential(&api, membership.id).await));
        }
        Self { fixture, alice, memberships, others: tokens }
    }

    /// Whether somebody can write in a namespace.
    async fn can_use(&self, who: &Credential, namespace: &str) -> bool {
        let path = format!("api/v1/namespaces/{namespace}/configmaps?dryRun=All");
        let object = json!({"metadata": {"generateName": "tried-"}});
        let sent = self.fixture.cluster().send(who, Method::POST, &path, Some(&object)).await;
        let (status, answer) = sent.unwrap();
        // Deleted bindings and accounts are the reason, and no policy.
        let message = answer["message"].as_str().unwrap_or_default();
        let is_refused = status == StatusCode::UNAUTHORIZED
            || status == StatusCode::FORBIDDEN && message.contains("cannot create resource");
        assert!(is_refused || status == StatusCode::CREATED, "{status} {answer}");
        !is_refused
    }

    /// Waits until alice can, or cannot, use all namespaces of a tenant with a token.
    async fn until_used(&self, token: &Credential, tenant: &str, expected: bool) {
        for namespace in namespaces_of(tenant) {
            let what = format!("the use of {namespace}: {expected}");
            probe::until(&what, RECONCILE_TIMEOUT, || async {
                let is_so = self.can_use(token, &namespace).await == expected;
                Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(String::new()) })
            })
            .await
            .unwrap();
        }
    }

    /// Tries again and again whether the other owners can use their namespaces. Counts the rounds.
    async fn others_are_not_affected(&self, is_over: &AtomicBool, rounds: &AtomicUsize) {
        while !is_over.load(Ordering::SeqCst) {
            for (tenant, token) in TENANTS.into_iter().zip(&self.others) {
                for namespace in namespaces_of(tenant) {
                    assert!(self.can_use(token, &namespace).await, "{namespace}");
                }
            }
            rounds.fetch_add(1, Ordering::SeqCst);
            // The machine has other work to do.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The namespaces of a tenant, with its home, in which a RoleBinding names alice's membership.
    async fn bound_in(&self, tenant: &str) -> Vec<String> {
        let account = format!("member-{}", self.alice.id());
        let bindings = self.fixture.objects_of(tenant, ROLE_BINDINGS).await.unwrap();
        let naming = bindings.iter().filter(|it| subjects(it).contains(account.as_str()));
        let mut namespaces: Vec<String> = naming
            .map(|binding| binding["metadata"]["namespace"].as_str().unwrap().to_owned())
            .collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        namespaces
    }

    /// Waits until alice's membership is bound in all namespaces of a tenant, or in none.
    async fn until_bound(&self, tenant: &str, expected: bool) {
        let mut all = namespaces_of(tenant).to_vec();
        all.push(format!("tenant-{tenant}"));
        let expected = if expected { all } else { Vec::new() };
        probe::until("the bindings of the membership", RECONCILE_TIMEOUT, || async {
            let bound = self.bound_in(tenant).await;
            let is_so = bound == expected;
            Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(format!("{bound:?}")) })
        })
        .await
        .unwrap();
    }
}

/// Creates the namespaces of a tenant as an owner, and returns their token.
async fn make_namespaces(fixture: &Fixture, owner: &SignedIn, tenant: &str) -> Credential {
    for name in namespaces_of(tenant) {
        owner.at(0).create_tenant_namespace(tenant, &name).await.unwrap();
    }
    fixture.member(owner, tenant).await.unwrap().1
}

/// Issues a token of a membership.
async fn credential(api: &Api, membership: Uuid) -> Credential {
    Credential::Token(api.credential(membership).await.unwrap().token.into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_person_has_no_access_in_any_tenant_and_others_keep_theirs() {
    let tenants = Tenants::start().await;
    for (tenant, (_, token)) in TENANTS.into_iter().zip(&tenants.memberships) {
        tenants.until_used(token, tenant, true).await;
        tenants.until_bound(tenant, true).await;
    }
    let (is_over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let suspension = async {
        all_access_ends(&tenants).await;
        memberships_come_back_one_by_one(&tenants).await;
        is_over.store(true, Ordering::SeqCst);
    };
    tokio::join!(
        Box::pin(suspension),
        Box::pin(tenants.others_are_not_affected(&is_over, &rounds))
    );
    assert!(rounds.into_inner() > 1, "the other owners tried nothing");
}

async fn all_access_ends(tenants: &Tenants) {
    let Tenants { fixture, alice, memberships, .. } = tenants;
    let api = alice.api().await.unwrap();
    let reason = SuspendRequest { reason: Some("leaked laptop".to_owned()) };
    let suspended = probe::until("the suspension", RECONCILE_TIMEOUT, || async {
        let suspension = fixture.operator.suspend_user(alice.id(), &reason).await?.workspaces;
        let mut steps = suspension.iter().flat_map(|workspace| &workspace.steps);
        let is_done = steps.all(|step| step.result == StepResult::Done)
            && suspension.iter().all(|it| it.status == WorkspaceStatus::Suspended);
        Ok(if is_done {
            Probe::Ready(suspension)
        } else {
            Probe::NotYet(format!("{suspension:?}"))
        })
    })
    .await
    .unwrap();
    for (tenant, (membership, token)) in TENANTS.into_iter().zip(memberships) {
        assert!(suspended.iter().any(|it| it.id == *membership), "{tenant}: {suspended:?}");
        tenants.until_used(token, tenant, false).await;
        tenants.until_bound(tenant, false).await;
        let (account, home) = (format!("member-{}", alice.id()), format!("tenant-{tenant}"));
        let account = ["serviceaccount", &account, "-n", &home];
        assert_eq!(crate::object(&fixture.world, &account).await.unwrap(), None);
        fixture.until_state(tenant, "Active").await.unwrap();
    }
    // The sessions have ended, at the gateway as well.
    assert_eq!(refused(api.join_tenant(SOLAR).await).status, StatusCode::UNAUTHORIZED);
    let path = format!("{}/api/v1/namespaces", crate::gateway::GATEWAY);
    let listed = api.request(Method::GET, &path).unwrap().send().await.unwrap();
    assert_eq!(listed.status(), StatusCode::UNAUTHORIZED);
    assert!(alice.sign_in().await.is_err(), "a suspended person signs in");
}

/// An administrator decides on each membership anew. Tokens from before stay useless.
async fn memberships_come_back_one_by_one(tenants: &Tenants) {
    let Tenants { fixture, alice, memberships, .. } = tenants;
    let [(solar, old_of_solar), (lunar, old_of_lunar)] = memberships.as_slice() else {
        panic!("{memberships:?}");
    };
    // No membership of a suspended person is resumed, also once API servers have forgotten the tokens.
    let code = probe::until("the refusal", RECONCILE_TIMEOUT, || async {
        let resumed = fixture.operator.resume(*solar, &SuspendRequest::default()).await;
        Ok(match refused(resumed).code() {
            Code::WorkspaceNotReady => Probe::NotYet("it is too early".to_owned()),
            code => Probe::Ready(code),
        })
    })
    .await
    .unwrap();
    assert_eq!(code, Code::OwnerSuspended);
    let path = format!("users/{}/resume", alice.id());
    let resumed = fixture.operator.request(Method::POST, &path).unwrap().send().await.unwrap();
    assert_eq!(resumed.status(), StatusCode::OK);
    let api = alice.api().await.unwrap();
    for membership in [solar, lunar] {
        let refusal = refused(api.credential(*membership).await);
        assert_eq!(refusal.code(), Code::WorkspaceSuspended, "{refusal}");
    }

    resume(fixture, *solar).await;
    let new_of_solar = credential(&api, *solar).await;
    tenants.until_used(&new_of_solar, SOLAR, true).await;
    tenants.until_bound(SOLAR, true).await;
    tenants.until_bound(LUNAR, false).await;
    for namespace in namespaces_of(LUNAR) {
        assert!(!tenants.can_use(&new_of_solar, &namespace).await, "{namespace}");
    }
    let refusal = refused(api.credential(*lunar).await);
    assert_eq!(refusal.code(), Code::WorkspaceSuspended, "{refusal}");

    resume(fixture, *lunar).await;
    let new_of_lunar = credential(&api, *lunar).await;
    tenants.until_used(&new_of_lunar, LUNAR, true).await;
    tenants.until_bound(LUNAR, true).await;
    for (tenant, old) in [(SOLAR, old_of_solar), (LUNAR, old_of_lunar)] {
        for namespace in namespaces_of(tenant) {
            assert!(!tenants.can_use(old, &namespace).await, "{namespace}");
        }
    }
}

/// Resumes a membership.
async fn resume(fixture: &Fixture, membership: Uuid) {
    probe::until("the resumption", RECONCILE_TIMEOUT, || async {
        let resumed = fixture.operator.resume(membership, &SuspendRequest::default()).await;
        Ok(match resumed {
            Ok(resumed) if resumed.status == WorkspaceStatus::Provisioned => Probe::Ready(()),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
}
