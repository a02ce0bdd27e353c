//! Attacks by people and programs of all kinds, through the gateway and directly at the API server.
//! Each of them is tried by everybody, and each refusal has its reason: RBAC, or a policy where RBAC
//! lets the request pass. `suspended` has those of people whose tenant is suspended, `gateway_attacks`
//! what the gateway handles itself, and `fence` more of what the broker's credential may and may not do.

mod attack;
mod attacker;
mod identities;
mod namespace_quota;
mod namespaces;
mod objects;
mod suspended;
mod two_tenants;

use std::collections::BTreeSet;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};
use tenant_shared::TENANT_LABEL;

use super::attempt::{attempt, namespace, post};
use super::audit_events::lists_as_broker;
use super::cluster::{RIGHTS_TIMEOUT, group};
use super::cluster_state::ClusterState;
use attack::{Attack, Right};
use attacker::Attacker;
use two_tenants::{ELIGIBLE, TwoTenants, make};

/// The namespace of the attackers' tenant `solar`, one of the tenant `lunar`, and one of nobody.
const OWN: &str = "solar-a";
const OTHER: &str = "lunar-a";
const PLAIN: &str = "plain";
const RBAC: &str = "apis/rbac.authorization.k8s.io/v1";
/// What an administrator gives by mistake, beside the rights that everybody has.
const ALL_RIGHTS: &[Right] =
    &[Right::Admin, Right::DeleteNamespace, Right::CreateNamespace, Right::WriteEverywhere];

/// One cluster for all, because each starts a control plane.
#[tokio::test]
async fn attacks_of_people_and_programs_are_refused_on_both_ways_in() {
    let tenants = TwoTenants::start().await;
    identities::half_valid_ones_reach_nothing(&tenants).await;
    identities::nobody_impersonates_others(&tenants).await;
    an_account_of_the_same_name_owns_nothing(&tenants).await;
    everybody_has_what_their_roles_allow_only(&tenants).await;
    lists_show_namespaces_of_the_own_tenant_only(&tenants).await;
    policies_hold_for_those_who_may_write_everywhere(&tenants).await;
    namespace_quota::no_tenant_has_more_namespaces_than_its_quota(&tenants).await;
    namespace_quota::a_tenant_without_a_quota_has_a_maximum(&tenants).await;
}

/// Owners, an owner with the role `view`, somebody who is bound to `admin` without being an owner,
/// somebody who may be a member and whom no Tenant names, the program of a pod, and a ServiceAccount
/// with the name of an owner in another namespace: each by every way in that they have.
fn attackers(tenants: &TwoTenants) -> Vec<Attacker> {
    let world = &tenants.fixture.world;
    let (alice, vera, bob) = (&tenants.alice, &tenants.vera, &tenants.bob);
    let mut attackers = Vec::new();
    for (who, member, rights) in [
        ("an owner", alice, &[Right::Admin, Right::DeleteNamespace][..]),
        ("a view-only owner", vera, &[]),
        ("a bound outsider", bob, &[Right::Admin]),
    ] {
        let direct = [rights, &[Right::CreateNamespace]].concat();
        let email = &member.person.email;
        attackers.extend([
            Attacker::at_gateway(who, member.person.at(0), rights),
            Attacker::with_token(world, who, &member.token, rights),
            Attacker::with_certificate(world, email, Some(ELIGIBLE), &direct),
        ]);
    }
    let eve = &tenants.eve.email;
    attackers.extend([
        without_tenant(tenants),
        Attacker::with_certificate(world, eve, Some(ELIGIBLE), &[Right::CreateNamespace]),
        Attacker::with_token(world, "a program", &tenants.pod_token, &[Right::Admin]),
        namesake(tenants),
    ]);
    attackers
}

fn without_tenant(tenants: &TwoTenants) -> Attacker {
    let (who, api) = ("a person without a tenant", tenants.eve.at(0));
    Attacker::refused_at_gateway(who, api, StatusCode::NOT_FOUND, &["you have no workspace"])
}

fn namesake(tenants: &TwoTenants) -> Attacker {
    let rights = &[Right::CreateNamespace];
    Attacker::with_token(&tenants.fixture.world, "a namesake", &tenants.namesake_token, rights)
}

