//! Attacks with the right to patch objects that a suspension deletes, by the broker's stolen
//! credential.

use integration::world::World;
use serde_json::json;

use super::{are_refused, is_refused};

const OBJECTS: &str = "tenant-broker-fence-objects";

/// RoleBindings and the session's ServiceAccount, of which the credential may remove finalizers.
#[tokio::test]
async fn existing_objects_lose_finalizers_at_most() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.api().await.unwrap().init("basic").await.unwrap();
    let namespace = alice.namespace();
    let (admin, broker) = (world.admin_kubectl().unwrap(), world.broker_kubectl().unwrap());
    // Binds a role that the broker may bind, because RBAC refuses the others before the policy.
    let bind =
        ["create", "rolebinding", "extra", "--clusterrole=admin", "--user=carol", "-n", &namespace];
    admin.run(bind).await.unwrap().success().unwrap();
    let add = r#"{"metadata":{"finalizers":["a.example.com/b"],"labels":{"a":"b"}}}"#;
    let release = r#"{"metadata":{"finalizers":null}}"#;
    for object in ["rolebinding/extra", "serviceaccount/sa-tenant-admin"] {
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
        ("rolebinding/extra", r#"{"subjects":[]}"#),
        ("rolebinding/rb-tenant-admin", r#"{"subjects":[]}"#),
        ("serviceaccount/sa-tenant-admin", r#"{"automountServiceAccountToken":true}"#),
    ] {
        let patch = ["patch", object, "--type=merge", "-n", &namespace, "-p", change];
        are_refused(&broker, &[(&patch, OBJECTS)]).await;
    }
    // It also creates no object with a finalizer.
    let held = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {
        "name": "sa-tenant-admin", "namespace": namespace, "finalizers": ["a.example.com/b"]}});
    let delete = ["delete", "serviceaccount", "sa-tenant-admin", "-n", &namespace];
    broker.run(delete).await.unwrap().success().unwrap();
    is_refused(&broker, &["create", "-f", "-"], &held, OBJECTS).await;
}
