//! Access tokens for the gateway only (RFC 8693 with `scope`).

use reqwest::StatusCode;

use crate::world::{CLIENT, JsonResponse, On, World, on_both_engines};

on_both_engines!(
    an_access_token_is_exchanged_for_a_gateway_token,
    a_gateway_token_is_refused_everywhere_else,
    a_gateway_token_revokes_itself_and_not_the_session,
    invalid_exchange_requests_are_refused,
    gateway_tokens_of_a_session_are_rate_limited,
);

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

async fn exchange(world: &World, token: &str, more: &[(&str, &str)]) -> JsonResponse {
    let usual = [
        ("grant_type", GRANT),
        ("client_id", CLIENT),
        ("subject_token", token),
        ("subject_token_type", ACCESS_TOKEN),
        ("scope", "gateway"),
    ];
    let is_replaced = |name: &str| more.iter().any(|(other, _)| *other == name);
    let form: Vec<_> = usual
        .into_iter()
        .filter(|(name, _)| !is_replaced(name))
        .chain(more.iter().copied().filter(|(_, value)| !value.is_empty()))
        .collect();
    world.token(&form).await
}

async fn an_access_token_is_exchanged_for_a_gateway_token(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    let answer = exchange(&world, &tokens.access, &[]).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(answer.headers["cache-control"], "no-store");
    assert_eq!(answer.body["scope"], "gateway");
    assert_eq!(answer.body["issued_token_type"], ACCESS_TOKEN);
    assert!(answer.body.get("refresh_token").is_none() && answer.body.get("id_token").is_none());
    let gateway = answer.body["access_token"].as_str().unwrap();
    assert!(gateway.starts_with("tba_") && gateway != tokens.access);
    assert_eq!(world.me(gateway).await, Err(StatusCode::FORBIDDEN));
    // The session is as before, and no refresh token was used up.
    assert!(world.me(&tokens.access).await.is_ok());
    world.refresh(&tokens.refresh).await.tokens();
}

async fn a_gateway_token_is_refused_everywhere_else(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    let gateway = exchange(&world, &tokens.access, &[]).await.body["access_token"].clone();
    let gateway = gateway.as_str().unwrap();
    let again = exchange(&world, gateway, &[]).await;
    again.refused(400, "invalid_request");
    let info = world.http.get(world.at("/oauth2/userinfo")).bearer_auth(gateway);
    let info = JsonResponse::send(info).await;
    assert_eq!(info.status, StatusCode::FORBIDDEN, "{info:?}");
    assert!(info.headers["www-authenticate"].to_str().unwrap().contains("insufficient_scope"));
    world.refresh(gateway).await.refused(400, "invalid_grant");
}

async fn a_gateway_token_revokes_itself_and_not_the_session(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    let gateway = exchange(&world, &tokens.access, &[]).await.body["access_token"].clone();
    let gateway = gateway.as_str().unwrap();
    assert_eq!(world.me(gateway).await, Err(StatusCode::FORBIDDEN));
    let form = [("token", gateway), ("client_id", CLIENT)];
    let ended = JsonResponse::send(world.http.post(world.at("/oauth2/revoke")).form(&form)).await;
    assert_eq!(ended.status, StatusCode::OK);
    assert_eq!(world.me(gateway).await, Err(StatusCode::UNAUTHORIZED));
    assert!(world.me(&tokens.access).await.is_ok());
    world.refresh(&tokens.refresh).await.tokens();
}

async fn invalid_exchange_requests_are_refused(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    for (more, error) in [
        (&[("scope", "openid")][..], "invalid_scope"),
        (&[("scope", "openid gateway")], "invalid_scope"),
        (&[("scope", "")], "invalid_request"),
        (&[("subject_token", "tba_unknown")], "invalid_request"),
        (&[("subject_token", &*tokens.refresh)], "invalid_request"),
        (&[("subject_token", "")], "invalid_request"),
        (&[("audience", "tenant-of-ada")], "invalid_request"),
        (&[("actor_token", "x")], "invalid_request"),
        (&[("requested_token_type", "urn:ietf:params:oauth:token-type:jwt")], "invalid_request"),
        (
            &[("subject_token_type", "urn:ietf:params:oauth:token-type:jwt")],
            "unsupported_grant_type",
        ),
    ] {
        exchange(&world, &tokens.access, more).await.refused(400, error);
    }
    // The session's end is the end of what came of it.
    world.refresh(&tokens.refresh).await.tokens();
    world.advance_seconds(30);
    world.refresh(&tokens.refresh).await.refused(400, "invalid_grant");
    exchange(&world, &tokens.access, &[]).await.refused(400, "invalid_request");
}

async fn gateway_tokens_of_a_session_are_rate_limited(on: On) {
    let world = World::start(on).await;
    let (tokens, other) = (world.sign_in().await, world.sign_in().await);
    for _ in 0..100 {
        let answer = exchange(&world, &tokens.access, &[]).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    }
    let refused = exchange(&world, &tokens.access, &[]).await;
    refused.refused(429, "temporarily_unavailable");
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(exchange(&world, &other.access, &[]).await.status, StatusCode::OK);
    world.advance_seconds(300);
    assert_eq!(exchange(&world, &tokens.access, &[]).await.status, StatusCode::OK);
}
