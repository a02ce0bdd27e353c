//! Writes of Tenants with the broker's own credential, where the broker may write them
//! (`tenants.write`).

use integration::kubectl::Kubectl;
use integration::world::World;
use serde_json::{Value, json};

use super::{Attempt, NO_RIGHT, cluster_of, create, delete, patch, try_all, write_status};
use crate::install::install;
use crate::tenants::{CAPSULE, TENANT_BROKER, tenant, until_served, with_object};

const POLICY: &str = "tenant-broker-fence-tenants";
const ON_DELETE: &str = "tenant-broker.io/on-delete";

/// A Tenant with this change of its metadata.
fn with_metadata((_, api_version): (&str, &str), name: &str, metadata: &Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version,
        "kind": "Tenant",
        "metadata": {"name": name},
        "spec": {"owners": [{"kind": "User", "name": "alice"}]},
    });
    for (key, value) in metadata.as_object().unwrap() {
        object["metadata"][key] = value.clone();
    }
    object
}

/// A replacement of an object.
fn replace(object: Value, refusal: Option<&'static str>) -> Attempt {
    let args = ["replace", "--dry-run=server", "-f", "-"].map(str::to_owned).into();
    Attempt { args, object: Some(object), refusal }
}

/// An owner reference.
fn owner() -> Value {
    json!([{"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "x"}])
}

#[tokio::test]
async fn with_the_setting_the_broker_writes_the_specification_of_tenants_alone() {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let (world, broker) = cluster_of(builder.installed("tenants.write", true)).await;
    let admin = world.admin_kubectl().unwrap();
    install(&world, &["--apply", "--capsule-api"]).await.success().unwrap();
    until_served(&admin, CAPSULE).await;
    let of_capsule = with_metadata(CAPSULE, "lunar", &json!({}));
    with_object(&admin, &["create"], of_capsule.to_string()).await.success().unwrap();
    try_all(&broker, creations()).await;
    // As others have made it, with metadata of their own.
    for args in [
        &["label", TENANT_BROKER.0, "solar", "team=a"][..],
        &["annotate", TENANT_BROKER.0, "solar", "note=b", "other=c"],
        &[
            "patch",
            TENANT_BROKER.0,
            "solar",
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":["a.example.com/hold"]}}"#,
        ],
    ] {
        admin.run(args).await.unwrap().success().unwrap();
    }
    let live = tenant(&admin, TENANT_BROKER, "solar").await;
    try_all(&broker, replacements(&live)).await;
    try_all(&broker, others()).await;
    with_the_annotation(&broker, &admin).await;
    write_status(&world).await;
}

fn creations() -> Vec<Attempt> {
    let new = |metadata: Value| with_metadata(TENANT_BROKER, "stellar", &metadata);
    vec![
        create(new(json!({})), None),
        create(new(json!({"labels": {"team": "a"}})), Some(POLICY)),
        create(new(json!({"annotations": {"note": "b"}})), Some(POLICY)),
        create(new(json!({"annotations": {ON_DELETE: "other"}})), Some(POLICY)),
        create(new(json!({"finalizers": ["a.example.com/hold"]})), Some(POLICY)),
        create(new(json!({"ownerReferences": owner()})), Some(POLICY)),
        create(with_metadata(CAPSULE, "stellar", &json!({})), Some(NO_RIGHT)),
    ]
}

fn replacements(live: &Value) -> Vec<Attempt> {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut object = live.clone();
        change(&mut object);
        object
    };
    let metadata = |field: &'static str, value: Value| {
        changed(&move |object| object["metadata"][field] = value.clone())
    };
    let annotation = |key: &'static str, value: &'static str| {
        changed(&move |object| object["metadata"]["annotations"][key] = json!(value))
    };
    vec![
        replace(changed(&|object| object["spec"]["namespaceOptions"] = json!({"quota": 7})), None),
        replace(annotation(ON_DELETE, "keep-namespaces"), None),
        replace(annotation(ON_DELETE, "other"), Some(POLICY)),
        replace(annotation("note", "other"), Some(POLICY)),
        replace(annotation("new", "d"), Some(POLICY)),
        replace(metadata("annotations", json!({"note": "b"})), Some(POLICY)),
        replace(metadata("annotations", Value::Null), Some(POLICY)),
        replace(metadata("labels", json!({"team": "b"})), Some(POLICY)),
        replace(metadata("labels", Value::Null), Some(POLICY)),
        replace(metadata("labels", json!({"team": "a", "b": "c"})), Some(POLICY)),
        replace(metadata("finalizers", Value::Null), Some(POLICY)),
        replace(
            metadata("finalizers", json!(["a.example.com/hold", "b.example.com/x"])),
            Some(POLICY),
        ),
        replace(metadata("ownerReferences", owner()), Some(POLICY)),
        replace(with_metadata(CAPSULE, "lunar", &json!({})), Some(NO_RIGHT)),
    ]
}

fn others() -> Vec<Attempt> {
    let spec = json!({"spec": {"tier": "basic"}});
    vec![
        patch(&[TENANT_BROKER.0, "solar"], &spec, Some(NO_RIGHT)),
        delete(&[TENANT_BROKER.0, "--all"], None),
        delete(&[TENANT_BROKER.0, "solar"], None),
        delete(&[CAPSULE.0, "lunar"], Some(NO_RIGHT)),
        patch(&[CAPSULE.0, "lunar"], &spec, Some(NO_RIGHT)),
    ]
}

/// An annotation of somebody else stays as it is, and may be taken away.
async fn with_the_annotation(broker: &Kubectl, admin: &Kubectl) {
    let annotate = |value: &str| format!("{ON_DELETE}={value}");
    for value in ["other", "keep-namespaces"] {
        let args = ["annotate", TENANT_BROKER.0, "solar", &annotate(value), "--overwrite"];
        admin.run(args).await.unwrap().success().unwrap();
        let live = tenant(admin, TENANT_BROKER, "solar").await;
        let mut without = live.clone();
        without["metadata"]["annotations"].as_object_mut().unwrap().remove(ON_DELETE);
        try_all(broker, vec![replace(live, None), replace(without, None)]).await;
    }
}
