//! Lists of credentials, and the rows after a revocation, with a cluster that does not answer.

use tenant_shared::{
    CredentialId, CredentialInfo, CredentialState as State, Revocation, RevocationState, RevokedBy,
    Role, StepResult, WorkspaceStatus,
};
use uuid::Uuid;

use super::{secrets::DueSecret, *};
use crate::{
    access::{self, AccessError, RevokeCredentials, SuspendWorkspaces, UseWorkspace},
    audit,
    cluster::TokenSecret,
    identity::Caller,
    on_engine,
    testing::{On, SA_UID, Storage, on_both_engines, run_concurrently},
    workspace::WorkspaceError,
};

on_both_engines!(
    the_list_has_live_credentials_newest_first_in_pages,
    revoking_a_credential_without_a_secret_revokes_the_others,
    a_credential_with_a_secret_is_revoked_alone,
    of_concurrent_revocations_one_is_decided,
    expired_unknown_and_foreign_credentials_are_refused_and_recorded,
    a_secret_is_recorded_from_before_its_creation_until_its_deletion,
    the_number_of_secrets_of_a_workspace_is_limited,
    undeletable_secrets_do_not_starve_others,
    an_undeletable_secret_rotates_the_service_account,
    a_suspension_withdraws_all_credentials,
    a_refused_revocation_is_recorded_if_the_workspace_exists,
);

struct World {
    storage: Storage,
    credentials: Credentials,
    owner: Caller,
    workspace: Uuid,
}

impl World {
    async fn new(on: On) -> Self {
        let storage = Storage::new(on).await;
        let user = storage.user().await;
        let workspace = storage.workspace(user, WorkspaceStatus::Provisioned).await;
        let credentials = Self::replica(&storage).await;
        let owner = Caller::for_tests(&storage.clock, user, Role::User);
        Self { storage, credentials, owner, workspace }
    }

    /// Another broker on the same database.
    async fn replica(storage: &Storage) -> Credentials {
        let db = storage.database.connect().await;
        Credentials::new(Dependencies {
            ledger: Ledger::start(db.clone()),
            db,
            workspaces: storage.workspaces().await,
            clusters: Clusters::new(storage.no_cluster().await),
            clock: storage.clock.clone(),
            metrics: Metrics::default(),
            bind: true,
        })
    }

    fn entry(&self, id: &str, secret: Option<&str>) -> ledger::LedgerEntry {
        let event = audit::Event {
            credential_id: Some(id.to_owned()),
            ..audit::Event::success(Action::IssueCredential)
        };
        let now = self.storage.clock.now_ms();
        ledger::LedgerEntry {
            credential_id: id.to_owned(),
            workspace_id: self.workspace,
            user_id: self.owner.user_id(),
            session_id: self.owner.session_id(),
            kind: CredentialKind::Exec,
            service_account_uid: SA_UID.to_owned(),
            secret: secret.map(|name| TokenSecret { name: name.into(), uid: format!("u-{name}") }),
            issued_at_ms: now,
            expires_at_ms: now + 7_200_000,
            event: event.with_request_context(&self.storage.clock),
        }
    }

    async fn reserve_secret(&self, name: &str) -> bool {
        let now_ms = self.storage.clock.now_ms();
        let new =
            secrets::NewSecret { name: name.to_owned(), workspace_id: self.workspace, now_ms };
        self.credentials.ledger.reserve_secret(new).await.unwrap()
    }

    /// Records a credential, with or without a Secret, and advances the clock.
    async fn issued(&self, id: &str, secret: Option<&str>) {
        if let Some(name) = secret {
            assert!(self.reserve_secret(name).await);
        }
        self.credentials.ledger.record(self.entry(id, secret)).await.unwrap();
        self.storage.clock.advance(10);
    }

    /// The permit of the owner for the workspace as it is now.
    async fn permit<A: access::ResourceAction>(&self) -> Permit<A, WorkspaceRow> {
        self.credentials.workspaces.authorize(&self.owner, self.workspace).await.unwrap()
    }

