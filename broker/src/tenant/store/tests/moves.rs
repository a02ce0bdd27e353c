//! Moves of namespaces between tenants.

use super::{super::moves::MAX_ANNOUNCED, *};
use crate::audit::{Action, Event};

on_both_engines!(
    a_move_is_announced_received_cleared_and_finished,
    only_the_namespace_of_the_named_tenant_is_moved,
    a_tenant_that_is_not_active_neither_gives_nor_gets_a_namespace,
    the_namespace_of_a_closed_tenant_is_adopted,
    a_tenant_without_room_gets_no_namespace,
    only_an_active_administrator_announces_a_move,
    announcements_do_not_hide_moves_that_have_begun,
    an_announcement_ends,
    a_move_that_has_begun_is_not_replaced,
    of_two_replicas_one_receives_a_namespace,
);

const NAMESPACE: &str = "solar-a";
const ADMINISTRATOR: &str = "\
INSERT INTO users (id, email, status, role, created_at) VALUES ($1, 'a', 'active', 'admin', 0)";
const ROWS: &str = "SELECT COUNT(*) FROM audit_logs WHERE action = 'MoveNamespace'";
const MOVED: &str = "SELECT COUNT(*) FROM audit_logs WHERE action = 'NamespaceMoved'";

fn announcement(storage: &Storage, from: Option<Uuid>, to: Uuid) -> Announcement {
    Announcement {
        namespace: NAMESPACE.to_owned(),
        namespace_uid: "n-1".to_owned(),
        from_tenant: from,
        to_tenant: to,
        requested_by: Uuid::nil(),
        expires_at: storage.clock.now_ms() + 1_000,
        events: vec![Event::success(Action::MoveNamespace); 2],
    }
}

fn moved() -> Vec<Event> {
    vec![Event::success(Action::NamespaceMoved)]
}

/// Two tenants, the first of which has the namespace.
async fn two_tenants(tenants: &Tenants, storage: &Storage) -> (TenantRow, TenantRow) {
    let (solar, lunar) = (open(tenants, "solar").await, open(tenants, "lunar").await);
    assert_eq!(claim(tenants, solar.id, NAMESPACE, 5).await, Claim::Created);
    storage.clock.advance(5);
    let mut tx = storage.db.begin().await.unwrap();
    on_engine!(tx.connection(), c => sqlx::query(ADMINISTRATOR)
        .bind(Uuid::nil()).execute(c).await.map(drop))
    .unwrap();
    tx.commit().await.unwrap();
    tenants.record_namespace_seen(solar.id, NAMESPACE).await.unwrap();
    (solar, lunar)
}

async fn announced(tenants: &Tenants, announcement: Announcement) -> NamespaceMove {
    assert_eq!(tenants.announce_move(announcement).await.unwrap(), Ok(()));
    tenants.move_of(NAMESPACE).await.unwrap().unwrap()
}

async fn a_move_is_announced_received_cleared_and_finished(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = two_tenants(&tenants, &storage).await;
    let begun = announced(&tenants, announcement(&storage, Some(solar.id), lunar.id)).await;
    assert_eq!(begun.state, MoveState::Announced);
    assert_eq!(storage.number(ROWS).await, 2);
    assert_eq!(statuses(&tenants, lunar.id).await, [], "an announcement moves nothing");
    let changed = tenants.moves_changed_since(0).await.unwrap();
    let expected = (NAMESPACE.to_owned(), vec![solar.id, lunar.id], storage.clock.now_ms());
    assert_eq!(changed, [expected]);

    storage.clock.advance(5);
    assert_eq!(tenants.receive_namespace(&begun, None, moved()).await.unwrap(), Ok(()));
    assert_eq!(statuses(&tenants, solar.id).await, []);
    let creating = (NAMESPACE.to_owned(), NamespaceStatus::Creating);
    assert_eq!(statuses(&tenants, lunar.id).await, [creating], "it is counted");
    let received = tenants.moves_into(lunar.id).await.unwrap();
    assert_eq!(received, [NamespaceMove { state: MoveState::Received, ..begun.clone() }]);
    let again = tenants.receive_namespace(&begun, None, moved()).await.unwrap();
    assert_eq!(again, Err(MoveRefusal::OtherHolder));
    assert_eq!(storage.number(MOVED).await, 1);

    assert!(matches!(claim(&tenants, lunar.id, NAMESPACE, 5).await, Claim::Exists(_)));
    for _ in 0..2 {
        let event = Some(Event::success(Action::NamespaceMoved));
        tenants.record_cleared(&begun, event).await.unwrap();
    }
    assert_eq!(storage.number(MOVED).await, 2, "it is recorded once");
    let cleared = tenants.move_of(NAMESPACE).await.unwrap().unwrap();
    assert_eq!(cleared.state, MoveState::Cleared);
    tenants.finish_move(&cleared).await.unwrap();
    assert_eq!(tenants.move_of(NAMESPACE).await.unwrap(), None);
}

