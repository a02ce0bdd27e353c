//! Creations that the API server itself refuses: quotas, policies, strict validation, owner references.

use http::Method;
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};

use super::fixture::{
    Client, DEFINITIONS, REG, TIMEOUT, apply, builder_with_kinds, install_definitions,
    namespace_of, world,
};
use super::llama_stack::{LSD, config_map, distribution, ready_model};

/// Waits until the API server refuses an object with this text, in a dry run as an administrator.
async fn until_refused(admin: &Kubectl, object: &Value, text: &str) {
    let args = ["create", "--dry-run=server", "-f", "-"];
    probe::until(text, TIMEOUT, || async {
        let tried = admin.run_with_input(args, object.to_string()).await?;
        let is_refused = tried.stderr.contains(text);
        Ok(if is_refused { Probe::Ready(()) } else { Probe::NotYet(format!("{tried:?}")) })
    })
    .await
    .unwrap();
}

fn lsd(namespace: &str) -> Value {
    json!({"apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
        "metadata": {"name": "probe", "namespace": namespace},
        "spec": {"server": {"distribution": {"name": "starter"}}}})
}

fn config(namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "probe", "namespace": namespace}})
}

fn quota(namespace: &str, resource: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "platform", "namespace": namespace},
        "spec": {"hard": {format!("count/{resource}"): "0"}}})
}

/// A policy that refuses creations of a resource in a namespace.
fn policy(namespace: &str, (group, resource): (&str, &str), validation: &Value) -> Value {
    let metadata = json!({"name": namespace});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
         "metadata": metadata, "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [{"apiGroups": [group], "apiVersions": ["*"],
                                   "resources": [resource], "operations": ["CREATE"]}]},
            "validations": [validation]}},
        {"apiVersion": "admissionregistration.k8s.io/v1",
         "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
         "spec": {"policyName": namespace, "validationActions": ["Deny"]}},
    ]})
}

/// The message of the refusal of an installation, which left nothing.
async fn refusal(world: &World, client: &Client, namespace: &str, status: u16) -> String {
    let refused = client.install(namespace, REG, &["good"]).await;
    let message = refused.failure(status).to_owned();
    assert!(message.contains(namespace), "{message}");
    assert!(distribution(world, namespace).await.is_none());
    assert!(config_map(world, namespace).await.is_none());
    message
}

#[tokio::test]
async fn the_text_of_a_quota_or_policy_that_refuses_reaches_the_person() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let text = "ask the platform team for a Llama Stack";
    let validation = json!({"expression": "false", "message": text});
    let mut forbidden = validation.clone();
    forbidden["reason"] = json!("Forbidden");
    let (lsds, maps) = ("llamastackdistributions", "configmaps");
    let cases = [
        (
            "refused-a",
            403,
            quota("refused-a", "llamastackdistributions.llamastack.io"),
            lsd("refused-a"),
            "quota: platform",
        ),
        ("refused-b", 403, quota("refused-b", maps), config("refused-b"), "quota: platform"),
        (
            "refused-c",
            400,
            policy("refused-c", ("llamastack.io", lsds), &validation),
            lsd("refused-c"),
            text,
        ),
        ("refused-d", 403, policy("refused-d", ("", maps), &forbidden), config("refused-d"), text),
    ];
    for (namespace, status, refuser, probed, text) in cases {
        namespace_of(&world, namespace, "reg", "admin").await;
        ready_model(&admin, namespace, "good").await;
        apply(&admin, refuser.to_string()).await;
        until_refused(&admin, &probed, text).await;
        let message = refusal(&world, &client, namespace, status).await;
        assert!(message.contains(text), "{message}");
    }
}

#[tokio::test]
async fn an_owner_reference_needs_no_right_to_finalizers() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let namespace = "refused-owner";
    namespace_of(&world, namespace, "reg", "admin").await;
    ready_model(&admin, namespace, "good").await;
    client.install(namespace, REG, &["good"]).await.data();
    let uid = distribution(&world, namespace).await.unwrap()["metadata"]["uid"].clone();
    let create = async |is_blocking: bool| {
        let mut object = config(namespace);
        object["metadata"]["ownerReferences"] = json!([{"apiVersion": "llamastack.io/v1alpha1",
            "kind": "LlamaStackDistribution", "name": LSD, "uid": uid,
            "blockOwnerDeletion": is_blocking}]);
        let args = ["create", "--as=reg", "-f", "-"];
        admin.run_with_input(args, object.to_string()).await.unwrap()
    };
    // The admission plugin is on: a reference that blocks the deletion would be refused.
    let refused = create(true).await;
    assert!(refused.stderr.contains("cannot set blockOwnerDeletion"), "{refused:?}");
    create(false).await.success().unwrap();
    let map = config_map(&world, namespace).await.unwrap();
    assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], uid);
    client.delete(namespace, REG, LSD).await.data();
}

#[tokio::test]
async fn a_field_that_an_older_operator_does_not_know_is_refused_and_not_dropped() {
    let world = builder_with_kinds().own_control_plane().fault_proxy().start().await.unwrap();
    // Without strict validation the API server would create a distribution without configuration.
    let older = DEFINITIONS.replace(
        "                  userConfig:\n                    type: object\n                    \
         required: [configMapName]\n                    properties:\n                      \
         configMapName: {type: string}\n                      configMapNamespace: {type: string}\n",
        "",
    );
    assert_ne!(older, DEFINITIONS);
    install_definitions(&world, &older).await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    namespace_of(&world, "refused-older", "reg", "admin").await;
    ready_model(&admin, "refused-older", "good").await;
    let refused = client.install("refused-older", REG, &["good"]).await;
    refused.failure(500);
    assert!(distribution(&world, "refused-older").await.is_none());
    assert!(config_map(&world, "refused-older").await.is_none());
    // The person cannot help it, so the cause is in the operator's log.
    let cause = "unknown field \\\"spec.server.userConfig\\\"";
    let has_cause = |line: &str| line.contains(refused.request_id()) && line.contains(cause);
    probe::until("the cause in the log", TIMEOUT, || async {
        let is_logged = world.broker().log()?.lines().any(has_cause);
        Ok(if is_logged { Probe::Ready(()) } else { Probe::NotYet("no cause".to_owned()) })
    })
    .await
    .unwrap();
    let creations = world.proxy().unwrap().requests().into_iter().filter(|seen| {
        seen.is(&Method::POST, "/refused-older/llamastackdistributions") && seen.has_token(REG)
    });
    assert_eq!(creations.count(), 1);
}
