//! Renewal of an access token with a refresh token, and revocation of a refresh token.

use openidconnect::{
    ClientId, IssuerUrl, OAuth2TokenResponse, RefreshToken, RequestTokenError, TokenUrl,
    core::{CoreClient, CoreErrorResponseType, CoreJsonWebKeySet},
};
use secrecy::{ExposeSecret, SecretString};
use tenant_shared::PLUGIN_CLIENT_ID;

use super::{access_token, http_client};
use crate::{
    broker_url::BrokerUrl,
    error::Error,
    http::{Http, RequestError},
    store::AccessToken,
    world::Clock,
};

/// Outcome of a renewal.
pub(crate) enum RefreshOutcome {
    /// New access token, and the new refresh token if it was rotated.
    Tokens(AccessToken, Option<SecretString>),
    /// `invalid_grant`: the refresh token is no longer valid.
    InvalidGrant(String),
}

/// Renews the access token (RFC 6749 section 6).
pub(crate) async fn refresh(
    http: &Http,
    broker: &BrokerUrl,
    token_endpoint: &str,
    refresh_token: &SecretString,
    clock: &Clock,
) -> Result<RefreshOutcome, Error> {
    let malformed = |error: &dyn std::fmt::Display| {
        Error::other(format!("the stored session is malformed: {error}"))
    };
    let issuer = IssuerUrl::new(broker.as_str().to_owned()).map_err(|error| malformed(&error))?;
    let endpoint = TokenUrl::new(token_endpoint.to_owned()).map_err(|error| malformed(&error))?;
    let client = CoreClient::new(
        ClientId::new(PLUGIN_CLIENT_ID.to_owned()),
        issuer,
        CoreJsonWebKeySet::default(),
    )
    .set_token_uri(endpoint);
    let before = clock.now();
    let token = RefreshToken::new(refresh_token.expose_secret().to_owned());
    match client.exchange_refresh_token(&token).request_async(&http_client(http)).await {
        Ok(response) => {
            let successor = response.refresh_token().map(|token| token.secret().clone().into());
            Ok(RefreshOutcome::Tokens(access_token(&response, before), successor))
        }
        Err(RequestTokenError::Request(RequestError(error))) => Err(error),
        Err(RequestTokenError::ServerResponse(response))
            if *response.error() == CoreErrorResponseType::InvalidGrant =>
        {
            let why = response.error_description().cloned();
            Ok(RefreshOutcome::InvalidGrant(why.unwrap_or_else(|| "the session ended".to_owned())))
        }
        Err(RequestTokenError::ServerResponse(response)) => Err(Error::refused(format!(
            "{broker} refused to renew the session: {}",
            response.error_description().cloned().unwrap_or_else(|| response.error().to_string())
        ))),
        Err(_) => Err(Error::unreachable(format!(
            "{broker} sent a response that cannot be read when renewing the session"
        ))
        .hint("check the address; a proxy or a captive portal may be in between")),
    }
}

/// Revokes a refresh token (RFC 7009), which ends its session.
pub(crate) async fn revoke(
    http: &Http,
    endpoint: &str,
    refresh_token: &SecretString,
) -> Result<(), Error> {
    let form = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("token", refresh_token.expose_secret())
        .append_pair("token_type_hint", "refresh_token")
        .append_pair("client_id", PLUGIN_CLIENT_ID)
        .finish();
    let request = ::http::Request::post(endpoint)
        .header(::http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(form.into_bytes())
        .map_err(|error| Error::other(format!("the stored session is malformed: {error}")))?;
    let response = http.send(request).await.map_err(|RequestError(error)| error)?;
    if response.status().is_success() { Ok(()) } else { Err(http.refusal(&response)) }
}
