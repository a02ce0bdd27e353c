//! kubectl through the broker's gateway, and the requests that it refuses.

mod browser;
mod clocks;
mod defects;
pub(crate) mod helm;
mod kubectl_proxy;
mod limits;
mod misbehaving;
mod parity;
mod proxied_responses;
mod raw;
mod streams;
mod synthesized;
mod upgrades;

use std::time::Duration;

use http::{Method, StatusCode};
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tenant_shared::SuspendRequest;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Path of the gateway, relative to the base of the API that the harness's client has.
pub(crate) const GATEWAY: &str = "../../clusters/internal-cluster";

/// Creates a person whose kubectl goes through the gateway.
pub(crate) async fn through_the_gateway(world: &World, name: &str) -> Person {
    let person = world.person(name).await.unwrap();
    person.login(&[]).await.unwrap().success().unwrap();
    person
        .kubectl()
        .run(["tenant", "kubeconfig", "--mode", "gateway", "--use"])
        .await
        .unwrap()
        .success()
        .unwrap();
    person
}

#[tokio::test]
async fn kubectl_works_as_it_does_directly() {
    let world = World::builder().tls().start().await.unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    let kubeconfig = std::fs::read_to_string(alice.kubeconfig()).unwrap();
    assert!(kubeconfig.contains("/clusters/internal-cluster"), "{kubeconfig}");
    let kubectl = alice.kubectl();

    kubectl.run(["get", "pods"]).await.unwrap().success().unwrap();
    kubectl.run(["api-resources"]).await.unwrap().success().unwrap();
    let made = ["create", "configmap", "notes", "--from-literal=a=b"];
    kubectl.run(made).await.unwrap().success().unwrap();
    let notes = kubectl.json(["get", "configmap", "notes"]).await.unwrap();
    assert_eq!(notes["metadata"]["namespace"], alice.namespace());
    let document = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"},
        "data": {"text": "x".repeat(700_000)},
    });
    let apply = ["apply", "--server-side", "-f", "-"];
    kubectl.run_with_input(apply, document.to_string()).await.unwrap().success().unwrap();
    let large = kubectl.json(["get", "configmap", "large"]).await.unwrap();
    assert_eq!(large["data"]["text"].as_str().unwrap().len(), 700_000);
    kubectl.run(["delete", "configmap", "notes"]).await.unwrap().success().unwrap();
    let allowed = kubectl.run(["auth", "can-i", "create", "pods"]).await.unwrap();
    assert_eq!(allowed.stdout.trim(), "yes", "{allowed:?}");
    let denied = kubectl.run(["get", "nodes"]).await.unwrap();
    assert!(denied.stderr.contains("Forbidden"), "the API server decides: {denied:?}");
    let denied = kubectl.run(["get", "secrets", "-n", "kube-system"]).await.unwrap();
    assert!(denied.stderr.contains("Forbidden"), "{denied:?}");
    let absent = kubectl.run(["get", "configmap", "absent"]).await.unwrap();
    assert!(absent.stderr.contains("NotFound"), "{absent:?}");
}

#[tokio::test]
async fn nobody_acts_as_somebody_else_and_the_clusters_log_joins_to_the_person() {
    let world = World::builder().tls().start().await.unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    let denied = alice.kubectl().run(["get", "pods", "--as", "system:admin"]).await.unwrap();
    assert!(denied.stderr.contains("impersonation"), "{denied:?}");

    let api = alice.api().await.unwrap();
    let path = format!("{GATEWAY}/api/v1/namespaces/{}/pods", alice.namespace());
    let send = |headers: &[(&str, &str)]| {
        let mut request = api.request(Method::GET, &path).unwrap();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send()
    };
    for headers in [
        [("impersonate-group", "system:masters"), ("x-a", "b")],
        [("impersonate-extra-scopes", "all"), ("accept", "*/*")],
    ] {
        let refused = send(&headers).await.unwrap();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        let status: Value = refused.json().await.unwrap();
        assert_eq!(status["kind"], "Status");
        let id = status["details"]["causes"][1]["message"].as_str().unwrap().to_owned();
        let events = world.cluster().audit_events(&id).unwrap();
        assert!(!events.iter().any(|event| event["auditID"] == id.as_str()), "it was forwarded");
    }
    let answer = send(&[("x-remote-user", "admin"), ("audit-id", "chosen")]).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let id = answer.headers()["audit-id"].to_str().unwrap().to_owned();
    assert_ne!(id, "chosen");
    let event = probe::until("the API server's audit log", Duration::from_secs(10), || async {
        let events = world.cluster().audit_events(&id)?;
        // The broker's own TokenRequest has the same id.
        let found = events.into_iter().find(|event| {
            event["auditID"] == id.as_str() && event["user"]["username"] != "tenant-broker"
        });
        Ok(found.map_or(Probe::NotYet("no such line".to_owned()), Probe::Ready))
    })
    .await
    .unwrap();
    let user = format!("system:serviceaccount:{}:sa-tenant-admin", alice.namespace());
    assert_eq!(event["user"]["username"], user);
    let credential = &event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0];
    let issued = api.audit_logs("action=IssueGatewayToken").await.unwrap();
    let issued = issued.items[0].credential_id.clone().unwrap();
    assert_eq!(credential.as_str().unwrap(), format!("JTI={issued}"));
    assert_eq!(
        api.audit_logs("action=IssueGatewayToken").await.unwrap().items.len(),
        1,
        "one token"
    );
}

