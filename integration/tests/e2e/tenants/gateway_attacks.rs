//! Attacks through the gateway by people of all kinds. What the policies refuse to the same people
//! directly is tested in `guards` and `direct_namespaces`, and what they refuse to the broker in
//! `fence`.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use integration::api::Api;
use integration::world::World;
use serde_json::{Value, json};

use super::attempt::{Attempt, apply, attempt, labels, namespace, patch, post, put};
use super::audit_events::{lists_as_broker, until_logged};
use super::cluster::{account, group, role_binding, user};
use super::cluster_state::ClusterState;
use super::gateway_lists::{a_page_of_others_shows_nothing, an_upgrade_is_not_the_brokers};
use crate::gateway::GATEWAY;

const RBAC: &str = "apis/rbac.authorization.k8s.io/v1";
const OBJECTS: &[&str] = &["tenant-guard-tenant-objects"];
const TOKENS: &[&str] = &["tenant-tokens"];

/// Status of a refusal, and texts of which it has one.
pub(super) type Expected = (StatusCode, &'static [&'static str]);

const NO_RIGHT: Expected = (StatusCode::FORBIDDEN, &["cannot "]);
const INVALID: Expected = (StatusCode::UNPROCESSABLE_ENTITY, &["is invalid"]);
const EXISTS: Expected = (StatusCode::CONFLICT, &["already exists"]);
const OWNS_NOTHING: Expected = (StatusCode::FORBIDDEN, &["you own no tenant"]);
const NO_TENANT: Expected = (StatusCode::FORBIDDEN, &["there is no such tenant"]);
pub(super) const NO_WORKSPACE: Expected = (StatusCode::NOT_FOUND, &["you have no workspace"]);

/// Somebody who attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// An owner of solar with the role `admin`.
    Owner,
    /// An owner of solar with the role `view`.
    ViewOnlyOwner,
    /// A member of solar with the role `view`.
    Viewer,
    /// The owner of lunar, who is an outsider to solar.
    OwnerOfLunar,
    /// Somebody without a tenant.
    Nobody,
}

impl Who {
    /// The namespace that they see; `None` without a tenant.
    pub(super) fn own_namespace(self) -> Option<&'static str> {
        match self {
            Self::Owner | Self::ViewOnlyOwner | Self::Viewer => Some("solar-a"),
            Self::OwnerOfLunar => Some("lunar-a"),
            Self::Nobody => None,
        }
    }

    /// Whether a namespace is the home of their tenant, or the one that they see.
    fn has(self, namespace: &str) -> bool {
        let home = if self == Self::OwnerOfLunar { "tenant-lunar" } else { "tenant-solar" };
        self.own_namespace().is_some_and(|own| namespace == own || namespace == home)
    }

    /// Whether they may do it: the owner of lunar deletes and creates its namespaces.
    fn may(self, attempt: &Attempt) -> bool {
        let name = attempt.body.as_ref().map(|(_, body)| &body["metadata"]["name"]);
        let creates = attempt.method == Method::POST && name.is_some_and(|it| it == "lunar-x");
        let deletes =
            attempt.method == Method::DELETE && attempt.path == "api/v1/namespaces/lunar-a";
        self == Self::OwnerOfLunar && (creates || deletes)
    }
}

/// What refuses an attempt.
#[derive(Clone, Copy, Debug)]
enum RefusedBy {
    /// RBAC: no member has the right.
    Rbac,
    /// A policy with this name if the caller has the role `admin` in `solar-a`, and RBAC otherwise.
    Policy(&'static [&'static str]),
    /// RBAC if the caller has this namespace. The gateway takes server-side apply of another one for
    /// its creation.
    Apply(&'static str),
    /// The gateway, which creates namespaces, because of this fault.
    Creation(Fault),
    /// The gateway.
    Gateway(StatusCode, &'static [&'static str]),
}

/// A fault of a namespace that somebody creates.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It exists.
    Exists,
    /// Its label names the tenant lunar.
    OfLunar,
    /// Its name, or its labels or annotations. Those who own no tenant are refused before.
    Metadata,
    /// It has owners or finalizers, which the gateway does not read.
    Unsupported,
}

