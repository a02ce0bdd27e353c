//! Back-Channel Logout: a provider reports that a user signed out there.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::{
    upstream::{CLIENT_ID, ProviderWorld},
    world::{JsonResponse, On, on_both_engines},
};

on_both_engines!(
    a_backchannel_logout_ends_the_sessions_of_the_provider,
    an_invalid_logout_token_ends_nothing,
);

const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

async fn a_backchannel_logout_ends_the_sessions_of_the_provider(on: On) {
    let fixture = ProviderWorld::start(on).await;
    fixture.person("bob", &["dev"]).await;
    let (ada, bob) = (fixture.sign_in("ada").await, fixture.sign_in("bob").await);
    let phone = fixture.sign_in("ada").await;
    // One of the provider's sessions, told by the certified library itself.
    let sid = sid_of(&fixture, &ada.access).await;
    fixture.provider.logout(CLIENT_ID, "ada", Some(&sid)).await.unwrap();
    assert_eq!(fixture.world.me(&ada.access).await, Err(StatusCode::UNAUTHORIZED));
    assert!(fixture.world.me(&phone.access).await.is_ok());
    // All of a person's.
    assert_eq!(send(&fixture, json!({ "sub": "ada" })).await.status, StatusCode::OK);
    assert_eq!(fixture.world.me(&phone.access).await, Err(StatusCode::UNAUTHORIZED));
    fixture.world.refresh(&phone.refresh).await.refused(400, "invalid_grant");
    assert!(fixture.world.me(&bob.access).await.is_ok());
    let reasons = fixture.audit("ProviderLogout").await;
    assert_eq!(reasons, ["corp: the person signed out at the provider"; 2]);
}

async fn sid_of(fixture: &ProviderWorld, access: &str) -> String {
    let session = fixture.world.me(access).await.unwrap().session_id;
    let statement = "SELECT sid FROM upstream_grants WHERE session_id = $1";
    tenant_broker::on_engine!(fixture.world.db.reader(), pool =>
        sqlx::query_scalar(statement).bind(session).fetch_one(pool).await)
    .unwrap()
}

/// A logout token with the usual claims and these, signed by the provider.
async fn send(fixture: &ProviderWorld, more: Value) -> JsonResponse {
    let now = fixture.world.clock.now_ms() / 1000;
    let mut claims = json!({
        "iss": fixture.provider.issuer(), "aud": CLIENT_ID, "iat": now, "exp": now + 120,
        "jti": "one", "events": { EVENT: {} },
    });
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let header = json!({ "typ": "logout+jwt" });
    let what = json!({ "header": header, "claims": claims });
    let token = fixture.provider.sign(what).await.unwrap();
    post(fixture, "corp", &token).await
}

async fn post(fixture: &ProviderWorld, name: &str, token: &str) -> JsonResponse {
    let address = fixture.world.at(&format!("/login/backchannel/{name}"));
    JsonResponse::send(fixture.world.http.post(address).form(&[("logout_token", token)])).await
}

async fn an_invalid_logout_token_ends_nothing(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let tokens = fixture.sign_in("ada").await;
    let now = fixture.world.clock.now_ms() / 1000;
    for more in [
        json!({ "sub": "ada", "nonce": "n" }),
        json!({ "sub": "ada", "events": { "other": {} } }),
        json!({ "sub": "ada", "events": null }),
        json!({ "sub": "ada", "aud": "another-client" }),
        json!({ "sub": "ada", "iss": "https://evil.example" }),
        json!({ "sub": "ada", "iat": now + 61 }),
        json!({ "sub": "ada", "exp": now - 60 }),
        json!({ "sub": "ada", "jti": null }),
        json!({ "sid": "" }),
        json!({ "sub": "" }),
        json!({ "sub": "", "sid": "" }),
        json!({ "sub": "ada", "sid": "" }),
        json!({}),
    ] {
        let answer = send(&fixture, more.clone()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{more}");
    }
    let foreign = json!({ "foreign": true, "claims": { "sub": "ada" } });
    let foreign = fixture.provider.sign(foreign).await.unwrap();
    assert_eq!(post(&fixture, "corp", &foreign).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(post(&fixture, "corp", &tokens.id).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(post(&fixture, "nobody", &tokens.id).await.status, StatusCode::NOT_FOUND);
    // One that was made before the session ends nothing of it, however often it is sent.
    let early = json!({ "sub": "ada", "iat": now - 120 });
    assert_eq!(send(&fixture, early).await.status, StatusCode::OK);
    assert!(fixture.world.me(&tokens.access).await.is_ok());
    assert!(fixture.audit("ProviderLogout").await.is_empty());
}
