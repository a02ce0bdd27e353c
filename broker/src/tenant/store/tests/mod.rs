//! Rows of tenants and namespaces on both engines.

mod model;
mod moves;
mod races;
mod suspension;

use std::collections::BTreeMap;

use super::*;
use crate::{
    tenant::ApiGroup,
    testing::{On, Storage, on_both_engines},
};

on_both_engines!(
    a_new_object_gets_a_row_and_keeps_it,
    an_object_of_the_other_group_does_not_take_a_name,
    an_object_made_again_gets_a_row_of_its_own,
    a_closed_tenant_gives_its_name_up,
    a_suspension_outlives_the_object,
    a_status_changes_from_the_expected_one_only,
    lost_rows_are_written_again_whatever_the_quota_is,
    open_tenants_are_listed_by_name,
    names_are_those_of_open_tenants,
    personal_tenants_are_not_listed,
    a_claimed_namespace_has_the_claimed_values,
    terminating_namespaces_count_and_gone_ones_do_not,
    no_tenant_has_more_namespaces_than_the_maximum,
    a_namespace_beyond_the_quota_is_counted_once_there_is_room,
    a_closed_tenant_claims_nothing,
    only_a_claim_has_a_namespace_counted,
    the_statuses_in_statements_are_those_that_count,
    rows_of_namespaces_that_are_gone_expire,
    rows_of_namespaces_that_are_gone_are_neither_read_nor_kept,
    other_tenants_that_have_namespaces_are_read_at_once,
    unknown_values_are_left_alone,
    a_row_of_a_namespace_says_whether_it_was_seen,
    an_orphan_is_released_once,
);

const BROKER_GROUP: ApiGroup = ApiGroup::TenantBroker;

fn name(text: &str) -> TenantName {
    text.parse().unwrap()
}

fn tenants(storage: &Storage) -> Tenants {
    Tenants::new(storage.db.clone(), storage.clock.clone())
}

/// The row of a new object, whose name is free.
async fn open(tenants: &Tenants, text: &str) -> TenantRow {
    match tenants.observe(&name(text), BROKER_GROUP, &format!("uid-{text}")).await.unwrap() {
        Observed::Current(row) => row,
        other => panic!("{other:?}"),
    }
}

async fn claim(tenants: &Tenants, tenant: Uuid, namespace: &str, quota: u32) -> Claim {
    tenants.claim_namespace(tenant, namespace, None, Some(quota)).await.unwrap()
}

/// Names and statuses of the namespaces of a tenant, also of those that are gone.
async fn statuses(tenants: &Tenants, tenant: Uuid) -> Vec<(String, NamespaceStatus)> {
    const NAMES: &str = "SELECT name FROM tenant_namespaces WHERE tenant_id = $1 ORDER BY name";
    let names: Vec<String> = on_engine!(tenants.db.reader(), pool =>
        sqlx::query_scalar(NAMES).bind(tenant).fetch_all(pool).await)
    .unwrap();
    let mut statuses = Vec::new();
    for name in names {
        let row = tenants.namespace_row(&name).await.unwrap().unwrap();
        statuses.push((name, row.status));
    }
    let known = statuses.iter().filter(|(_, status)| *status != NamespaceStatus::Gone);
    let rows = tenants.namespaces(tenant).await.unwrap().into_iter();
    assert!(rows.map(|row| (row.name, row.status)).eq(known.cloned()));
    statuses
}

async fn execute(storage: &Storage, statement: &'static str) {
    let mut tx = storage.db.begin().await.unwrap();
    on_engine!(tx.connection(), c => sqlx::query(statement).execute(c).await.map(drop)).unwrap();
    tx.commit().await.unwrap();
}

async fn a_new_object_gets_a_row_and_keeps_it(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let solar = name("solar");
    assert_eq!(tenants.by_name(&solar).await.unwrap(), None);
    let row = open(&tenants, "solar").await;
    let now = storage.clock.now_ms();
    let expected = TenantRow {
        id: row.id,
        name: solar.clone(),
        group: BROKER_GROUP,
        object_uid: "uid-solar".to_owned(),
        status: TenantStatus::Active,
        status_changed_at: now,
        created_at: now,
    };
    assert_eq!(row, expected);
    assert_eq!(row.lease_name(), format!("tenant/{}", row.id));
    storage.clock.advance(5);
    let again = tenants.observe(&solar, BROKER_GROUP, "uid-solar").await.unwrap();
    assert_eq!(again, Observed::Current(row.clone()));
    assert_eq!(tenants.by_name(&solar).await.unwrap(), Some(row.clone()));
    assert_eq!(tenants.by_id(row.id).await.unwrap(), Some(row));
    assert_eq!(tenants.by_id(storage.clock.random_id()).await.unwrap(), None);
    assert_eq!(storage.number("SELECT COUNT(*) FROM tenants").await, 1);
}

