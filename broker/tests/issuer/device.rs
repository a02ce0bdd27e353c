//! The device grant (RFC 8628): its flow, and attacks on it.

use reqwest::{Method, Response, header};
use serde_json::Value;
use tenant_shared::Role;

use crate::sessions::{ADMIN, as_user, call};
use crate::world::{
    BrowserSignIn, CLIENT, EMAIL, JsonResponse, On, PASSWORD, SCOPE, World, client_at, location,
    on_both_engines, query,
};

on_both_engines!(
    a_user_signs_a_device_in,
    a_device_that_polls_too_often_must_slow_down,
    a_user_may_deny_a_device,
    a_device_code_works_once_and_for_its_client,
    an_expired_device_code_is_invalid,
    guessing_user_codes_is_rate_limited,
    device_codes_are_rate_limited_by_address,
    only_the_browser_that_signed_in_decides,
    a_suspended_user_gets_nothing,
    a_device_code_from_before_a_suspension_is_invalid_after_the_resumption,
    expired_device_codes_are_deleted,
);

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

struct Device {
    device_code: String,
    user_code: String,
}

impl Device {
    async fn begin(world: &World) -> Self {
        let answer = start(world).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let text = |name: &str| answer.body[name].as_str().unwrap().to_owned();
        assert_eq!(text("verification_uri"), world.at("/device"));
        assert_eq!(answer.body["interval"], 5);
        assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store");
        Self { device_code: text("device_code"), user_code: text("user_code") }
    }

    async fn poll(&self, world: &World) -> JsonResponse {
        world.token(&self.form()).await
    }

    fn form(&self) -> Vec<(&'static str, &str)> {
        vec![("grant_type", GRANT), ("client_id", CLIENT), ("device_code", &self.device_code)]
    }

    /// The user types the code and gets to the sign-in page.
    async fn typed(&self, world: &World) -> BrowserSignIn {
        let response = type_code(world, &self.user_code).await;
        assert_eq!(response.status(), 303, "{response:?}");
        let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap();
        BrowserSignIn {
            handle: query(location(&response), "request").unwrap(),
            cookie: cookie.split(';').next().unwrap().to_owned(),
            redirect: String::new(),
        }
    }

    /// The user types the code and signs in.
    async fn signed_in(&self, world: &World) -> BrowserSignIn {
        let attempt = self.typed(world).await;
        let response = attempt.post(world, EMAIL, PASSWORD).await;
        let place = format!("/login/device?request={}", attempt.handle);
        assert_eq!(location(&response), place);
        attempt
    }
}

async fn start(world: &World) -> JsonResponse {
    let form = [("client_id", CLIENT), ("scope", SCOPE)];
    JsonResponse::send(world.http.post(world.at("/oauth2/device_authorization")).form(&form)).await
}

async fn type_code(world: &World, code: &str) -> Response {
    world.http.post(world.at("/device")).form(&[("user_code", code)]).send().await.unwrap()
}

async fn decide(world: &World, attempt: &BrowserSignIn, decision: &str) -> Response {
    decide_from(world, attempt, decision, &world.url).await
}

async fn decide_from(
    world: &World,
    attempt: &BrowserSignIn,
    decision: &str,
    origin: &str,
) -> Response {
    let form = [("request", attempt.handle.as_str()), ("decision", decision)];
    let request = world.http.post(world.at("/login/device")).form(&form);
    let request = request.header(header::COOKIE, &attempt.cookie).header(header::ORIGIN, origin);
    request.send().await.unwrap()
}

async fn a_user_signs_a_device_in(on: On) {
    let world = World::start(on).await;
    let device = Device::begin(&world).await;
    device.poll(&world).await.refused(400, "authorization_pending");

    let page = world.http.get(world.at("/device")).query(&[("user_code", &device.user_code)]);
    let page = page.send().await.unwrap().text().await.unwrap();
    assert!(page.contains(&device.user_code), "the link fills the code in");

    let attempt = device.signed_in(&world).await;
    world.advance_seconds(5);
    device.poll(&world).await.refused(400, "authorization_pending");
    let page = world.http.get(world.at("/login/device")).query(&[("request", &attempt.handle)]);
    let page = page.header(header::COOKIE, &attempt.cookie).send().await.unwrap();
    let page = page.text().await.unwrap();
    assert!(page.contains("127.0.0.1") && page.contains("Allow this device?"), "{page}");

    assert_eq!(decide(&world, &attempt, "allow").await.status(), 200);
    world.advance_seconds(5);
    let tokens = device.poll(&world).await.tokens();
    assert_eq!(world.me(&tokens.access).await.unwrap().email, EMAIL);
    let tokens = world.refresh(&tokens.refresh).await.tokens();
    world.me(&tokens.access).await.unwrap();
    assert_eq!(world.count_audited("DeviceDecision").await, 1);
    assert_eq!(decide(&world, &attempt, "deny").await.status(), 400, "it is decided");
}

