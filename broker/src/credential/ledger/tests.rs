//! The ledger on both engines, and its errors when the database fails.

use std::{collections::BTreeSet, time::Duration};

use integration::postgres::Postgres;
use tenant_shared::WorkspaceStatus;

use super::*;
use crate::{
    audit::{Action, Event},
    testing::{On, SA_UID, Storage, TestDatabase, on_both_engines, run_concurrently},
};

on_both_engines!(
    an_issuance_is_durable_when_record_returns,
    a_row_has_the_credential_its_session_and_its_expiry,
    a_batch_is_atomic,
    nothing_is_recorded_for_a_changed_workspace,
    without_its_database_nothing_is_recorded_and_every_caller_gets_an_error,
    issuances_beyond_the_queue_are_rejected,
);

/// A provisioned workspace to issue credentials for.
async fn workspace_for_issuing(storage: &Storage) -> Uuid {
    let user = storage.user().await;
    storage.workspace(user, WorkspaceStatus::Provisioned).await
}

fn entry(storage: &Storage, workspace_id: Uuid, credential_id: &str) -> LedgerEntry {
    let session_id = storage.clock.random_id();
    let issued_at_ms = storage.clock.now_ms();
    let user_id = storage.clock.random_id();
    let event = Event {
        workspace_id: Some(workspace_id),
        session_id: Some(session_id),
        credential_id: Some(credential_id.to_owned()),
        ..Event::success(Action::IssueCredential)
    };
    LedgerEntry {
        credential_id: credential_id.to_owned(),
        workspace_id,
        user_id,
        session_id,
        kind: CredentialKind::Exec,
        service_account_uid: SA_UID.to_owned(),
        secret: None,
        issued_at_ms,
        expires_at_ms: issued_at_ms + 7_200_000,
        event: event.with_request_context(&storage.clock),
    }
}

/// The recorded credentials. Asserts that each has its row in the audit trail.
async fn on_record(db: &Db) -> BTreeSet<String> {
    let ledger: Vec<String> = on_engine!(db.reader(), pool =>
        sqlx::query_scalar("SELECT credential_id FROM issued_credentials").fetch_all(pool).await)
    .unwrap();
    let trail: Vec<String> = on_engine!(db.reader(), pool =>
        sqlx::query_scalar("SELECT credential_id FROM audit_logs WHERE action = 'IssueCredential'")
            .fetch_all(pool).await)
    .unwrap();
    assert_eq!(ledger.len(), trail.len());
    let ledger = BTreeSet::from_iter(ledger);
    assert_eq!(ledger, BTreeSet::from_iter(trail));
    ledger
}

async fn an_issuance_is_durable_when_record_returns(on: On) {
    let storage = Storage::new(on).await;
    let workspace = workspace_for_issuing(&storage).await;
    let ledger = Ledger::start(storage.db.clone());
    // Another process reads, so that only committed rows count.
    let other = storage.database.connect().await;
    let all = run_concurrently((0..200).map(|n| {
        let entry = entry(&storage, workspace, &format!("jti-{n}"));
        let (ledger, other) = (ledger.clone(), other.clone());
        async move {
            let id = entry.credential_id.clone();
            ledger.record(entry).await.unwrap();
            let there: i64 = on_engine!(other.reader(), pool => sqlx::query_scalar(
                "SELECT COUNT(*) FROM issued_credentials c \
                 JOIN audit_logs a ON a.credential_id = c.credential_id WHERE c.credential_id = $1")
                .bind(&id).fetch_one(pool).await)
            .unwrap();
            assert_eq!(there, 1, "{id}");
            id
        }
    }))
    .await;
    assert_eq!(on_record(&other).await, BTreeSet::from_iter(all));
}

async fn a_row_has_the_credential_its_session_and_its_expiry(on: On) {
    let storage = Storage::new(on).await;
    let workspace = workspace_for_issuing(&storage).await;
    let entry = entry(&storage, workspace, "jti");
    let expected =
        ("jti".to_owned(), workspace, entry.session_id, entry.issued_at_ms, entry.expires_at_ms);
    Ledger::start(storage.db.clone()).record(entry).await.unwrap();
    let row: (String, Uuid, Uuid, i64, i64) = on_engine!(storage.db.reader(), pool =>
        sqlx::query_as("SELECT credential_id, workspace_id, session_id, issued_at, expires_at \
                        FROM issued_credentials").fetch_one(pool).await)
    .unwrap();
    assert_eq!(row, expected);
}

async fn a_batch_is_atomic(on: On) {
    let storage = Storage::new(on).await;
    let workspace = workspace_for_issuing(&storage).await;
    let ledger = Ledger::start(storage.db.clone());
    ledger.record(entry(&storage, workspace, "first")).await.unwrap();

    // The second of the two is on record already.
    let batch = ["second", "first"].map(|id| entry(&storage, workspace, id));
    let batch = batch.map(|entry| (Job::Issuance(Box::new(entry)), oneshot::channel().0));
    commit(&storage.db, &batch).await.unwrap_err();
    assert_eq!(on_record(&storage.db).await, BTreeSet::from(["first".to_owned()]));

    // A failed batch returns an error, and the writer continues with the next one.
    ledger.record(entry(&storage, workspace, "first")).await.unwrap_err();
    ledger.record(entry(&storage, workspace, "second")).await.unwrap();
    assert_eq!(on_record(&storage.db).await.len(), 2);
}

