//! The work queue of the sweep on both engines, with several processes.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{
    super::{
        ObjectUids, advance, by_id, drift, replace_lost_service_account, retire_service_account,
        set_uids,
    },
    *,
};
use crate::{
    identity,
    testing::{On, SA_UID, Storage, on_both_engines, run_concurrently},
    workspace::state::Event,
};

on_both_engines!(
    revocations_come_first_and_then_the_longest_waiting,
    repeated_failures_do_not_starve_other_workspaces,
    of_concurrent_sweeps_one_claims_a_workspace,
    a_claim_expires,
    a_workspace_that_changed_state_is_not_postponed,
    a_new_state_resets_the_attempts,
    all_states_are_counted,
    a_drift_is_added_once_and_removed_once,
    a_suspended_owner_is_not_active,
    a_new_service_account_replaces_only_the_recorded_one,
);

async fn ids(storage: &Storage) -> Vec<Uuid> {
    let due = due(&storage.db, storage.clock.now_ms(), 99).await.unwrap();
    due.iter().map(|workspace| workspace.id).collect()
}

async fn load(storage: &Storage, id: Uuid) -> WorkspaceRow {
    by_id(&storage.db, id).await.unwrap().unwrap()
}

async fn advance_state(storage: &Storage, id: Uuid, event: Event) {
    let mut tx = storage.db.begin().await.unwrap();
    assert!(advance(&mut tx, &storage.clock, id, event).await.unwrap());
    tx.commit().await.unwrap();
}

/// One attempt that fails.
async fn fail(storage: &Storage, id: Uuid) {
    let now = storage.clock.now_ms();
    let claimed = claim(&storage.db, load(storage, id).await, now + 1000).await.unwrap().unwrap();
    let at = now + backoff_ms(claimed.status(), claimed.sweep_attempts);
    postpone(&storage.db, &claimed, at, "finish").await.unwrap();
}

async fn revocations_come_first_and_then_the_longest_waiting(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let mut unfinished = Vec::new();
    for (status, event) in [
        (Status::Failed, Event::Retry),
        (Status::Suspended, Event::Resume),
        (Status::Provisioned, Event::Suspend),
    ] {
        let id = storage.workspace(user, status).await;
        advance_state(&storage, id, event).await;
        unfinished.push(id);
        storage.clock.advance(10);
    }
    let rotation = storage.workspace(user, Status::Provisioned).await;
    let mut tx = storage.db.begin().await.unwrap();
    assert!(retire_service_account(&mut tx, &storage.clock, rotation, SA_UID).await.unwrap());
    tx.commit().await.unwrap();
    for status in [Status::Provisioned, Status::Suspended, Status::Failed] {
        storage.workspace(user, status).await;
    }
    // The clock is 30 ms past the first.
    storage.clock.advance(GRACE_MS - 31);
    assert!(ids(&storage).await.is_empty(), "a request may be in flight");
    storage.clock.advance(1);
    assert_eq!(ids(&storage).await, unfinished[..1]);
    storage.clock.advance(30);
    let [first, second, suspension] = unfinished[..] else { unreachable!("three were made") };
    let expected = [suspension, rotation, first, second];
    assert_eq!(ids(&storage).await, expected);
    for most in [1, 2, 3] {
        let rows = due(&storage.db, storage.clock.now_ms(), most).await.unwrap();
        let taken: Vec<Uuid> = rows.iter().map(|workspace| workspace.id).collect();
        let most = usize::try_from(most).unwrap();
        assert_eq!(taken, expected[..most], "a round that takes fewer than are due");
    }
}

