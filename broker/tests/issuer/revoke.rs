//! Signing out.

use reqwest::StatusCode;

use crate::world::{Answer, CLIENT, On, World, on_both_engines};

on_both_engines!(
    either_token_ends_the_session_at_once,
    there_is_nothing_to_learn_from_revoking,
    userinfo_knows_the_bearer,
);

async fn revoke(world: &World, token: &str) -> StatusCode {
    let form = [("token", token), ("client_id", CLIENT), ("token_type_hint", "refresh_token")];
    Answer::of(world.http.post(world.at("/oauth2/revoke")).form(&form)).await.status
}

async fn either_token_ends_the_session_at_once(on: On) {
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
    assert_eq!(world.audited("SignOut").await, 2);
    assert_eq!(revoke(&world, &by_access.access).await, 200, "again");
    assert_eq!(world.audited("SignOut").await, 2);
    assert_eq!(world.audited("RefreshReuse").await, 0);
}

async fn there_is_nothing_to_learn_from_revoking(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    for token in ["tbr_unknown", "tba_unknown", "x", &tokens.id, &"x".repeat(4000)] {
        assert_eq!(revoke(&world, token).await, 200, "{token}");
    }
    let post =
        |form: &[(&str, &str)]| Answer::of(world.http.post(world.at("/oauth2/revoke")).form(form));
    post(&[("client_id", CLIENT)]).await.refused(400, "invalid_request");
    let foreign = [("client_id", "another"), ("token", &*tokens.refresh)];
    post(&foreign).await.refused(401, "invalid_client");
    let twice = [("token", "a"), ("token", "b")];
    post(&twice).await.refused(400, "invalid_request");
    assert!(world.me(&tokens.access).await.is_ok());
}

async fn userinfo_knows_the_bearer(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    let request = world.http.get(world.at("/oauth2/userinfo"));
    let answer = Answer::of(request.bearer_auth(&tokens.access)).await;
    assert_eq!(answer.body, serde_json::json!({ "sub": world.user, "email": "ada@example.com" }));
    revoke(&world, &tokens.access).await;
    let request = world.http.post(world.at("/oauth2/userinfo"));
    let answer = Answer::of(request.bearer_auth(&tokens.access)).await;
    assert_eq!(answer.status, 401);
    let challenge = answer.headers["www-authenticate"].to_str().unwrap();
    assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
    let stranger = Answer::of(world.http.get(world.at("/oauth2/userinfo"))).await;
    assert_eq!(stranger.status, 401);
    let challenge = stranger.headers["www-authenticate"].to_str().unwrap();
    assert!(!challenge.contains("error"), "{challenge}");
}
