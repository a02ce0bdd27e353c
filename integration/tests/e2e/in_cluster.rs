//! A broker in a pod of the cluster: the projected token of its ServiceAccount, the cluster's CA,
//! the environment that a kubelet makes, and probes from outside of the pod.

use std::cell::Cell;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use integration::api::{Api as BrokerApi, ApiError};
use integration::http_client::http_client;
use integration::pod::Pod;
use integration::probe::{self, Probe};
use integration::world::World;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{self, Service, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use uuid::Uuid;

/// The broker's namespace, and the name of its ServiceAccount and Service in it.
const NAME: &str = "tenant-broker";
/// The user name of that ServiceAccount.
const IDENTITY: &str = "system:serviceaccount:tenant-broker:tenant-broker";
/// The shortest lifetime of a token that the API server accepts.
const TOKEN_SECONDS: i64 = 600;
/// Time limit until the broker uses a new token. It reads the changed file within two seconds.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit until the API server refuses a token whose pod was deleted; its cache holds it for
/// 10 s.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for everything else.
const WAIT_TIMEOUT: Duration = Duration::from_secs(40);
/// Pause between two attempts that are not cheap.
const PAUSE: Duration = Duration::from_millis(300);
/// Pause between two issuances.
const ISSUANCE_PAUSE: Duration = Duration::from_millis(50);

/// Creates a pod of the broker, and requests a token that is bound to it, as a kubelet does.
async fn token_of_new_pod(client: &kube::Client, pod: &str) -> SecretString {
    let pods: Api<v1::Pod> = Api::namespaced(client.clone(), NAME);
    let object = serde_json::from_value(json!({
        "metadata": {"name": pod},
        "spec": {"serviceAccountName": NAME, "containers": [{"name": "broker", "image": "broker"}]},
    }));
    let created = pods.create(&PostParams::default(), &object.unwrap()).await.unwrap();
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.to_owned()),
                uid: created.metadata.uid,
            }),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAME);
    let answer = accounts.create_token_request(NAME, &PostParams::default(), &request).await;
    answer.unwrap().status.unwrap().token.into()
}

/// Stops the broker, installs it for its ServiceAccount instead of its certificate, and starts it
/// in a pod without a kubeconfig. Returns the pod and its token, which is bound to the pod `old`.
async fn move_into_pod(world: &World) -> (Pod, SecretString) {
    let (broker, admin) = (world.broker(), world.admin_kubectl().unwrap());
    broker.stop().await.unwrap();
    broker.set("cluster.kubeconfig", "");
    broker.set("cluster.identity", IDENTITY);
    admin.run(["create", "namespace", NAME]).await.unwrap().success().unwrap();
    let kubeconfig = world.cluster().admin_kubeconfig().display().to_string();
    let install = ["install", "--apply", "--kubeconfig", &kubeconfig];
    broker.run(&install).await.unwrap().success().unwrap();

    let client = world.cluster().admin().await.unwrap();
    let token = token_of_new_pod(&client, "old").await;
    let folder = world.folder().join("pod");
    let mut pod = Pod::new(world.cluster(), NAME, &token, &folder).await.unwrap();
    let services: Api<Service> = Api::namespaced(client, NAME);
    for name in [NAME, "tenant-broker-operator"] {
        let object = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"ports": [{"name": "https", "port": 443}, {"name": "metrics", "port": 8081}]},
        }));
        let service = services.create(&PostParams::default(), &object.unwrap()).await.unwrap();
        pod = pod.with_service(&service);
    }
    broker.run_in(pod.clone());

    // The API server reloads policies once a second.
    probe::until("the doctor to pass in the pod", WAIT_TIMEOUT, || async {
        let doctor = broker.run(&["doctor"]).await?;
        Ok(if doctor.status.success() {
            Probe::Ready(())
        } else {
            Probe::NotYet(format!("{}{}", doctor.stdout, doctor.stderr))
        })
    })
    .await
    .unwrap();
    broker.start().await.unwrap();
    (pod, token)
}

/// Waits until the broker has sent a request with this token, by the API server's audit log.
async fn until_used(world: &World, token: &SecretString) {
    let payload = token.expose_secret().split('.').nth(1).unwrap();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
    let id = format!("JTI={}", claims["jti"].as_str().unwrap());
    probe::until("the broker to use its token", RELOAD_TIMEOUT, || async {
        tokio::time::sleep(PAUSE).await;
        let events = world.cluster().audit_events(&id)?;
        let is_used = events.iter().map(|event| &event["user"]).any(|user| {
            user["username"] == IDENTITY
                && user["extra"]["authentication.kubernetes.io/credential-id"][0] == id.as_str()
        });
        Ok(if is_used { Probe::Ready(()) } else { Probe::NotYet(format!("no event with {id}")) })
    })
    .await
    .unwrap();
}

