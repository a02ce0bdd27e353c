//! The work of an auditor: from a line of the cluster's log to a person, and the integrity of the
//! trail.

use std::time::Duration;

use http::Method;
use integration::{api::Api, engine::On, world::World};
use serde_json::Value;
use tenant_shared::SuspendRequest;

integration::on_both_engines!(
    a_line_of_the_clusters_log_names_the_person,
    a_trail_is_verified_offline,
    an_owner_does_not_see_the_address_of_an_administrator,
);

async fn world(on: On) -> World {
    let builder = World::builder();
    match on {
        On::Sqlite => builder,
        On::Postgres => builder.postgres(),
    }
    .start()
    .await
    .unwrap()
}

async fn a_line_of_the_clusters_log_names_the_person(on: On) {
    let world = world(on).await;
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    alice.kubectl().run(["get", "configmaps"]).await.unwrap().success().unwrap();

    // The entries of the cluster's log about that request.
    let events = world.cluster().audit_events(&alice.namespace()).unwrap();
    let name = format!("system:serviceaccount:{}:sa-tenant-admin", alice.namespace());
    let line = events
        .iter()
        .find(|event| {
            event["user"]["username"] == name && event["objectRef"]["resource"] == "configmaps"
        })
        .expect("her request is in the cluster's audit log");
    let shown = &line["user"]["extra"]["authentication.kubernetes.io/credential-id"][0];
    let id = shown.as_str().unwrap();

    let found = world.broker().run(&["audit", "who", id, "-o", "json"]).await.unwrap();
    let found: Value = serde_json::from_str(&found.success().unwrap().stdout).unwrap();
    assert_eq!(found["email"], alice.email());
    assert_eq!(found["user_id"], alice.id().to_string());
    assert_eq!(found["namespace"], alice.namespace());
    assert_eq!(found["session"]["client_id"], "kubectl-tenant");
    assert_eq!(found["audit"]["action"], "IssueCredential");
    assert_eq!(found["audit"]["ip_address"], "127.0.0.1");
    assert!(found["audit"]["request_id"].is_string() && found["expires_at"].is_string());

    let bare = id.strip_prefix("JTI=").unwrap();
    let table = world.broker().run(&["audit", "who", bare]).await.unwrap().success().unwrap();
    assert!(table.stdout.contains(alice.email()) && table.stdout.contains(bare), "{table:?}");

    let unknown = "JTI=00000000-0000-4000-8000-000000000000";
    let unknown = world.broker().run(&["audit", "who", unknown]).await.unwrap();
    assert!(!unknown.status.success() && unknown.stderr.contains("on the ledger"), "{unknown:?}");
    let wrong = world.broker().run(&["audit", "who", "alice"]).await.unwrap();
    assert!(!wrong.status.success() && wrong.stderr.contains("credential-id"), "{wrong:?}");
}

