//! Installations and deletions whose answers are lost, or whose callers leave or are suspended.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use http::{Method, StatusCode};
use integration::api::Api;
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::probe::{self, Probe};
use integration::world::World;
use secrecy::ExposeSecret as _;
use tenant_shared::SuspendRequest;
use tokio::sync::Notify;

use super::fixture::{
    Client, REG, TIMEOUT, builder_with_kinds, install_kinds, namespace_of, person, world,
};
use super::llama_stack::{LSD, config_map, distribution, ready_model};

/// Whether the request of a person has this method, and a path with this end.
fn of_person(
    method: &'static Method,
    end: &'static str,
) -> impl Fn(&RecordedRequest) -> bool + Send + Sync {
    move |seen| seen.is(method, end) && !seen.is_as_broker()
}

/// Requests at once, fewer than a token may have.
const REQUESTS: usize = 45;
const DISTRIBUTIONS: &str = "/llamastackdistributions";
const DISTRIBUTION: &str = "/llamastackdistributions/lsd-genai-playground";

/// An administrator, who sees the audit trail.
pub(super) async fn operator(world: &World) -> Api {
    world.administrator("operator").await.unwrap().api().await.unwrap()
}

/// The reasons of the audit rows about a namespace with this action and outcome, newest first.
pub(super) async fn reasons(
    operator: &Api,
    namespace: &str,
    action: &str,
    outcome: &str,
) -> Vec<String> {
    let rows = operator.audit_logs(&format!("limit=200&action={action}")).await.unwrap().items;
    let of_outcome = rows.into_iter().filter(|row| row.outcome == outcome);
    of_outcome
        .filter_map(|row| row.reason)
        .filter(|reason| reason.contains(&format!("namespace {namespace}")))
        .collect()
}

/// Holds requests until they are released.
fn held_until(release: &Arc<Notify>) -> Fault {
    let release = Arc::clone(release);
    Fault::before(move |_| Arc::clone(&release).notified_owned())
}

/// Waits until a request is held: the second creation of an installation, or a read before it.
async fn until_held(held: &Rule) {
    probe::until("the request that is held", TIMEOUT, || async {
        Ok(if held.fired() > 0 { Probe::Ready(()) } else { Probe::NotYet(String::new()) })
    })
    .await
    .unwrap();
}

/// Begins an installation whose client leaves before the second creation, which is held until it is
/// released.
async fn install_and_leave(world: &World, namespace: &'static str) -> Arc<Notify> {
    let release = Arc::new(Notify::new());
    let creations = of_person(&Method::POST, "/configmaps");
    let held = world.proxy().unwrap().add(Rule::new(held_until(&release)).when(creations));
    let client = Client::new(world);
    let running = tokio::spawn(async move { client.install(namespace, REG, &["good"]).await });
    until_held(&held).await;
    running.abort();
    let _ = running.await;
    // The broker notices that the client is gone.
    tokio::time::sleep(Duration::from_secs(1)).await;
    release
}