/// Whether the API server accepts a token of the broker.
async fn is_accepted(world: &World, token: &SecretString) -> bool {
    let http = http_client(Some(world.cluster().authority().certificate())).unwrap();
    // A list for which the broker has no permission.
    let url = world.cluster().url().join("api/v1/pods").unwrap();
    let answer = http.get(url).bearer_auth(token.expose_secret()).send().await.unwrap();
    match answer.status() {
        StatusCode::FORBIDDEN => true,
        StatusCode::UNAUTHORIZED => false,
        other => panic!("the API server answers {other}"),
    }
}

/// Rotates the broker's token, and makes the old one invalid as soon as the broker uses the new
/// one. Returns after ten more issuances.
async fn rotate(world: &World, pod: &Pod, old: &SecretString, issued: &Cell<u32>) {
    until_used(world, old).await;
    let client = world.cluster().admin().await.unwrap();
    let new = token_of_new_pod(&client, "new").await;
    pod.write_token(&new).unwrap();
    until_used(world, &new).await;

    assert!(is_accepted(world, old).await, "the old token ends with its pod and not before");
    let pods: Api<v1::Pod> = Api::namespaced(client, NAME);
    pods.delete("old", &DeleteParams::default().grace_period(0)).await.unwrap();
    probe::until("the old token to be refused", REFUSAL_TIMEOUT, || async {
        tokio::time::sleep(PAUSE).await;
        Ok(if is_accepted(world, old).await {
            Probe::NotYet("it is accepted".to_owned())
        } else {
            Probe::Ready(())
        })
    })
    .await
    .unwrap();
    let before = issued.get();
    probe::until("issuances with the new token", WAIT_TIMEOUT, || {
        let more = issued.get() - before;
        let enough =
            if more < 10 { Probe::NotYet(format!("{more} credentials")) } else { Probe::Ready(()) };
        std::future::ready(Ok(enough))
    })
    .await
    .unwrap();
}

/// Issues one credential after the other until one is refused.
async fn issue_until_refused(api: &BrokerApi, workspace: Uuid, issued: &Cell<u32>) -> ApiError {
    loop {
        if let Err(error) = api.credential(workspace).await {
            return error;
        }
        issued.set(issued.get() + 1);
        tokio::time::sleep(ISSUANCE_PAUSE).await;
    }
}

#[tokio::test]
async fn a_broker_in_a_pod_issues_without_a_failure_while_its_token_rotates() {
    let world = World::builder().own_control_plane().start().await.unwrap();
    let (pod, old) = move_into_pod(&world).await;
    // The kubeconfig names the CA of the pod's volume.
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();

    let api = alice.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    let issued = Cell::new(0);
    tokio::select! {
        error = issue_until_refused(&api, workspace.id, &issued) => {
            panic!("after {} credentials: {error}", issued.get());
        }
        () = rotate(&world, &pod, &old, &issued) => {}
    }
}

/// A kubelet's probes and Prometheus connect to the address of the pod.
#[tokio::test]
async fn the_operator_listener_serves_health_and_metrics_at_the_configured_address() {
    let world = World::builder().start().await.unwrap();
    let (broker, http) = (world.broker(), http_client(None).unwrap());
    let mut operator = broker.operator_url().unwrap();
    // Another address of this machine, on Linux without configuration.
    operator.set_host(Some("127.0.0.2")).unwrap();
    let status = async |url: &url::Url, path: &str| {
        let answer = http.get(url.join(path).unwrap()).send().await;
        answer.map(|answer| answer.status())
    };
    let refused = status(&operator, "readyz").await.unwrap_err();
    assert!(refused.is_connect(), "by default it is on 127.0.0.1 only: {refused}");

    broker.stop().await.unwrap();
    broker.set("operator_listen", format!("0.0.0.0:{}", operator.port().unwrap()));
    broker.start().await.unwrap();
    let public = broker.url().unwrap();
    for path in ["healthz", "readyz", "metrics"] {
        assert_eq!(status(&operator, path).await.unwrap(), StatusCode::OK, "{path}");
        assert_eq!(status(&public, path).await.unwrap(), StatusCode::NOT_FOUND, "{path}");
    }
    for path in ["", "login", "api/v1/me", "clusters/internal-cluster/version"] {
        assert_eq!(status(&operator, path).await.unwrap(), StatusCode::NOT_FOUND, "{path}");
    }
}
