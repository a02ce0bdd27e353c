//! The right to patch what a suspension deletes, in the hands of a thief of the broker's credential.

use integration::world::World;
use serde_json::json;

use super::{are_refused, is_refused};

const OBJECTS: &str = "tenant-broker-fence-objects";

/// RoleBindings and the session's ServiceAccount, of which it may take finalizers off.
#[tokio::test]
async fn of_what_is_there_nothing_changes_but_finalizers_that_go() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.api().await.unwrap().init("basic").await.unwrap();
    let namespace = alice.namespace();
    let (admin, broker) = (world.admin_kubectl().unwrap(), world.broker_kubectl().unwrap());
    // Of a role that the broker may bind, because RBAC refuses the others before the policy.
    let door =
        ["create", "rolebinding", "door", "--clusterrole=admin", "--user=carol", "-n", &namespace];
    admin.run(door).await.unwrap().success().unwrap();
    let add = r#"{"metadata":{"finalizers":["a.example.com/b"],"labels":{"a":"b"}}}"#;
    let release = r#"{"metadata":{"finalizers":null}}"#;
    for object in ["rolebinding/door", "serviceaccount/sa-tenant-admin"] {
        let patch = |patch| ["patch", object, "--type=merge", "-n", &namespace, "-p", patch];
        are_refused(&broker, &[(&patch(add), OBJECTS)]).await;
        admin.run(patch(add)).await.unwrap().success().unwrap();
        for change in [
            r#"{"metadata":{"finalizers":["a.example.com/c"]}}"#,
            r#"{"metadata":{"labels":null}}"#,
            r#"{"metadata":{"annotations":{"a":"b"}}}"#,
            r#"{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]}}"#,
        ] {
            are_refused(&broker, &[(&patch(change), OBJECTS)]).await;
        }
        broker.run(patch(release)).await.unwrap().success().unwrap();
    }
    for (object, change) in [
        ("rolebinding/door", r#"{"subjects":[]}"#),
        ("rolebinding/rb-tenant-admin", r#"{"subjects":[]}"#),
        ("serviceaccount/sa-tenant-admin", r#"{"automountServiceAccountToken":true}"#),
    ] {
        let patch = ["patch", object, "--type=merge", "-n", &namespace, "-p", change];
        are_refused(&broker, &[(&patch, OBJECTS)]).await;
    }
    // Nor does it make anything that a finalizer holds.
    let held = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {
        "name": "sa-tenant-admin", "namespace": namespace, "finalizers": ["a.example.com/b"]}});
    let delete = ["delete", "serviceaccount", "sa-tenant-admin", "-n", &namespace];
    broker.run(delete).await.unwrap().success().unwrap();
    is_refused(&broker, &["create", "-f", "-"], &held, OBJECTS).await;
}
