//! Sign-in by the protocol itself: authorization code with PKCE (RFC 6749, RFC 7636), in separate
//! steps so that a test can do any step wrong.

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::{Client, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tenant_shared::PLUGIN_CLIENT_ID;
use url::Url;

use crate::browser::Browser;
use crate::http_client::http_client;
use crate::random;

/// An issuer, known by its discovery document (OpenID Connect Discovery 1.0 section 3).
#[derive(Clone, Debug)]
pub struct Issuer {
    http: Client,
    authority: Option<String>,
    metadata: Metadata,
}

/// The fields of the discovery document that are used.
#[derive(Clone, Debug, Deserialize)]
pub struct Metadata {
    /// The issuer identifier, as its tokens name it.
    pub issuer: String,
    /// URL at which a sign-in starts.
    pub authorization_endpoint: Url,
    /// URL that exchanges codes and refresh tokens.
    pub token_endpoint: Url,
    /// URL that ends a session.
    pub revocation_endpoint: Url,
    /// URL of the keys that sign ID tokens.
    pub jwks_uri: Url,
}

/// A started authorization request.
#[derive(Clone, Debug)]
pub struct AuthorizationRequest {
    /// The URL to open in a browser.
    pub url: Url,
    /// The value that must be returned as `state`.
    pub state: String,
    /// The value that must be in the ID token.
    pub nonce: String,
    /// The secret behind the code challenge (RFC 7636 section 4.1).
    pub verifier: String,
    /// The URL that the browser is redirected to with the code.
    pub redirect_uri: Url,
}

/// The response of the token endpoint.
#[derive(Clone, Debug, Deserialize)]
pub struct TokenResponse {
    /// The token for the API.
    pub access_token: SecretString,
    /// The token for the next access token; each works once.
    pub refresh_token: SecretString,
    /// The identity of the user; absent after a refresh if the issuer leaves it out.
    pub id_token: Option<SecretString>,
    /// Lifetime of the access token in seconds.
    pub expires_in: u64,
}

impl Issuer {
    /// Reads the discovery document below this URL.
    ///
    /// # Errors
    /// The document cannot be read, or names another issuer.
    pub async fn discover(url: &Url, authority: Option<&str>) -> Result<Self> {
        let http = http_client(authority)?;
        let well_known = url.join(".well-known/openid-configuration").context("make a URL")?;
        let answer = http.get(well_known).send().await?.error_for_status()?;
        let metadata: Metadata = answer.json().await.context("read the discovery document")?;
        ensure!(
            metadata.issuer.trim_end_matches('/') == url.as_str().trim_end_matches('/'),
            "{url} says that the issuer is {}",
            metadata.issuer
        );
        Ok(Self { http, authority: authority.map(str::to_owned), metadata })
    }

    /// The discovery document.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Starts an authorization request, as the plugin does. No server listens on the redirect URI:
    /// the browser stops there.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn begin(&self) -> Result<AuthorizationRequest> {
        let redirect_uri: Url = "http://127.0.0.1:9/callback".parse().context("make a URL")?;
        let verifier = URL_SAFE_NO_PAD.encode(random::bytes(32)?);
        let (state, nonce) = (random::hex(16)?, random::hex(16)?);
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let mut url = self.metadata.authorization_endpoint.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", PLUGIN_CLIENT_ID)
            .append_pair("redirect_uri", redirect_uri.as_str())
            .append_pair("scope", "openid email offline_access")
            .append_pair("state", &state)
            .append_pair("nonce", &nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        Ok(AuthorizationRequest { url, state, nonce, verifier, redirect_uri })
    }

    /// Signs a person in with a fresh browser and returns the URL that the browser is redirected
    /// to, which contains the code.
    ///
    /// # Errors
    /// The issuer refuses.
    pub async fn authorize(
        &self,
        request: &AuthorizationRequest,
        email: &str,
        password: &str,
    ) -> Result<Url> {
        let browser = Browser::new(self.authority.as_deref())?;
        let browser = browser.stopping_at(request.redirect_uri.clone());
        let page = browser.sign_in(request.url.clone(), email, password).await?;
        ensure!(page.status.is_redirection(), "sign-in ended at {}:\n{}", page.url, page.body);
        Ok(page.url)
    }

    /// Exchanges the code in the callback for tokens, after checking `state` and `iss` (RFC 9207).
    ///
    /// # Errors
    /// A value is missing or wrong, or the issuer refuses.
    pub async fn redeem(
        &self,
        request: &AuthorizationRequest,
        callback: &Url,
    ) -> Result<TokenResponse> {
        let value = |name: &str| {
            callback
                .query_pairs()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.into_owned())
                .with_context(|| format!("{callback} has no {name}"))
        };
        ensure!(value("state")? == request.state, "the callback's state is not ours");
        ensure!(value("iss")? == self.metadata.issuer, "the callback's iss is another issuer");
        let code = value("code")?;
        let answer = self
            .token(&[
                ("grant_type", "authorization_code"),
                ("code", &code),
                ("redirect_uri", request.redirect_uri.as_str()),
                ("client_id", PLUGIN_CLIENT_ID),
                ("code_verifier", &request.verifier),
            ])
            .await?;
        session(answer).await
    }

    /// Signs a person in, from the first redirect to the tokens.
    ///
    /// # Errors
    /// The issuer refuses.
    pub async fn sign_in(&self, email: &str, password: &str) -> Result<TokenResponse> {
        let request = self.begin()?;
        let callback = self.authorize(&request, email, password).await?;
        self.redeem(&request, &callback).await
    }

    /// Exchanges a refresh token for new tokens.
    ///
    /// # Errors
    /// The issuer refuses.
    pub async fn refresh(&self, refresh_token: &SecretString) -> Result<TokenResponse> {
        let answer = self
            .token(&[
                ("grant_type", "refresh_token"),
                ("refresh_token", refresh_token.expose_secret()),
                ("client_id", PLUGIN_CLIENT_ID),
            ])
            .await?;
        session(answer).await
    }

    /// Revokes the session of this token (RFC 7009).
    ///
    /// # Errors
    /// The issuer refuses.
    pub async fn revoke(&self, token: &SecretString) -> Result<()> {
        let fields = [("token", token.expose_secret()), ("client_id", PLUGIN_CLIENT_ID)];
        let request = self.http.post(self.metadata.revocation_endpoint.clone()).form(&fields);
        request.send().await?.error_for_status().context("revoke a token")?;
        Ok(())
    }

    /// Sends these fields to the token endpoint, right or wrong, and returns the response.
    ///
    /// # Errors
    /// The issuer does not respond.
    pub async fn token(&self, fields: &[(&str, &str)]) -> Result<Response> {
        let request = self.http.post(self.metadata.token_endpoint.clone()).form(fields);
        request.send().await.context("call the token endpoint")
    }
}

async fn session(answer: Response) -> Result<TokenResponse> {
    let status = answer.status();
    let body = answer.text().await.context("read the token endpoint's answer")?;
    // An error response contains no secret; a successful one does.
    ensure!(status.is_success(), "the token endpoint answers {status}: {body}");
    serde_json::from_str(&body).context("read the token endpoint's answer")
}
