//! ServiceAccount tokens: requests to the TokenRequest API (authentication.k8s.io/v1), the only
//! source of credentials.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::Request;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;
use tenant_shared::TOKEN_LIFETIME_SECONDS;

use crate::{
    base::request_context,
    cluster::{Cluster, ClusterError, TokenSecret},
};

/// The limit of a response body in bytes; no API server sends as much.
const MAX_BYTES: usize = 64 * 1024;

/// Values of the label `outcome` of TokenRequests in metrics.
pub const TOKEN_OUTCOMES: [&str; 6] =
    ["success", "unavailable", "refused", "conflict", "not_found", "invalid"];

/// An issued token. Its `Debug` output is redacted.
#[derive(Debug)]
pub struct IssuedToken {
    /// The JWT.
    pub token: SecretString,
    /// The claim `exp`, by the cluster's clock.
    pub expires_at: Timestamp,
    /// Seconds from `iat` to `exp`: at most 7200.
    pub lifetime: u32,
    /// The claim `jti`.
    pub credential_id: String,
}

#[derive(Deserialize)]
struct TokenResponse {
    status: TokenStatus,
}

#[derive(Deserialize)]
struct TokenStatus {
    token: SecretString,
}

/// The claims that the broker reads. They are not verified, because they only tell what the
/// cluster issued.
#[derive(Deserialize)]
struct Claims {
    exp: i64,
    iat: i64,
    jti: Option<String>,
}

impl Cluster {
    /// Requests a token of the ServiceAccount `account` for [`TOKEN_LIFETIME_SECONDS`].
    ///
    /// A token that is bound to a Secret becomes invalid as soon as the Secret is deleted. The uid
    /// makes the request fail if somebody else recreated the ServiceAccount. The request carries
    /// the broker's request id as `Audit-ID`, which the API server's audit log records.
    ///
    /// # Errors
    /// The request failed; [`ClusterError::Token`] if the token would live longer than requested,
    /// and was dropped.
    #[tracing::instrument(level = "debug", skip_all, fields(namespace))]
    pub async fn request_token(
        &self,
        namespace: &str,
        account: &str,
        uid: &str,
        secret: Option<&TokenSecret>,
    ) -> Result<IssuedToken, ClusterError> {
        let result = self.send_token_request(namespace, account, uid, secret).await;
        self.metrics.token_request_ended(outcome(&result));
        result
    }

    async fn send_token_request(
        &self,
        namespace: &str,
        account: &str,
        uid: &str,
        secret: Option<&TokenSecret>,
    ) -> Result<IssuedToken, ClusterError> {
        let audit_id =
            request_context::request_id().unwrap_or_else(|| self.clock.random_id().to_string());
        let bound_to = secret.map(|secret| {
            json!({"kind": "Secret", "apiVersion": "v1", "name": secret.name, "uid": secret.uid})
        });
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"uid": uid},
            "spec": {
                "expirationSeconds": TOKEN_LIFETIME_SECONDS,
                "audiences": [],
                "boundObjectRef": bound_to,
            },
        });
        let request = Request::post(format!(
            "/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        ))
        .header(http::header::CONTENT_TYPE, "application/json")
        .header("Audit-ID", &audit_id)
        .body(kube::client::Body::from(body.to_string().into_bytes()))
        .map_err(kube::Error::HttpError)?;
        let started_at = std::time::Instant::now();
        let response = self.client().send(request).await?;
        self.metrics.token_request(started_at.elapsed().as_secs_f64());
        let status = response.status();
        let body = http_body_util::BodyExt::collect(http_body_util::Limited::new(
            response.into_body(),
            MAX_BYTES,
        ))
        .await
        .map_err(kube::Error::Service)?
        .to_bytes();
        if !status.is_success() {
            return Err(error_of(status.as_u16(), &body));
        }
        // kube would log a response that it cannot parse, and with it the token, so it is parsed
        // here.
        let response: TokenResponse = serde_json::from_slice(&body)
            .map_err(|_| ClusterError::Token("the response is no TokenRequest".to_owned()))?;
        inspect(response.status.token, audit_id)
    }
}

