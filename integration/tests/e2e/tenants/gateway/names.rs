//! Names of namespaces that an owner creates: generated ones, one that a namespace has while it is being
//! deleted, and the same once it is gone.

use http::{Method, StatusCode};
use integration::api::Api;
use integration::probe::{self, Probe};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api as KubeApi;
use serde_json::{Value, json};
use tenant_shared::Code;

use super::{Fixture, NAMESPACES, fails, listed, send, succeeds};
use crate::refused;
use crate::tenants::reconcile::RECONCILE_TIMEOUT;
use crate::tenants::with_object;

/// The characters with which the API server completes a `generateName`.
const SUFFIX_ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";
const FULL: &str = "exceeded namespace quota: tenant solar has 2 of 2; delete a namespace, or ask \
                    an administrator";
/// An object that keeps its namespace from its end.
const HELD: &str = "held";

pub(super) async fn names_are_generated_and_free_once_their_namespaces_are_gone(fixture: &Fixture) {
    let api = fixture.alice.api().await.unwrap();
    let name = a_name_is_generated(fixture, &api).await;
    let uid = a_namespace_that_is_being_deleted_has_its_name(fixture, &api, &name).await;
    a_namespace_is_made_again(fixture, &api, &name, &uid).await;
}

async fn create(api: &Api, metadata: Value) -> (StatusCode, Value) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    send(api, Method::POST, NAMESPACES, Some(object)).await
}

/// Checks that the tenant has exactly these namespaces, in all lists, and that its quota is used up.
async fn are_all(fixture: &Fixture, api: &Api, name: &str) {
    let mut expected = ["solar-a", name];
    expected.sort_unstable();
    let kubectl = fixture.alice.kubectl();
    assert_eq!(listed(kubectl, &[]).await, expected);
    let counted = api.tenant_namespaces("solar").await.unwrap();
    let names: Vec<&str> = counted.items.iter().map(|item| item.name.as_str()).collect();
    assert_eq!((names.as_slice(), counted.quota), (&expected[..], Some(2)));
    fails(kubectl, &["create", "namespace", "solar-c"], &["Forbidden", FULL]).await;
}

/// The rule of names holds for the generated one.
async fn a_name_is_generated(fixture: &Fixture, api: &Api) -> String {
    for prefix in ["solar", "stellar-", "lunar-"] {
        let (status, answer) = create(api, json!({"generateName": prefix})).await;
        assert_eq!((status.as_u16(), &answer["reason"]), (422, &json!("Invalid")), "{answer}");
        let message = answer["message"].as_str().unwrap();
        let rule = "namespace names of tenant solar begin with solar-; choose such a name";
        assert!(message.contains(rule), "{answer}");
    }
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "solar-"},
    });
    let command = ["create", "-o", "name"];
    let made = with_object(fixture.alice.kubectl(), &command, object.to_string()).await;
    let made = made.success().unwrap().stdout;
    let name = made.trim().trim_start_matches("namespace/");
    let suffix = name.strip_prefix("solar-").unwrap();
    let is_generated = suffix.len() == 5 && suffix.chars().all(|c| SUFFIX_ALPHABET.contains(c));
    assert!(is_generated, "{made}");
    use_it(api, name).await;
    are_all(fixture, api, name).await;
    name.to_owned()
}

/// Sends the first request in a namespace: the rights are there when the creation returns.
async fn use_it(api: &Api, namespace: &str) {
    let path = format!("{NAMESPACES}/{namespace}/configmaps");
    let object = json!({"metadata": {"name": HELD}});
    let (status, answer) = send(api, Method::POST, &path, Some(object)).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
}

/// As the API server says it, and the namespace still counts. Returns its uid.
async fn a_namespace_that_is_being_deleted_has_its_name(
    fixture: &Fixture,
    api: &Api,
    name: &str,
) -> Value {
    finalizers(fixture, name, r#"["example.com/hold"]"#).await;
    let path = format!("{NAMESPACES}/{name}");
    let (status, deleted) = send(api, Method::DELETE, &path, None).await;
    assert_eq!((status, &deleted["status"]["phase"]), (StatusCode::OK, &json!("Terminating")));
    let (status, answer) = create(api, json!({"name": name})).await;
    let reason = (status, &answer["reason"]);
    assert_eq!(reason, (StatusCode::CONFLICT, &json!("AlreadyExists")), "{answer}");
    assert!(answer["message"].as_str().unwrap().contains(name), "{answer}");
    let refusal = refused(api.create_tenant_namespace("solar", name).await);
    let reason = (refusal.status, refusal.code());
    assert_eq!(reason, (StatusCode::CONFLICT, Code::NamespaceExists), "{refusal}");
    are_all(fixture, api, name).await;
    deleted["metadata"]["uid"].clone()
}

/// Sets the finalizers of the object in the namespace, as an administrator.
async fn finalizers(fixture: &Fixture, namespace: &str, finalizers: &str) {
    let patch = format!("{{\"metadata\":{{\"finalizers\":{finalizers}}}}}");
    let command = ["patch", "configmap", HELD, "-n", namespace, "--type=merge", "-p", &patch];
    fixture.admin.run(command).await.unwrap().success().unwrap();
}

/// At once: the name is free when the namespace is gone, and its place in the quota as well.
async fn a_namespace_is_made_again(fixture: &Fixture, api: &Api, name: &str, earlier: &Value) {
    let client = fixture.world.cluster().admin().await.unwrap();
    let namespaces: KubeApi<Namespace> = KubeApi::all(client);
    finalizers(fixture, name, "null").await;
    probe::until("the end of the namespace", RECONCILE_TIMEOUT, || async {
        let live = namespaces.get_opt(name).await?;
        Ok(live.map_or(Probe::Ready(()), |live| Probe::NotYet(format!("{:?}", live.status))))
    })
    .await
    .unwrap();
    let (status, made) = create(api, json!({"name": name})).await;
    assert_eq!((status, &made["metadata"]["name"]), (StatusCode::CREATED, &json!(name)), "{made}");
    assert_ne!(&made["metadata"]["uid"], earlier, "{made}");
    use_it(api, name).await;
    are_all(fixture, api, name).await;
    let (status, answer) = create(api, json!({"name": name})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    // Its place is free at once, also for another name.
    let kubectl = fixture.alice.kubectl();
    for (verb, name) in [("delete", name), ("create", "solar-d"), ("delete", "solar-d")] {
        succeeds(kubectl, &[verb, "namespace", name]).await;
    }
}
