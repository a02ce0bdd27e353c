//! Backup of a running broker, and its restore: what a restore must not revive, what it keeps, and
//! what it finds in the cluster.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use integration::api::Api;
use integration::engine::On;
use integration::kubectl::Kubectl;
use integration::person::Person;
use integration::postgres::Database;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::Value;
use tenant_shared::{Code, SuspendRequest, WorkspaceStatus};
use uuid::Uuid;

integration::on_both_engines!(a_restored_broker_revives_nothing_and_serves_everybody);

/// Time limit of what the sweep does after a restore.
const SWEEP_TIMEOUT: Duration = Duration::from_mins(1);

async fn start(on: On) -> World {
    let builder = World::builder().setting("sweep_seconds", 1);
    match on {
        On::Sqlite => builder,
        On::Postgres => builder.postgres(),
    }
    .start()
    .await
    .unwrap()
}

/// Stops the broker and takes its database away, on SQLite with the generated key. The configured
/// database is empty then.
pub(crate) async fn lose_database(world: &World, on: On) -> Option<Database> {
    let broker = world.broker();
    broker.stop().await.unwrap();
    match on {
        On::Sqlite => {
            for name in ["broker.db", "issuer-key.pem"] {
                std::fs::remove_file(broker.state_dir().join(name)).unwrap();
            }
            for name in ["broker.db-wal", "broker.db-shm"] {
                let _ = std::fs::remove_file(broker.state_dir().join(name));
            }
            None
        }
        On::Postgres => {
            let database = world.postgres().unwrap().database("restored").await.unwrap();
            broker.set("database.url", database.url().as_str());
            Some(database)
        }
    }
}

/// Returns a kubectl with a token that was just issued, outside of any cache.
async fn with_fresh_token(world: &World, api: &Api, name: &str) -> Kubectl {
    let file = world.folder().join(format!("{name}.kubeconfig"));
    std::fs::write(&file, api.kubeconfig("static").await.unwrap()).unwrap();
    let kubectl = world.kubectl_with(&file).unwrap();
    kubectl.run(["get", "secrets"]).await.unwrap().success().unwrap();
    kubectl
}

/// Waits until the API server refuses this token.
async fn is_refused(kubectl: &Kubectl) {
    probe::until("the token to end", SWEEP_TIMEOUT, || async {
        let tried = kubectl.run(["get", "secrets"]).await?;
        Ok(if tried.status.success() { Probe::NotYet(tried.stdout) } else { Probe::Ready(()) })
    })
    .await
    .unwrap();
}

async fn reaches(api: &Api, id: Uuid, wanted: WorkspaceStatus) {
    probe::until("the status", SWEEP_TIMEOUT, || async {
        let status = api.workspace(id).await?.status;
        Ok(if status == wanted { Probe::Ready(()) } else { Probe::NotYet(format!("{status:?}")) })
    })
    .await
    .unwrap();
}

/// Exports the sealed trail once it has this action, into a file.
async fn export(world: &World, action: &str) -> PathBuf {
    let wanted = format!("\"action\":\"{action}\"");
    let text = probe::until("the sealed row", SWEEP_TIMEOUT, || async {
        let text = world.broker().run(&["audit", "export"]).await?.success()?.stdout;
        Ok(if text.contains(&wanted) { Probe::Ready(text) } else { Probe::NotYet(text) })
    })
    .await
    .unwrap();
    let file = world.folder().join("trail.jsonl");
    std::fs::write(&file, text).unwrap();
    file
}

/// Returns the head of the verified trail, as `--expect` takes it.
async fn head(world: &World) -> String {
    let verified = world.broker().run(&["audit", "verify", "-o", "json"]).await.unwrap();
    let report: Value = serde_json::from_str(&verified.success().unwrap().stdout).unwrap();
    format!("{}:{}", report["head"]["sequence"], report["head"]["hash"].as_str().unwrap())
}

async fn unauthorized(api: &Api) {
    assert_eq!(super::refused(api.me().await).status, StatusCode::UNAUTHORIZED);
}

/// Suspends a workspace and waits for the end.
async fn suspend(admin: &Api, id: Uuid) {
    let suspension = admin.suspend(id, &SuspendRequest::default()).await.unwrap();
    assert_eq!(suspension.status, WorkspaceStatus::Suspended);
}

