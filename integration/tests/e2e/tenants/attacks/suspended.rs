//! Attempts of everybody to get back into a suspended tenant, by every way in that they have. Its home and
//! its namespaces have the suspended label and no RoleBinding, and its members have no ServiceAccount.
//! `fence` has what a thief of the broker's credential may do there.

use futures_util::future::join_all;
use http::{Method, StatusCode};
use integration::acceptance::tenants::{RECONCILE_TIMEOUT, SignedIn};
use integration::api::{Api, ApiError};
use integration::probe::{self, Probe};
use serde_json::{Value, json};
use tenant_shared::{
    Code, MEMBER_PREFIX, POD_SECURITY, SUSPENDED_LABEL, StepResult, SuspendRequest, TENANT_LABEL,
};
use uuid::Uuid;

use super::attack::{Attack, Right};
use super::attacker::Attacker;
use super::namespaces::{self, NO_CREATION};
use super::objects::{SEVERAL, bindings_in, path_in, pod, token_request};
use super::two_tenants::{ELIGIBLE, Member, TwoTenants, until};
use super::{
    OWN, are_refused, for_the_policies, namesake, take_rights_back, until_rights, with_all_rights,
    without_tenant,
};
use crate::refused;
use crate::tenants::attempt::{
    Attempt, apply, attempt, labels, namespace, patch, patch_as, post, put,
};
use crate::tenants::cluster::{RIGHTS_TIMEOUT, account, role_binding, user};
use crate::tenants::cluster_state::ClusterState;

const SOLAR: &str = "solar";
const HOME: &str = "tenant-solar";
const NAMESPACES: &str = "api/v1/namespaces";
/// A namespace that people request after the suspension.
const LATER: &str = "solar-later";
const DELETION: &[&str] =
    &["administrators alone delete the home of a tenant, and namespaces that are suspended"];
const LABELS: &[&str] = &["labels tenant-broker.io/* of a namespace are written by the broker"];
const HELD: &[&str] = &["the workspace is suspended"];
const NO_TENANT: &[&str] = &["the namespace belongs to no tenant of yours"];
const NO_OWNER: &[&str] = &["you do not own tenant solar"];
/// The refusal of somebody who would become a member, and of requests with a workspace of their own.
const NO_MEMBER: &[&str] = &["tenant solar is suspended", "there is no such tenant", "cannot "];

#[tokio::test]
async fn nobody_gets_back_into_a_suspended_tenant() {
    let tenants = TwoTenants::start().await;
    let dora = owner_with_a_workspace(&tenants).await;
    everybody_has_access(&tenants).await;
    let membership = membership(&tenants.alice).await;
    suspend(&tenants).await;
    let mut everybody = attackers(&tenants, &dora);
    everybody.push(Attacker::broker(&tenants.fixture.world));
    until_rights(&everybody).await;
    join_all(everybody.iter().map(until_refused)).await;

    sessions_are_refused(&tenants, &dora, membership).await;
    let attacks = attacks(&tenants).await;
    let all: Vec<&Attack> = attacks.iter().collect();
    are_refused(&tenants.fixture.world, &everybody, &all).await;
    // The rights that an administrator gives by mistake do not end with the suspension.
    let with_rights = with_all_rights(&tenants, attackers(&tenants, &dora)).await;
    are_refused(&tenants.fixture.world, &with_rights, &for_the_policies(&attacks)).await;
    take_rights_back(&tenants).await;
}

/// An owner who is no member, and whose requests the gateway sends with the token of their workspace.
async fn owner_with_a_workspace(tenants: &TwoTenants) -> SignedIn {
    let dora = tenants.fixture.person("dora").await.unwrap();
    let (workspace, _) = dora.at(0).init("basic").await.unwrap();
    for namespace in [HOME, workspace.namespace.as_str()] {
        let path = path_in(namespace, "serviceaccounts/default");
        until(&tenants.fixture, &path, |object| object["kind"] == "ServiceAccount").await;
    }
    dora
}

async fn membership(member: &Member) -> Uuid {
    member.person.at(0).tenant(SOLAR).await.unwrap().workspace.unwrap()
}

fn extra_binding() -> Value {
    role_binding(OWN, "extra", "view", &json!([account(OWN, "robot")]))
}

