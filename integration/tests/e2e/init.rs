//! `POST /workspaces/init`: repeated, concurrent, across crashes, and with the cluster down.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use integration::api::Api;
use integration::fault_proxy::{Fault, Rule};
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::json;
use tenant_shared::{Code, WorkspaceStatus};

/// The objects of a workspace, in the order of creation.
const OBJECTS: [(&str, &str); 5] = [
    ("namespace", ""),
    ("resourcequota", "tenant-quota"),
    ("limitrange", "tenant-limits"),
    ("serviceaccount", "sa-tenant-admin"),
    ("rolebinding", "rb-tenant-admin"),
];

/// Counts a workspace's existing objects.
async fn objects(world: &World, namespace: &str) -> usize {
    let mut there = 0;
    for (kind, name) in OBJECTS {
        let args: Vec<&str> = match kind {
            "namespace" => vec![kind, namespace],
            _ => vec![kind, name, "-n", namespace],
        };
        there += usize::from(super::object(world, &args).await.unwrap().is_some());
    }
    there
}

#[tokio::test]
async fn all_objects_exist_before_the_201_and_again_is_a_200_with_the_same_body() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let (first, created) = api.init("basic").await.unwrap();
    assert!(created);
    assert_eq!(objects(&world, &alice.namespace()).await, OBJECTS.len());
    assert_eq!(first.namespace, alice.namespace());
    assert_eq!(first.status, WorkspaceStatus::Provisioned);
    assert_eq!((first.quota.cpu.as_str(), first.quota.memory.as_str()), ("4", "8Gi"));
    assert_eq!(first.cluster, "internal-cluster");

    let (second, created) = api.init("basic").await.unwrap();
    assert!(!created);
    assert_eq!(first, second);
    assert_eq!(super::refused(api.init("premium").await).code(), Code::TierConflict);
}

async fn sixteen_at_once(world: World) {
    let alice = world.person("alice").await.unwrap();
    let session = alice.sign_in().await.unwrap();
    let calls: Vec<_> = (0..16)
        .map(|index| {
            let broker = &world.brokers()[index % world.brokers().len()];
            let api = world.anonymous_api().unwrap().with_token(session.access_token.clone());
            let api = api.at(&broker.url().unwrap()).unwrap();
            tokio::spawn(async move { api.init("basic").await })
        })
        .collect();
    let mut created = 0;
    let mut bodies = Vec::new();
    for call in calls {
        let (workspace, new) = call.await.unwrap().unwrap();
        created += usize::from(new);
        bodies.push(workspace);
    }
    assert_eq!(created, 1, "one call made it");
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    assert_eq!(objects(&world, &alice.namespace()).await, OBJECTS.len());
}

#[tokio::test]
async fn sixteen_calls_at_once_make_one_workspace_on_sqlite() {
    sixteen_at_once(World::builder().start().await.unwrap()).await;
}

#[tokio::test]
async fn sixteen_calls_at_once_on_two_replicas_make_one_workspace() {
    sixteen_at_once(World::builder().postgres().replicas(2).start().await.unwrap()).await;
}

/// The broker's requests to the API server while it creates a workspace, in order.
const CALLS: [&str; 5] =
    ["/namespaces", "/resourcequotas", "/limitranges", "/serviceaccounts", "/rolebindings"];

/// Limit of the time until the sweep has finished, which may wait for a claim of 45 s.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(90);