async fn repeated_failures_do_not_starve_other_workspaces(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let mut failing = BTreeSet::new();
    for _ in 0..6 {
        failing.insert(storage.workspace(user, Status::Provisioning).await);
    }
    storage.clock.advance(1);
    // More recent than all of them.
    let young = storage.workspace(user, Status::Suspended).await;
    advance_state(&storage, young, Event::Resume).await;
    storage.clock.advance(GRACE_MS);
    // Rounds of two workspaces each; the older workspaces fill three rounds.
    let mut tried = Vec::new();
    for _ in 0..5 {
        for workspace in due(&storage.db, storage.clock.now_ms(), 2).await.unwrap() {
            tried.push(workspace.id);
            fail(&storage, workspace.id).await;
        }
        storage.clock.advance(INITIAL_BACKOFF_MS);
    }
    assert!(tried.contains(&young), "{tried:?}");
    assert!(failing.is_subset(&tried.iter().copied().collect()), "each of them is retried");
    let row = load(&storage, young).await;
    assert_eq!((row.sweep_attempts, row.open_step.as_deref()), (1, Some("finish")));
}

async fn of_concurrent_sweeps_one_claims_a_workspace(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let mut all = BTreeSet::new();
    for _ in 0..5 {
        all.insert(storage.workspace(user, Status::Suspending).await);
    }
    let processes = [storage.db.clone(), storage.database.connect().await];
    let claimed = run_concurrently((0..8).map(|n| {
        let (db, now) = (processes[n % 2].clone(), storage.clock.now_ms());
        async move {
            let mut claimed = Vec::new();
            for workspace in due(&db, now, 99).await.unwrap() {
                claimed.extend(
                    claim(&db, workspace, now + 1000).await.unwrap().map(|workspace| workspace.id),
                );
            }
            claimed
        }
    }))
    .await
    .concat();
    assert_eq!(claimed.len(), all.len(), "each once");
    assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>(), all);
}

async fn a_claim_expires(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let id = storage.workspace(user, Status::Resuming).await;
    let now = storage.clock.now_ms();
    let dead = claim(&storage.db, load(&storage, id).await, now + 1000).await.unwrap().unwrap();
    storage.clock.advance(999);
    assert!(ids(&storage).await.is_empty());
    storage.clock.advance(1);
    let now = storage.clock.now_ms();
    let next = claim(&storage.db, load(&storage, id).await, now + 1000).await.unwrap().unwrap();
    assert_eq!((dead.sweep_attempts, next.sweep_attempts), (1, 2));
    // A replica whose claim expired cannot return the workspace to the queue.
    postpone(&storage.db, &dead, 0, "finish").await.unwrap();
    let row = load(&storage, id).await;
    assert_eq!((row.sweep_at, row.open_step), (now + 1000, None));
}

async fn a_workspace_that_changed_state_is_not_postponed(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let id = storage.workspace(user, Status::Provisioning).await;
    let now = storage.clock.now_ms();
    let claimed = claim(&storage.db, load(&storage, id).await, now + 1000).await.unwrap().unwrap();
    advance_state(&storage, id, Event::Suspend).await;
    postpone(&storage.db, &claimed, i64::MAX, "create_objects").await.unwrap();
    let row = load(&storage, id).await;
    assert_eq!((row.sweep_at, row.open_step.as_deref()), (now + GRACE_MS, None));
    let stale = claim(&storage.db, claimed, now).await.unwrap();
    assert!(stale.is_none(), "a stale row cannot be claimed");
    let mut tx = storage.db.begin().await.unwrap();
    set_open_steps(&mut tx, &row, "delete_role_bindings,finish").await.unwrap();
    tx.commit().await.unwrap();
    let unfinished = load(&storage, id).await.to_api().unfinished.unwrap();
    assert_eq!(unfinished.open_steps, ["delete_role_bindings", "finish"]);
}

async fn a_new_state_resets_the_attempts(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let id = storage.workspace(user, Status::Suspending).await;
    fail(&storage, id).await;
    assert_eq!(load(&storage, id).await.to_api().unfinished.unwrap().attempts, 1);
    advance_state(&storage, id, Event::RightsGone).await;
    assert_eq!(load(&storage, id).await.to_api().unfinished, None);
    advance_state(&storage, id, Event::Resume).await;
    let row = load(&storage, id).await;
    assert_eq!((row.sweep_attempts, row.open_step), (0, None));
}