async fn only_the_namespace_of_the_named_tenant_is_moved(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = two_tenants(&tenants, &storage).await;
    let mars = open(&tenants, "mars").await;
    for (from, to) in [(None, lunar.id), (Some(mars.id), lunar.id), (Some(solar.id), solar.id)] {
        let refused = tenants.announce_move(announcement(&storage, from, to)).await.unwrap();
        assert_eq!(refused, Err(MoveRefusal::OtherHolder), "{from:?} {to}");
    }
    assert_eq!(storage.number(ROWS).await, 0);
    // It is deleted after the announcement.
    let begun = announced(&tenants, announcement(&storage, Some(solar.id), lunar.id)).await;
    let (creating, gone) = ([NamespaceStatus::Creating], NamespaceStatus::Gone);
    let set = tenants.set_namespace_status(mars.id, NAMESPACE, &creating, gone).await.unwrap();
    assert!(!set, "only its tenant changes the row");
    assert!(tenants.set_namespace_status(solar.id, NAMESPACE, &creating, gone).await.unwrap());
    let refused = tenants.receive_namespace(&begun, None, moved()).await.unwrap();
    assert_eq!(refused, Err(MoveRefusal::OtherHolder));
    assert_eq!(storage.number(MOVED).await, 0);
}

async fn a_tenant_that_is_not_active_neither_gives_nor_gets_a_namespace(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = two_tenants(&tenants, &storage).await;
    let begun = announced(&tenants, announcement(&storage, Some(solar.id), lunar.id)).await;
    for row in [&solar, &lunar] {
        let suspended = tenants.advance(row, TenantStatus::Suspended).await.unwrap().unwrap();
        let refusal = Err(MoveRefusal::NotActive(row.id));
        let again = announcement(&storage, Some(solar.id), lunar.id);
        assert_eq!(tenants.announce_move(again).await.unwrap(), refusal);
        assert_eq!(tenants.receive_namespace(&begun, None, moved()).await.unwrap(), refusal);
        tenants.advance(&suspended, TenantStatus::Active).await.unwrap().unwrap();
    }
    assert_eq!(tenants.receive_namespace(&begun, None, moved()).await.unwrap(), Ok(()));
}

async fn the_namespace_of_a_closed_tenant_is_adopted(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = two_tenants(&tenants, &storage).await;
    tenants.close(solar.id).await.unwrap();
    let again = open_again(&tenants).await;
    for to in [lunar.id, again.id] {
        let begun = announced(&tenants, announcement(&storage, Some(solar.id), to)).await;
        assert_eq!(begun.to_tenant, to, "a later announcement replaces an earlier one");
    }
    let begun = tenants.move_of(NAMESPACE).await.unwrap().unwrap();
    assert_eq!(tenants.receive_namespace(&begun, None, moved()).await.unwrap(), Ok(()));
    assert_eq!(statuses(&tenants, again.id).await.len(), 1);
}

async fn open_again(tenants: &Tenants) -> TenantRow {
    match tenants.observe(&name("solar"), BROKER_GROUP, "uid-2").await.unwrap() {
        Observed::Current(row) => row,
        other => panic!("{other:?}"),
    }
}

async fn a_tenant_without_room_gets_no_namespace(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = two_tenants(&tenants, &storage).await;
    let begun = announced(&tenants, announcement(&storage, Some(solar.id), lunar.id)).await;
    assert_eq!(claim(&tenants, lunar.id, "lunar-a", 1).await, Claim::Created);
    let before = statuses(&tenants, solar.id).await;
    let refused = tenants.receive_namespace(&begun, Some(1), moved()).await.unwrap();
    assert_eq!(refused, Err(MoveRefusal::QuotaExceeded { used: 1, quota: 1 }));
    assert_eq!(statuses(&tenants, solar.id).await, before);
    assert_eq!(tenants.move_of(NAMESPACE).await.unwrap(), Some(begun.clone()));
    assert_eq!(storage.number(MOVED).await, 0);
    assert_eq!(tenants.receive_namespace(&begun, Some(2), moved()).await.unwrap(), Ok(()));
    let full = Claim::QuotaExceeded { used: 2, quota: 2 };
    assert_eq!(claim(&tenants, lunar.id, "lunar-b", 2).await, full);
}

