//! Tenants on the account page, in a real browser.

use integration::chromium::Chromium;
use integration::probe::{self, Probe};

use super::reconcile::{RECONCILE_TIMEOUT, world};
use super::rest::{SOLAR, apply, until_active};
use super::{TENANT_BROKER, until_served};
use crate::account::sign_in;

const JOIN: &str = "form[action='/account/join-tenant'] button";
const CREATE: &str = "form[action='/account/namespace'] button";
const FIELD: &str = "#namespace-solar";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_joins_and_creates_a_namespace_on_the_account_page() {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let (alice, chromium) =
        (world.person("alice").await.unwrap(), Chromium::start().await.unwrap());
    apply(&admin, SOLAR, 1, &[(alice.email(), &["view"])]).await;
    let api = alice.api().await.unwrap();
    until_active(&api, SOLAR).await;

    let page = world.broker().public_url().unwrap().join("account").unwrap();
    chromium.open(page.as_str()).await.unwrap();
    sign_in(&chromium, alice.email(), alice.password()).await;
    chromium.click(JOIN).await.unwrap();
    chromium.until(&format!("document.querySelector(\"{JOIN}\") === null")).await.unwrap();
    let joined = api.tenant(SOLAR).await.unwrap();
    assert!(joined.workspace.is_some(), "{joined:?}");

    // A refusal is on the page, with what was typed.
    chromium.fill(FIELD, "lunar-web").await.unwrap();
    chromium.click(CREATE).await.unwrap();
    chromium.until("document.querySelector('#fault') !== null").await.unwrap();
    let fault = chromium.value("document.querySelector('#fault').innerText").await.unwrap();
    assert!(fault.as_str().unwrap().contains("begin with solar-"), "{fault}");
    let typed = chromium.value(&format!("document.querySelector('{FIELD}').value")).await.unwrap();
    assert_eq!(typed, "lunar-web");
    chromium.screenshot("account-tenant").await.unwrap();

    chromium.fill(FIELD, "solar-web").await.unwrap();
    chromium.click(CREATE).await.unwrap();
    chromium.until("document.querySelector('#fault') === null").await.unwrap();
    let listed = api.tenant_namespaces(SOLAR).await.unwrap();
    let names: Vec<&str> = listed.items.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, ["solar-web"]);
    // The number follows the status of the object.
    probe::until("the number of namespaces", RECONCILE_TIMEOUT, || async {
        chromium.open(page.as_str()).await?;
        let text = chromium.value("document.body.innerText").await?.to_string();
        Ok(if text.contains("1 of 1") { Probe::Ready(()) } else { Probe::NotYet(text) })
    })
    .await
    .unwrap();
}
