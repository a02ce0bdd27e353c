//! The OpenID Connect client: discovery, code exchange, device grant, token exchange, renewal,
//! revocation.
//!
//! The plugin is a public client (RFC 6749 section 2.1): PKCE (RFC 7636) binds a code to it, and
//! the nonce binds an ID token to the sign-in.

mod device;
mod exchange;
mod oauth_error;
mod renewal;

use std::{
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, SystemTime},
};

use openidconnect::{
    AccessToken as OauthAccessToken, AdditionalProviderMetadata, AuthorizationCode, ClientId,
    IssuerUrl, Nonce, NonceVerifier, OAuth2TokenResponse, PkceCodeVerifier, ProviderMetadata,
    RedirectUrl, RequestTokenError, Scope, TokenResponse, TokenUrl,
    core::{
        CoreAuthDisplay, CoreAuthenticationFlow, CoreClaimName, CoreClaimType, CoreClient,
        CoreClientAuthMethod, CoreErrorResponseType, CoreGrantType, CoreJsonWebKey,
        CoreJweContentEncryptionAlgorithm, CoreJweKeyManagementAlgorithm, CoreResponseMode,
        CoreResponseType, CoreSubjectIdentifierType, CoreTokenResponse,
    },
};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tenant_shared::PLUGIN_CLIENT_ID;
use url::Url;

use crate::{
    broker_url::{self, BrokerUrl},
    error::Error,
    http::{self, Http, RequestError, Response},
    store::AccessToken,
    world::Clock,
};

pub(crate) use device::{DeviceCode, DevicePoll};
pub(crate) use exchange::exchange_for_gateway_token;
pub(crate) use renewal::{RefreshOutcome, refresh, revoke};

/// Metadata of the discovery document beyond the crate's own types.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct ExtraMetadata {
    /// RFC 8414 section 2.
    #[serde(default)]
    revocation_endpoint: Option<Url>,
    /// RFC 8628 section 4.
    #[serde(default)]
    device_authorization_endpoint: Option<Url>,
    /// RFC 9207 section 3.
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl AdditionalProviderMetadata for ExtraMetadata {}

type Metadata = ProviderMetadata<
    ExtraMetadata,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;

/// An issuer whose discovery document was read and has only safe endpoints.
pub(crate) struct Issuer {
    http: Http,
    broker: BrokerUrl,
    metadata: Metadata,
}

/// An authorization request and its secrets, created before the browser opens and compared with the
/// response.
pub(crate) struct AuthorizationRequest {
    /// Parameter `state`, which the redirect returns.
    pub(crate) state: String,
    nonce: Nonce,
    verifier: PkceCodeVerifier,
    redirect: RedirectUrl,
    /// URL of the authorization request, which the person opens.
    pub(crate) url: Url,
}

/// Tokens of a sign-in.
pub(crate) struct Tokens {
    pub(crate) subject: String,
    /// E-mail address, if the ID token has one.
    pub(crate) email: Option<String>,
    pub(crate) refresh_token: SecretString,
    pub(crate) access: AccessToken,
    /// Seconds by which the broker's clock is ahead of this machine's.
    pub(crate) clock_offset: i64,
}

impl Issuer {
    /// Reads the discovery document and the keys (OpenID Connect Discovery 1.0 section 4). Both
    /// requests together have the timeout of one.
    pub(crate) async fn discover(http: &Http, broker: &BrokerUrl) -> Result<Self, Error> {
        let found = tokio::time::timeout(http.time_left(), Self::read_metadata(http, broker)).await;
        found.unwrap_or_else(|_| Err(http.timed_out()))
    }

    async fn read_metadata(http: &Http, broker: &BrokerUrl) -> Result<Self, Error> {
        let issuer = IssuerUrl::new(broker.as_str().to_owned())
            .map_err(|error| Error::usage(format!("{broker} is no issuer: {error}")))?;
        let client = http_client(http);
        let metadata =
            Metadata::discover_async(issuer, &client).await.map_err(|error| match error {
                openidconnect::DiscoveryError::Request(RequestError(error)) => error,
                openidconnect::DiscoveryError::Validation(why) => {
                    Error::refused(format!("{broker} identifies itself as another issuer: {why}"))
                        .hint("give --broker the address that the broker uses for itself")
                }
                other => Error::unreachable(format!(
                    "{broker} does not answer as a tenant broker does: {other}"
                ))
                .hint("check the address; a proxy or a captive portal may be in between"),
            })?;
        let extra = metadata.additional_metadata();
        let endpoints = [
            Some(metadata.authorization_endpoint().url()),
            metadata.token_endpoint().map(TokenUrl::url),
            extra.revocation_endpoint.as_ref(),
            extra.device_authorization_endpoint.as_ref(),
        ];
        if let Some(unsafe_one) =
            endpoints.into_iter().flatten().find(|endpoint| !broker_url::is_safe(endpoint))
        {
            return Err(Error::refused(format!(
                "{broker} names {unsafe_one} for sign-in, which would send secrets unencrypted"
            ))
            .hint("report this to the broker's operator"));
        }
        Ok(Self { http: http.clone(), broker: broker.clone(), metadata })
    }

