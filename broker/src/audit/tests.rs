//! Tests of the audit trail on both engines: stored fields, visibility and order.

use std::collections::BTreeSet;

use tenant_shared::WorkspaceStatus;

use super::*;
use crate::testing::{On, Storage, on_both_engines, run_concurrently};

on_both_engines!(
    a_row_stores_every_known_field,
    an_uncommitted_event_is_not_recorded,
    a_user_sees_their_actions_and_the_events_of_their_workspace,
    filters_narrow_and_are_exact,
    pages_show_every_row_once_newest_first,
    new_rows_between_two_pages_do_not_shift_the_pages,
    a_client_that_disconnects_leaves_a_bounded_number_of_refusals_to_record,
);

async fn append(storage: &Storage, event: Event) -> Uuid {
    let stamped = event.with_request_context(&storage.clock);
    let mut tx = storage.db.begin().await.unwrap();
    record_stamped(&mut tx, &stamped).await.unwrap();
    tx.commit().await.unwrap();
    stamped.id
}

async fn read(storage: &Storage, scope: Scope, filter: &Filter, limit: u32) -> Vec<TrailRow> {
    AuditTrail::new(storage.db.clone()).read(scope, filter, limit).await.unwrap()
}

async fn seen(storage: &Storage, filter: &Filter) -> Vec<Uuid> {
    read(storage, Scope::for_administrator(), filter, 1000).await.iter().map(|row| row.id).collect()
}

async fn seen_by(storage: &Storage, user: Uuid, filter: &Filter) -> Vec<Uuid> {
    read(storage, Scope::about_user(user), filter, 1000).await.iter().map(|row| row.id).collect()
}

fn reversed(ids: &[Uuid]) -> Vec<Uuid> {
    ids.iter().rev().copied().collect()
}

async fn a_row_stores_every_known_field(on: On) {
    let storage = Storage::new(on).await;
    let id = || storage.clock.random_id();
    let (user, workspace, session) = (id(), id(), id());
    let full = StampedEvent {
        id: storage.clock.ordered_id(),
        created_at: storage.clock.now_ms(),
        ip_address: Some("2001:db8::1".to_owned()),
        request_id: Some("request".to_owned()),
        event: Event {
            user_id: Some(user),
            workspace_id: Some(workspace),
            session_id: Some(session),
            credential_id: Some("jti".to_owned()),
            ..Event::refused(Action::IssueCredential, "a 'reason' -- with \"quotes\" and ü")
        },
    };
    let mut tx = storage.db.begin().await.unwrap();
    record_stamped(&mut tx, &full).await.unwrap();
    tx.commit().await.unwrap();
    record_in_own_tx(&storage.db, &storage.clock, Event::success(Action::SignIn)).await.unwrap();

    let mut rows = read(&storage, Scope::for_administrator(), &Filter::default(), 9).await;
    let row = rows.pop().unwrap();
    assert_eq!(row.id, full.id);
    assert_eq!((row.user_id, row.workspace_id), (Some(user), Some(workspace)));
    assert_eq!((row.action.as_str(), row.outcome.as_str()), ("IssueCredential", "refused"));
    assert_eq!(row.created_at, storage.clock.now_ms());
    assert_eq!(row.ip_address.as_deref(), Some("2001:db8::1"));
    assert_eq!((row.session_id, row.credential_id.as_deref()), (Some(session), Some("jti")));
    assert_eq!(row.request_id.as_deref(), Some("request"));
    assert_eq!(row.reason.as_deref(), Some("a 'reason' -- with \"quotes\" and ü"));

    let bare = rows.pop().unwrap();
    assert_eq!((bare.action.as_str(), bare.outcome.as_str()), ("SignIn", "success"));
    assert_eq!((bare.user_id, bare.workspace_id, bare.session_id), (None, None, None));
    assert_eq!((bare.ip_address, bare.credential_id), (None, None));
    assert_eq!((bare.request_id, bare.reason), (None, None));
    assert!(rows.is_empty());

    // A row is never overwritten.
    let mut tx = storage.db.begin().await.unwrap();
    let error = record_stamped(&mut tx, &full).await.unwrap_err();
    assert!(error.as_database_error().unwrap().is_unique_violation(), "{error}");
}

async fn an_uncommitted_event_is_not_recorded(on: On) {
    let storage = Storage::new(on).await;
    let mut tx = storage.db.begin().await.unwrap();
    record(&mut tx, &storage.clock, Event::success(Action::SignIn)).await.unwrap();
    assert!(seen(&storage, &Filter::default()).await.is_empty(), "not visible before the commit");
    drop(tx);
    assert!(seen(&storage, &Filter::default()).await.is_empty());
}

async fn a_user_sees_their_actions_and_the_events_of_their_workspace(on: On) {
    let storage = Storage::new(on).await;
    let (ada, ben, admin) = (storage.user().await, storage.user().await, storage.user().await);
    let of_ada = storage.workspace(ada, WorkspaceStatus::Provisioned).await;
    let of_ben = storage.workspace(ben, WorkspaceStatus::Provisioned).await;
    let event = |user_id, workspace_id| Event {
        user_id,
        workspace_id,
        ..Event::success(Action::SuspendWorkspace)
    };
    let hers = append(&storage, event(Some(ada), None)).await;
    let by_admin_to_hers = append(&storage, event(Some(admin), Some(of_ada))).await;
    let by_sweep_to_hers = append(&storage, event(None, Some(of_ada))).await;
    let by_her_to_his = append(&storage, event(Some(ada), Some(of_ben))).await;
    let his = append(&storage, event(Some(ben), Some(of_ben))).await;
    let nobodys = append(&storage, event(None, None)).await;
    let everything = [hers, by_admin_to_hers, by_sweep_to_hers, by_her_to_his, his, nobodys];

    let as_user = async |user| seen_by(&storage, user, &Filter::default()).await;
    assert_eq!(as_user(ada).await, reversed(&everything[..4]));
    assert_eq!(as_user(ben).await, [his, by_her_to_his]);
    assert_eq!(as_user(admin).await, [by_admin_to_hers]);
    assert!(as_user(storage.clock.random_id()).await.is_empty());
    assert!(as_user(Uuid::nil()).await.is_empty(), "rows without a user belong to nobody");
    assert_eq!(seen(&storage, &Filter::default()).await, reversed(&everything));
    // Filters narrow what a user sees and never widen it.
    let foreign = Filter { workspace_id: Some(of_ada), ..Filter::default() };
    assert!(seen_by(&storage, ben, &foreign).await.is_empty());
}

