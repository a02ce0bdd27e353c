use std::collections::BTreeSet;

use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use proptest::prelude::*;
use serde_json::{Value, json};
use tenant_shared::TENANT_LABEL;

use super::*;
use crate::{
    config::{Config, Settings},
    tenant::{AddedKeys, ConditionType, member_account_name},
};

fn tiers() -> Tiers {
    let settings = Settings::load(None, std::iter::empty(), &[]).unwrap();
    Config::from_settings(settings).unwrap().tiers
}

fn member(number: u128, user_name: &str, groups: &[&str]) -> Member {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let user_name = Some(user_name.to_owned()).filter(|name| !name.is_empty());
    Member {
        user: Uuid::from_u128(number),
        person: RbacUser { user_name, groups },
        suspended: false,
    }
}

fn parse(spec: &Value) -> Tenant {
    Tenant::parse("solar", spec).unwrap()
}

fn solar() -> Value {
    json!({
        "owners": [
            {"kind": "User", "name": "alice"},
            {"kind": "User", "name": "joe", "clusterRoles": ["view"]},
            {"kind": "Group", "name": "solar-users", "clusterRoles": ["view"]},
            {"kind": "ServiceAccount", "name": "system:serviceaccount:tenant-system:robot"},
        ],
        "additionalRoleBindings": [
            {"clusterRoleName": "edit", "subjects": [{"kind": "User", "name": "bob"}]},
        ],
    })
}

/// The desired state with the default settings and two namespaces.
fn state(spec: &Value, members: &[Member], suspended: bool) -> Desired {
    desired_state(&Inputs {
        tenant: &parse(spec),
        suspended,
        members,
        namespaces: &["solar-a", "solar-b"],
        settings: &TenantSettings::default(),
        tiers: &tiers(),
    })
}

/// The state of an active tenant without members, with these settings.
fn state_with(spec: &Value, settings: &TenantSettings) -> Desired {
    desired_state(&Inputs {
        tenant: &parse(spec),
        suspended: false,
        members: &[],
        namespaces: &["solar-a"],
        settings,
        tiers: &tiers(),
    })
}

fn namespace_of(objects: &[Object]) -> &Namespace {
    match objects.first() {
        Some(Object::Namespace(namespace)) => namespace,
        other => panic!("no namespace: {other:?}"),
    }
}

fn label<'a>(objects: &'a [Object], name: &str) -> Option<&'a str> {
    let labels = namespace_of(objects).metadata.labels.as_ref()?;
    labels.get(name).map(String::as_str)
}

fn bindings(objects: &[Object]) -> Vec<&RoleBinding> {
    objects
        .iter()
        .filter_map(|object| match object {
            Object::RoleBinding(binding) => Some(&**binding),
            _ => None,
        })
        .collect()
}

/// Names of the subjects of the binding of a role.
fn subjects(objects: &[Object], role: &str) -> Vec<String> {
    let bindings = bindings(objects).into_iter().filter(|binding| binding.role_ref.name == role);
    bindings.flat_map(|it| it.subjects.iter().flatten()).map(|it| it.name.clone()).collect()
}

fn kinds(conditions: &[Condition]) -> Vec<ConditionType> {
    conditions.iter().map(|condition| condition.kind).collect()
}

