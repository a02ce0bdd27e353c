//! The caller of a request: a session of the broker, or a Kubernetes token of the caller's own. A
//! secret of the broker never leaves it as a Kubernetes token, and neither does an empty token: the
//! API server would take that for nobody, and answer 403 as if rights were missing.

use std::{sync::Arc, time::Instant};

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use tenant_shared::Code;

use super::{
    ModelServices,
    caller_client::{CallCredential, CallerClient},
    failure::Failure,
    kubernetes_token::KubernetesToken,
    limits::CallerKey,
    time_limit::TimeLimit,
};
use crate::{
    base::{rate_limit::ClientNetwork, request_context::REQUEST, secret::PlainSecret},
    gateway::{SessionCaller, Verb},
    http::{ApiError, KnownCallers},
    identity::PresentedCredential,
};

/// Characters of a token that is sent to Kubernetes: visible ASCII. A space would end it there.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_graphic()
}

/// Whether a text begins as the broker's secrets do: `tb`, a letter, `_`.
fn is_brokers_secret(text: &str) -> bool {
    matches!(text.as_bytes(), [b't', b'b', letter, b'_', ..] if letter.is_ascii_lowercase())
}

/// The credential of a request, not yet verified.
#[derive(Debug)]
enum RequestCredential {
    Session(PresentedCredential),
    Kubernetes(KubernetesToken),
}

/// The caller of a request. A Kubernetes token is not verified: the API server does that with each
/// call.
#[derive(Debug)]
pub(super) enum ApiCaller {
    Session(Box<SessionCaller>),
    Kubernetes(KubernetesToken),
}

/// The only value of a header; `None` if it is not there.
fn single<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'h HeaderValue>, Failure> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(Failure::bad_request(format!("the request has more than one header {name}"))),
    }
}

/// The text after the prefix; `None` if the value has another prefix.
fn without_prefix<'v>(value: &'v str, prefix: &str) -> Option<&'v str> {
    let value = value.trim();
    if prefix.is_empty() {
        return Some(value);
    }
    let (scheme, rest) = value.split_at_checked(prefix.len())?;
    if !scheme.eq_ignore_ascii_case(prefix) {
        return None;
    }
    // `Bearerx` is another scheme. A prefix like `Token=` needs no space.
    let needs_space = prefix.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (!needs_space || rest.starts_with(' ')).then(|| rest.trim())
}

