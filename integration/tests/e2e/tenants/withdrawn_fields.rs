//! What a Tenant no longer gives ends, although other changes of it fail.

use serde_json::{Value, json};

use super::reconcile::{PRODUCTION, has_condition, until, until_status};
use super::suspension::{apply, world_with_namespace};

/// Nobody gets rights in a namespace of a weaker Pod Security level, and what the Tenant no longer
/// allows ends there even so.
#[tokio::test]
async fn owners_may_not_bind_others_any_more_although_the_namespace_has_a_lasting_failure() {
    let (world, admin) = world_with_namespace(&json!({"bindings": "Any"})).await;
    let namespace = ["namespace", PRODUCTION];
    let label =
        |namespace: &Value| namespace["metadata"]["labels"]["tenant-broker.io/bindings"].clone();
    until(&world, &namespace, |namespace| label(namespace) == "any").await;
    let weaker = "pod-security.kubernetes.io/enforce=privileged";
    let relabel = ["label", "namespace", PRODUCTION, "--overwrite", weaker];
    admin.run(relabel).await.unwrap().success().unwrap();
    until_status(&world, |status| has_condition(status, "ApplyFailed")).await;
    apply(&admin, &json!({"bindings": "Own"})).await;
    until(&world, &namespace, |namespace| label(namespace).is_null()).await;
    // What gives more waits for the level.
    apply(
        &admin,
        &json!({"bindings": "Any", "namespaceOptions": {"additionalMetadata":
        {"labels": {"team": "a"}}}}),
    )
    .await;
    let changed = until(&world, &namespace, |it| it["metadata"]["labels"]["team"] == "a").await;
    assert!(label(&changed).is_null(), "{changed}");
}

#[tokio::test]
async fn labels_and_annotations_that_a_tenant_no_longer_adds_are_removed() {
    let metadata = |labels: Value, annotations: Value| {
        let metadata = json!({"labels": labels, "annotations": annotations});
        json!({"namespaceOptions": {"additionalMetadata": metadata}})
    };
    let both = metadata(json!({"team": "a", "stage": "x"}), json!({"example.com/cost": "7"}));
    let (world, admin) = world_with_namespace(&both).await;
    let namespace = ["namespace", PRODUCTION];
    until(&world, &namespace, |it| it["metadata"]["annotations"]["example.com/cost"] == "7").await;
    let own = ["label", "namespace", PRODUCTION, "own=stays"];
    admin.run(own).await.unwrap().success().unwrap();

    apply(&admin, &metadata(json!({"stage": "x"}), json!({}))).await;
    let changed = until(&world, &namespace, |it| it["metadata"]["labels"]["team"].is_null()).await;
    let (labels, annotations) =
        (&changed["metadata"]["labels"], &changed["metadata"]["annotations"]);
    assert_eq!((&labels["stage"], &labels["own"]), (&json!("x"), &json!("stays")), "{changed}");
    assert_eq!(labels["tenant-broker.io/tenant"], "solar");
    assert!(annotations["example.com/cost"].is_null(), "{changed}");
}
