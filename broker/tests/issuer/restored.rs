//! Sign-ins after the restore of a backup: nothing that was issued before works, and everybody may
//! sign in again.

use reqwest::{StatusCode, header};
use serde_json::json;
use tenant_broker::backup::{Revoked, revoke_restored};

use crate::{
    upstream::ProviderWorld,
    world::{
        BrowserSignIn, CLIENT, EMAIL, FRONTEND, JsonResponse, On, PASSWORD, REDIRECT, SCOPE, World,
        on_both_engines,
    },
};

on_both_engines!(
    nothing_from_before_a_restore_starts_or_continues_a_session,
    the_grants_of_providers_are_forgotten,
);

const INVALID_GRANT: (u16, &str) = (400, "invalid_grant");

/// Does to the database what a restore does.
async fn restore(world: &World) -> Revoked {
    let mut tx = world.db.begin().await.unwrap();
    let revoked = revoke_restored(&mut tx, &world.clock).await.unwrap();
    tx.commit().await.unwrap();
    revoked
}

/// Starts a device authorization; returns the device code.
async fn device(world: &World) -> String {
    let form = [("client_id", CLIENT), ("scope", SCOPE)];
    let request = world.http.post(world.at("/oauth2/device_authorization")).form(&form);
    let answer = JsonResponse::send(request).await;
    answer.body["device_code"].as_str().unwrap().to_owned()
}

async fn poll(world: &World, device_code: &str) -> JsonResponse {
    let grant = "urn:ietf:params:oauth:grant-type:device_code";
    world.token(&[("grant_type", grant), ("client_id", CLIENT), ("device_code", device_code)]).await
}

/// Signs a browser in; returns its cookies.
async fn browser(world: &World) -> String {
    let body = json!({ "email": EMAIL, "password": PASSWORD });
    let request = world.http.post(world.at("/api/v1/auth/login")).json(&body);
    let response = request.header(header::ORIGIN, FRONTEND).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let cookies = response.headers().get_all(header::SET_COOKIE).iter();
    let pairs: Vec<&str> =
        cookies.filter_map(|cookie| cookie.to_str().ok()?.split(';').next()).collect();
    pairs.join("; ")
}

async fn me_with_cookie(world: &World, cookie: &str) -> StatusCode {
    let request = world.http.get(world.at("/api/v1/me")).header(header::COOKIE, cookie);
    request.send().await.unwrap().status()
}

async fn nothing_from_before_a_restore_starts_or_continues_a_session(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    let cookie = browser(&world).await;
    assert_eq!(me_with_cookie(&world, &cookie).await, 200);
    let form = BrowserSignIn::begin(&world, REDIRECT).await;
    let approved = BrowserSignIn::begin(&world, REDIRECT).await;
    let code = approved.code(&world).await;
    let (polled, device_code) = (device(&world).await, device(&world).await);
    poll(&world, &polled).await.refused(400, "authorization_pending");

    assert_eq!(restore(&world).await.sessions, 2);
    assert_eq!(world.me(&tokens.access).await, Err(StatusCode::UNAUTHORIZED));
    assert_eq!(me_with_cookie(&world, &cookie).await, 401);
    world.refresh(&tokens.refresh).await.refused(INVALID_GRANT.0, INVALID_GRANT.1);
    let redeemed = world.token(&approved.redeeming(&code)).await;
    redeemed.refused(INVALID_GRANT.0, INVALID_GRANT.1);
    poll(&world, &device_code).await.refused(INVALID_GRANT.0, INVALID_GRANT.1);
    assert_eq!(form.page(&world).await.status(), 400);
    assert_eq!(form.post(&world, EMAIL, PASSWORD).await.status(), 400);

    let again = world.sign_in().await;
    world.me(&again.access).await.unwrap();
    world.refresh(&again.refresh).await.tokens();
    assert_eq!(restore(&world).await.sessions, 1, "the earlier sessions stay ended");
}

async fn the_grants_of_providers_are_forgotten(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let tokens = fixture.sign_in("ada").await;
    let world = &fixture.world;
    let grants = "SELECT COUNT(*) FROM upstream_grants";
    assert_eq!(world.number(grants).await, 1);
    restore(world).await;
    assert_eq!(world.number(grants).await, 0);
    world.refresh(&tokens.refresh).await.refused(INVALID_GRANT.0, INVALID_GRANT.1);
    // The provider still knows her, and so does the broker.
    let again = fixture.sign_in("ada").await;
    assert_eq!(world.number("SELECT COUNT(*) FROM identities").await, 1);
    world.me(&again.access).await.unwrap();
}