impl ModelServices {
    /// The caller of a request with this method and these headers.
    ///
    /// # Errors
    /// The request has no credential that can be used; a session has ended, or a foreign page uses
    /// its cookie; the address presented too many tokens that the API server refused, or this one too
    /// often.
    pub(super) async fn caller(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<ApiCaller, Failure> {
        match self.request_credential(method, headers)? {
            RequestCredential::Session(presented) => {
                let session = self.0.gateway.session(presented).await?;
                Ok(ApiCaller::Session(Box::new(session)))
            }
            RequestCredential::Kubernetes(token) => {
                let refused = &self.0.limits.refused;
                let admitted =
                    refused.admit(ClientNetwork::current(), token.hash(), Instant::now());
                admitted.map_err(|left| {
                    let text = "too many invalid tokens come from this address";
                    Failure::too_many(text, left.as_secs() + 1)
                })?;
                Ok(ApiCaller::Kubernetes(token))
            }
        }
    }

    /// The credential of a request. The configured header counts before `Authorization`, and that
    /// before the cookie; one that cannot be used is not replaced by the next.
    fn request_credential(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<RequestCredential, Failure> {
        let settings = &self.0.settings;
        let configured = single(headers, &settings.token_header)?;
        let (value, prefix) = if let Some(value) = configured {
            (value, settings.token_prefix.as_str())
        } else if let Some(value) = single(headers, &header::AUTHORIZATION)? {
            (value, "Bearer")
        } else {
            // There is no header with a token, so this reads the cookie.
            let cookie = self.0.identity.extract(method, headers);
            return Ok(RequestCredential::Session(cookie.map_err(ApiError::from)?));
        };
        let token = value.to_str().ok().and_then(|value| without_prefix(value, prefix));
        let token = token.filter(|token| !token.is_empty() && token.bytes().all(is_token_byte));
        let token = token.ok_or_else(Failure::unauthenticated)?;
        if is_brokers_secret(token) {
            // Only an access token is found as one.
            let secret = PlainSecret::presented(token);
            return Ok(RequestCredential::Session(PresentedCredential::AccessToken(secret)));
        }
        if !settings.kubernetes_tokens {
            return Err(Failure::unauthenticated());
        }
        Ok(RequestCredential::Kubernetes(KubernetesToken::new(token)?))
    }
}

impl KnownCallers for ModelServices {
    /// Whether a request presents a Kubernetes token that the API server accepted recently, or the
    /// secret of a recent session, which may be in the configured header.
    fn presents_recent_credential(&self, headers: &HeaderMap) -> bool {
        match self.request_credential(&Method::GET, headers) {
            Ok(RequestCredential::Kubernetes(token)) => {
                self.0.limits.refused.is_accepted(token.hash(), Instant::now())
            }
            Ok(RequestCredential::Session(presented)) => self.0.identity.is_cached(&presented),
            Err(_) => false,
        }
    }
}

impl ApiCaller {
    /// The caller with the memberships in all of their tenants that can be joined. A Kubernetes token
    /// has none.
    ///
    /// # Errors
    /// The session has ended.
    pub(super) async fn with_all_memberships(&self) -> Result<Self, Failure> {
        Ok(match self {
            Self::Session(session) => {
                Self::Session(Box::new(session.with_all_memberships().await?))
            }
            Self::Kubernetes(token) => Self::Kubernetes(token.clone()),
        })
    }

    /// Begins a request that asks the API server as the caller: with the workspace that has this
    /// namespace, or else the first one, or with the caller's own token.
    ///
    /// # Errors
    /// The caller has no workspace, or it is suspended or not ready; the membership in the tenant of the
    /// namespace cannot be made; a limit is exceeded.
    pub(super) async fn begin(
        &self,
        services: &ModelServices,
        namespace: Option<&str>,
        verb: Verb,
    ) -> Result<CallerClient, Failure> {
        let info = REQUEST.try_with(|context| Arc::clone(&context.info));
        let info = info.map_err(|error| Failure::internal_error(&error))?;
        let (limits, address) = (&services.0.limits, ClientNetwork::current());
        let (credential, key) = match self {
            Self::Session(session) => {
                let request = session.begin(namespace, verb, &info).await;
                let request = request.map_err(without_workspace)?;
                let key = CallerKey::User(request.caller().user_id());
                (CallCredential::Session(Box::new(request)), key)
            }
            Self::Kubernetes(token) => {
                let slot = limits.token_requests.try_acquire(address);
                let slot = slot
                    .ok_or_else(|| Failure::too_many("too many requests at once; try again", 1))?;
                let permit = limits.tokens.admit(token.hash(), address, Instant::now())?;
                let key = CallerKey::Token(token.hash());
                (CallCredential::Kubernetes { token: token.clone(), permit, _slot: slot }, key)
            }
        };
        let time_limit = TimeLimit::new(verb, info.started_at);
        Ok(CallerClient::new(
            services.clone(),
            credential,
            info,
            limits.of_request(key, address),
            time_limit,
        ))
    }
}

/// The failure if no workspace of a session can be used: the session itself is valid.
fn without_workspace(error: ApiError) -> Failure {
    match error.code() {
        Code::NotFound | Code::WorkspaceNotReady => Failure::forbidden(error.detail()),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_removed_in_any_case_and_with_any_spaces() {
        for (value, prefix, expected) in [
            ("Bearer abc", "Bearer", Some("abc")),
            ("bearer   abc ", "Bearer", Some("abc")),
            ("Bearer", "Bearer", None),
            ("Bearer ", "Bearer", None),
            ("Bearerabc", "Bearer", None),
            ("Basic abc", "Bearer", None),
            ("Be", "Bearer", None),
            ("é", "B", None),
            ("abc", "", Some("abc")),
            ("Token=abc", "Token=", Some("abc")),
        ] {
            assert_eq!(without_prefix(value, prefix), expected, "{value:?}");
        }
    }

    #[test]
    fn secrets_of_the_broker_are_recognized() {
        for secret in ["tba_x", "tbr_", "tbs_abc", "tbz_a"] {
            assert!(is_brokers_secret(secret), "{secret}");
        }
        for other in ["tb_x", "tb1_x", "xtba_x", "eyJhbGciOi", "tba", ""] {
            assert!(!is_brokers_secret(other), "{other}");
        }
    }
}