impl RefusedBy {
    fn expected(self, who: Who) -> Expected {
        match self {
            _ if who == Who::Nobody => NO_WORKSPACE,
            Self::Policy(texts) if who == Who::Owner => (StatusCode::FORBIDDEN, texts),
            Self::Rbac | Self::Policy(_) => NO_RIGHT,
            Self::Apply(namespace) if who.has(namespace) => NO_RIGHT,
            Self::Apply(_) => Fault::OfLunar.expected(who),
            Self::Creation(fault) => fault.expected(who),
            Self::Gateway(status, texts) => (status, texts),
        }
    }
}

impl Fault {
    /// The owner of lunar creates no namespaces with these names.
    fn expected(self, who: Who) -> Expected {
        match (self, who) {
            (Self::OfLunar, who) if who != Who::OwnerOfLunar => NO_TENANT,
            (Self::Exists | Self::Metadata, Who::Viewer) => OWNS_NOTHING,
            (Self::Exists, Who::Owner | Who::ViewOnlyOwner) => EXISTS,
            _ => INVALID,
        }
    }
}

type Attack = (Attempt, RefusedBy);

fn by_rbac(attempts: impl IntoIterator<Item = Attempt>) -> impl Iterator<Item = Attack> {
    attempts.into_iter().map(|attempt| (attempt, RefusedBy::Rbac))
}

/// Changes of namespaces themselves: theirs, another tenant's, a home, and one of nobody.
fn of_namespaces() -> Vec<Attack> {
    let mut attacks: Vec<Attack> =
        by_rbac([attempt(Method::DELETE, "api/v1/namespaces")]).collect();
    for name in ["solar-a", "lunar-a", "tenant-solar", "kube-system"] {
        let path = format!("api/v1/namespaces/{name}");
        let to_lunar = labels(&json!({"tenant-broker.io/tenant": "lunar"}));
        let moved = namespace(name, &to_lunar["metadata"]);
        attacks.extend(by_rbac([
            patch(&path, to_lunar),
            patch(&path, labels(&json!({"tenant-broker.io/tenant": null}))),
            patch(&path, labels(&json!({"pod-security.kubernetes.io/enforce": "privileged"}))),
            patch(
                &path,
                json!({"metadata": {"annotations":
                {"scheduler.alpha.kubernetes.io/node-selector": "pool=a"}}}),
            ),
            patch(&path, json!({"metadata": {"finalizers": ["example.com/hold"]}})),
            put(&path, moved.clone()),
            put(format!("{path}/finalize"), moved.clone()),
            patch(format!("{path}/status"), labels(&json!({"team": "x"}))),
            put(format!("{path}/status"), moved.clone()),
        ]));
        let applied = apply(format!("{path}?fieldManager=attacker"), moved);
        attacks.push((applied, RefusedBy::Apply(name)));
    }
    let others = ["lunar-a", "tenant-solar", "tenant-lunar", "kube-system"];
    attacks.extend(by_rbac(
        others.map(|name| attempt(Method::DELETE, format!("api/v1/namespaces/{name}"))),
    ));
    attacks
}

