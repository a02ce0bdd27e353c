//! Decisions on suspensions, and claims by users, with their audit rows.

use super::*;
use crate::{
    audit::{self, Action},
    testing::run_concurrently,
};

on_both_engines!(
    a_suspension_begins_from_active_and_resuming_only,
    a_suspension_is_kept_only_if_no_other_decision_was_made_since,
    a_resumption_begins_from_an_old_suspension_only,
    of_concurrent_decisions_each_change_is_recorded_once,
    deleted_bindings_are_known_until_the_next_suspension,
    a_claim_for_a_user_needs_an_active_tenant,
    only_the_own_claim_that_is_creating_is_released,
);

const SUSPENDED: &str = "SELECT COUNT(*) FROM audit_logs WHERE action = 'SuspendTenant'";
const RESUMED: &str = "SELECT COUNT(*) FROM audit_logs WHERE action = 'ResumeTenant'";
const REQUESTED: &str = "SELECT COUNT(*) FROM audit_logs WHERE action = 'CreateNamespace'";

fn event(action: Action) -> audit::Event {
    audit::Event::success(action)
}

async fn status(tenants: &Tenants, id: Uuid) -> TenantStatus {
    tenants.by_id(id).await.unwrap().unwrap().status
}

/// Gives an open tenant a status, whichever it has.
async fn set_status(storage: &Storage, status: TenantStatus) {
    let mut tx = storage.db.begin().await.unwrap();
    on_engine!(tx.connection(), c => sqlx::query(
        "UPDATE tenants SET status = $1, status_changed_at = $2 WHERE name IS NOT NULL")
        .bind(status.as_str()).bind(storage.clock.now_ms()).execute(c).await.map(drop))
    .unwrap();
    tx.commit().await.unwrap();
}

async fn a_suspension_begins_from_active_and_resuming_only(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let row = open(&tenants, "solar").await;
    let mut recorded = 0;
    for (from, begins, to) in [
        (TenantStatus::Active, true, TenantStatus::Suspending),
        (TenantStatus::Resuming, true, TenantStatus::Suspending),
        (TenantStatus::Suspending, false, TenantStatus::Suspending),
        (TenantStatus::Suspended, false, TenantStatus::Suspended),
    ] {
        set_status(&storage, from).await;
        storage.clock.advance(5);
        let began = tenants.begin_suspension(row.id, event(Action::SuspendTenant)).await.unwrap();
        assert_eq!(began, begins, "{from:?}");
        let now = tenants.by_id(row.id).await.unwrap().unwrap();
        assert_eq!(now.status, to, "{from:?}");
        assert_eq!(now.status_changed_at == storage.clock.now_ms(), begins, "{from:?}");
        recorded += i64::from(begins);
        assert_eq!(storage.number(SUSPENDED).await, recorded, "{from:?}");
    }
    set_status(&storage, TenantStatus::Active).await;
    tenants.close(row.id).await.unwrap();
    assert!(!tenants.begin_suspension(row.id, event(Action::SuspendTenant)).await.unwrap());
    assert_eq!(status(&tenants, row.id).await, TenantStatus::Closed);
    assert_eq!(storage.number(SUSPENDED).await, recorded);
}

async fn a_suspension_is_kept_only_if_no_other_decision_was_made_since(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let row = open(&tenants, "solar").await;
    let keep = async |row: &TenantRow| {
        tenants.keep_suspended(row, event(Action::SuspendTenant)).await.unwrap()
    };
    for status in [TenantStatus::Suspending, TenantStatus::Suspended, TenantStatus::Resuming] {
        set_status(&storage, status).await;
        assert!(!keep(&row).await, "{status:?}");
    }
    storage.clock.advance(5);
    set_status(&storage, TenantStatus::Active).await;
    assert!(!keep(&row).await, "it was suspended and resumed since");
    assert_eq!(storage.number(SUSPENDED).await, 0);
    let current = tenants.by_id(row.id).await.unwrap().unwrap();
    assert!(keep(&current).await && !keep(&current).await);
    assert_eq!(status(&tenants, row.id).await, TenantStatus::Suspending);
    assert_eq!(storage.number(SUSPENDED).await, 1);
}

