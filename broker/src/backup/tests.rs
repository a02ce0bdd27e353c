//! Backup and restore of real databases of both engines.

use std::{
    fs,
    io::Write as _,
    os::{fd::AsRawFd as _, unix::fs::PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;
use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::*;
use crate::{
    audit::{
        self, Action, AuditKeyFiles, AuditKeys, AuditSettings, AuditTrail, Event, WholeTrail,
        chain::{self, Sealer},
    },
    base::{
        db::{Db, Dump, DumpError, LoadError, Location, latest_schema},
        reload::{FileSource as _, Files, Reloaded},
        signing::{PublicKeys, generate_if_missing},
        telemetry::Metrics,
    },
    on_engine,
    tenant::{ApiGroup, Claim, Observed, TenantName, TenantRow, TenantStatus, Tenants},
    testing::{On, Storage, TestDatabase, on_both_engines},
    workspace::MembershipRequest,
};

on_both_engines!(
    a_backup_is_restored_into_a_new_database,
    a_backup_is_consistent_while_others_write,
    a_backup_has_no_rows_that_a_restore_deletes,
    a_damaged_backup_is_refused,
    a_backup_of_another_engine_or_schema_is_refused,
    a_database_that_is_not_empty_is_left_alone,
    suspensions_after_the_backup_are_repeated_from_the_exported_trail,
    a_restore_revives_neither_tenants_nor_memberships_that_were_suspended,
    a_trail_of_another_history_is_refused_and_nothing_stays,
);

/// A database with a key that seals its audit trail, and a folder for backups.
struct Broker {
    storage: Storage,
    folder: TempDir,
    keys: KeyFiles,
}

impl Broker {
    async fn new(on: On) -> Self {
        let storage = Storage::new(on).await;
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("issuer-key.pem");
        generate_if_missing(&key).unwrap();
        let keys = KeyFiles { issuer: vec![key], ..KeyFiles::default() };
        Self { storage, folder, keys }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The keys of the audit trail, as the broker loads them.
    fn audit_keys(&self) -> AuditKeys {
        let signing_key_files = self.keys.issuer.clone();
        let settings = AuditSettings { signing_key_files, ..AuditSettings::default() };
        AuditKeyFiles(settings).load(&mut Files::default()).unwrap().value
    }

    fn known_keys(&self) -> PublicKeys {
        self.audit_keys().known
    }

    async fn back_up(&self) -> PathBuf {
        let folder = self.path("backup");
        let Storage { db, clock, .. } = &self.storage;
        create_backup(db, &self.keys, clock, &folder).await.unwrap().folder
    }

    async fn record(&self, event: Event) {
        let mut tx = self.storage.db.begin().await.unwrap();
        audit::record(&mut tx, &self.storage.clock, event).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Seals all audit rows of this database with the key.
    async fn seal(&self, db: &Db) {
        let (clock, keys) = (self.storage.clock.clone(), Reloaded::fixed(self.audit_keys()));
        let sealer = Sealer::new(db.clone(), clock, keys, Metrics::default());
        sealer.seal_all().await.unwrap();
    }

    /// Exports the sealed trail into a file.
    async fn export(&self, name: &str) -> PathBuf {
        let trail = AuditTrail::new(self.storage.db.clone());
        let page = trail.export_page(WholeTrail::for_operator(), 0, 1000).await.unwrap().unwrap();
        let path = self.path(name);
        fs::write(&path, page.to_json_lines().unwrap()).unwrap();
        path
    }

    async fn restore(&self, into: &TestDatabase, from: &Path) -> Result<Restored, BackupError> {
        let restoration = Restoration::begin(into.location(), from).await?;
        restoration.restore_keys(&self.keys)?;
        restoration.finish(&self.storage.clock, None).await
    }
}

/// Inserts a live session of this user.
async fn start_session(storage: &Storage, user: Uuid) -> Uuid {
    const INSERT: &str = "\
        INSERT INTO sessions (id, user_id, client_id, scope, auth_time, created_at, last_used_at, \
          idle_expires_at, expires_at) VALUES ($1, $2, 'c', 'openid', $3, $3, $3, $4, $4)";
    let (id, now) = (storage.clock.random_id(), storage.clock.now_ms());
    let mut tx = storage.db.begin().await.unwrap();
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(id).bind(user).bind(now).bind(now + 3_600_000).execute(c).await.map(drop))
    .unwrap();
    tx.commit().await.unwrap();
    id
}

async fn execute(db: &Db, statement: &'static str) {
    let mut tx = db.begin().await.unwrap();
    on_engine!(tx.connection(), c => sqlx::query(statement).execute(c).await.map(drop)).unwrap();
    tx.commit().await.unwrap();
}

async fn a_backup_is_restored_into_a_new_database(on: On) {
    let broker = Broker::new(on).await;
    let user = broker.storage.user().await;
    let workspace = broker.storage.workspace(user, WorkspaceStatus::Provisioned).await;
    start_session(&broker.storage, user).await;
    let (solar, capsule) = ("solar".parse().unwrap(), ApiGroup::Capsule);
    let before = Tenants::new(broker.storage.db.clone(), broker.storage.clock.clone());
    let Observed::Current(tenant) = before.observe(&solar, capsule, "uid").await.unwrap() else {
        panic!("the name is free")
    };
    let claim = before.claim_namespace(tenant.id, "solar-shop", Some(user), None).await.unwrap();
    assert_eq!(claim, Claim::Created);
    // A text with everything that the format of COPY escapes.
    let strange = "a\tb\nc\\d\u{1}\\N";
    let event = Event { reason: Some(strange.to_owned()), ..Event::success(Action::CreateUser) };
    broker.record(event.to_user(user)).await;
    broker.seal(&broker.storage.db).await;
    if let On::Postgres = on {
        // Somebody changed the schema: that is no part of a backup.
        execute(
            &broker.storage.db,
            "CREATE RULE swallow AS ON INSERT TO audit_logs DO INSTEAD NOTHING",
        )
        .await;
    }
    let backup = broker.back_up().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&backup), 0o700);
    for file in fs::read_dir(&backup).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }

    fs::remove_file(&broker.keys.issuer[0]).unwrap();
    let place = TestDatabase::new(on).await;
    let restored = broker.restore(&place, &backup).await.unwrap();
    let revoked = Revoked { sessions: 1, workspaces_replaced: 1, ..Revoked::default() };
    assert_eq!(restored.revoked, revoked);
    assert!(restored.skipped.is_empty() && restored.repeated.is_none(), "{restored:?}");
    assert_eq!(mode(&broker.keys.issuer[0]), 0o600, "the key is there again");

    let after = Storage::at(place).await;
    let rows: Vec<(Uuid, Uuid, Uuid)> = on_engine!(after.db.reader(), pool =>
        sqlx::query_as("SELECT id, tenant_id, user_id FROM workspaces").fetch_all(pool).await)
    .unwrap();
    // In tests a workspace has a tenant of the same identifier.
    assert_eq!(rows, [(workspace, workspace, user)]);
    assert_eq!(after.number("SELECT COUNT(*) FROM tenants WHERE name IS NULL").await, 1);
    let tenants = Tenants::new(after.db.clone(), after.clock.clone());
    assert_eq!(tenants.by_name(&solar).await.unwrap(), Some(tenant.clone()));
    let namespaces = before.namespaces(tenant.id).await.unwrap();
    assert_eq!(namespaces.len(), 1);
    assert_eq!(tenants.namespaces(tenant.id).await.unwrap(), namespaces);
    let live = "SELECT COUNT(*) FROM sessions WHERE ended_at IS NULL";
    assert_eq!((after.number(live).await, broker.storage.number(live).await), (0, 1));
    assert_eq!(after.number("SELECT COUNT(*) FROM active_service_accounts").await, 0);
    // The chain goes on: the old row, and the restore.
    broker.seal(&after.db).await;
    let keys = broker.known_keys();
    let report = chain::verify_database(&after.db, &keys, Some(restored.head), |_| {});
    let report = report.await.unwrap();
    assert!(report.intact && report.rows == 2, "{report:?}");
    let reasons: Vec<String> = on_engine!(after.db.reader(), pool =>
        sqlx::query_scalar("SELECT reason FROM audit_logs ORDER BY sequence").fetch_all(pool).await)
    .unwrap();
    assert_eq!(reasons[0], strange);
    assert!(reasons[1].contains(&restored.head.to_string()), "{reasons:?}");
}

