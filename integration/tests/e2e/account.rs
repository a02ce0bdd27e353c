//! The account page and a frontend's page, in a real browser with a real cluster.

use std::time::Duration;

use integration::{
    chromium::{Chromium, foreign_page},
    person::Person,
    probe::{self, Probe},
    world::{World, WorldBuilder},
};
use serde_json::json;
use url::Url;

const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) async fn sign_in(chromium: &Chromium, email: &str, password: &str) {
    chromium.fill("#email", email).await.unwrap();
    chromium.fill("#password", password).await.unwrap();
    chromium.click("form[action='/login'] button").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_does_it_all_on_the_account_page() {
    let world = World::builder().start().await.unwrap();
    let (alice, chromium) =
        (world.person("alice").await.unwrap(), Chromium::start().await.unwrap());
    let broker = world.broker().public_url().unwrap();

    chromium.open(broker.as_str()).await.unwrap();
    sign_in(&chromium, alice.email(), alice.password()).await;
    chromium.until("document.querySelector('#make') !== null").await.unwrap();
    chromium.screenshot("account-new").await.unwrap();
    chromium.click("#make").await.unwrap();
    chromium.until("document.querySelector('#download') !== null").await.unwrap();
    let page = chromium.value("document.body.innerText").await.unwrap();
    for part in [alice.email(), &alice.namespace(), "provisioned", "kubectl tenant login"] {
        assert!(page.as_str().unwrap().contains(part), "{part} is missing in {page}");
    }

    // The downloaded file is a working kubeconfig.
    let folder = world.folder().join("downloads");
    let allow = json!({ "behavior": "allow", "downloadPath": folder });
    chromium.call("Page.setDownloadBehavior", allow).await.unwrap();
    chromium.click("#download").await.unwrap();
    let file = folder.join("kubeconfig");
    let there = || async {
        Ok(if file.exists() { Probe::Ready(()) } else { Probe::NotYet("no file".to_owned()) })
    };
    probe::until("the download", PAGE_TIMEOUT, there).await.unwrap();
    let kubectl = world.kubectl_with(&file).unwrap();
    kubectl.run(["get", "pods"]).await.unwrap().success().unwrap();

    // The session of another program is listed, and ends with a click.
    alice.login(&[]).await.unwrap().success().unwrap();
    alice.kubectl().run(["tenant", "whoami"]).await.unwrap().success().unwrap();
    chromium.open(broker.join("account").unwrap().as_str()).await.unwrap();
    chromium.until("document.querySelector('#sessions td button') !== null").await.unwrap();
    chromium.screenshot("account").await.unwrap();
    chromium.click("#sessions td button").await.unwrap();
    chromium.until("document.querySelectorAll('#sessions tbody tr').length === 1").await.unwrap();
    let after = alice.kubectl().run(["tenant", "whoami"]).await.unwrap();
    assert!(!after.status.success() && after.stderr.contains("kubectl tenant login"), "{after:?}");
    let entries = chromium.value("document.querySelector('#entries').innerText").await.unwrap();
    assert!(entries.as_str().unwrap().contains("IssueKubeconfig"), "{entries}");

    chromium.click("header button").await.unwrap();
    chromium.until("document.body.innerText.includes('You are signed out')").await.unwrap();
    chromium.open(broker.join("account").unwrap().as_str()).await.unwrap();
    chromium.until("document.querySelector('#password') !== null").await.unwrap();
}

/// A person with a workspace whose browser shows the page of a listed frontend.
pub(crate) struct AtListedPage {
    pub(crate) world: World,
    pub(crate) alice: Person,
    pub(crate) chromium: Chromium,
    /// The public URL of the broker.
    pub(crate) broker: Url,
    /// The origin of a page that is not listed.
    pub(crate) other: String,
}

/// Signs in from the frontend, to which the sign-in redirects back.
pub(crate) async fn at_listed_page(builder: WorldBuilder) -> AtListedPage {
    let (listed, other) = (foreign_page().await.unwrap(), foreign_page().await.unwrap());
    let builder = builder.setting("frontends.origins", vec![listed.clone()]);
    let world = builder.start().await.unwrap();
    let (alice, chromium) =
        (world.person("alice").await.unwrap(), Chromium::start().await.unwrap());
    alice.api().await.unwrap().init("basic").await.unwrap();
    let broker = world.broker().public_url().unwrap();
    let mut login = broker.join("login").unwrap();
    login.query_pairs_mut().append_pair("return_to", &format!("{listed}/app"));
    chromium.open(login.as_str()).await.unwrap();
    sign_in(&chromium, alice.email(), alice.password()).await;
    chromium.until(&format!("location.href === '{listed}/app'")).await.unwrap();
    AtListedPage { world, alice, chromium, broker, other }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listed_frontend_downloads_the_kubeconfig_and_no_other_page_does() {
    let AtListedPage { world, alice, chromium, broker, other } =
        at_listed_page(World::builder()).await;
    let url = broker.join("api/v1/workspaces/credentials/kubeconfig").unwrap();
    let download = format!(
        "fetch('{url}', {{credentials: 'include'}}).then(r => r.text()).catch(e => 'failed')"
    );
    let document = chromium.value(&download).await.unwrap();
    let document = document.as_str().unwrap();
    assert!(document.contains("name: tenant-context"), "{document}");
    let file = world.folder().join("from-frontend.kubeconfig");
    std::fs::write(&file, document).unwrap();
    let kubectl = world.kubectl_with(&file).unwrap();
    kubectl.run(["get", "pods"]).await.unwrap().success().unwrap();

    chromium.open(&other).await.unwrap();
    chromium.until(&format!("location.origin === '{other}'")).await.unwrap();
    assert_eq!(chromium.value(&download).await.unwrap(), "failed");
    // No credential was issued that nobody could read.
    let logs = alice.api().await.unwrap().audit_logs("action=IssueKubeconfig").await.unwrap();
    assert_eq!(logs.items.len(), 1, "{logs:?}");
}
