//! Tenants that the API server refuses, with the field and the rule.

use serde_json::{Value, json};

use super::{TENANT_BROKER, until_served, with_object, world};

/// The `spec` of a tenant of alice, with other fields in addition.
fn alice(more: &Value) -> Value {
    let mut spec = json!({"owners": [{"kind": "User", "name": "alice"}]});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    spec
}

fn owner(kind: &str, name: &str) -> Value {
    json!({"owners": [{"kind": kind, "name": name}]})
}

fn bound(subject: &Value) -> Value {
    alice(&json!({"additionalRoleBindings": [{"clusterRoleName": "view", "subjects": [subject]}]}))
}

fn quota(hard: &Value) -> Value {
    alice(&json!({"resourceQuotas": {"items": [{"hard": hard}]}}))
}

/// The field of the subject that [`bound`] makes.
const SUBJECT: &str = "spec.additionalRoleBindings[0].subjects[0]";

/// The texts that a refusal must contain, after the `spec`.
type Case = (Value, &'static [&'static str]);

fn owners() -> Vec<Case> {
    let many: Vec<Value> =
        (0..65).map(|number| json!({"kind": "User", "name": format!("user-{number}")})).collect();
    let twice = json!([{"kind": "User", "name": "alice"}, {"kind": "User", "name": "alice"}]);
    let roles = |roles: &[&str]| {
        let alice = json!({"kind": "User", "name": "alice", "clusterRoles": roles});
        json!({"owners": [alice]})
    };
    vec![
        (json!({}), &["spec.owners: Required value"]),
        (json!({"owners": []}), &["spec.owners"]),
        (json!({"owners": many}), &["spec.owners: Too many"]),
        (json!({"owners": twice}), &["spec.owners[1]: Duplicate value"]),
        (owner("Robot", "robot"), &["spec.owners[0].kind: Unsupported value"]),
        (owner("User", ""), &["spec.owners[0].name"]),
        (owner("User", &"a".repeat(1_000_000)), &["spec.owners[0].name: Too long"]),
        (owner("User", "alice\nbob"), &["spec.owners[0].name"]),
        (owner("Group", "dev\u{1b}[31m"), &["spec.owners[0].name"]),
        (owner("User", "\u{0}"), &["spec.owners[0].name"]),
        (owner("User", "system:anonymous"), &["spec.owners[0].name", "belong to Kubernetes"]),
        (owner("User", "system:serviceaccount:a:b"), &["spec.owners[0].name", "ServiceAccount"]),
        (owner("Group", "system:authenticated"), &["spec.owners[0].name", "contain everybody"]),
        (owner("Group", "system:unauthenticated"), &["spec.owners[0].name"]),
        (owner("Group", "system:masters"), &["spec.owners[0].name", "belong to Kubernetes"]),
        (owner("Group", "system:serviceaccounts"), &["spec.owners[0].name", "contain everybody"]),
        (owner("ServiceAccount", "robot"), &["spec.owners[0].name", "NAMESPACE:NAME"]),
        (
            owner("ServiceAccount", "system:serviceaccount:robot"),
            &["spec.owners[0].name", "NAMESPACE:NAME"],
        ),
        (roles(&["view", "cluster-admin"]), &["spec.owners[0].clusterRoles[1]", "cannot give"]),
        (roles(&["view/../admin"]), &["spec.owners[0].clusterRoles[0]"]),
        (roles(&["view"; 17]), &["spec.owners[0].clusterRoles: Too many"]),
    ]
}

fn bindings() -> Vec<Case> {
    let role = |name: &str, subjects: Value| {
        let binding = json!({"clusterRoleName": name, "subjects": subjects});
        alice(&json!({"additionalRoleBindings": [binding]}))
    };
    let joe = json!([{"kind": "User", "name": "joe"}]);
    let many = vec![json!({"kind": "User", "name": "joe"}); 257];
    vec![
        (
            role("cluster-admin", joe.clone()),
            &["spec.additionalRoleBindings[0].clusterRoleName", "cannot give cluster-admin"],
        ),
        (role("", joe), &["spec.additionalRoleBindings[0].clusterRoleName"]),
        (role("view", json!([])), &["spec.additionalRoleBindings[0].subjects"]),
        (role("view", json!(many)), &["spec.additionalRoleBindings[0].subjects: Too many"]),
        (bound(&json!({"kind": "Group", "name": "system:authenticated"})), &[SUBJECT, "everybody"]),
        (
            bound(&json!({"kind": "User", "name": "system:admin"})),
            &[SUBJECT, "belong to Kubernetes"],
        ),
        (
            bound(&json!({"kind": "ServiceAccount", "name": "robot"})),
            &[SUBJECT, ".namespace", "has a namespace"],
        ),
        (
            bound(&json!({"kind": "User", "name": "joe", "namespace": "default"})),
            &[SUBJECT, ".namespace", "has a namespace"],
        ),
        (
            bound(&json!({"kind": "ServiceAccount", "name": "a:b", "namespace": "default"})),
            &[SUBJECT, "plain name"],
        ),
        (
            bound(&json!({"kind": "User", "name": "joe", "apiGroup": "apps"})),
            &[SUBJECT, "apiGroup"],
        ),
    ]
}

