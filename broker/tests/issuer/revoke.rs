//! Token revocation and the userinfo endpoint.

use reqwest::StatusCode;

use crate::world::{CLIENT, JsonResponse, On, World, on_both_engines};

on_both_engines!(
    revoking_either_token_ends_the_session_immediately,
    revocation_reveals_nothing_about_tokens,
    userinfo_returns_the_claims_of_the_token,
);

async fn revoke(world: &World, token: &str) -> StatusCode {
    let form = [("token", token), ("client_id", CLIENT), ("token_type_hint", "refresh_token")];
    JsonResponse::send(world.http.post(world.at("/oauth2/revoke")).form(&form)).await.status
}

async fn revoking_either_token_ends_the_session_immediately(on: On) {
    let world = World::start(on).await;
    let stays = world.sign_in().await;
    let by_refresh = world.sign_in().await;
    let renewed = world.refresh(&by_refresh.refresh).await.tokens();
    // Also a token that is used up says whose session is meant.
    assert_eq!(revoke(&world, &by_refresh.refresh).await, 200);
    let by_access = world.sign_in().await;
    assert_eq!(revoke(&world, &by_access.access).await, 200);
    for ended in [&by_refresh, &renewed, &by_access] {
        assert_eq!(world.me(&ended.access).await.unwrap_err(), 401);
        world.refresh(&ended.refresh).await.refused(400, "invalid_grant");
    }
    assert!(world.me(&stays.access).await.is_ok());
    assert_eq!(world.count_audited("SignOut").await, 2);
    assert_eq!(revoke(&world, &by_access.access).await, 200, "again");
    assert_eq!(world.count_audited("SignOut").await, 2);
    assert_eq!(world.count_audited("RefreshReuse").await, 0);
}

async fn revocation_reveals_nothing_about_tokens(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    for token in ["tbr_unknown", "tba_unknown", "x", &tokens.id, &"x".repeat(4000)] {
        assert_eq!(revoke(&world, token).await, 200, "{token}");
    }
    let post = |form: &[(&str, &str)]| {
        JsonResponse::send(world.http.post(world.at("/oauth2/revoke")).form(form))
    };
    post(&[("client_id", CLIENT)]).await.refused(400, "invalid_request");
    let foreign = [("client_id", "another"), ("token", &*tokens.refresh)];
    post(&foreign).await.refused(401, "invalid_client");
    let twice = [("token", "a"), ("token", "b")];
    post(&twice).await.refused(400, "invalid_request");
    assert!(world.me(&tokens.access).await.is_ok());
}

async fn userinfo_returns_the_claims_of_the_token(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    let request = world.http.get(world.at("/oauth2/userinfo"));
    let answer = JsonResponse::send(request.bearer_auth(&tokens.access)).await;
    assert_eq!(answer.body, serde_json::json!({ "sub": world.user, "email": "ada@example.com" }));
    revoke(&world, &tokens.access).await;
    let request = world.http.post(world.at("/oauth2/userinfo"));
    let answer = JsonResponse::send(request.bearer_auth(&tokens.access)).await;
    assert_eq!(answer.status, 401);
    let challenge = answer.headers["www-authenticate"].to_str().unwrap();
    assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
    let stranger = JsonResponse::send(world.http.get(world.at("/oauth2/userinfo"))).await;
    assert_eq!(stranger.status, 401);
    let challenge = stranger.headers["www-authenticate"].to_str().unwrap();
    assert!(!challenge.contains("error"), "{challenge}");
}
