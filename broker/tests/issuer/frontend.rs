//! Browser sessions: their start and end, and the origins that may use their cookie.

use reqwest::{Method, RequestBuilder, Response, header};
use serde_json::json;

use crate::world::{
    BrowserSignIn, EMAIL, FRONTEND, JsonResponse, On, PASSWORD, World, authorization_parameters,
    authorize, location, on_both_engines, query,
};

on_both_engines!(
    a_frontend_signs_in_and_out,
    the_sign_in_page_redirects_to_the_return_url,
    each_sign_in_is_a_new_session,
    a_foreign_page_cannot_use_the_cookie,
    only_listed_origins_pass_cors,
    return_urls_of_other_sites_are_refused,
    a_cookie_is_not_a_token_and_a_token_is_not_a_cookie,
    use_extends_a_browser_session,
    registration_requires_the_setting,
    registration_does_not_reveal_who_has_an_account,
    failures_of_others_do_not_lock_out_a_trusted_browser,
    guesses_from_many_addresses_are_limited,
);

const EVIL: &str = "https://evil.example.com";

fn set_cookies(response: &Response) -> Vec<String> {
    let values = response.headers().get_all(header::SET_COOKIE).iter();
    values.map(|value| value.to_str().unwrap().to_owned()).collect()
}

/// The `name=value` pair of the cookie with this name, as a browser sends it.
fn cookie(response: &Response, name: &str) -> String {
    let all = set_cookies(response);
    let line = all.iter().find(|line| line.starts_with(&format!("{name}=")));
    let line = line.unwrap_or_else(|| panic!("no cookie {name} in {all:?}"));
    assert!(line.contains("HttpOnly") && line.contains("SameSite=Lax"), "{line}");
    line.split(';').next().unwrap().to_owned()
}

fn login(world: &World, email: &str, password: &str) -> RequestBuilder {
    let body = json!({ "email": email, "password": password });
    world.http.post(world.at("/api/v1/auth/login")).json(&body)
}

/// Signs a browser in; returns its session cookie and its device cookie.
async fn browser(world: &World) -> (String, String) {
    let response = login(world, EMAIL, PASSWORD).header("origin", FRONTEND).send().await.unwrap();
    assert_eq!(response.status(), 200, "{response:?}");
    (cookie(&response, "tenant-session"), cookie(&response, "tenant-browser"))
}

fn with_cookie(world: &World, method: Method, path: &str, cookie: &str) -> RequestBuilder {
    world.http.request(method, world.at(path)).header(header::COOKIE, cookie)
}

async fn status(request: RequestBuilder) -> u16 {
    request.send().await.unwrap().status().as_u16()
}

async fn me(world: &World, cookie: &str) -> u16 {
    status(with_cookie(world, Method::GET, "/api/v1/me", cookie)).await
}

async fn a_frontend_signs_in_and_out(on: On) {
    let world = World::start(on).await;
    let (session, _) = browser(&world).await;
    assert_eq!(me(&world, &session).await, 200);
    let logout = with_cookie(&world, Method::POST, "/api/v1/auth/logout", &session);
    let response = logout.header("origin", FRONTEND).send().await.unwrap();
    assert_eq!(response.status(), 204);
    assert!(set_cookies(&response)[0].contains("Max-Age=0"), "{response:?}");
    assert_eq!(me(&world, &session).await, 401);
    assert_eq!(world.count_audited("SignOut").await, 1);

    let wrong = JsonResponse::send(login(&world, EMAIL, "wrong")).await;
    assert_eq!(
        (wrong.status.as_u16(), wrong.body["code"].as_str()),
        (401, Some("unauthenticated"))
    );
    let nobody = JsonResponse::send(login(&world, "nobody@example.com", "wrong")).await;
    assert_eq!(wrong.body["detail"], nobody.body["detail"], "it does not say what was wrong");
    assert!(!wrong.headers.contains_key(header::SET_COOKIE));
}

