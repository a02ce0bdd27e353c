//! Redemption of authorization codes, and the detection of their reuse.

use serde_json::json;

use crate::world::{
    BrowserSignIn, CLIENT, JsonResponse, On, REDIRECT, World, on_both_engines, with,
};

on_both_engines!(
    a_code_is_redeemed_for_valid_tokens,
    a_reused_code_ends_its_session,
    of_two_concurrent_redemptions_one_succeeds_and_the_session_ends,
    a_code_without_its_proof_is_invalid,
    a_code_expires,
    a_suspended_user_gets_no_session,
    invalid_token_requests_get_their_error,
    without_offline_access_there_is_no_refresh_token,
);

async fn a_code_is_redeemed_for_valid_tokens(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    assert!(tokens.access.starts_with("tba_") && tokens.refresh.starts_with("tbr_"));
    assert_eq!(tokens.expires_in, 900);
    let me = world.me(&tokens.access).await.unwrap();
    assert_eq!((me.id, me.email.as_str()), (world.user, "ada@example.com"));
    assert_eq!(me.session_expires_at.0.as_second(), world.clock.now().as_second() + 7 * 24 * 3600);
    let kept = "SELECT COUNT(*) FROM sessions WHERE ip_address = '127.0.0.1' \
                AND user_agent = 'kubectl-tenant-integration'";
    assert_eq!(world.number(kept).await, 1);

    world.advance_seconds(899);
    assert!(world.me(&tokens.access).await.is_ok());
    world.advance_seconds(1);
    assert_eq!(world.me(&tokens.access).await.unwrap_err(), 401, "an access token expires");
    for other in [&tokens.refresh, &tokens.id, "", "tba_", "tba_unknown"] {
        assert_eq!(world.me(other).await.unwrap_err(), 401, "{other}");
    }
}

async fn a_reused_code_ends_its_session(on: On) {
    let world = World::start(on).await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let code = attempt.code(&world).await;
    let tokens = world.token(&attempt.redeeming(&code)).await.tokens();
    let stranger = with(&attempt.redeeming(&code), "code_verifier", "not-the-verifier");
    world.token(&stranger).await.refused(400, "invalid_grant");
    assert_eq!(world.me(&tokens.access).await.unwrap_err(), 401);
    world.refresh(&tokens.refresh).await.refused(400, "invalid_grant");
    world.token(&attempt.redeeming(&code)).await.refused(400, "invalid_grant");
    assert_eq!(world.count_audited("CodeReuse").await, 1);
}

async fn of_two_concurrent_redemptions_one_succeeds_and_the_session_ends(on: On) {
    let world = World::start(on).await;
    for _ in 0..5 {
        let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
        let code = attempt.code(&world).await;
        let form = attempt.redeeming(&code);
        let (a, b) = tokio::join!(world.token(&form), world.token(&form));
        let (won, lost) = if a.status == 200 { (a, b) } else { (b, a) };
        lost.refused(400, "invalid_grant");
        assert_eq!(world.me(&won.tokens().access).await.unwrap_err(), 401);
    }
    assert_eq!(world.count_audited("CodeReuse").await, 5);
    assert_eq!(world.number("SELECT COUNT(*) FROM sessions").await, 5);
}

async fn a_code_without_its_proof_is_invalid(on: On) {
    let world = World::start(on).await;
    let long = "x".repeat(200);
    let challenge = crate::world::challenge(crate::world::VERIFIER);
    let code_page = world.at("/login/code");
    for (name, value) in [
        ("code_verifier", ""),
        ("code_verifier", "another-verifier-of-a-test-that-is-long-enough-9876"),
        ("code_verifier", challenge.as_str()),
        ("code_verifier", long.as_str()),
        ("redirect_uri", ""),
        ("redirect_uri", "http://127.0.0.1:49153/callback"),
        ("redirect_uri", code_page.as_str()),
    ] {
        let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
        let code = attempt.code(&world).await;
        let form = attempt.redeeming(&code);
        world.token(&with(&form, name, value)).await.refused(400, "invalid_grant");
        // A wrong proof uses the code up, so an attacker has one guess.
        world.token(&form).await.refused(400, "invalid_grant");
    }
    // A code that was given to another client.
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let code = attempt.code(&world).await;
    world
        .execute("UPDATE authorizations SET client_id = 'another' WHERE redeemed_at IS NULL")
        .await;
    world.token(&attempt.redeeming(&code)).await.refused(400, "invalid_grant");
    assert_eq!(world.number("SELECT COUNT(*) FROM sessions").await, 0);
}

