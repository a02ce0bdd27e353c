//! Revocation of one credential: by replacing the workspace's ServiceAccount, and by deleting a
//! Secret of its own.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http::StatusCode;
use integration::{
    api::Api,
    http_client::http_client,
    probe::{self, Probe},
    progress::print_message,
    world::World,
};
use reqwest::Client;
use serde_json::Value;
use tenant_shared::{
    Code, CredentialInfo, CredentialKind, CredentialState, RevocationState, RevokedBy, StepResult,
    SuspendRequest, WorkspaceStatus,
};
use uuid::Uuid;

/// Interval between two uses of a token.
const TRY_INTERVAL: Duration = Duration::from_millis(10);

/// A token, used directly at the API server.
struct TokenHolder {
    http: Client,
    url: String,
    token: String,
}

impl TokenHolder {
    fn new(world: &World, namespace: &str, token: &str) -> Result<Self> {
        let path = format!("api/v1/namespaces/{namespace}/configmaps?limit=1");
        Ok(Self {
            http: http_client(Some(world.cluster().authority().certificate()))?,
            url: world.cluster().url().join(&path)?.to_string(),
            token: token.to_owned(),
        })
    }

    async fn status(&self) -> StatusCode {
        let request = self.http.get(&self.url).bearer_auth(&self.token);
        request.send().await.unwrap().status()
    }

    async fn works(&self) -> bool {
        self.status().await.is_success()
    }

    /// Uses the token until it is refused, and prints how long it worked.
    async fn until_refused(&self, what: &str) {
        let began = Instant::now();
        let refused = probe::until("the API server's refusal", Duration::from_secs(30), || async {
            tokio::time::sleep(TRY_INTERVAL).await;
            Ok(match self.status().await {
                StatusCode::UNAUTHORIZED => Probe::Ready(began.elapsed()),
                status => {
                    ensure!(status.is_success(), "{status}");
                    Probe::NotYet(format!("accepted after {:?}", began.elapsed()))
                }
            })
        });
        let refused = refused.await.unwrap();
        print_message(&format!("{what}: refused {refused:.3?} after the revocation's answer"));
    }
}

/// Returns the token in a kubeconfig.
fn token_of(kubeconfig: &str) -> String {
    let document: Value = serde_norway::from_str(kubeconfig).unwrap();
    document["users"][0]["user"]["token"].as_str().unwrap().to_owned()
}

fn done(steps: &[tenant_shared::Step]) -> Vec<&str> {
    assert!(steps.iter().all(|step| step.result == StepResult::Done), "{steps:?}");
    steps.iter().map(|step| step.step.as_str()).collect()
}

async fn all(api: &Api, id: Uuid) -> Vec<CredentialInfo> {
    api.credentials(id, "all=true&limit=500").await.unwrap().items
}

async fn state(api: &Api, id: Uuid, credential_id: &str) -> CredentialState {
    let items = all(api, id).await;
    items.into_iter().find(|it| it.credential_id == credential_id).unwrap().state
}

async fn audited(api: &Api, action: &str) -> usize {
    api.audit_logs(&format!("action={action}&limit=500")).await.unwrap().items.len()
}