async fn the_sign_in_page_redirects_to_the_return_url(on: On) {
    let world = World::start(on).await;
    for (asked, place) in
        [("", "/account"), ("?return_to=/device%3Fuser_code%3DX", "/device?user_code=X")]
    {
        let response = world.http.get(world.at(&format!("/login{asked}"))).send().await.unwrap();
        let attempt = BrowserSignIn {
            handle: query(location(&response), "request").unwrap(),
            cookie: set_cookies(&response)[0].split(';').next().unwrap().to_owned(),
            redirect: String::new(),
        };
        assert_eq!(attempt.page(&world).await.status(), 200);
        assert_eq!(attempt.post(&world, EMAIL, "wrong").await.status(), 401);
        let response = attempt.post(&world, EMAIL, PASSWORD).await;
        assert_eq!((response.status().as_u16(), location(&response)), (303, place));
        assert_eq!(me(&world, &cookie(&response, "tenant-session")).await, 200);
        assert_eq!(attempt.post(&world, EMAIL, PASSWORD).await.status(), 400, "once");
    }
}

async fn each_sign_in_is_a_new_session(on: On) {
    let world = World::start(on).await;
    let (first, known) = browser(&world).await;
    // An attacker planted a session cookie, or an old one exists: the sign-in starts a new session.
    for planted in [first.as_str(), "tenant-session=tbs_planted"] {
        let cookies = format!("{planted}; {known}");
        let request = login(&world, EMAIL, PASSWORD).header(header::COOKIE, cookies);
        let response = request.send().await.unwrap();
        assert_ne!(cookie(&response, "tenant-session"), planted);
    }
    assert_eq!(me(&world, "tenant-session=tbs_planted").await, 401);
    assert_eq!(world.number("SELECT COUNT(*) FROM sessions").await, 3);
    assert_eq!(world.number("SELECT COUNT(*) FROM known_browsers").await, 1);
}

async fn a_foreign_page_cannot_use_the_cookie(on: On) {
    let world = World::start(on).await;
    let (session, _) = browser(&world).await;
    let attacks: [&[(&str, &str)]; 6] = [
        &[],
        &[("origin", EVIL)],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", EVIL), ("sec-fetch-site", "same-origin")],
    ];
    for headers in attacks {
        for (method, path) in
            [(Method::POST, "/api/v1/auth/logout"), (Method::DELETE, "/api/v1/me/sessions")]
        {
            let request = with_cookie(&world, method, path, &session);
            let request = headers.iter().fold(request, |r, (name, value)| r.header(*name, *value));
            let answer = JsonResponse::send(request).await;
            assert_eq!(answer.status, 403, "{headers:?} {path}: {answer:?}");
            assert_eq!(answer.body["code"], "foreign_origin", "{headers:?} {path}");
        }
        // A read that a foreign page causes is refused as well, although the page could not read the
        // response.
        if !headers.is_empty() {
            let request = with_cookie(&world, Method::GET, "/api/v1/me", &session);
            let request = headers.iter().fold(request, |r, (name, value)| r.header(*name, *value));
            assert_eq!(status(request).await, 403, "{headers:?}");
        }
    }
    // Nor can a foreign page sign the browser in as another user (login CSRF).
    assert_eq!(status(login(&world, EMAIL, PASSWORD).header("origin", EVIL)).await, 403);
    assert_eq!(me(&world, &session).await, 200, "nothing has changed");
}

