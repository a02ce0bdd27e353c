//! Lookup of workspaces and people by their names among a hundred thousand.

use http::{Method, StatusCode};
use integration::engine::On;
use integration::world::World;
use sqlx::{Connection as _, PgConnection, SqliteConnection};
use tenant_shared::{SuspendRequest, Workspace, WorkspaceList, WorkspaceStatus};

integration::on_both_engines!(the_kill_switch_finds_a_workspace_among_many);

/// A hundred thousand older workspaces; they are `failed`, so neither the sweep nor the drift check
/// works on them.
const POSTGRES: [&str; 2] = [
    "INSERT INTO users (id, email, status, role, created_at) \
     SELECT gen_random_uuid(), 'many' || n || '@example.com', 'active', 'user', n \
     FROM generate_series(1, 100000) n",
    "INSERT INTO workspaces (id, user_id, cluster, k8s_namespace, k8s_sa_name, tier, quota_cpu, \
       quota_memory, status, status_changed_at, created_at) \
     SELECT gen_random_uuid(), id, 'internal-cluster', 'tenant-' || id, 'sa-tenant-admin', 'basic', \
       '4', '8Gi', 'failed', created_at, created_at FROM users WHERE email LIKE 'many%'",
];
const SQLITE: [&str; 2] = [
    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100000) \
     INSERT INTO users (id, email, status, role, created_at) \
     SELECT randomblob(16), 'many' || n || '@example.com', 'active', 'user', n FROM numbers",
    "INSERT INTO workspaces (id, user_id, cluster, k8s_namespace, k8s_sa_name, tier, quota_cpu, \
       quota_memory, status, status_changed_at, created_at) \
     SELECT randomblob(16), id, 'internal-cluster', 'tenant-' || lower(hex(id)), \
       'sa-tenant-admin', 'basic', '4', '8Gi', 'failed', created_at, created_at \
     FROM users WHERE email LIKE 'many%'",
];

async fn fill(world: &World, on: On) {
    let url = world.database_url().unwrap();
    match on {
        On::Postgres => {
            let mut connection = PgConnection::connect(url.as_str()).await.unwrap();
            for statement in POSTGRES {
                sqlx::query(statement).execute(&mut connection).await.unwrap();
            }
        }
        On::Sqlite => {
            let mut connection = SqliteConnection::connect(url.as_str()).await.unwrap();
            for statement in SQLITE {
                sqlx::query(statement).execute(&mut connection).await.unwrap();
            }
        }
    }
}

async fn the_kill_switch_finds_a_workspace_among_many(on: On) {
    let builder = match on {
        On::Sqlite => World::builder(),
        On::Postgres => World::builder().postgres(),
    };
    let world = builder.start().await.unwrap();
    let (alice, bob) = (world.person("alice").await.unwrap(), world.person("bob").await.unwrap());
    let (of_alice, of_bob) = (alice.api().await.unwrap(), bob.api().await.unwrap());
    let (workspace, _) = of_alice.init("basic").await.unwrap();
    let (bobs, _) = of_bob.init("basic").await.unwrap();
    of_alice.credential(workspace.id).await.unwrap();
    let operator = world.administrator("operator").await.unwrap();
    operator.login(&[]).await.unwrap().success().unwrap();
    let admin = operator.api().await.unwrap();
    fill(&world, on).await;
    let run = async |args: &[&str]| {
        let args = ["tenant"].iter().chain(args);
        operator.kubectl().run(args).await.unwrap().success().unwrap()
    };

    let (namespace, email) = (alice.namespace(), bob.email().to_uppercase());
    let issued = run(&["credentials", alice.email()]).await;
    assert!(issued.stdout.contains("live") && issued.stdout.contains(alice.email()), "{issued:?}");
    run(&["usage", &namespace]).await;
    let told = run(&["suspend", &namespace, "--reason", "leaked laptop"]).await;
    assert!(told.stderr.contains("is suspended: its tokens are invalid"), "{told:?}");
    let told = run(&["suspend", &email]).await;
    assert!(told.stderr.contains("is suspended: its tokens are invalid"), "{told:?}");
    for (api, id) in [(&of_alice, workspace.id), (&of_bob, bobs.id)] {
        assert_eq!(api.workspace(id).await.unwrap().status, WorkspaceStatus::Suspended);
    }
    // The trail, by the person's name, with the addresses of the actors.
    let trail = run(&["audit", alice.email(), "--action", "SuspendWorkspace"]).await;
    assert!(trail.stdout.contains("leaked laptop"), "{trail:?}");
    assert!(trail.stdout.contains(operator.email()), "{trail:?}");
    // People too: their sessions, and their suspension.
    let sessions = run(&["sessions", "--user", &namespace]).await;
    assert!(sessions.stdout.lines().count() > 1, "{sessions:?}");
    run(&["sessions", "revoke", "--all", "--user", alice.email()]).await;
    let refused = super::refused(of_alice.me().await);
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    let told = run(&["users", "suspend", &email, "--reason", "left"]).await;
    assert!(told.stdout.contains(bob.email()) && told.stdout.contains("suspended"), "{told:?}");
    run(&["users", "resume", bob.email()]).await;

    // A long list is truncated, and says so.
    let listed = run(&["workspaces", "--all", "--limit", "700", "-o", "json"]).await;
    let list: WorkspaceList = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!((list.items.len(), list.next_cursor.is_some()), (700, true));
    assert!(listed.stderr.contains("stopped after 700; there are more"), "{listed:?}");
    assert_eq!(list.items[0].owner_email.as_deref(), Some("many1@example.com"));
    // A client without pagination gets an error instead of a part of the list.
    let refused = super::refused(admin.workspaces(true).await);
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.body.contains("more than 10000 workspaces"), "{refused}");
    // Without access a workspace that exists gets the same response as one that does not.
    let carol = world.person("carol").await.unwrap().api().await.unwrap();
    let nobody = ["tenant-x", "x@example.com", "00000000-0000-0000-0000-000000000000"];
    let (id, owner) = (bobs.id.to_string(), bob.id().to_string());
    let mut answers = Vec::new();
    for name in [&bob.namespace(), bob.email(), &id, &owner].into_iter().chain(nobody) {
        let path = format!("workspaces/lookup?name={name}");
        let answer = carol.request(Method::GET, &path).unwrap().send().await.unwrap();
        let status = answer.status();
        let problem: tenant_shared::Problem = answer.json().await.unwrap();
        answers.push((status, problem.code, problem.title, problem.detail));
    }
    assert_eq!(answers[0].0, StatusCode::NOT_FOUND);
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    // The owner finds their own workspace, as an administrator does.
    let path = format!("workspaces/lookup?name={}", bob.email());
    let of_bob = bob.api().await.unwrap();
    for api in [&of_bob, &admin] {
        let answer = api.request(Method::GET, &path).unwrap().send().await.unwrap();
        let found: Vec<Workspace> = answer.json::<WorkspaceList>().await.unwrap().items;
        assert_eq!(found.iter().map(|it| it.id).collect::<Vec<_>>(), [bobs.id]);
    }
    let still = admin.suspend(bobs.id, &SuspendRequest::default()).await.unwrap();
    assert_eq!(still.status, WorkspaceStatus::Suspended);
}
