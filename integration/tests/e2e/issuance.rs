//! Issuance: no token is returned without its audit record, and none lives longer than two hours.

use std::sync::Arc;

use http::StatusCode;
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::world::World;
use tenant_shared::{Code, TOKEN_LIFETIME_SECONDS};
use tokio::sync::Notify;

#[tokio::test]
async fn the_credential_id_joins_the_brokers_audit_trail_and_the_clusters() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    let credential = api.credential(workspace.id).await.unwrap();
    assert_eq!(credential.expires_in, TOKEN_LIFETIME_SECONDS);

    let logs = api.audit_logs("action=IssueCredential").await.unwrap();
    assert_eq!(logs.items.len(), 1);
    let entry = &logs.items[0];
    assert_eq!(entry.credential_id.as_deref(), Some(credential.credential_id.as_str()));
    assert_eq!((entry.user_id, entry.workspace_id), (Some(alice.id()), Some(workspace.id)));

    // The API server knows the token by the same id, and our request by our id.
    let request_id = entry.request_id.clone().unwrap();
    let events = world.cluster().audit_events(&request_id).unwrap();
    let event = events
        .iter()
        .find(|event| event["auditID"] == request_id.as_str())
        .expect("the TokenRequest is in the cluster's audit log");
    let annotation = &event["annotations"]["authentication.kubernetes.io/issued-credential-id"];
    assert_eq!(annotation.as_str().unwrap(), format!("JTI={}", credential.credential_id));
    assert_eq!(event["user"]["username"], "tenant-broker");
}

#[tokio::test]
async fn a_shorter_token_is_passed_on_with_its_real_end() {
    let world = World::builder()
        .apiserver_flag("--service-account-max-token-expiration=1h")
        .start()
        .await
        .unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    let credential = api.credential(workspace.id).await.unwrap();
    assert_eq!(credential.expires_in, 3600);
}

#[tokio::test]
async fn a_longer_token_is_dropped_with_an_error() {
    let world = World::builder().fault_proxy().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    // The response of a server that grants more than requested: {"iat":0,"exp":7201,"jti":"x"}.
    let token = "e30.eyJpYXQiOjAsImV4cCI6NzIwMSwianRpIjoieCJ9.c2ln";
    let body = format!(
        "{{\"status\":{{\"token\":\"{token}\",\"expirationTimestamp\":\"2026-01-01T00:00:00Z\"}}}}"
    );
    let fault =
        Fault::Respond { status: StatusCode::CREATED, headers: http::HeaderMap::new(), body };
    world.proxy().unwrap().add(Rule::new(fault).when(RecordedRequest::is_token_request));
    let refused = super::refused(api.credential(workspace.id).await);
    assert_eq!(
        (refused.status, refused.code()),
        (StatusCode::BAD_GATEWAY, Code::TokenLifetimeRefused)
    );
    assert!(!refused.body.contains(token));
    assert!(!world.broker().log().unwrap().contains(token), "a dropped token is not logged either");
    let logs = api.audit_logs("action=IssueCredential").await.unwrap();
    assert!(logs.items.is_empty());
}

#[tokio::test]
async fn without_its_audit_row_no_token_leaves() {
    let world =
        World::builder().postgres().own_control_plane().fault_proxy().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    // The database dies between the TokenRequest and its record.
    let (issued, dead) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let hook = {
        let (issued, dead) = (Arc::clone(&issued), Arc::clone(&dead));
        move |_| {
            let (issued, dead) = (Arc::clone(&issued), Arc::clone(&dead));
            async move {
                issued.notify_one();
                dead.notified().await;
            }
        }
    };
    let rule = world
        .proxy()
        .unwrap()
        .add(Rule::new(Fault::after(hook)).when(RecordedRequest::is_token_request).nth(1));
    let (result, ()) = tokio::join!(api.credential(workspace.id), async {
        issued.notified().await;
        world.postgres().unwrap().kill().await.unwrap();
        dead.notify_one();
    });
    let refused = super::refused(result);
    assert_eq!(rule.fired(), 1, "the cluster had issued the token");
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.code(), Code::StorageUnavailable);
    assert!(!refused.body.contains("eyJ"), "{}", refused.body);
    assert!(refused.retry_after().is_some());

    world.proxy().unwrap().clear();
    world.postgres().unwrap().restart().await.unwrap();
    integration::probe::until("the broker to go on", std::time::Duration::from_mins(1), || async {
        Ok(match api.credential(workspace.id).await {
            Ok(_) => integration::probe::Probe::Ready(()),
            Err(error) => integration::probe::Probe::NotYet(error.to_string()),
        })
    })
    .await
    .unwrap();
}
