//! The conversation with one provider, as its client.

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

use super::{ConnectorSettings, may_name};
use crate::{
    clock::Clock,
    issuer::trust::{Claims, Discovery, Distrust, Http, HttpError, Keys, Kind, Outage},
};

/// What discovery says beyond the types of the crate.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Extra {
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

type Client = CoreClient<
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// An answer of the provider under way.
type Answering = Pin<Box<dyn Future<Output = Result<http::Response<Vec<u8>>, Outage>> + Send>>;

/// A provider, which is asked for its metadata when it is needed first.
#[derive(Debug)]
pub(super) struct Provider {
    issuer: String,
    client_id: String,
    client_secret: Option<SecretString>,
    scopes: String,
    redirect: String,
    http: Http,
    keys: Keys,
    discovery: Discovery<Metadata>,
    clock: Clock,
}

/// The provider gives nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoAnswer {
    /// It says no.
    #[error("the provider says no: {0}")]
    No(String),
    /// It gives what must not be believed.
    #[error("the provider's answer cannot be believed: {0}")]
    Unsound(String),
    /// It does not answer, or not in a way that means anything.
    #[error("the provider does not answer: {0}")]
    Outage(String),
}

impl From<Outage> for NoAnswer {
    fn from(outage: Outage) -> Self {
        Self::Outage(outage.0)
    }
}

impl From<Distrust> for NoAnswer {
    fn from(distrust: Distrust) -> Self {
        match distrust {
            Distrust::Refused(why) => Self::Unsound(why.to_owned()),
            Distrust::Outage(why) => Self::Outage(why),
        }
    }
}

/// What the provider says of somebody.
#[derive(Debug)]
pub(super) struct Answer {
    /// Who it is about.
    pub(super) subject: String,
    /// Their claims, from the ID token and from userinfo; `None` if the provider gave none.
    pub(super) claims: Option<Map<String, Value>>,
    /// The provider's session, if it names one.
    pub(super) sid: Option<String>,
    /// With what it may be asked again.
    pub(super) refresh_token: Option<SecretString>,
}

/// What a refresh token brought. The provider may have replaced it: whatever else is wrong, the new
/// one must be kept, or the provider takes the next use of the old one for theft.
#[derive(Debug)]
pub(super) struct Refreshed {
    /// The token's successor.
    pub(super) token: Option<SecretString>,
    /// What the provider says now.
    pub(super) answer: Result<Answer, NoAnswer>,
}

impl Provider {
    pub(super) fn new(
        settings: &ConnectorSettings,
        redirect: String,
        clock: &Clock,
    ) -> Result<Self, HttpError> {
        let issuer: Url = settings
            .issuer
            .parse()
            .map_err(|error| HttpError::Tls(format!("{} is no URL: {error}", settings.issuer)))?;
        let http = Http::new(&issuer, settings.ca_file.as_deref())?;
        Ok(Self {
            issuer: settings.issuer.clone(),
            client_id: settings.client_id.clone(),
            client_secret: settings.client_secret.clone(),
            scopes: settings.scopes.clone(),
            redirect,
            keys: Keys::new(http.clone(), clock.clone()),
            discovery: Discovery::new(http.clone(), clock.clone(), &settings.issuer),
            http,
            clock: clock.clone(),
        })
    }

    /// Whether it failed to answer within the last so many milliseconds.
    pub(super) fn failed_within(&self, milliseconds: i64) -> bool {
        self.discovery.failed_within(milliseconds).is_some()
    }