async fn a_backup_is_consistent_while_others_write(on: On) {
    let broker = Broker::new(on).await;
    let (db, clock) = (broker.storage.db.clone(), broker.storage.clock.clone());
    let (started, writing) = tokio::sync::oneshot::channel();
    let writer = tokio::spawn(async move {
        let mut started = Some(started);
        // A user and an audit row in each transaction, until the task is aborted.
        loop {
            let user = clock.random_id();
            let mut tx = db.begin().await.unwrap();
            on_engine!(tx.connection(), c => sqlx::query(
                "INSERT INTO users (id, email, status, role, created_at) \
                 VALUES ($1, $2, 'active', 'user', 0)")
                .bind(user).bind(user.to_string()).execute(c).await.map(drop))
            .unwrap();
            let event = Event::success(Action::CreateUser).to_user(user);
            audit::record(&mut tx, &clock, event).await.unwrap();
            tx.commit().await.unwrap();
            if let Some(started) = started.take() {
                started.send(()).unwrap();
            }
        }
    });
    writing.await.unwrap();
    let backup = broker.back_up().await;
    let until_then = broker.storage.number("SELECT COUNT(*) FROM users").await;
    writer.abort();

    let place = TestDatabase::new(on).await;
    broker.restore(&place, &backup).await.unwrap();
    let after = Storage::at(place).await;
    let users = after.number("SELECT COUNT(*) FROM users").await;
    let created = "SELECT COUNT(*) FROM audit_logs WHERE action = 'CreateUser'";
    assert_eq!(users, after.number(created).await);
    assert!((1..=until_then).contains(&users), "{users} of {until_then}");
}