async fn only_an_active_administrator_announces_a_move(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = two_tenants(&tenants, &storage).await;
    let user = storage.user().await;
    let by_user =
        Announcement { requested_by: user, ..announcement(&storage, Some(solar.id), lunar.id) };
    let refused = tenants.announce_move(by_user).await.unwrap();
    assert_eq!(refused, Err(MoveRefusal::NotAdministrator));
    execute(&storage, "UPDATE users SET status = 'suspended'").await;
    let announcement = announcement(&storage, Some(solar.id), lunar.id);
    let refused = tenants.announce_move(announcement).await.unwrap();
    assert_eq!(refused, Err(MoveRefusal::NotAdministrator));
    assert_eq!(tenants.move_of(NAMESPACE).await.unwrap(), None);
    assert_eq!(storage.number(ROWS).await, 0);
}

async fn announcements_do_not_hide_moves_that_have_begun(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = two_tenants(&tenants, &storage).await;
    let begun = announced(&tenants, announcement(&storage, Some(solar.id), lunar.id)).await;
    assert_eq!(tenants.receive_namespace(&begun, None, moved()).await.unwrap(), Ok(()));
    for n in 0..=MAX_ANNOUNCED {
        let namespace = format!("a-{n}");
        let other = Announcement { namespace, ..announcement(&storage, None, lunar.id) };
        let other = Announcement { events: Vec::new(), ..other };
        assert_eq!(tenants.announce_move(other).await.unwrap(), Ok(()));
    }
    let moves = tenants.moves_into(lunar.id).await.unwrap();
    assert_eq!(moves.len(), usize::try_from(MAX_ANNOUNCED).unwrap() + 1);
    assert!(moves.iter().any(|it| it.namespace == NAMESPACE));
}

async fn an_announcement_ends(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = two_tenants(&tenants, &storage).await;
    let begun = announced(&tenants, announcement(&storage, Some(solar.id), lunar.id)).await;
    storage.clock.advance(999);
    tenants.purge_moves().await.unwrap();
    assert!(tenants.move_of(NAMESPACE).await.unwrap().is_some());
    storage.clock.advance(1);
    let refused = tenants.receive_namespace(&begun, None, moved()).await.unwrap();
    assert_eq!(refused, Err(MoveRefusal::OtherMove));
    tenants.purge_moves().await.unwrap();
    assert_eq!(tenants.move_of(NAMESPACE).await.unwrap(), None);
}

async fn a_move_that_has_begun_is_not_replaced(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = two_tenants(&tenants, &storage).await;
    let begun = announced(&tenants, announcement(&storage, Some(solar.id), lunar.id)).await;
    assert_eq!(tenants.receive_namespace(&begun, None, moved()).await.unwrap(), Ok(()));
    let back = announcement(&storage, Some(lunar.id), solar.id);
    // The namespace has not converged until its new tenant has seen it.
    assert_eq!(tenants.announce_move(back).await.unwrap(), Err(MoveRefusal::OtherHolder));
    // It does not end by time, only with its tenant.
    storage.clock.advance(1_000_000);
    tenants.purge_moves().await.unwrap();
    assert!(tenants.move_of(NAMESPACE).await.unwrap().is_some());
    tenants.close(lunar.id).await.unwrap();
    tenants.purge_moves().await.unwrap();
    assert_eq!(tenants.move_of(NAMESPACE).await.unwrap(), None);
}

async fn of_two_replicas_one_receives_a_namespace(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = two_tenants(&tenants, &storage).await;
    let begun = announced(&tenants, announcement(&storage, Some(solar.id), lunar.id)).await;
    let attempts = (0..8).map(|_| tenants.receive_namespace(&begun, None, moved()));
    let results = futures_util::future::join_all(attempts).await;
    let received = results.into_iter().filter(|it| matches!(it, Ok(Ok(())))).count();
    assert_eq!(received, 1);
    assert_eq!(storage.number(MOVED).await, 1);
}