/// Exports the trail once it holds this number of rows of this action.
async fn exported(admin: &Api, action: &str, rows: usize) -> String {
    let wanted = format!("\"action\":\"{action}\"");
    tokio::time::timeout(Duration::from_mins(1), async {
        loop {
            let request = admin.request(Method::GET, "audit-logs/export").unwrap();
            let answer = request.send().await.unwrap();
            assert_eq!(answer.headers()["content-type"], "application/jsonl");
            let text = answer.text().await.unwrap();
            if text.matches(&wanted).count() >= rows {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("the broker seals its rows")
}

async fn a_trail_is_verified_offline(on: On) {
    let world = world(on).await;
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    api.credential(workspace.id).await.unwrap();
    // A person tries an action that needs an administrator, and then an administrator performs it.
    super::refused(api.suspend(workspace.id, &SuspendRequest::default()).await);
    let operator = world.administrator("operator").await.unwrap();
    let admin = operator.api().await.unwrap();
    admin.suspend(workspace.id, &SuspendRequest::default()).await.unwrap();

    let text = exported(&admin, "SuspendWorkspace", 2).await;
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |outcome: &str| {
        let found = |row: &&Value| row["action"] == "SuspendWorkspace" && row["outcome"] == outcome;
        rows.iter().find(found).unwrap().clone()
    };
    assert_eq!(of("refused")["user_id"], alice.id().to_string());
    assert_eq!(of("refused")["workspace_id"], workspace.id.to_string());
    assert_eq!(of("success")["user_id"], operator.id().to_string());
    assert_eq!(of("success")["subject_user_id"], alice.id().to_string());
    // She sees the actions of others on her workspace.
    let hers = api.audit_logs("action=SuspendWorkspace").await.unwrap();
    assert!(hers.items.iter().any(|row| row.subject_user_id == Some(alice.id())), "{hers:?}");

    // Verifies the database while the broker runs.
    let broker = world.broker();
    let verified = broker.run(&["audit", "verify", "-o", "json"]).await.unwrap();
    let outcome: Value = serde_json::from_str(&verified.success().unwrap().stdout).unwrap();
    assert_eq!(outcome["intact"], true, "{outcome}");
    let head =
        format!("{}:{}", outcome["head"]["sequence"], outcome["head"]["hash"].as_str().unwrap());

    // Verifies the copy with separately stored keys.
    let [copy, keys] = ["trail.jsonl", "keys.json"].map(|name| world.folder().join(name));
    let known = broker.run(&["audit", "keys"]).await.unwrap().success().unwrap();
    std::fs::write(&keys, known.stdout).unwrap();
    let exported = broker.run(&["audit", "export"]).await.unwrap().success().unwrap();
    std::fs::write(&copy, &exported.stdout).unwrap();
    let (copy, keys) = (copy.to_str().unwrap(), keys.to_str().unwrap());
    let of_copy = ["audit", "verify", "--file", copy, "--keys", keys, "--expect", &head];
    let verified = broker.run(&of_copy).await.unwrap().success().unwrap();
    assert!(verified.stdout.contains("is as it was sealed"), "{verified:?}");

    let changed = exported.stdout.replacen("\"refused\"", "\"success\"", 1);
    assert_ne!(changed, exported.stdout);
    std::fs::write(copy, changed).unwrap();
    let verified = broker.run(&of_copy).await.unwrap();
    assert_eq!(verified.status.code(), Some(1));
    assert!(verified.stdout.contains("changed, added or moved"), "{verified:?}");
    let missing = ["audit", "verify", "--file", "/nowhere", "--keys", keys];
    assert_eq!(broker.run(&missing).await.unwrap().status.code(), Some(2));
}

#[tokio::test]
async fn people_read_what_happened_with_the_plugin() {
    let world = World::builder().start().await.unwrap();
    let (alice, bob) = (world.person("alice").await.unwrap(), world.person("bob").await.unwrap());
    let operator = world.administrator("operator").await.unwrap();
    for person in [&alice, &bob, &operator] {
        person.login(&[]).await.unwrap().success().unwrap();
    }
    alice.kubectl().run(["get", "configmaps"]).await.unwrap().success().unwrap();

    let hers = alice.kubectl().run(["tenant", "audit"]).await.unwrap().success().unwrap().stdout;
    assert!(hers.starts_with("TIME"), "{hers}");
    for action in ["SignIn", "InitWorkspace", "IssueCredential"] {
        assert!(hers.contains(&format!("{action}   ")), "{action} is not in {hers}");
    }
    assert!(hers.contains(alice.email()) && !hers.contains(bob.email()), "{hers}");

    let tokens = ["tenant", "audit", "--action", "IssueCredential", "--limit", "1"];
    let tokens = alice.kubectl().json(tokens).await.unwrap();
    assert_eq!(tokens["items"].as_array().unwrap().len(), 1);
    assert_eq!(tokens["items"][0]["user_id"], alice.id().to_string());

    // An administrator sees all persons by name, and filters by one workspace.
    let namespace = alice.namespace();
    let all = operator.kubectl().run(["tenant", "audit", "--limit", "500"]).await.unwrap();
    assert!([&alice, &bob].iter().all(|it| all.stdout.contains(it.email())), "{all:?}");
    let one = operator.kubectl().run(["tenant", "audit", &namespace]).await.unwrap();
    assert!(one.stdout.contains(alice.email()) && !one.stdout.contains(bob.email()), "{one:?}");

    let foreign = bob.kubectl().run(["tenant", "audit", &namespace]).await.unwrap();
    assert_eq!(foreign.status.code(), Some(5), "{foreign:?}");
    let nothing = bob.kubectl().run(["tenant", "audit", "--action", "Nonsense"]).await.unwrap();
    assert!(nothing.stderr.contains("docs/audit.md"), "{nothing:?}");
}

async fn an_owner_does_not_see_the_address_of_an_administrator(on: On) {
    let world = world(on).await;
    let owner = world.person("alice").await.unwrap().api().await.unwrap();
    let (workspace, _) = owner.init("basic").await.unwrap();
    let operator = world.administrator("operator").await.unwrap();
    let admin = operator.api().await.unwrap();
    admin.suspend(workspace.id, &SuspendRequest::default()).await.unwrap();

    let seen = async |api: &Api, action: &str| {
        let query = format!("action={action}&workspace_id={}", workspace.id);
        api.audit_logs(&query).await.unwrap().items.remove(0)
    };
    let shown = seen(&admin, "SuspendWorkspace").await;
    assert!(shown.ip_address.is_some() && shown.session_id.is_some(), "{shown:?}");
    let hidden = seen(&owner, "SuspendWorkspace").await;
    assert_eq!((hidden.ip_address, hidden.session_id), (None, None));
    assert_eq!((hidden.id, hidden.user_id), (shown.id, Some(operator.id())));
    let own = seen(&owner, "InitWorkspace").await;
    assert!(own.ip_address.is_some() && own.session_id.is_some(), "{own:?}");
}