async fn a_backup_has_no_rows_that_a_restore_deletes(on: On) {
    const SECRET: &[u8] = b"what a browser or a provider may present";
    const INSERT: &str =
        "INSERT INTO known_browsers (token_hash, user_id, expires_at) VALUES ($1, $2, 0)";
    let broker = Broker::new(on).await;
    let user = broker.storage.user().await;
    let mut tx = broker.storage.db.begin().await.unwrap();
    // Several pages of SQLite.
    for number in 0..500_u32 {
        let token = [SECRET, &number.to_be_bytes()].concat();
        on_engine!(tx.connection(), c => sqlx::query(INSERT)
            .bind(token).bind(user).execute(c).await.map(drop))
        .unwrap();
    }
    tx.commit().await.unwrap();

    let backup = broker.back_up().await;
    match Manifest::read_and_verify(&backup).unwrap().database {
        Dump::Sqlite { .. } => {
            let copy = fs::read(backup.join("broker.db")).unwrap();
            assert!(!copy.windows(SECRET.len()).any(|part| part == SECRET));
        }
        Dump::Postgres { tables, .. } => {
            let rows = |name: &str| tables.iter().find(|table| table.name == name).unwrap().rows;
            for table in revoke::emptied_tables() {
                assert_eq!(rows(table), 0, "{table}");
            }
            assert_eq!(rows("users"), 1);
            assert_eq!(fs::read(backup.join("known_browsers.copy")).unwrap(), b"");
        }
    }
    let place = TestDatabase::new(on).await;
    broker.restore(&place, &backup).await.unwrap();
    let after = Storage::at(place).await;
    assert_eq!(after.number("SELECT COUNT(*) FROM users").await, 1);
}

#[tokio::test]
async fn the_tables_are_those_of_the_schema_of_the_migrations() {
    let broker = Broker::new(On::Postgres).await;
    broker.storage.user().await;
    execute(&broker.storage.db, "CREATE SCHEMA elsewhere").await;
    let Location::Postgres(options) = broker.storage.database.location().clone() else {
        panic!("this is PostgreSQL")
    };
    let options = options.options([("search_path", "elsewhere,public")]);
    let db = Db::connect(&Location::Postgres(Box::new(options))).await.unwrap();
    let folder = broker.path("made");
    let made = create_backup(&db, &broker.keys, &broker.storage.clock, &folder);
    let Dump::Postgres { tables, .. } = made.await.unwrap().manifest.database else {
        panic!("this is PostgreSQL")
    };
    assert!(tables.iter().any(|table| table.name == "users" && table.rows == 1), "{tables:?}");

    // A table in the way of the broker's would be dumped in its place.
    execute(&broker.storage.db, "CREATE TABLE elsewhere.users (id UUID)").await;
    let folder = broker.path("refused");
    let refused = create_backup(&db, &broker.keys, &broker.storage.clock, &folder).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, BackupError::Dump(DumpError::NoTable("users"))), "{error}");
    assert!(!folder.exists());
    db.close().await;
}