/// The outcome of a TokenRequest, one of [`TOKEN_OUTCOMES`]. `conflict` and `not_found` mean that
/// the ServiceAccount was replaced or deleted meanwhile.
fn outcome(result: &Result<IssuedToken, ClusterError>) -> &'static str {
    let [success, unavailable, refused, conflict, not_found, invalid] = TOKEN_OUTCOMES;
    match result {
        Ok(_) => success,
        Err(ClusterError::Unavailable(_) | ClusterError::QuotaNotEnforced { .. }) => unavailable,
        Err(ClusterError::Refused(_) | ClusterError::NotConfigured(_)) => refused,
        Err(ClusterError::Conflict(_)) => conflict,
        Err(ClusterError::NotFound(_)) => not_found,
        Err(ClusterError::Token(_)) => invalid,
    }
}

fn error_of(code: u16, body: &[u8]) -> ClusterError {
    use kube::core::Status;
    let text = String::from_utf8_lossy(body);
    // An overloaded API server responds with plain text.
    let status = serde_json::from_slice::<Status>(body)
        .unwrap_or_else(|_| Status::failure(text.trim(), "").with_code(code));
    kube::Error::Api(status.boxed()).into()
}

/// Reads the claims of an issued token. If an old server left out `jti`, the request's `Audit-ID`
/// takes its place.
fn inspect(token: SecretString, audit_id: String) -> Result<IssuedToken, ClusterError> {
    let claims: Claims = token
        .expose_secret()
        .split('.')
        .nth(1)
        .and_then(|payload| URL_SAFE_NO_PAD.decode(payload).ok())
        .and_then(|payload| serde_json::from_slice(&payload).ok())
        .ok_or_else(|| ClusterError::Token("it is no JWT with exp and iat".to_owned()))?;
    let lifetime = claims.exp.checked_sub(claims.iat).and_then(|span| u32::try_from(span).ok());
    let expires_at = Timestamp::from_second(claims.exp).ok();
    match (lifetime, expires_at) {
        (Some(lifetime), Some(expires_at)) if lifetime <= TOKEN_LIFETIME_SECONDS => {
            Ok(IssuedToken {
                token,
                expires_at,
                lifetime,
                credential_id: claims.jti.unwrap_or(audit_id),
            })
        }
        _ => Err(ClusterError::Token(format!(
            "it would live {} s, longer than {TOKEN_LIFETIME_SECONDS} s",
            claims.exp.saturating_sub(claims.iat)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jwt(claims: &serde_json::Value) -> SecretString {
        format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims.to_string())).into()
    }

    #[test]
    fn a_token_of_two_hours_or_less_is_accepted_with_its_own_expiry() {
        let token = jwt(&json!({"iat": 1000, "exp": 4600, "jti": "j"}));
        let issued = inspect(token, "a".into()).unwrap();
        assert_eq!((issued.lifetime, issued.credential_id.as_str()), (3600, "j"));
        assert_eq!(issued.expires_at.as_second(), 4600);
        assert!(inspect(jwt(&json!({"iat": 0, "exp": 7200})), "a".into()).is_ok());
    }

    #[test]
    fn a_token_of_more_than_two_hours_is_dropped() {
        for claims in [
            json!({"iat": 0, "exp": 7201}),
            json!({"iat": 0, "exp": 31_536_000}),
            json!({"iat": i64::MIN, "exp": i64::MAX}),
            json!({"iat": 10, "exp": 5}),
            json!({"iat": 0}),
        ] {
            assert!(
                matches!(inspect(jwt(&claims), "a".into()), Err(ClusterError::Token(_))),
                "{claims}"
            );
        }
    }
}
