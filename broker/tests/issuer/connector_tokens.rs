//! Invalid ID tokens of a provider, key rotation, and floods of key requests.

use integration::oidc_provider::OidcProvider;
use serde_json::{Value, json};

use crate::{
    upstream::ProviderWorld,
    world::{On, on_both_engines},
};

on_both_engines!(
    an_invalid_id_token_signs_nobody_in,
    sign_in_works_after_a_key_rotation,
    unknown_keys_do_not_flood_the_provider,
    a_provider_outage_stops_nothing_else,
    the_password_form_can_be_disabled,
);

async fn an_invalid_id_token_signs_nobody_in(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let now = fixture.world.clock.now_ms() / 1000;
    let claims = |name: &str, value: Value| json!({ "claims": { name: value } });
    for (how, told) in [
        (claims("nonce", json!("another")), "could not be used"),
        (claims("nonce", Value::Null), "could not be used"),
        (claims("iss", json!("https://evil.example")), "could not be used"),
        (claims("aud", json!("another-client")), "could not be used"),
        (claims("aud", json!(["broker", "another-client"])), "could not be used"),
        (claims("azp", json!("another-client")), "could not be used"),
        (claims("exp", json!(now - 60)), "could not be used"),
        (claims("iat", json!(now + 61)), "could not be used"),
        (claims("nbf", json!(now + 61)), "could not be used"),
        (claims("sub", json!("bob")), "could not be used"),
        (json!({ "header": { "alg": "none" } }), "could not be used"),
        (json!({ "header": { "alg": "HS256" } }), "could not be used"),
        (json!({ "header": { "typ": "logout+jwt" } }), "could not be used"),
        (json!({ "header": { "crit": ["exp"] } }), "could not be used"),
        (json!({ "foreign": true }), "could not be used"),
    ] {
        fixture.provider.spoil(how.clone()).await.unwrap();
        fixture.refused("ada", told).await;
    }
    assert_eq!(fixture.world.number("SELECT COUNT(*) FROM identities").await, 0);
    assert_eq!(fixture.audit("SignIn").await.len(), 15);
    fixture.sign_in("ada").await;
}

async fn sign_in_works_after_a_key_rotation(on: On) {
    let fixture = ProviderWorld::start(on).await;
    fixture.sign_in("ada").await;
    for kty in ["EC", "RSA"] {
        fixture.provider.rotate(kty, false).await.unwrap();
        fixture.world.advance_seconds(5);
        fixture.sign_in("ada").await;
    }
}

async fn unknown_keys_do_not_flood_the_provider(on: On) {
    let fixture = ProviderWorld::start(on).await;
    fixture.sign_in("ada").await;
    fixture.world.advance_seconds(5);
    let before = fixture.asked("/jwks").await;
    for n in 0..5 {
        let kid = json!({ "header": { "kid": format!("unknown-{n}") } });
        fixture.provider.spoil(kid).await.unwrap();
        fixture.refused("ada", "could not be used").await;
    }
    assert_eq!(fixture.asked("/jwks").await - before, 1);
    // Known keys go on working meanwhile.
    fixture.sign_in("ada").await;
    assert_eq!(fixture.asked("/jwks").await - before, 1);
}

async fn a_provider_outage_stops_nothing_else(on: On) {
    let fixture = ProviderWorld::start(on).await;
    fixture.provider.outage(Some(500)).await.unwrap();
    let page = fixture.sign_in_page("ada").await;
    assert_eq!(page.status, 503);
    assert!(page.body.contains("Example Corp does not answer just now"), "{}", page.body);
    assert!(page.body.contains("name=\"password\""), "the local form is still there");
    fixture.world.sign_in().await;
    fixture.provider.outage(None).await.unwrap();
    fixture.world.advance_seconds(5);
    fixture.sign_in("ada").await;
}

async fn the_password_form_can_be_disabled(on: On) {
    use crate::world::{BrowserSignIn, EMAIL, PASSWORD, REDIRECT, World};
    let provider = OidcProvider::start().await.unwrap();
    let world = World::with(on, |settings| {
        settings.local_accounts = false;
        let connector = crate::upstream::connector(&provider);
        crate::upstream::with_connectors(settings, [("corp", connector)]);
    })
    .await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let page = attempt.page(&world).await.text().await.unwrap();
    assert!(page.contains("Sign in with Example Corp") && !page.contains("password"), "{page}");
    assert_eq!(attempt.post(&world, EMAIL, PASSWORD).await.status(), 403);
}