#[tokio::test]
async fn an_ambiguous_path_is_not_forwarded() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    api.init("basic").await.unwrap();
    // kubectl sends no credentials without TLS, so no kubeconfig is issued that could not work.
    let refused = api.kubeconfig("gateway").await.unwrap_err().to_string();
    assert!(refused.contains("https"), "{refused}");
    let session = alice.sign_in().await.unwrap();
    let broker = world.broker().url().unwrap();
    let authority = broker.authority().to_owned();
    for (target, status) in [
        ("/clusters/internal-cluster/api/v1/../../version", 400),
        ("/clusters/internal-cluster/api//v1", 400),
        ("/clusters/internal-cluster/api/%2e%2e/version", 400),
        ("/clusters/internal-cluster/api/v1/namespaces/a%2fb/pods", 400),
        ("/clusters/internal-cluster/api/v1/namespaces/a%00b/pods", 400),
        ("/clusters/other/api", 404),
        ("/clusters/internal-cluster/version", 200),
        ("http://elsewhere.example/clusters/internal-cluster/version", 200),
    ] {
        let token = session.access_token.expose_secret();
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {authority}\r\nAuthorization: Bearer {token}\r\n\
             Connection: close\r\n\r\n"
        );
        let answer = raw(&authority, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {answer}");
    }
    // A header that is listed as hop-by-hop is checked before it is removed.
    let token = session.access_token.expose_secret();
    let listed = format!(
        "GET /clusters/internal-cluster/version HTTP/1.1\r\nHost: {authority}\r\n\
         Authorization: Bearer {token}\r\nImpersonate-User: admin\r\n\
         Connection: Impersonate-User, Authorization, close\r\n\r\n"
    );
    assert!(raw(&authority, &listed).await.starts_with("HTTP/1.1 403 "));
    let stranger = format!(
        "GET /clusters/internal-cluster/api/../version HTTP/1.1\r\nHost: {authority}\r\n\
         Connection: close\r\n\r\n"
    );
    assert!(raw(&authority, &stranger).await.starts_with("HTTP/1.1 401 "));
}

/// Sends these bytes and reads until the end.
async fn raw(authority: &str, request: impl AsRef<[u8]>) -> String {
    let stream = tokio::net::TcpStream::connect(authority).await.unwrap();
    exchange(stream, request.as_ref()).await
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> String {
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    // A server that closes during an upload may reset the connection after its response.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn suspension_and_sign_out_cut_open_watches_on_every_replica() {
    let world = World::builder().tls().postgres().replicas(2).start().await.unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    let operator = world.administrator("operator").await.unwrap();
    let (api, admin) = (alice.api().await.unwrap(), operator.api().await.unwrap());
    let id = api.workspaces(false).await.unwrap().items[0].id;
    let path = format!("{GATEWAY}/api/v1/namespaces/{}/configmaps?watch=true", alice.namespace());
    let made = ["create", "configmap", "notes"];
    alice.kubectl().run(made).await.unwrap().success().unwrap();
    let mut watches = Vec::new();
    for broker in world.brokers() {
        let at = alice.api().await.unwrap().at(&broker.url().unwrap()).unwrap();
        let mut answer = at.request(Method::GET, &path).unwrap().send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let first = answer.chunk().await.unwrap();
        assert!(first.is_some(), "there is one");
        watches.push(answer);
    }
    let reason = SuspendRequest { reason: Some("leak".to_owned()) };
    admin.suspend(id, &reason).await.unwrap();
    for mut watch in watches {
        let rest = async {
            loop {
                match watch.chunk().await {
                    Ok(Some(_)) => {}
                    other => break other.map(drop),
                }
            }
        };
        let end = tokio::time::timeout(Duration::from_secs(20), rest).await.unwrap();
        assert!(end.is_err(), "cut, not ended as if all were well");
    }
    let denied = alice.kubectl().run(["get", "pods"]).await.unwrap();
    assert!(denied.stderr.contains("suspended"), "{denied:?}");
}