#[tokio::test]
async fn a_request_whose_client_leaves_is_in_the_access_log_and_counted() {
    let world = world().await;
    let list = of_person(&Method::GET, "/api/v1/namespaces");
    let release = Arc::new(Notify::new());
    let held = world.proxy().unwrap().add(Rule::new(held_until(&release)).when(list));
    let client = Client::new(&world);
    let running = tokio::spawn(async move { client.get("/namespaces", REG).await });
    until_held(&held).await;
    running.abort();
    let _ = running.await;
    let broker = world.broker();
    probe::until("the line of the request", TIMEOUT, || async {
        let log = broker.log()?;
        let is_it = |line: &&str| line.contains("/namespaces") && line.contains("status=0");
        let lines: Vec<&str> = log.lines().filter(is_it).collect();
        Ok(match lines[..] {
            [line] => {
                assert!(line.contains("upstream_calls="), "{line}");
                Probe::Ready(())
            }
            _ => Probe::NotYet(format!("{lines:?}")),
        })
    })
    .await
    .unwrap();
    for (series, labels) in [
        ("requests_total", r#"method="GET",area="models",status="0""#),
        ("model_services_calls_total", r#"call="namespaces",outcome="cancelled""#),
    ] {
        let series = format!("tenant_broker_{series}{{{labels}}}");
        let counted = broker.metric(&series).await.unwrap();
        assert!((counted - 1.0).abs() < f64::EPSILON, "{series}: {counted}");
    }
    release.notify_one();
}

#[tokio::test]
async fn a_lost_answer_is_replaced_by_a_look_at_the_object() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let operator = operator(&world).await;
    let namespace = "lsd-lost";
    namespace_of(&world, namespace, "reg", "admin").await;
    ready_model(&admin, namespace, "good").await;
    let proxy = world.proxy().unwrap();
    // The API server carried it out, so it is done.
    for end in [DISTRIBUTIONS, "/configmaps"] {
        proxy.add(Rule::new(Fault::CutAfter).when(of_person(&Method::POST, end)));
        client.install(namespace, REG, &["good"]).await.data();
        proxy.clear();
        let map = config_map(&world, namespace).await.unwrap();
        let lsd = distribution(&world, namespace).await.unwrap();
        assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], lsd["metadata"]["uid"]);
        proxy.add(Rule::new(Fault::CutAfter).when(of_person(&Method::DELETE, DISTRIBUTION)));
        client.delete(namespace, REG, LSD).await.data();
        proxy.clear();
        assert!(distribution(&world, namespace).await.is_none());
    }
    for action in ["InstallLlamaStack", "DeleteLlamaStack"] {
        assert_eq!(reasons(&operator, namespace, action, "success").await.len(), 2, "{action}");
        assert!(reasons(&operator, namespace, action, "refused").await.is_empty(), "{action}");
    }
    // It never saw the request, so nothing is done.
    proxy.add(Rule::new(Fault::CutBefore).when(of_person(&Method::POST, DISTRIBUTIONS)));
    client.install(namespace, REG, &["good"]).await.failure(500);
    proxy.clear();
    assert!(distribution(&world, namespace).await.is_none());
    assert_eq!(reasons(&operator, namespace, "InstallLlamaStack", "refused").await.len(), 1);
    client.install(namespace, REG, &["good"]).await.data();
    proxy.add(Rule::new(Fault::CutBefore).when(of_person(&Method::DELETE, DISTRIBUTION)));
    client.delete(namespace, REG, LSD).await.failure(500);
    proxy.clear();
    assert!(distribution(&world, namespace).await.is_some());
    assert_eq!(reasons(&operator, namespace, "DeleteLlamaStack", "refused").await.len(), 1);

    // If the object cannot be read either, the row says that nobody knows.
    proxy.add(Rule::new(Fault::CutAfter).when(of_person(&Method::DELETE, DISTRIBUTION)));
    let reads = of_person(&Method::GET, DISTRIBUTION);
    let unreadable = Fault::respond(StatusCode::INTERNAL_SERVER_ERROR);
    proxy.add(Rule::new(unreadable).when(reads).within(2..=usize::MAX));
    client.delete(namespace, REG, LSD).await.failure(500);
    proxy.clear();
    let rows = reasons(&operator, namespace, "DeleteLlamaStack", "success").await;
    assert!(rows[0].contains("not known whether the LlamaStackDistribution"), "{rows:?}");
    assert_eq!(reasons(&operator, namespace, "DeleteLlamaStack", "refused").await.len(), 1);
}

#[tokio::test]
async fn a_creation_that_times_out_is_looked_for_after_the_time_of_reads() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let namespace = "lsd-late";
    namespace_of(&world, namespace, "reg", "admin").await;
    ready_model(&admin, namespace, "good").await;
    let proxy = world.proxy().unwrap();
    // The creation times out after 42 seconds of the 40 for reads.
    let slow = Fault::delay(Duration::from_secs(12));
    proxy.add(Rule::new(slow).when(of_person(&Method::GET, DISTRIBUTIONS)));
    let held = Fault::after(|_| std::future::pending());
    proxy.add(Rule::new(held).when(of_person(&Method::POST, DISTRIBUTIONS)));
    client.install(namespace, REG, &["good"]).await.data();
    proxy.clear();
    let map = config_map(&world, namespace).await.unwrap();
    let lsd = distribution(&world, namespace).await.unwrap();
    assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], lsd["metadata"]["uid"]);
}