async fn an_object_of_the_other_group_does_not_take_a_name(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let row = open(&tenants, "solar").await;
    let (solar, capsule) = (name("solar"), ApiGroup::Capsule);
    let observed = tenants.observe(&solar, capsule, "uid-2").await.unwrap();
    assert_eq!(observed, Observed::NameTaken(row.clone()));
    tenants.close(row.id).await.unwrap();
    let Observed::Current(row) = tenants.observe(&solar, capsule, "uid-2").await.unwrap() else {
        panic!("the name is free")
    };
    assert_eq!((row.group, row.object_uid.as_str()), (capsule, "uid-2"));
    assert_eq!(tenants.by_name(&solar).await.unwrap(), Some(row));
}

async fn an_object_made_again_gets_a_row_of_its_own(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, old) = (name("solar"), open(&tenants, "solar").await);
    assert_eq!(claim(&tenants, old.id, "solar-a", 5).await, Claim::Created);
    storage.clock.advance(5);
    let Observed::Recreated(new) = tenants.observe(&solar, BROKER_GROUP, "uid-2").await.unwrap()
    else {
        panic!("the object has another uid")
    };
    assert_ne!(new.id, old.id);
    assert_eq!((new.object_uid.as_str(), new.status), ("uid-2", TenantStatus::Active));
    assert_eq!(tenants.by_name(&solar).await.unwrap(), Some(new.clone()));
    let closed = tenants.by_id(old.id).await.unwrap().unwrap();
    let status_changed_at = storage.clock.now_ms();
    let expected = TenantRow { status: TenantStatus::Closed, status_changed_at, ..old.clone() };
    assert_eq!(closed, expected, "it still says what its name was");

    // Its namespaces are not inherited.
    assert!(statuses(&tenants, new.id).await.is_empty());
    let orphan = ("solar-a".to_owned(), NamespaceStatus::Orphaned);
    assert_eq!(statuses(&tenants, old.id).await, [orphan]);
    assert_eq!(claim(&tenants, new.id, "solar-a", 5).await, Claim::OtherTenant);

    // A cache that lags has the old object.
    let observed = tenants.observe(&solar, BROKER_GROUP, "uid-solar").await.unwrap();
    assert_eq!(observed, Observed::NameTaken(new.clone()));
    let observed = tenants.observe(&solar, BROKER_GROUP, "uid-2").await.unwrap();
    assert_eq!(observed, Observed::Current(new.clone()));
    // A restore of the cluster brings the old object back.
    tenants.close(new.id).await.unwrap();
    let Observed::Current(back) = tenants.observe(&solar, BROKER_GROUP, "uid-solar").await.unwrap()
    else {
        panic!("the name is free")
    };
    assert!(![old.id, new.id].contains(&back.id), "a closed row stays closed");
}

async fn a_closed_tenant_gives_its_name_up(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = (open(&tenants, "solar").await, open(&tenants, "lunar").await);
    for namespace in ["solar-a", "solar-b", "solar-c"] {
        assert_eq!(claim(&tenants, solar.id, namespace, 5).await, Claim::Created);
    }
    assert_eq!(claim(&tenants, lunar.id, "lunar-a", 5).await, Claim::Created);
    let creating = &[NamespaceStatus::Creating];
    for (namespace, to) in
        [("solar-b", NamespaceStatus::Gone), ("solar-c", NamespaceStatus::Terminating)]
    {
        assert!(tenants.set_namespace_status(solar.id, namespace, creating, to).await.unwrap());
    }
    tenants.close(solar.id).await.unwrap();
    let closed = tenants.by_id(solar.id).await.unwrap().unwrap();
    storage.clock.advance(5);
    tenants.close(solar.id).await.unwrap();
    assert_eq!(tenants.by_id(solar.id).await.unwrap(), Some(closed), "once is enough");
    assert_eq!(tenants.by_name(&solar.name).await.unwrap(), None);
    assert_eq!(tenants.list().await.unwrap(), std::slice::from_ref(&lunar));
    let named = |text: &str, status| (text.to_owned(), status);
    assert_eq!(
        statuses(&tenants, solar.id).await,
        [
            named("solar-a", NamespaceStatus::Orphaned),
            named("solar-b", NamespaceStatus::Gone),
            named("solar-c", NamespaceStatus::Orphaned),
        ]
    );
    let untouched = [named("lunar-a", NamespaceStatus::Creating)];
    assert_eq!(statuses(&tenants, lunar.id).await, untouched);
    tenants.close(storage.clock.random_id()).await.unwrap();
    // An orphan that is deleted leaves its name to others.
    tenants.release_namespace("solar-a").await.unwrap();
    assert_eq!(claim(&tenants, lunar.id, "solar-a", 5).await, Claim::Created);
}

