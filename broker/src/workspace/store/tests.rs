//! All statements of the store on both engines.

use tenant_shared::{Quota, Unfinished, Workspace, WorkspaceStatus as Status};
use uuid::Uuid;

use super::*;
use crate::{
    access::{Grants, Resource as _},
    base::clock::timestamp,
    tenant::get_or_create_personal,
    testing::{On, SA_UID, Storage, on_both_engines, run_concurrently},
};

on_both_engines!(
    a_new_row_has_the_inserted_values,
    of_concurrent_inserts_one_creates_the_row_of_a_member,
    a_row_needs_a_user_a_tenant_and_a_namespace_of_its_own,
    a_broker_of_schema_14_inserts_rows_of_personal_tenants,
    uncommitted_changes_are_not_visible,
    every_event_applies_in_its_source_states_only,
    of_concurrent_transitions_one_succeeds,
    workspaces_of_a_person_are_oldest_first,
    the_service_account_uid_is_stored,
    a_service_account_is_retired_once_and_replaced_once,
    a_suspension_ends_a_rotation,
    an_unknown_status_counts_as_failed,
);

const STATUSES: [Status; 6] = [
    Status::Provisioning,
    Status::Provisioned,
    Status::Suspending,
    Status::Suspended,
    Status::Resuming,
    Status::Failed,
];

/// A row of the personal tenant of a user.
fn new(id: Uuid, user_id: Uuid, namespace: &str) -> NewWorkspace<'_> {
    NewWorkspace {
        id,
        tenant_id: user_id,
        user_id,
        cluster: "internal-cluster",
        namespace,
        tier: "basic",
        quota: Quota { cpu: "4".to_owned(), memory: "8Gi".to_owned() },
    }
}

/// Inserts a row, and the personal tenant of its user if that is the row's tenant.
async fn insert_in(tx: &mut Tx, clock: &Clock, new: NewWorkspace<'_>) -> sqlx::Result<bool> {
    if new.tenant_id == new.user_id {
        let tenant = get_or_create_personal(tx, clock, new.user_id).await?;
        assert_eq!(tenant, new.user_id);
    }
    insert(tx, clock, new).await
}

async fn insert_one(storage: &Storage, new: NewWorkspace<'_>) -> sqlx::Result<bool> {
    let mut tx = storage.db.begin().await.unwrap();
    let inserted = insert_in(&mut tx, &storage.clock, new).await?;
    tx.commit().await.unwrap();
    Ok(inserted)
}

/// The statement with which a broker that knows schema 14 inserts a row.
const INSERT_OF_SCHEMA_14: &str = "\
INSERT INTO workspaces (id, user_id, cluster, k8s_namespace, k8s_sa_name, tier, quota_cpu, \
  quota_memory, status, status_changed_at, created_at, sweep_at) \
VALUES ($1, $2, 'internal-cluster', $3, 'sa-tenant-admin', 'basic', '4', '8Gi', 'provisioning', \
  $4, $4, $4) \
ON CONFLICT (k8s_namespace) DO NOTHING";

async fn insert_like_schema_14(
    tx: &mut Tx,
    clock: &Clock,
    (id, user): (Uuid, Uuid),
    namespace: &str,
) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(INSERT_OF_SCHEMA_14)
        .bind(id).bind(user).bind(namespace).bind(clock.now_ms())
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

async fn advance_one(storage: &Storage, id: Uuid, event: Event) -> bool {
    let mut tx = storage.db.begin().await.unwrap();
    let moved = advance(&mut tx, &storage.clock, id, event).await.unwrap();
    tx.commit().await.unwrap();
    moved
}

async fn load(storage: &Storage, id: Uuid) -> WorkspaceRow {
    by_id(&storage.db, id).await.unwrap().unwrap()
}

fn ids(found: &[WorkspaceRow]) -> Vec<Uuid> {
    found.iter().map(|found| found.id).collect()
}