    /// Token endpoint and, if there is one, revocation endpoint.
    pub(crate) fn endpoints(&self) -> Result<(String, Option<String>), Error> {
        let token = self
            .metadata
            .token_endpoint()
            .ok_or_else(|| Error::refused(format!("{} names no token endpoint", self.broker)))?;
        let revocation = self.metadata.additional_metadata().revocation_endpoint.as_ref();
        Ok((token.to_string(), revocation.map(Url::to_string)))
    }

    /// Creates an authorization request that redirects to `redirect`. State, nonce and code
    /// verifier are 32 unpredictable bytes each.
    pub(crate) fn authorization_request(
        &self,
        redirect: String,
        entropy: fn(&mut [u8]) -> std::io::Result<()>,
    ) -> Result<AuthorizationRequest, Error> {
        let redirect = RedirectUrl::new(redirect)
            .map_err(|error| Error::other(format!("the redirect address is malformed: {error}")))?;
        let verifier = PkceCodeVerifier::new(random_base64url(entropy)?);
        let challenge = openidconnect::PkceCodeChallenge::from_code_verifier_sha256(&verifier);
        let (state, nonce) = (random_base64url(entropy)?, Nonce::new(random_base64url(entropy)?));
        let (sent_state, sent_nonce) = (state.clone(), nonce.clone());
        let (url, ..) = CoreClient::from_provider_metadata(
            self.metadata.clone(),
            ClientId::new(PLUGIN_CLIENT_ID.to_owned()),
            None,
        )
        .set_redirect_uri(redirect.clone())
        .authorize_url(
            CoreAuthenticationFlow::AuthorizationCode,
            move || openidconnect::CsrfToken::new(sent_state),
            move || sent_nonce,
        )
        .add_scope(Scope::new("email".to_owned()))
        .add_scope(Scope::new("offline_access".to_owned()))
        .set_pkce_challenge(challenge)
        .url();
        Ok(AuthorizationRequest { state, nonce, verifier, redirect, url })
    }

    /// A command of this program for the account that signs in.
    pub(crate) fn command(&self, command: &str) -> String {
        self.http.account().command(command)
    }

    /// The issuer's identifier.
    pub(crate) fn identifier(&self) -> &str {
        self.metadata.issuer().as_str()
    }

    /// Redirect URI of the broker's own page that shows the code, for a person without a browser on
    /// this machine.
    pub(crate) fn paste_redirect(&self) -> String {
        self.broker.join("/login/code")
    }

    /// Checks the parameter `iss` (RFC 9207), because a code of another issuer must not be redeemed
    /// here.
    pub(crate) fn check_iss(&self, iss: Option<&str>) -> Result<(), Error> {
        let expected = self.identifier();
        match iss {
            Some(iss) if iss == expected => Ok(()),
            Some(other) => Err(Error::refused(format!(
                "the authorization response came from {other:?} instead of {expected:?}; it was not used"
            ))),
            None if self
                .metadata
                .additional_metadata()
                .authorization_response_iss_parameter_supported =>
            {
                Err(Error::refused(
                    "the authorization response does not say which issuer it came from; it was not used",
                ))
            }
            None => Ok(()),
        }
    }