#[tokio::test]
async fn without_secrets_all_tokens_are_revoked_and_kubectl_recovers() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    let api = alice.api().await.unwrap();
    let id = api.workspaces(false).await.unwrap().items[0].id;
    let idle =
        TokenHolder::new(&world, &alice.namespace(), &api.credential(id).await.unwrap().token);
    let idle = idle.unwrap();
    let downloaded = token_of(&api.kubeconfig("static").await.unwrap());
    let downloaded = TokenHolder::new(&world, &alice.namespace(), &downloaded).unwrap();
    assert!(downloaded.works().await);

    // The person finds the credential in the list: the newest, and the downloaded one.
    let list = alice.kubectl().json(["tenant", "credentials", "list"]).await.unwrap();
    let kinds: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["kubeconfig", "exec", "exec"]);
    assert!(list["items"].as_array().unwrap().iter().all(|it| it["bound"] == false));
    let stolen = list["items"][0]["credential_id"].as_str().unwrap().to_owned();
    assert_eq!(list["items"][0]["email"], "alice@example.com");
    assert_eq!(list["items"][2]["client"], "kubectl-tenant");

    let audit_id = format!("JTI={stolen}");
    let revoke =
        ["tenant", "credentials", "revoke", &audit_id, "--reason", "lost a laptop", "-o", "json"];
    let finished = alice.kubectl().run(revoke).await.unwrap().success().unwrap();
    let revocation: tenant_shared::Revocation = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(revocation.state, RevocationState::Revoked);
    assert_eq!(revocation.by, Some(RevokedBy::ServiceAccount));
    assert_eq!((revocation.others_revoked, revocation.accepted_for_seconds), (2, 10));
    assert_eq!(
        done(&revocation.steps),
        ["record", "delete_service_account", "create_service_account", "finish"]
    );
    assert!(finished.stderr.contains("2 others"), "{}", finished.stderr);

    // The same machine has discarded its token, and continues at once.
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    downloaded.until_refused("ServiceAccount replaced, token in use").await;
    assert_eq!(idle.status().await, StatusCode::UNAUTHORIZED, "never used, never remembered");
    // The revocation is permanent, though an account of that name exists and is bound.
    let fresh =
        TokenHolder::new(&world, &alice.namespace(), &api.credential(id).await.unwrap().token);
    assert!(fresh.unwrap().works().await);
    for holder in [&downloaded, &idle] {
        assert_eq!(holder.status().await, StatusCode::UNAUTHORIZED);
    }
    let live = api.credentials(id, "").await.unwrap().items;
    assert_eq!(live.len(), 2, "what kubectl got since, and the fresh one: {live:?}");
    let states: Vec<_> = all(&api, id).await.into_iter().map(|it| it.state).collect();
    assert_eq!(states[2..], [CredentialState::Revoked; 3]);
    let event = &api.audit_logs("action=RevokeCredential").await.unwrap().items[0];
    assert_eq!(event.reason.as_deref(), Some("lost a laptop"));
    assert_eq!(event.credential_id.as_deref(), Some(stolen.as_str()));
}

#[tokio::test]
async fn a_kubectl_elsewhere_gets_a_new_token_by_itself() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    let api = alice.api().await.unwrap();
    let id = api.workspaces(false).await.unwrap().items[0].id;
    let cached = api.credentials(id, "").await.unwrap().items.remove(0).credential_id;
    let holder =
        TokenHolder::new(&world, &alice.namespace(), &api.credential(id).await.unwrap().token);
    let holder = holder.unwrap();
    assert!(holder.works().await);
    // By an administrator, so that the person's machine does not know of it.
    let operator = world.administrator("operator").await.unwrap();
    operator.login(&[]).await.unwrap().success().unwrap();
    let namespace = alice.namespace();
    let revoke = ["tenant", "credentials", "revoke", &cached, "--workspace", &namespace];
    operator.kubectl().run(revoke).await.unwrap().success().unwrap();
    holder.until_refused("ServiceAccount replaced, token in use").await;

    // The plugin learns of the refusal because the same kubectl retries; a kubectl with a single
    // request has failed by then, and the next one has the new token.
    let first = alice.kubectl().run(["get", "pods"]).await.unwrap();
    assert!(first.status.success() || first.stderr.contains("logged in"), "{}", first.stderr);
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    assert_eq!(state(&api, id, &cached).await, CredentialState::Revoked);
}