    async fn workspace_row(&self) -> WorkspaceRow {
        self.permit::<ReadWorkspace>().await.resource().clone()
    }

    async fn revoke(&self, id: &str) -> Result<Revocation, RevokeError> {
        let permit = self.permit().await;
        self.credentials.revoke(&permit, &id.parse().unwrap(), Some("lost".to_owned())).await
    }

    async fn list(&self, all: bool, after: Option<&str>, limit: usize) -> CredentialPage {
        self.credentials.list(&self.permit().await, all, after, limit).await.unwrap()
    }

    async fn states(&self) -> Vec<(String, State)> {
        let items = self.list(true, None, 100).await.items;
        items.into_iter().map(|it| (it.credential_id, it.state)).collect()
    }

    async fn due(&self) -> Vec<DueSecret> {
        secrets::due(&self.storage.db, self.storage.clock.now_ms(), 100).await.unwrap()
    }

    /// Number of audit rows with this action and outcome.
    async fn audited(&self, action: Action, outcome: &str) -> i64 {
        on_engine!(self.storage.db.reader(), pool => sqlx::query_scalar(
            "SELECT COUNT(*) FROM audit_logs WHERE action = $1 AND outcome = $2")
            .bind(action.as_str()).bind(outcome).fetch_one(pool).await)
        .unwrap()
    }
}

fn ids(page: &CredentialPage) -> Vec<&str> {
    page.items.iter().map(|it| it.credential_id.as_str()).collect()
}

fn steps(revocation: &Revocation) -> Vec<(&str, StepResult)> {
    revocation.steps.iter().map(|step| (step.step.as_str(), step.result)).collect()
}

async fn the_list_has_live_credentials_newest_first_in_pages(on: On) {
    let world = World::new(on).await;
    for id in ["a", "b"] {
        world.issued(id, None).await;
    }
    let kubeconfig =
        ledger::LedgerEntry { kind: CredentialKind::Kubeconfig, ..world.entry("c", None) };
    world.credentials.ledger.record(kubeconfig).await.unwrap();
    world.storage.clock.advance(7_200_000 - 15);
    world.issued("d", Some("tenant-credential-d")).await;

    let live = world.list(false, None, 10).await;
    assert_eq!((ids(&live), live.next_cursor.as_deref()), (vec!["d", "c"], None));
    let CredentialInfo { kind, bound, user_id, email, session_id, client, .. } = &live.items[1];
    assert_eq!((*kind, *bound), (CredentialKind::Kubeconfig, false));
    assert_eq!((*user_id, *session_id), (world.owner.user_id(), world.owner.session_id()));
    assert_eq!(email.as_deref(), Some(world.owner.email()));
    assert_eq!(*client, None, "nobody knows the session any more");
    assert!(live.items[0].bound);

    let first = world.list(true, None, 2).await;
    assert_eq!((ids(&first), first.next_cursor.as_deref()), (vec!["d", "c"], Some("c")));
    let second = world.list(true, Some("c"), 2).await;
    assert_eq!((ids(&second), second.next_cursor.as_deref()), (vec!["b", "a"], None));
    assert!(second.items.iter().all(|it| it.state == State::Expired));
    let elsewhere = world.list(true, Some("of-another-workspace"), 2).await;
    assert!(elsewhere.items.is_empty());
}