#[tokio::test]
async fn an_installation_goes_on_without_its_client() {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    let operator = operator(&world).await;
    let namespace = "lsd-left";
    namespace_of(&world, namespace, "reg", "admin").await;
    ready_model(&admin, namespace, "good").await;
    let release = install_and_leave(&world, namespace).await;
    release.notify_one();
    probe::until("the ConfigMap", TIMEOUT, || async {
        Ok(match config_map(&world, namespace).await {
            Some(_) => Probe::Ready(()),
            None => Probe::NotYet("there is none".to_owned()),
        })
    })
    .await
    .unwrap();
    assert!(distribution(&world, namespace).await.is_some());
    assert!(reasons(&operator, namespace, "InstallLlamaStack", "refused").await.is_empty());
}

#[tokio::test]
async fn a_broker_that_stops_waits_for_a_change_whose_client_has_left() {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    let namespace = "lsd-stop";
    namespace_of(&world, namespace, "reg", "admin").await;
    ready_model(&admin, namespace, "good").await;
    let release = install_and_leave(&world, namespace).await;
    let release_later = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        release.notify_one();
    };
    let (stopped, ()) = tokio::join!(world.broker().stop(), release_later);
    stopped.unwrap();
    assert!(distribution(&world, namespace).await.is_some());
    assert!(config_map(&world, namespace).await.is_some());
}

#[tokio::test]
async fn a_broker_that_stops_begins_no_change() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let namespace = "lsd-stopping";
    namespace_of(&world, namespace, "reg", "admin").await;
    ready_model(&admin, namespace, "good").await;
    let release = Arc::new(Notify::new());
    let reads = of_person(&Method::GET, DISTRIBUTIONS);
    let held = world.proxy().unwrap().add(Rule::new(held_until(&release)).when(reads));
    let running = tokio::spawn(async move { client.install(namespace, REG, &["good"]).await });
    until_held(&held).await;
    let release_later = async {
        probe::until("the broker to stop", TIMEOUT, || async {
            let is_stopping = world.broker().log()?.contains("stopping: waiting for requests");
            Ok(if is_stopping { Probe::Ready(()) } else { Probe::NotYet("it runs".to_owned()) })
        })
        .await
        .unwrap();
        release.notify_one();
    };
    let (stopped, ()) = tokio::join!(world.broker().stop(), release_later);
    stopped.unwrap();
    let refused = running.await.unwrap();
    refused.failure(500);
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    assert!(distribution(&world, namespace).await.is_none());
}

#[tokio::test]
async fn a_change_that_a_stop_interrupts_is_recorded_with_what_is_left() {
    let builder = builder_with_kinds().fault_proxy();
    let world = builder.setting("drain_seconds", 2).start().await.unwrap();
    install_kinds(&world).await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let (alice, session) = person(&world, "alice").await;
    let (session, namespace) = (session.expose_secret().to_owned(), alice.namespace());
    ready_model(&admin, &namespace, "good").await;
    let held = world.proxy().unwrap().add(
        Rule::new(Fault::before(|_| std::future::pending()))
            .when(of_person(&Method::POST, "/configmaps")),
    );
    let running = {
        let namespace = namespace.clone();
        tokio::spawn(async move { client.install(&namespace, &session, &["good"]).await })
    };
    until_held(&held).await;
    running.abort();
    let _ = running.await;
    world.broker().stop().await.unwrap();
    world.proxy().unwrap().clear();
    world.broker().start().await.unwrap();
    assert!(distribution(&world, &namespace).await.is_some());
    let operator = operator(&world).await;
    let rows = reasons(&operator, &namespace, "InstallLlamaStack", "success").await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows[0].contains("may be left, perhaps without its ConfigMap"), "{rows:?}");
}