/// Resumes a workspace as soon as that is allowed.
async fn resume(admin: &Api, id: Uuid) {
    probe::until("the resumption", SWEEP_TIMEOUT, || async {
        Ok(match admin.resume(id, &SuspendRequest::default()).await {
            Ok(done) if done.status == WorkspaceStatus::Provisioned => Probe::Ready(()),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
}

async fn init(person: &Person) -> (Api, Uuid) {
    let api = person.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    (api, workspace.id)
}

async fn a_restored_broker_revives_nothing_and_serves_everybody(on: On) {
    let world = start(on).await;
    let broker = world.broker();
    let (alice, bob) = (world.person("alice").await.unwrap(), world.person("bob").await.unwrap());
    let operator = world.administrator("operator").await.unwrap();
    let admin = operator.api().await.unwrap();
    let ((of_alice, hers), (of_bob, his)) = (init(&alice).await, init(&bob).await);
    let revoked = alice.sign_in().await.unwrap();

    // The backup is taken while tokens are issued.
    let folder = world.folder().join("backup");
    let folder = folder.to_str().unwrap();
    let stop = AtomicBool::new(false);
    let load = async {
        let mut issued = 0;
        while !stop.load(Ordering::Relaxed) {
            of_alice.credential(hers).await.unwrap();
            issued += 1;
        }
        issued
    };
    let backup = async {
        let finished = broker.run(&["backup", "--to", folder]).await.unwrap();
        stop.store(true, Ordering::Relaxed);
        finished
    };
    let (tokens, finished) = tokio::join!(load, backup);
    assert!(tokens > 0 && finished.status.success(), "{finished:?}");

    // What happens afterwards is not in the backup.
    alice.issuer().await.unwrap().revoke(&revoked.refresh_token).await.unwrap();
    let late = alice.api().await.unwrap();
    let stolen = with_fresh_token(&world, &late, "stolen").await;
    suspend(&admin, his).await;
    let carol = world.person("carol").await.unwrap();
    init(&carol).await;
    export(&world, "SuspendWorkspace").await;
    let lost_head = head(&world).await;

    let database = lose_database(&world, on).await;
    let restore = ["restore", "--from", folder];
    let restored = broker.run(&restore).await.unwrap().success().unwrap().stdout;
    assert!(restored.contains("NOT REPEATED"), "{restored}");
    let again = broker.run(&restore).await.unwrap();
    assert!(again.code() == 1 && again.stderr.contains("is not empty"), "{again:?}");
    broker.start().await.unwrap();

    // No session lives on, whether it is in the backup, was revoked since, or began later.
    for api in [&of_alice, &of_bob, &admin, &late] {
        unauthorized(api).await;
    }
    let issuer = alice.issuer().await.unwrap();
    issuer.refresh(&revoked.refresh_token).await.expect_err("it was revoked");
    // Nor does a token that is not on the ledger.
    is_refused(&stolen).await;
    // Everybody but the users who are not in the backup signs in again.
    let (of_alice, admin) = (alice.api().await.unwrap(), operator.api().await.unwrap());
    assert_eq!(of_alice.workspaces(false).await.unwrap().items[0].id, hers);
    with_fresh_token(&world, &of_alice, "fresh").await;
    carol.sign_in().await.expect_err("her account is younger than the backup");

    // The namespace says that the workspace was suspended later, so it is.
    reaches(&admin, his, WorkspaceStatus::Suspended).await;
    let of_bob = bob.api().await.unwrap();
    assert_eq!(super::refused(of_bob.credential(his).await).code(), Code::WorkspaceSuspended);
    let query = format!("workspace_id={his}&action=SuspendWorkspace");
    let reasons = admin.audit_logs(&query).await.unwrap().items;
    let reason = reasons[0].reason.as_deref().unwrap_or_default();
    assert!(reasons.len() == 1 && reason.contains("the suspended label"), "{reasons:?}");
    resume(&admin, his).await;
    with_fresh_token(&world, &of_bob, "resumed").await;
    // Nobody deletes a namespace whose workspace is not known.
    let namespace = super::object(&world, &["namespace", &carol.namespace()]).await.unwrap();
    assert!(namespace.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_null()));

    // The trail goes on from the backup, and an auditor who kept a later head sees that rows are
    // lost.
    let rows = admin.audit_logs("action=RestoreBackup").await.unwrap().items;
    assert!(rows.len() == 1 && rows[0].user_id.is_none(), "{rows:?}");
    export(&world, "RestoreBackup").await;
    broker.run(&["audit", "verify"]).await.unwrap().success().unwrap();
    let expected = broker.run(&["audit", "verify", "--expect", &lost_head]).await.unwrap();
    assert_eq!(expected.code(), 1, "{expected:?}");
    drop(database);
}

#[tokio::test]
async fn later_suspensions_are_repeated_and_later_resumptions_are_not() {
    let world = start(On::Sqlite).await;
    let broker = world.broker();
    let (dora, erin) = (world.person("dora").await.unwrap(), world.person("erin").await.unwrap());
    let operator = world.administrator("operator").await.unwrap();
    let admin = operator.api().await.unwrap();
    let ((_, of_dora), (api, of_erin)) = (init(&dora).await, init(&erin).await);
    suspend(&admin, of_erin).await;
    let folder = world.folder().join("backup");
    let folder = folder.to_str().unwrap();
    broker.run(&["backup", "--to", folder]).await.unwrap().success().unwrap();

    resume(&admin, of_erin).await;
    let late = with_fresh_token(&world, &api, "late").await;
    admin.suspend_user(dora.id(), &SuspendRequest::default()).await.unwrap();
    let trail = export(&world, "SuspendUser").await;

    lose_database(&world, On::Sqlite).await;
    let restore = ["restore", "--from", folder, "--trail", trail.to_str().unwrap()];
    let restored = broker.run(&restore).await.unwrap().success().unwrap().stdout;
    assert!(restored.contains("1 users and 1 workspaces suspended"), "{restored}");
    broker.start().await.unwrap();

    let admin = operator.api().await.unwrap();
    dora.sign_in().await.expect_err("she is suspended");
    reaches(&admin, of_dora, WorkspaceStatus::Suspended).await;
    reaches(&admin, of_erin, WorkspaceStatus::Suspended).await;
    is_refused(&late).await;
    resume(&admin, of_erin).await;
    with_fresh_token(&world, &erin.api().await.unwrap(), "resumed").await;
}