fn amounts_and_options() -> Vec<Case> {
    let options = |options: Value| alice(&json!({"namespaceOptions": options}));
    let limits = json!({"items": [{"limits": [{"type": "Pod", "max": {"cpu": "much"}}]}]});
    vec![
        (quota(&json!({"requests.cpu": "lots"})), &["spec.resourceQuotas.items[0].hard"]),
        (quota(&json!({"requests.cpu": "-1"})), &["spec.resourceQuotas.items[0].hard"]),
        (quota(&json!({"pods": -1})), &["spec.resourceQuotas.items[0].hard"]),
        (quota(&json!({"pods": "9".repeat(33)})), &["spec.resourceQuotas.items[0].hard"]),
        (alice(&json!({"resourceQuotas": {"scope": "Cluster"}})), &["spec.resourceQuotas.scope"]),
        (alice(&json!({"limitRanges": limits})), &["spec.limitRanges.items[0].limits[0].max"]),
        (options(json!({"quota": 0})), &["spec.namespaceOptions.quota"]),
        (options(json!({"quota": -5})), &["spec.namespaceOptions.quota"]),
        (options(json!({"quota": 10_001})), &["spec.namespaceOptions.quota"]),
        (options(json!({"quota": "five"})), &["spec.namespaceOptions.quota"]),
        (
            options(json!({"additionalMetadata": {"labels": {"a": "no label"}}})),
            &["spec.namespaceOptions.additionalMetadata.labels"],
        ),
        (alice(&json!({"nodeSelector": {"pool": "a b"}})), &["spec.nodeSelector"]),
        (alice(&json!({"bindings": "All"})), &["spec.bindings: Unsupported value"]),
        (alice(&json!({"tier": "Gold"})), &["spec.tier"]),
        // Kept free for tenants with an API server of their own.
        (alice(&json!({"space": {}})), &["unknown field", "spec.space"]),
        (alice(&json!({"ownrs": []})), &["unknown field", "spec.ownrs"]),
    ]
}

fn names() -> Vec<(String, &'static str)> {
    let reserved = "metadata.name: kube, tenant, openshift, system and default are reserved";
    let malformed = "metadata.name: a name of a tenant has";
    let uuid = "a1b2c3d4-0000-4000-8000-000000000000";
    vec![
        ("a".repeat(41), malformed),
        ("1solar".into(), malformed),
        ("solar.wind".into(), malformed),
        ("default".into(), reserved),
        ("system".into(), reserved),
        ("kube-wind".into(), reserved),
        ("../kube-system".into(), "metadata.name"),
        ("solar%2fwind".into(), "metadata.name"),
        ("solar\n".into(), "metadata.name"),
        (" solar".into(), "metadata.name"),
        ("s\u{43e}lar".into(), "metadata.name"),
        ("tenant-solar".into(), reserved),
        ("openshift-x".into(), reserved),
        (uuid.into(), "metadata.name: a uuid is reserved"),
        // Kubernetes itself refuses these.
        ("Solar".into(), "metadata.name"),
        ("solar-".into(), "metadata.name"),
    ]
}

#[tokio::test]
async fn bad_input_is_refused_with_the_field() {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let mut cases: Vec<(String, Value, Vec<&str>)> = Vec::new();
    for (spec, expected) in [owners(), bindings(), amounts_and_options()].concat() {
        cases.push(("solar".to_owned(), spec, expected.to_vec()));
    }
    cases.extend(names().into_iter().map(|(name, rule)| (name, alice(&json!({})), vec![rule])));
    for (name, spec, expected) in cases {
        let object = json!({
            "apiVersion": TENANT_BROKER.1,
            "kind": "Tenant",
            "metadata": {"name": name},
            "spec": spec,
        });
        let object = object.to_string();
        let tried = with_object(&admin, &["create", "--dry-run=server"], object.as_str()).await;
        let shown = object.get(..300).unwrap_or(&object);
        assert!(!tried.status.success(), "{shown} was accepted");
        for text in expected {
            assert!(tried.stderr.contains(text), "{shown}\nnot {text:?} in {}", tried.stderr);
        }
    }
}

/// Otherwise the test of bad input would pass for a definition that refuses everything.
#[tokio::test]
async fn the_largest_valid_input_is_accepted() {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let name_of = |number: usize| format!("{number:03}{}", "u".repeat(336));
    let roles = vec!["r".repeat(205); 16];
    let owners: Vec<Value> = (0..64)
        .map(|number| json!({"kind": "User", "name": name_of(number), "clusterRoles": roles}))
        .collect();
    let account = json!({"kind": "ServiceAccount", "namespace": "default", "name": "robot"});
    let binding = json!({"clusterRoleName": "view", "subjects": vec![account; 256]});
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": "a".repeat(40)},
        "spec": {
            "owners": owners,
            "additionalRoleBindings": vec![binding; 32],
            "namespaceOptions": {"quota": 10_000, "forceTenantPrefix": false},
            "resourceQuotas": {"scope": "Namespace", "items": [{"hard": {
                "requests.cpu": "1.5", "pods": 10, "requests.memory": "16Gi", "limits.cpu": "500m",
            }}]},
            "bindings": "Any",
            "tier": "gold",
        },
    });
    let create = ["create", "--dry-run=server"];
    with_object(&admin, &create, object.to_string()).await.success().unwrap();
}