#[tokio::test]
async fn a_key_that_changes_during_a_backup_is_noticed() {
    const WAITING: &str = "\
        SELECT COUNT(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
        WHERE d.datname = current_database() AND l.relation = to_regclass('users') \
          AND NOT l.granted";
    let broker = Broker::new(On::Postgres).await;
    let Storage { db, clock, .. } = &broker.storage;
    // The copy of the table waits for this transaction.
    let mut tx = db.begin().await.unwrap();
    let lock = "LOCK TABLE users IN ACCESS EXCLUSIVE MODE";
    on_engine!(tx.connection(), c => sqlx::query(lock).execute(c).await.map(drop)).unwrap();
    let folder = broker.path("backup");
    let rotation = async {
        let waiting = async {
            while broker.storage.number(WAITING).await == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_mins(1), waiting).await;
        waited.expect("the copy of the table waits for the lock");
        let key = &broker.keys.issuer[0];
        fs::remove_file(key).unwrap();
        generate_if_missing(key).unwrap();
        tx.commit().await.unwrap();
    };
    let (made, ()) = tokio::join!(create_backup(db, &broker.keys, clock, &folder), rotation);
    let error = made.unwrap_err();
    assert!(matches!(error, BackupError::KeysChanged), "{error}");
    assert!(!folder.exists());
    broker.back_up().await;
}

#[tokio::test]
async fn a_key_that_the_broker_cannot_use_is_not_backed_up() {
    let broker = Broker::new(On::Sqlite).await;
    let key = &broker.keys.issuer[0];
    let whole = fs::read_to_string(key).unwrap();
    let Storage { db, clock, .. } = &broker.storage;
    let folder = broker.path("backup");
    for broken in ["", &whole[..whole.len() / 2]] {
        fs::write(key, broken).unwrap();
        let error = create_backup(db, &broker.keys, clock, &folder).await.unwrap_err();
        assert!(matches!(error, BackupError::Keys(_)), "{error}");
        assert!(!folder.exists());
    }
}

