//! Sessions from a provider: every refresh checks with the provider.

use reqwest::StatusCode;
use tenant_shared::Role;

use crate::{
    upstream::ProviderWorld,
    world::{On, on_both_engines},
};

on_both_engines!(
    removal_at_the_provider_ends_the_session_at_the_next_refresh,
    group_changes_apply_at_the_next_refresh,
    a_provider_outage_is_tolerated_for_a_limited_time_and_ends_nothing,
    concurrent_refreshes_check_the_provider_once,
    without_a_refresh_token_a_session_is_short,
    the_provider_s_token_is_sealed_and_deleted,
    invalid_refresh_responses_count_as_an_outage,
);

const INVALID_GRANT: (u16, &str) = (400, "invalid_grant");

async fn removal_at_the_provider_ends_the_session_at_the_next_refresh(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let mut tokens = fixture.sign_in("ada").await;
    for _ in 0..3 {
        fixture.world.advance_seconds(900);
        tokens = fixture.world.refresh(&tokens.refresh).await.tokens();
    }
    fixture.provider.remove("ada").await.unwrap();
    fixture.world.advance_seconds(60);
    assert!(fixture.world.me(&tokens.access).await.is_ok(), "until the access token is renewed");
    fixture.world.refresh(&tokens.refresh).await.refused(INVALID_GRANT.0, INVALID_GRANT.1);
    assert_eq!(fixture.world.me(&tokens.access).await, Err(StatusCode::UNAUTHORIZED));
    let reasons = fixture.audit("ProviderLogout").await;
    assert_eq!(reasons, ["corp: the provider refused: invalid_grant"]);
    // Back again, but not in the old session.
    fixture.person("ada", &["dev"]).await;
    fixture.world.refresh(&tokens.refresh).await.refused(INVALID_GRANT.0, INVALID_GRANT.1);
    fixture.sign_in("ada").await;
}

async fn group_changes_apply_at_the_next_refresh(on: On) {
    let fixture = ProviderWorld::with(on, |connector| {
        connector.allowed_groups = vec!["dev".into()];
    })
    .await;
    let mut tokens = fixture.sign_in("ada").await;
    for (groups, role) in [(&["dev", "ops"][..], Role::Admin), (&["dev"], Role::User)] {
        fixture.person("ada", groups).await;
        fixture.world.advance_seconds(900);
        tokens = fixture.world.refresh(&tokens.refresh).await.tokens();
        assert_eq!(fixture.world.me(&tokens.access).await.unwrap().role, role);
    }
    assert_eq!(fixture.audit("ChangeRole").await, ["corp says: user", "corp says: admin"]);
    fixture.person("ada", &["ops"]).await;
    fixture.world.advance_seconds(900);
    fixture.world.refresh(&tokens.refresh).await.refused(INVALID_GRANT.0, INVALID_GRANT.1);
    let reasons = fixture.audit("ProviderLogout").await;
    assert_eq!(reasons, ["corp: not in a group that may sign in"]);
}

async fn a_provider_outage_is_tolerated_for_a_limited_time_and_ends_nothing(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let tokens = fixture.sign_in("ada").await;
    fixture.provider.outage(Some(503)).await.unwrap();
    fixture.world.advance_seconds(3600);
    let tokens = fixture.world.refresh(&tokens.refresh).await.tokens();
    fixture.world.advance_seconds(1);
    let answer = fixture.world.refresh(&tokens.refresh).await;
    answer.refused(503, "temporarily_unavailable");
    assert!(answer.headers.contains_key("retry-after"));
    assert!(fixture.world.me(&tokens.access).await.is_ok(), "nothing is ended");
    // A limit of requests is no answer either.
    fixture.provider.outage(Some(429)).await.unwrap();
    fixture.world.refresh(&tokens.refresh).await.refused(503, "temporarily_unavailable");
    fixture.provider.outage(None).await.unwrap();
    fixture.world.advance_seconds(5);
    fixture.world.refresh(&tokens.refresh).await.tokens();
    assert!(fixture.audit("ProviderLogout").await.is_empty());
}

