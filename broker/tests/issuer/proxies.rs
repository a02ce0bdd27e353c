//! Client addresses behind trusted proxies: each client has its own, and nobody can forge one.

use crate::world::{BrowserSignIn, EMAIL, On, REDIRECT, World, client_at, on_both_engines};

on_both_engines!(
    a_forged_forwarded_header_is_ignored,
    behind_a_trusted_proxy_each_client_address_has_its_own_limit
);

/// Tries a wrong password; returns the status.
async fn wrong(world: &World, client: &reqwest::Client, forwarded_for: &str) -> u16 {
    let attempt = BrowserSignIn::begin(world, REDIRECT).await;
    let form = [("request", attempt.handle.as_str()), ("email", EMAIL), ("password", "wrong")];
    let request = client.post(world.at("/login")).form(&form);
    let request = request.header("Cookie", &attempt.cookie);
    let request = request.header("X-Forwarded-For", forwarded_for);
    // A header that is never read.
    let request = request.header("Forwarded", format!("for={forwarded_for}"));
    request.send().await.unwrap().status().as_u16()
}

/// Addresses of the refused sign-ins, oldest first.
async fn addresses(world: &World) -> Vec<String> {
    let rows = world.audited("SignIn").await;
    rows.into_iter().rev().map(|row| row.ip_address.unwrap()).collect()
}

async fn a_forged_forwarded_header_is_ignored(on: On) {
    let world = World::start(on).await;
    // Five tries are allowed for an account at an address.
    for n in 0..5 {
        assert_eq!(wrong(&world, &world.http, &format!("192.0.2.{n}")).await, 401);
    }
    assert_eq!(wrong(&world, &world.http, "192.0.2.99").await, 429);
    assert_eq!(addresses(&world).await, ["127.0.0.1"; 5]);
}

async fn behind_a_trusted_proxy_each_client_address_has_its_own_limit(on: On) {
    let world = World::start(on).await;
    let proxy = client_at("127.0.7.1");
    for n in 0..5 {
        // The left part is what the person invented.
        assert_eq!(wrong(&world, &proxy, &format!("10.0.0.{n}, 192.0.2.1, 127.0.7.2")).await, 401);
    }
    assert_eq!(wrong(&world, &proxy, "10.0.0.9, 192.0.2.1").await, 429);
    assert_eq!(wrong(&world, &proxy, "192.0.2.2").await, 401, "somebody else behind it");
    assert_eq!(addresses(&world).await, [["192.0.2.1"; 5].as_slice(), &["192.0.2.2"]].concat());
}