#[test]
fn every_subject_has_its_roles_in_each_namespace() {
    let members = [member(1, "alice", &[]), member(2, "", &["solar-users"]), member(3, "bob", &[])];
    let [alice, user, bob] = [1, 2, 3].map(|it| member_account_name(Uuid::from_u128(it)));
    let desired = state(&solar(), &members, false);
    assert_eq!(desired.namespaces.keys().collect::<Vec<_>>(), ["solar-a", "solar-b"]);
    for objects in desired.namespaces.values() {
        let names: Vec<_> = bindings(objects).iter().map(|it| it.metadata.name.clone()).collect();
        let wanted = ["admin", "edit", "tenant-namespace-deleter", "view"];
        assert_eq!(names, wanted.map(|role| Some(format!("tenant-solar-{role}"))));
        assert_eq!(subjects(objects, "admin"), ["alice", alice.as_str(), "robot"]);
        assert_eq!(subjects(objects, "view"), ["joe", "solar-users", user.as_str()]);
        assert_eq!(subjects(objects, "edit"), ["bob", bob.as_str()]);
    }
    let owners = ["alice", "joe", "solar-users", alice.as_str(), user.as_str(), "robot"];
    assert_eq!(subjects(&desired.home, "tenant-owner"), owners);
    assert!(desired.conditions.is_empty());
}

#[test]
fn bindings_are_as_the_api_server_returns_them() {
    let desired = state(&solar(), &[member(1, "bob", &[])], false);
    let edit = bindings(&desired.namespaces["solar-a"])
        .into_iter()
        .find(|binding| binding.role_ref.name == "edit")
        .unwrap();
    assert_eq!(
        serde_json::to_value(edit).unwrap(),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {
                "name": "tenant-solar-edit",
                "namespace": "solar-a",
                "labels": {
                    "app.kubernetes.io/managed-by": "tenant-broker",
                    "tenant-broker.io/tenant": "solar",
                },
            },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "edit",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"},
                {
                    "kind": "ServiceAccount",
                    "name": member_account_name(Uuid::from_u128(1)),
                    "namespace": "tenant-solar",
                },
            ],
        })
    );
}

#[test]
fn a_suspended_tenant_has_no_binding_and_is_marked() {
    let desired = state(&solar(), &[member(1, "alice", &[])], true);
    for objects in desired.namespaces.values().chain([&desired.home]) {
        assert!(bindings(objects).is_empty());
        assert_eq!(label(objects, "tenant-broker.io/suspended"), Some("true"));
        assert_eq!(label(objects, TENANT_LABEL), Some("solar"));
    }
}

#[test]
fn a_suspended_member_is_no_subject_and_others_of_the_group_are() {
    let mut members = [member(1, "", &["solar-users"]), member(2, "", &["solar-users"])];
    members[0].suspended = true;
    let desired = state(&solar(), &members, false);
    let other = member_account_name(Uuid::from_u128(2));
    let view = subjects(&desired.namespaces["solar-a"], "view");
    assert_eq!(view, ["joe", "solar-users", other.as_str()]);
    let suspended = member_account_name(Uuid::from_u128(1));
    assert!(!subjects(&desired.home, "tenant-owner").contains(&suspended));
}

#[test]
fn a_role_that_is_not_allowed_is_not_bound_and_reported() {
    let mut spec = solar();
    spec["additionalRoleBindings"][0]["clusterRoleName"] = json!("argoproj-provisioner");
    let desired = state(&spec, &[member(1, "bob", &[])], false);
    assert!(subjects(&desired.namespaces["solar-a"], "argoproj-provisioner").is_empty());
    assert_eq!(subjects(&desired.namespaces["solar-a"], "admin"), ["alice", "robot"]);
    assert_eq!(kinds(&desired.conditions), [ConditionType::RoleNotAllowed]);
}

#[test]
fn service_accounts_of_members_and_of_kubernetes_are_not_bound_and_reported() {
    let spec = json!({
        "owners": [
            {"kind": "ServiceAccount", "name": "system:serviceaccount:tenant-lunar:member-x"},
            {"kind": "ServiceAccount", "name": "system:serviceaccount:tenant-solar:member-x"},
            {"kind": "ServiceAccount", "name": "system:serviceaccount:kube-system:x"},
            {"kind": "Group", "name": "system:serviceaccounts:tenant-lunar"},
        ],
    });
    let desired = state(&spec, &[], false);
    assert_eq!(kinds(&desired.conditions), [ConditionType::SubjectNotAllowed]);
    for objects in desired.namespaces.values().chain([&desired.home]) {
        assert!(bindings(objects).is_empty());
    }
}

