//! Labels without an announcement, announcements without labels, and who may write the labels.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Fixture, builder};
use crate::tenants::TENANT_BROKER;

const NAMESPACE: &str = "solar-a";

fn tenant_label(tenant: &str) -> String {
    format!("tenant-broker.io/tenant={tenant}")
}

#[tokio::test]
async fn a_namespace_moves_only_with_announcement_and_labels() {
    let fixture = Fixture::start(builder()).await;
    fixture.namespace_of("solar", NAMESPACE, "alice").await;
    a_label_alone_moves_nothing(&fixture).await;
    an_announcement_alone_moves_nothing(&fixture).await;
    an_announcement_for_another_tenant_moves_nothing(&fixture).await;
    only_administrators_write_the_labels(&fixture).await;
    limits_are_not_written_again(&fixture).await;
}

/// The tenant loses its rights at once, and no other one gets any. With the label back they are
/// there again.
async fn a_label_alone_moves_nothing(fixture: &Fixture) {
    let lunar = fixture.object(&[TENANT_BROKER.0, "lunar"]).await.unwrap();
    let uid = lunar["metadata"]["uid"].as_str().unwrap();
    let uid_label = format!("tenant-broker.io/tenant-uid={uid}");
    for labels in [vec![tenant_label("lunar")], vec![tenant_label("lunar"), uid_label.clone()]] {
        let mut args = vec!["label", "namespace", NAMESPACE, "--overwrite"];
        args.extend(labels.iter().map(String::as_str));
        fixture.as_admin(&args).await;
        fixture.until_bound("solar", NAMESPACE, "admin", None).await;
        fixture.until_conflict("solar", NAMESPACE).await;
        fixture.until_conflict("lunar", NAMESPACE).await;
        assert!(is_unbound(fixture, "lunar").await);
        let (_, list) = fixture.call(Method::GET, "tenants/lunar/namespaces", None).await;
        assert_eq!(list["items"], json!([]));
        let solar = tenant_label("solar");
        fixture.as_admin(&["label", "namespace", NAMESPACE, "--overwrite", &solar]).await;
        fixture.until_bound("solar", NAMESPACE, "admin", Some("alice")).await;
    }
    // A tenant that does not exist.
    let ghost = tenant_label("ghost");
    fixture.as_admin(&["label", "namespace", NAMESPACE, "--overwrite", &ghost]).await;
    fixture.until_bound("solar", NAMESPACE, "admin", None).await;
    let solar = tenant_label("solar");
    fixture.as_admin(&["label", "namespace", NAMESPACE, "--overwrite", &solar]).await;
    fixture.until_bound("solar", NAMESPACE, "admin", Some("alice")).await;
    assert_eq!(fixture.reasons("NamespaceMoved").await, [""; 0]);
}

async fn is_unbound(fixture: &Fixture, tenant: &str) -> bool {
    let name = format!("tenant-{tenant}-admin");
    fixture.object(&["rolebinding", &name, "-n", NAMESPACE]).await.is_none()
}

async fn an_announcement_alone_moves_nothing(fixture: &Fixture) {
    let plan = fixture.announce("lunar", NAMESPACE).await;
    // The announced labels without the uid of the Tenant.
    let lunar = tenant_label("lunar");
    let remove = "tenant-broker.io/tenant-uid-";
    fixture.as_admin(&["label", "namespace", NAMESPACE, "--overwrite", &lunar, remove]).await;
    fixture.until_bound("solar", NAMESPACE, "admin", None).await;
    fixture.until_conflict("lunar", NAMESPACE).await;
    assert!(is_unbound(fixture, "lunar").await);
    let solar = tenant_label("solar");
    fixture.as_admin(&["label", "namespace", NAMESPACE, "--overwrite", &solar]).await;
    fixture.until_bound("solar", NAMESPACE, "admin", Some("alice")).await;
    // A plan that is out of date is refused, and nobody but administrators gets one.
    let body = json!({"namespace_uid": "another", "from": "solar"});
    let path = format!("tenants/lunar/moves/{NAMESPACE}");
    let (status, refused) = fixture.call(Method::POST, &path, Some(body)).await;
    assert_eq!(
        (status, &refused["code"]),
        (StatusCode::CONFLICT, &json!("namespace_move_refused"))
    );
    let body = json!({"namespace_uid": plan["namespace_uid"]});
    let (status, refused) = fixture.call(Method::POST, &path, Some(body)).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
}