async fn nothing_is_recorded_for_a_changed_workspace(on: On) {
    let storage = Storage::new(on).await;
    let workspace = workspace_for_issuing(&storage).await;
    let user = storage.user().await;
    let suspended = storage.workspace(user, WorkspaceStatus::Suspending).await;
    let ledger = Ledger::start(storage.db.clone());
    let retired = LedgerEntry {
        service_account_uid: "sa-0".to_owned(),
        ..entry(&storage, workspace, "of a ServiceAccount that was retired")
    };
    let none = entry(&storage, Uuid::nil(), "of no workspace");
    let suspended = entry(&storage, suspended, "of a suspended one");
    for entry in [retired, none, suspended] {
        assert_eq!(ledger.record(entry).await, Err(NotRecorded::Changed));
    }
    assert!(on_record(&storage.db).await.is_empty(), "nor is it in the audit trail");
    // Only the bad entry of a batch is refused.
    let batch = [entry(&storage, workspace, "good"), entry(&storage, Uuid::nil(), "bad")];
    let batch = batch.map(|entry| (Job::Issuance(Box::new(entry)), oneshot::channel().0));
    assert_eq!(commit(&storage.db, &batch).await.unwrap(), [true, false]);
    assert_eq!(on_record(&storage.db).await, BTreeSet::from(["good".to_owned()]));
}

async fn without_its_database_nothing_is_recorded_and_every_caller_gets_an_error(on: On) {
    let storage = Storage::new(on).await;
    let workspace = workspace_for_issuing(&storage).await;
    let ledger = Ledger::start(storage.db.clone());
    storage.db.close().await;
    let results = run_concurrently((0..200).map(|n| {
        let entry = entry(&storage, workspace, &format!("jti-{n}"));
        let ledger = ledger.clone();
        async move { ledger.record(entry).await }
    }))
    .await;
    assert!(results.iter().all(Result::is_err));
    assert!(on_record(&storage.database.connect().await).await.is_empty());
}

async fn issuances_beyond_the_queue_are_rejected(on: On) {
    let storage = Storage::new(on).await;
    let workspace = workspace_for_issuing(&storage).await;
    // This ledger has no writer.
    let (writer, mut entries) = mpsc::channel(1);
    let ledger = Ledger { writer };
    let first = ledger.record(entry(&storage, workspace, "first"));
    let second = ledger.record(entry(&storage, workspace, "second"));
    tokio::select! {
        biased;
        _ = first => panic!("the first one waits"),
        refused = second => refused.unwrap_err(),
    };
    let (waiting, _) = entries.recv().await.unwrap();
    assert!(matches!(waiting, Job::Issuance(entry) if entry.credential_id == "first"));
}

#[tokio::test]
async fn a_full_disk_is_reported_and_recovered_from() {
    let storage = Storage::new(On::Sqlite).await;
    let workspace = workspace_for_issuing(&storage).await;
    let ledger = Ledger::start(storage.db.clone());
    ledger.record(entry(&storage, workspace, "before")).await.unwrap();
    let Db::Sqlite { write, .. } = &storage.db else { panic!("{:?}", storage.db) };
    sqlx::query("PRAGMA max_page_count = 1").execute(write).await.unwrap();
    let mut large = entry(&storage, workspace, "large");
    large.event = Event {
        credential_id: Some("large".to_owned()),
        ..Event::refused(Action::IssueCredential, "x".repeat(100_000))
    }
    .with_request_context(&storage.clock);
    ledger.record(large).await.unwrap_err();
    sqlx::query("PRAGMA max_page_count = 1000000").execute(write).await.unwrap();
    assert_eq!(on_record(&storage.db).await, BTreeSet::from(["before".to_owned()]));
    ledger.record(entry(&storage, workspace, "after")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_issuances_survive_a_crash_of_the_database_server() {
    let server = Postgres::start().await.unwrap();
    let storage = Storage::at(TestDatabase::on_server(&server).await).await;
    let workspace = workspace_for_issuing(&storage).await;
    let ledger = Ledger::start(storage.db.clone());
    let mut promised = BTreeSet::new();
    for n in 0..20 {
        let id = format!("before-{n}");
        ledger.record(entry(&storage, workspace, &id)).await.unwrap();
        promised.insert(id);
    }
    let in_flight: tokio::task::JoinSet<_> = (0..400)
        .map(|n| {
            let entry = entry(&storage, workspace, &format!("under-way-{n}"));
            let ledger = ledger.clone();
            async move {
                let id = entry.credential_id.clone();
                (id, ledger.record(entry).await.is_ok())
            }
        })
        .collect();
    server.kill().await.unwrap();
    // 400 entries are seven batches; they must not wait for one database timeout after the other.
    let results = async {
        tokio::join!(in_flight.join_all(), ledger.record(entry(&storage, workspace, "down")))
    };
    let (results, down) = tokio::time::timeout(Duration::from_secs(15), results).await.unwrap();
    down.unwrap_err();
    promised.extend(results.into_iter().filter(|(_, recorded)| *recorded).map(|(id, _)| id));

    server.restart().await.unwrap();
    ledger.record(entry(&storage, workspace, "after")).await.unwrap();
    promised.insert("after".to_owned());
    // There may be more rows than confirmed issuances, which is safe because their tokens were
    // dropped.
    let kept = on_record(&storage.db).await;
    assert!(kept.is_superset(&promised), "{:?}", promised.difference(&kept));
    assert!(!kept.contains("down"));
}
