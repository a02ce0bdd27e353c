//! Audit rows of refused installations and deletions.

use futures_util::future::join_all;
use http::{Method, StatusCode};
use integration::fault_proxy::{Fault, Rule};

use super::fixture::{
    Client, NONE, REG, VIEWER, builder_with_kinds, install_kinds, namespace_of, world,
};
use super::llama_stack::{LSD, distribution, ready_model};
use super::lost_answers::{operator, reasons};

#[tokio::test]
async fn a_refusal_has_a_row_also_if_nobody_knows_the_user() {
    let world = world().await;
    let (client, operator) = (Client::new(&world), operator(&world).await);
    let namespace = "refused-unknown";
    namespace_of(&world, namespace, "reg", "admin").await;
    let fault = Fault::respond(StatusCode::INTERNAL_SERVER_ERROR);
    let is_question = |path: &str| path.ends_with("/selfsubjectreviews");
    world.proxy().unwrap().add(
        Rule::new(fault).when(move |seen| seen.method == Method::POST && is_question(&seen.path)),
    );
    client.install(namespace, NONE, &["good"]).await.failure(403);
    let rows = reasons(&operator, namespace, "InstallLlamaStack", "refused").await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    let expected = format!("Kubernetes user unknown, namespace {namespace}: 403");
    assert!(rows[0].starts_with(&expected), "{rows:?}");
    // The review is passed, and then nobody says who it is.
    client.install(namespace, REG, &["good"]).await.failure(500);
    let rows = reasons(&operator, namespace, "InstallLlamaStack", "refused").await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows[0].ends_with("models good: 500 failed"), "{rows:?}");
}

#[tokio::test]
async fn a_caller_cannot_keep_their_name_out_of_the_row_of_a_refusal() {
    let builder = builder_with_kinds()
        .fault_proxy()
        .setting("model_services.requests_per_second", 1)
        .setting("model_services.requests_at_once", 1);
    let world = builder.start().await.unwrap();
    install_kinds(&world).await;
    let (client, operator) = (Client::new(&world), operator(&world).await);
    let namespace = "refused-named";
    // A second request would exceed the limit of one at once, and after these the rate, too.
    for _ in 0..20 {
        let refused = client.install(namespace, NONE, &["good"]).await;
        assert!([403, 429].contains(&refused.status.as_u16()), "{refused:?}");
    }
    let rows = reasons(&operator, namespace, "InstallLlamaStack", "refused").await;
    assert!(!rows.is_empty());
    let expected = format!("Kubernetes user \"none\", namespace {namespace}: 403");
    assert!(rows.iter().all(|row| row.starts_with(&expected)), "{rows:?}");
}

#[tokio::test]
async fn refusals_fill_the_audit_trail_only_up_to_a_limit() {
    let world = world().await;
    let (client, operator) = (Client::new(&world), operator(&world).await);
    for _ in 0..6 {
        let refused = join_all((0..20).map(|_| client.delete("refused-many", NONE, "lsd"))).await;
        assert!(refused.iter().all(|it| [403, 429].contains(&it.status.as_u16())), "{refused:?}");
        // The rate of the token is not what is tested.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    let rows = reasons(&operator, "refused-many", "DeleteLlamaStack", "refused").await;
    assert_eq!(rows.len(), 100);
}

#[tokio::test]
async fn a_viewer_who_deletes_begins_no_change() {
    let world = world().await;
    let (client, operator) = (Client::new(&world), operator(&world).await);
    let admin = world.admin_kubectl().unwrap();
    let namespace = "refused-viewer";
    namespace_of(&world, namespace, "reg", "admin").await;
    namespace_of(&world, namespace, "viewer", "view").await;
    ready_model(&admin, namespace, "good").await;
    client.install(namespace, REG, &["good"]).await.data();
    let refused = client.delete(namespace, VIEWER, LSD).await;
    assert!(
        refused.failure(403).ends_with("you may not delete objects of kind LlamaStackDistribution")
    );
    let refused = client.install(namespace, VIEWER, &["good"]).await;
    assert!(refused.failure(403).contains("you may not create objects"), "{refused:?}");
    // It precedes what the reads say.
    client.delete(namespace, VIEWER, "other").await.failure(403);
    for _ in 0..6 {
        let refused = join_all((0..20).map(|_| client.delete(namespace, VIEWER, LSD))).await;
        assert!(refused.iter().all(|it| [403, 429].contains(&it.status.as_u16())), "{refused:?}");
        // The rate of the token is not what is tested.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    assert!(distribution(&world, namespace).await.is_some());
    assert!(reasons(&operator, namespace, "DeleteLlamaStack", "success").await.is_empty());
    let rows = reasons(&operator, namespace, "DeleteLlamaStack", "refused").await;
    assert_eq!(rows.len(), 99, "one of the hundred is of the installation");
    assert!(rows[0].starts_with("Kubernetes user \"viewer\", "), "{rows:?}");
    // The API server was asked for the right alone.
    let proxy = world.proxy().unwrap();
    assert_eq!(proxy.count(|seen| seen.method == Method::DELETE && seen.has_token(VIEWER)), 0);
}

#[tokio::test]
async fn a_user_has_a_number_of_changes_in_five_minutes() {
    let builder = builder_with_kinds().fault_proxy();
    let world = builder.setting("model_services.changes_per_user", 3).start().await.unwrap();
    install_kinds(&world).await;
    let (client, operator) = (Client::new(&world), operator(&world).await);
    let admin = world.admin_kubectl().unwrap();
    let (namespace, other) = ("refused-changes", "refused-changes-2");
    for namespace in [namespace, other] {
        namespace_of(&world, namespace, "reg", "admin").await;
        ready_model(&admin, namespace, "good").await;
    }
    client.install(namespace, REG, &["good"]).await.data();
    client.delete(namespace, REG, LSD).await.data();
    client.delete(namespace, REG, LSD).await.failure(404);
    client.install(namespace, REG, &["good"]).await.data();
    let refused = client.delete(namespace, REG, LSD).await;
    assert!(refused.failure(429).contains("of this user"), "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    client.install(other, REG, &["good"]).await.failure(429);
    namespace_of(&world, namespace, "one", "admin").await;
    let refused = client.delete(namespace, super::fixture::ONE, LSD).await;
    assert!(refused.failure(429).contains("in this namespace"), "{refused:?}");
    assert!(distribution(&world, namespace).await.is_some());
    assert_eq!(reasons(&operator, namespace, "DeleteLlamaStack", "success").await.len(), 1);
    assert_eq!(reasons(&operator, namespace, "DeleteLlamaStack", "refused").await.len(), 3);
}