async fn a_suspension_outlives_the_object(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let solar = name("solar");
    let statuses = [TenantStatus::Active, TenantStatus::Suspending, TenantStatus::Suspended];
    let mut uid = 0;
    let mut observe = async |group| {
        uid += 1;
        match tenants.observe(&solar, group, &format!("uid-{uid}")).await.unwrap() {
            Observed::Current(row) | Observed::Recreated(row) => row,
            Observed::NameTaken(row) => panic!("{row:?}"),
        }
    };
    for status in statuses {
        let row = observe(BROKER_GROUP).await;
        assert_eq!(row.status, TenantStatus::Active, "{status:?}");
        if status != TenantStatus::Active {
            tenants.advance(&row, status).await.unwrap().unwrap();
        }
        let is_suspended = status != TenantStatus::Active;
        let expected = if is_suspended { TenantStatus::Suspending } else { TenantStatus::Active };
        // Replaced by another object of the group, then deleted and made again in each group.
        let replacing = observe(BROKER_GROUP).await;
        assert_eq!(replacing.status, expected, "{status:?}");
        let mut last = replacing;
        for group in [ApiGroup::Capsule, BROKER_GROUP] {
            storage.clock.advance(5);
            tenants.close(last.id).await.unwrap();
            let closed = tenants.by_id(last.id).await.unwrap().unwrap();
            assert_eq!(closed.status, TenantStatus::Closed);
            let again = observe(group).await;
            assert_eq!(again.status, expected, "{status:?}");
            assert_eq!(tenants.by_name(&solar).await.unwrap(), Some(again.clone()));
            last = again;
        }
        // An administrator resumes it, and that counts from then on.
        if is_suspended {
            for to in [TenantStatus::Suspended, TenantStatus::Resuming, TenantStatus::Active] {
                last = tenants.advance(&last, to).await.unwrap().unwrap();
            }
        }
        storage.clock.advance(5);
        tenants.close(last.id).await.unwrap();
    }
    // Tenants of other names are not affected.
    assert_eq!(open(&tenants, "lunar").await.status, TenantStatus::Active);
}

async fn a_status_changes_from_the_expected_one_only(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let row = open(&tenants, "solar").await;
    let since = storage.clock.now_ms();
    let changed = async || tenants.changed_since(since).await.unwrap();
    assert!(changed().await.is_empty() && tenants.not_active().await.unwrap().is_empty());
    storage.clock.advance(5);
    let (active, suspending) = (TenantStatus::Active, TenantStatus::Suspending);
    let suspended = TenantStatus::Suspended;
    let other = TenantRow { status: suspending, ..row.clone() };
    assert_eq!(tenants.advance(&other, suspended).await.unwrap(), None);
    let now = tenants.advance(&row, suspending).await.unwrap().unwrap();
    assert_eq!(tenants.advance(&row, suspending).await.unwrap(), None);
    assert_eq!(tenants.by_name(&row.name).await.unwrap().as_ref(), Some(&now));
    assert_eq!((now.status, now.status_changed_at), (suspending, since + 5));
    let not_active = async || tenants.not_active().await.unwrap().into_iter().collect::<Vec<_>>();
    assert_eq!(not_active().await, [(name("solar"), (suspending, since + 5))]);
    let earlier = TenantRow { status_changed_at: since, ..now.clone() };
    assert_eq!(tenants.advance(&earlier, suspended).await.unwrap(), None, "an earlier suspension");
    assert_eq!(changed().await, [(name("solar"), since + 5)]);
    // Unfinished work is found whenever it began.
    let later = since + 1000;
    assert_eq!(tenants.changed_since(later).await.unwrap(), [(name("solar"), since + 5)]);
    storage.clock.advance(5);
    let now = tenants.advance(&now, suspended).await.unwrap().unwrap();
    assert_eq!(changed().await, [(name("solar"), since + 10)]);
    assert!(tenants.changed_since(later).await.unwrap().is_empty());
    assert_eq!(not_active().await, [(name("solar"), (suspended, since + 10))]);
    tenants.close(row.id).await.unwrap();
    assert_eq!(tenants.advance(&now, active).await.unwrap(), None, "it is closed");
    assert!(changed().await.is_empty() && not_active().await.is_empty());
}