async fn a_damaged_backup_is_refused(on: On) {
    let broker = Broker::new(on).await;
    broker.storage.user().await;
    let backup = broker.back_up().await;
    let file = backup.join(match on {
        On::Sqlite => "broker.db",
        On::Postgres => "users.copy",
    });
    let place = TestDatabase::new(on).await;
    let refused = async |part: &str| {
        let error = broker.restore(&place, &backup).await.unwrap_err();
        assert!(matches!(error, BackupError::Damaged(_)), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    let whole = fs::read(&file).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&file, &changed).unwrap();
    refused("differs from its checksum").await;
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    refused("differs from its checksum").await;
    fs::write(&file, &whole).unwrap();

    let manifest = backup.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    for (from, to, part) in [
        ("key-issuer-1", "../issuer-key.pem", "cannot be a name"),
        ("key-issuer-1\",\n      \"bytes", "other\",\n      \"bytes", "no file key-issuer-1"),
        ("\"program\"", "\"another\"", "manifest.json"),
    ] {
        assert!(text.contains(from), "{text}");
        fs::write(&manifest, text.replace(from, to)).unwrap();
        refused(part).await;
    }
    fs::write(&manifest, text.replace("\"format\": 2", "\"format\": 1")).unwrap();
    let error = broker.restore(&place, &backup).await.unwrap_err();
    assert!(matches!(error, BackupError::OtherFormat { format: 1, known: 2 }), "{error}");

    fs::write(&manifest, &text).unwrap();
    broker.restore(&place, &backup).await.unwrap();
}

async fn a_backup_of_another_engine_or_schema_is_refused(on: On) {
    let broker = Broker::new(on).await;
    let backup = broker.back_up().await;
    let other = TestDatabase::new(match on {
        On::Sqlite => On::Postgres,
        On::Postgres => On::Sqlite,
    })
    .await;
    let error = broker.restore(&other, &backup).await.unwrap_err();
    assert!(matches!(error, BackupError::Load(LoadError::OtherEngine { .. })), "{error}");

    let manifest = Manifest::read_and_verify(&backup).unwrap();
    let newer = latest_schema() + 1;
    let dump = match manifest.database {
        Dump::Postgres { tables, .. } => Dump::Postgres { schema: newer, tables },
        Dump::Sqlite { .. } => Dump::Sqlite { schema: newer },
    };
    let database = serde_json::to_value(&dump).unwrap();
    let path = backup.join("manifest.json");
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    json["database"] = database;
    fs::write(&path, json.to_string()).unwrap();
    let place = TestDatabase::new(on).await;
    let error = broker.restore(&place, &backup).await.unwrap_err();
    let is_newer = matches!(error, BackupError::Load(LoadError::Newer { schema, .. })
        if schema == newer);
    assert!(is_newer, "{error}");
}

async fn a_database_that_is_not_empty_is_left_alone(on: On) {
    let broker = Broker::new(on).await;
    let user = broker.storage.user().await;
    start_session(&broker.storage, user).await;
    let backup = broker.back_up().await;
    let error = broker.restore(&broker.storage.database, &backup).await.unwrap_err();
    assert!(matches!(error, BackupError::Load(LoadError::NotEmpty(_))), "{error}");
    let live = "SELECT COUNT(*) FROM sessions WHERE ended_at IS NULL";
    assert_eq!(broker.storage.number(live).await, 1);
    // Neither is an earlier backup replaced.
    let Storage { db, clock, .. } = &broker.storage;
    let error = create_backup(db, &broker.keys, clock, &backup).await.unwrap_err();
    assert!(matches!(error, BackupError::Exists(_)), "{error}");
}

async fn suspensions_after_the_backup_are_repeated_from_the_exported_trail(on: On) {
    let broker = Broker::new(on).await;
    let user = broker.storage.user().await;
    let workspace = broker.storage.workspace(user, WorkspaceStatus::Provisioned).await;
    let (other, resumed) = (broker.storage.user().await, broker.storage.user().await);
    let others = broker.storage.workspace(other, WorkspaceStatus::Provisioned).await;
    broker.record(Event::success(Action::CreateUser).to_user(user)).await;
    broker.seal(&broker.storage.db).await;
    let backup = broker.back_up().await;
    let unknown = broker.storage.clock.random_id();
    let decided = [
        Event::success(Action::SuspendUser).to_user(user),
        Event::success(Action::SuspendUser).to_user(resumed),
        Event::success(Action::ResumeUser).to_user(resumed),
        Event { workspace_id: Some(others), ..Event::success(Action::SuspendWorkspace) },
        // A user who is not in the backup, as their first sign-in at a provider creates them.
        Event {
            user_id: Some(unknown),
            reason: Some("from company, role user".to_owned()),
            ..Event::success(Action::CreateUser)
        },
        Event::success(Action::SuspendUser).to_user(unknown),
    ];
    for event in decided {
        broker.record(event).await;
    }
    broker.seal(&broker.storage.db).await;
    let trail = broker.export("trail.jsonl").await;

    let place = TestDatabase::new(on).await;
    let known = broker.known_keys();
    let restoration = Restoration::begin(place.location(), &backup).await.unwrap();
    let finished = restoration.finish(&broker.storage.clock, Some((&trail, &known))).await;
    let repeated = finished.unwrap().repeated.unwrap();
    assert_eq!((repeated.rows, repeated.users, repeated.workspaces), (6, 1, 2));
    let created = Some("from company, role user".to_owned());
    assert_eq!(repeated.not_in_backup, [UserNotInBackup { id: unknown, created }]);
    assert_eq!(repeated.last.map(|last| last.sequence), Some(7));
    let after = Storage::at(place).await;
    let suspended: Vec<Uuid> = on_engine!(after.db.reader(), pool =>
        sqlx::query_scalar("SELECT id FROM users WHERE status = 'suspended'").fetch_all(pool).await)
    .unwrap();
    assert_eq!(suspended, [user]);
    let suspending: Vec<Uuid> = on_engine!(after.db.reader(), pool =>
        sqlx::query_scalar("SELECT id FROM workspaces WHERE status = 'suspending'")
            .fetch_all(pool).await)
    .unwrap();
    assert!(
        suspending.len() == 2 && suspending.contains(&workspace) && suspending.contains(&others)
    );
    let recorded =
        "SELECT COUNT(*) FROM audit_logs WHERE action IN ('SuspendUser', 'SuspendWorkspace')";
    assert_eq!(after.number(recorded).await, 3);
}

fn tenant_name(text: &str) -> TenantName {
    text.parse().unwrap()
}

/// The row of the Tenant of this name.
async fn observe(tenants: &Tenants, name: &str) -> TenantRow {
    let (name, group) = (tenant_name(name), ApiGroup::TenantBroker);
    match tenants.observe(&name, group, &format!("uid-{name}")).await.unwrap() {
        Observed::Current(row) => row,
        other => panic!("{other:?}"),
    }
}

/// A new user who joined the tenant, and the membership.
async fn member(storage: &Storage, tenant: &TenantRow) -> (Uuid, Uuid) {
    let workspaces = storage.workspaces().await;
    let user = storage.user().await;
    let request = MembershipRequest { tenant: tenant.clone(), user, tier: "basic".to_owned() };
    // The cluster refuses connections, so there is no ServiceAccount.
    workspaces.add_member(&request).await.unwrap_err();
    (user, workspaces.memberships_of(user).await.unwrap()[0].workspace)
}

async fn a_restore_revives_neither_tenants_nor_memberships_that_were_suspended(on: On) {
    use TenantStatus::{Active, Resuming, Suspended, Suspending};
    let broker = Broker::new(on).await;
    let Storage { db, clock, .. } = &broker.storage;
    let tenants = Tenants::new(db.clone(), clock.clone());
    let [solar, lunar, stellar, venus] =
        ["solar", "lunar", "stellar", "venus"].map(|name| observe(&tenants, name));
    let (solar, lunar, stellar, venus) = (solar.await, lunar.await, stellar.await, venus.await);
    tenants.advance(&lunar, Resuming).await.unwrap().unwrap();
    tenants.advance(&venus, Suspended).await.unwrap().unwrap();
    let (_, suspended) = member(&broker.storage, &solar).await;
    let (_, left) = member(&broker.storage, &solar).await;
    let mut tx = db.begin().await.unwrap();
    on_engine!(tx.connection(), c => sqlx::query(
        "UPDATE workspaces SET status = 'suspended', left_status = 'provisioned' WHERE id = $1")
        .bind(left).execute(c).await.map(drop))
    .unwrap();
    tx.commit().await.unwrap();
    broker.seal(db).await;
    let backup = broker.back_up().await;

    let of_tenant =
        |action, reason: &str| Event { reason: Some(reason.to_owned()), ..Event::success(action) };
    let of_membership = |action, id| Event { workspace_id: Some(id), ..Event::success(action) };
    let (newcomer, unknown) = (clock.random_id(), clock.random_id());
    let joined = of_tenant(Action::JoinTenant, "tenant solar");
    let decided = [
        of_tenant(Action::SuspendTenant, "tenant solar: leak"),
        of_tenant(Action::SuspendTenant, "tenant stellar"),
        of_tenant(Action::ResumeTenant, "tenant stellar: a mistake"),
        of_tenant(Action::ResumeTenant, "tenant venus"),
        of_tenant(Action::SuspendTenant, "tenant terra"),
        of_membership(Action::SuspendWorkspace, suspended),
        Event { workspace_id: Some(left), ..joined.clone() },
        of_membership(Action::SuspendWorkspace, left),
        Event { workspace_id: Some(unknown), user_id: Some(newcomer), ..joined },
        of_membership(Action::SuspendWorkspace, unknown),
    ];
    for event in decided {
        broker.record(event).await;
    }
    broker.seal(db).await;
    let (trail, known) = (broker.export("trail.jsonl").await, broker.known_keys());
    for trail in [None, Some((&*trail, &known))] {
        let place = TestDatabase::new(on).await;
        let restoration = Restoration::begin(place.location(), &backup).await.unwrap();
        let restored = restoration.finish(clock, trail).await.unwrap();
        assert_eq!(restored.revoked.tenants_suspended, 2, "lunar and venus");
        let after = Storage::at(place).await;
        let tenants = Tenants::new(after.db.clone(), after.clock.clone());
        let is_repeated = trail.is_some();
        for (name, status) in [
            ("lunar", Suspending),
            ("venus", Suspending),
            ("stellar", Active),
            ("solar", if is_repeated { Suspending } else { Active }),
            // It was made after the backup, and is not known before its object is observed.
            ("terra", if is_repeated { Suspending } else { Active }),
        ] {
            assert_eq!(observe(&tenants, name).await.status, status, "{name}");
        }
        assert_eq!(observe(&tenants, "stellar").await, stellar);
        let statuses: Vec<(Uuid, String, Option<String>)> = on_engine!(after.db.reader(), pool =>
            sqlx::query_as("SELECT id, status, left_status FROM workspaces").fetch_all(pool).await)
        .unwrap();
        let of = |id| statuses.iter().find(|(it, ..)| *it == id).unwrap();
        let expected = if is_repeated { "suspending" } else { "provisioning" };
        assert_eq!(of(suspended).1, expected);
        let expected = if is_repeated { "suspended" } else { "provisioned" };
        assert_eq!(of(left).2.as_deref(), Some(expected), "it stays so if the user joins again");
        let recorded = "SELECT COUNT(*) FROM audit_logs WHERE action = 'SuspendTenant'";
        assert_eq!(after.number(recorded).await, if is_repeated { 2 } else { 0 });
        let Some(repeated) = restored.repeated else { continue };
        assert_eq!((repeated.tenants, repeated.workspaces, repeated.users), (2, 2, 0));
        let unknown = MembershipNotInBackup {
            id: unknown,
            user: Some(newcomer),
            tenant: Some(tenant_name("solar")),
        };
        assert_eq!(repeated.memberships_not_in_backup, [unknown]);
    }
}

/// A pipe gives its content once, as `--trail <(age -d trail.age)` does.
#[tokio::test]
async fn suspensions_are_repeated_from_a_pipe() {
    let broker = Broker::new(On::Sqlite).await;
    let user = broker.storage.user().await;
    let backup = broker.back_up().await;
    broker.record(Event::success(Action::SuspendUser).to_user(user)).await;
    broker.seal(&broker.storage.db).await;
    let trail = fs::read(broker.export("trail.jsonl").await).unwrap();
    // The pipe holds it: a pipe of Linux has 64 KiB.
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&trail).unwrap();
    drop(writer);
    let path = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));

    let place = TestDatabase::new(On::Sqlite).await;
    let known = broker.known_keys();
    let restoration = Restoration::begin(place.location(), &backup).await.unwrap();
    let finished = restoration.finish(&broker.storage.clock, Some((&path, &known))).await;
    let repeated = finished.unwrap().repeated.unwrap();
    assert_eq!((repeated.rows, repeated.users), (1, 1));
}

