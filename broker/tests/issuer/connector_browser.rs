//! Browser sessions from a provider: a sweep checks them, because they have no refresh.

use integration::browser::Browser;
use reqwest::StatusCode;

use crate::{
    upstream::ProviderWorld,
    world::{On, on_both_engines, query},
};

on_both_engines!(
    removal_at_the_provider_ends_the_browser_session,
    an_unused_browser_session_is_not_checked,
    a_provider_outage_is_tolerated_for_a_limited_time_and_then_the_session_ends,
    one_of_two_replicas_checks_a_session,
);

/// A browser with a session from a sign-in at the provider.
async fn signed_in(fixture: &ProviderWorld) -> Browser {
    let world = &fixture.world;
    let account = world.at("/account").parse().unwrap();
    let browser = Browser::new(None).unwrap().stopping_at(account);
    let page = browser.open(world.at("/login").parse().unwrap()).await.unwrap();
    let handle = query(page.url.as_str(), "request").unwrap();
    let with = world.at(&format!("/login/with/corp?request={handle}")).parse().unwrap();
    let page = fixture.provider.sign_in(&browser, with, "ada").await.unwrap();
    assert_eq!(page.url.path(), "/account", "{}", page.body);
    browser
}

async fn me(fixture: &ProviderWorld, browser: &Browser) -> StatusCode {
    browser.open(fixture.world.at("/api/v1/me").parse().unwrap()).await.unwrap().status
}

async fn removal_at_the_provider_ends_the_browser_session(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let (world, browser) = (&fixture.world, signed_in(&fixture).await);
    let removal = "SELECT removal_seconds FROM upstream_grants WHERE session_id IS NOT NULL";
    assert_eq!(world.number(removal).await, 3600 + 10 + 900 + 7270);
    // Asked as often as a program refreshes, not at every look.
    world.advance_seconds(899);
    assert_eq!(me(&fixture, &browser).await, 200);
    fixture.provider.remove("ada").await.unwrap();
    world.issuer.check_browsers().await.unwrap();
    assert_eq!(me(&fixture, &browser).await, 200);
    world.advance_seconds(1);
    world.issuer.check_browsers().await.unwrap();
    assert_eq!(me(&fixture, &browser).await, 401);
    assert_eq!(fixture.audit("ProviderLogout").await.len(), 1);
}

async fn an_unused_browser_session_is_not_checked(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let (world, browser) = (&fixture.world, signed_in(&fixture).await);
    let before = fixture.asked("/token").await;
    world.advance_seconds(1800);
    world.issuer.check_browsers().await.unwrap();
    assert_eq!(fixture.asked("/token").await, before);
    // The next use of the session checks it with the provider, and it continues.
    assert_eq!(me(&fixture, &browser).await, 200);
    for _ in 0..3 {
        world.issuer.check_browsers().await.unwrap();
    }
    assert_eq!(fixture.asked("/token").await, before + 1);
    assert_eq!(me(&fixture, &browser).await, 200);
}

async fn a_provider_outage_is_tolerated_for_a_limited_time_and_then_the_session_ends(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let (world, browser) = (&fixture.world, signed_in(&fixture).await);
    fixture.provider.outage(Some(503)).await.unwrap();
    for _ in 0..2 {
        world.advance_seconds(1700);
        assert_eq!(me(&fixture, &browser).await, 200);
        world.issuer.check_browsers().await.unwrap();
        assert_eq!(me(&fixture, &browser).await, 200, "within the hour");
    }
    world.advance_seconds(300);
    assert_eq!(me(&fixture, &browser).await, 200);
    world.issuer.check_browsers().await.unwrap();
    assert_eq!(me(&fixture, &browser).await, 401);
}

async fn one_of_two_replicas_checks_a_session(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let (world, browser) = (&fixture.world, signed_in(&fixture).await);
    world.advance_seconds(901);
    assert_eq!(me(&fixture, &browser).await, 200);
    let before = fixture.asked("/token").await;
    let rounds = futures_util::future::join_all((0..4).map(|_| world.issuer.check_browsers()));
    assert!(rounds.await.into_iter().all(|round| round.is_ok()));
    assert_eq!(fixture.asked("/token").await, before + 1);
    assert_eq!(me(&fixture, &browser).await, 200);
}