#[tokio::test]
async fn a_suspension_between_the_two_creations_is_recorded_with_what_is_left() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let (alice, session) = person(&world, "alice").await;
    let (session, namespace) = (session.expose_secret().to_owned(), alice.namespace());
    let workspace = alice.api().await.unwrap().workspaces(false).await.unwrap().items[0].id;
    ready_model(&admin, &namespace, "good").await;
    let operator = operator(&world).await;
    let reason = SuspendRequest { reason: Some("a test".to_owned()) };
    let proxy = world.proxy().unwrap();
    let held = proxy.add(
        Rule::new(Fault::before(|_| std::future::pending()))
            .when(of_person(&Method::POST, "/configmaps")),
    );
    let running = {
        let (client, namespace, session) = (client.clone(), namespace.clone(), session.clone());
        tokio::spawn(async move { client.install(&namespace, &session, &["good"]).await })
    };
    until_held(&held).await;
    operator.suspend(workspace, &reason).await.unwrap();
    assert!(running.await.unwrap().failure(403).contains("suspended"));
    proxy.clear();
    assert!(distribution(&world, &namespace).await.is_some());
    let rows = reasons(&operator, &namespace, "InstallLlamaStack", "success").await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows[0].contains("may be left, perhaps without its ConfigMap"), "{rows:?}");
    assert!(reasons(&operator, &namespace, "InstallLlamaStack", "refused").await.is_empty());
    // API servers accept old tokens from their cache for 10 s, so the broker refuses before.
    probe::until("the resumption", TIMEOUT, || async {
        Ok(match operator.resume(workspace, &reason).await {
            Ok(_) => Probe::Ready(()),
            Err(error) => Probe::NotYet(format!("{error:?}")),
        })
    })
    .await
    .unwrap();
    probe::until("the deletion", TIMEOUT, || async {
        let deleted = client.delete(&namespace, &session, LSD).await;
        Ok(match deleted.status {
            StatusCode::OK => Probe::Ready(()),
            _ => Probe::NotYet(format!("{deleted:?}")),
        })
    })
    .await
    .unwrap();
    assert!(distribution(&world, &namespace).await.is_none());
}

#[tokio::test]
async fn a_change_does_not_begin_without_memory_for_the_answers_to_its_writes() {
    let builder = builder_with_kinds().fault_proxy();
    let world = builder.setting("model_services.changes_per_user", 100).start().await.unwrap();
    install_kinds(&world).await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let operator = operator(&world).await;
    let namespace = "lsd-memory";
    namespace_of(&world, namespace, "reg", "admin").await;
    ready_model(&admin, namespace, "good").await;
    client.install(namespace, REG, &["good"]).await.data();
    let proxy = world.proxy().unwrap();
    let release = Arc::new(Notify::new());
    let deletions = of_person(&Method::DELETE, DISTRIBUTION);
    let held = proxy.add(Rule::new(held_until(&release)).when(deletions));
    let release_all = async {
        probe::until("the deletions", TIMEOUT, || async {
            let begun = reasons(&operator, namespace, "DeleteLlamaStack", "success").await.len();
            let refused = reasons(&operator, namespace, "DeleteLlamaStack", "refused").await.len();
            let sent = held.fired();
            let is_decided = begun == sent && sent + refused == REQUESTS;
            let state = format!("{begun} begun, {refused} refused, {sent} sent");
            Ok(if is_decided { Probe::Ready(()) } else { Probe::NotYet(state) })
        })
        .await
        .unwrap();
        let sent = held.fired();
        proxy.clear();
        release.notify_waiters();
        sent
    };
    let all = join_all((0..REQUESTS).map(|_| client.delete(namespace, REG, LSD)));
    let (all, sent) = tokio::join!(all, release_all);
    let refused = all.iter().filter(|answer| answer.status == StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.count(), REQUESTS - sent);
    assert!(sent < REQUESTS, "{sent}");
    assert!(distribution(&world, namespace).await.is_none());
}
