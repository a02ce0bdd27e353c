//! Upgrades: schemas of earlier versions, two upgrades at once, replicas of two versions on one
//! database.
//!
//! There is only one version of the program here. An earlier database is made by taking back what
//! the later migrations did, and a later one by a migration that the program does not know. `cargo
//! acceptance upgrade` tries two versions of the program.

use futures_util::future::join_all;
use integration::broker::Broker;
use integration::engine::On;
use integration::load_balancer::LoadBalancer;
use integration::traffic::Traffic;
use integration::world::World;
use sqlx::{Connection as _, PgConnection, SqliteConnection};
use tenant_shared::{SuspendRequest, WorkspaceStatus};

use crate::answers::{answers, objects};

integration::on_both_engines!(databases_of_earlier_versions_are_upgraded_with_their_data);

/// What migrations 0015 to 0017 did to the tables, taken back.
const fn drop_tenants(on: On) -> &'static str {
    match on {
        On::Postgres => {
            "\
DROP FUNCTION add_personal_tenant() CASCADE;
DROP INDEX workspaces_tenant_id_user_id;
ALTER TABLE workspaces DROP COLUMN tenant_id;
DROP TABLE tenant_namespaces;
DROP TABLE tenants;"
        }
        On::Sqlite => {
            "\
DROP TRIGGER workspaces_personal_tenant;
DROP INDEX workspaces_tenant_id_user_id;
ALTER TABLE workspaces DROP COLUMN tenant_id;
DROP TABLE tenant_namespaces;
DROP TABLE tenants;"
        }
    }
}

/// What migrations 0019 to 0021 did, taken back.
const DROP_MEMBERSHIPS: &str = "\
DROP TABLE tenant_deleted_bindings;
DROP TABLE namespace_moves;
DROP VIEW membership_homes;
DROP INDEX workspaces_home_namespace;
ALTER TABLE workspaces DROP COLUMN home_namespace;
ALTER TABLE workspaces DROP COLUMN left_status;";

/// What migration 0018 did, taken back.
const DROP_PERSONS: &str = "\
DROP INDEX identities_issuer_user_name;
DROP INDEX users_person_changed_at;
ALTER TABLE identities DROP COLUMN groups;
ALTER TABLE identities DROP COLUMN user_name;
ALTER TABLE users DROP COLUMN groups;
ALTER TABLE users DROP COLUMN email_verified_by;
ALTER TABLE users DROP COLUMN person_changed_at;";

/// The tables are those of schema 14 without tenants and persons.
const TO_SCHEMA_14: &str = "DELETE FROM _sqlx_migrations WHERE version > 14;";

/// What migration 0014 did, taken back.
const TO_SCHEMA_13: &str = "\
DROP TABLE schema_compatibility;
DELETE FROM _sqlx_migrations WHERE version > 13;";

/// What migrations 0008 to 0014 did, taken back.
const TO_SCHEMA_7: &str = "\
DROP TABLE schema_compatibility;
DROP VIEW user_emails;
DROP VIEW active_users;
DROP VIEW user_sessions;
DROP VIEW upstream_identities;
DROP VIEW session_references;
DROP VIEW session_providers;
DROP VIEW workspace_members;
DROP VIEW active_service_accounts;
DROP VIEW workspace_changes;
DROP VIEW session_ends;
DROP VIEW credential_revocations;
DROP INDEX workspaces_created_at;
DROP INDEX refresh_tokens_parent_hash;
ALTER TABLE refresh_tokens DROP COLUMN parent_hash;
ALTER TABLE access_tokens DROP COLUMN scope;
ALTER TABLE authorizations DROP COLUMN user_suspensions;
ALTER TABLE users DROP COLUMN suspensions;
ALTER TABLE workspaces DROP COLUMN k8s_namespace_uid;
DELETE FROM _sqlx_migrations WHERE version > 7;";

pub(crate) async fn execute(world: &World, on: On, statements: &'static str) {
    let url = world.database_url().unwrap();
    match on {
        On::Postgres => {
            let mut connection = PgConnection::connect(url.as_str()).await.unwrap();
            sqlx::raw_sql(statements).execute(&mut connection).await.unwrap();
        }
        On::Sqlite => {
            let mut connection = SqliteConnection::connect(url.as_str()).await.unwrap();
            sqlx::raw_sql(statements).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }
    }
}

/// The exit code of `migrate --check`, and both outputs.
async fn check(world: &World) -> (i32, String) {
    let checked = world.broker().run(&["migrate", "--check"]).await.unwrap();
    (checked.code(), checked.stdout + &checked.stderr)
}

