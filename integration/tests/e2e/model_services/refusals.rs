//! Audit rows of refused installations and deletions.

use futures_util::future::join_all;
use http::{Method, StatusCode};
use integration::fault_proxy::{Fault, Rule};

use super::fixture::{Client, NONE, REG, namespace_of, world};
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