async fn lost_rows_are_written_again_whatever_the_quota_is(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = (open(&tenants, "solar").await, open(&tenants, "lunar").await);
    for (tenant, namespace) in
        [(solar.id, "solar-active"), (lunar.id, "lunar-a"), (solar.id, "gone")]
    {
        claim(&tenants, tenant, namespace, 3).await;
    }
    let creating = [NamespaceStatus::Creating];
    for (namespace, status) in
        [("solar-active", NamespaceStatus::Active), ("gone", NamespaceStatus::Gone)]
    {
        assert!(
            tenants.set_namespace_status(solar.id, namespace, &creating, status).await.unwrap()
        );
    }
    let recover = async |names: &[&str], status, rows| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        tenants.recover_namespaces(solar.id, &names, status, rows).await.unwrap();
    };
    recover(&["solar-lost", "solar-active", "lunar-a", "gone"], creating[0], 1).await;
    recover(&["solar-marked"], NamespaceStatus::OverQuota, 3).await;
    let named = |name: &str, status| (name.to_owned(), status);
    let expected = [
        named("gone", creating[0]),
        named("solar-active", NamespaceStatus::Active),
        named("solar-lost", creating[0]),
        named("solar-marked", NamespaceStatus::OverQuota),
    ];
    assert_eq!(statuses(&tenants, solar.id).await, expected);
    let untouched = [named("lunar-a", creating[0])];
    assert_eq!(statuses(&tenants, lunar.id).await, untouched);
    // More than one statement, up to the rows that are read.
    let many: Vec<String> = (0..=MAX_BATCH).map(|n| format!("many-{n}")).collect();
    let over = NamespaceStatus::OverQuota;
    let left = 2 * crate::tenant::limits::MAX_NAMESPACES - MAX_BATCH;
    tenants.recover_namespaces(solar.id, &many, over, left).await.unwrap();
    assert_eq!(tenants.namespaces(solar.id).await.unwrap().len(), 4 + MAX_BATCH);
    tenants.close(solar.id).await.unwrap();
    let closed = tenants.recover_namespaces(solar.id, &many, over, 0).await;
    assert!(matches!(closed, Err(sqlx::Error::RowNotFound)), "{closed:?}");
}

async fn names_are_those_of_open_tenants(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let [solar, lunar, gone] = [
        open(&tenants, "solar").await,
        open(&tenants, "lunar").await,
        open(&tenants, "gone").await,
    ];
    tenants.close(gone.id).await.unwrap();
    let ids = [solar.id, gone.id, storage.clock.random_id(), solar.id];
    assert_eq!(tenants.names_of(&ids).await.unwrap(), BTreeSet::from([name("solar")]));
    assert!(tenants.names_of(&[]).await.unwrap().is_empty());
    // More than one statement.
    let mut many: Vec<Uuid> = (0..MAX_BATCH).map(|_| storage.clock.random_id()).collect();
    many.insert(0, solar.id);
    many.push(lunar.id);
    let both = BTreeSet::from([name("lunar"), name("solar")]);
    assert_eq!(tenants.names_of(&many).await.unwrap(), both);
}

async fn open_tenants_are_listed_by_name(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    // PostgreSQL ignores dashes in some locales.
    for text in ["solar-wind", "lunar", "solarium", "solar"] {
        open(&tenants, text).await;
        storage.clock.advance(1);
    }
    let rows = tenants.list().await.unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["lunar", "solar", "solar-wind", "solarium"]);
}

async fn personal_tenants_are_not_listed(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let user = storage.user().await;
    let mut tx = storage.db.begin().await.unwrap();
    for _ in 0..2 {
        let id = get_or_create_personal(&mut tx, &storage.clock, user).await.unwrap();
        assert_eq!(id, user);
    }
    tx.commit().await.unwrap();
    assert_eq!(storage.number("SELECT COUNT(*) FROM tenants").await, 1);
    assert!(tenants.list().await.unwrap().is_empty());
    assert_eq!(tenants.by_id(user).await.unwrap(), None);
    tenants.close(user).await.unwrap();
    let unchanged = "SELECT COUNT(*) FROM tenants WHERE status IS NULL AND object_uid IS NULL";
    assert_eq!(storage.number(unchanged).await, 1);
    let error = tenants.claim_namespace(user, "a", None, None).await.unwrap_err();
    assert!(matches!(error, sqlx::Error::RowNotFound), "{error}");
}

