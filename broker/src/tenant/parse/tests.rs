use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    cluster::ClusterList,
    tenant::{Subject, schema::DEFAULT_CLUSTER_ROLES},
};

fn violations(name: &str, spec: &Value) -> Vec<String> {
    let violations = Tenant::parse(name, spec).unwrap_err();
    violations.into_iter().map(|violation| violation.field).collect()
}

#[test]
fn a_tenant_has_its_owners_with_the_default_roles() {
    let spec = json!({
        "owners": [
            {"kind": "User", "name": "alice"},
            {"kind": "User", "name": "joe", "clusterRoles": ["view", "tenant-resources"]},
        ],
        "additionalRoleBindings": [{
            "clusterRoleName": "argoproj-provisioner",
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"},
            ],
        }],
        "resourceQuotas": {"items": [{"hard": {"requests.cpu": "8", "pods": 10}}]},
        "networkPolicies": {},
    });
    let tenant = Tenant::parse("solar", &spec).unwrap();
    assert_eq!(tenant.name.as_str(), "solar");
    let roles = |owner: &Owner| -> Vec<String> {
        owner.cluster_roles.iter().map(ToString::to_string).collect()
    };
    assert_eq!(roles(&tenant.owners[0]), DEFAULT_CLUSTER_ROLES);
    assert_eq!(roles(&tenant.owners[1]), ["view", "tenant-resources"]);
    let subjects = &tenant.additional_role_bindings[0].subjects;
    assert_eq!(*subjects, [Subject::User("joe".into())]);
    assert_eq!(tenant.quota_scope, QuotaScope::Tenant);
    let amounts =
        ["pods", "requests.cpu"].map(|resource| tenant.quotas[0].hard[resource].0.as_str());
    assert_eq!(amounts, ["10", "8"]);
    assert!(tenant.namespace_options.force_tenant_prefix);
    assert_eq!(tenant.namespace_options.quota, None);
    assert_eq!(tenant.bindings, Bindings::Own);
    assert!(tenant.not_carried_out.is_empty());
}

#[test]
fn every_field_that_is_carried_out_is_read() {
    let spec = json!({
        "owners": [{
            "kind": "Group",
            "name": "ops",
            "proxySettings": [{"kind": "IngressClasses", "operations": ["List"]}],
        }],
        "namespaceOptions": {
            "quota": 5,
            "forceTenantPrefix": false,
            "additionalMetadata": {
                "labels": {"team": "a"},
                "annotations": {"example.com/cost": "b c"},
            },
            "requiredMetadata": {"labels": {"env": "prod|test"}, "annotations": {"x": ".+"}},
        },
        "resourceQuotas": {
            "scope": "Namespace",
            "items": [{
                "hard": {"pods": 3},
                "scopes": ["NotTerminating"],
                "scopeSelector": {
                    "matchExpressions": [{"operator": "Exists", "scopeName": "PriorityClass"}],
                },
            }],
        },
        "limitRanges": {
            "items": [{"limits": [{
                "type": "Container",
                "max": {"cpu": 2},
                "min": {"cpu": "10m"},
                "default": {"cpu": "1"},
                "defaultRequest": {"cpu": "50m"},
                "maxLimitRequestRatio": {"cpu": "4"},
            }]}],
        },
        "nodeSelector": {"pool": "solar"},
        "bindings": "Any",
        "tier": "standard",
    });
    let tenant = Tenant::parse("solar", &spec).unwrap();
    let lists = BTreeSet::from([ClusterList::IngressClasses]);
    assert_eq!(tenant.owners[0].cluster_lists, lists);
    let options = &tenant.namespace_options;
    assert_eq!((options.quota, options.force_tenant_prefix), (Some(5), false));
    assert_eq!(options.additional_metadata.labels["team"], "a");
    assert_eq!(options.additional_metadata.annotations["example.com/cost"], "b c");
    assert_eq!(options.required_metadata.labels["env"].as_str(), "prod|test");
    assert_eq!(options.required_metadata.annotations["x"].as_str(), ".+");
    assert_eq!(tenant.quota_scope, QuotaScope::Namespace);
    assert_eq!(tenant.quotas[0].scopes, ["NotTerminating"]);
    let selector = serde_json::to_value(&tenant.quotas[0].scope_selector).unwrap();
    assert_eq!(selector, spec["resourceQuotas"]["items"][0]["scopeSelector"]);
    let limit = serde_json::to_value(&tenant.limit_ranges[0][0]).unwrap();
    let mut wanted = spec["limitRanges"]["items"][0]["limits"][0].clone();
    wanted["max"]["cpu"] = json!("2");
    assert_eq!(limit, wanted);
    assert_eq!(tenant.node_selector["pool"], "solar");
    assert_eq!(tenant.bindings, Bindings::Any);
    assert_eq!(tenant.tier.as_deref(), Some("standard"));
    assert!(tenant.not_carried_out.is_empty());
}