async fn revoking_a_credential_without_a_secret_revokes_the_others(on: On) {
    let world = World::new(on).await;
    world.issued("old", None).await;
    world.issued("bound", Some("tenant-credential-1")).await;
    world.issued("lost", None).await;

    let revocation = world.revoke("lost").await.unwrap();
    assert_eq!(revocation.state, RevocationState::Revoking, "the cluster does not answer");
    assert_eq!(revocation.by, Some(RevokedBy::ServiceAccount));
    assert_eq!((revocation.others_revoked, revocation.accepted_for_seconds), (2, 10));
    assert_eq!(revocation.others, ["bound", "old"]);
    assert_eq!(
        steps(&revocation),
        [
            ("record", StepResult::Done),
            ("delete_service_account", StepResult::Open),
            ("create_service_account", StepResult::Open),
            ("finish", StepResult::Open)
        ]
    );
    let all = world.list(true, None, 10).await;
    let with: Vec<_> = all.items.iter().map(|it| (it.state, it.revoked_with.as_deref())).collect();
    let others = (State::Revoked, Some("lost"));
    assert_eq!(with, [(State::Revoked, None), others, others]);
    assert_eq!(world.due().await.len(), 1, "the Secret of the bound credential is due too");

    // No token is issued for the old ServiceAccount, and the sweep has work.
    let permit = world.permit::<UseWorkspace>().await;
    assert!(permit.resource().is_rotating());
    let refused = world.credentials.workspaces.active(&permit).unwrap_err();
    assert!(refused.to_string().contains("try again"), "{refused}");
    let late = world.credentials.ledger.record(world.entry("late", None)).await;
    assert_eq!(late, Err(NotRecorded::Changed));
    world.storage.clock.advance(60_000);
    assert_eq!(world.credentials.workspaces.sweep().await.unwrap(), 1);

    // A second revocation, of this or of one that was revoked with it, records no new decision.
    for id in ["lost", "old"] {
        assert_eq!(world.revoke(id).await.unwrap().state, RevocationState::Revoking);
    }
    assert_eq!(world.audited(Action::RevokeCredential, "success").await, 1);
}

async fn a_credential_with_a_secret_is_revoked_alone(on: On) {
    let world = World::new(on).await;
    world.issued("kept", Some("tenant-credential-1")).await;
    world.issued("lost", Some("tenant-credential-2")).await;
    assert!(world.due().await.is_empty());

    let revocation = world.revoke("JTI=lost").await.unwrap();
    assert_eq!(revocation.state, RevocationState::Revoking);
    assert_eq!(revocation.by, Some(RevokedBy::Secret));
    assert_eq!((revocation.others_revoked, revocation.others.len()), (0, 0));
    assert_eq!(
        steps(&revocation),
        [
            ("record", StepResult::Done),
            ("delete_secret", StepResult::Open),
            ("finish", StepResult::Open)
        ]
    );
    assert!(!world.workspace_row().await.is_rotating());
    let states = world.states().await;
    assert_eq!(states, [("lost".into(), State::Revoked), ("kept".into(), State::Live)]);

    // The sweep finds the Secret, and deletes it once the cluster answers.
    assert_eq!(world.credentials.sweep().await.unwrap(), 0);
    assert!(world.due().await.is_empty());
    world.storage.clock.advance(5_000);
    let [due] = &world.due().await[..] else { panic!("one") };
    assert_eq!(due.name, "tenant-credential-2");
    assert_eq!(due.uid.as_deref(), Some("u-tenant-credential-2"));
    assert_eq!(due.revoked.as_deref(), Some("lost"));
    // Both the sweep and the request may record the deletion.
    for _ in 0..2 {
        world.credentials.record_secret_deletion(due).await.unwrap();
    }
    assert_eq!(world.audited(Action::CredentialRevoked, "success").await, 1);
    assert!(world.due().await.is_empty());
    assert_eq!(world.revoke("lost").await.unwrap().state, RevocationState::Revoked);
}

