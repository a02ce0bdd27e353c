//! Attacks of a tenant with the kind of the Llama Stack operator, which no quota counts.

use std::time::Duration;

use integration::probe::{self, Probe};
use serde_json::{Map, Value, json};

use super::{are_refused, is_refused};
use crate::model_services::fixture::{builder_with_kinds, install_kinds, namespace_of};

pub(crate) const POLICY: &str = "tenant-guard-llama-stacks";
const NAME: &str = "lsd-genai-playground";
const KIND: &str = "llamastackdistribution";
const KINDS: &str = "llamastackdistributions.llamastack.io";
const CREATE: [&str; 3] = ["create", "-f", "-"];
const TIMEOUT: Duration = Duration::from_secs(30);
const FINALIZER: &str = r#"{"metadata":{"finalizers":["example.com/stay"]}}"#;
const TWO_FINALIZERS: &str =
    r#"{"metadata":{"finalizers":["example.com/stay","example.com/too"]}}"#;
const NO_FINALIZER: &str = r#"{"metadata":{"finalizers":[]}}"#;

/// A Llama Stack with this metadata.
pub(crate) fn llama_stack(metadata: &Value) -> Value {
    json!({"apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
        "metadata": metadata, "spec": {"server": {"distribution": {"name": "starter"}}}})
}

/// Specifications by which the operator would read a ConfigMap of another namespace.
fn foreign_config_maps() -> [Value; 2] {
    let foreign = json!({"configMapName": "app-config", "configMapNamespace": "kube-system"});
    [json!({"userConfig": foreign}), json!({"tlsConfig": {"caBundle": foreign}})]
}

fn owner() -> Value {
    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": "00000000-0000-4000-8000-000000000001"}])
}

/// Metadata that a new Llama Stack must not have.
fn refused_metadata() -> Vec<Value> {
    let many: Map<String, Value> =
        (0..65).map(|number| (format!("key-{number}"), json!("value"))).collect();
    vec![
        json!({"name": "one"}),
        json!({"generateName": "lsd-"}),
        json!({"generateName": NAME}),
        json!({"name": NAME, "finalizers": ["example.com/stay"]}),
        json!({"name": NAME, "ownerReferences": owner()}),
        json!({"name": NAME, "labels": many}),
        json!({"name": NAME, "annotations": many}),
        json!({"name": NAME, "annotations": {"large": "x".repeat(65 * 1024)}}),
    ]
}

#[tokio::test]
async fn a_workspace_has_one_llama_stack() {
    let world = builder_with_kinds().start().await.unwrap();
    install_kinds(&world).await;
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let (kubectl, admin) = (mallory.kubectl(), world.admin_kubectl().unwrap());
    let namespace = mallory.namespace();
    for metadata in refused_metadata() {
        is_refused(kubectl, &CREATE, &llama_stack(&metadata), POLICY).await;
    }
    for server in foreign_config_maps() {
        let mut stack = llama_stack(&json!({"name": NAME}));
        let server = server.as_object().unwrap().clone();
        stack["spec"]["server"].as_object_mut().unwrap().extend(server);
        is_refused(kubectl, &CREATE, &stack, POLICY).await;
    }
    let mut own = llama_stack(&json!({"name": NAME, "labels": {"a": "b"}}));
    own["spec"]["server"]["userConfig"] =
        json!({"configMapName": "app-config", "configMapNamespace": namespace});
    kubectl.run_with_input(CREATE, own.to_string()).await.unwrap().success().unwrap();

    // The operator's role for editors gives these verbs.
    let role = ["create", "role", "editor", "-n", &namespace, "--verb=get,update,patch"];
    let resource = format!("--resource={KINDS}");
    admin.run(role.into_iter().chain([&*resource])).await.unwrap().success().unwrap();
    let account = format!("--serviceaccount={namespace}:sa-tenant-admin");
    let bind = ["create", "rolebinding", "editor", "-n", &namespace, "--role=editor", &account];
    admin.run(bind).await.unwrap().success().unwrap();
    probe::until("the right to change it", TIMEOUT, || async {
        let changed = kubectl.run(["annotate", KIND, NAME, "--overwrite", "a=b"]).await?;
        Ok(if changed.status.success() { Probe::Ready(()) } else { Probe::NotYet(changed.stderr) })
    })
    .await
    .unwrap();
    let owned = json!({"metadata": {"ownerReferences": owner()}}).to_string();
    let patch = |patch| ["patch", KIND, NAME, "--type=merge", "-p", patch];
    let foreign = json!({"spec": {"server": foreign_config_maps()[0]}}).to_string();
    let patches = [FINALIZER, &owned, &foreign].map(patch);
    let refused: Vec<_> = patches.iter().map(|patch| (&patch[..], POLICY)).collect();
    are_refused(kubectl, &refused).await;

    // The operator may add one, which others may take away.
    let role = ["create", "clusterrole", "llama-operator", "--verb=get,patch", &resource];
    admin.run(role).await.unwrap().success().unwrap();
    let bind = ["create", "clusterrolebinding", "llama-operator", "--clusterrole=llama-operator"];
    let bind = bind.into_iter().chain(["--user=llama-operator"]);
    admin.run(bind).await.unwrap().success().unwrap();
    let as_operator = ["-n", &namespace, "--as=llama-operator"];
    probe::until("the operator to add its finalizer", TIMEOUT, || async {
        let changed = admin.run(patch(FINALIZER).into_iter().chain(as_operator)).await?;
        Ok(if changed.status.success() { Probe::Ready(()) } else { Probe::NotYet(changed.stderr) })
    })
    .await
    .unwrap();
    are_refused(kubectl, &[(&patch(TWO_FINALIZERS), POLICY)]).await;
    let change = ["annotate", KIND, NAME, "--overwrite", "a=c"];
    kubectl.run(change).await.unwrap().success().unwrap();
    kubectl.run(["delete", KIND, NAME, "--wait=false"]).await.unwrap().success().unwrap();
    kubectl.run(patch(NO_FINALIZER)).await.unwrap().success().unwrap();
    let left = kubectl.run(["get", KIND, NAME]).await.unwrap();
    assert!(left.stderr.contains("NotFound"), "{left:?}");

    // Administrators of the policies may, and so may others where the broker manages nothing.
    namespace_of(&world, "llama-stacks-elsewhere", "reg", "admin").await;
    for (user, namespace) in [("--as=adm", &*namespace), ("--as=reg", "llama-stacks-elsewhere")] {
        let object = llama_stack(&json!({"name": "one", "finalizers": ["example.com/stay"]}));
        let args = CREATE.into_iter().chain(["-n", namespace, user]);
        admin.run_with_input(args, object.to_string()).await.unwrap().success().unwrap();
        let free = ["patch", KIND, "one", "-n", namespace, "--type=merge", "-p", NO_FINALIZER];
        admin.run(free).await.unwrap().success().unwrap();
    }
}