/// Uses of the tenant without an effect: who has the right is not refused before the suspension.
fn uses() -> [Attack; 4] {
    let config_map = json!({"metadata": {"name": "x"}});
    let dry = |path: String| format!("{path}?dryRun=All");
    [
        Attack::new(post(dry(path_in(OWN, "configmaps")), config_map), Right::Admin, HELD),
        Attack::new(post(dry(bindings_in(OWN)), extra_binding()), Right::Admin, HELD),
        Attack::new(
            attempt(Method::DELETE, dry(format!("{NAMESPACES}/{OWN}"))),
            Right::DeleteNamespace,
            DELETION,
        ),
        Attack::new(
            post(dry(NAMESPACES.to_owned()), namespace(LATER, &json!({}))),
            Right::CreateNamespace,
            NO_TENANT,
        )
        .direct_only(),
    ]
}

/// The control: before the suspension owners and programs may do by every way in what is refused later.
async fn everybody_has_access(tenants: &TwoTenants) {
    let world = &tenants.fixture.world;
    let alice = &tenants.alice;
    let owner = &[Right::Admin, Right::DeleteNamespace];
    let direct = &[Right::Admin, Right::DeleteNamespace, Right::CreateNamespace];
    for attacker in [
        Attacker::at_gateway("an owner", alice.person.at(0), owner),
        Attacker::with_token(world, "an owner", &alice.token, owner),
        Attacker::with_certificate(world, &alice.person.email, Some(ELIGIBLE), direct),
        Attacker::with_token(world, "a program that is an owner", &tenants.owner_token, direct),
        Attacker::with_token(world, "a program", &tenants.pod_token, &[Right::Admin]),
    ] {
        let rights = attacker.rights().unwrap();
        for attack in uses().iter().filter(|attack| rights.contains(&attack.needs)) {
            let Attempt { method, path, .. } = &attack.attempt;
            let what = format!("{method} {path} by {}", attacker.who);
            probe::until(&what, RIGHTS_TIMEOUT, || async {
                let answer = attacker.send(&attack.attempt).await;
                let is_accepted = answer.status.is_success();
                Ok(if is_accepted { Probe::Ready(()) } else { Probe::NotYet(answer.text) })
            })
            .await
            .unwrap();
        }
    }
}

/// Suspends solar, and waits until nothing is left to do.
async fn suspend(tenants: &TwoTenants) {
    let fixture = &tenants.fixture;
    let reason = SuspendRequest { reason: Some("leak".to_owned()) };
    probe::until("the suspension", RECONCILE_TIMEOUT, || async {
        let suspension = fixture.operator.suspend_tenant(SOLAR, &reason).await?;
        let is_done = suspension.steps.iter().all(|step| step.result == StepResult::Done);
        let is_suspended = is_done && suspension.state == "Suspended";
        Ok(if is_suspended { Probe::Ready(()) } else { Probe::NotYet(format!("{suspension:?}")) })
    })
    .await
    .unwrap();
    fixture.until_state(SOLAR, "Suspended").await.unwrap();
    for name in [OWN, HOME] {
        let live = tenants.namespace(name).await;
        assert_eq!(live["metadata"]["labels"][SUSPENDED_LABEL], "true", "{live}");
        let bindings = list(tenants, &bindings_in(name)).await;
        assert!(bindings.is_empty(), "{bindings:?}");
    }
    let accounts = list(tenants, &path_in(HOME, "serviceaccounts")).await;
    assert!(!accounts.iter().any(|name| name.starts_with(MEMBER_PREFIX)), "{accounts:?}");
}