async fn a_claimed_namespace_has_the_claimed_values(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (row, user) = (open(&tenants, "solar").await, storage.user().await);
    let made = tenants.claim_namespace(row.id, "solar-a", Some(user), None).await.unwrap();
    assert_eq!(made, Claim::Created);
    let now = storage.clock.now_ms();
    let expected = NamespaceRow {
        name: "solar-a".to_owned(),
        tenant_id: row.id,
        status: NamespaceStatus::Creating,
        made_by: Some(user),
        created_at: now,
        change_at: now,
    };
    assert_eq!(tenants.namespaces(row.id).await.unwrap(), std::slice::from_ref(&expected));
    storage.clock.advance(5);
    assert_eq!(claim(&tenants, row.id, "solar-a", 0).await, Claim::Exists(expected.clone()));
    let (creating, active) = ([NamespaceStatus::Creating], NamespaceStatus::Active);
    assert!(tenants.set_namespace_status(row.id, "solar-a", &creating, active).await.unwrap());
    assert!(!tenants.set_namespace_status(row.id, "solar-a", &creating, active).await.unwrap());
    assert!(!tenants.set_namespace_status(row.id, "solar-b", &creating, active).await.unwrap());
    assert!(!tenants.set_namespace_status(row.id, "solar-a", &[], active).await.unwrap());
    let expected = NamespaceRow { status: active, change_at: now + 5, ..expected };
    assert_eq!(claim(&tenants, row.id, "solar-a", 1).await, Claim::Exists(expected));
    for _ in 0..2 {
        tenants.release_namespace("solar-a").await.unwrap();
        assert!(tenants.namespaces(row.id).await.unwrap().is_empty());
    }
}

async fn terminating_namespaces_count_and_gone_ones_do_not(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let row = open(&tenants, "solar").await;
    for namespace in ["solar-a", "solar-b"] {
        assert_eq!(claim(&tenants, row.id, namespace, 2).await, Claim::Created);
    }
    let full = Claim::QuotaExceeded { used: 2, quota: 2 };
    assert_eq!(claim(&tenants, row.id, "solar-c", 2).await, full);
    let any = NamespaceStatus::ALL;
    let terminating = NamespaceStatus::Terminating;
    assert!(tenants.set_namespace_status(row.id, "solar-a", &any, terminating).await.unwrap());
    let active = NamespaceStatus::Active;
    assert!(tenants.set_namespace_status(row.id, "solar-b", &any, active).await.unwrap());
    let created = async |most| tenants.created_namespaces(row.id, most).await.unwrap();
    let [a, b] = [("solar-a".to_owned(), true), ("solar-b".to_owned(), false)];
    assert_eq!((created(2).await, created(1).await), (vec![a.clone(), b.clone()], vec![a]));
    assert_eq!(claim(&tenants, row.id, "solar-c", 2).await, full);
    assert!(
        tenants.set_namespace_status(row.id, "solar-a", &any, NamespaceStatus::Gone).await.unwrap()
    );
    assert_eq!(created(2).await, [b]);
    assert_eq!(claim(&tenants, row.id, "solar-c", 2).await, Claim::Created);
    assert_eq!(claim(&tenants, row.id, "solar-a", 2).await, full, "it has to be counted again");
    // Nobody has the name of a namespace that is gone.
    let lunar = open(&tenants, "lunar").await;
    assert_eq!(claim(&tenants, lunar.id, "solar-a", 1).await, Claim::Created);
    assert_eq!(claim(&tenants, row.id, "solar-a", 9).await, Claim::OtherTenant);
    // A lower quota ends nothing.
    let lowered = Claim::QuotaExceeded { used: 2, quota: 1 };
    assert_eq!(claim(&tenants, row.id, "solar-d", 1).await, lowered);
    assert!(matches!(claim(&tenants, row.id, "solar-b", 1).await, Claim::Exists(_)));
}

/// Rows of 9,999 namespaces. The statement names no tenant, because there is only one.
const FILL: &str = "\
INSERT INTO tenant_namespaces (name, tenant_id, status, created_at, change_at) \
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 9999) \
SELECT 'solar-' || CAST(n AS TEXT), t.id, 'active', 0, 0 FROM numbers, tenants t";