    /// Where the browser goes (OpenID Connect Core 1.0 section 3.1.2.1).
    pub(super) async fn authorization_url(
        &self,
        state: String,
        nonce: Nonce,
        verifier: &PkceCodeVerifier,
    ) -> Result<Url, NoAnswer> {
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

    /// Whether an answer came from this provider (RFC 9207 section 2.4), against mix-up.
    pub(super) async fn check_sender(&self, iss: Option<&str>) -> Result<(), NoAnswer> {
        match iss {
            Some(iss) if iss == self.issuer => Ok(()),
            Some(_) => Err(NoAnswer::Unsound("the answer is another issuer's".to_owned())),
            None => {
                let metadata = self.metadata().await?;
                let extra = metadata.additional_metadata();
                if extra.authorization_response_iss_parameter_supported {
                    return Err(NoAnswer::Unsound("the answer does not name its issuer".into()));
                }
                Ok(())
            }
        }
    }

    /// Redeems a code, verifies the ID token and asks for what is not in it.
    pub(super) async fn redeem(
        &self,
        code: String,
        verifier: PkceCodeVerifier,
        nonce: &Nonce,
    ) -> Result<Answer, NoAnswer> {
        let metadata = self.metadata().await?;
        let ask = caller(&self.http);
        let tokens = self
            .client(&metadata)?
            .exchange_code(AuthorizationCode::new(code))
            .map_err(|error| NoAnswer::Outage(error.to_string()))?
            .set_pkce_verifier(verifier)
            .request_async(&ask)
            .await
            .map_err(refused)?;
        let id_token = self.id_token(&metadata, &tokens).await?;
        let id_token = id_token.ok_or_else(|| NoAnswer::Unsound("there is no ID token".into()))?;
        let sent = id_token.text("nonce").unwrap_or_default();
        if !bool::from(sent.as_bytes().ct_eq(nonce.secret().as_bytes())) {
            return Err(NoAnswer::Unsound("the ID token is another sign-in's (nonce)".to_owned()));
        }
        let subject = id_token.subject().unwrap_or_default().to_owned();
        self.answer(&metadata, subject, Some(&id_token), &tokens).await
    }

    /// Asks again about somebody (OpenID Connect Core 1.0 section 12).
    pub(super) async fn refresh(
        &self,
        token: &SecretString,
        subject: &str,
    ) -> Result<Refreshed, NoAnswer> {
        let metadata = self.metadata().await?;
        let ask = caller(&self.http);
        let tokens = self
            .client(&metadata)?
            .exchange_refresh_token(&RefreshToken::new(token.expose_secret().to_owned()))
            .map_err(|error| NoAnswer::Outage(error.to_string()))?
            .request_async(&ask)
            .await
            .map_err(refused)?;
        let answer = match self.id_token(&metadata, &tokens).await {
            Ok(Some(claims)) if claims.subject() != Some(subject) => {
                Err(NoAnswer::Unsound("it is about another person".to_owned()))
            }
            Ok(claims) => {
                self.answer(&metadata, subject.to_owned(), claims.as_ref(), &tokens).await
            }
            Err(error) => Err(error),
        };
        Ok(Refreshed { token: kept(&tokens), answer })
    }

    /// The claims of a token of another kind, such as one that says that somebody signed out.
    pub(super) async fn verify(&self, token: &str, kind: Kind) -> Result<Claims, NoAnswer> {
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
    ) -> Result<Option<Claims>, NoAnswer> {
        let Some(token) = tokens.id_token() else { return Ok(None) };
        let jwks = metadata.jwks_uri().url();
        let party = (self.issuer.as_str(), self.client_id.as_str());
        let (token, now) = (token.to_string(), self.clock.now_ms());
        Ok(Some(Claims::verify(&token, Kind::Id, (&self.keys, jwks), party, now).await?))
    }

    /// Puts together what the provider says; userinfo is younger than an ID token, and wins.
    async fn answer(
        &self,
        metadata: &Metadata,
        subject: String,
        id_token: Option<&Claims>,
        tokens: &CoreTokenResponse,
    ) -> Result<Answer, NoAnswer> {
        let mut claims = id_token.map(|token| token.all().clone());
        if let Some(endpoint) = metadata.userinfo_endpoint() {
            let more = self.userinfo(endpoint.url(), &subject, tokens.access_token()).await?;
            claims.get_or_insert_default().extend(more);
        }
        let sid = id_token.and_then(|token| token.text("sid"));
        let sid = sid.filter(|sid| (1..=255).contains(&sid.len())).map(str::to_owned);
        Ok(Answer { subject, claims, sid, refresh_token: kept(tokens) })
    }

    /// OpenID Connect Core 1.0 section 5.3.
    async fn userinfo(
        &self,
        endpoint: &Url,
        subject: &str,
        token: &AccessToken,
    ) -> Result<Map<String, Value>, NoAnswer> {
        let request = http::Request::get(endpoint.as_str())
            .header(http::header::AUTHORIZATION, format!("Bearer {}", token.secret()))
            .header(http::header::ACCEPT, "application/json")
            .body(Vec::new())
            .map_err(|error| NoAnswer::Outage(error.to_string()))?;
        let answer = self.http.send(request).await?;
        if answer.status() != http::StatusCode::OK {
            return Err(NoAnswer::Outage(format!("userinfo answers {}", answer.status())));
        }
        let claims: Map<String, Value> = serde_json::from_slice(answer.body())
            .map_err(|error| NoAnswer::Outage(format!("userinfo cannot be read: {error}")))?;
        // Section 5.3.2: without this check, tokens could be swapped.
        if claims.get("sub").and_then(Value::as_str) != Some(subject) {
            return Err(NoAnswer::Unsound("userinfo is about another person".to_owned()));
        }
        Ok(claims)
    }

    async fn metadata(&self) -> Result<std::sync::Arc<Metadata>, NoAnswer> {
        let metadata = self.discovery.get().await?;
        let endpoints = [
            Some(metadata.authorization_endpoint().url()),
            metadata.token_endpoint().map(TokenUrl::url),
            metadata.userinfo_endpoint().map(UserInfoUrl::url),
            Some(metadata.jwks_uri().url()),
        ];
        let is_refused = |endpoint: &&Url| !may_name(&self.issuer, endpoint);
        let refused = endpoints.into_iter().flatten().find(is_refused);
        if let Some(endpoint) = refused {
            let why = format!("it names {endpoint}, which is not https");
            return Err(NoAnswer::Outage(why));
        }
        Ok(metadata)
    }

    fn client(&self, metadata: &Metadata) -> Result<Client, NoAnswer> {
        let redirect = RedirectUrl::new(self.redirect.clone())
            .map_err(|error| NoAnswer::Outage(error.to_string()))?;
        let secret = self.client_secret.as_ref();
        let secret = secret.map(|secret| ClientSecret::new(secret.expose_secret().to_owned()));
        // Section 9: basic is what counts when nothing is said.
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

/// How the crate asks: with our client. Each request owns what it needs.
fn caller(http: &Http) -> impl Fn(http::Request<Vec<u8>>) -> Answering + Sync + use<> {
    let http = http.clone();
    move |request| {
        let http = http.clone();
        Box::pin(async move { http.send(request).await })
    }
}

fn kept(tokens: &CoreTokenResponse) -> Option<SecretString> {
    tokens.refresh_token().map(|token| token.secret().clone().into())
}

/// Only `invalid_grant` is about the person; every other refusal is about the broker's own
/// configuration, or means nothing.
fn refused(error: CoreRequestTokenError<Outage>) -> NoAnswer {
    match error {
        RequestTokenError::ServerResponse(answer) => {
            let code = answer.error().as_ref().chars().take(64).collect::<String>();
            match answer.error() {
                CoreErrorResponseType::InvalidGrant => NoAnswer::No(code),
                _ => NoAnswer::Outage(format!("it refuses the broker: {code}")),
            }
        }
        RequestTokenError::Request(outage) => outage.into(),
        RequestTokenError::Parse(error, _) => {
            NoAnswer::Outage(format!("the answer cannot be read: {error}"))
        }
        RequestTokenError::Other(why) => NoAnswer::Outage(why),
    }
}
