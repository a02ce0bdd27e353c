//! Every statement of the store on both engines.

use tenant_shared::{Quota, Unfinished, WorkspaceStatus as Status};
use uuid::Uuid;

use super::*;
use crate::testing::{On, SA_UID, Storage, at_once, on_both_engines};

on_both_engines!(
    a_new_row_says_what_it_was_made_of,
    of_many_at_once_one_makes_the_row_of_a_namespace,
    a_row_needs_a_user,
    what_is_not_committed_is_not_there,
    every_event_moves_from_its_states_only,
    of_many_at_once_one_moves_a_workspace,
    workspaces_of_a_person_are_oldest_first,
    the_service_account_is_kept,
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

fn new(id: Uuid, user_id: Uuid, namespace: &str) -> New<'_> {
    let quota = Quota { cpu: "4".to_owned(), memory: "8Gi".to_owned() };
    New { id, user_id, cluster: "internal-cluster", namespace, tier: "basic", quota }
}

async fn insert_one(storage: &Storage, new: New<'_>) -> sqlx::Result<bool> {
    let mut tx = storage.db.begin().await.unwrap();
    let inserted = insert(&mut tx, &storage.clock, new).await?;
    tx.commit().await.unwrap();
    Ok(inserted)
}

async fn advance_one(storage: &Storage, id: Uuid, event: Event) -> bool {
    let mut tx = storage.db.begin().await.unwrap();
    let moved = advance(&mut tx, &storage.clock, id, event).await.unwrap();
    tx.commit().await.unwrap();
    moved
}

async fn found(storage: &Storage, id: Uuid) -> Found {
    by_id(&storage.db, id).await.unwrap().unwrap()
}

fn ids(found: &[Found]) -> Vec<Uuid> {
    found.iter().map(|found| found.id).collect()
}

async fn a_new_row_says_what_it_was_made_of(on: On) {
    let storage = Storage::new(on).await;
    let (user, id) = (storage.user().await, storage.clock.random_id());
    assert!(by_id(&storage.db, id).await.unwrap().is_none());
    assert!(insert_one(&storage, new(id, user, "tenant-a")).await.unwrap());

    let mut tx = storage.db.begin().await.unwrap();
    assert!(by_namespace(&mut tx, "tenant-b").await.unwrap().is_none());
    assert!(by_namespace(&mut tx, "TENANT-A").await.unwrap().is_none(), "names are exact");
    let row = by_namespace(&mut tx, "tenant-a").await.unwrap().unwrap();
    drop(tx);
    assert_eq!((row.id, row.user_id, Owned::owner(&row)), (id, user, user));
    assert_eq!(row.k8s_sa_uid, None, "nothing can be issued yet");
    assert_eq!(row.status_changed_at, storage.clock.now_ms());
    let wire = Workspace {
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
    };
    assert_eq!(row.wire(), wire);
    assert_eq!(found(&storage, id).await.wire(), wire);
    let account = "SELECT COUNT(*) FROM workspaces WHERE k8s_sa_name = 'sa-tenant-admin'";
    assert_eq!(storage.number(account).await, 1);
}

async fn of_many_at_once_one_makes_the_row_of_a_namespace(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    // Two processes, for replicas share the rows.
    let processes = [storage.db.clone(), storage.place.connect().await];
    let results = at_once((0..16).map(|n| {
        let (db, clock) = (processes[n % 2].clone(), storage.clock.clone());
        async move {
            let mut tx = db.begin().await.unwrap();
            let id = clock.random_id();
            let inserted = insert(&mut tx, &clock, new(id, user, "tenant-a")).await.unwrap();
            // Whoever lost sees the row of the one who won in the same transaction.
            let row = by_namespace(&mut tx, "tenant-a").await.unwrap().unwrap();
            tx.commit().await.unwrap();
            assert_eq!(inserted, row.id == id);
            (inserted, row.id)
        }
    }))
    .await;
    assert_eq!(results.iter().filter(|(inserted, _)| *inserted).count(), 1);
    assert!(results.iter().all(|(_, id)| *id == results[0].1), "all see the same row");
    assert_eq!(storage.number("SELECT COUNT(*) FROM workspaces").await, 1);
}

async fn a_row_needs_a_user(on: On) {
    let storage = Storage::new(on).await;
    let (id, nobody) = (storage.clock.random_id(), storage.clock.random_id());
    let error = insert_one(&storage, new(id, nobody, "tenant-a")).await.unwrap_err();
    let error = error.as_database_error().unwrap();
    assert!(error.is_foreign_key_violation(), "{error}");
    // Only a namespace that is taken is no error: an id that is taken is one.
    let user = storage.user().await;
    assert!(insert_one(&storage, new(id, user, "tenant-a")).await.unwrap());
    let error = insert_one(&storage, new(id, user, "tenant-b")).await.unwrap_err();
    assert!(error.as_database_error().unwrap().is_unique_violation(), "{error}");
}

async fn what_is_not_committed_is_not_there(on: On) {
    let storage = Storage::new(on).await;
    let (user, id) = (storage.user().await, storage.clock.random_id());
    let mut tx = storage.db.begin().await.unwrap();
    assert!(insert(&mut tx, &storage.clock, new(id, user, "tenant-a")).await.unwrap());
    drop(tx);
    assert!(by_id(&storage.db, id).await.unwrap().is_none());
    assert!(insert_one(&storage, new(id, user, "tenant-a")).await.unwrap());

    let mut tx = storage.db.begin().await.unwrap();
    assert!(advance(&mut tx, &storage.clock, id, Event::Suspend).await.unwrap());
    set_uids(&mut tx, id, &made("uid")).await.unwrap();
    drop(tx);
    let row = found(&storage, id).await;
    assert_eq!((row.status(), row.k8s_sa_uid), (Status::Provisioning, None));
}