/// Objects in homes, and ways to become an owner.
fn of_homes() -> Vec<Attempt> {
    let mut attempts = Vec::new();
    for home in ["tenant-solar", "tenant-lunar"] {
        let path = format!("api/v1/namespaces/{home}");
        let owner = role_binding(home, "mine", "tenant-owner", &json!([user("mallory")]));
        attempts.extend([
            post(format!("{path}/configmaps"), json!({"metadata": {"name": "x"}})),
            post(format!("{path}/serviceaccounts"), json!({"metadata": {"name": "member-x"}})),
            attempt(Method::GET, format!("{path}/serviceaccounts")),
            attempt(Method::GET, format!("{path}/secrets")),
            post(format!("{path}/serviceaccounts/default/token"), json!({"spec": {}})),
            post(format!("{RBAC}/namespaces/{home}/rolebindings"), owner),
            attempt(Method::DELETE, format!("{RBAC}/namespaces/{home}/rolebindings")),
        ]);
    }
    let tenants = "apis/tenant-broker.io/v1alpha1/tenants";
    let mine = json!({"apiVersion": "tenant-broker.io/v1alpha1", "kind": "Tenant",
        "metadata": {"name": "mine"}, "spec": {"owners": [{"kind": "User", "name": "mallory"}]}});
    attempts.extend([
        attempt(Method::GET, tenants),
        post(tenants, mine),
        patch(format!("{tenants}/solar"), json!({"spec": {"bindings": "Any"}})),
        patch(format!("{tenants}/solar/status"), json!({"status": {"size": 0}})),
        attempt(Method::DELETE, format!("{tenants}/solar")),
        post(
            format!("{RBAC}/clusterrolebindings"),
            json!({"metadata": {"name": "x"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "cluster-admin"}, "subjects": [user("mallory")]}),
        ),
    ]);
    attempts
}

/// What the broker keeps in a namespace, and whom owners bind.
fn of_bindings() -> Vec<Attack> {
    let bindings = format!("{RBAC}/namespaces/solar-a/rolebindings");
    let bind = |name: &str, subject: Value| {
        post(&bindings, role_binding("solar-a", name, "view", &json!([subject])))
    };
    let own = account("solar-a", "default");
    let mut attacks: Vec<Attack> = [
        bind("x", user("mallory")),
        bind("x", group("developers")),
        bind("x", group("system:authenticated")),
        bind("x", account("lunar-a", "default")),
        bind("x", account("tenant-lunar", "member-x")),
        bind("tenant-solar-edit", own),
        attempt(Method::DELETE, format!("{bindings}/tenant-solar-admin")),
        attempt(Method::DELETE, &bindings),
        patch(format!("{bindings}/tenant-solar-admin"), json!({"subjects": [user("mallory")]})),
    ]
    .map(|attempt| (attempt, RefusedBy::Policy(OBJECTS)))
    .into();
    let token =
        post("api/v1/namespaces/solar-a/serviceaccounts/default/token", json!({"spec": {}}));
    attacks.push((token, RefusedBy::Policy(TOKENS)));
    attacks.extend(by_rbac([
        attempt(Method::GET, "api/v1/namespaces/lunar-a/configmaps"),
        post("api/v1/namespaces/lunar-a/configmaps", json!({"metadata": {"name": "x"}})),
    ]));
    attacks
}

/// New namespaces that squat on names, or whose metadata decides something.
fn of_creations() -> Vec<Attack> {
    let create = |name: &str, metadata: Value, fault| {
        let attempt = post("api/v1/namespaces", namespace(name, &metadata));
        (attempt, RefusedBy::Creation(fault))
    };
    let named = |name: &str, fault| create(name, json!({}), fault);
    let labelled =
        |key: &str, value: &str, fault| create("solar-x", json!({"labels": {key: value}}), fault);
    let nodes = json!({"scheduler.alpha.kubernetes.io/node-selector": "pool=a"});
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c",
        "uid": "00000000-0000-4000-8000-000000000000"}]);
    vec![
        named("solar-a", Fault::Exists),
        named("lunar-x", Fault::Metadata),
        named("tenant-stellar", Fault::Metadata),
        named("kube-x", Fault::Metadata),
        named("x", Fault::Metadata),
        named("solar-", Fault::Metadata),
        named("solar-X", Fault::Metadata),
        named(&format!("solar-{}", "x".repeat(58)), Fault::Metadata),
        labelled("tenant-broker.io/home", "true", Fault::Metadata),
        labelled("tenant-broker.io/bindings", "any", Fault::Metadata),
        labelled("tenant-broker.io/workspace", "x", Fault::Metadata),
        labelled("tenant-broker.io/tenant", "lunar", Fault::OfLunar),
        labelled("pod-security.kubernetes.io/enforce", "privileged", Fault::Metadata),
        create("solar-x", json!({"annotations": nodes}), Fault::Metadata),
        create("solar-x", json!({"finalizers": ["example.com/hold"]}), Fault::Unsupported),
        create("solar-x", json!({"ownerReferences": owners}), Fault::Unsupported),
    ]
}