#[tokio::test]
async fn with_secrets_one_credential_is_revoked_alone() {
    let world = World::builder().bind_tokens().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let api = alice.api().await.unwrap();
    let admin = world.administrator("operator").await.unwrap().api().await.unwrap();
    let id = api.workspaces(false).await.unwrap().items[0].id;
    let namespace = alice.namespace();
    let mut holders = Vec::new();
    for _ in 0..3 {
        let credential = api.credential(id).await.unwrap();
        let holder = TokenHolder::new(&world, &namespace, &credential.token).unwrap();
        holders.push((credential.credential_id, holder));
    }
    let [(lost, used), (idle_id, idle), (kept_id, kept)] = &holders[..] else { panic!() };
    assert!(used.works().await && kept.works().await);
    assert!(all(&api, id).await.iter().all(|it| it.bound));
    let secrets = ["secrets", "-n", &namespace];
    let names = |items: &[Value]| -> Vec<String> {
        items.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let before = super::object_list(&world, &secrets).await.unwrap();
    assert!(before.len() >= 3, "{before:?}");
    for secret in &before {
        assert!(secret["metadata"]["name"].as_str().unwrap().starts_with("tenant-credential-"));
        assert_eq!((&secret["type"], &secret["immutable"]), (&"Opaque".into(), &true.into()));
        assert!(secret["data"].is_null(), "{secret}");
    }

    for (credential, what) in [(lost, "in use"), (idle_id, "not used within 10 s")] {
        let revocation = admin.revoke(id, credential).await.unwrap();
        assert_eq!(revocation.state, RevocationState::Revoked);
        assert_eq!((revocation.by, revocation.others_revoked), (Some(RevokedBy::Secret), 0));
        assert_eq!(done(&revocation.steps), ["record", "delete_secret", "finish"]);
        let holder = if credential == lost { used } else { idle };
        holder.until_refused(&format!("Secret deleted, token {what}")).await;
    }
    assert!(kept.works().await, "the other one goes on");
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    let after = super::object_list(&world, &secrets).await.unwrap();
    let gone: Vec<_> =
        names(&before).into_iter().filter(|name| !names(&after).contains(name)).collect();
    assert_eq!(gone.len(), 2);
    assert_eq!(audited(&admin, "CredentialRevoked").await, 2);
    assert_eq!(audited(&admin, "ServiceAccountReplaced").await, 0);
    // A repeated revocation changes nothing and notifies nobody.
    assert_eq!(admin.revoke(id, lost).await.unwrap().state, RevocationState::Revoked);
    assert_eq!(audited(&admin, "RevokeCredential").await, 2);

    // The kill switch revokes bound tokens as well, and the resumption restores none of them.
    let suspended = admin.suspend(id, &SuspendRequest::default()).await.unwrap();
    assert_eq!(suspended.status, WorkspaceStatus::Suspended);
    // The API server allows what its copy of RoleBindings does for a moment.
    probe::until("the end of the rights", Duration::from_secs(30), || async {
        Ok(if kept.works().await { Probe::NotYet("it works".to_owned()) } else { Probe::Ready(()) })
    })
    .await
    .unwrap();
    assert_eq!(state(&api, id, kept_id).await, CredentialState::Withdrawn);
    let over = admin.revoke(id, kept_id).await.unwrap();
    assert_eq!((over.state, over.by), (RevocationState::Over, None));
    probe::until("the resumption", Duration::from_secs(30), || async {
        Ok(match admin.resume(id, &SuspendRequest::default()).await {
            Ok(_) => Probe::Ready(()),
            Err(error) => Probe::NotYet(error.to_string()),
        })
    })
    .await
    .unwrap();
    assert_eq!(kept.status().await, StatusCode::UNAUTHORIZED);
    let fresh =
        TokenHolder::new(&world, &namespace, &api.credential(id).await.unwrap().token).unwrap();
    assert!(fresh.works().await);
    assert_eq!(kept.status().await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_tenant_can_end_its_own_tokens_and_keep_none_alive() {
    let world = World::builder().bind_tokens().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let api = alice.api().await.unwrap();
    let id = api.workspaces(false).await.unwrap().items[0].id;
    let namespace = alice.namespace();
    let credential = api.credential(id).await.unwrap();
    let holder = TokenHolder::new(&world, &namespace, &credential.token).unwrap();
    let secrets = super::object_list(&world, &["secrets", "-n", &namespace]).await.unwrap();
    let newest =
        secrets.iter().max_by_key(|it| it["metadata"]["creationTimestamp"].to_string()).unwrap();
    let name = newest["metadata"]["name"].as_str().unwrap();

    // Attempts to keep the broker from deleting it, or to take one of its names.
    let finalizer = r#"{"metadata":{"finalizers":["alice.example.com/keep"]}}"#;
    let data = r#"{"data":{"a":"Yg=="}}"#;
    let label = "app.kubernetes.io/managed-by-";
    let commands: [&[&str]; 4] = [
        &["patch", "secret", name, "-p", finalizer],
        &["label", "secret", name, label],
        &["annotate", "secret", name, "a=b"],
        &["create", "secret", "generic", "tenant-credential-mine", "--from-literal=a=b"],
    ];
    for args in commands {
        let finished = alice.kubectl().run(args).await.unwrap();
        assert!(finished.stderr.contains("orbidden"), "{args:?}: {}", finished.stderr);
        assert!(finished.stderr.contains("tenant-guard-secrets"), "{args:?}: {}", finished.stderr);
    }
    let fill = ["patch", "secret", name, "-p", data];
    let finished = alice.kubectl().run(fill).await.unwrap();
    assert!(finished.stderr.contains("field is immutable"), "{}", finished.stderr);
    // Secrets of other names are the tenant's own.
    let mine = ["create", "secret", "generic", "mine", "--from-literal=a=b"];
    alice.kubectl().run(mine).await.unwrap().success().unwrap();
    let change = ["patch", "secret", "mine", "-p", data];
    alice.kubectl().run(change).await.unwrap().success().unwrap();

    // An administrator may do it: the policies then keep the broker from the Secret, and the whole
    // ServiceAccount is replaced instead.
    let admin = world.admin_kubectl().unwrap();
    let relabel = ["label", "secret", name, label, "-n", &namespace];
    admin.run(relabel).await.unwrap().success().unwrap();
    assert!(holder.works().await);
    let revocation = api.revoke(id, &credential.credential_id).await.unwrap();
    assert_eq!(revocation.state, RevocationState::Revoked);
    assert_eq!(revocation.by, Some(RevokedBy::ServiceAccount));
    holder.until_refused("Secret that was tampered with, ServiceAccount replaced").await;

    // Deleting one revokes a token, which is harmless.
    let credential = api.credential(id).await.unwrap();
    let holder = TokenHolder::new(&world, &namespace, &credential.token).unwrap();
    let delete = ["delete", "secrets", "-n", &namespace, "-l", "tenant-broker.io/workspace"];
    // The tenant may do it: its kubectl loses its own token.
    alice.kubectl().run(delete).await.unwrap().success().unwrap();
    holder.until_refused("Secret deleted by the tenant").await;
    let revocation = api.revoke(id, &credential.credential_id).await.unwrap();
    assert_eq!(revocation.state, RevocationState::Revoked);
    assert_eq!(done(&revocation.steps), ["record", "delete_secret", "finish"]);
}

#[tokio::test]
async fn with_a_used_up_quota_a_token_is_unbound() {
    let world = World::builder().bind_tokens().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    let full = ["create", "quota", "full", "--hard=count/secrets=0", "-n", &workspace.namespace];
    admin.run(full).await.unwrap().success().unwrap();
    // Until the quota is counted, nothing is refused.
    let unbound = probe::until("the quota", Duration::from_secs(30), || async {
        let credential = api.credential(workspace.id).await?;
        let newest = api.credentials(workspace.id, "limit=1").await?.items.remove(0);
        ensure!(newest.credential_id == credential.credential_id, "{newest:?}");
        Ok(if newest.bound { Probe::NotYet("bound".to_owned()) } else { Probe::Ready(credential) })
    })
    .await
    .unwrap();
    let revocation = api.revoke(workspace.id, &unbound.credential_id).await.unwrap();
    assert_eq!(revocation.by, Some(RevokedBy::ServiceAccount));
    assert_eq!(revocation.state, RevocationState::Revoked);
}

/// With the API server down the decision stands, nothing is issued, and the sweep completes it.
async fn an_outage(bound: bool) -> Result<()> {
    let builder = World::builder().fault_proxy().setting("sweep_seconds", 1);
    let builder = if bound { builder.bind_tokens() } else { builder };
    let world = builder.start().await?;
    let alice = world.person("alice").await?;
    let api = alice.api().await?;
    let (workspace, _) = api.init("basic").await?;
    let (id, kind) = (workspace.id, CredentialKind::Exec);
    let lost = api.credential(id).await?;
    let holder = TokenHolder::new(&world, &workspace.namespace, &lost.token)?;
    assert!(holder.works().await);

    world.proxy()?.down().await;
    let revocation = api.revoke(id, &lost.credential_id).await?;
    assert_eq!(revocation.state, RevocationState::Revoking);
    assert_eq!(revocation.steps[0].result, StepResult::Done);
    assert!(revocation.steps[1..].iter().all(|step| step.result == StepResult::Open));
    let refused = super::refused(api.credential(id).await);
    assert_eq!(refused.code(), Code::ClusterUnavailable);
    assert!(refused.retry_after().is_some());
    assert_eq!(state(&api, id, &lost.credential_id).await, CredentialState::Revoked);
    assert!(holder.works().await, "the answer said that it goes on");

    world.proxy()?.up().await?;
    holder.until_refused("revoked while the API server was away").await;
    let fresh = api.credential(id).await?;
    assert!(TokenHolder::new(&world, &workspace.namespace, &fresh.token)?.works().await);
    let newest = api.credentials(id, "").await?.items.remove(0);
    assert_eq!((newest.kind, newest.bound), (kind, bound));
    let again = api.revoke(id, &lost.credential_id).await?;
    assert_eq!(again.state, RevocationState::Revoked);
    let action = if bound { "CredentialRevoked" } else { "ServiceAccountReplaced" };
    let admin = world.administrator("operator").await?.api().await?;
    assert_eq!(audited(&admin, action).await, 1);
    Ok(())
}

#[tokio::test]
async fn over_an_outage_the_sweep_replaces_the_service_account() {
    an_outage(false).await.unwrap();
}

#[tokio::test]
async fn over_an_outage_the_sweep_deletes_the_secret() {
    an_outage(true).await.unwrap();
}

#[tokio::test]
async fn a_crash_between_deletion_and_replacement_is_finished() {
    let world = World::builder().fault_proxy().setting("sweep_seconds", 1).start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    let lost = api.credential(workspace.id).await.unwrap();
    // The deletion succeeds, the new account does not.
    let fault = integration::fault_proxy::Fault::respond(StatusCode::INTERNAL_SERVER_ERROR);
    let rule = integration::fault_proxy::Rule::new(fault)
        .when(|seen| seen.is(&http::Method::POST, "/serviceaccounts"));
    world.proxy().unwrap().add(rule);
    let revocation = api.revoke(workspace.id, &lost.credential_id).await.unwrap();
    assert_eq!(revocation.state, RevocationState::Revoking);
    let open: Vec<&str> = revocation
        .steps
        .iter()
        .filter(|step| step.result == StepResult::Open)
        .map(|step| step.step.as_str())
        .collect();
    assert_eq!(open, ["create_service_account", "finish"]);
    super::refused(api.credential(workspace.id).await);
    let broker = world.broker();
    broker.kill();
    probe::until("the broker's end", Duration::from_secs(10), || async {
        let running = broker.is_running();
        Ok(if running { Probe::NotYet("it runs".to_owned()) } else { Probe::Ready(()) })
    })
    .await
    .unwrap();
    world.proxy().unwrap().clear();
    world.broker().start().await.unwrap();
    let api = alice.api().await.unwrap();
    let fresh = api.credential(workspace.id).await.unwrap();
    let holder = TokenHolder::new(&world, &workspace.namespace, &fresh.token).unwrap();
    assert!(holder.works().await);
    assert_eq!(state(&api, workspace.id, &lost.credential_id).await, CredentialState::Revoked);
}

#[tokio::test]
async fn two_replicas_revoke_at_once() {
    let world = World::builder().postgres().replicas(2).start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let other = api.clone().at(&world.brokers()[1].url().unwrap()).unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    let id = workspace.id;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(api.credential(id).await.unwrap().credential_id);
    }
    let mut revocations = tokio::task::JoinSet::new();
    // Both replicas issue new tokens meanwhile, and none of them may be a revoked one.
    let mut issued = tokio::task::JoinSet::new();
    for api in [&api, &other] {
        for credential in ids.clone() {
            let api = api.clone();
            revocations.spawn(async move { api.revoke(id, &credential).await });
        }
        let api = api.clone();
        issued.spawn(async move { api.credential(id).await });
    }
    let (revocations, issued) = tokio::join!(revocations.join_all(), issued.join_all());
    for revocation in revocations {
        assert_ne!(revocation.unwrap().state, RevocationState::Over);
    }
    for credential in &ids {
        assert_eq!(state(&api, id, credential).await, CredentialState::Revoked);
        assert_eq!(other.revoke(id, credential).await.unwrap().state, RevocationState::Revoked);
    }
    let admin = world.administrator("operator").await.unwrap().api().await.unwrap();
    assert_eq!(audited(&admin, "ServiceAccountReplaced").await, 1);
    assert_eq!(audited(&admin, "RevokeCredential").await, 1);
    for credential in issued {
        let credential = credential.unwrap();
        let holder = TokenHolder::new(&world, &workspace.namespace, &credential.token).unwrap();
        let live = state(&api, id, &credential.credential_id).await == CredentialState::Live;
        assert!(!live || holder.works().await, "what the list shows as live works");
    }
    let fresh = other.credential(id).await.unwrap();
    assert!(TokenHolder::new(&world, &workspace.namespace, &fresh.token).unwrap().works().await);
}

#[tokio::test]
async fn nobody_revokes_credentials_of_others() {
    let world = World::builder().start().await.unwrap();
    let (alice, bob) = (world.person("alice").await.unwrap(), world.person("bob").await.unwrap());
    let (api, bobs) = (alice.api().await.unwrap(), bob.api().await.unwrap());
    let (workspace, _) = api.init("basic").await.unwrap();
    let (elsewhere, _) = bobs.init("basic").await.unwrap();
    let credential = api.credential(workspace.id).await.unwrap();
    let holder = TokenHolder::new(&world, &workspace.namespace, &credential.token).unwrap();

    // A credential in another's workspace, another's credential in one's own, and one that does not
    // exist.
    for (api, workspace, credential) in [
        (&bobs, workspace.id, credential.credential_id.as_str()),
        (&bobs, elsewhere.id, &credential.credential_id),
        (&api, workspace.id, "unknown"),
    ] {
        let refused = super::refused(api.revoke(workspace, credential).await);
        assert_eq!((refused.status, refused.code()), (StatusCode::NOT_FOUND, Code::NotFound));
    }
    for text in ["a%20b", "JTI=", "a%2Fb", &"x".repeat(200)] {
        let refused = super::refused(api.revoke(workspace.id, text).await);
        assert_eq!(
            (refused.status, refused.code()),
            (StatusCode::BAD_REQUEST, Code::InvalidRequest)
        );
    }
    assert_eq!(super::refused(bobs.credentials(workspace.id, "").await).code(), Code::NotFound);
    for query in ["limit=0", "limit=501", "cursor=a%20b"] {
        let refused = super::refused(api.credentials(workspace.id, query).await);
        assert_eq!(refused.code(), Code::InvalidRequest, "{query}");
    }
    assert!(holder.works().await);
    let admin = world.administrator("operator").await.unwrap().api().await.unwrap();
    let refusals = admin.audit_logs("action=RevokeCredential&limit=10").await.unwrap().items;
    assert_eq!(refusals.len(), 3);
    assert!(refusals.iter().all(|it| it.outcome == "refused" && it.credential_id.is_some()));
    // The owner does not learn who else tried.
    let own = api.audit_logs("action=RevokeCredential&limit=10").await.unwrap().items;
    assert_eq!(own.len(), 1, "{own:?}");
    // An administrator may do it.
    let revoked = admin.revoke(workspace.id, &credential.credential_id).await.unwrap();
    assert_eq!(revoked.state, RevocationState::Revoked);
}

/// Tokens that are in constant use, each at another offset of the API server's ten-second cache.
/// Their last refusal is the bound that the documentation gives; the test prints the figures.
async fn how_long(world: &World, what: &str) {
    const TOKENS: u32 = 10;
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    let mut ids = Vec::new();
    let mut users = tokio::task::JoinSet::new();
    for n in 0..TOKENS {
        let credential = api.credential(workspace.id).await.unwrap();
        let holder = TokenHolder::new(world, &workspace.namespace, &credential.token).unwrap();
        let id = credential.credential_id;
        ids.push(id.clone());
        users.spawn(async move {
            tokio::time::sleep(Duration::from_secs(1) * n).await;
            loop {
                let status = holder.status().await;
                if status == StatusCode::UNAUTHORIZED {
                    return (id, Instant::now());
                }
                assert!(status.is_success(), "{status}");
                tokio::time::sleep(TRY_INTERVAL).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(1) * TOKENS).await;
    let mut answers = std::collections::HashMap::new();
    for id in &ids {
        let revocation = api.revoke(workspace.id, id).await.unwrap();
        assert_eq!(revocation.state, RevocationState::Revoked);
        answers.insert(id.clone(), Instant::now());
        if revocation.by == Some(RevokedBy::ServiceAccount) {
            // All end with the first one.
            answers = ids.iter().map(|id| (id.clone(), answers[&ids[0]])).collect();
            break;
        }
    }
    let refused = tokio::time::timeout(Duration::from_mins(1), users.join_all()).await.unwrap();
    let mut took: Vec<Duration> =
        refused.iter().map(|(id, at)| at.saturating_duration_since(answers[id])).collect();
    took.sort_unstable();
    let (least, middle, most) = (took[0], took[took.len() / 2], took[took.len() - 1]);
    print_message(&format!(
        "{what}: {TOKENS} tokens in use, refused after {least:.2?} (least), {middle:.2?} (median), \
         {most:.2?} (most)"
    ));
}

#[tokio::test]
async fn every_token_in_use_is_refused_in_the_end_without_secrets() {
    how_long(&World::builder().start().await.unwrap(), "ServiceAccount replaced").await;
}

#[tokio::test]
async fn every_token_in_use_is_refused_in_the_end_with_secrets() {
    how_long(&World::builder().bind_tokens().start().await.unwrap(), "Secret deleted").await;
}