async fn a_resumption_begins_from_an_old_suspension_only(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let row = open(&tenants, "solar").await;
    let resume = async |suspended_at| {
        let event = event(Action::ResumeTenant);
        tenants.begin_resumption(row.id, suspended_at, event).await.unwrap()
    };
    for from in [TenantStatus::Active, TenantStatus::Suspending, TenantStatus::Resuming] {
        set_status(&storage, from).await;
        assert!(!resume(i64::MAX).await, "{from:?}");
        assert_eq!(status(&tenants, row.id).await, from);
    }
    set_status(&storage, TenantStatus::Suspended).await;
    let suspended_at = storage.clock.now_ms();
    assert!(!resume(suspended_at - 1).await, "it was not suspended then");
    assert_eq!(storage.number(RESUMED).await, 0);
    assert!(resume(suspended_at).await);
    assert!(!resume(suspended_at).await);
    assert_eq!(status(&tenants, row.id).await, TenantStatus::Resuming);
    assert_eq!(storage.number(RESUMED).await, 1);
    set_status(&storage, TenantStatus::Suspended).await;
    tenants.close(row.id).await.unwrap();
    assert!(!resume(i64::MAX).await, "it is closed");
}

async fn of_concurrent_decisions_each_change_is_recorded_once(on: On) {
    let storage = Storage::new(on).await;
    let replicas =
        [tenants(&storage), Tenants::new(storage.database.connect().await, storage.clock.clone())];
    let row = open(&replicas[0], "solar").await;
    let began = run_concurrently((0..16).map(|n| {
        let (tenants, id) = (replicas[n % 2].clone(), row.id);
        async move { tenants.begin_suspension(id, event(Action::SuspendTenant)).await.unwrap() }
    }))
    .await;
    assert_eq!(began.iter().filter(|began| **began).count(), 1, "{began:?}");
    assert_eq!(storage.number(SUSPENDED).await, 1);
    let suspending = replicas[0].by_id(row.id).await.unwrap().unwrap();
    replicas[0].advance(&suspending, TenantStatus::Suspended).await.unwrap().unwrap();

    // Suspensions and resumptions together: each one that began is in the trail, and the last one
    // decides on the status.
    let now = storage.clock.now_ms();
    let began = run_concurrently((0..16).map(|n| {
        let (tenants, id) = (replicas[n % 2].clone(), row.id);
        async move {
            if n % 3 == 0 {
                tenants.begin_suspension(id, event(Action::SuspendTenant)).await.unwrap()
            } else {
                tenants.begin_resumption(id, now, event(Action::ResumeTenant)).await.unwrap()
            }
        }
    }))
    .await;
    let (suspensions, resumptions) =
        (storage.number(SUSPENDED).await - 1, storage.number(RESUMED).await);
    let count = i64::try_from(began.iter().filter(|began| **began).count()).unwrap();
    assert_eq!(suspensions + resumptions, count);
    assert_eq!(resumptions, 1, "nothing completes the suspension that comes after it");
    let expected = if suspensions == 1 { TenantStatus::Suspending } else { TenantStatus::Resuming };
    assert_eq!(status(&replicas[0], row.id).await, expected);
}

