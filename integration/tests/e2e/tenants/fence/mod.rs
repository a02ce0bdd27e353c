//! The policies for the broker where there are tenants: requests with the broker's own credential
//! that a Tenant can need, and those that only a thief of the credential sends.
//!
//! The broker is stopped, so that nothing acts on the Tenants of this cluster. Requests are dry
//! runs, so their order does not matter.

mod bound;
mod kind;
mod namespaces;
mod objects;

use integration::control_plane::client;
use integration::kubectl::Kubectl;
use integration::world::{World, WorldBuilder};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};

use super::{TENANT_BROKER, until_served, with_object};

const RBAC: &str = "rbac.authorization.k8s.io";
/// Refused by RBAC, before any policy sees the request.
const NO_RIGHT: &str = "cannot";
/// The uuid of a member.
const MEMBER: &str = "member-01940000-0000-7000-8000-000000000001";

/// More labels than a patch of all of them as one argument can have, and than one expression of a
/// policy may compare in a costly way.
const MANY_LABELS: usize = 30_000;

/// A request of the broker: a kubectl command, the object for its standard input, and the text of
/// the refusal; `None` if it has to be accepted.
struct Attempt {
    args: Vec<String>,
    object: Option<Value>,
    refusal: Option<&'static str>,
}

/// The creation of an object.
fn create(object: Value, refusal: Option<&'static str>) -> Attempt {
    let args = ["create", "--dry-run=server", "-f", "-"].map(str::to_owned).into();
    Attempt { args, object: Some(object), refusal }
}

/// A JSON merge patch of an object, with the flags that name its namespace and subresource.
fn patch(target: &[&str], patch: &Value, refusal: Option<&'static str>) -> Attempt {
    let mut args: Vec<String> =
        ["patch", "--dry-run=server", "--type=merge"].map(str::to_owned).into();
    args.extend(target.iter().map(|&part| part.to_owned()));
    args.extend(["-p".to_owned(), patch.to_string()]);
    Attempt { args, object: None, refusal }
}

fn delete(target: &[&str], refusal: Option<&'static str>) -> Attempt {
    let args = ["delete", "--dry-run=server", "--wait=false"].iter().chain(target);
    Attempt { args: args.map(|&part| part.to_owned()).collect(), object: None, refusal }
}

async fn try_all(broker: &Kubectl, attempts: Vec<Attempt>) {
    for Attempt { args, object, refusal } in attempts {
        let what = format!("{args:?} {}", object.as_ref().unwrap_or(&Value::Null));
        let input = object.map(|object| object.to_string()).unwrap_or_default();
        let finished = broker.run_with_input(&args, input).await.unwrap();
        match refusal {
            None => assert!(finished.status.success(), "{what}: {}", finished.stderr),
            Some(text) => {
                let is_refused = !finished.status.success()
                    && finished.stderr.contains("orbidden")
                    && finished.stderr.contains(text);
                assert!(is_refused, "{what} should be refused by {text}: {}", finished.stderr);
            }
        }
    }
}

/// A namespace with these labels.
fn namespace(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// The labels of a tenant's namespace, changed by a merge patch: null removes a label.
fn labels(tenant: &str, change: &Value) -> Value {
    merged(
        json!({
            "app.kubernetes.io/managed-by": "tenant-broker",
            "tenant-broker.io/tenant": tenant,
            "tenant-broker.io/tier": "basic",
            "pod-security.kubernetes.io/enforce": "baseline",
            "pod-security.kubernetes.io/warn": "baseline",
        }),
        change,
    )
}

/// The labels of a tenant's home, changed in the same way.
fn home_labels(tenant: &str, change: &Value) -> Value {
    merged(
        json!({
            "app.kubernetes.io/managed-by": "tenant-broker",
            "tenant-broker.io/tenant": tenant,
            "tenant-broker.io/home": "true",
            "pod-security.kubernetes.io/enforce": "restricted",
            "pod-security.kubernetes.io/warn": "restricted",
        }),
        change,
    )
}

fn merged(mut labels: Value, change: &Value) -> Value {
    let labels_of = labels.as_object_mut().unwrap();
    for (key, value) in change.as_object().unwrap() {
        if value.is_null() {
            labels_of.remove(key);
        } else {
            labels_of.insert(key.clone(), value.clone());
        }
    }
    labels
}

/// A ResourceQuota or LimitRange with the label of a tenant.
fn object(kind: &str, namespace: &str, name: &str, tenant: &str) -> Value {
    let spec = match kind {
        "ResourceQuota" => json!({"hard": {"pods": "1"}}),
        _ => json!({"limits": []}),
    };
    json!({
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "namespace": namespace, "name": name, "labels": {"tenant-broker.io/tenant": tenant},
        },
        "spec": spec,
    })
}