/// The names of the objects of a collection.
async fn list(tenants: &TwoTenants, path: &str) -> Vec<String> {
    let listed = tenants.fixture.cluster().admin(Method::GET, path, None).await;
    let (status, list) = listed.unwrap();
    assert_eq!(status, StatusCode::OK, "{list}");
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Those of the matrix, whose rights are gone, with their tokens from before the suspension, an owner who
/// is no member, a program that owns solar, and the owner of another tenant.
fn attackers(tenants: &TwoTenants, dora: &SignedIn) -> Vec<Attacker> {
    const FORBIDDEN: StatusCode = StatusCode::FORBIDDEN;
    let world = &tenants.fixture.world;
    let direct = &[Right::CreateNamespace];
    let mut attackers = Vec::new();
    for (who, member) in [
        ("an owner", &tenants.alice),
        ("a view-only owner", &tenants.vera),
        ("a bound outsider", &tenants.bob),
    ] {
        let (api, texts) = (member.person.at(0), &["the tenant solar is suspended"]);
        attackers.extend([
            Attacker::refused_at_gateway(who, api, FORBIDDEN, texts),
            Attacker::with_ended_token(world, who, &member.token),
            Attacker::with_certificate(world, &member.person.email, Some(ELIGIBLE), direct),
        ]);
    }
    for person in [dora, &tenants.eve] {
        attackers.push(Attacker::with_certificate(world, &person.email, Some(ELIGIBLE), direct));
    }
    let other = "an owner of another tenant";
    attackers.extend([
        Attacker::refused_at_gateway(
            "an owner without a membership",
            dora.at(0),
            FORBIDDEN,
            NO_MEMBER,
        ),
        without_tenant(tenants),
        Attacker::with_token(world, "a program", &tenants.pod_token, &[]),
        Attacker::with_token(world, "a program that is an owner", &tenants.owner_token, direct),
        namesake(tenants),
        Attacker::at_gateway(other, tenants.carol.person.at(0), &[]),
        Attacker::with_token(world, other, &tenants.carol.token, &[]),
    ]);
    attackers
}

/// Waits until no part of the API server has old rights or tokens. API servers accept old tokens from their
/// cache for ten seconds.
async fn until_refused(attacker: &Attacker) {
    for attack in uses() {
        // The gateway has no dry run of creations.
        if attack.is_direct_only && attacker.is_at_gateway() {
            continue;
        }
        let Some(texts) = attacker.texts(&attack) else { continue };
        let what = format!("the refusal of {}", attacker.who);
        probe::until(&what, RIGHTS_TIMEOUT, || async {
            let answer = attacker.send(&attack.attempt).await;
            let is_refused = attacker.is_refused(&answer, &texts);
            Ok(if is_refused { Probe::Ready(()) } else { Probe::NotYet(answer.text) })
        })
        .await
        .unwrap();
    }
}

async fn attacks(tenants: &TwoTenants) -> Vec<Attack> {
    let mut attacks = Vec::new();
    for (name, right) in [(OWN, Right::DeleteNamespace), (HOME, Right::WriteEverywhere)] {
        let live = tenants.namespace(name).await;
        attacks.extend(namespaces::changes(&live));
        attacks.extend(removals_of_the_label(&live));
        let delete = attempt(Method::DELETE, format!("{NAMESPACES}/{name}"));
        attacks.push(Attack::new(delete, right, DELETION));
    }
    attacks.extend(creations());
    attacks.extend(grants(&tenants.alice));
    attacks.extend(in_namespace());
    attacks
}

/// Every way to write another suspended label than the broker's. A thief of its credential may patch it.
fn removals_of_the_label(live: &Value) -> Vec<Attack> {
    let path = format!("{NAMESPACES}/{}", live["metadata"]["name"].as_str().unwrap());
    let label = |value: Value| labels(&json!({SUSPENDED_LABEL: value}));
    let at = format!("/metadata/labels/{}", SUSPENDED_LABEL.replace('/', "~1"));
    let removed = json!([{"op": "remove", "path": at}]);
    let mut applied = label(json!("false"));
    applied["apiVersion"] = json!("v1");
    applied["kind"] = json!("Namespace");
    applied["metadata"]["name"] = live["metadata"]["name"].clone();
    let mut without = live.clone();
    without["metadata"]["labels"].as_object_mut().unwrap().remove(SUSPENDED_LABEL);
    let write = |attempt: Attempt| Attack::new(attempt, Right::WriteEverywhere, LABELS);
    let strategic = "application/strategic-merge-patch+json";
    let force = format!("{path}?fieldManager=attacker&force=true");
    vec![
        write(patch(&path, label(Value::Null))).of_broker(),
        write(patch(&path, label(json!("false")))).of_broker(),
        write(patch_as("application/json-patch+json", &path, removed)).of_broker(),
        write(patch_as(strategic, &path, label(Value::Null))).of_broker(),
        write(apply(force, applied)).at_gateway(NO_CREATION).of_broker(),
        write(patch(format!("{path}/status"), label(Value::Null))),
        write(put(&path, without.clone())),
        write(put(format!("{path}/status"), without.clone())),
        write(put(format!("{path}/finalize"), without)),
    ]
}

/// Other namespaces of the tenant. A thief of the broker's credential may create those with a label.
fn creations() -> Vec<Attack> {
    let create = |metadata: Value, policy| {
        let attempt = post(NAMESPACES, namespace(LATER, &metadata));
        Attack::new(attempt, Right::CreateNamespace, policy).at_gateway(NO_CREATION)
    };
    let labelled = json!({"labels": {TENANT_LABEL: SOLAR, POD_SECURITY: "baseline"}});
    vec![create(json!({}), NO_TENANT), create(labelled, NO_OWNER).of_broker()]
}

/// Objects that give access: bindings as owners and as the broker make them, accounts and tokens.
fn grants(owner: &Member) -> Vec<Attack> {
    let as_broker = |namespace: &str, role: &str| {
        let subjects = json!([user(&owner.person.email)]);
        let mut binding = role_binding(namespace, &format!("tenant-solar-{role}"), role, &subjects);
        binding["metadata"]["labels"] = json!({TENANT_LABEL: SOLAR});
        post(bindings_in(namespace), binding)
    };
    let member = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": owner.account, "labels": {TENANT_LABEL: SOLAR}}});
    let forever = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "forever",
        "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token"});
    let token = |namespace: &str, name: &str| {
        post(path_in(namespace, &format!("serviceaccounts/{name}/token")), token_request())
    };
    let in_own = |attempt, policy| Attack::new(attempt, Right::Admin, policy);
    let in_home = |attempt| Attack::new(attempt, Right::WriteEverywhere, SEVERAL);
    vec![
        in_own(post(bindings_in(OWN), extra_binding()), HELD),
        in_own(as_broker(OWN, "admin"), SEVERAL),
        in_own(post(path_in(OWN, "secrets"), forever), SEVERAL),
        in_own(token(OWN, "robot"), SEVERAL),
        in_home(as_broker(HOME, "tenant-owner")),
        in_home(token(HOME, "default")),
        in_home(post(path_in(HOME, "serviceaccounts"), member)).of_broker(),
    ]
}

