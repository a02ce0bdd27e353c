//! Renewing and revoking what a sign-in brought.

use openidconnect::{
    ClientId, IssuerUrl, OAuth2TokenResponse, RefreshToken, RequestTokenError, TokenUrl,
    core::{CoreClient, CoreErrorResponseType, CoreJsonWebKeySet},
};
use secrecy::{ExposeSecret, SecretString};
use tenant_shared::PLUGIN_CLIENT_ID;

use super::{access, caller};
use crate::{
    broker_url::BrokerUrl,
    error::Error,
    http::{Failure, Http},
    store::AccessToken,
    world::Clock,
};

/// How renewing ended.
pub(crate) enum Renewal {
    /// New tokens; the refresh token is there if it was replaced.
    Tokens(AccessToken, Option<SecretString>),
    /// `invalid_grant`: this refresh token is worth nothing any more.
    Ended(String),
}

/// Renews the access token (RFC 6749 section 6).
pub(crate) async fn refresh(
    http: &Http,
    broker: &BrokerUrl,
    token_endpoint: &str,
    refresh_token: &SecretString,
    clock: &Clock,
) -> Result<Renewal, Error> {
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
    match client.exchange_refresh_token(&token).request_async(&caller(http)).await {
        Ok(answer) => {
            let successor = answer.refresh_token().map(|token| token.secret().clone().into());
            Ok(Renewal::Tokens(access(&answer, before), successor))
        }
        Err(RequestTokenError::Request(Failure(error))) => Err(error),
        Err(RequestTokenError::ServerResponse(answer))
            if *answer.error() == CoreErrorResponseType::InvalidGrant =>
        {
            let why = answer.error_description().cloned();
            Ok(Renewal::Ended(why.unwrap_or_else(|| "the session ended".to_owned())))
        }
        Err(RequestTokenError::ServerResponse(answer)) => Err(Error::refused(format!(
            "{broker} refused to renew the session: {}",
            answer.error_description().cloned().unwrap_or_else(|| answer.error().to_string())
        ))),
        Err(_) => Err(Error::unreachable(format!(
            "{broker} gave an answer that cannot be read when renewing the session"
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
    let answer = http.send(request).await.map_err(|Failure(error)| error)?;
    if answer.status().is_success() { Ok(()) } else { Err(http.refusal(&answer)) }
}
