//! Sessions from a provider: every refresh checks with the provider.

use reqwest::StatusCode;
use tenant_shared::Role;

use crate::{
    upstream::Company,
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
    let company = Company::start(on).await;
    let mut tokens = company.sign_in("ada").await;
    for _ in 0..3 {
        company.world.advance_seconds(900);
        tokens = company.world.refresh(&tokens.refresh).await.tokens();
    }
    company.provider.remove("ada").await.unwrap();
    company.world.advance_seconds(60);
    assert!(company.world.me(&tokens.access).await.is_ok(), "until the access token is renewed");
    company.world.refresh(&tokens.refresh).await.refused(INVALID_GRANT.0, INVALID_GRANT.1);
    assert_eq!(company.world.me(&tokens.access).await, Err(StatusCode::UNAUTHORIZED));
    let reasons = company.audit("ProviderLogout").await;
    assert_eq!(reasons, ["corp: the provider refused: invalid_grant"]);
    // Back again, but not in the old session.
    company.person("ada", &["dev"]).await;
    company.world.refresh(&tokens.refresh).await.refused(INVALID_GRANT.0, INVALID_GRANT.1);
    company.sign_in("ada").await;
}

async fn group_changes_apply_at_the_next_refresh(on: On) {
    let company = Company::with(on, |connector| {
        connector.allowed_groups = vec!["dev".into()];
    })
    .await;
    let mut tokens = company.sign_in("ada").await;
    for (groups, role) in [(&["dev", "ops"][..], Role::Admin), (&["dev"], Role::User)] {
        company.person("ada", groups).await;
        company.world.advance_seconds(900);
        tokens = company.world.refresh(&tokens.refresh).await.tokens();
        assert_eq!(company.world.me(&tokens.access).await.unwrap().role, role);
    }
    assert_eq!(company.audit("ChangeRole").await, ["corp says: user", "corp says: admin"]);
    company.person("ada", &["ops"]).await;
    company.world.advance_seconds(900);
    company.world.refresh(&tokens.refresh).await.refused(INVALID_GRANT.0, INVALID_GRANT.1);
    let reasons = company.audit("ProviderLogout").await;
    assert_eq!(reasons, ["corp: not in a group that may sign in"]);
}

async fn a_provider_outage_is_tolerated_for_a_limited_time_and_ends_nothing(on: On) {
    let company = Company::start(on).await;
    let tokens = company.sign_in("ada").await;
    company.provider.outage(Some(503)).await.unwrap();
    company.world.advance_seconds(3600);
    let tokens = company.world.refresh(&tokens.refresh).await.tokens();
    company.world.advance_seconds(1);
    let answer = company.world.refresh(&tokens.refresh).await;
    answer.refused(503, "temporarily_unavailable");
    assert!(answer.headers.contains_key("retry-after"));
    assert!(company.world.me(&tokens.access).await.is_ok(), "nothing is ended");
    // A limit of requests is no answer either.
    company.provider.outage(Some(429)).await.unwrap();
    company.world.refresh(&tokens.refresh).await.refused(503, "temporarily_unavailable");
    company.provider.outage(None).await.unwrap();
    company.world.advance_seconds(5);
    company.world.refresh(&tokens.refresh).await.tokens();
    assert!(company.audit("ProviderLogout").await.is_empty());
}

async fn concurrent_refreshes_check_the_provider_once(on: On) {
    let company = Company::start(on).await;
    let tokens = company.sign_in("ada").await;
    for round in 1..4 {
        company.world.advance_seconds(900);
        let before = company.asked("/token").await;
        let asking: Vec<_> = (0..6)
            .map(|_| {
                let request = company.world.http.post(company.world.at("/oauth2/token")).form(&[
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
        assert!(company.asked("/token").await - before <= 1, "round {round}");
    }
    assert!(company.audit("ProviderLogout").await.is_empty());
}

async fn without_a_refresh_token_a_session_is_short(on: On) {
    let company = Company::start(on).await;
    company.provider.refresh_tokens(false).await.unwrap();
    let tokens = company.sign_in("ada").await;
    company.world.advance_seconds(7100);
    let tokens = company.world.refresh(&tokens.refresh).await.tokens();
    assert_eq!(tokens.expires_in, 100, "the session's end is the token's");
    company.world.advance_seconds(100);
    assert_eq!(company.world.me(&tokens.access).await, Err(StatusCode::UNAUTHORIZED));
    company.world.refresh(&tokens.refresh).await.refused(INVALID_GRANT.0, INVALID_GRANT.1);
}

async fn the_provider_s_token_is_sealed_and_deleted(on: On) {
    let company = Company::start(on).await;
    let tokens = company.sign_in("ada").await;
    let kept = "SELECT COUNT(*) FROM upstream_grants WHERE refresh_token IS NOT NULL";
    // Version, nonce, tag, and a token of 43 characters.
    let sealed = "SELECT CAST(LENGTH(refresh_token) AS BIGINT) FROM upstream_grants";
    assert_eq!(company.world.number(kept).await, 1);
    assert_eq!(company.world.number(sealed).await, 1 + 12 + 16 + 43);
    // A secret that was sealed for another row does not open: the session ends rather than continuing
    // unchecked.
    company.world.execute("UPDATE upstream_grants SET id = identity_id").await;
    company.world.advance_seconds(900);
    company.world.refresh(&tokens.refresh).await.refused(INVALID_GRANT.0, INVALID_GRANT.1);
    company.world.issuer.purge().await.unwrap();
    assert_eq!(company.world.number(kept).await, 0);
}

async fn invalid_refresh_responses_count_as_an_outage(on: On) {
    let company = Company::start(on).await;
    let mut tokens = company.sign_in("ada").await;
    for how in [
        serde_json::json!({ "claims": { "sub": "bob" } }),
        serde_json::json!({ "foreign": true }),
        serde_json::json!({ "header": { "alg": "none" } }),
    ] {
        company.provider.spoil(how).await.unwrap();
        company.world.advance_seconds(900);
        // Bridged, and the provider's new refresh token is kept all the same.
        tokens = company.world.refresh(&tokens.refresh).await.tokens();
    }
    company.world.advance_seconds(900);
    tokens = company.world.refresh(&tokens.refresh).await.tokens();
    company.provider.spoil(serde_json::json!({ "foreign": true })).await.unwrap();
    company.world.advance_seconds(3601);
    company.world.refresh(&tokens.refresh).await.refused(503, "temporarily_unavailable");
}