async fn filters_narrow_and_are_exact(on: On) {
    let storage = Storage::new(on).await;
    let (here, there) = (storage.clock.random_id(), storage.clock.random_id());
    let event =
        |action, workspace| Event { workspace_id: Some(workspace), ..Event::success(action) };
    let init = append(&storage, event(Action::InitWorkspace, here)).await;
    let suspend = append(&storage, event(Action::SuspendWorkspace, here)).await;
    let elsewhere = append(&storage, event(Action::SuspendWorkspace, there)).await;
    let last = append(&storage, event(Action::WorkspaceSuspended, here)).await;

    let by_action = async |action: &str| {
        seen(&storage, &Filter { action: Some(action.to_owned()), ..Filter::default() }).await
    };
    assert_eq!(by_action("SuspendWorkspace").await, [elsewhere, suspend]);
    for no_action in ["suspendworkspace", "Suspend%", "SuspendWorkspace'", "Unknown"] {
        assert!(by_action(no_action).await.is_empty(), "{no_action}");
    }
    let filter = Filter { workspace_id: Some(here), ..Filter::default() };
    assert_eq!(seen(&storage, &filter).await, [last, suspend, init]);
    let filter = Filter { action: Some("SuspendWorkspace".to_owned()), ..filter };
    assert_eq!(seen(&storage, &filter).await, [suspend]);
    let filter = Filter { before: Some(suspend), ..filter };
    assert!(seen(&storage, &filter).await.is_empty(), "a cursor is not in its page");
    let filter = Filter { before: Some(elsewhere), ..Filter::default() };
    assert_eq!(seen(&storage, &filter).await, [suspend, init]);
    assert!(read(&storage, Scope::for_administrator(), &Filter::default(), 0).await.is_empty());
}

/// Reads page after page and runs `between` after each of them.
async fn paged(storage: &Storage, limit: u32, mut between: impl AsyncFnMut()) -> Vec<Uuid> {
    let (mut ids, mut filter) = (Vec::new(), Filter::default());
    loop {
        let page = read(storage, Scope::for_administrator(), &filter, limit).await;
        assert!(page.len() <= limit as usize);
        let Some(last) = page.last() else { return ids };
        filter.before = Some(last.id);
        ids.extend(page.iter().map(|row| row.id));
        between().await;
    }
}

async fn pages_show_every_row_once_newest_first(on: On) {
    let storage = Storage::new(on).await;
    // Concurrent writers, as in production.
    let written = run_concurrently((0..40).map(|_| {
        let (db, clock) = (storage.db.clone(), storage.clock.clone());
        async move {
            let stamped = Event::success(Action::SignIn).with_request_context(&clock);
            let mut tx = db.begin().await.unwrap();
            record_stamped(&mut tx, &stamped).await.unwrap();
            tx.commit().await.unwrap();
            stamped.id
        }
    }))
    .await;
    // Ids contain their time, so newest first is greatest first.
    let newest_first =
        reversed(&written.into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>());
    assert_eq!(newest_first.len(), 40);
    for limit in [1, 7, 40, 41] {
        assert_eq!(paged(&storage, limit, async || {}).await, newest_first, "{limit} rows a page");
    }
}

async fn new_rows_between_two_pages_do_not_shift_the_pages(on: On) {
    let storage = Storage::new(on).await;
    let mut written = Vec::new();
    for _ in 0..12 {
        written.push(append(&storage, Event::success(Action::SignIn)).await);
    }
    let seen = paged(&storage, 5, async || {
        append(&storage, Event::success(Action::SignOut)).await;
    })
    .await;
    assert_eq!(seen, reversed(&written));
}

async fn a_client_that_disconnects_leaves_a_bounded_number_of_refusals_to_record(on: On) {
    let permits: &Semaphore = Box::leak(Box::new(Semaphore::new(0)));
    let storage = Storage::new(on).await;
    let record = || {
        let event = Event::success(Action::SignOut);
        record_refusal_with(permits, (&storage.db, &storage.clock), event, &"no")
    };
    let rows = "SELECT COUNT(*) FROM audit_logs WHERE outcome = 'refused'";
    let moment = std::time::Duration::from_millis(20);
    let disconnected = tokio::time::timeout(moment, record()).await;
    assert!(disconnected.is_err(), "as many as may be are being recorded");
    permits.add_permits(1);
    record().await.unwrap();
    assert_eq!(storage.number(rows).await, 1, "that of the client that stayed");
    // The permit returns with the end of the transaction.
    let begun = tokio::time::timeout(std::time::Duration::ZERO, record()).await;
    let (written, permit) = (begun.is_ok(), permits.acquire().await.unwrap());
    assert_eq!(storage.number(rows).await, 2, "written before the answer: {written}");
    permit.forget();
}
