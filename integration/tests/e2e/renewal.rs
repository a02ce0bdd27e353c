//! Transparent renewal of tokens and sessions.

use std::path::PathBuf;
use std::time::Duration;

use integration::api::Api;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::Value;

/// Path of the person's one cached token.
fn cached(person: &Person) -> PathBuf {
    let folder = person.home().join(".cache/kubectl-tenant/tokens");
    let files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

/// Rewrites the metadata of the cached token.
fn rewrite(person: &Person, change: impl FnOnce(&mut Value)) {
    let file = cached(person);
    let text = std::fs::read_to_string(&file).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let mut stored: Value = serde_json::from_str(first).unwrap();
    change(&mut stored);
    std::fs::write(&file, format!("{stored}\n{rest}")).unwrap();
}

/// Makes the cached token look like a two-hour token with this number of seconds left.
#[expect(clippy::disallowed_methods, reason = "the plugin under test goes by the system's clock")]
fn age(person: &Person, seconds_left: i64) {
    let end = jiff::Timestamp::now().as_second() + seconds_left;
    rewrite(person, |stored| {
        stored["expires_at"] = end.into();
        stored["received_at"] = (end - 7200).into();
        let stamp = jiff::Timestamp::from_second(end - 60).unwrap();
        stored["stamp"] = stamp.to_string().into();
    });
}

async fn issued(api: &Api) -> usize {
    api.audit_logs("action=IssueCredential&limit=500").await.unwrap().items.len()
}

#[tokio::test]
async fn new_kubectl_processes_survive_a_token_renewal() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let api = alice.api().await.unwrap();
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    assert_eq!(issued(&api).await, 1, "the second one used the cache");

    // Nine minutes left: renewed ahead of time, once.
    age(&alice, 9 * 60);
    for _ in 0..3 {
        let finished = alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
        assert_eq!(
            finished.stderr.trim(),
            "No resources found in ".to_owned() + &alice.namespace() + " namespace."
        );
    }
    assert_eq!(issued(&api).await, 2);
    // Expired: the same.
    age(&alice, -5);
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    assert_eq!(issued(&api).await, 3);
}

#[tokio::test]
async fn long_running_kubectls_survive_a_token_renewal() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let api = alice.api().await.unwrap();
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    assert_eq!(issued(&api).await, 1);
    let create = ["create", "configmap", "before-the-change"];
    alice.kubectl().run(create).await.unwrap().success().unwrap();

    // The token has 150 s left and the broker is down: it is used until 60 s before its expiry. That
    // leaves a busy machine 90 s until the broker is back.
    age(&alice, 150);
    world.broker().kill();
    let watch = alice.kubectl().spawn(["get", "configmaps", "-w", "-o", "name"]).unwrap();
    let proxy = alice.kubectl().spawn(["proxy", "--port=0"]).unwrap();
    let limit = Duration::from_secs(30);
    watch.until_stdout("the list", limit, |text| text.contains("before-the-change")).await.unwrap();
    let ready = proxy
        .until_stdout("its port", limit, |text| text.contains("127.0.0.1:") && text.ends_with('\n'))
        .await
        .unwrap();
    let port = ready.trim().rsplit(':').next().unwrap().to_owned();
    let url = format!("http://127.0.0.1:{port}/api/v1/namespaces/{}/configmaps", alice.namespace());
    let http = integration::http_client::http_client(None).unwrap();
    let through = || async { http.get(&url).send().await.unwrap().status() };
    assert!(through().await.is_success());
    world.broker().start().await.unwrap();

    // One kubectl process, request after request: none fails, and the token changes.
    probe::until("the change of token", Duration::from_mins(3), || async {
        let status = through().await;
        anyhow::ensure!(status.is_success(), "a request failed over the change: {status}");
        Ok(match issued(&api).await {
            1 => Probe::NotYet("the first token".to_owned()),
            _ => Probe::Ready(()),
        })
    })
    .await
    .unwrap();
    // The watch that was opened with the first token is still open.
    let admin = world.admin_kubectl().unwrap();
    admin
        .run(["create", "configmap", "after-the-change", "-n", &alice.namespace()])
        .await
        .unwrap()
        .success()
        .unwrap();
    watch
        .until_stdout("the new object", limit, |text| text.contains("after-the-change"))
        .await
        .unwrap();
    assert_eq!(issued(&api).await, 2);
}