async fn no_tenant_has_more_namespaces_than_the_maximum(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let row = open(&tenants, "solar").await;
    execute(&storage, FILL).await;
    assert_eq!(claim(&tenants, row.id, "solar-a", u32::MAX).await, Claim::Created);
    let full = Claim::QuotaExceeded { used: 10_000, quota: 10_000 };
    assert_eq!(claim(&tenants, row.id, "solar-b", u32::MAX).await, full);
    let unlimited = tenants.claim_namespace(row.id, "solar-b", None, None).await.unwrap();
    assert_eq!(unlimited, full);
    assert_eq!(tenants.namespaces(row.id).await.unwrap().len(), 10_000);
    execute(&storage, "UPDATE tenant_namespaces SET status = 'over_quota'").await;
    assert!(!tenants.record_over_quota(row.id, "solar-b").await.unwrap());
}

async fn a_namespace_beyond_the_quota_is_counted_once_there_is_room(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = (open(&tenants, "solar").await, open(&tenants, "lunar").await);
    assert_eq!(claim(&tenants, solar.id, "solar-a", 1).await, Claim::Created);
    assert!(tenants.record_over_quota(solar.id, "solar-b").await.unwrap());
    assert!(!tenants.record_over_quota(solar.id, "solar-b").await.unwrap(), "it is recorded");
    assert!(!tenants.record_over_quota(lunar.id, "solar-b").await.unwrap());
    assert!(!tenants.record_over_quota(solar.id, "solar-a").await.unwrap(), "it is counted");
    assert_eq!(claim(&tenants, lunar.id, "solar-b", 5).await, Claim::OtherTenant);
    let full = Claim::QuotaExceeded { used: 1, quota: 1 };
    assert_eq!(claim(&tenants, solar.id, "solar-b", 1).await, full);
    let named = |text: &str, status| (text.to_owned(), status);
    let over = named("solar-b", NamespaceStatus::OverQuota);
    let expected = [named("solar-a", NamespaceStatus::Creating), over];
    assert_eq!(statuses(&tenants, solar.id).await, expected);

    tenants.release_namespace("solar-a").await.unwrap();
    storage.clock.advance(5);
    let Claim::Exists(row) = claim(&tenants, solar.id, "solar-b", 1).await else {
        panic!("there is room")
    };
    assert_eq!(row.status, NamespaceStatus::Creating);
    assert_eq!((row.created_at + 5, row.change_at), (row.change_at, storage.clock.now_ms()));
    assert_eq!(tenants.namespaces(solar.id).await.unwrap(), [row]);
    assert_eq!(claim(&tenants, solar.id, "solar-a", 1).await, full);
}

async fn a_closed_tenant_claims_nothing(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let row = open(&tenants, "solar").await;
    tenants.close(row.id).await.unwrap();
    for id in [row.id, storage.clock.random_id()] {
        let error = tenants.claim_namespace(id, "solar-a", None, None).await.unwrap_err();
        assert!(matches!(error, sqlx::Error::RowNotFound), "{error}");
        let error = tenants.record_over_quota(id, "solar-a").await.unwrap_err();
        assert!(matches!(error, sqlx::Error::RowNotFound), "{error}");
    }
    assert_eq!(storage.number("SELECT COUNT(*) FROM tenant_namespaces").await, 0);
}

async fn only_a_claim_has_a_namespace_counted(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let row = open(&tenants, "solar").await;
    let all = NamespaceStatus::ALL;
    for from in all {
        for to in all {
            assert_eq!(claim(&tenants, row.id, "solar-a", 1).await, Claim::Created);
            let creating = [NamespaceStatus::Creating];
            assert!(
                tenants.set_namespace_status(row.id, "solar-a", &creating, from).await.unwrap()
            );
            let changed =
                tenants.set_namespace_status(row.id, "solar-a", &[from], to).await.unwrap();
            assert_eq!(changed, from.counts() || !to.counts(), "{from:?} to {to:?}");
            let now = if changed { to } else { from };
            assert_eq!(statuses(&tenants, row.id).await, [("solar-a".to_owned(), now)]);
            let others: Vec<_> = all.into_iter().filter(|status| *status != now).collect();
            assert!(!tenants.set_namespace_status(row.id, "solar-a", &others, to).await.unwrap());
            tenants.release_namespace("solar-a").await.unwrap();
        }
    }
}

async fn the_statuses_in_statements_are_those_that_count(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let row = open(&tenants, "solar").await;
    for status in NamespaceStatus::ALL {
        assert_eq!(NamespaceStatus::parse(status.as_str()), Some(status));
        assert_eq!(claim(&tenants, row.id, "solar-a", 1).await, Claim::Created);
        let creating = [NamespaceStatus::Creating];
        assert!(tenants.set_namespace_status(row.id, "solar-a", &creating, status).await.unwrap());
        let next = claim(&tenants, row.id, "solar-b", 1).await;
        assert_eq!(next == Claim::Created, !status.counts(), "{status:?}");
        for namespace in ["solar-a", "solar-b"] {
            tenants.release_namespace(namespace).await.unwrap();
        }
    }
    for status in TenantStatus::ALL {
        assert_eq!(TenantStatus::parse(status.as_str()), Some(status));
    }
}

