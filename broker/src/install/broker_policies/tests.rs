use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;

use super::*;
use crate::{
    cluster::ClusterList,
    install::{Permission, manifest, tests::parameters},
    tenant::TenantSettings,
};

fn with_tenants(settings: TenantSettings) -> Parameters {
    let tenants = TenantSettings { enabled: true, ..settings };
    Parameters { tenants, ..parameters("tenant-broker") }
}

fn has(parameters: &Parameters, verb: &str, group: &str, resource: &str, name: &str) -> bool {
    let is = |it: &Permission| {
        it.verb == verb && it.group == group && it.resource == resource && it.name == name
    };
    parameters.permissions().iter().any(is)
}

/// The names of a policy's bindings, and the label keys and operators of their selectors.
fn bindings(policy: &Policy) -> Vec<(String, Vec<(String, String)>)> {
    let selector = |binding: ValidatingAdmissionPolicyBinding| {
        let name = binding.metadata.name.unwrap();
        let matched = binding.spec.unwrap().match_resources;
        let selector = matched.and_then(|it| it.namespace_selector).unwrap_or_default();
        let expressions = selector.match_expressions.unwrap_or_default();
        (name, expressions.into_iter().map(|it| (it.key, it.operator)).collect())
    };
    policy.bindings().into_iter().map(selector).collect()
}

fn named<'a>(policies: &'a [Policy], name: &str) -> &'a Policy {
    policies.iter().find(|policy| policy.name() == name).unwrap()
}

#[test]
fn without_tenants_nothing_mentions_them() {
    let yaml = manifest(&parameters("tenant-broker"));
    for part in ["tenant-broker.io/tenant", "tenant-owner", "member-", "fence-tenant", "-tenants"] {
        assert!(!yaml.contains(part), "{part}");
    }
    for setting in [
        TenantSettings { write: true, ..TenantSettings::default() },
        TenantSettings { cluster_lists: ClusterList::ALL.into(), ..TenantSettings::default() },
    ] {
        let parameters = Parameters { tenants: setting, ..parameters("tenant-broker") };
        assert_eq!(manifest(&parameters), yaml);
    }
}

#[test]
fn the_manifest_with_tenants() {
    insta::assert_snapshot!(manifest(&with_tenants(TenantSettings::default())));
}

/// With `tenants.write` the broker writes Tenants of its own group, and of their metadata one
/// annotation.
#[test]
fn the_policy_and_the_rights_with_which_the_broker_writes_tenants() {
    let write = TenantSettings { write: true, ..TenantSettings::default() };
    let parameters = Parameters { capsule_api: true, ..with_tenants(write) };
    for verb in ["create", "update", "delete", "patch", "deletecollection"] {
        let expected = ["create", "update", "delete"].contains(&verb);
        assert_eq!(has(&parameters, verb, "tenant-broker.io", "tenants", ""), expected, "{verb}");
        assert!(!has(&parameters, verb, "capsule.clastix.io", "tenants", ""), "{verb}");
        let without = with_tenants(TenantSettings::default());
        assert!(!has(&without, verb, "tenant-broker.io", "tenants", ""), "{verb}");
    }
    let policies = parameters.policies();
    let policy = named(&policies, "tenant-broker-fence-tenants");
    insta::assert_snapshot!(serde_norway::to_string(&policy.policy().spec).unwrap());
}

#[test]
fn a_policy_for_managed_namespaces_has_a_binding_for_each_label() {
    let policies = with_tenants(TenantSettings::default()).policies();
    let exists = |label: &str| vec![(label.to_owned(), "Exists".to_owned())];
    assert_eq!(
        bindings(named(&policies, "tenant-tokens")),
        [
            ("tenant-tokens".to_owned(), exists("tenant-broker.io/workspace")),
            ("tenant-tokens-tenants".to_owned(), exists("tenant-broker.io/tenant")),
        ]
    );
    let lacks = |label: &str| (label.to_owned(), "DoesNotExist".to_owned());
    let both = vec![lacks("tenant-broker.io/workspace"), lacks("tenant-broker.io/tenant")];
    let outside = "tenant-broker-fence-outside";
    assert_eq!(bindings(named(&policies, outside)), [(outside.to_owned(), both)]);
    // Different rules hold for the objects of personal workspaces and of tenants.
    for (name, label) in [
        ("tenant-broker-fence-objects", "tenant-broker.io/workspace"),
        ("tenant-broker-fence-tenant-objects", "tenant-broker.io/tenant"),
    ] {
        assert_eq!(bindings(named(&policies, name)), [(name.to_owned(), exists(label))]);
    }
}

