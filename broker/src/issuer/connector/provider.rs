//! The OpenID Connect client of one provider.

use std::pin::Pin;

use openidconnect::{
    AccessToken, AdditionalProviderMetadata, AuthType, AuthorizationCode, ClientId, ClientSecret,
    EndpointMaybeSet, EndpointNotSet, EndpointSet, Nonce, OAuth2TokenResponse as _,
    PkceCodeChallenge, PkceCodeVerifier, ProviderMetadata, RedirectUrl, RefreshToken,
    RequestTokenError, Scope, TokenResponse as _, TokenUrl, UserInfoUrl,
    core::{
        CoreAuthDisplay, CoreAuthenticationFlow, CoreClaimName, CoreClaimType, CoreClient,
        CoreClientAuthMethod, CoreErrorResponseType, CoreGrantType, CoreJsonWebKey,
        CoreJweContentEncryptionAlgorithm, CoreJweKeyManagementAlgorithm, CoreRequestTokenError,
        CoreResponseMode, CoreResponseType, CoreSubjectIdentifierType, CoreTokenResponse,
    },
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subtle::ConstantTimeEq as _;
use url::Url;

use super::{ConnectorSettings, is_allowed_endpoint};
use crate::{
    base::{
        clock::Clock,
        reload::{Reloaded, Reloader},
    },
    issuer::jwt::{
        Claims, Discovery, FetchError, HttpClient, HttpClientError, JwksCache, TokenKind,
        VerificationError,
    },
};

/// Discovery metadata that the crate has no types for.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct IssuerParameterMetadata {
    /// RFC 9207 section 3.
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl AdditionalProviderMetadata for IssuerParameterMetadata {}

type Metadata = ProviderMetadata<
    IssuerParameterMetadata,
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

type Client = CoreClient<
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// A pending HTTP response of the provider.
type ResponseFuture =
    Pin<Box<dyn Future<Output = Result<http::Response<Vec<u8>>, FetchError>> + Send>>;

/// A provider; its metadata is fetched when first needed.
#[derive(Debug)]
pub(super) struct Provider {
    issuer: String,
    client_id: String,
    client_secret: Option<Reloaded<SecretString>>,
    scopes: String,
    redirect: String,
    http: HttpClient,
    keys: JwksCache,
    discovery: Discovery<Metadata>,
    clock: Clock,
}

/// A request to a provider failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProviderError {
    /// The provider denies it; the text is its error code.
    #[error("the provider refused: {0}")]
    Denied(String),
    /// The response is invalid.
    #[error("the provider's response is invalid: {0}")]
    Invalid(String),
    /// The provider does not answer, or its response is of no use.
    #[error("the provider does not answer: {0}")]
    Unavailable(String),
}

impl From<FetchError> for ProviderError {
    fn from(error: FetchError) -> Self {
        Self::Unavailable(error.0)
    }
}

