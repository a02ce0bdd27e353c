//! Suspension, revocation, end of session: what runs ends, and nothing else starts.

use std::time::Duration;

use integration::fault_proxy::Fault;
use integration::probe::{self, Probe};
use integration::world::World;
use secrecy::ExposeSecret as _;
use tenant_shared::{CredentialKind, SuspendRequest};

use super::fixture::{Client, REG, TIMEOUT, namespace_of, person, world};

/// Limit of the time in which a running request ends; the API server is asked for much longer.
const CUT_TIMEOUT: Duration = Duration::from_secs(15);

/// The API server never answers.
fn forever() -> Fault {
    Fault::before(|_| std::future::pending())
}

#[tokio::test]
async fn a_suspension_ends_a_running_request_and_the_next_is_refused() {
    let world = world().await;
    let client = Client::new(&world);
    let (alice, session) = person(&world, "alice").await;
    let session = session.expose_secret().to_owned();
    let workspace = alice.api().await.unwrap().workspaces(false).await.unwrap().items[0].id;
    let path = format!("/aaa/models?namespace={}", alice.namespace());
    client.get(&path, &session).await.data();
    // The namespace of somebody else with a Kubernetes token, whom the suspension does not concern.
    namespace_of(&world, "kill-other", "reg", "admin").await;

    let running = client.get_held(&world, forever(), "/inferenceservices", &path, &session).await;
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    let reason = SuspendRequest { reason: Some("a test".to_owned()) };
    operator.suspend(workspace, &reason).await.unwrap();
    let ended = tokio::time::timeout(CUT_TIMEOUT, running).await.unwrap().unwrap();
    assert!(ended.failure(403).contains("suspended"), "{ended:?}");
    world.proxy().unwrap().clear();
    assert!(client.get(&path, &session).await.failure(403).contains("suspended"));
    client.get("/namespaces", &session).await.failure(403);
    client.get("/aaa/models?namespace=kill-other", REG).await.data();
}

#[tokio::test]
async fn the_end_of_a_session_ends_its_running_request() {
    let world = world().await;
    let client = Client::new(&world);
    let (bob, session) = person(&world, "bob").await;
    let api = world.anonymous_api().unwrap().with_token(session.clone());
    let session = session.expose_secret().to_owned();
    let path = format!("/lsd/status?namespace={}", bob.namespace());
    client.get(&path, &session).await;
    let running =
        client.get_held(&world, forever(), "/llamastackdistributions", &path, &session).await;
    let request = api.request(http::Method::POST, "auth/logout").unwrap();
    assert!(request.send().await.unwrap().status().is_success());
    let ended = tokio::time::timeout(CUT_TIMEOUT, running).await.unwrap().unwrap();
    ended.failure(401);
    world.proxy().unwrap().clear();
    client.get(&path, &session).await.failure(401);
}

#[tokio::test]
async fn a_revocation_ends_a_running_request_and_the_next_has_another_credential() {
    let world = world().await;
    let client = Client::new(&world);
    let (carol, session) = person(&world, "carol").await;
    let (dave, other) = person(&world, "dave").await;
    let (session, other) = (session.expose_secret().to_owned(), other.expose_secret().to_owned());
    let path = format!("/aaa/models?namespace={}", carol.namespace());
    client.get(&path, &session).await.data();
    let path_of_dave = format!("/aaa/models?namespace={}", dave.namespace());
    let end = "/inferenceservices";
    let running = client.get_held(&world, forever(), end, &path, &session).await;
    let running_of_dave = client.get_held(&world, forever(), end, &path_of_dave, &other).await;

    let api = carol.api().await.unwrap();
    let workspace = api.workspaces(false).await.unwrap().items[0].id;
    let credentials = api.credentials(workspace, "all=true").await.unwrap().items;
    let [credential] = &credentials[..] else { panic!("{credentials:?}") };
    assert_eq!(credential.kind, CredentialKind::Gateway);
    api.revoke(workspace, &credential.credential_id).await.unwrap();
    let ended = tokio::time::timeout(CUT_TIMEOUT, running).await.unwrap().unwrap();
    ended.failure(500);
    assert!(ended.headers.contains_key("retry-after"), "{ended:?}");
    assert!(!running_of_dave.is_finished(), "the revocation does not concern others");
    running_of_dave.abort();
    world.proxy().unwrap().clear();
    probe::until("a new credential", TIMEOUT, || async {
        let answer = client.get(&path, &session).await;
        let is_found = answer.status.is_success();
        Ok(if is_found { Probe::Ready(()) } else { Probe::NotYet(format!("{answer:?}")) })
    })
    .await
    .unwrap();
    let credentials = api.credentials(workspace, "").await.unwrap().items;
    assert!(credentials.iter().all(|it| it.credential_id != credential.credential_id));
    client.get(&path_of_dave, &other).await.data();
}

#[tokio::test]
async fn a_credential_with_a_secret_of_its_own_is_revoked_with_its_running_request() {
    let builder = World::builder().bind_tokens().setting("model_services.enabled", true);
    let world = builder.fault_proxy().start().await.unwrap();
    let client = Client::new(&world);
    let (erin, session) = person(&world, "erin").await;
    let (session, namespace) = (session.expose_secret().to_owned(), erin.namespace());
    client.get("/namespaces", &session).await.data();
    let api = erin.api().await.unwrap();
    let workspace = api.workspaces(false).await.unwrap().items[0].id;
    let credentials = api.credentials(workspace, "").await.unwrap().items;
    let [credential] = &credentials[..] else { panic!("{credentials:?}") };
    assert!(credential.bound && credential.kind == CredentialKind::Gateway, "{credential:?}");
    let running = client.get_held(&world, forever(), "", "/namespaces", &session).await;
    let revocation = api.revoke(workspace, &credential.credential_id).await.unwrap();
    assert_eq!(revocation.others_revoked, 0);
    let ended = tokio::time::timeout(CUT_TIMEOUT, running).await.unwrap().unwrap();
    ended.failure(500);
    world.proxy().unwrap().clear();
    let found = client.get("/namespaces", &session).await;
    assert_eq!(found.data()[0]["name"], namespace.as_str());
}