async fn an_announcement_for_another_tenant_moves_nothing(fixture: &Fixture) {
    fixture.apply("mars", "dave", &[], "Namespace").await;
    let plan = fixture.plan("mars", NAMESPACE).await;
    // `lunar` is announced, and the labels are those of `mars`.
    fixture.label(&plan).await;
    fixture.until_bound("solar", NAMESPACE, "admin", None).await;
    fixture.until_conflict("mars", NAMESPACE).await;
    for tenant in ["lunar", "mars"] {
        assert!(is_unbound(fixture, tenant).await, "{tenant}");
    }
    let solar = tenant_label("solar");
    let remove = "tenant-broker.io/tenant-uid-";
    fixture.as_admin(&["label", "namespace", NAMESPACE, "--overwrite", &solar, remove]).await;
    fixture.until_bound("solar", NAMESPACE, "admin", Some("alice")).await;
}

/// Neither the broker's stolen credential, nor an owner who may change namespaces everywhere.
async fn only_administrators_write_the_labels(fixture: &Fixture) {
    fixture.namespace("foreign", &json!({})).await;
    let role = ["create", "clusterrole", "patcher", "--verb=get,patch,update"];
    fixture.as_admin(&[&role[..], &["--resource=namespaces"]].concat()).await;
    let binding = ["create", "clusterrolebinding", "patcher", "--clusterrole=patcher"];
    fixture.as_admin(&[&binding[..], &["--user=alice"]].concat()).await;
    let file =
        fixture.world.cluster().kubeconfig_for("alice", None, fixture.world.folder()).unwrap();
    let alice = fixture.world.kubectl_with(&file).unwrap();
    let thief = fixture.world.broker_kubectl().unwrap();
    let lunar = tenant_label("lunar");
    for (namespace, label) in [
        (NAMESPACE, lunar.as_str()),
        (NAMESPACE, "tenant-broker.io/tenant-uid=x"),
        ("foreign", lunar.as_str()),
        ("foreign", "tenant-broker.io/tenant-uid=x"),
    ] {
        for (who, policy) in [(&alice, "tenant-guard-namespaces"), (&thief, "tenant-broker-fence")]
        {
            let tried = ["label", "namespace", namespace, label, "--overwrite", "--dry-run=server"];
            super::super::cluster::until_refused(who, &tried, policy).await;
        }
    }
    // The thief writes in a namespace of another name only if an administrator gave it the tenant.
    fixture.as_admin(&["label", "namespace", "foreign", &tenant_label("solar")]).await;
    let quota = ["create", "quota", "tenant-quota-7", "-n", "foreign", "--dry-run=server"];
    super::super::cluster::until_refused(&thief, &quota, "tenant-broker-fence").await;
}

/// The API server fills defaults into limits of containers.
async fn limits_are_not_written_again(fixture: &Fixture) {
    let range = ["limitrange", "tenant-limits-0", "-n", NAMESPACE];
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let before = fixture.object(&range).await.unwrap();
    assert_eq!(before["spec"]["limits"][0]["default"]["cpu"], "2", "{before}");
    for round in 1..=5 {
        // Each change of the Tenant is reconciled, and shows in the status.
        let patch = json!({"spec": {"namespaceOptions": {"quota": 10 + round}}}).to_string();
        fixture.as_admin(&["patch", TENANT_BROKER.0, "solar", "--type=merge", "-p", &patch]).await;
        fixture
            .until(&[TENANT_BROKER.0, "solar"], |tenant| {
                tenant["status"]["observedGeneration"] == tenant["metadata"]["generation"]
            })
            .await;
    }
    let after = fixture.object(&range).await.unwrap();
    assert_eq!(version(&before), version(&after));
}