/// All attacks, with the namespaces as the API server has them.
async fn attacks(tenants: &TwoTenants) -> Vec<Attack> {
    let mut attacks = Vec::new();
    for name in [OWN, OTHER, "tenant-solar"] {
        attacks.extend(namespaces::changes(&tenants.namespace(name).await));
    }
    attacks.extend(namespaces::adoptions());
    attacks.extend(namespaces::deletions());
    attacks.extend(namespaces::creations());
    attacks.extend(namespaces::reads());
    attacks.extend(objects::bindings());
    attacks.extend(objects::of_the_broker());
    attacks.extend(objects::in_own_namespace());
    attacks.extend(objects::in_home("tenant-solar", &tenants.alice.account));
    attacks.extend(objects::in_home("tenant-lunar", &tenants.carol.account));
    attacks.extend(objects::of_administrators());
    attacks.extend(objects::of_others());
    attacks
}

async fn everybody_has_what_their_roles_allow_only(tenants: &TwoTenants) {
    let mut attackers = attackers(tenants);
    until_rights(&attackers).await;
    attackers.push(Attacker::broker(&tenants.fixture.world));
    let attacks = attacks(tenants).await;
    let all: Vec<&Attack> = attacks.iter().collect();
    are_refused(&tenants.fixture.world, &attackers, &all).await;
}

/// Waits until RBAC gives the attackers their rights.
async fn until_rights(attackers: &[Attacker]) {
    for attacker in attackers {
        for review in attacker.rights().into_iter().flatten().filter_map(|right| right.review()) {
            attacker.until_allowed(&review).await;
        }
    }
}

/// A rule of a ClusterRole.
fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// An administrator gives everybody who attacks what no role of a tenant has, so that the policies
/// alone decide. Returns those over whom RBAC decides otherwise.
async fn with_all_rights(tenants: &TwoTenants, attackers: Vec<Attacker>) -> Vec<Attacker> {
    let fixture = &tenants.fixture;
    let (rbac, write) = ("rbac.authorization.k8s.io", ["create", "update", "patch", "delete"]);
    let mut bind = rule(rbac, &["clusterroles"], &["bind"]);
    bind["resourceNames"] = json!(["admin", "edit", "view", "tenant-owner"]);
    let all = [&write[..], &["deletecollection"]].concat();
    let namespaces = ["namespaces", "namespaces/status", "namespaces/finalize"];
    let limits = ["resourcequotas", "resourcequotas/status", "limitranges"];
    let created = ["serviceaccounts", "serviceaccounts/token", "secrets", "configmaps", "pods"];
    let role = json!({"metadata": {"name": "by-mistake"}, "rules": [
        // The creation of namespaces stays as it is.
        rule("", &namespaces, &write[1..]),
        rule("", &limits, &write),
        rule("", &created, &["create"]),
        rule(rbac, &["rolebindings", "roles"], &all),
        bind,
    ]});
    make(fixture, &format!("{RBAC}/clusterroles"), &role).await;
    let groups = ["tenant-solar", "tenant-lunar", OWN, "robots", "others"];
    let groups = groups.map(|it| format!("system:serviceaccounts:{it}"));
    let mut subjects: Vec<Value> = groups.iter().map(|name| group(name)).collect();
    subjects.push(group(ELIGIBLE));
    let role_ref = json!({"apiGroup": rbac, "kind": "ClusterRole", "name": "by-mistake"});
    let binding =
        json!({"metadata": {"name": "by-mistake"}, "roleRef": role_ref, "subjects": subjects});
    make(fixture, &format!("{RBAC}/clusterrolebindings"), &binding).await;

    let has_rights = |attacker: &Attacker| attacker.rights().is_some();
    let attackers: Vec<Attacker> = attackers
        .into_iter()
        .filter(has_rights)
        .map(|attacker| attacker.with_rights(ALL_RIGHTS))
        .collect();
    let review = Right::WriteEverywhere.review().unwrap();
    for attacker in &attackers {
        attacker.until_allowed(&review).await;
    }
    attackers
}

/// Undoes [`with_all_rights`].
async fn take_rights_back(tenants: &TwoTenants) {
    let path = format!("{RBAC}/clusterrolebindings/by-mistake");
    let deleted = tenants.fixture.cluster().admin(Method::DELETE, &path, None).await;
    let (status, body) = deleted.unwrap();
    assert!(status.is_success(), "{body}");
}

/// Attacks on which the policies decide alone, if everybody has all rights. Those who may delete every
/// namespace may create such of no tenant as well.
fn for_the_policies(attacks: &[Attack]) -> Vec<&Attack> {
    attacks.iter().filter(|attack| attack.needs != Right::CreateNamespace).collect()
}