async fn only_listed_origins_pass_cors(on: On) {
    let world = World::start(on).await;
    let (session, _) = browser(&world).await;
    let asks = |origin: &str, method: &str| {
        world
            .http
            .request(Method::OPTIONS, world.at("/api/v1/me/sessions"))
            .header("origin", origin)
            .header("access-control-request-method", method)
            .header("access-control-request-headers", "content-type")
            .send()
    };
    let allowed = asks(FRONTEND, "DELETE").await.unwrap();
    assert_eq!(allowed.status(), 200);
    assert_eq!(allowed.headers()["access-control-allow-origin"], FRONTEND);
    assert_eq!(allowed.headers()["access-control-allow-credentials"], "true");
    for (origin, method) in [(EVIL, "DELETE"), ("null", "GET"), (FRONTEND, "PATCH")] {
        let refused = asks(origin, method).await.unwrap();
        assert_eq!(refused.status(), 403, "{origin} {method}");
        assert!(!refused.headers().contains_key("access-control-allow-origin"));
    }
    // Answers, failures too, can be read by the frontend and by nobody else.
    for (path, expected) in [("/api/v1/me", 200), ("/api/v1/nowhere", 404)] {
        let request = with_cookie(&world, Method::GET, path, &session).header("origin", FRONTEND);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), expected);
        assert_eq!(response.headers()["access-control-allow-origin"], FRONTEND);
        assert_eq!(response.headers()["vary"], "Origin");
        assert_eq!(response.headers()["cache-control"], "no-store");
    }
    let request = with_cookie(&world, Method::GET, "/api/v1/me", &session).header("origin", EVIL);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 403);
    assert!(!response.headers().contains_key("access-control-allow-origin"));
}

async fn return_urls_of_other_sites_are_refused(on: On) {
    let world = World::start(on).await;
    for place in [
        EVIL,
        "//evil.example.com",
        "/\\evil.example.com",
        "https://app.example.com.evil.com",
        "https://app.example.com@evil.com",
        "javascript:alert(1)",
    ] {
        let request = world.http.get(world.at("/login")).query(&[("return_to", place)]);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 400, "{place}");
        assert!(!response.text().await.unwrap().contains("evil.com"));
    }
    let request = world.http.get(world.at("/login"));
    let response = request.query(&[("return_to", "https://app.example.com/x")]).send().await;
    assert_eq!(response.unwrap().status(), 303);
}

async fn a_cookie_is_not_a_token_and_a_token_is_not_a_cookie(on: On) {
    let world = World::start(on).await;
    let (session, _) = browser(&world).await;
    let secret = session.strip_prefix("tenant-session=").unwrap();
    assert_eq!(world.me(secret).await.unwrap_err(), 401);
    let tokens = world.sign_in().await;
    assert_eq!(me(&world, &format!("tenant-session={}", tokens.access)).await, 401);
    // A bad token is not made good by a cookie beside it.
    let request = with_cookie(&world, Method::GET, "/api/v1/me", &session).bearer_auth("tba_x");
    assert_eq!(status(request).await, 401);
    assert_eq!(me(&world, &format!("{session}; {session}")).await, 401, "sent twice");
    let refresh = world.refresh(secret).await;
    refresh.refused(400, "invalid_grant");
}

async fn use_extends_a_browser_session(on: On) {
    let world = World::start(on).await;
    let (used, _) = browser(&world).await;
    let (idle, _) = browser(&world).await;
    // An hour without use ends it; a day ends every one.
    for _ in 0..47 {
        world.advance_seconds(1800);
        assert_eq!(me(&world, &used).await, 200);
    }
    assert_eq!(me(&world, &idle).await, 401);
    world.advance_seconds(1800);
    assert_eq!(me(&world, &used).await, 401);
}

fn register(world: &World, email: &str, password: &str) -> RequestBuilder {
    let body = json!({ "email": email, "password": password });
    world.http.post(world.at("/api/v1/auth/register")).json(&body)
}