#[test]
fn namespaces_have_the_metadata_of_the_tenant_and_its_tier() {
    let spec = json!({
        "owners": [{"kind": "User", "name": "alice"}],
        "namespaceOptions": {"additionalMetadata": {
            "labels": {"team": "a"},
            "annotations": {"example.com/cost": "1"},
        }},
        "nodeSelector": {"pool": "solar", "zone": "b"},
        "bindings": "Any",
        "tier": "basic",
    });
    let desired = state(&spec, &[], false);
    let tiers = tiers();
    let objects = &desired.namespaces["solar-a"];
    let level = tiers.get("basic").unwrap().pod_security.as_str();
    for (name, value) in [
        ("app.kubernetes.io/managed-by", "tenant-broker"),
        ("tenant-broker.io/tenant", "solar"),
        ("tenant-broker.io/tier", "basic"),
        ("tenant-broker.io/bindings", "any"),
        ("pod-security.kubernetes.io/enforce", level),
        ("pod-security.kubernetes.io/warn", level),
        ("team", "a"),
    ] {
        assert_eq!(label(objects, name), Some(value), "{name}");
    }
    assert_eq!(label(objects, "tenant-broker.io/home"), None);
    let annotations = namespace_of(objects).metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["example.com/cost"], "1");
    assert_eq!(annotations["scheduler.alpha.kubernetes.io/node-selector"], "pool=solar,zone=b");
    let added = AddedKeys::read(namespace_of(objects));
    assert_eq!(added.labels, BTreeSet::from(["team".to_owned()]));
    assert_eq!(added.annotations, BTreeSet::from(["example.com/cost".to_owned()]));
    assert_eq!(label(&desired.home, "tenant-broker.io/home"), Some("true"));
    assert_eq!(label(&desired.home, "pod-security.kubernetes.io/enforce"), Some("restricted"));
    assert_eq!(label(&desired.home, "tenant-broker.io/tier"), None);
    assert_eq!(label(&desired.home, "team"), None);
}

#[test]
fn a_tier_that_is_not_configured_is_reported_and_not_on_the_namespace() {
    let spec = json!({"owners": [{"kind": "User", "name": "alice"}], "tier": "gold"});
    let desired = state(&spec, &[], false);
    assert_eq!(kinds(&desired.conditions), [ConditionType::UnknownTier]);
    let objects = &desired.namespaces["solar-a"];
    assert_eq!(label(objects, "tenant-broker.io/tier"), None);
    let strictest = tiers().pod_security_levels().last().map(|level| (*level).to_owned());
    let level = label(objects, "pod-security.kubernetes.io/enforce");
    assert_eq!(level, strictest.as_deref());
}