fn service_account(namespace: &str, name: &str, tenant: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "namespace": namespace, "name": name, "labels": {"tenant-broker.io/tenant": tenant},
        },
    })
}

fn role_binding(namespace: &str, name: &str, role: &str, subjects: &Value) -> Value {
    let tenant = name.split('-').nth(1).unwrap_or_default();
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "RoleBinding",
        "metadata": {
            "namespace": namespace, "name": name, "labels": {"tenant-broker.io/tenant": tenant},
        },
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

fn user(name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "User", "name": name})
}

fn group(name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "Group", "name": name})
}

fn account(namespace: &str, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
}

/// A cluster with two homes, and namespaces of tenant solar: one in use and one suspended. Both
/// have a binding of the broker, and one of an owner.
async fn cluster() -> (World, Kubectl) {
    let builder = World::builder()
        .own_control_plane()
        .installed("tenants.enabled", true)
        .installed("tenants.protected_labels", "^(control-plane$|openshift[.]io/)");
    cluster_of(builder).await
}

async fn cluster_of(builder: WorldBuilder) -> (World, Kubectl) {
    let world = builder.start().await.unwrap();
    world.broker().stop().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let none = json!({});
    let members = json!([account("tenant-solar", MEMBER), user("alice")]);
    let mut objects = vec![
        namespace("tenant-solar", &home_labels("solar", &none)),
        namespace("tenant-lunar", &home_labels("lunar", &none)),
        namespace("solar-prod", &labels("solar", &none)),
        namespace("solar-held", &labels("solar", &json!({"tenant-broker.io/suspended": "true"}))),
        // Its name was protected later.
        namespace("cert-manager", &labels("cert", &none)),
        service_account("tenant-solar", MEMBER, "solar"),
        service_account("tenant-solar", "other", "solar"),
        service_account("solar-prod", "robot", "solar"),
        object("ResourceQuota", "solar-prod", "tenant-quota-0", "solar"),
        object("ResourceQuota", "solar-prod", "own", "solar"),
        json!({
            "apiVersion": TENANT_BROKER.1,
            "kind": "Tenant",
            "metadata": {"name": "solar"},
            "spec": {"owners": [{"kind": "User", "name": "alice"}]},
        }),
    ];
    for held in ["solar-prod", "solar-held"] {
        objects.push(role_binding(held, "tenant-solar-view", "view", &members));
        objects.push(role_binding(held, "made-by-owner", "cluster-admin", &members));
    }
    // An administrator gave it more labels than an owner may.
    let many = (0..MANY_LABELS).map(|number| (format!("l{number}"), json!(""))).collect();
    objects.push(namespace("solar-many", &labels("solar", &Value::Object(many))));
    // An administrator removed its label.
    objects.push(namespace("solar-gone", &json!({"team": "a"})));
    for (name, role) in
        [("tenant-solar-view", "view"), ("tenant-solar-other", "view"), ("made-by-owner", "view")]
    {
        objects.push(role_binding("solar-gone", name, role, &members));
    }
    for object in objects {
        with_object(&admin, &["create"], object.to_string()).await.success().unwrap();
    }
    let broker = world.broker_kubectl().unwrap();
    (world, broker)
}

#[tokio::test]
async fn the_broker_writes_what_tenants_need_and_nothing_else() {
    let (world, broker) = cluster().await;
    try_all(&broker, namespaces::creations()).await;
    try_all(&broker, namespaces::changes()).await;
    try_all(&broker, objects::in_homes()).await;
    try_all(&broker, objects::limits()).await;
    try_all(&broker, objects::bindings()).await;
    try_all(&broker, objects::revocations()).await;
    try_all(&broker, objects::tokens()).await;
    try_all(&broker, tenants()).await;
    write_status(&world).await;
}

/// Requests for Tenants without `tenants.write`.
fn tenants() -> Vec<Attempt> {
    let spec = json!({"spec": {"owners": [{"kind": "User", "name": "mallory"}]}});
    vec![
        patch(&[TENANT_BROKER.0, "solar"], &spec, Some(NO_RIGHT)),
        delete(&[TENANT_BROKER.0, "solar"], Some(NO_RIGHT)),
    ]
}

/// Writes the status of a Tenant. kubectl would read the subresource first, which the broker need
/// not do.
async fn write_status(world: &World) {
    let broker = client(world.cluster().broker_kubeconfig()).await.unwrap();
    let kind = GroupVersionKind::gvk("tenant-broker.io", "v1alpha1", "Tenant");
    let api: Api<DynamicObject> = Api::all_with(broker, &ApiResource::from_gvk(&kind));
    let status = Patch::Merge(json!({"status": {"state": "Active"}}));
    api.patch_status("solar", &PatchParams::default(), &status).await.unwrap();
}