impl From<VerificationError> for ProviderError {
    fn from(error: VerificationError) -> Self {
        match error {
            VerificationError::Invalid(why) => Self::Invalid(why.to_owned()),
            VerificationError::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

/// Claims of a provider about a user.
#[derive(Debug)]
pub(super) struct ProviderClaims {
    /// Subject (`sub`).
    pub(super) subject: String,
    /// Claims of the ID token and of userinfo; `None` if the provider sent none.
    pub(super) claims: Option<Map<String, Value>>,
    /// Session id at the provider (`sid`), if it names one.
    pub(super) sid: Option<String>,
    /// Refresh token to ask the provider again.
    pub(super) refresh_token: Option<SecretString>,
}

/// Result of a refresh. The provider may have rotated the token: even if the rest is invalid, the
/// new one must be stored, or the provider takes the next use of the old one for theft.
#[derive(Debug)]
pub(super) struct RefreshResult {
    /// The rotated refresh token.
    pub(super) token: Option<SecretString>,
    /// Current claims of the provider about the user.
    pub(super) claims: Result<ProviderClaims, ProviderError>,
}

impl Provider {
    /// A client of this provider; `table` is the configuration's table of the connector.
    pub(super) fn new(
        settings: &ConnectorSettings,
        table: &str,
        redirect: String,
        clock: &Clock,
        reloader: &Reloader,
    ) -> Result<Self, HttpClientError> {
        let issuer: Url = settings.issuer.parse().map_err(|error| {
            HttpClientError::Tls(format!("{} is no URL: {error}", settings.issuer))
        })?;
        let http = HttpClient::new(&issuer, settings.ca_file.as_deref(), table, reloader)?;
        let client_secret = settings.client_secret.as_ref();
        let client_secret = client_secret.map(|secret| secret.load(table, reloader)).transpose()?;
        Ok(Self {
            issuer: settings.issuer.clone(),
            client_id: settings.client_id.clone(),
            client_secret,
            scopes: settings.scopes.clone(),
            redirect,
            keys: JwksCache::new(http.clone(), clock.clone()),
            discovery: Discovery::new(http.clone(), clock.clone(), &settings.issuer),
            http,
            clock: clock.clone(),
        })
    }

    /// Whether the provider failed to answer within this number of milliseconds.
    pub(super) fn failed_within(&self, milliseconds: i64) -> bool {
        self.discovery.failed_within(milliseconds).is_some()
    }

    /// URL of the authorization request (OpenID Connect Core 1.0 section 3.1.2.1).
    pub(super) async fn authorization_url(
        &self,
        state: String,
        nonce: Nonce,
        verifier: &PkceCodeVerifier,
    ) -> Result<Url, ProviderError> {
        let client = self.client(&*self.metadata().await?)?;
        let challenge = PkceCodeChallenge::from_code_verifier_sha256(verifier);
        let scopes = self.scopes.split_ascii_whitespace().filter(|scope| *scope != "openid");
        let (url, ..) = client
            .authorize_url(
                CoreAuthenticationFlow::AuthorizationCode,
                move || openidconnect::CsrfToken::new(state),
                move || nonce,
            )
            .add_scopes(scopes.map(|scope| Scope::new(scope.to_owned())))
            .set_pkce_challenge(challenge)
            .url();
        Ok(url)
    }

    /// Checks that a response came from this provider (RFC 9207 section 2.4), against mix-up
    /// attacks.
    pub(super) async fn check_response_issuer(
        &self,
        iss: Option<&str>,
    ) -> Result<(), ProviderError> {
        match iss {
            Some(iss) if iss == self.issuer => Ok(()),
            Some(_) => {
                Err(ProviderError::Invalid("the response names another issuer (iss)".to_owned()))
            }
            None => {
                let metadata = self.metadata().await?;
                let extra = metadata.additional_metadata();
                if extra.authorization_response_iss_parameter_supported {
                    return Err(ProviderError::Invalid(
                        "the response does not name its issuer (iss)".into(),
                    ));
                }
                Ok(())
            }
        }
    }

    /// Redeems a code, verifies the ID token and fetches userinfo.
    pub(super) async fn redeem(
        &self,
        code: String,
        verifier: PkceCodeVerifier,
        nonce: &Nonce,
    ) -> Result<ProviderClaims, ProviderError> {
        let metadata = self.metadata().await?;
        let call = http_caller(&self.http);
        let tokens = self
            .client(&metadata)?
            .exchange_code(AuthorizationCode::new(code))
            .map_err(|error| ProviderError::Unavailable(error.to_string()))?
            .set_pkce_verifier(verifier)
            .request_async(&call)
            .await
            .map_err(token_request_error)?;
        let id_token = self.id_token(&metadata, &tokens).await?;
        let id_token =
            id_token.ok_or_else(|| ProviderError::Invalid("there is no ID token".into()))?;
        let sent = id_token.text("nonce").unwrap_or_default();
        if !bool::from(sent.as_bytes().ct_eq(nonce.secret().as_bytes())) {
            return Err(ProviderError::Invalid(
                "the ID token belongs to another sign-in (nonce)".to_owned(),
            ));
        }
        let subject = id_token.subject().unwrap_or_default().to_owned();
        self.claims_of(&metadata, subject, Some(&id_token), &tokens).await
    }

    /// Refreshes the claims of a user (OpenID Connect Core 1.0 section 12).
    pub(super) async fn refresh(
        &self,
        token: &SecretString,
        subject: &str,
    ) -> Result<RefreshResult, ProviderError> {
        let metadata = self.metadata().await?;
        let call = http_caller(&self.http);
        let tokens = self
            .client(&metadata)?
            .exchange_refresh_token(&RefreshToken::new(token.expose_secret().to_owned()))
            .map_err(|error| ProviderError::Unavailable(error.to_string()))?
            .request_async(&call)
            .await
            .map_err(token_request_error)?;
        let claims = match self.id_token(&metadata, &tokens).await {
            Ok(Some(claims)) if claims.subject() != Some(subject) => {
                Err(ProviderError::Invalid("it is about another person".to_owned()))
            }
            Ok(claims) => {
                self.claims_of(&metadata, subject.to_owned(), claims.as_ref(), &tokens).await
            }
            Err(error) => Err(error),
        };
        Ok(RefreshResult { token: refresh_token(&tokens), claims })
    }

    /// Verifies a token of another kind, such as a logout token.
    pub(super) async fn verify(
        &self,
        token: &str,
        kind: TokenKind,
    ) -> Result<Claims, ProviderError> {
        let metadata = self.metadata().await?;
        let jwks = metadata.jwks_uri().url();
        let party = (self.issuer.as_str(), self.client_id.as_str());
        let now = self.clock.now_ms();
        Ok(Claims::verify(token, kind, (&self.keys, jwks), party, now).await?)
    }

    async fn id_token(
        &self,
        metadata: &Metadata,
        tokens: &CoreTokenResponse,
    ) -> Result<Option<Claims>, ProviderError> {
        let Some(token) = tokens.id_token() else { return Ok(None) };
        let jwks = metadata.jwks_uri().url();
        let party = (self.issuer.as_str(), self.client_id.as_str());
        let (token, now) = (token.to_string(), self.clock.now_ms());
        Ok(Some(Claims::verify(&token, TokenKind::Id, (&self.keys, jwks), party, now).await?))
    }

    /// Merges the claims of the ID token and userinfo; userinfo is newer and wins.
    async fn claims_of(
        &self,
        metadata: &Metadata,
        subject: String,
        id_token: Option<&Claims>,
        tokens: &CoreTokenResponse,
    ) -> Result<ProviderClaims, ProviderError> {
        let mut claims = id_token.map(|token| token.all().clone());
        if let Some(endpoint) = metadata.userinfo_endpoint() {
            let more = self.userinfo(endpoint.url(), &subject, tokens.access_token()).await?;
            claims.get_or_insert_default().extend(more);
        }
        let sid = id_token.and_then(|token| token.text("sid"));
        let sid = sid.filter(|sid| (1..=255).contains(&sid.len())).map(str::to_owned);
        Ok(ProviderClaims { subject, claims, sid, refresh_token: refresh_token(tokens) })
    }

    /// Fetches userinfo (OpenID Connect Core 1.0 section 5.3).
    async fn userinfo(
        &self,
        endpoint: &Url,
        subject: &str,
        token: &AccessToken,
    ) -> Result<Map<String, Value>, ProviderError> {
        let request = http::Request::get(endpoint.as_str())
            .header(http::header::AUTHORIZATION, format!("Bearer {}", token.secret()))
            .header(http::header::ACCEPT, "application/json")
            .body(Vec::new())
            .map_err(|error| ProviderError::Unavailable(error.to_string()))?;
        let response = self.http.send(request).await?;
        if response.status() != http::StatusCode::OK {
            return Err(ProviderError::Unavailable(format!(
                "userinfo answers {}",
                response.status()
            )));
        }
        let claims: Map<String, Value> =
            serde_json::from_slice(response.body()).map_err(|error| {
                ProviderError::Unavailable(format!("userinfo cannot be read: {error}"))
            })?;
        // Section 5.3.2: without this check, tokens could be swapped.
        if claims.get("sub").and_then(Value::as_str) != Some(subject) {
            return Err(ProviderError::Invalid("userinfo is about another person".to_owned()));
        }
        Ok(claims)
    }

    async fn metadata(&self) -> Result<std::sync::Arc<Metadata>, ProviderError> {
        let metadata = self.discovery.get().await?;
        let endpoints = [
            Some(metadata.authorization_endpoint().url()),
            metadata.token_endpoint().map(TokenUrl::url),
            metadata.userinfo_endpoint().map(UserInfoUrl::url),
            Some(metadata.jwks_uri().url()),
        ];
        let is_refused = |endpoint: &&Url| !is_allowed_endpoint(&self.issuer, endpoint);
        let refused = endpoints.into_iter().flatten().find(is_refused);
        if let Some(endpoint) = refused {
            let why = format!("it names {endpoint}, which is not https");
            return Err(ProviderError::Unavailable(why));
        }
        Ok(metadata)
    }

    fn client(&self, metadata: &Metadata) -> Result<Client, ProviderError> {
        let redirect = RedirectUrl::new(self.redirect.clone())
            .map_err(|error| ProviderError::Unavailable(error.to_string()))?;
        let secret = self.client_secret.as_ref().map(Reloaded::get);
        let secret = secret.map(|secret| ClientSecret::new(secret.expose_secret().to_owned()));
        // Section 9: `client_secret_basic` is the default.
        let by_body = metadata
            .token_endpoint_auth_methods_supported()
            .is_some_and(|methods| !methods.contains(&CoreClientAuthMethod::ClientSecretBasic));
        let auth_type = if by_body { AuthType::RequestBody } else { AuthType::BasicAuth };
        Ok(CoreClient::from_provider_metadata(
            metadata.clone(),
            ClientId::new(self.client_id.clone()),
            secret,
        )
        .set_redirect_uri(redirect)
        .set_auth_type(auth_type))
    }
}

/// Adapts our HTTP client to the crate. Each request owns its data.
fn http_caller(
    http: &HttpClient,
) -> impl Fn(http::Request<Vec<u8>>) -> ResponseFuture + Sync + use<> {
    let http = http.clone();
    move |request| {
        let http = http.clone();
        Box::pin(async move { http.send(request).await })
    }
}

fn refresh_token(tokens: &CoreTokenResponse) -> Option<SecretString> {
    tokens.refresh_token().map(|token| token.secret().clone().into())
}

/// Only `invalid_grant` is about the user; every other error is about the configuration of the
/// broker, or means nothing.
fn token_request_error(error: CoreRequestTokenError<FetchError>) -> ProviderError {
    match error {
        RequestTokenError::ServerResponse(response) => {
            let code = response.error().as_ref().chars().take(64).collect::<String>();
            match response.error() {
                CoreErrorResponseType::InvalidGrant => ProviderError::Denied(code),
                _ => ProviderError::Unavailable(format!("it refuses the broker: {code}")),
            }
        }
        RequestTokenError::Request(error) => error.into(),
        RequestTokenError::Parse(error, _) => {
            ProviderError::Unavailable(format!("the response cannot be read: {error}"))
        }
        RequestTokenError::Other(why) => ProviderError::Unavailable(why),
    }
}