async fn a_code_expires(on: On) {
    let world = World::start(on).await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let code = attempt.code(&world).await;
    world.advance_seconds(60);
    world.token(&attempt.redeeming(&code)).await.refused(400, "invalid_grant");
    world.token(&attempt.redeeming("tbc_unknown")).await.refused(400, "invalid_grant");
}

async fn a_suspended_user_gets_no_session(on: On) {
    let world = World::start(on).await;
    let tokens = world.sign_in().await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let code = attempt.code(&world).await;
    world.execute("UPDATE users SET status = 'suspended'").await;
    world.token(&attempt.redeeming(&code)).await.refused(400, "invalid_grant");
    world.refresh(&tokens.refresh).await.refused(400, "invalid_grant");
    assert_eq!(world.me(&tokens.access).await.unwrap_err(), 401);
    assert_eq!(world.number("SELECT COUNT(*) FROM sessions").await, 1);
}

async fn invalid_token_requests_get_their_error(on: On) {
    let world = World::start(on).await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let code = attempt.code(&world).await;
    let good = attempt.redeeming(&code);
    let without = |name: &str| good.iter().filter(|(n, _)| *n != name).copied().collect::<Vec<_>>();
    world.token(&without("grant_type")).await.refused(400, "invalid_request");
    world.token(&without("client_id")).await.refused(400, "invalid_request");
    world.token(&without("code")).await.refused(400, "invalid_request");
    world.token(&with(&good, "code", &"x".repeat(129))).await.refused(400, "invalid_request");
    for grant_type in ["password", "client_credentials", "implicit"] {
        let form = with(&good, "grant_type", grant_type);
        world.token(&form).await.refused(400, "unsupported_grant_type");
    }
    world.token(&with(&good, "client_id", "another")).await.refused(401, "invalid_client");
    world.token(&with(&good, "client_secret", "secret")).await.refused(401, "invalid_client");
    let twice = [good.as_slice(), &[("state", "1"), ("state", "1")]].concat();
    world.token(&twice).await.refused(400, "invalid_request");
    let many: Vec<(String, &str)> = (0..40).map(|n| (format!("p{n}"), "1")).collect();
    let post = || world.http.post(world.at("/oauth2/token"));
    JsonResponse::send(post().form(&many)).await.refused(400, "invalid_request");
    JsonResponse::send(post().form(&good).basic_auth(CLIENT, Some("x")))
        .await
        .refused(401, "invalid_client");
    JsonResponse::send(post().json(&json!({ "grant_type": "refresh_token" })))
        .await
        .refused(400, "invalid_request");
    let padding = "x".repeat(9000);
    world.token(&with(&good, "x", &padding)).await.refused(413, "invalid_request");
    let read = world.http.get(world.at("/oauth2/token")).send().await.unwrap();
    assert_eq!(read.status(), 405);
    // None of them used the code up.
    world.token(&good).await.tokens();
}

async fn without_offline_access_there_is_no_refresh_token(on: On) {
    let world = World::start(on).await;
    let mut parameters = crate::world::authorization_parameters(REDIRECT);
    parameters.retain(|(name, _)| *name != "scope");
    parameters.push(("scope", "openid".into()));
    let response = crate::world::authorize(&world, &parameters).await;
    let cookie = response.headers()["set-cookie"].to_str().unwrap();
    let attempt = BrowserSignIn {
        handle: crate::world::query(crate::world::location(&response), "request").unwrap(),
        cookie: cookie.split(';').next().unwrap().to_owned(),
        redirect: REDIRECT.to_owned(),
    };
    let code = attempt.code(&world).await;
    let answer = world.token(&attempt.redeeming(&code)).await;
    assert_eq!(answer.body["scope"], "openid");
    assert!(answer.body.get("refresh_token").is_none(), "{answer:?}");
    let request = world.http.get(world.at("/oauth2/userinfo")).bearer_auth(answer.tokens().access);
    let userinfo = JsonResponse::send(request).await;
    assert_eq!(userinfo.body, json!({ "sub": world.user }), "no e-mail without its scope");
}