async fn a_device_that_polls_too_often_must_slow_down(on: On) {
    let world = World::start(on).await;
    let device = Device::begin(&world).await;
    device.poll(&world).await.refused(400, "authorization_pending");
    world.advance_seconds(2);
    device.poll(&world).await.refused(400, "slow_down");
    world.advance_seconds(5);
    device.poll(&world).await.refused(400, "slow_down");
    world.advance_seconds(15);
    device.poll(&world).await.refused(400, "authorization_pending");
    // Of many at once one is on time.
    world.advance_seconds(15);
    let polls = futures_util::future::join_all((0..8).map(|_| device.poll(&world))).await;
    let on_time = polls.iter().filter(|answer| answer.body["error"] == "authorization_pending");
    assert_eq!(on_time.count(), 1);
}

async fn a_user_may_deny_a_device(on: On) {
    let world = World::start(on).await;
    let device = Device::begin(&world).await;
    let attempt = device.signed_in(&world).await;
    assert_eq!(decide(&world, &attempt, "deny").await.status(), 200);
    device.poll(&world).await.refused(400, "access_denied");
    assert_eq!(decide(&world, &attempt, "allow").await.status(), 400);
    world.advance_seconds(5);
    device.poll(&world).await.refused(400, "access_denied");
    assert_eq!(type_code(&world, &device.user_code).await.status(), 404);
}

async fn a_device_code_works_once_and_for_its_client(on: On) {
    let world = World::start(on).await;
    let device = Device::begin(&world).await;
    let attempt = device.signed_in(&world).await;
    decide(&world, &attempt, "allow").await;
    let polls = futures_util::future::join_all((0..8).map(|_| device.poll(&world))).await;
    assert_eq!(polls.iter().filter(|answer| answer.status == 200).count(), 1);
    world.advance_seconds(60);
    device.poll(&world).await.refused(400, "invalid_grant");

    let unknown = Device { device_code: "tbd_x".into(), user_code: String::new() };
    unknown.poll(&world).await.refused(400, "invalid_grant");
    let mut form = device.form();
    form[1].1 = "somebody";
    world.token(&form).await.refused(401, "invalid_client");
    // The one code does not do for the other.
    form[1].1 = CLIENT;
    form[2].1 = &device.user_code;
    world.token(&form).await.refused(400, "invalid_grant");
}

async fn an_expired_device_code_is_invalid(on: On) {
    let world = World::start(on).await;
    let device = Device::begin(&world).await;
    let attempt = device.signed_in(&world).await;
    world.advance_seconds(601);
    assert_eq!(type_code(&world, &device.user_code).await.status(), 404);
    assert_eq!(decide(&world, &attempt, "allow").await.status(), 400);
    device.poll(&world).await.refused(400, "expired_token");
}

async fn guessing_user_codes_is_rate_limited(on: On) {
    let world = World::start(on).await;
    let device = Device::begin(&world).await;
    for _ in 0..5 {
        assert_eq!(type_code(&world, "BBBB-BBBB").await.status(), 404);
    }
    let limited = type_code(&world, &device.user_code).await;
    assert_eq!(limited.status(), 429, "even the right one");
    assert!(limited.headers().contains_key(header::RETRY_AFTER));
    // Others are not concerned.
    let elsewhere = client_at("127.0.0.2");
    let form = [("user_code", device.user_code.as_str())];
    let response = elsewhere.post(world.at("/device")).form(&form).send().await.unwrap();
    assert_eq!(response.status(), 303);
    world.advance_seconds(301);
    assert_eq!(type_code(&world, &device.user_code).await.status(), 303);
    // Malformed codes do not count.
    for _ in 0..9 {
        assert_eq!(type_code(&world, "<script>").await.status(), 400);
    }
}

