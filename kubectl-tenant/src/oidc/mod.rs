//! The OpenID Connect client: discovery, code exchange, device grant, token exchange, renewal,
//! revocation.
//!
//! The plugin is a public client (RFC 6749 section 2.1): what binds a code to it is PKCE
//! (RFC 7636), what binds an ID token to the sign-in is the nonce.

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
    http::{self, Answer, Failure, Http},
    store::AccessToken,
    world::Clock,
};

pub(crate) use device::{DeviceCode, Polled};
pub(crate) use exchange::gateway_token;
pub(crate) use renewal::{Renewal, refresh, revoke};

/// What discovery says beyond the types of the crate.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Extra {
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

impl AdditionalProviderMetadata for Extra {}

type Metadata = ProviderMetadata<
    Extra,
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

/// An issuer whose discovery document has been read and found safe to talk to.
pub(crate) struct Issuer {
    http: Http,
    broker: BrokerUrl,
    metadata: Metadata,
}

/// The secrets of one sign-in, made before the browser opens and compared when it comes back.
pub(crate) struct Attempt {
    /// Comes back with the code.
    pub(crate) state: String,
    nonce: Nonce,
    verifier: PkceCodeVerifier,
    redirect: RedirectUrl,
    /// The page that the person opens.
    pub(crate) url: Url,
}

/// What a sign-in brings.
pub(crate) struct Tokens {
    pub(crate) subject: String,
    pub(crate) refresh_token: SecretString,
    pub(crate) access: AccessToken,
    /// Seconds by which the broker's clock is ahead of ours.
    pub(crate) clock_offset: i64,
}

impl Issuer {
    /// Reads the discovery document and the keys (OpenID Connect Discovery 1.0 section 4).
    /// Both together have the time of one request.
    pub(crate) async fn discover(http: &Http, broker: &BrokerUrl) -> Result<Self, Error> {
        let found = tokio::time::timeout(http.time_left(), Self::read(http, broker)).await;
        found.unwrap_or_else(|_| Err(http.too_slow()))
    }