    /// Redeems an authorization code and verifies the ID token: signature, issuer, audience, time
    /// and nonce.
    pub(crate) async fn redeem(
        &self,
        request: AuthorizationRequest,
        code: SecretString,
        clock: &Clock,
    ) -> Result<Tokens, Error> {
        let client = CoreClient::from_provider_metadata(
            self.metadata.clone(),
            ClientId::new(PLUGIN_CLIENT_ID.to_owned()),
            None,
        )
        .set_redirect_uri(request.redirect);
        let before = clock.now();
        let offset = AtomicI64::new(0);
        let call = |http_request| {
            let (http, clock, offset) = (self.http.clone(), clock.clone(), &offset);
            async move {
                let response = http.send(http_request).await?;
                let measured = http::clock_offset(&response, clock.now()).unwrap_or(0);
                offset.store(measured, Ordering::SeqCst);
                Ok::<_, RequestError>(response)
            }
        };
        let response = client
            .exchange_code(AuthorizationCode::new(code.expose_secret().to_owned()))
            .map_err(|error| {
                Error::refused(format!("{} names no token endpoint: {error}", self.broker))
            })?
            .set_pkce_verifier(request.verifier)
            .request_async(&call)
            .await
            .map_err(|error| self.token_error("the sign-in", error))?;
        let clock_offset = offset.into_inner();
        self.verify_tokens(&response, &request.nonce, clock, (before, clock_offset))
    }

    /// Verifies the ID token of a token response that was requested at `before`, by this machine's
    /// clock.
    fn verify_tokens(
        &self,
        response: &CoreTokenResponse,
        nonce: impl NonceVerifier,
        clock: &Clock,
        (before, clock_offset): (i64, i64),
    ) -> Result<Tokens, Error> {
        let client = CoreClient::from_provider_metadata(
            self.metadata.clone(),
            ClientId::new(PLUGIN_CLIENT_ID.to_owned()),
            None,
        );
        let id_token = response.id_token().ok_or_else(|| {
            Error::refused(format!("the token response of {} has no ID token", self.broker))
        })?;
        // The ID token has the broker's times, so they are compared with the broker's clock.
        let broker_now = u64::try_from(clock.now() + clock_offset).unwrap_or(0);
        let broker_now = SystemTime::UNIX_EPOCH + Duration::from_secs(broker_now);
        let verifier = client.id_token_verifier().set_time_fn(move || broker_now.into());
        let claims = id_token.claims(&verifier, nonce).map_err(|error| {
            Error::refused(format!("the ID token of {} is not valid: {error}", self.broker))
        })?;
        let refresh_token = response.refresh_token().ok_or_else(|| {
            Error::refused(format!("the token response of {} has no refresh token", self.broker))
        })?;
        Ok(Tokens {
            subject: claims.subject().to_string(),
            email: claims.email().map(|email| email.to_string()),
            refresh_token: refresh_token.secret().clone().into(),
            access: access_token(response, before),
            clock_offset,
        })
    }

    fn token_error(&self, what: &str, error: TokenError) -> Error {
        match error {
            RequestTokenError::Request(RequestError(error)) => error,
            RequestTokenError::ServerResponse(response) => Error::refused(format!(
                "{} refused {what}: {}",
                self.broker,
                response
                    .error_description()
                    .cloned()
                    .unwrap_or_else(|| response.error().to_string())
            ))
            .hint("a code can be used once and expires soon; begin again"),
            other => Error::unreachable(format!(
                "{} sent a response that cannot be read: {other}",
                self.broker
            )),
        }
    }
}

type TokenError =
    RequestTokenError<RequestError, openidconnect::StandardErrorResponse<CoreErrorResponseType>>;

/// Adapts the HTTP client to the crate's interface.
fn http_client(http: &Http) -> impl Fn(::http::Request<Vec<u8>>) -> SendFuture + use<> {
    let http = http.clone();
    move |request| {
        let http = http.clone();
        Box::pin(async move { http.send(request).await })
    }
}

type SendFuture = Pin<Box<dyn Future<Output = Result<Response, RequestError>>>>;

/// The access token of a token response. Its expiry is counted from before the request by this
/// machine's clock, so that it never seems to live longer than it does.
fn access_token(response: &CoreTokenResponse, before: i64) -> AccessToken {
    // The lifetime is optional (RFC 6749 section 5.1); without one the token is used for a minute.
    let lifetime = response.expires_in().map_or(60, |lifetime| lifetime.as_secs());
    let token: &OauthAccessToken = response.access_token();
    AccessToken {
        token: token.secret().clone().into(),
        received_at: before,
        expires_at: before.saturating_add_unsigned(lifetime),
    }
}

/// Returns 32 unpredictable bytes in base64url: 43 characters.
fn random_base64url(entropy: fn(&mut [u8]) -> std::io::Result<()>) -> Result<String, Error> {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let mut bytes = [0_u8; 32];
    entropy(&mut bytes).map_err(|error| {
        Error::other(format!("the system's random number generator failed: {error}"))
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