async fn a_new_row_has_the_inserted_values(on: On) {
    let storage = Storage::new(on).await;
    let (user, id) = (storage.user().await, storage.clock.random_id());
    assert!(by_id(&storage.db, id).await.unwrap().is_none());
    assert!(insert_one(&storage, new(id, user, "tenant-a")).await.unwrap());

    let mut tx = storage.db.begin().await.unwrap();
    assert!(by_membership(&mut tx, user, id).await.unwrap().is_none());
    assert!(by_membership(&mut tx, id, user).await.unwrap().is_none());
    let row = by_membership(&mut tx, user, user).await.unwrap().unwrap();
    drop(tx);
    assert_eq!((row.id, row.user_id, row.grants()), (id, user, Grants::owned_by(user)));
    assert_eq!(row.k8s_sa_uid, None, "nothing can be issued yet");
    assert_eq!(row.status_changed_at, storage.clock.now_ms());
    let expected = Workspace {
        id,
        namespace: "tenant-a".to_owned(),
        status: Status::Provisioning,
        quota: Quota { cpu: "4".to_owned(), memory: "8Gi".to_owned() },
        tier: "basic".to_owned(),
        cluster: "internal-cluster".to_owned(),
        owner: user,
        owner_email: None,
        created_at: storage.clock.now().into(),
        unfinished: Some(Unfinished {
            open_steps: vec!["create_objects".to_owned()],
            attempts: 0,
            next_attempt_at: timestamp(storage.clock.now_ms() + work::GRACE_MS).into(),
        }),
        drift: Vec::new(),
        tenant: None,
    };
    assert_eq!((row.tenant_id(), row.service_account()), (user, "sa-tenant-admin"));
    assert_eq!(row.to_api(), expected);
    assert_eq!(load(&storage, id).await.to_api(), expected);
    let account = "SELECT COUNT(*) FROM workspaces WHERE k8s_sa_name = 'sa-tenant-admin'";
    assert_eq!(storage.number(account).await, 1);
}

/// The members of personal tenants.
const PERSONAL: &str = "\
SELECT COUNT(*) FROM workspaces w JOIN tenants t ON t.id = w.tenant_id \
WHERE t.id = w.user_id AND t.name IS NULL";

async fn of_concurrent_inserts_one_creates_the_row_of_a_member(on: On) {
    let storage = Storage::new(on).await;
    // Two processes, because replicas share the rows; of two versions, as during an upgrade.
    let processes = [storage.db.clone(), storage.database.connect().await];
    for (round, versions) in [(1, 1), (2, 2)] {
        let user = storage.user().await;
        let results = run_concurrently((0..16).map(|n| {
            let (db, clock) = (processes[n % 2].clone(), storage.clock.clone());
            async move {
                let namespace = format!("tenant-{user}");
                let mut tx = db.begin().await.unwrap();
                let id = clock.random_id();
                let inserted = match n % versions {
                    0 => insert_in(&mut tx, &clock, new(id, user, &namespace)).await,
                    _ => insert_like_schema_14(&mut tx, &clock, (id, user), &namespace).await,
                }
                .unwrap();
                // The transaction that lost sees the row of the winner.
                let row = by_membership(&mut tx, user, user).await.unwrap().unwrap();
                tx.commit().await.unwrap();
                assert_eq!(inserted, row.id == id);
                (inserted, row.id)
            }
        }))
        .await;
        assert_eq!(results.iter().filter(|(inserted, _)| *inserted).count(), 1);
        assert!(results.iter().all(|(_, id)| *id == results[0].1), "all see the same row");
        for count in ["SELECT COUNT(*) FROM workspaces", "SELECT COUNT(*) FROM tenants", PERSONAL] {
            assert_eq!(storage.number(count).await, round, "{count}");
        }
    }
}

async fn a_broker_of_schema_14_inserts_rows_of_personal_tenants(on: On) {
    let storage = Storage::new(on).await;
    let (user, id) = (storage.user().await, storage.clock.random_id());
    for inserts in [true, false] {
        let mut tx = storage.db.begin().await.unwrap();
        let row = (if inserts { id } else { storage.clock.random_id() }, user);
        let inserted = insert_like_schema_14(&mut tx, &storage.clock, row, "tenant-a").await;
        assert_eq!(inserted.unwrap(), inserts, "it counts the row and not the tenant");
        tx.commit().await.unwrap();
    }
    assert_eq!(storage.number(PERSONAL).await, 1);
    assert_eq!(storage.number("SELECT COUNT(*) FROM tenants").await, 1);
    let member = new(storage.clock.random_id(), user, "tenant-a");
    assert!(!insert_one(&storage, member).await.unwrap(), "this version finds the row");
    assert_eq!(ids(&for_user(&storage.db, user).await.unwrap()), [id]);
}