#[test]
fn fields_that_are_not_carried_out_are_named() {
    let spec = json!({
        "owners": [{
            "kind": "User",
            "name": "alice",
            "proxySettings": [
                {"kind": "Nodes", "operations": ["List"]},
                {"kind": "StorageClasses", "operations": ["List", "Update", "Delete"]},
                {"kind": "PersistentVolumes", "operations": ["List"]},
            ],
        }],
        "namespaceOptions": {"additionalMetadata": {
            "labels": {"pod-security.kubernetes.io/enforce": "privileged", "team": "a"},
            "annotations": {"scheduler.alpha.kubernetes.io/node-selector": "a=b"},
        }},
        "networkPolicies": {"items": [{}]},
        "ingressOptions": {"hostnameCollisionScope": "Cluster"},
        "containerRegistries": {"allowed": ["a"]},
    });
    let tenant = Tenant::parse("solar", &spec).unwrap();
    let metadata = "spec.namespaceOptions.additionalMetadata";
    assert_eq!(
        tenant.not_carried_out,
        [
            "spec.containerRegistries",
            "spec.ingressOptions.hostnameCollisionScope",
            &format!("{metadata}.annotations[scheduler.alpha.kubernetes.io/node-selector]"),
            &format!("{metadata}.labels[pod-security.kubernetes.io/enforce]"),
            "spec.networkPolicies",
            "spec.owners[0].proxySettings[0].kind Nodes without spec.nodeSelector",
            "spec.owners[0].proxySettings[1].operations Delete",
            "spec.owners[0].proxySettings[1].operations Update",
            "spec.owners[0].proxySettings[2].kind PersistentVolumes",
        ]
    );
    let added = &tenant.namespace_options.additional_metadata;
    assert_eq!(added.labels.keys().collect::<Vec<_>>(), ["team"]);
    assert!(added.annotations.is_empty());
    let lists = BTreeSet::from([ClusterList::StorageClasses]);
    assert_eq!(tenant.owners[0].cluster_lists, lists);
}

#[test]
fn faults_of_options_limits_and_selectors_are_reported_with_their_fields() {
    let spec = json!({
        "owners": [{
            "kind": "User",
            "name": "alice",
            "proxySettings": [
                {"kind": "Secrets", "operations": ["List"]},
                {"kind": "Nodes", "operations": ["Watch"]},
            ],
        }],
        "namespaceOptions": {
            "quota": 0,
            "additionalMetadata": {"labels": {"team": "a,b"}},
            "requiredMetadata": {"labels": {"env": "("}},
        },
        "limitRanges": {"items": [{"limits": [{"type": "Node", "max": {"cpu": "-1"}}]}]},
        "nodeSelector": {"a,b": "c"},
    });
    assert_eq!(
        violations("solar", &spec),
        [
            "spec.owners[0].proxySettings[0].kind",
            "spec.owners[0].proxySettings[1].operations",
            "spec.namespaceOptions.quota",
            "spec.namespaceOptions.additionalMetadata.labels.team",
            "spec.namespaceOptions.requiredMetadata.labels.env",
            "spec.limitRanges.items[0].limits[0].type",
            "spec.limitRanges.items[0].limits[0].max.cpu",
            "spec.nodeSelector.a,b",
        ]
    );
    for quota in [json!(-1), json!(10_001), json!("5")] {
        let spec = json!({
            "owners": [{"kind": "User", "name": "alice"}],
            "namespaceOptions": {"quota": quota},
        });
        assert!(Tenant::parse("solar", &spec).is_err(), "{spec}");
    }
}

#[test]
fn all_faults_are_reported_with_their_fields() {
    let spec = json!({
        "owners": [
            {"kind": "User", "name": "alice", "clusterRoles": ["view", "cluster-admin"]},
            {"kind": "User", "name": "alice"},
            {"kind": "Group", "name": "system:authenticated"},
            {"kind": "ServiceAccount", "name": "robot"},
            {"kind": "Robot", "name": "robot"},
        ],
        "additionalRoleBindings": [
            {"clusterRoleName": "a/b", "subjects": []},
            {
                "clusterRoleName": "view",
                "subjects": [{"kind": "ServiceAccount", "name": "robot"}],
            },
        ],
        "resourceQuotas": {"scope": "Namespace", "items": [{}, {"hard": {"pods": "lots"}}]},
    });
    assert_eq!(
        violations("solar", &spec),
        [
            "spec.owners[0].clusterRoles[1]",
            "spec.owners[1]",
            "spec.owners[2].name",
            "spec.owners[3].name",
            "spec.owners[4].kind",
            "spec.additionalRoleBindings[0].clusterRoleName",
            "spec.additionalRoleBindings[0].subjects",
            "spec.additionalRoleBindings[1].subjects[0].namespace",
            "spec.resourceQuotas.items[1].hard.pods",
        ]
    );
}

#[test]
fn the_name_and_the_form_are_checked_first() {
    assert_eq!(violations("default", &json!({"owners": []})), ["metadata.name"]);
    assert_eq!(violations("default", &json!(null)), ["metadata.name", "spec"]);
    for spec in [json!({}), json!([]), json!({"owners": "alice"}), json!({"owners": [{}]})] {
        assert_eq!(violations("solar", &spec), ["spec"], "{spec}");
    }
    assert_eq!(violations("solar", &json!({"owners": []})), ["spec.owners"]);
}

#[test]
fn lists_have_limits() {
    let owner = |number: usize| json!({"kind": "User", "name": number.to_string()});
    let owners: Vec<Value> = (0..65).map(owner).collect();
    assert_eq!(violations("solar", &json!({"owners": owners})), ["spec.owners"]);
    let roles = vec!["view"; 17];
    let spec = json!({"owners": [{"kind": "User", "name": "alice", "clusterRoles": roles}]});
    assert_eq!(violations("solar", &spec), ["spec.owners[0].clusterRoles"]);
}

/// Any JSON of a few levels, with the names of fields that the parser reads.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "User|Group|ServiceAccount|system:masters|.{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let key = "owners|kind|name|clusterRoles|additionalRoleBindings|subjects|namespace|\
                   clusterRoleName|apiGroup|resourceQuotas|scope|items|hard|limitRanges|limits|type|\
                       namespaceOptions|additionalMetadata|requiredMetadata|labels|annotations|\
                       nodeSelector|proxySettings|operations|ingressOptions|[a-z]{1,3}";
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(key, inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_input_panics(name in ".{0,50}", spec in any_json()) {
        if let Err(violations) = Tenant::parse(&name, &spec) {
            prop_assert!(!violations.is_empty());
        }
    }
}