async fn deleted_bindings_are_known_until_the_next_suspension(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (row, other) = (open(&tenants, "solar").await, open(&tenants, "lunar").await);
    let record = async |tenant, namespace, names: &[String]| {
        tenants.record_deleted_bindings(tenant, namespace, names).await.unwrap();
    };
    let suspend = async || {
        tenants.begin_suspension(row.id, event(Action::SuspendTenant)).await.unwrap();
    };
    let [a, b] = ["app", "b"].map(str::to_owned);
    suspend().await;
    record(row.id, "solar-b", std::slice::from_ref(&a)).await;
    record(row.id, "solar-a", &[b.clone(), a.clone()]).await;
    record(row.id, "solar-a", std::slice::from_ref(&a)).await;
    // Names that one of the engines does not store.
    record(other.id, "lunar-a", &[a.clone(), "b\0".to_owned(), "x".repeat(2_800)]).await;
    let named = |namespace: &str, name: &String| (namespace.to_owned(), name.clone());
    assert_eq!(tenants.deleted_bindings(other.id).await.unwrap(), [named("lunar-a", &a)]);
    let all = [named("solar-a", &a), named("solar-a", &b), named("solar-b", &a)];
    assert_eq!(tenants.deleted_bindings(row.id).await.unwrap(), all);
    // A suspension that interrupts the resumption adds to them.
    set_status(&storage, TenantStatus::Resuming).await;
    suspend().await;
    assert_eq!(tenants.deleted_bindings(row.id).await.unwrap(), all);
    let many: Vec<String> = (0..1_200).map(|number| format!("many-{number}")).collect();
    let more = ["solar-many", "solar-more"].map(|namespace| (namespace, &many));
    for ((namespace, names), has_room) in more.into_iter().zip([true, false]) {
        let recorded = tenants.record_deleted_bindings(row.id, namespace, names).await.unwrap();
        assert_eq!(recorded, has_room);
    }
    assert_eq!(tenants.deleted_bindings(row.id).await.unwrap().len(), 1_000);
    // The next one begins anew.
    set_status(&storage, TenantStatus::Active).await;
    suspend().await;
    assert!(tenants.deleted_bindings(row.id).await.unwrap().is_empty());
    tenants.close(other.id).await.unwrap();
    assert!(tenants.deleted_bindings(other.id).await.unwrap().is_empty());
}

async fn a_claim_for_a_user_needs_an_active_tenant(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (row, user) = (open(&tenants, "solar").await, storage.user().await);
    let claim = async |name: &str| {
        let event = event(Action::CreateNamespace);
        tenants.claim_for_user(row.id, name, user, Some(1), event).await.unwrap()
    };
    for status in [TenantStatus::Suspending, TenantStatus::Suspended, TenantStatus::Resuming] {
        set_status(&storage, status).await;
        assert_eq!(claim("solar-a").await, None, "{status:?}");
    }
    assert!(tenants.namespaces(row.id).await.unwrap().is_empty());
    set_status(&storage, TenantStatus::Active).await;
    assert_eq!(claim("solar-a").await, Some(Claim::Created));
    let rows = tenants.namespaces(row.id).await.unwrap();
    assert_eq!((rows[0].status, rows[0].made_by), (NamespaceStatus::Creating, Some(user)));
    assert_eq!(claim("solar-a").await, Some(Claim::Exists(rows[0].clone())));
    assert_eq!(claim("solar-b").await, Some(Claim::QuotaExceeded { used: 1, quota: 1 }));
    assert_eq!(storage.number(REQUESTED).await, 1, "only a new row is a request");
    tenants.close(row.id).await.unwrap();
    assert_eq!(claim("solar-c").await, None);
}

async fn only_the_own_claim_that_is_creating_is_released(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = (open(&tenants, "solar").await, open(&tenants, "lunar").await);
    let (user, other) = (storage.user().await, storage.user().await);
    let claimed = tenants.claim_namespace(solar.id, "solar-a", Some(user), None).await.unwrap();
    assert_eq!(claimed, Claim::Created);
    for (tenant, user) in [(lunar.id, user), (solar.id, other)] {
        assert!(!tenants.release_claim(tenant, "solar-a", user).await.unwrap());
    }
    let (creating, active) = (NamespaceStatus::Creating, NamespaceStatus::Active);
    assert!(tenants.set_namespace_status(solar.id, "solar-a", &[creating], active).await.unwrap());
    assert!(!tenants.release_claim(solar.id, "solar-a", user).await.unwrap(), "it is active");
    assert!(tenants.set_namespace_status(solar.id, "solar-a", &[active], creating).await.unwrap());
    assert!(tenants.release_claim(solar.id, "solar-a", user).await.unwrap());
    assert!(!tenants.release_claim(solar.id, "solar-a", user).await.unwrap());
    assert!(tenants.namespaces(solar.id).await.unwrap().is_empty());
    // A namespace that was made at the API server is nobody's claim.
    let claimed = tenants.claim_namespace(solar.id, "solar-b", None, None).await.unwrap();
    assert_eq!(claimed, Claim::Created);
    assert!(!tenants.release_claim(solar.id, "solar-b", user).await.unwrap());
}