async fn concurrent_refreshes_check_the_provider_once(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let tokens = fixture.sign_in("ada").await;
    for round in 1..4 {
        fixture.world.advance_seconds(900);
        let before = fixture.asked("/token").await;
        let asking: Vec<_> = (0..6)
            .map(|_| {
                let request = fixture.world.http.post(fixture.world.at("/oauth2/token")).form(&[
                    ("grant_type", "refresh_token"),
                    ("client_id", crate::world::CLIENT),
                    ("refresh_token", &tokens.refresh),
                ]);
                tokio::spawn(async move { request.send().await.unwrap().status() })
            })
            .collect();
        let mut statuses = Vec::new();
        for one in asking {
            statuses.push(one.await.unwrap());
        }
        // The token of the first round is used again after its grace in the second: the session
        // ends, but the provider was not asked twice with one token.
        let expected = if round == 1 { StatusCode::OK } else { StatusCode::BAD_REQUEST };
        assert_eq!(statuses, [expected; 6]);
        assert!(fixture.asked("/token").await - before <= 1, "round {round}");
    }
    assert!(fixture.audit("ProviderLogout").await.is_empty());
}

async fn without_a_refresh_token_a_session_is_short(on: On) {
    let fixture = ProviderWorld::start(on).await;
    fixture.provider.refresh_tokens(false).await.unwrap();
    let tokens = fixture.sign_in("ada").await;
    fixture.world.advance_seconds(7100);
    let tokens = fixture.world.refresh(&tokens.refresh).await.tokens();
    assert_eq!(tokens.expires_in, 100, "the session's end is the token's");
    fixture.world.advance_seconds(100);
    assert_eq!(fixture.world.me(&tokens.access).await, Err(StatusCode::UNAUTHORIZED));
    fixture.world.refresh(&tokens.refresh).await.refused(INVALID_GRANT.0, INVALID_GRANT.1);
}

async fn the_provider_s_token_is_sealed_and_deleted(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let tokens = fixture.sign_in("ada").await;
    let kept = "SELECT COUNT(*) FROM upstream_grants WHERE refresh_token IS NOT NULL";
    // Version, nonce, tag, and a token of 43 characters.
    let sealed = "SELECT CAST(LENGTH(refresh_token) AS BIGINT) FROM upstream_grants";
    assert_eq!(fixture.world.number(kept).await, 1);
    assert_eq!(fixture.world.number(sealed).await, 1 + 12 + 16 + 43);
    // A secret that was sealed for another row does not open: the session ends rather than continuing
    // unchecked.
    fixture.world.execute("UPDATE upstream_grants SET id = identity_id").await;
    fixture.world.advance_seconds(900);
    fixture.world.refresh(&tokens.refresh).await.refused(INVALID_GRANT.0, INVALID_GRANT.1);
    fixture.world.issuer.purge().await.unwrap();
    assert_eq!(fixture.world.number(kept).await, 0);
}

async fn invalid_refresh_responses_count_as_an_outage(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let mut tokens = fixture.sign_in("ada").await;
    for how in [
        serde_json::json!({ "claims": { "sub": "bob" } }),
        serde_json::json!({ "foreign": true }),
        serde_json::json!({ "header": { "alg": "none" } }),
    ] {
        fixture.provider.spoil(how).await.unwrap();
        fixture.world.advance_seconds(900);
        // Bridged, and the provider's new refresh token is kept all the same.
        tokens = fixture.world.refresh(&tokens.refresh).await.tokens();
    }
    fixture.world.advance_seconds(900);
    tokens = fixture.world.refresh(&tokens.refresh).await.tokens();
    fixture.provider.spoil(serde_json::json!({ "foreign": true })).await.unwrap();
    fixture.world.advance_seconds(3601);
    fixture.world.refresh(&tokens.refresh).await.refused(503, "temporarily_unavailable");
}