async fn a_row_needs_a_user_a_tenant_and_a_namespace_of_its_own(on: On) {
    let storage = Storage::new(on).await;
    let (id, nobody) = (storage.clock.random_id(), storage.clock.random_id());
    let (user, other) = (storage.user().await, storage.user().await);
    for row in [
        new(id, nobody, "tenant-a"),
        NewWorkspace { tenant_id: nobody, ..new(id, user, "tenant-a") },
    ] {
        let error = insert_one(&storage, row).await.unwrap_err();
        let error = error.as_database_error().unwrap();
        assert!(error.is_foreign_key_violation(), "{error}");
    }
    assert_eq!(storage.number("SELECT COUNT(*) FROM tenants").await, 0);
    // A duplicate member is no error, but a duplicate id or namespace is one.
    assert!(insert_one(&storage, new(id, user, "tenant-a")).await.unwrap());
    assert!(!insert_one(&storage, new(id, user, "tenant-b")).await.unwrap());
    let another = storage.clock.random_id();
    for row in [new(id, other, "tenant-b"), new(another, other, "tenant-a")] {
        let error = insert_one(&storage, row).await.unwrap_err();
        assert!(error.as_database_error().unwrap().is_unique_violation(), "{error}");
    }
    assert!(insert_one(&storage, new(another, other, "tenant-b")).await.unwrap());
}

async fn uncommitted_changes_are_not_visible(on: On) {
    let storage = Storage::new(on).await;
    let (user, id) = (storage.user().await, storage.clock.random_id());
    let mut tx = storage.db.begin().await.unwrap();
    assert!(insert_in(&mut tx, &storage.clock, new(id, user, "tenant-a")).await.unwrap());
    drop(tx);
    assert!(by_id(&storage.db, id).await.unwrap().is_none());
    assert_eq!(storage.number("SELECT COUNT(*) FROM tenants").await, 0);
    assert!(insert_one(&storage, new(id, user, "tenant-a")).await.unwrap());

    let mut tx = storage.db.begin().await.unwrap();
    assert!(advance(&mut tx, &storage.clock, id, Event::Suspend).await.unwrap());
    set_uids(&mut tx, id, &made("uid")).await.unwrap();
    drop(tx);
    let row = load(&storage, id).await;
    assert_eq!((row.status(), row.k8s_sa_uid), (Status::Provisioning, None));
}

async fn every_event_applies_in_its_source_states_only(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let made_at = storage.clock.now_ms();
    for event in [
        Event::Retry,
        Event::ObjectsExist,
        Event::Conflict,
        Event::Lost,
        Event::Suspend,
        Event::RightsGone,
        Event::Resume,
    ] {
        let (from, to) = transition(event);
        for status in STATUSES {
            let (id, other) =
                (storage.workspace(user, status).await, storage.workspace(user, status).await);
            storage.clock.advance(1);
            let made_at = storage.clock.now_ms() - 1;
            let moved = advance_one(&storage, id, event).await;
            assert_eq!(moved, from.contains(&status), "{event:?} from {status:?}");
            let row = load(&storage, id).await;
            assert_eq!(row.status(), if moved { to } else { status }, "{event:?}");
            assert_eq!(row.status_changed_at, made_at + i64::from(moved), "{event:?}");
            let other = load(&storage, other).await;
            assert_eq!((other.status(), other.status_changed_at), (status, made_at), "{event:?}");
        }
    }
    assert!(storage.clock.now_ms() > made_at);
    assert!(!advance_one(&storage, storage.clock.random_id(), Event::Suspend).await, "no such row");
}

async fn of_concurrent_transitions_one_succeeds(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let id = storage.workspace(user, Status::Provisioned).await;
    let processes = [storage.db.clone(), storage.database.connect().await];
    for event in [Event::Suspend, Event::RightsGone, Event::Resume, Event::ObjectsExist] {
        let moved = run_concurrently((0..16).map(|n| {
            let (db, clock) = (processes[n % 2].clone(), storage.clock.clone());
            async move {
                let mut tx = db.begin().await.unwrap();
                let moved = advance(&mut tx, &clock, id, event).await.unwrap();
                tx.commit().await.unwrap();
                moved
            }
        }))
        .await;
        assert_eq!(moved.iter().filter(|moved| **moved).count(), 1, "{event:?}");
        assert_eq!(load(&storage, id).await.status(), transition(event).1);
    }
}

async fn workspaces_of_a_person_are_oldest_first(on: On) {
    let storage = Storage::new(on).await;
    let (ada, ben) = (storage.user().await, storage.user().await);
    let mut of_ada = vec![storage.workspace(ada, Status::Failed).await];
    storage.clock.advance(1);
    let of_ben = storage.workspace(ben, Status::Suspended).await;
    // Created in the same millisecond: the order is still deterministic.
    let mut twins = [
        storage.workspace(ada, Status::Resuming).await,
        storage.workspace(ada, Status::Failed).await,
    ];
    twins.sort();
    of_ada.extend(twins);
    assert_eq!(ids(&for_user(&storage.db, ada).await.unwrap()), of_ada);
    assert_eq!(ids(&for_user(&storage.db, ben).await.unwrap()), [of_ben]);
    let nobody = storage.clock.random_id();
    assert!(for_user(&storage.db, nobody).await.unwrap().is_empty());
}

