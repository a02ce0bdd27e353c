//! Interoperability: independent OpenID Connect clients use discovery and verify the ID token.

use integration::oidc_provider::certified_client;
use openidconnect::{
    AccessToken, AuthorizationCode, ClientId, CsrfToken, IssuerUrl, Nonce,
    OAuth2TokenResponse as _, PkceCodeChallenge, RedirectUrl, RefreshToken, Scope,
    TokenResponse as _,
    core::{
        CoreAuthenticationFlow, CoreClient, CoreJwsSigningAlgorithm, CoreProviderMetadata,
        CoreUserInfoClaims,
    },
    http,
};
use reqwest::Client;

use crate::world::{
    BrowserSignIn, CLIENT, EMAIL, On, PASSWORD, REDIRECT, World, location, on_both_engines, query,
};

on_both_engines!(
    an_independent_client_signs_in_refreshes_and_reads_userinfo,
    a_certified_client_uses_every_advertised_grant,
);

/// Sends the client's requests with the test's HTTP client.
async fn send(
    http: Client,
    request: http::Request<Vec<u8>>,
) -> Result<http::Response<Vec<u8>>, reqwest::Error> {
    let answer = http.execute(request.try_into()?).await?;
    let mut response = http::Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        response = response.header(name, value);
    }
    let body = answer.bytes().await?.to_vec();
    Ok(response.body(body).unwrap())
}

async fn an_independent_client_signs_in_refreshes_and_reads_userinfo(on: On) {
    let world = World::start(on).await;
    let call = |request| send(world.http.clone(), request);
    let issuer = IssuerUrl::new(world.url.clone()).unwrap();
    let metadata = CoreProviderMetadata::discover_async(issuer, &call).await.unwrap();
    assert_eq!(
        metadata.id_token_signing_alg_values_supported(),
        &[CoreJwsSigningAlgorithm::EcdsaP256Sha256]
    );
    let client =
        CoreClient::from_provider_metadata(metadata, ClientId::new("kubectl-tenant".into()), None)
            .set_redirect_uri(RedirectUrl::new(REDIRECT.into()).unwrap());
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let (url, state, nonce) = client
        .authorize_url(
            CoreAuthenticationFlow::AuthorizationCode,
            CsrfToken::new_random,
            Nonce::new_random,
        )
        .add_scopes(["email", "offline_access"].map(|scope| Scope::new(scope.into())))
        .set_pkce_challenge(challenge)
        .url();

    // The user's browser.
    let response = world.http.get(url).send().await.unwrap();
    let cookie = response.headers()["set-cookie"].to_str().unwrap();
    let browser = BrowserSignIn {
        handle: query(location(&response), "request").unwrap(),
        cookie: cookie.split(';').next().unwrap().to_owned(),
        redirect: REDIRECT.to_owned(),
    };
    let response = browser.post(&world, crate::world::EMAIL, crate::world::PASSWORD).await;
    assert_eq!(query(location(&response), "state").as_ref(), Some(state.secret()));
    let code = query(location(&response), "code").unwrap();

    let tokens = client
        .exchange_code(AuthorizationCode::new(code))
        .unwrap()
        .set_pkce_verifier(verifier)
        .request_async(&call)
        .await
        .unwrap();
    let id_token = tokens.id_token().unwrap();
    let claims = id_token.claims(&client.id_token_verifier(), &nonce).unwrap();
    let me = world.me(tokens.access_token().secret()).await.unwrap();
    assert_eq!(claims.subject().as_str(), me.id.to_string());
    assert_eq!(claims.email().unwrap().as_str(), "ada@example.com");
    assert_eq!(claims.email_verified(), None, "nobody verified it");
    assert_eq!(claims.auth_time().unwrap().timestamp(), world.clock.now().as_second());
    assert_eq!((claims.expiration() - claims.issue_time()).num_seconds(), 300);
    let other_nonce = Nonce::new("another".into());
    assert!(id_token.claims(&client.id_token_verifier(), &other_nonce).is_err());
    let payload = payload(&id_token.to_string());
    assert_eq!(payload["sid"], me.session_id.to_string());

    let refresh_token = RefreshToken::new(tokens.refresh_token().unwrap().secret().clone());
    let renewed =
        client.exchange_refresh_token(&refresh_token).unwrap().request_async(&call).await.unwrap();
    let verifier = client.id_token_verifier();
    let no_nonce = |nonce: Option<&Nonce>| nonce.map_or(Ok(()), |_| Err("a nonce".to_owned()));
    let again = renewed.id_token().unwrap().claims(&verifier, no_nonce).unwrap();
    assert_eq!(again.subject(), claims.subject());
    assert_eq!(again.auth_time(), claims.auth_time());

    let access_token = AccessToken::new(renewed.access_token().secret().clone());
    let subject = Some(claims.subject().clone());
    let userinfo: CoreUserInfoClaims =
        client.user_info(access_token, subject).unwrap().request_async(&call).await.unwrap();
    assert_eq!(userinfo.email().unwrap().as_str(), "ada@example.com");
}

/// The payload of a JWT, unverified.
fn payload(token: &str) -> serde_json::Value {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

async fn a_certified_client_uses_every_advertised_grant(on: On) {
    let world = World::start(on).await;
    let told = certified_client([&world.url, CLIENT, REDIRECT, EMAIL, PASSWORD]).await.unwrap();
    let steps: Vec<serde_json::Value> =
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(names, ["discovery", "code", "userinfo", "refresh", "revocation", "device"]);
    assert_eq!(steps[0]["pkce"], true);
    for step in [1, 2, 5] {
        assert_eq!(steps[step]["email"], EMAIL, "{told}");
    }
}