async fn rows_of_namespaces_that_are_gone_expire(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let row = open(&tenants, "solar").await;
    let creating = [NamespaceStatus::Creating];
    for (namespace, to) in [
        ("solar-a", NamespaceStatus::Gone),
        ("solar-b", NamespaceStatus::Orphaned),
        ("solar-c", NamespaceStatus::Active),
    ] {
        assert_eq!(claim(&tenants, row.id, namespace, 9).await, Claim::Created);
        assert!(tenants.set_namespace_status(row.id, namespace, &creating, to).await.unwrap());
    }
    let month = 30 * 24 * 60 * 60 * 1000;
    for (later, left) in [(month - 1, 3), (1, 2), (month, 2)] {
        storage.clock.advance(later);
        tenants.purge().await.unwrap();
        assert_eq!(statuses(&tenants, row.id).await.len(), left);
    }
}

/// Rows of 12,000 namespaces of each tenant, of which those with the higher numbers went later.
const FILL_GONE: &str = "\
INSERT INTO tenant_namespaces (name, tenant_id, status, created_at, change_at) \
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 12000) \
SELECT t.name || '-' || CAST(n AS TEXT), t.id, 'gone', 0, n FROM numbers, tenants t";

/// Owners may create and delete any number of namespaces.
async fn rows_of_namespaces_that_are_gone_are_neither_read_nor_kept(on: On) {
    const ROWS: &str = "SELECT COUNT(*) FROM tenant_namespaces WHERE status = 'gone'";
    const EARLY: &str = "SELECT COUNT(*) FROM tenant_namespaces WHERE change_at <= 7000";
    let storage = Storage::new(on).await;
    let clock = crate::base::clock::Clock::manual("1970-01-02T00:00:00Z".parse().unwrap());
    let tenants = Tenants::new(storage.db.clone(), clock);
    let (row, lunar) = (open(&tenants, "solar").await, open(&tenants, "lunar").await);
    execute(&storage, FILL_GONE).await;
    let claimed = ["solar-1", "solar-a"];
    for namespace in claimed {
        assert_eq!(claim(&tenants, row.id, namespace, 9).await, Claim::Created);
    }
    let rows = tenants.namespace_rows(row.id).await.unwrap().rows;
    assert!(rows.iter().map(|row| row.name.as_str()).eq(claimed));
    tenants.purge().await.unwrap();
    assert_eq!(storage.number(ROWS).await, 10_000);
    assert_eq!(storage.number(EARLY).await, 0, "the earliest go first");
    let read = async || tenants.namespaces(row.id).await.unwrap().len();
    assert_eq!((read().await, tenants.namespaces(lunar.id).await.unwrap().len()), (2, 0));
}

async fn other_tenants_that_have_namespaces_are_read_at_once(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (solar, lunar) = (open(&tenants, "solar").await, open(&tenants, "lunar").await);
    for (tenant, namespace) in [(&solar, "a"), (&lunar, "b"), (&lunar, "c"), (&lunar, "d")] {
        assert_eq!(claim(&tenants, tenant.id, namespace, 9).await, Claim::Created);
    }
    let (creating, gone) = ([NamespaceStatus::Creating], NamespaceStatus::Gone);
    assert!(tenants.set_namespace_status(lunar.id, "c", &creating, gone).await.unwrap());
    execute(&storage, "UPDATE tenant_namespaces SET status = 'adopted' WHERE name = 'd'").await;
    let held = async |names: Vec<String>| tenants.held_by_others(solar.id, &names).await.unwrap();
    let many = (0..2 * MAX_BATCH).map(|number| format!("x-{number}"));
    let names = ["a", "b", "c", "d", "e"].map(str::to_owned);
    let expected = ["b", "d"].map(|name| (name.to_owned(), lunar.id));
    assert_eq!(held(many.chain(names).collect()).await, BTreeMap::from(expected));
    assert!(held(Vec::new()).await.is_empty());
}

