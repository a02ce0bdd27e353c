//! The device grant: sign-in at a machine without a browser, with the browser of another one.

use std::time::Duration;

use integration::{
    chromium::Chromium,
    person::Person,
    probe::{self, Probe},
    process::Captured,
    world::World,
};

const LOGIN_TIMEOUT: Duration = Duration::from_mins(1);

/// Returns the address with the code that the waiting login prints.
async fn address(login: &Captured, world: &World) -> String {
    let page = format!("{}device?user_code=", world.broker().public_url().unwrap());
    let shown = || async {
        login.process().still_running()?;
        let told = login.stderr()?;
        Ok(match told.split_whitespace().find(|word| word.starts_with(&page)) {
            Some(url) => Probe::Ready(url.to_owned()),
            None => Probe::NotYet(told),
        })
    };
    probe::until("the address with the code", LOGIN_TIMEOUT, shown).await.unwrap()
}

async fn decide(url: &str, person: &Person, decision: &str) {
    let chromium = Chromium::start().await.unwrap();
    chromium.open(url).await.unwrap();
    chromium.click("button").await.unwrap();
    chromium.fill("#email", person.email()).await.unwrap();
    chromium.fill("#password", person.password()).await.unwrap();
    chromium.click("form[action='/login'] button").await.unwrap();
    chromium.click(&format!("[value={decision}]")).await.unwrap();
    chromium.until("document.querySelector('[name=decision]') === null").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_signs_in_on_another_device_and_kubectl_works() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    // Over SSH the plugin chooses the device grant by itself.
    let kubectl = alice.kubectl().clone().env("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22");
    let login = kubectl.env("BROWSER", "").spawn(["tenant", "login"]).unwrap();
    decide(&address(&login, &world).await, &alice, "allow").await;
    login.finish(LOGIN_TIMEOUT).await.unwrap().success().unwrap();
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_device_code_signs_nobody_in() {
    let world = World::builder().start().await.unwrap();
    let bob = world.person("bob").await.unwrap();
    let login = bob.kubectl().spawn(["tenant", "login", "--device"]).unwrap();
    decide(&address(&login, &world).await, &bob, "deny").await;
    let finished = login.finish(LOGIN_TIMEOUT).await.unwrap();
    assert!(!finished.status.success(), "{finished:?}");
    assert!(finished.stderr.contains("refused"), "{}", finished.stderr);
    assert!(bob.api().await.unwrap().workspaces(false).await.unwrap().items.is_empty());
}