async fn policies_hold_for_those_who_may_write_everywhere(tenants: &TwoTenants) {
    let attackers = with_all_rights(tenants, attackers(tenants)).await;
    let attacks = attacks(tenants).await;
    are_refused(&tenants.fixture.world, &attackers, &for_the_policies(&attacks)).await;
    take_rights_back(tenants).await;
}

/// Has each attacker try each attack, all attackers at once. Everything is as before then.
async fn are_refused(world: &World, attackers: &[Attacker], attacks: &[&Attack]) {
    let before = ClusterState::read(world).await;
    let (mut failures, mut ids) = (Vec::new(), BTreeSet::new());
    for (failed, sent) in join_all(attackers.iter().map(|it| try_all(it, attacks))).await {
        failures.extend(failed);
        ids.extend(sent);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    before.assert_same(&ClusterState::read(world).await);
    lists_as_broker(world, &ids);
}

/// Returns the attacks that were not refused as they have to be, and the ids of the requests through
/// the gateway.
async fn try_all(attacker: &Attacker, attacks: &[&Attack]) -> (Vec<String>, Vec<String>) {
    let (mut failures, mut ids, mut tried) = (Vec::new(), Vec::new(), 0);
    for attack in attacks {
        let Some(texts) = attacker.texts(attack) else { continue };
        let answer = attacker.send(&attack.attempt).await;
        if !attacker.is_refused(&answer, &texts) {
            let (who, attempt) = (&attacker.who, &attack.attempt);
            failures.push(format!(
                "{who}: {} {} {:?}: {texts:?} and not {} {}",
                attempt.method, attempt.path, attempt.body, answer.status, answer.text
            ));
        }
        ids.extend(answer.id);
        tried += 1;
    }
    assert!(tried > attacks.len() / 2, "{} tried {tried} attacks", attacker.who);
    (failures, ids)
}

/// A ServiceAccount owns solar. One of the same name, in another namespace, may create namespaces as
/// well, and none of solar.
async fn an_account_of_the_same_name_owns_nothing(tenants: &TwoTenants) {
    let (world, token) = (&tenants.fixture.world, &tenants.owner_token);
    let owner = Attacker::with_token(world, "an owner", token, &[]);
    let create = || post("api/v1/namespaces?dryRun=All", namespace("solar-robot", &json!({})));
    probe::until("the creation by the owner", RIGHTS_TIMEOUT, || async {
        let answer = owner.send(&create()).await;
        let is_made = answer.status == StatusCode::CREATED && answer.text.contains(TENANT_LABEL);
        Ok(if is_made { Probe::Ready(()) } else { Probe::NotYet(answer.text) })
    })
    .await
    .unwrap();
    let namesake = namesake(tenants);
    namesake.until_allowed(&Right::CreateNamespace.review().unwrap()).await;
    let answer = namesake.send(&create()).await;
    let text = "the namespace belongs to no tenant of yours";
    assert!(
        answer.status == StatusCode::FORBIDDEN && answer.text.contains(text),
        "{}",
        answer.text
    );
}

/// The gateway joins its own selector with that of the client.
async fn lists_show_namespaces_of_the_own_tenant_only(tenants: &TwoTenants) {
    for member in [&tenants.alice, &tenants.vera, &tenants.bob] {
        let attacker = Attacker::at_gateway(&member.person.email, member.person.at(0), &[]);
        for (query, is_shown) in [
            ("", true),
            ("?watch=1&timeoutSeconds=1", true),
            ("?labelSelector=tenant-broker.io/tenant+in+%28solar,lunar%29", true),
            ("?labelSelector=tenant-broker.io/tenant%3Dlunar", false),
            ("?labelSelector=tenant-broker.io/home", false),
            ("?fieldSelector=metadata.name%3Dlunar-a", false),
            ("?fieldSelector=metadata.name%21%3Dsolar-a", false),
        ] {
            let path = format!("api/v1/namespaces{query}");
            let answer = attacker.send(&attempt(Method::GET, path)).await;
            let what = format!("{} {query}: {} {}", attacker.who, answer.status, answer.text);
            assert_eq!(answer.status, StatusCode::OK, "{what}");
            assert_eq!(answer.text.contains("\"solar-a\""), is_shown, "{what}");
            for other in ["lunar-a", "tenant-solar", "tenant-lunar"] {
                assert!(!answer.text.contains(&format!("\"{other}\"")), "{what}");
            }
        }
    }
}
