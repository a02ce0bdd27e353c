//! `kubectl proxy` with a gateway entry: every user of the machine may send any request with the
//! person's token.

use std::time::Duration;

use http::{Method, StatusCode, header};
use integration::kubectl::Kubectl;
use integration::process::Captured;
use integration::world::World;
use serde_json::Value;

use super::through_the_gateway;

/// Starts `kubectl proxy` on a free port, and returns its base URL.
async fn proxy(kubectl: &Kubectl, more: &[&str]) -> (Captured, String) {
    let args = ["proxy", "--port=0", "--reject-methods=^$"];
    let proxy = kubectl.spawn(args.iter().chain(more)).unwrap();
    let said = proxy
        .until_stdout("kubectl proxy", Duration::from_secs(30), |said| said.contains("Starting"))
        .await
        .unwrap();
    let address = said.split_whitespace().last().unwrap().to_owned();
    (proxy, format!("http://{address}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_of_a_gateway_entry_reaches_nothing_but_the_gateway() {
    let world = World::builder().tls().start().await.unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    let workspace = alice.api().await.unwrap().workspaces(false).await.unwrap().items[0].id;
    let http = integration::http_client::http_client(None).unwrap();

    let (_proxy, base) = proxy(alice.kubectl(), &[]).await;
    for (method, path) in [
        (Method::POST, format!("/api/v1/workspaces/{workspace}/credentials")),
        (Method::GET, "/api/v1/workspaces/credentials/kubeconfig".to_owned()),
        (Method::GET, "/api/v1/me".to_owned()),
        (Method::GET, "/api/v1/workspaces".to_owned()),
        (Method::DELETE, "/api/v1/me/sessions".to_owned()),
        (Method::GET, "/oauth2/userinfo".to_owned()),
    ] {
        let answer = http.request(method, format!("{base}{path}")).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}: {answer:?}");
        let challenge = answer.headers()[header::WWW_AUTHENTICATE].to_str().unwrap();
        assert!(challenge.contains("error=\"insufficient_scope\""), "{challenge}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["code"], "insufficient_scope", "{problem}");
    }
    let issued = alice.api().await.unwrap().audit_logs("action=IssueCredential").await.unwrap();
    assert!(issued.items.is_empty(), "{issued:?}");

    // A request without the gateway's path gets a hint what to append.
    for path in ["/api", "/apis", "/version", "/apis/apps/v1"] {
        let answer = http.get(format!("{base}{path}")).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        let text = answer.text().await.unwrap();
        assert!(text.contains("/clusters/internal-cluster"), "{text}");
        assert!(text.contains("--append-server-path"), "{text}");
    }
    let (_proxy, base) = proxy(alice.kubectl(), &["--append-server-path"]).await;
    let path = format!("/api/v1/namespaces/{}/configmaps", alice.namespace());
    let answer = http.get(format!("{base}{path}")).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "{answer:?}");

    // The session itself continues to work, and so does the plugin.
    alice.kubectl().run(["tenant", "whoami"]).await.unwrap().success().unwrap();
    let printed = alice.kubectl().run(["tenant", "kubeconfig", "--mode", "static", "--print"]);
    printed.await.unwrap().success().unwrap();
}
