//! The fault proxy is transparent except for the faults that a test asks for.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use integration::control_plane::{ControlPlane, ControlPlaneOptions, client};
use integration::fault_proxy::{Fault, FaultProxy, RecordedRequest, Rule};
use integration::http_client::http_client;
use integration::probe::{self, Probe};
use integration::scratch::Scratch;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use reqwest::Response;
use serde_json::json;
use tokio::sync::Notify;

struct ProxiedCluster {
    cluster: Arc<ControlPlane>,
    proxy: FaultProxy,
    http: reqwest::Client,
    _scratch: Scratch,
}

impl ProxiedCluster {
    async fn new() -> Self {
        let cluster = ControlPlane::shared(&ControlPlaneOptions::default()).await.unwrap();
        let scratch = Scratch::new("proxy-test").unwrap();
        let proxy = FaultProxy::start(&cluster, scratch.path()).await.unwrap();
        let http = http_client(Some(cluster.authority().certificate())).unwrap();
        Self { cluster, proxy, http, _scratch: scratch }
    }

    async fn get(&self, path: &str) -> reqwest::Result<Response> {
        self.http.get(self.proxy.url().join(path).unwrap()).send().await
    }

    /// Returns the API for ConfigMaps, past the proxy.
    async fn config_maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.cluster.admin().await.unwrap())
    }
}

fn version(seen: &RecordedRequest) -> bool {
    seen.is(&Method::GET, "/version")
}

#[tokio::test]
async fn the_proxy_keeps_the_brokers_identity_and_passes_bearer_tokens_on() {
    let proxied = ProxiedCluster::new().await;
    let broker = client(proxied.proxy.kubeconfig()).await.unwrap();
    let review: SelfSubjectAccessReview = serde_json::from_value(json!({
        "spec": { "resourceAttributes": { "verb": "list", "resource": "secrets" } }
    }))
    .unwrap();
    let reviews: Api<SelfSubjectAccessReview> = Api::all(broker);
    let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
    assert!(!answer.status.unwrap().allowed);

    let path = "apis/authentication.k8s.io/v1/selfsubjectreviews";
    let body = json!({ "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1" });
    let url = proxied.proxy.url().join(path).unwrap();
    let request = || proxied.http.post(url.clone()).json(&body);
    let answer: serde_json::Value = request().send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["status"]["userInfo"]["username"], "tenant-broker");
    let answer = request().bearer_auth("nonsense").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_nth_request_gets_the_fault_and_all_are_counted() {
    let proxied = ProxiedCluster::new().await;
    let busy = Fault::respond(StatusCode::TOO_MANY_REQUESTS)
        .header(http::header::RETRY_AFTER, HeaderValue::from_static("7"));
    let rule = proxied.proxy.add(Rule::new(busy).when(version).nth(2));
    let statuses = [
        proxied.get("version").await.unwrap(),
        proxied.get("livez").await.unwrap(),
        proxied.get("version").await.unwrap(),
        proxied.get("version").await.unwrap(),
    ];
    assert_eq!(statuses.each_ref().map(|answer| answer.status().as_u16()), [200, 200, 429, 200]);
    assert_eq!(statuses[2].headers()["retry-after"], "7");
    assert_eq!(rule.fired(), 1);
    assert_eq!(proxied.proxy.count(version), 3);
    assert_eq!(proxied.proxy.requests().len(), 4);
}

#[tokio::test]
async fn cut_before_has_no_effect_upstream_and_cut_after_has() {
    let proxied = ProxiedCluster::new().await;
    let maps = proxied.config_maps().await;
    let creates = |seen: &RecordedRequest| seen.is(&Method::POST, "/configmaps");
    // The broker may not write ConfigMaps, so this request uses an administrator's token.
    let token = admin_token(&proxied).await;
    let create = async |name: &str| {
        let url = proxied.proxy.url().join("api/v1/namespaces/default/configmaps").unwrap();
        let body = json!({ "metadata": { "name": name } });
        proxied.http.post(url).bearer_auth(&token).json(&body).send().await
    };
    proxied.proxy.add(Rule::new(Fault::CutBefore).when(creates).nth(1));
    proxied.proxy.add(Rule::new(Fault::CutAfter).when(creates).nth(2));
    assert!(create("cut-before").await.is_err());
    assert!(create("cut-after").await.is_err());
    assert_eq!(create("whole").await.unwrap().status(), StatusCode::CREATED);
    assert!(maps.get_opt("cut-before").await.unwrap().is_none());
    assert!(maps.get_opt("cut-after").await.unwrap().is_some());
}

#[tokio::test]
async fn a_truncated_body_is_an_error_for_the_client() {
    let proxied = ProxiedCluster::new().await;
    proxied.proxy.add(Rule::new(Fault::CutBody(20)).when(version));
    let mut answer = proxied.get("version").await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.chunk().await.unwrap().unwrap().len(), 20);
    assert!(answer.chunk().await.is_err());
}