async fn registration_requires_the_setting(on: On) {
    let closed = World::start(on).await;
    assert_eq!(status(register(&closed, "new@example.com", PASSWORD)).await, 403);
    let world = World::with(on, |settings| settings.registration = true).await;
    assert_eq!(
        status(register(&world, "new@example.com", PASSWORD).header("origin", EVIL)).await,
        403
    );
    assert_eq!(status(register(&world, "new@example.com", "short")).await, 400);
    assert_eq!(status(register(&world, "no address", PASSWORD)).await, 400);
    assert_eq!(status(register(&world, "new@example.com", PASSWORD)).await, 202);
    let answer = JsonResponse::send(login(&world, "new@example.com", PASSWORD)).await;
    assert_eq!((answer.status.as_u16(), answer.body["role"].as_str()), (200, Some("user")));
    let limited = register(&world, "more@example.com", PASSWORD).send().await.unwrap();
    assert_eq!(limited.status(), 429);
    assert!(limited.headers().contains_key(header::RETRY_AFTER));
}

async fn registration_does_not_reveal_who_has_an_account(on: On) {
    let world = World::with(on, |settings| settings.registration = true).await;
    let taken = JsonResponse::send(register(&world, EMAIL, "another password")).await;
    let free = JsonResponse::send(register(&world, "new@example.com", "another password")).await;
    assert_eq!((taken.status, &taken.body), (free.status, &free.body));
    // The existing account is unchanged.
    assert_eq!(status(login(&world, EMAIL, PASSWORD)).await, 200);
    assert_eq!(status(login(&world, EMAIL, "another password")).await, 401);
}

async fn failures_of_others_do_not_lock_out_a_trusted_browser(on: On) {
    let world = World::start(on).await;
    let (_, known) = browser(&world).await;
    // From the person's own address, as a colleague behind the same router could.
    for _ in 0..5 {
        assert_eq!(status(login(&world, EMAIL, "guess")).await, 401);
    }
    assert_eq!(status(login(&world, EMAIL, PASSWORD)).await, 429, "an unknown browser waits");
    let own = || login(&world, EMAIL, PASSWORD).header(header::COOKIE, &known);
    assert_eq!(status(own()).await, 200, "the person's own browser does not");
    // Another address is not concerned either.
    let elsewhere = crate::world::client_at("127.0.0.9");
    let body = json!({ "email": EMAIL, "password": PASSWORD });
    let request = elsewhere.post(world.at("/api/v1/auth/login")).json(&body);
    assert_eq!(status(request).await, 200);
    // A known browser is no way to guess without limit, and only for its own account.
    for _ in 0..5 {
        let guess = login(&world, EMAIL, "guess").header(header::COOKIE, &known);
        assert_eq!(status(guess).await, 401);
    }
    assert_eq!(status(own()).await, 429);
    let forged = login(&world, EMAIL, PASSWORD).header(header::COOKIE, "tenant-browser=tbk_x");
    assert_eq!(status(forged).await, 429);
}

async fn guesses_from_many_addresses_are_limited(on: On) {
    let world = World::start(on).await;
    let (_, known) = browser(&world).await;
    let body = |password: &str| json!({ "email": EMAIL, "password": password });
    for n in 2..=6 {
        let client = crate::world::client_at(&format!("127.0.0.{n}"));
        for _ in 0..4 {
            let guess = client.post(world.at("/api/v1/auth/login")).json(&body("guess"));
            assert_eq!(status(guess).await, 401);
        }
    }
    let fresh = crate::world::client_at("127.0.0.7");
    let request = || fresh.post(world.at("/api/v1/auth/login")).json(&body(PASSWORD));
    assert_eq!(status(request()).await, 429, "twenty in an hour, from everywhere");
    assert_eq!(status(request().header(header::COOKIE, &known)).await, 200);
    // The sign-in page counts the same.
    let response = authorize(&world, &authorization_parameters(crate::world::REDIRECT)).await;
    assert_eq!(response.status(), 303);
    let attempt = BrowserSignIn::begin(&world, crate::world::REDIRECT).await;
    assert_eq!(attempt.post(&world, EMAIL, PASSWORD).await.status(), 429);
    world.advance_seconds(3601);
    assert_eq!(status(request()).await, 200);
}