async fn all_states_are_counted(on: On) {
    let storage = Storage::new(on).await;
    assert!(count_by_status(&storage.db).await.unwrap().is_empty());
    let user = storage.user().await;
    let first = storage.clock.now_ms();
    for _ in 0..3 {
        storage.workspace(user, Status::Suspending).await;
        storage.clock.advance(5);
    }
    storage.workspace(user, Status::Failed).await;
    let mut rows = count_by_status(&storage.db).await.unwrap();
    rows.sort();
    assert_eq!(rows, [("failed".to_owned(), 1, first + 15), ("suspending".to_owned(), 3, first)]);
}

async fn a_drift_is_added_once_and_removed_once(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let id = storage.workspace(user, Status::Provisioned).await;
    let key = ("ResourceQuota", "spec");
    let processes = [storage.db.clone(), storage.database.connect().await];
    let mut seen = Vec::new();
    for adds in [true, false] {
        let changed = run_concurrently((0..8).map(|n| {
            let db = processes[n % 2].clone();
            async move {
                let mut tx = db.begin().await.unwrap();
                let changed = if adds {
                    drift::add(&mut tx, id, key, 5).await.unwrap()
                } else {
                    drift::remove(&mut tx, id, key).await.unwrap()
                };
                tx.commit().await.unwrap();
                changed
            }
        }))
        .await;
        assert_eq!(changed.into_iter().filter(|it| *it).count(), 1);
        seen.push((
            drift::for_workspace(&storage.db, id).await.unwrap(),
            drift::counts(&storage.db).await.unwrap(),
        ));
    }
    let (rows, counts) = &seen[0];
    assert_eq!((rows.len(), rows[0].to_api().what.as_str()), (1, "spec"));
    assert_eq!(drift::all(&storage.db, 9).await.unwrap().len(), 0);
    assert_eq!(counts, &[("ResourceQuota".to_owned(), "spec".to_owned(), 1)]);
    assert_eq!(seen[1], (Vec::new(), Vec::new()));
}

async fn a_suspended_owner_is_not_active(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let mut tx = storage.db.begin().await.unwrap();
    assert!(identity::lock_if_active(&mut tx, user).await.unwrap());
    let suspend = "UPDATE users SET status = 'suspended'";
    on_engine!(tx.connection(), c => sqlx::query(suspend).execute(c).await.map(drop)).unwrap();
    assert!(!identity::lock_if_active(&mut tx, user).await.unwrap());
    assert!(!identity::lock_if_active(&mut tx, storage.clock.random_id()).await.unwrap());
}

async fn a_new_service_account_replaces_only_the_recorded_one(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let id = storage.workspace(user, Status::Provisioned).await;
    let mut tx = storage.db.begin().await.unwrap();
    set_uids(
        &mut tx,
        id,
        &ObjectUids { namespace: "ns".to_owned(), service_account: "first".to_owned() },
    )
    .await
    .unwrap();
    assert!(!replace_lost_service_account(&mut tx, id, "other", "second").await.unwrap());
    assert!(replace_lost_service_account(&mut tx, id, "first", "second").await.unwrap());
    assert!(advance(&mut tx, &storage.clock, id, Event::Suspend).await.unwrap());
    assert!(!replace_lost_service_account(&mut tx, id, "second", "third").await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(load(&storage, id).await.k8s_sa_uid.as_deref(), Some("second"));
}

#[test]
fn the_backoff_grows_up_to_a_maximum() {
    let of = |attempts| backoff_ms(Status::Provisioning, attempts);
    assert_eq!([of(1), of(2), of(3)], [2_000, 4_000, 8_000]);
    assert_eq!([of(0), of(-1), of(i64::MIN)], [2_000; 3]);
    assert_eq!([of(9), of(64), of(i64::MAX)], [MAX_BACKOFF_MS; 3]);
    assert_eq!(backoff_ms(Status::Suspending, i64::MAX), MAX_SUSPENSION_BACKOFF_MS);
}