#[tokio::test]
async fn twenty_kubectls_on_a_cold_cache_cause_one_token_request() {
    let world = World::builder().fault_proxy().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let tokens = alice.home().join(".cache/kubectl-tenant/tokens");
    if tokens.exists() {
        std::fs::remove_dir_all(&tokens).unwrap();
    }
    let count = || {
        world.proxy().unwrap().count(integration::fault_proxy::RecordedRequest::is_token_request)
    };
    let before = count();
    let running: Vec<_> =
        (0..20).map(|_| alice.kubectl().spawn(["get", "pods"]).unwrap()).collect();
    for kubectl in running {
        kubectl.finish(Duration::from_mins(2)).await.unwrap().success().unwrap();
    }
    assert_eq!(count() - before, 1);
}

#[tokio::test]
async fn a_broker_outage_asks_for_no_sign_in() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    world.broker().kill();

    // Valid for five minutes: used without a message.
    age(&alice, 5 * 60);
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    // Expired: kubectl fails, and does not suggest a sign-in.
    age(&alice, 10);
    let finished = alice.kubectl().run(["get", "pods"]).await.unwrap();
    assert!(!finished.status.success());
    assert!(!finished.stderr.contains("tenant login"), "{}", finished.stderr);
    assert!(finished.stderr.contains("exit code 4"), "{}", finished.stderr);

    world.broker().start().await.unwrap();
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
}

#[tokio::test]
async fn a_token_that_the_api_server_refuses_is_replaced() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    // The cached token is corrupt: the API server responds with 401, and kubectl calls the plugin
    // again.
    rewrite(&alice, |stored| {
        let token = stored["token"].as_str().unwrap();
        stored["token"] = format!("{}AAAA", &token[..token.len() - 4]).into();
        // A fresh token is not replaced, so that no client renews too often because of refusals.
        stored["received_at"] = (stored["received_at"].as_i64().unwrap() - 60).into();
    });

    let first = alice.kubectl().run(["get", "pods"]).await.unwrap();
    assert!(first.status.success() || first.stderr.contains("Unauthorized"), "{}", first.stderr);
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
}

/// Path of the person's session file, which contains the refresh token.
fn session(person: &Person) -> PathBuf {
    let folder = person.home().join(".local/state/kubectl-tenant/sessions");
    let mut files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|it| it == "json")).expect("a session")
}

/// Makes the next call of the broker renew the session.
fn expire_access(person: &Person) {
    let file = session(person);
    let mut stored: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    stored["access_expires_at"] = 0.into();
    std::fs::write(&file, stored.to_string()).unwrap();
}

async fn whoami(person: &Person) -> integration::process::Finished {
    person.kubectl().run(["tenant", "whoami"]).await.unwrap()
}

#[tokio::test]
async fn a_lost_response_is_retried_and_a_copied_session_ends() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&["--storage", "file"]).await.unwrap().success().unwrap();
    expire_access(&alice);
    let file = session(&alice);
    let before = std::fs::read(&file).unwrap();
    whoami(&alice).await.success().unwrap();
    let copy = std::fs::read(&file).unwrap();
    // The response was lost: the file has the refresh token that is used already. Eight concurrent
    // calls retry.
    std::fs::write(&file, &before).unwrap();
    let at_once: Vec<_> =
        (0..8).map(|_| alice.kubectl().spawn(["tenant", "whoami"]).unwrap()).collect();
    for process in at_once {
        process.finish(Duration::from_mins(1)).await.unwrap().success().unwrap();
    }
    for _ in 0..3 {
        expire_access(&alice);
        whoami(&alice).await.success().unwrap();
    }
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    let reuses = async || operator.audit_logs("action=RefreshReuse").await.unwrap().items.len();
    assert_eq!(reuses().await, 0);

    // An attacker copied the response that she did not get.
    std::fs::write(&file, &copy).unwrap();
    expire_access(&alice);
    let refused = whoami(&alice).await;
    assert!(
        !refused.status.success() && refused.stderr.contains("tenant login"),
        "{}",
        refused.stderr
    );
    assert_eq!(reuses().await, 1);
    assert!(!file.exists());
}