async fn a_trail_of_another_history_is_refused_and_nothing_stays(on: On) {
    let broker = Broker::new(on).await;
    let user = broker.storage.user().await;
    for _ in 0..3 {
        broker.record(Event::success(Action::CreateUser).to_user(user)).await;
    }
    broker.seal(&broker.storage.db).await;
    let whole = broker.export("trail.jsonl").await;
    let backup = broker.back_up().await;
    // A trail that ends before the backup, one that was changed, and one of another broker.
    let text = fs::read_to_string(&whole).unwrap();
    let first_line = text.lines().next().unwrap();
    let another = Broker::new(on).await;
    another.record(Event::success(Action::SignIn)).await;
    another.seal(&another.storage.db).await;
    let trails = [
        format!("{first_line}\n"),
        text.replacen("CreateUser", "SuspendUser", 1),
        fs::read_to_string(another.export("other.jsonl").await).unwrap(),
    ];
    let place = TestDatabase::new(on).await;
    let known = broker.known_keys();
    for trail in trails {
        let path = broker.path("refused.jsonl");
        fs::write(&path, &trail).unwrap();
        let restoration = Restoration::begin(place.location(), &backup).await.unwrap();
        let finished = restoration.finish(&broker.storage.clock, Some((&path, &known))).await;
        let error = finished.unwrap_err();
        assert!(matches!(error, BackupError::Trail { .. }), "{error}\n{trail}");
    }
    // Nothing of the attempts is in the way.
    broker.restore(&place, &backup).await.unwrap();
}