#[tokio::test]
async fn hooks_run_on_either_side_of_the_api_server_and_hold_the_request() {
    let proxied = ProxiedCluster::new().await;
    let (arrived, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (hook_arrived, hook_release) = (Arc::clone(&arrived), Arc::clone(&release));
    let hold = move |_| {
        let (arrived, release) = (Arc::clone(&hook_arrived), Arc::clone(&hook_release));
        async move {
            arrived.notify_one();
            release.notified().await;
        }
    };
    let before = proxied.proxy.add(Rule::new(Fault::before(hold.clone())).when(version).nth(1));
    let after = proxied.proxy.add(Rule::new(Fault::after(hold)).when(version).nth(2));
    for rule in [before, after] {
        let request = proxied.get("version");
        tokio::pin!(request);
        tokio::select! {
            () = arrived.notified() => {}
            answer = &mut request => panic!("it was not held: {answer:?}"),
        }
        assert_eq!(rule.fired(), 1);
        release.notify_one();
        assert_eq!(request.await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn down_refuses_connections_and_up_listens_on_the_same_port() {
    let proxied = ProxiedCluster::new().await;
    assert!(proxied.get("version").await.is_ok());
    proxied.proxy.down().await;
    assert!(proxied.get("version").await.unwrap_err().is_connect());
    assert_eq!(proxied.proxy.requests().len(), 1);
    proxied.proxy.up().await.unwrap();
    assert!(proxied.get("version").await.is_ok());
}

#[tokio::test]
async fn cut_ends_open_connections_and_clients_connect_again() {
    let proxied = ProxiedCluster::new().await;
    let token = admin_token(&proxied).await;
    let path = "api/v1/namespaces/default/configmaps?watch=true";
    let url = proxied.proxy.url().join(path).unwrap();
    let mut watch = proxied.http.get(url).bearer_auth(&token).send().await.unwrap();
    assert_eq!(watch.status(), StatusCode::OK);
    proxied.proxy.cut();
    let end = async { while let Ok(Some(_)) = watch.chunk().await {} };
    tokio::time::timeout(Duration::from_secs(5), end).await.expect("the watch ends");
    // The first client may still have a connection that was cut.
    let http = http_client(Some(proxied.cluster.authority().certificate())).unwrap();
    let version = proxied.proxy.url().join("version").unwrap();
    assert!(http.get(version).send().await.is_ok());
}

#[tokio::test]
async fn a_watch_streams_through() {
    let proxied = ProxiedCluster::new().await;
    let maps = proxied.config_maps().await;
    let token = admin_token(&proxied).await;
    let path = "api/v1/namespaces/default/configmaps?watch=true\
                &fieldSelector=metadata.name%3Dseen-by-watch";
    let url = proxied.proxy.url().join(path).unwrap();
    let mut answer = proxied.http.get(url).bearer_auth(&token).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let map = serde_json::from_value(json!({ "metadata": { "name": "seen-by-watch" } })).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let chunk = tokio::time::timeout(Duration::from_secs(5), answer.chunk());
    let event: serde_json::Value =
        serde_json::from_slice(&chunk.await.unwrap().unwrap().unwrap()).unwrap();
    assert_eq!(event["object"]["metadata"]["name"], "seen-by-watch");
    // The watch ends with the proxy.
    proxied.proxy.down().await;
    assert!(!matches!(answer.chunk().await, Ok(Some(_))));
}

/// Requests a token of a ServiceAccount that is cluster administrator.
async fn admin_token(proxied: &ProxiedCluster) -> String {
    use k8s_openapi::api::authentication::v1::TokenRequest;
    use k8s_openapi::api::core::v1::ServiceAccount;
    use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
    use kube::api::{Patch, PatchParams};

    let admin = proxied.cluster.admin().await.unwrap();
    let force = PatchParams::apply("harness").force();
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "root" } });
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding", "metadata": { "name": "harness-root" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "root", "namespace": "default" }] });
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin.clone());
    accounts.patch("root", &force, &Patch::Apply(account)).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(admin);
    bindings.patch("harness-root", &force, &Patch::Apply(binding)).await.unwrap();
    let request = TokenRequest::default();
    let answer = accounts.create_token_request("root", &PostParams::default(), &request).await;
    let token = answer.unwrap().status.unwrap().token;
    // The authorizer sees the binding a moment after it is written.
    let url = proxied.cluster.url().join("api/v1/namespaces/default/configmaps").unwrap();
    probe::until("the binding to work", Duration::from_secs(5), || async {
        let answer = proxied.http.get(url.clone()).bearer_auth(&token).send().await?;
        Ok(match answer.status() {
            StatusCode::OK => Probe::Ready(()),
            other => Probe::NotYet(other.to_string()),
        })
    })
    .await
    .unwrap();
    token
}