#[test]
fn limits_come_before_rights_and_a_shared_quota_begins_with_nothing() {
    let spec = |scope: &str| {
        json!({
            "owners": [{"kind": "User", "name": "alice", "clusterRoles": ["view"]}],
            "resourceQuotas": {"scope": scope, "items": [{"hard": {"pods": "9"}}]},
            "limitRanges": {"items": [{"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}]},
        })
    };
    for (scope, amount, shared) in [("Namespace", "9", 0), ("Tenant", "0", 1)] {
        let desired = state(&spec(scope), &[], false);
        let objects = &desired.namespaces["solar-b"];
        let kinds: Vec<&str> = objects.iter().map(Object::kind).collect();
        assert_eq!(kinds, ["Namespace", "ResourceQuota", "LimitRange", "RoleBinding"]);
        let quota = serde_json::to_value(&objects[1]).unwrap();
        assert_eq!(quota["metadata"]["name"], "tenant-quota-0");
        assert_eq!(quota["spec"], json!({"hard": {"pods": amount}}), "{scope}");
        assert_eq!(desired.shared_quotas.len(), shared, "{scope}");
        let kinds: Vec<&str> = desired.home.iter().map(Object::kind).collect();
        assert_eq!(kinds, ["Namespace", "RoleBinding"]);
    }
    let shared = state(&spec("Tenant"), &[], false).shared_quotas;
    assert_eq!(shared["tenant-quota-0"]["pods"], Quantity("9".to_owned()));
}

/// Names of people and groups, so that some of them match.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const ROLES: [&str; 4] = ["admin", "view", "argo", "edit"];

fn any_spec() -> impl Strategy<Value = Value> {
    let kind = proptest::sample::select(vec!["User", "Group"]);
    let name = proptest::sample::select(NAMES.to_vec());
    let roles = proptest::sample::subsequence(ROLES.to_vec(), 0..=4);
    let owners = proptest::collection::btree_map((kind.clone(), name.clone()), roles, 1..5);
    let role = proptest::sample::select(ROLES.to_vec());
    let bindings = proptest::collection::vec((role, kind, name), 0..4);
    (owners, bindings).prop_map(|(owners, bindings)| {
        let owners: Vec<Value> = owners
            .into_iter()
            .map(|((kind, name), roles)| json!({"kind": kind, "name": name, "clusterRoles": roles}))
            .collect();
        let bindings: Vec<Value> = bindings
            .into_iter()
            .map(|(role, kind, name)| {
                json!({"clusterRoleName": role, "subjects": [{"kind": kind, "name": name}]})
            })
            .collect();
        json!({"owners": owners, "additionalRoleBindings": bindings})
    })
}

fn any_members() -> impl Strategy<Value = Vec<Member>> {
    let name = proptest::sample::select(vec!["a", "b", "x", ""]);
    let groups = proptest::sample::subsequence(NAMES.to_vec(), 0..=4);
    proptest::collection::vec((name, groups, any::<bool>()), 0..5).prop_map(|members| {
        let numbered = members.into_iter().zip(1..);
        numbered
            .map(|((name, groups, suspended), number)| Member {
                suspended,
                ..member(number, name, &groups)
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn exactly_the_subjects_and_matching_members_have_a_role(
        spec in any_spec(),
        members in any_members(),
    ) {
        let desired = state(&spec, &members, false);
        let settings = TenantSettings::default();
        let tenant = parse(&spec);
        for objects in desired.namespaces.values() {
            for binding in bindings(objects) {
                let role = binding.role_ref.name.as_str();
                prop_assert!(settings.cluster_roles.iter().any(|allowed| allowed.as_str() == role));
            }
            for role in ROLES.into_iter().filter(|role| *role != "argo") {
                // Who has the role by the specification, decided in another way.
                let mut wanted = BTreeSet::new();
                let owners = tenant.owners.iter().filter(|owner| {
                    owner.cluster_roles.iter().any(|name| name.as_str() == role)
                });
                let bound = tenant.additional_role_bindings.iter();
                let bound = bound.filter(|binding| binding.cluster_role.as_str() == role);
                let named = owners.map(|owner| owner.subject.to_string());
                let named: BTreeSet<String> = named
                    .chain(bound.flat_map(|it| it.subjects.iter().map(ToString::to_string)))
                    .collect();
                for member in members.iter().filter(|member| !member.suspended) {
                    let is_user = |name: &String| named.contains(&format!("User {name}"));
                    let is_group = |name: &String| named.contains(&format!("Group {name}"));
                    let person = &member.person;
                    if person.user_name.iter().any(is_user) || person.groups.iter().any(is_group) {
                        wanted.insert(format!("ServiceAccount {}", member_account_name(member.user)));
                    }
                }
                wanted.extend(named);
                let bound: Vec<String> = bindings(objects)
                    .into_iter()
                    .filter(|binding| binding.role_ref.name == role)
                    .flat_map(|binding| binding.subjects.iter().flatten())
                    .map(|subject| format!("{} {}", subject.kind, subject.name))
                    .collect();
                let found: BTreeSet<String> = bound.iter().cloned().collect();
                prop_assert_eq!(found.len(), bound.len());
                prop_assert_eq!(found, wanted, "{}", role);
            }
        }
    }

    #[test]
    fn the_state_does_not_depend_on_the_order_of_members(
        spec in any_spec(),
        members in any_members(),
    ) {
        let reversed: Vec<Member> = members.iter().rev().cloned().collect();
        prop_assert_eq!(state(&spec, &members, false), state(&spec, &reversed, false));
    }

    #[test]
    fn nobody_has_rights_in_a_suspended_tenant(spec in any_spec(), members in any_members()) {
        let desired = state(&spec, &members, true);
        for objects in desired.namespaces.values().chain([&desired.home]) {
            prop_assert!(bindings(objects).is_empty());
        }
    }
}

#[test]
fn labels_that_the_operator_protects_are_left_out_and_named() {
    let mut spec = solar();
    spec["namespaceOptions"] = json!({"additionalMetadata": {
        "labels": {"control-plane": "x", "team": "a"}, "annotations": {"control-plane": "y"},
    }});
    let state = |pattern: Option<&str>| {
        let protected_labels = pattern.map(|pattern| pattern.to_owned().into());
        state_with(&spec, &TenantSettings { protected_labels, ..TenantSettings::default() })
    };
    let free = state(None);
    assert_eq!(label(&free.namespaces["solar-a"], "control-plane"), Some("x"));
    assert!(free.conditions.is_empty());

    let protected = state(Some("^control-plane$"));
    let objects = &protected.namespaces["solar-a"];
    assert_eq!((label(objects, "control-plane"), label(objects, "team")), (None, Some("a")));
    let keys = AddedKeys::read(namespace_of(objects));
    assert!(!keys.labels.contains("control-plane") && keys.annotations.contains("control-plane"));
    assert_eq!(kinds(&protected.conditions), [ConditionType::NotCarriedOut]);
    let message = &protected.conditions[0].message;
    let field = "spec.namespaceOptions.additionalMetadata.labels[control-plane]";
    assert!(message.contains(field), "{message}");
}

/// The API server ignores the annotation without the plugin.
#[test]
fn a_node_selector_is_reported_unless_the_api_server_has_the_plugin() {
    let mut spec = solar();
    spec["nodeSelector"] = json!({"pool": "solar"});
    let state = |pod_node_selector| {
        state_with(&spec, &TenantSettings { pod_node_selector, ..TenantSettings::default() })
    };
    let (without, with) = (state(false), state(true));
    assert_eq!(kinds(&without.conditions), [ConditionType::NotCarriedOut]);
    let message = &without.conditions[0].message;
    assert!(message.contains("spec.nodeSelector for pods"), "{message}");
    assert!(with.conditions.is_empty(), "{:?}", with.conditions);
    for state in [without, with] {
        let namespace = namespace_of(&state.namespaces["solar-a"]);
        let annotations = namespace.metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations["scheduler.alpha.kubernetes.io/node-selector"], "pool=solar");
    }
}

/// Files for Capsule name its role.
#[test]
fn the_role_of_capsule_that_deletes_namespaces_stands_for_ours() {
    let owner = |role: &str| json!({"owners": [{"kind": "User", "name": "alice", "clusterRoles": ["view", role]}]});
    let [theirs, ours] =
        [tenant_shared::CAPSULE_NAMESPACE_DELETER_ROLE, "tenant-namespace-deleter"]
            .map(|role| state(&owner(role), &[], false));
    assert!(theirs.conditions.is_empty(), "{:?}", theirs.conditions);
    assert_eq!(subjects(&theirs.namespaces["solar-a"], "tenant-namespace-deleter"), ["alice"]);
    assert_eq!(theirs.namespaces, ours.namespaces);
}