/// Writes and reads in the namespace, and the status by which the tenant would be active.
fn in_namespace() -> Vec<Attack> {
    let config_map = json!({"metadata": {"name": "x"}});
    let as_robot = pod("later", &json!({"serviceAccountName": "robot"}));
    let never = |attempt| Attack::new(attempt, Right::ClusterAdmin, &[]);
    let active = json!({"status": {"state": "Active"}});
    let status = "apis/tenant-broker.io/v1alpha1/tenants/solar/status";
    vec![
        Attack::new(post(path_in(OWN, "configmaps"), config_map), Right::Admin, HELD),
        Attack::new(post(path_in(OWN, "pods"), as_robot), Right::Admin, HELD),
        never(attempt(Method::GET, path_in(OWN, "secrets"))),
        never(attempt(Method::GET, path_in(OWN, "pods?watch=1"))),
        never(patch(status, active)).of_broker(),
    ]
}

/// No session gets a membership, a credential, a namespace or the resumption from the broker.
async fn sessions_are_refused(tenants: &TwoTenants, dora: &SignedIn, membership: Uuid) {
    let before = ClusterState::read(&tenants.fixture.world).await;
    let none = (StatusCode::NOT_FOUND, Code::NotFound);
    let suspended = (StatusCode::CONFLICT, Code::TenantNotActive);
    let no_owner = (StatusCode::FORBIDDEN, Code::NotTenantOwner);
    for (person, join, create) in [
        (&tenants.alice.person, suspended, suspended),
        (&tenants.vera.person, suspended, suspended),
        (dora, suspended, suspended),
        (&tenants.bob.person, suspended, no_owner),
        (&tenants.carol.person, none, none),
        (&tenants.eve, none, none),
    ] {
        let (who, api) = (&person.email, person.at(0));
        assert_eq!(reason(api.join_tenant(SOLAR).await), join, "{who} joins");
        let created = api.create_tenant_namespace(SOLAR, LATER).await;
        assert_eq!(reason(created), create, "{who} creates a namespace");
        are_for_administrators(api, who, membership).await;
        if *who != tenants.alice.person.email {
            assert_eq!(reason(api.credential(membership).await), none, "{who} gets a credential");
        }
    }
    for member in [&tenants.alice, &tenants.vera, &tenants.bob] {
        let own = self::membership(member).await;
        let held = (StatusCode::CONFLICT, Code::WorkspaceSuspended);
        let issued = member.person.at(0).credential(own).await;
        assert_eq!(reason(issued), held, "{} gets a credential", member.person.email);
    }
    before.assert_same(&ClusterState::read(&tenants.fixture.world).await);
}

async fn are_for_administrators(api: &Api, who: &str, membership: Uuid) {
    let request = SuspendRequest::default();
    let forbidden = (StatusCode::FORBIDDEN, Code::Forbidden);
    let resumed = api.resume_tenant(SOLAR, &request).await;
    assert_eq!(reason(resumed), forbidden, "{who} resumes the tenant");
    let resumed = api.resume(membership, &request).await;
    assert_eq!(reason(resumed), forbidden, "{who} resumes a membership");
}

/// The status and the code of a refusal.
fn reason<T: std::fmt::Debug>(result: Result<T, ApiError>) -> (StatusCode, Code) {
    let refusal = refused(result);
    (refusal.status, refusal.code())
}