async fn of_concurrent_revocations_one_is_decided(on: On) {
    for bound in [false, true] {
        let world = World::new(on).await;
        for id in ["a", "b"] {
            let secret = format!("tenant-credential-{id}");
            world.issued(id, bound.then_some(secret.as_str())).await;
        }
        // Two replicas, and without Secrets also two credentials of the same ServiceAccount.
        let replicas = [world.credentials.clone(), World::replica(&world.storage).await];
        let permit = world.permit::<RevokeCredentials>().await;
        let results = run_concurrently((0..16).map(|n| {
            let (replica, permit) = (replicas[n % 2].clone(), permit.clone());
            let id = if bound || n % 4 < 2 { "a" } else { "b" };
            async move { replica.revoke(&permit, &id.parse().unwrap(), None).await }
        }))
        .await;
        for result in results {
            assert_eq!(result.unwrap().state, RevocationState::Revoking);
        }
        assert_eq!(world.audited(Action::RevokeCredential, "success").await, 1, "bound: {bound}");
        assert_eq!(world.workspace_row().await.is_rotating(), !bound);
    }
}

async fn expired_unknown_and_foreign_credentials_are_refused_and_recorded(on: On) {
    let world = World::new(on).await;
    world.issued("expired", None).await;
    world.storage.clock.advance(7_200_000);
    // API servers accept a token for up to 70 s after its expiry, so it can be revoked until then.
    assert_eq!(world.states().await, [("expired".into(), State::Expired)]);
    world.storage.clock.advance(70_000);
    let over = world.revoke("expired").await.unwrap();
    assert_eq!((over.state, over.by), (RevocationState::Over, None));
    assert_eq!((over.steps.len(), over.accepted_for_seconds), (0, 0));
    assert!(!world.workspace_row().await.is_rotating(), "no other credential is revoked");

    let world = World::new(on).await;
    let other = world.storage.workspace(world.owner.user_id(), WorkspaceStatus::Provisioned).await;
    let foreign = ledger::LedgerEntry { workspace_id: other, ..world.entry("foreign", None) };
    world.credentials.ledger.record(foreign).await.unwrap();
    for id in ["unknown", "foreign"] {
        assert!(matches!(world.revoke(id).await, Err(RevokeError::Unknown)), "{id}");
    }
    assert_eq!(world.audited(Action::RevokeCredential, "refused").await, 2);
    assert_eq!(world.audited(Action::RevokeCredential, "success").await, 0);
    let named = "SELECT COUNT(*) FROM audit_logs WHERE credential_id IN ('unknown', 'foreign') \
                 AND outcome = 'refused' AND reason IS NOT NULL AND user_id IS NOT NULL";
    assert_eq!(world.storage.number(named).await, 2);
}

async fn a_secret_is_recorded_from_before_its_creation_until_its_deletion(on: On) {
    let world = World::new(on).await;
    // A crash before or after the creation of the Secret.
    assert!(world.reserve_secret("tenant-credential-crash").await);
    world.issued("good", Some("tenant-credential-good")).await;
    assert!(world.due().await.is_empty(), "the Secret may be in creation");
    world.storage.clock.advance(300_000);
    let [due] = &world.due().await[..] else { panic!("one") };
    assert_eq!((due.name.as_str(), due.uid.as_deref()), ("tenant-credential-crash", None));
    world.credentials.record_secret_deletion(due).await.unwrap();
    assert_eq!(world.audited(Action::CredentialRevoked, "success").await, 0, "nobody revoked it");

    // The other Secret is due when no API server accepts its token any more.
    world.storage.clock.advance(7_269_000 - 300_000);
    assert!(world.due().await.is_empty());
    world.storage.clock.advance(1000);
    let [due] = &world.due().await[..] else { panic!("one") };
    assert_eq!(due.name, "tenant-credential-good");
    // A Secret that cannot be deleted is postponed.
    let mut tx = world.storage.db.begin().await.unwrap();
    secrets::postpone(&mut tx, &due.name, world.storage.clock.now_ms()).await.unwrap();
    tx.commit().await.unwrap();
    assert!(world.due().await.is_empty());
    world.storage.clock.advance(60_000);
    assert_eq!(world.due().await.len(), 1);
}