async fn device_codes_are_rate_limited_by_address(on: On) {
    let world = World::start(on).await;
    for _ in 0..20 {
        assert_eq!(start(&world).await.status, 200);
    }
    let answer = start(&world).await;
    answer.refused(429, "temporarily_unavailable");
    assert!(answer.headers.contains_key(header::RETRY_AFTER));
}

async fn only_the_browser_that_signed_in_decides(on: On) {
    let world = World::start(on).await;
    let device = Device::begin(&world).await;
    let early = device.typed(&world).await;
    assert_eq!(decide(&world, &early, "allow").await.status(), 400, "nobody signed in");

    let attempt = device.signed_in(&world).await;
    let without = BrowserSignIn { cookie: String::new(), ..attempt.clone() };
    assert_eq!(decide(&world, &without, "allow").await.status(), 400);
    let swapped = BrowserSignIn { cookie: early.cookie.clone(), ..attempt.clone() };
    assert_eq!(decide(&world, &swapped, "allow").await.status(), 400);
    for origin in ["https://evil.example.com", "null"] {
        let response = decide_from(&world, &attempt, "allow", origin).await;
        assert_eq!(response.status(), 400, "{origin}");
    }
    // An authorization request of a client is not a device's.
    let other = BrowserSignIn::begin(&world, crate::world::REDIRECT).await;
    other.code(&world).await;
    assert_eq!(decide(&world, &other, "allow").await.status(), 400);
    device.poll(&world).await.refused(400, "authorization_pending");
    assert_eq!(world.count_audited("DeviceDecision").await, 0);
}

async fn a_suspended_user_gets_nothing(on: On) {
    let world = World::start(on).await;
    let device = Device::begin(&world).await;
    let attempt = device.signed_in(&world).await;
    decide(&world, &attempt, "allow").await;
    world.execute("UPDATE users SET status = 'suspended'").await;
    device.poll(&world).await.refused(400, "invalid_grant");
    assert_eq!(world.number("SELECT COUNT(*) FROM sessions").await, 0);
}

async fn a_device_code_from_before_a_suspension_is_invalid_after_the_resumption(on: On) {
    let world = World::start(on).await;
    let (_, admin) = as_user(&world, ADMIN, Role::Admin).await;
    let (allowed, undecided) = (Device::begin(&world).await, Device::begin(&world).await);
    let attempt = allowed.signed_in(&world).await;
    decide(&world, &attempt, "allow").await;
    let attempt = undecided.signed_in(&world).await;
    for verb in ["suspend", "resume"] {
        let path = format!("/users/{}/{verb}", world.user);
        assert_eq!(call(&world, Method::POST, &path, &admin).await.status, 200);
    }
    decide(&world, &attempt, "allow").await;
    for device in [&allowed, &undecided] {
        device.poll(&world).await.refused(400, "invalid_grant");
    }
    let of_user = "SELECT COUNT(*) FROM sessions s JOIN users u ON u.id = s.user_id \
                   WHERE u.email = 'ada@example.com'";
    assert_eq!(world.number(of_user).await, 0);
}

async fn expired_device_codes_are_deleted(on: On) {
    let world = World::start(on).await;
    world.identity.create_user("other@example.com", PASSWORD.into(), Role::User).await.unwrap();
    let device = Device::begin(&world).await;
    let attempt = device.signed_in(&world).await;
    decide(&world, &attempt, "allow").await;
    world.advance_seconds(5);
    device.poll(&world).await.tokens();
    Device::begin(&world).await;
    let rows = "SELECT COUNT(*) FROM device_authorizations";
    world.issuer.purge().await.unwrap();
    assert_eq!(world.number(rows).await, 2);
    world.advance_seconds(600 + 24 * 3600 + 1);
    world.issuer.purge().await.unwrap();
    assert_eq!(world.number(rows).await, 0);
    // Nothing of a code is readable in what was kept.
    let body: Value = start(&world).await.body;
    let code = body["user_code"].as_str().unwrap();
    assert_eq!(code.len(), 9);
}
