//! GitOps: tools that apply an unchanged Tenant, or a label that contradicts it, again and again.

use std::collections::BTreeMap;

use integration::control_plane::BROKER_USER;
use kube::api::{Api as KubeApi, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Fixture, TENANT, solar};
use crate::tenants::reconcile::{PRODUCTION, create_namespace, until, until_status};
use crate::tenants::with_object;

/// Name of the tool as a manager of fields.
const TOOL: &str = "gitops";
/// How often the tool applies the same file.
const APPLIED: usize = 100;
/// How often another one applies a label that contradicts the Tenant.
const CONTRADICTED: usize = 10;

/// The Tenants, for requests that kubectl does not repeat fast enough.
async fn tenants(fixture: &Fixture) -> KubeApi<DynamicObject> {
    let client = fixture.world.cluster().admin().await.unwrap();
    let kind = GroupVersionKind::gvk("tenant-broker.io", "v1alpha1", "Tenant");
    KubeApi::all_with(client, &ApiResource::from_gvk(&kind))
}

/// Applies the Tenant server-side as the tool. Without `force`, a field of another manager would be
/// a conflict.
async fn apply(tenants: &KubeApi<DynamicObject>) -> DynamicObject {
    let tool = PatchParams::apply(TOOL);
    tenants.patch("solar", &tool, &Patch::Apply(solar())).await.unwrap()
}

/// The status of the Tenant, with the time and the manager of its last change.
async fn status(tenants: &KubeApi<DynamicObject>) -> Value {
    let tenant = tenants.get("solar").await.unwrap();
    let managers = tenant.metadata.managed_fields.unwrap_or_default();
    let managers: Vec<_> =
        managers.iter().filter(|it| it.subresource.as_deref() == Some("status")).collect();
    assert_eq!(managers.len(), 1, "{managers:?}");
    json!({"status": tenant.data["status"], "managers": managers})
}

/// Versions of the objects that the broker makes for the tenant.
async fn versions(fixture: &Fixture) -> BTreeMap<String, Value> {
    let kinds = "namespaces,rolebindings,resourcequotas,limitranges,serviceaccounts";
    let label = format!("{TENANT}=solar");
    let objects = crate::object_list(&fixture.world, &[kinds, "-A", "-l", &label]).await.unwrap();
    let version = |object: &Value| {
        let metadata = &object["metadata"];
        let name = format!("{} {} {}", object["kind"], metadata["namespace"], metadata["name"]);
        (name, metadata["resourceVersion"].clone())
    };
    let versions: BTreeMap<_, _> = objects.iter().map(version).collect();
    for kind in ["Namespace", "RoleBinding", "ResourceQuota", "LimitRange", "ServiceAccount"] {
        assert!(versions.keys().any(|name| name.contains(kind)), "no {kind}: {versions:?}");
    }
    versions
}

/// The broker's writes so far, also those that changed nothing. Reviews of tokens and rights are
/// `create` requests that store nothing.
fn writes(fixture: &Fixture) -> Vec<Value> {
    let user = format!("\"username\":\"{BROKER_USER}\"");
    let events = fixture.world.cluster().audit_events(&user).unwrap();
    let is_write = |event: &Value| {
        let verb = event["verb"].as_str().unwrap_or_default();
        let group = event["objectRef"]["apiGroup"].as_str().unwrap_or_default();
        ["create", "update", "patch", "delete", "deletecollection"].contains(&verb)
            && !["authorization.k8s.io", "authentication.k8s.io"].contains(&group)
    };
    events.into_iter().filter(is_write).collect()
}

/// The broker compares the tenant every second, so each wait for runs includes comparisons after
/// the tool's requests.
pub(super) async fn an_unchanged_apply_leads_to_no_write(fixture: &Fixture) {
    let tenants = tenants(fixture).await;
    let (versions_before, status_before) = (versions(fixture).await, status(&tenants).await);
    let written = writes(fixture).len();
    assert!(written > 0, "the audit log has the broker's writes");

    // The manager that applied the Tenant first. It sends the owners without their defaults, and
    // prints "configured" although the API server writes nothing.
    let before = tenants.get("solar").await.unwrap();
    with_object(&fixture.admin, &["apply"], solar().to_string()).await.success().unwrap();
    let same = tenants.get("solar").await.unwrap();
    assert_eq!(same.metadata.resource_version, before.metadata.resource_version);
    // Another one. The API server adds it to the Tenant's metadata once.
    let first = apply(&tenants).await;
    fixture.rounds(3).await;
    for _ in 0..APPLIED {
        apply(&tenants).await;
    }
    fixture.rounds(3).await;

    assert_eq!(versions(fixture).await, versions_before);
    assert_eq!(status(&tenants).await, status_before);
    let last = tenants.get("solar").await.unwrap();
    assert_eq!(last.metadata.resource_version, first.metadata.resource_version);
    let later: Vec<Value> = writes(fixture).split_off(written);
    assert!(later.is_empty(), "{later:#?}");
}

pub(super) async fn a_tool_and_the_broker_write_fields_of_their_own(fixture: &Fixture) {
    let tenants = tenants(fixture).await;
    create_namespace(&fixture.admin, "solar-second").await;
    until_status(&fixture.world, |status| status["size"] == 2).await;
    apply(&tenants).await;
    let managers = status(&tenants).await["managers"].clone();
    assert_ne!(managers[0]["manager"], TOOL, "{managers}");
    // So do a tool that labels a namespace, and the broker, which adds a label of the Tenant.
    let labelled = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "solar-second", "labels": {"stage": "test"}}});
    let server_side = ["apply", "--server-side", "--field-manager=gitops"];
    for _ in 0..3 {
        with_object(&fixture.admin, &server_side, labelled.to_string()).await.success().unwrap();
        until(&fixture.world, &["namespace", "solar-second"], |namespace| {
            let labels = &namespace["metadata"]["labels"];
            labels["stage"] == "test" && labels["team"] == "sun"
        })
        .await;
    }
    fixture.run(&["delete", "namespace", "solar-second"]).await;
    fixture.until_ready().await;
}

/// The broker has the last word each time, and writes nothing more once the tool has stopped.
pub(super) async fn a_label_that_contradicts_the_tenant_does_not_last(fixture: &Fixture) {
    let key = ["namespace", PRODUCTION];
    let contradiction = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": PRODUCTION, "labels": {"team": "moon"}}});
    let contradiction = contradiction.to_string();
    let command =
        ["apply", "--server-side", "--force-conflicts", "--field-manager=portal", "-o", "json"];
    for _ in 0..CONTRADICTED {
        let applied = with_object(&fixture.admin, &command, contradiction.as_str()).await;
        let applied: Value = serde_json::from_str(&applied.success().unwrap().stdout).unwrap();
        assert_eq!(applied["metadata"]["labels"]["team"], "moon", "{applied}");
        until(&fixture.world, &key, |it| it["metadata"]["labels"]["team"] == "sun").await;
    }

    // The first runs may still follow from the last change.
    fixture.rounds(2).await;
    let version = async || {
        let live = crate::object(&fixture.world, &key).await.unwrap().unwrap();
        assert_eq!(live["metadata"]["labels"]["team"], "sun", "{live}");
        live["metadata"]["resourceVersion"].clone()
    };
    let (before, written) = (version().await, writes(fixture).len());
    fixture.rounds(3).await;
    assert_eq!(version().await, before);
    let later: Vec<Value> = writes(fixture).split_off(written);
    assert!(later.is_empty(), "{later:#?}");
    until_status(&fixture.world, |status| status["state"] == "Active").await;
}