    async fn read(http: &Http, broker: &BrokerUrl) -> Result<Self, Error> {
        let issuer = IssuerUrl::new(broker.as_str().to_owned())
            .map_err(|error| Error::usage(format!("{broker} is no issuer: {error}")))?;
        let client = caller(http);
        let metadata =
            Metadata::discover_async(issuer, &client).await.map_err(|error| match error {
                openidconnect::DiscoveryError::Request(Failure(error)) => error,
                openidconnect::DiscoveryError::Validation(why) => {
                    Error::refused(format!("{broker} calls itself something else: {why}"))
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
                "{broker} names {unsafe_one} for sign-in, which would send secrets in clear"
            ))
            .hint("tell the people who run the broker"));
        }
        Ok(Self { http: http.clone(), broker: broker.clone(), metadata })
    }

    /// Where tokens are renewed and revoked.
    pub(crate) fn endpoints(&self) -> Result<(String, Option<String>), Error> {
        let token = self
            .metadata
            .token_endpoint()
            .ok_or_else(|| Error::refused(format!("{} names no token endpoint", self.broker)))?;
        let revocation = self.metadata.additional_metadata().revocation_endpoint.as_ref();
        Ok((token.to_string(), revocation.map(Url::to_string)))
    }

    /// Begins a sign-in that ends at `redirect`. Three times 32 unpredictable bytes go in.
    pub(crate) fn begin(
        &self,
        redirect: String,
        entropy: fn(&mut [u8]) -> std::io::Result<()>,
    ) -> Result<Attempt, Error> {
        let redirect = RedirectUrl::new(redirect)
            .map_err(|error| Error::other(format!("the redirect address is malformed: {error}")))?;
        let verifier = PkceCodeVerifier::new(random(entropy)?);
        let challenge = openidconnect::PkceCodeChallenge::from_code_verifier_sha256(&verifier);
        let (state, nonce) = (random(entropy)?, Nonce::new(random(entropy)?));
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
        Ok(Attempt { state, nonce, verifier, redirect, url })
    }

    /// The issuer's identifier.
    pub(crate) fn name(&self) -> &str {
        self.metadata.issuer().as_str()
    }

    /// The page that shows the code to whoever has no browser on this machine.
    pub(crate) fn paste_redirect(&self) -> String {
        self.broker.join("/login/code")
    }

    /// Checks who sent the code (RFC 9207): a code of another issuer must not be redeemed here.
    pub(crate) fn check_sender(&self, iss: Option<&str>) -> Result<(), Error> {
        let expected = self.name();
        match iss {
            Some(iss) if iss == expected => Ok(()),
            Some(other) => Err(Error::refused(format!(
                "the answer came from {other:?} instead of {expected:?}; it was not used"
            ))),
            None if self
                .metadata
                .additional_metadata()
                .authorization_response_iss_parameter_supported =>
            {
                Err(Error::refused(
                    "the answer does not say which issuer it came from; it was not used",
                ))
            }
            None => Ok(()),
        }
    }

    /// Redeems a code and verifies the ID token: signature, issuer, audience, time and nonce.
    pub(crate) async fn redeem(
        &self,
        attempt: Attempt,
        code: SecretString,
        clock: &Clock,
    ) -> Result<Tokens, Error> {
        let client = CoreClient::from_provider_metadata(
            self.metadata.clone(),
            ClientId::new(PLUGIN_CLIENT_ID.to_owned()),
            None,
        )
        .set_redirect_uri(attempt.redirect);
        let before = clock.now();
        let offset = AtomicI64::new(0);
        let call = |request| {
            let (http, clock, offset) = (self.http.clone(), clock.clone(), &offset);
            async move {
                let answer = http.send(request).await?;
                let seen = http::clock_offset(&answer, clock.now()).unwrap_or(0);
                offset.store(seen, Ordering::SeqCst);
                Ok::<_, Failure>(answer)
            }
        };
        let answer = client
            .exchange_code(AuthorizationCode::new(code.expose_secret().to_owned()))
            .map_err(|error| {
                Error::refused(format!("{} names no token endpoint: {error}", self.broker))
            })?
            .set_pkce_verifier(attempt.verifier)
            .request_async(&call)
            .await
            .map_err(|error| self.refused("the sign-in", error))?;
        let clock_offset = offset.into_inner();
        self.signed_in(&answer, &attempt.nonce, clock, (before, clock_offset))
    }

    /// Verifies the ID token of an answer that was asked for at `before`, by our clock.
    fn signed_in(
        &self,
        answer: &CoreTokenResponse,
        nonce: impl NonceVerifier,
        clock: &Clock,
        (before, clock_offset): (i64, i64),
    ) -> Result<Tokens, Error> {
        let client = CoreClient::from_provider_metadata(
            self.metadata.clone(),
            ClientId::new(PLUGIN_CLIENT_ID.to_owned()),
            None,
        );
        let id_token = answer.id_token().ok_or_else(|| {
            Error::refused(format!("{} signed nobody in: its answer has no ID token", self.broker))
        })?;
        // The token's times are the broker's, so they are judged by the broker's clock.
        let broker_now = u64::try_from(clock.now() + clock_offset).unwrap_or(0);
        let broker_now = SystemTime::UNIX_EPOCH + Duration::from_secs(broker_now);
        let verifier = client.id_token_verifier().set_time_fn(move || broker_now.into());
        let claims = id_token.claims(&verifier, nonce).map_err(|error| {
            Error::refused(format!("the ID token of {} is not valid: {error}", self.broker))
        })?;
        let refresh_token = answer
            .refresh_token()
            .ok_or_else(|| Error::refused(format!("{} gave no refresh token", self.broker)))?;
        Ok(Tokens {
            subject: claims.subject().to_string(),
            refresh_token: refresh_token.secret().clone().into(),
            access: access(answer, before),
            clock_offset,
        })
    }

    fn refused(&self, what: &str, error: TokenError) -> Error {
        match error {
            RequestTokenError::Request(Failure(error)) => error,
            RequestTokenError::ServerResponse(answer) => Error::refused(format!(
                "{} refused {what}: {}",
                self.broker,
                answer.error_description().cloned().unwrap_or_else(|| answer.error().to_string())
            ))
            .hint("a code works once and not for long; begin again"),
            other => Error::unreachable(format!(
                "{} gave an answer that cannot be read: {other}",
                self.broker
            )),
        }
    }
}

type TokenError =
    RequestTokenError<Failure, openidconnect::StandardErrorResponse<CoreErrorResponseType>>;

/// Our HTTP client in the form that the crate takes.
fn caller(http: &Http) -> impl Fn(::http::Request<Vec<u8>>) -> SendFuture + use<> {
    let http = http.clone();
    move |request| {
        let http = http.clone();
        Box::pin(async move { http.send(request).await })
    }
}

type SendFuture = Pin<Box<dyn Future<Output = Result<Answer, Failure>>>>;

/// The access token of an answer, with its end by our own clock: counted from before the request,
/// so that it never seems to live longer than it does.
fn access(answer: &CoreTokenResponse, before: i64) -> AccessToken {
    // Without a lifetime (RFC 6749 section 5.1 only recommends one) it is used for this once.
    let lifetime = answer.expires_in().map_or(60, |lifetime| lifetime.as_secs());
    let token: &OauthAccessToken = answer.access_token();
    AccessToken {
        token: token.secret().clone().into(),
        received_at: before,
        expires_at: before.saturating_add_unsigned(lifetime),
    }
}

/// 32 unpredictable bytes in base64url: 43 characters.
fn random(entropy: fn(&mut [u8]) -> std::io::Result<()>) -> Result<String, Error> {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let mut bytes = [0_u8; 32];
    entropy(&mut bytes)
        .map_err(|error| Error::other(format!("the system gives no random numbers: {error}")))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