async fn the_number_of_secrets_of_a_workspace_is_limited(on: On) {
    let world = World::new(on).await;
    for n in 0..50 {
        assert!(world.reserve_secret(&format!("tenant-credential-{n}")).await, "{n}");
    }
    assert!(!world.reserve_secret("tenant-credential-50").await);
    let bob = World {
        workspace: world
            .storage
            .workspace(world.storage.user().await, WorkspaceStatus::Provisioned)
            .await,
        ..world
    };
    assert!(bob.reserve_secret("tenant-credential-50").await, "another workspace has its own");
}

async fn undeletable_secrets_do_not_starve_others(on: On) {
    let world = World::new(on).await;
    for n in 0..10 {
        assert!(world.reserve_secret(&format!("tenant-credential-{n}")).await, "{n}");
    }
    world.storage.clock.advance(300_000);
    // A round tries eight Secrets, and ends because the cluster answers for none of them.
    for left in [vec!["tenant-credential-8", "tenant-credential-9"], vec![]] {
        assert_eq!(world.credentials.sweep().await.unwrap(), 0);
        let due = world.due().await;
        assert_eq!(due.iter().map(|due| due.name.as_str()).collect::<Vec<_>>(), left);
    }
    world.storage.clock.advance(5_000);
    assert_eq!(world.due().await.len(), 10);
}

async fn an_undeletable_secret_rotates_the_service_account(on: On) {
    let world = World::new(on).await;
    world.issued("kept", Some("tenant-credential-1")).await;
    world.issued("lost", Some("tenant-credential-2")).await;
    world.revoke("lost").await.unwrap();
    for _ in 0..2 {
        world.credentials.fall_back_to_rotation(world.workspace, "lost").await.unwrap();
    }
    assert!(world.workspace_row().await.is_rotating());
    let states = world.states().await;
    assert_eq!(states, [("lost".into(), State::Revoked), ("kept".into(), State::Revoked)]);
    let again = world.revoke("lost").await.unwrap();
    assert_eq!(again.by, Some(RevokedBy::ServiceAccount));
    assert_eq!(again.others, ["kept"]);
    assert_eq!(world.audited(Action::RevokeCredential, "success").await, 2);
}

async fn a_suspension_withdraws_all_credentials(on: On) {
    let world = World::new(on).await;
    world.issued("a", None).await;
    let operator = Caller::for_tests(&world.storage.clock, Uuid::nil(), Role::Admin);
    let workspaces = &world.credentials.workspaces;
    let kill = workspaces.authorize::<SuspendWorkspaces>(&operator, world.workspace).await.unwrap();
    workspaces.suspend(&kill, None).await.unwrap();
    assert_eq!(world.states().await, [("a".into(), State::Withdrawn)]);
    assert!(world.list(false, None, 10).await.items.is_empty());
    assert_eq!(world.revoke("a").await.unwrap().state, RevocationState::Over);
    let permit = world.permit::<UseWorkspace>().await;
    let refused = world.credentials.issue(permit, CredentialKind::Exec).await.unwrap_err();
    assert!(matches!(refused, IssueError::Workspace(WorkspaceError::Suspended)), "{refused:?}");
}

async fn a_refused_revocation_is_recorded_if_the_workspace_exists(on: On) {
    let world = World::new(on).await;
    let bob = world.storage.user().await;
    let bob = Caller::for_tests(&world.storage.clock, bob, Role::User);
    let id: CredentialId = "JTI=stolen".parse().unwrap();
    for (workspace, recorded) in [(Uuid::nil(), 0), (world.workspace, 1)] {
        let refused = world.credentials.authorize_revocation(&bob, workspace, &id).await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused, WorkspaceError::Access(AccessError::WorkspaceNotFound)));
        assert_eq!(world.audited(Action::RevokeCredential, "refused").await, recorded);
    }
    let named = "SELECT COUNT(*) FROM audit_logs WHERE credential_id = 'stolen' \
                 AND workspace_id IS NULL AND user_id IS NOT NULL \
                 AND reason LIKE 'the workspace % is not the caller''s'";
    assert_eq!(world.storage.number(named).await, 1);
}