async fn every_event_moves_from_its_states_only(on: On) {
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
            let row = found(&storage, id).await;
            assert_eq!(row.status(), if moved { to } else { status }, "{event:?}");
            assert_eq!(row.status_changed_at, made_at + i64::from(moved), "{event:?}");
            let other = found(&storage, other).await;
            assert_eq!((other.status(), other.status_changed_at), (status, made_at), "{event:?}");
        }
    }
    assert!(storage.clock.now_ms() > made_at);
    assert!(!advance_one(&storage, storage.clock.random_id(), Event::Suspend).await, "no such row");
}

async fn of_many_at_once_one_moves_a_workspace(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let id = storage.workspace(user, Status::Provisioned).await;
    let processes = [storage.db.clone(), storage.place.connect().await];
    for event in [Event::Suspend, Event::RightsGone, Event::Resume, Event::ObjectsExist] {
        let moved = at_once((0..16).map(|n| {
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
        assert_eq!(found(&storage, id).await.status(), transition(event).1);
    }
}

async fn workspaces_of_a_person_are_oldest_first(on: On) {
    let storage = Storage::new(on).await;
    let (ada, ben) = (storage.user().await, storage.user().await);
    let mut of_ada = vec![storage.workspace(ada, Status::Failed).await];
    storage.clock.advance(1);
    let of_ben = storage.workspace(ben, Status::Suspended).await;
    // Of the same millisecond: the order is still one and the same.
    let mut twins = [
        storage.workspace(ada, Status::Resuming).await,
        storage.workspace(ada, Status::Failed).await,
    ];
    twins.sort();
    of_ada.extend(twins);
    assert_eq!(ids(&of_user(&storage.db, ada).await.unwrap()), of_ada);
    assert_eq!(ids(&of_user(&storage.db, ben).await.unwrap()), [of_ben]);
    let nobody = storage.clock.random_id();
    assert!(of_user(&storage.db, nobody).await.unwrap().is_empty());
}

async fn the_service_account_is_kept(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let id = storage.workspace(user, Status::Provisioning).await;
    let other = storage.workspace(user, Status::Provisioning).await;
    for uid in ["first", "made anew"] {
        let mut tx = storage.db.begin().await.unwrap();
        set_uids(&mut tx, id, &made(uid)).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(found(&storage, id).await.k8s_sa_uid.as_deref(), Some(uid));
        assert_eq!(found(&storage, other).await.k8s_sa_uid, None);
    }
}

async fn an_unknown_status_counts_as_failed(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let id = storage.workspace(user, Status::Provisioned).await;
    // As a later version might have left it, or a hand.
    for status in ["archived", "Provisioned", "provisioned ", ""] {
        let mut tx = storage.db.begin().await.unwrap();
        on_engine!(tx.connection(), c => sqlx::query("UPDATE workspaces SET status = $1")
            .bind(status).execute(c).await.map(drop))
        .unwrap();
        tx.commit().await.unwrap();
        let row = found(&storage, id).await;
        assert_eq!(
            (row.status(), row.wire().status),
            (Status::Failed, Status::Failed),
            "{status:?}"
        );
        assert!(!advance_one(&storage, id, Event::ObjectsExist).await, "{status:?}");
        assert!(!advance_one(&storage, id, Event::Retry).await, "{status:?}");
    }
}

/// Runs a change in a transaction of its own.
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
    assert!(!other, "only the one that tokens are asked of");
    assert!(change!(storage, tx => retire_service_account(&mut tx, clock, id, SA_UID)));
    let row = found(&storage, id).await;
    assert!(row.is_rotating() && row.k8s_sa_uid.is_none() && !row.issues_with(SA_UID));
    assert_eq!(row.status(), Status::Provisioned, "it is no state that clients would see");
    assert!(!change!(storage, tx => retire_service_account(&mut tx, clock, id, SA_UID)));

    let now = clock.now_ms();
    let later = now + work::GRACE_MS;
    assert!(work::due(&storage.db, now, 10).await.unwrap().is_empty(), "it is under way");
    assert_eq!(ids(&work::due(&storage.db, later, 10).await.unwrap()), [id]);

    assert!(change!(storage, tx => replace_service_account(&mut tx, id, SA_UID, "sa-2")));
    let late = change!(storage, tx => replace_service_account(&mut tx, id, SA_UID, "sa-3"));
    assert!(!late, "another replica was faster");
    let row = found(&storage, id).await;
    assert!(!row.is_rotating() && row.issues_with("sa-2"));
    assert!(work::due(&storage.db, later, 10).await.unwrap().is_empty());
}

async fn a_suspension_ends_a_rotation(on: On) {
    let storage = Storage::new(on).await;
    let (clock, user) = (&storage.clock, storage.user().await);
    let id = storage.workspace(user, Status::Provisioned).await;
    assert!(change!(storage, tx => retire_service_account(&mut tx, clock, id, SA_UID)));
    assert!(advance_one(&storage, id, Event::Suspend).await);
    assert!(!found(&storage, id).await.is_rotating());
    assert!(!change!(storage, tx => replace_service_account(&mut tx, id, SA_UID, "sa-2")));
    // The way back makes a ServiceAccount of its own, and nothing is left to be replaced.
    for event in [Event::RightsGone, Event::Resume, Event::ObjectsExist] {
        assert!(advance_one(&storage, id, event).await);
    }
    change!(storage, tx => set_uids(&mut tx, id, &made("sa-3")));
    let row = found(&storage, id).await;
    assert!(!row.is_rotating() && row.issues_with("sa-3"));
}

fn made(service_account: &str) -> MadeUids {
    MadeUids { namespace: "ns".to_owned(), service_account: service_account.to_owned() }
}