/// Waits until the sweep has finished the caller's one workspace.
async fn swept(api: &Api) {
    probe::until("the sweep", SWEEP_TIMEOUT, || async {
        let list = api.workspaces(false).await?;
        Ok(match list.items.as_slice() {
            [one] if one.status == WorkspaceStatus::Provisioned => Probe::Ready(()),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_crash_after_any_step_is_finished_by_the_next_sweep() {
    let world = World::builder().fault_proxy().setting("sweep_seconds", 1).start().await.unwrap();
    // Killed before the first call, and after each, so also before the last commit.
    let crashes = std::iter::once((true, CALLS[0])).chain(CALLS.map(|call| (false, call)));
    for (number, (before, call)) in crashes.enumerate() {
        let person = world.person(&format!("crash{number}")).await.unwrap();
        let api = person.api().await.unwrap();
        let broker = world.broker().clone();
        let kill = move |_| {
            broker.kill();
            std::future::ready(())
        };
        let fault = if before { Fault::before(kill) } else { Fault::after(kill) };
        let rule = world
            .proxy()
            .unwrap()
            .add(Rule::new(fault).when(move |seen| seen.is(&Method::POST, call)).nth(1));
        api.init("basic").await.expect_err("the broker was killed");
        assert_eq!(rule.fired(), 1, "killed at {call}");
        world.proxy().unwrap().clear();

        world.broker().crash_and_restart().await.unwrap();
        swept(&api).await;
        assert_eq!(objects(&world, &person.namespace()).await, OBJECTS.len());
        let id = api.workspaces(false).await.unwrap().items[0].id;
        api.credential(id).await.unwrap();
    }
}

/// Quota admission ignores a quota until its controller has written the status.
#[tokio::test]
async fn nobody_has_rights_before_the_quota_is_enforced() {
    let world =
        World::builder().fault_proxy().setting("sweep_seconds", 3600).start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let unseen = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "tenant-quota"}, "spec": {"hard": {"pods": "20"}}, "status": {}});
    let json = HeaderValue::from_static("application/json");
    let rule = Rule::new(Fault::Respond {
        status: StatusCode::OK,
        headers: HeaderMap::from_iter([(CONTENT_TYPE, json)]),
        body: unseen.to_string(),
    });
    let proxy = world.proxy().unwrap();
    let rule = proxy.add(rule.when(|seen| seen.is(&Method::GET, "/resourcequotas/tenant-quota")));
    let refusal = super::refused(api.init("basic").await);
    assert_eq!(refusal.code(), Code::ClusterUnavailable);
    assert!(refusal.to_string().contains("does not enforce the quota"), "{refusal}");
    assert!(rule.fired() > 1);
    // Everything but the binding.
    assert_eq!(objects(&world, &alice.namespace()).await, OBJECTS.len() - 1);

    proxy.clear();
    assert!(api.init("basic").await.unwrap().1);
    assert_eq!(objects(&world, &alice.namespace()).await, OBJECTS.len());
}

#[tokio::test]
async fn a_foreign_namespace_in_the_way_is_a_conflict_and_is_left_alone() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    admin.run(["create", "namespace", &alice.namespace()]).await.unwrap().success().unwrap();
    let before = super::object(&world, &["namespace", &alice.namespace()]).await.unwrap().unwrap();

    let api = alice.api().await.unwrap();
    let refused = super::refused(api.init("basic").await);
    assert_eq!((refused.status, refused.code()), (StatusCode::CONFLICT, Code::NamespaceConflict));
    let after = super::object(&world, &["namespace", &alice.namespace()]).await.unwrap().unwrap();
    assert_eq!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
    assert_eq!(objects(&world, &alice.namespace()).await, 1, "nothing was put into it");
    let listed = api.workspaces(false).await.unwrap().items;
    assert_eq!(listed[0].status, WorkspaceStatus::Failed);
    assert_eq!(super::refused(api.credential(listed[0].id).await).code(), Code::WorkspaceNotReady);

    // Once it is removed the same call succeeds.
    admin
        .run(["delete", "namespace", &alice.namespace(), "--wait=true"])
        .await
        .unwrap()
        .success()
        .unwrap();
    let (workspace, created) = api.init("basic").await.unwrap();
    assert!(created);
    assert_eq!(workspace.id, listed[0].id);
}

#[tokio::test]
async fn with_the_api_server_down_it_is_a_503_and_finished_later() {
    let world = World::builder().fault_proxy().setting("sweep_seconds", 1).start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    world.proxy().unwrap().down().await;
    let refused = super::refused(api.init("basic").await);
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.code(), Code::ClusterUnavailable);
    assert!(refused.retry_after().is_some_and(|seconds| seconds >= 1));
    assert_eq!(objects(&world, &alice.namespace()).await, 0);

    world.proxy().unwrap().up().await.unwrap();
    swept(&api).await;
    assert_eq!(objects(&world, &alice.namespace()).await, OBJECTS.len());
}

async fn limited(world: World) {
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    for _ in 0..3 {
        api.init("basic").await.unwrap();
    }
    let refused = super::refused(api.init("basic").await);
    assert_eq!(
        (refused.status, refused.code()),
        (StatusCode::TOO_MANY_REQUESTS, Code::RateLimited)
    );
    assert!(refused.retry_after().is_some_and(|seconds| (1..=3600).contains(&seconds)));
    // The limit is in the database: it survives a restart, and does not affect another person.
    world.broker().crash_and_restart().await.unwrap();
    assert_eq!(super::refused(api.init("basic").await).code(), Code::RateLimited);
    let bob = world.person("bob").await.unwrap();
    bob.api().await.unwrap().init("basic").await.unwrap();
}

#[tokio::test]
async fn init_is_limited_by_user_on_sqlite() {
    limited(World::builder().setting("limits.init_per_hour", 3).start().await.unwrap()).await;
}

#[tokio::test]
async fn init_is_limited_by_user_on_postgres() {
    let builder = World::builder().postgres().setting("limits.init_per_hour", 3);
    limited(builder.start().await.unwrap()).await;
}