/// One row that a newer version, or somebody by hand, wrote does not keep the others from being
/// reconciled.
async fn unknown_values_are_left_alone(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let (row, lunar) = (open(&tenants, "solar").await, open(&tenants, "lunar").await);
    for namespace in ["solar-a", "solar-b"] {
        assert_eq!(claim(&tenants, row.id, namespace, 9).await, Claim::Created);
    }
    execute(&storage, "UPDATE tenant_namespaces SET status = 'adopted' WHERE name = 'solar-a'")
        .await;
    let NamespaceRows { rows, unreadable } = tenants.namespace_rows(row.id).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["solar-b"]);
    assert_eq!(unreadable.into_iter().collect::<Vec<_>>(), ["solar-a"]);
    let error = tenants.claim_namespace(row.id, "solar-a", None, None).await.unwrap_err();
    assert!(error.to_string().contains("\"adopted\" is unknown"), "{error}");
    let stellar = open(&tenants, "stellar").await;
    execute(&storage, "UPDATE tenants SET name = 'No Name' WHERE name = 'stellar'").await;
    let since = stellar.status_changed_at - 1;
    assert_eq!(tenants.changed_since(since).await.unwrap().len(), 2, "lunar and solar");
    for (change, value) in [
        ("UPDATE tenants SET status = 'archived' WHERE name = 'solar'", "\"archived\""),
        (
            "UPDATE tenants SET status = 'active', object_group = 'example.com' \
             WHERE name = 'solar'",
            "\"example.com\"",
        ),
    ] {
        execute(&storage, change).await;
        assert_eq!(tenants.list().await.unwrap(), std::slice::from_ref(&lunar));
        // A namespace with its prefix is not given to others.
        assert_eq!(
            tenants.open_names().await.unwrap(),
            BTreeSet::from(["lunar", "solar"].map(name))
        );
        for error in [
            tenants.by_name(&row.name).await.unwrap_err(),
            tenants.by_id(row.id).await.unwrap_err(),
            tenants.observe(&row.name, BROKER_GROUP, "uid-2").await.unwrap_err(),
        ] {
            assert!(error.to_string().contains(value), "{error}");
        }
    }
}

async fn a_row_of_a_namespace_says_whether_it_was_seen(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let row = open(&tenants, "solar").await;
    let was_seen = async || {
        let rows = tenants.namespaces(row.id).await.unwrap();
        rows.iter().map(NamespaceRow::was_seen).collect::<Vec<_>>()
    };
    for later in [0, 5] {
        assert_eq!(claim(&tenants, row.id, "solar-a", 1).await, Claim::Created);
        assert_eq!(was_seen().await, [false]);
        storage.clock.advance(later);
        for _ in 0..2 {
            tenants.record_namespace_seen(row.id, "solar-a").await.unwrap();
            assert_eq!(was_seen().await, [true], "after {later} ms");
        }
        let (creating, gone) = ([NamespaceStatus::Creating], NamespaceStatus::Gone);
        assert!(tenants.set_namespace_status(row.id, "solar-a", &creating, gone).await.unwrap());
    }
    let before = tenants.namespace_row("solar-a").await.unwrap();
    storage.clock.advance(5);
    tenants.record_namespace_seen(row.id, "solar-a").await.unwrap();
    let after = tenants.namespace_row("solar-a").await.unwrap();
    assert_eq!(after, before, "it is not being created");
}

async fn an_orphan_is_released_once(on: On) {
    let storage = Storage::new(on).await;
    let tenants = tenants(&storage);
    let solar = open(&tenants, "solar").await;
    assert_eq!(claim(&tenants, solar.id, "solar-a", 1).await, Claim::Created);
    assert!(tenants.orphans().await.unwrap().is_empty());
    storage.clock.advance(5);
    tenants.close(solar.id).await.unwrap();
    let orphan = Orphan {
        namespace: "solar-a".to_owned(),
        tenant_id: solar.id,
        tenant: "solar".to_owned(),
        orphaned_at: storage.clock.now_ms(),
    };
    assert_eq!(tenants.orphans().await.unwrap(), std::slice::from_ref(&orphan));
    let Observed::Current(again) =
        tenants.observe(&solar.name, BROKER_GROUP, "uid-2").await.unwrap()
    else {
        panic!("the name is free")
    };
    assert_eq!(claim(&tenants, again.id, "solar-a", 1).await, Claim::OtherTenant);
    assert!(tenants.release_orphan(&orphan).await.unwrap());
    assert_eq!(claim(&tenants, again.id, "solar-a", 1).await, Claim::Created);
    assert!(!tenants.release_orphan(&orphan).await.unwrap(), "it is another tenant's now");
    assert!(tenants.orphans().await.unwrap().is_empty());
}
