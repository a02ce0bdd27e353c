//! Authorization requests: validation, error pages and error redirects.

use reqwest::{Response, header};

use crate::world::{
    On, REDIRECT, World, authorization_parameters, authorize, location, on_both_engines, query,
};

on_both_engines!(
    a_valid_request_redirects_to_the_sign_in_page_and_is_bound_to_the_browser,
    an_invalid_client_or_redirect_uri_is_never_redirected,
    other_errors_redirect_to_the_client_with_state_and_issuer,
    a_repeated_parameter_is_refused,
    parameters_are_bounded,
    unknown_scopes_and_prompts_are_ignored,
    requests_of_one_address_are_rate_limited,
);

/// The usual request with one parameter replaced.
fn with(name: &'static str, value: &str) -> Vec<(&'static str, String)> {
    let mut parameters = without(name);
    parameters.push((name, value.to_owned()));
    parameters
}

fn without(name: &'static str) -> Vec<(&'static str, String)> {
    authorization_parameters(REDIRECT).into_iter().filter(|(n, _)| *n != name).collect()
}

/// Asserts that the response is a page without a redirect.
async fn assert_page(response: Response, status: u16, what: &str) {
    assert_eq!(response.status(), status, "{what}");
    assert!(!response.headers().contains_key(header::LOCATION), "{what}");
    assert!(!response.headers().contains_key(header::SET_COOKIE), "{what}");
    assert!(response.text().await.unwrap().contains("not valid"), "{what}");
}

/// Asserts a redirect to the client with this error, its state and the issuer identifier.
fn assert_told(world: &World, response: &Response, error: &str, what: &str) {
    assert_eq!(response.status(), 303, "{what}");
    let told = location(response);
    assert!(told.starts_with(&format!("{REDIRECT}?")), "{what}: {told}");
    assert_eq!(query(told, "error").as_deref(), Some(error), "{what}");
    assert_eq!(query(told, "iss").as_deref(), Some(world.url.as_str()), "{what}");
    assert_eq!(query(told, "code"), None, "{what}");
}

async fn a_valid_request_redirects_to_the_sign_in_page_and_is_bound_to_the_browser(on: On) {
    let world = World::start(on).await;
    let response = authorize(&world, &authorization_parameters(REDIRECT)).await;
    assert_eq!(response.status(), 303);
    assert!(location(&response).starts_with("/login?request=tbq_"));
    let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap();
    for part in ["=tbb_", "HttpOnly", "SameSite=Lax", "Path=/login", "Max-Age=600"] {
        assert!(cookie.contains(part), "{part}: {cookie}");
    }
    assert_eq!(response.headers()[header::REFERRER_POLICY], "no-referrer");
    assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    assert_eq!(world.number("SELECT COUNT(*) FROM authorizations").await, 1);
}

async fn an_invalid_client_or_redirect_uri_is_never_redirected(on: On) {
    let world = World::start(on).await;
    let code_page = world.at("/login/code");
    for redirect in [
        "http://127.0.0.1:49152/callback/../../evil",
        "http://127.0.0.1:49152/callback2",
        "http://127.0.0.1:49152/",
        "http://127.0.0.1/callback",
        "http://localhost:49152/callback",
        "http://evil.example:49152/callback",
        "http://127.0.0.1.evil.example:49152/callback",
        "http://127.0.0.1:49152@evil.example/callback",
        "http://user:secret@127.0.0.1:49152/callback",
        "https://127.0.0.1:49152/callback",
        "http://127.0.0.1:49152/callback#fragment",
        "http://127.0.0.1:49152/callback?a=b",
        "javascript:alert(1)",
        "",
        &format!("{code_page}/"),
        &format!("{code_page}?code=tbc_x"),
        &format!("{}@evil.example/login/code", world.url),
        &format!("http://127.0.0.1:1/{}", "x".repeat(2000)),
    ] {
        assert_page(authorize(&world, &with("redirect_uri", redirect)).await, 400, redirect).await;
    }
    for client in ["", "kubectl-tenant2", "KUBECTL-TENANT", " kubectl-tenant"] {
        assert_page(authorize(&world, &with("client_id", client)).await, 400, client).await;
    }
    assert_page(authorize(&world, &without("client_id")).await, 400, "no client").await;
    assert_page(authorize(&world, &without("redirect_uri")).await, 400, "no redirect").await;
    for allowed in [REDIRECT, "http://[::1]:1/callback", &code_page] {
        assert_eq!(
            authorize(&world, &authorization_parameters(allowed)).await.status(),
            303,
            "{allowed}"
        );
    }
    assert_eq!(world.number("SELECT COUNT(*) FROM authorizations").await, 3);
}