async fn databases_of_earlier_versions_are_upgraded_with_their_data(on: On) {
    let builder = match on {
        On::Sqlite => World::builder(),
        On::Postgres => World::builder().postgres().replicas(2),
    };
    let world = builder.start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let admin = world.administrator("operator").await.unwrap().api().await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let mut session = alice.sign_in().await.unwrap();
    let workspace = alice.api().await.unwrap().workspaces(false).await.unwrap().items[0].id;
    let api = world.anonymous_api().unwrap().with_token(session.access_token.clone());
    let answers_before = answers(&api, workspace).await;
    let objects_before = objects(&world, &alice.namespace()).await;
    assert_eq!(check(&world).await.0, 0);

    for earlier in [TO_SCHEMA_14, TO_SCHEMA_13, TO_SCHEMA_7] {
        for broker in world.brokers() {
            broker.stop().await.unwrap();
        }
        execute(&world, on, DROP_MEMBERSHIPS).await;
        execute(&world, on, DROP_PERSONS).await;
        execute(&world, on, drop_tenants(on)).await;
        execute(&world, on, earlier).await;
        let (code, text) = check(&world).await;
        assert!(code == 1 && text.contains("  0016 personal tenants\n"), "{code}: {text}");
        assert!(text.contains("  0019 memberships\n"), "{text}");
        // All replicas at once: one of them migrates, the others wait.
        for started in join_all(world.brokers().iter().map(Broker::start)).await {
            started.unwrap();
        }
        assert_eq!(check(&world).await.0, 0);

        // The session goes on, and so does everything else.
        let issuer = alice.issuer().await.unwrap();
        session = issuer.refresh(&session.refresh_token).await.unwrap();
        for broker in world.brokers() {
            let api = world.anonymous_api().unwrap().with_token(session.access_token.clone());
            let api = api.at(&broker.url().unwrap()).unwrap();
            assert_eq!(api.me().await.unwrap().email, alice.email());
            assert_eq!(answers(&api, workspace).await, answers_before);
        }
        assert_eq!(objects(&world, &alice.namespace()).await, objects_before);
        alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
        let (again, created) = alice.api().await.unwrap().init("basic").await.unwrap();
        assert_eq!((again.id, created), (workspace, false));
    }
    let suspension = admin.suspend(workspace, &SuspendRequest::default()).await.unwrap();
    assert_eq!(suspension.status, WorkspaceStatus::Suspended);
    assert!(!alice.kubectl().run(["get", "pods"]).await.unwrap().status.success());
}

/// What a newer version does to a database that this one may still use.
const NEWER_SCHEMA: &str = "\
ALTER TABLE workspaces ADD COLUMN of_a_newer_version TEXT;
CREATE TABLE of_a_newer_version (id BIGINT PRIMARY KEY);
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
SELECT MAX(version) + 1, 'newer', true, '\\x00'::bytea, 0 FROM _sqlx_migrations;
UPDATE schema_compatibility SET oldest_program = (SELECT MAX(version) - 1 FROM _sqlx_migrations);";

/// What a still newer version does, which this one would misread.
const INCOMPATIBLE_SCHEMA: &str = "\
UPDATE schema_compatibility SET oldest_program = (SELECT MAX(version) FROM _sqlx_migrations);";

/// The schema of a newer version is applied while replicas run; then one after the other stops with
/// SIGTERM and starts again. The load balancer goes on to the next replica if one refuses a
/// connection, and retries nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_upgrade_fails_no_request() {
    let balancer = LoadBalancer::start().await.unwrap();
    let public_url = format!("https://127.0.0.1:{}", balancer.port());
    let builder = World::builder().postgres().replicas(2).tls().setting("public_url", public_url);
    let world = builder.start().await.unwrap();
    balancer.forward_to(world.brokers()).unwrap();
    let alice = world.person("alice").await.unwrap();
    let traffic = Traffic::prepare(&world, &alice).await.unwrap();
    let upgrade = async {
        traffic.continues().await?;
        execute(&world, On::Postgres, NEWER_SCHEMA).await;
        traffic.continues().await?;
        for broker in world.brokers() {
            assert!(broker.stop().await?.success());
            traffic.continues().await?;
            broker.start().await?;
            traffic.continues().await?;
        }
        traffic.end();
        anyhow::Ok(())
    };
    tokio::try_join!(upgrade, traffic.call(), traffic.kubectl()).unwrap();
    assert!(balancer.redirected() > 0, "no connection was refused, so nothing was tried");

    // A schema that needs a newer program: this one keeps running, and does not start again.
    let (code, text) = check(&world).await;
    assert!(code == 0 && text.contains("may use"), "{code}: {text}");
    execute(&world, On::Postgres, INCOMPATIBLE_SCHEMA).await;
    let (code, text) = check(&world).await;
    assert!(code == 2 && text.contains("Start the newer version"), "{code}: {text}");
    assert_eq!(world.broker().run(&["migrate"]).await.unwrap().code(), 1);
    world.broker().stop().await.unwrap();
    let refused = format!("{:#}", world.broker().start().await.unwrap_err());
    assert!(refused.contains("needs a tenant-broker that knows schema"), "{refused}");
    alice.api().await.unwrap().me().await.unwrap();
}