#[test]
fn no_two_objects_have_one_name() {
    let policies = with_tenants(TenantSettings::default()).policies();
    let mut names: Vec<String> = policies.iter().flat_map(Policy::binding_names).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// Otherwise a request for a namespace is matched by no policy, or by both.
#[test]
fn the_conditions_of_the_policies_for_namespaces_are_opposites() {
    let parameters = with_tenants(TenantSettings::default());
    let of_tenants = namespace_conditions(&parameters, true);
    let of_others = namespace_conditions(&parameters, false);
    assert_eq!((of_tenants.len(), of_others.len()), (2, 2));
    assert_eq!(of_others[1].1, format!("!({})", of_tenants[1].1));
}

#[test]
fn the_broker_may_read_every_binding_that_it_verifies() {
    const GROUP: &str = "admissionregistration.k8s.io";
    let parameters = with_tenants(TenantSettings::default());
    for policy in parameters.policies() {
        assert!(has(&parameters, "get", GROUP, "validatingadmissionpolicies", policy.name()));
        for name in policy.binding_names() {
            let resource = "validatingadmissionpolicybindings";
            assert!(has(&parameters, "get", GROUP, resource, &name), "{name}");
        }
    }
    let second = "tenant-tokens-tenants";
    assert!(!has(&parameters, "get", GROUP, "validatingadmissionpolicies", second));
}

#[test]
fn permissions_for_tenants_follow_the_settings() {
    const BROKER_GROUP: &str = "tenant-broker.io";
    let default = with_tenants(TenantSettings::default());
    let write = with_tenants(TenantSettings { write: true, ..TenantSettings::default() });
    let lists = with_tenants(TenantSettings {
        cluster_lists: vec![ClusterList::Nodes],
        ..TenantSettings::default()
    });
    let without = parameters("tenant-broker");
    assert!(has(&default, "patch", BROKER_GROUP, "tenants/status", ""));
    for verb in ["create", "update", "delete"] {
        assert!(
            !has(&default, verb, BROKER_GROUP, "tenants", "")
                && has(&write, verb, BROKER_GROUP, "tenants", "")
        );
    }
    for verb in ["list", "watch"] {
        assert!(!has(&default, verb, "", "nodes", "") && has(&lists, verb, "", "nodes", ""));
    }
    assert!(!has(&lists, "get", "", "nodes", ""), "the gateway reads no single object");
    for (resource, verb) in [("serviceaccounts/token", "create"), ("serviceaccounts", "delete")] {
        assert!(has(&default, verb, "", resource, "") && !has(&without, verb, "", resource, ""));
    }
    for (role, is_bound) in [("tenant-owner", true), ("view", true), ("cluster-admin", false)] {
        assert_eq!(has(&default, "bind", RBAC, "clusterroles", role), is_bound, "{role}");
    }
    let capsule = Parameters { capsule_api: true, ..default.clone() };
    assert!(has(&capsule, "watch", "capsule.clastix.io", "tenants", ""));
    assert!(!has(&default, "watch", "capsule.clastix.io", "tenants", ""));
    for verb in ["update", "delete"] {
        assert!(!has(&write, verb, "", "namespaces", ""), "{verb}");
    }
}

#[test]
fn with_free_names_the_protected_names_still_hold() {
    let names = |free_names| {
        let settings = TenantSettings { free_names, ..TenantSettings::default() };
        let policies = with_tenants(settings).policies();
        let policy = named(&policies, "tenant-broker-fence-tenant-namespaces");
        let mut expressions = policy.validations.iter().map(|(expression, _)| expression);
        expressions.find(|expression| expression.contains("istio-system")).unwrap().clone()
    };
    let prefix = r#"variables.name.startsWith(variables.tenant + "-")"#;
    assert!(names(false).contains(prefix));
    assert!(!names(true).contains(prefix));
}