async fn other_errors_redirect_to_the_client_with_state_and_issuer(on: On) {
    let world = World::start(on).await;
    let verifier = crate::world::VERIFIER;
    for (parameters, error, what) in [
        (without("response_type"), "invalid_request", "no response type"),
        (with("response_type", "token"), "unsupported_response_type", "implicit"),
        (with("response_type", "code id_token"), "unsupported_response_type", "hybrid"),
        (with("response_mode", "fragment"), "invalid_request", "fragment"),
        (with("response_mode", "form_post"), "invalid_request", "form_post"),
        (without("code_challenge"), "invalid_request", "no PKCE"),
        (without("code_challenge_method"), "invalid_request", "plain by default"),
        (with("code_challenge_method", "plain"), "invalid_request", "plain"),
        (with("code_challenge_method", "s256"), "invalid_request", "another name"),
        (with("code_challenge", &verifier[..42]), "invalid_request", "short challenge"),
        (with("code_challenge", &"=".repeat(43)), "invalid_request", "no base64url"),
        (with("scope", "email"), "invalid_scope", "without openid"),
        (without("scope"), "invalid_scope", "no scope"),
        (with("request", "eyJ"), "request_not_supported", "request object"),
        (with("request_uri", "https://x"), "request_uri_not_supported", "request object by URI"),
        (with("prompt", "none"), "login_required", "prompt none"),
    ] {
        let response = authorize(&world, &parameters).await;
        assert_told(&world, &response, error, what);
        assert_eq!(
            query(location(&response), "state").as_deref(),
            Some("a state & more"),
            "{what}"
        );
    }
    let stateless =
        authorize(&world, &[without("state"), vec![("response_mode", "x".into())]].concat()).await;
    assert_eq!(query(location(&stateless), "state"), None);
    assert_eq!(world.number("SELECT COUNT(*) FROM authorizations").await, 0);
}

async fn a_repeated_parameter_is_refused(on: On) {
    let world = World::start(on).await;
    for name in ["client_id", "redirect_uri"] {
        let mut parameters = authorization_parameters(REDIRECT);
        parameters
            .extend(authorization_parameters(REDIRECT).into_iter().filter(|(n, _)| *n == name));
        assert_page(authorize(&world, &parameters).await, 400, name).await;
    }
    for name in ["state", "nonce", "scope", "code_challenge", "response_type", "unknown"] {
        let mut parameters = authorization_parameters(REDIRECT);
        parameters.extend([(name, "a".into()), (name, "a".into())]);
        assert_told(&world, &authorize(&world, &parameters).await, "invalid_request", name);
    }
}

async fn parameters_are_bounded(on: On) {
    let world = World::start(on).await;
    for (name, most) in [("state", 512), ("nonce", 512), ("scope", 256)] {
        let response = authorize(&world, &with(name, &"x".repeat(most + 1))).await;
        assert_told(&world, &response, "invalid_request", name);
    }
    let response = authorize(&world, &with("state", &"x".repeat(513))).await;
    assert_eq!(query(location(&response), "state"), None, "what is too long is not sent back");
    let large = authorize(&world, &with("state", &"x".repeat(9000))).await;
    assert_page(large, 400, "larger than 8 KiB").await;
}

async fn unknown_scopes_and_prompts_are_ignored(on: On) {
    let world = World::start(on).await;
    let mut parameters = with("scope", "profile openid openid groups");
    parameters.extend([
        ("prompt", "login consent".to_owned()),
        ("max_age", "0".to_owned()),
        ("acr_values", "x".to_owned()),
        ("empty", String::new()),
    ]);
    let response = authorize(&world, &parameters).await;
    assert!(location(&response).starts_with("/login?request="));
    let kept = "SELECT COUNT(*) FROM authorizations WHERE scope = 'openid'";
    assert_eq!(world.number(kept).await, 1);
}

async fn requests_of_one_address_are_rate_limited(on: On) {
    let world = World::with(on, |settings| settings.sign_in_start.count = 3).await;
    for _ in 0..3 {
        assert_eq!(authorize(&world, &authorization_parameters(REDIRECT)).await.status(), 303);
    }
    let refused = authorize(&world, &authorization_parameters(REDIRECT)).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key(header::RETRY_AFTER));
    // A browser's own sign-in is one as well; others are not concerned, nor is the next window.
    let page = || world.http.get(world.at("/login"));
    assert_eq!(page().send().await.unwrap().status(), 429);
    let elsewhere = crate::world::client_at("127.0.0.2");
    assert_eq!(elsewhere.get(world.at("/login")).send().await.unwrap().status(), 303);
    assert_eq!(world.number("SELECT COUNT(*) FROM authorizations").await, 4);
    world.advance_seconds(301);
    assert_eq!(page().send().await.unwrap().status(), 303);
}
