//! The control plane of the harness: rights, roles, tokens and the audit log work.

use std::time::Duration;

use integration::control_plane::{BROKER_USER, ControlPlane, ControlPlaneOptions, client};
use integration::probe::{self, Probe};
use integration::process::Process;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{ListParams, PostParams};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde_json::json;

#[tokio::test]
async fn rights_are_enforced_and_the_admin_role_is_filled() {
    let cluster = ControlPlane::shared(&ControlPlaneOptions::default()).await.unwrap();
    let broker = client(cluster.broker_kubeconfig()).await.unwrap();
    let error = Api::<Namespace>::all(broker).list(&ListParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!(status.code, 403);
    assert!(status.message.contains(&format!("User {BROKER_USER:?}")), "{}", status.message);

    let roles: Api<ClusterRole> = Api::all(cluster.admin().await.unwrap());
    let admin = roles.get("admin").await.unwrap();
    let resources: Vec<String> =
        admin.rules.unwrap().into_iter().filter_map(|rule| rule.resources).flatten().collect();
    // One right of each role that is aggregated: admin, edit, view.
    for resource in ["rolebindings", "pods/exec", "resourcequotas"] {
        assert!(resources.iter().any(|one| one == resource), "{resource} is not in admin");
    }
}

#[tokio::test]
async fn a_requested_token_works_and_is_in_the_audit_log() {
    let cluster = ControlPlane::shared(&ControlPlaneOptions::default()).await.unwrap();
    let admin = cluster.admin().await.unwrap();
    let name = "token-test";
    let namespace: Namespace =
        serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    Api::<Namespace>::all(admin.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(admin, name);
    let account = serde_json::from_value(json!({ "metadata": { "name": "robot" } })).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(600), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let answer =
        accounts.create_token_request("robot", &PostParams::default(), &request).await.unwrap();
    let token = answer.status.unwrap().token;

    let http = integration::http_client::http_client(Some(cluster.authority().certificate()));
    let pods = cluster.url().join(&format!("api/v1/namespaces/{name}/pods")).unwrap();
    let answer = http.unwrap().get(pods).bearer_auth(&token).send().await.unwrap();
    // The token is authenticated, but has no rights.
    assert_eq!(answer.status(), 403);

    let user = format!("system:serviceaccount:{name}:robot");
    let event = probe::until("the audit event", Duration::from_secs(5), || async {
        let events = cluster.audit_events(&user)?;
        Ok(events
            .into_iter()
            .find(|event| event["user"]["username"] == user.as_str())
            .map_or_else(|| Probe::NotYet("no such event".into()), Probe::Ready))
    })
    .await
    .unwrap();
    assert_eq!(event["level"], "Metadata");
    assert!(event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0].is_string());
}

#[tokio::test]
async fn two_control_planes_run_side_by_side_and_flags_are_passed_on() {
    let options = ControlPlaneOptions {
        apiserver_flags: vec!["--service-account-max-token-expiration=1h".into()],
        ..ControlPlaneOptions::default()
    };
    let default = ControlPlaneOptions::default();
    let (shared, own) = tokio::join!(ControlPlane::shared(&default), ControlPlane::start(options));
    let (shared, own) = (shared.unwrap(), own.unwrap());
    assert_ne!(shared.url(), own.url());
    assert_ne!(shared.folder(), own.folder());

    let accounts: Api<ServiceAccount> = Api::namespaced(own.admin().await.unwrap(), "kube-system");
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(7200), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request("namespace-controller", &PostParams::default(), &request)
        .await
        .unwrap();
    assert_eq!(answer.spec.expiration_seconds, Some(3600));

    // The two clusters do not trust each other's certificates, and ending one leaves the other
    // running.
    let folder = own.folder().to_owned();
    let pids = own.processes().map(Process::pid);
    drop(own);
    assert!(!folder.exists());
    for pid in pids {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        assert_eq!(test_kill_process(pid), Err(Errno::SRCH));
    }
    let still: Api<Pod> = Api::default_namespaced(shared.admin().await.unwrap());
    still.list(&ListParams::default()).await.unwrap();
}