async fn the_service_account_uid_is_stored(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let id = storage.workspace(user, Status::Provisioning).await;
    let other = storage.workspace(user, Status::Provisioning).await;
    for uid in ["first", "made anew"] {
        let mut tx = storage.db.begin().await.unwrap();
        set_uids(&mut tx, id, &made(uid)).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(load(&storage, id).await.k8s_sa_uid.as_deref(), Some(uid));
        assert_eq!(load(&storage, other).await.k8s_sa_uid, None);
    }
}

async fn an_unknown_status_counts_as_failed(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let id = storage.workspace(user, Status::Provisioned).await;
    // As a later version or a manual change might have left it.
    for status in ["archived", "Provisioned", "provisioned ", ""] {
        let mut tx = storage.db.begin().await.unwrap();
        on_engine!(tx.connection(), c => sqlx::query("UPDATE workspaces SET status = $1")
            .bind(status).execute(c).await.map(drop))
        .unwrap();
        tx.commit().await.unwrap();
        let row = load(&storage, id).await;
        assert_eq!(
            (row.status(), row.to_api().status),
            (Status::Failed, Status::Failed),
            "{status:?}"
        );
        assert!(!advance_one(&storage, id, Event::ObjectsExist).await, "{status:?}");
        assert!(!advance_one(&storage, id, Event::Retry).await, "{status:?}");
    }
}

/// Runs a change in its own transaction.
macro_rules! change {
    ($storage:expr, $tx:ident => $change:expr) => {{
        let mut $tx = $storage.db.begin().await.unwrap();
        let result = $change.await.unwrap();
        $tx.commit().await.unwrap();
        result
    }};
}

async fn a_service_account_is_retired_once_and_replaced_once(on: On) {
    let storage = Storage::new(on).await;
    let (clock, user) = (&storage.clock, storage.user().await);
    let id = storage.workspace(user, Status::Provisioned).await;
    let other = change!(storage, tx => retire_service_account(&mut tx, clock, id, "sa-0"));
    assert!(!other, "only the current account is retired");
    assert!(change!(storage, tx => retire_service_account(&mut tx, clock, id, SA_UID)));
    let row = load(&storage, id).await;
    assert!(row.is_rotating() && row.k8s_sa_uid.is_none() && !row.issues_with(SA_UID));
    assert_eq!(row.status(), Status::Provisioned, "clients do not see a rotation as a status");
    assert!(!change!(storage, tx => retire_service_account(&mut tx, clock, id, SA_UID)));

    let now = clock.now_ms();
    let later = now + work::GRACE_MS;
    assert!(
        work::due(&storage.db, now, 10).await.unwrap().is_empty(),
        "a request may be in flight"
    );
    assert_eq!(ids(&work::due(&storage.db, later, 10).await.unwrap()), [id]);

    assert!(change!(storage, tx => replace_service_account(&mut tx, id, SA_UID, "sa-2")));
    let late = change!(storage, tx => replace_service_account(&mut tx, id, SA_UID, "sa-3"));
    assert!(!late, "another replica replaced it");
    let row = load(&storage, id).await;
    assert!(!row.is_rotating() && row.issues_with("sa-2"));
    assert!(work::due(&storage.db, later, 10).await.unwrap().is_empty());
}

async fn a_suspension_ends_a_rotation(on: On) {
    let storage = Storage::new(on).await;
    let (clock, user) = (&storage.clock, storage.user().await);
    let id = storage.workspace(user, Status::Provisioned).await;
    assert!(change!(storage, tx => retire_service_account(&mut tx, clock, id, SA_UID)));
    assert!(advance_one(&storage, id, Event::Suspend).await);
    assert!(!load(&storage, id).await.is_rotating());
    assert!(!change!(storage, tx => replace_service_account(&mut tx, id, SA_UID, "sa-2")));
    // A resumption creates its own ServiceAccount, so no rotation is left.
    for event in [Event::RightsGone, Event::Resume, Event::ObjectsExist] {
        assert!(advance_one(&storage, id, event).await);
    }
    change!(storage, tx => set_uids(&mut tx, id, &made("sa-3")));
    let row = load(&storage, id).await;
    assert!(!row.is_rotating() && row.issues_with("sa-3"));
}

fn made(service_account: &str) -> ObjectUids {
    ObjectUids { namespace: "ns".to_owned(), service_account: service_account.to_owned() }
}