/// The identity of the broker: it lists namespaces for members, and does nothing else for them.
fn of_the_brokers_identity() -> Vec<Attack> {
    let hidden = RefusedBy::Gateway(StatusCode::NOT_FOUND, &["not found"]);
    let unparsed =
        RefusedBy::Gateway(StatusCode::BAD_REQUEST, &["unable to parse the labelSelector"]);
    // The gateway may close a watch before the API server refuses it.
    let watch = RefusedBy::Gateway(
        StatusCode::FORBIDDEN,
        &["cannot ", "the namespace went to another tenant"],
    );
    let selector = "api/v1/namespaces?labelSelector=a%29%2Cb+in+%28c";
    let mut attacks = vec![
        (attempt(Method::GET, "api/v1/watch/namespaces/lunar-a"), watch),
        (attempt(Method::GET, "api/v1/namespaces/lunar-a?watch=true"), watch),
        (attempt(Method::GET, "api/v1/namespaces/lunar-a"), hidden),
        (attempt(Method::GET, selector), unparsed),
    ];
    attacks.extend(by_rbac([
        attempt(Method::GET, "api/v1/watch/namespaces"),
        attempt(Method::GET, "api/v1/namespaces/lunar-a/status"),
        attempt(Method::POST, "api/v1/namespaces/lunar-a"),
        attempt(Method::PATCH, "api/v1/namespaces"),
        attempt(Method::PUT, "api/v1/namespaces"),
        attempt(Method::GET, "api/v1/pods"),
        attempt(Method::GET, "api/v1/secrets"),
        attempt(Method::GET, "apis/authorization.k8s.io/v1/namespaces"),
    ]));
    attacks
}

fn attacks_of(who: Who) -> Vec<Attack> {
    let mut attacks = of_namespaces();
    attacks.extend(by_rbac(of_homes()));
    attacks.extend(of_creations());
    if who != Who::OwnerOfLunar {
        attacks.extend(of_bindings());
        attacks.extend(of_the_brokers_identity());
    }
    attacks.retain(|(attempt, _)| !who.may(attempt));
    attacks
}

/// What the attacks are about. Members of the attackers' own tenants come and go in a home.
async fn state(world: &World) -> ClusterState {
    let state = ClusterState::read(world).await;
    state.without_accounts_of("tenant-solar").without_accounts_of("tenant-lunar")
}

/// Nobody of these does anything that they may not.
pub(super) async fn are_refused(world: &World, people: &[(Who, Api)]) {
    let before = state(world).await;
    let (mut ids, mut lists) = (BTreeSet::new(), BTreeSet::new());
    for (who, api) in people {
        for (attempt, refused_by) in attacks_of(*who) {
            let path = format!("{GATEWAY}/{}", attempt.path);
            let answer = attempt.send(api.request(attempt.method.clone(), &path).unwrap()).await;
            let (status, texts) = refused_by.expected(*who);
            let is_expected = texts.iter().any(|text| answer.text.contains(text));
            assert!(
                answer.status == status && is_expected,
                "{who:?}: {} {}: {status} {texts:?} and not {} {}",
                attempt.method,
                attempt.path,
                answer.status,
                answer.text
            );
            ids.extend(answer.id);
        }
        for id in [
            an_upgrade_is_not_the_brokers(world, api, *who).await,
            a_page_of_others_shows_nothing(world, api, *who).await,
        ] {
            lists.extend(id.filter(|_| *who != Who::Nobody));
        }
    }
    before.assert_same(&state(world).await);
    until_logged(world, &lists).await;
    ids.extend(lists.iter().cloned());
    // The broker's identity lists namespaces by the tenants of the caller, and did none of the attacks.
    assert_eq!(lists_as_broker(world, &ids), lists);
}
