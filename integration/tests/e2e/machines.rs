//! Workload identity: a machine signs in with a ServiceAccount token of a real cluster instead of a
//! stored secret.

use integration::api::Api;
use integration::kubectl::Kubectl;
use integration::world::World;
use reqwest::{Method, StatusCode};
use secrecy::SecretString;
use serde_json::Value;
use tenant_shared::Code;
use uuid::Uuid;

use crate::refused;

pub(crate) const AUDIENCE: &str = "https://broker.example.com";

/// Has the broker accept tokens of the ServiceAccount `builder` in this namespace for one workspace,
/// and restarts it.
pub(crate) async fn accept_builder(world: &World, namespace: &str, workspace: &str) {
    let cluster = world.admin_kubectl().unwrap();
    // Everybody may read the cluster's public keys, as in a cluster that issues tokens for others.
    let binding = ["create", "clusterrolebinding", "keys-for-everybody"];
    let whom =
        ["--clusterrole=system:service-account-issuer-discovery", "--group=system:unauthenticated"];
    let bound = cluster.run(binding.iter().chain(&whom)).await.unwrap();
    assert!(bound.status.success() || bound.stderr.contains("already exists"), "{}", bound.stderr);
    let discovery = ["get", "--raw", "/.well-known/openid-configuration"];
    let discovery = cluster.run(discovery).await.unwrap().success().unwrap().stdout;
    let discovery: Value = serde_json::from_str(&discovery).unwrap();

    let ca = world.folder().join("cluster-ca.pem");
    std::fs::write(&ca, world.cluster().authority().certificate()).unwrap();
    let broker = world.broker();
    let set = |key: &str, value: &str| broker.set(&format!("workloads.cluster.{key}"), value);
    set("issuer", discovery["issuer"].as_str().unwrap());
    set("audience", AUDIENCE);
    set("jwks_uri", world.cluster().url().join("/openid/v1/jwks").unwrap().as_str());
    set("ca_file", ca.to_str().unwrap());
    set("rules.build.workspace", workspace);
    set("rules.build.claims.kubernetes.io.namespace", namespace);
    set("rules.build.claims.kubernetes.io.serviceaccount.name", "builder");
    broker.stop().await.unwrap();
    broker.start().await.unwrap();
}

/// A token of a ServiceAccount, which is created if it does not exist.
pub(crate) async fn account_token(
    world: &World,
    namespace: &str,
    name: &str,
    audience: &str,
) -> String {
    let cluster = world.admin_kubectl().unwrap();
    cluster.run(["create", "serviceaccount", name, "-n", namespace]).await.unwrap();
    let audience = format!("--audience={audience}");
    let create = ["create", "token", name, "-n", namespace, "--duration=10m", &audience];
    let token = cluster.run(create).await.unwrap().success().unwrap();
    token.stdout.trim().to_owned()
}

/// Exchanges a token of a ServiceAccount for a session of one workspace.
pub(crate) async fn exchange(world: &World, workspace: &str, token: &str) -> (StatusCode, Value) {
    let form = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
        ("subject_token", token),
        ("audience", workspace),
    ];
    let http = integration::http_client::http_client(None).unwrap();
    let address = world.broker().url().unwrap().join("/oauth2/token").unwrap();
    let answer = http.post(address).form(&form).send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

#[tokio::test]
async fn a_pod_of_a_cluster_gets_credentials_for_one_workspace_and_nothing_else() {
    let world = World::builder().start().await.unwrap();
    // The owner is an administrator, and the machine must not become one.
    let owner = world.administrator("olga").await.unwrap();
    owner.login(&[]).await.unwrap().success().unwrap();
    let (namespace, broker) = (owner.namespace(), world.broker());
    accept_builder(&world, &namespace, &namespace).await;
    let account =
        async |name: &str, audience: &str| account_token(&world, &namespace, name, audience).await;
    let exchange = async |token: &str| exchange(&world, &namespace, token).await;
    let (status, _) = exchange(&account("default", AUDIENCE).await).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "another account of the namespace");
    let (status, _) = exchange(&account("builder", "https://elsewhere.example").await).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "a token for somebody else");
    let (status, answer) = exchange(&account("builder", AUDIENCE).await).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    // The lifetime is the token's ten minutes, less than a session's fifteen.
    assert!(answer["expires_in"].as_i64().unwrap() <= 600, "{answer}");

    let token = SecretString::from(answer["access_token"].as_str().unwrap().to_owned());
    let machine = Api::anonymous(&broker.url().unwrap(), None).unwrap().with_token(token);
    let listed = machine.workspaces(false).await.unwrap();
    let [workspace] = listed.items.as_slice() else { panic!("{listed:?}") };
    let credential = machine.credential(workspace.id).await.unwrap();
    assert!(!credential.token.is_empty());
    machine.workspace(workspace.id).await.unwrap();
    machine.kubeconfig("static").await.unwrap();

    // The plugin does all that for kubectl, with nothing but the token in a file.
    let (home, file) = (world.folder().join("job"), world.folder().join("job-token"));
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(&file, account("builder", AUDIENCE).await).unwrap();
    let plugins = world.binaries().folder();
    let job = Kubectl::new(&home, &home.join("config"), Some(plugins))
        .unwrap()
        .env("TENANT_BROKER_URL", broker.url().unwrap().as_str())
        .env("TENANT_ID_TOKEN_FILE", &file)
        .env("TENANT_WORKSPACE", &namespace);
    job.run(["tenant", "login"]).await.unwrap().success().unwrap();
    for _ in 0..2 {
        job.run(["get", "pods"]).await.unwrap().success().unwrap();
    }
    let kept = job.run(["auth", "whoami", "-o", "json"]).await.unwrap().success().unwrap();
    assert!(kept.stdout.contains(&format!("{namespace}:sa-tenant-admin")), "{}", kept.stdout);
    let told = owner.api().await.unwrap().audit_logs("action=IssueCredential").await.unwrap();
    assert_eq!(told.items.len(), 2, "one by hand, one for all of the job: {told:?}");

    assert_eq!(refused(machine.me().await).code(), Code::Forbidden);
    assert_eq!(refused(machine.init("basic").await).code(), Code::Forbidden);
    assert_eq!(refused(machine.audit_logs("").await).code(), Code::Forbidden);
    assert_eq!(refused(machine.workspaces(true).await).code(), Code::Forbidden);
    assert_eq!(refused(machine.workspace(Uuid::nil()).await).code(), Code::NotFound);
    // An administrator sees and suspends all workspaces; an administrator's machine does neither.
    let other = world.person("alice").await.unwrap();
    other.login(&[]).await.unwrap().success().unwrap();
    let theirs = other.api().await.unwrap().workspaces(false).await.unwrap().items[0].id;
    assert_eq!(refused(machine.workspace(theirs).await).code(), Code::NotFound);
    assert_eq!(refused(machine.credential(theirs).await).code(), Code::NotFound);
    for (method, path) in [
        (Method::POST, format!("workspaces/{}/suspend", workspace.id)),
        (Method::GET, "users".to_owned()),
        (Method::GET, "me/sessions".to_owned()),
        (Method::DELETE, "me/sessions".to_owned()),
    ] {
        let request = machine.request(method, &path).unwrap().json(&serde_json::json!({}));
        assert_eq!(request.send().await.unwrap().status(), StatusCode::FORBIDDEN, "{path}");
    }
}
