//! TokenRequest (authentication.k8s.io/v1): the only source of credentials.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::Request;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;
use tenant_shared::{SERVICE_ACCOUNT_NAME, TOKEN_LIFETIME_SECONDS};

use super::{Cluster, ClusterError, TokenSecret};
use crate::problem;

/// More than any API server answers with.
const MOST_BYTES: usize = 64 * 1024;

/// A token on its way to the person. It does not print.
#[derive(Debug)]
pub struct IssuedToken {
    /// The JWT.
    pub token: SecretString,
    /// Its `exp`, by the cluster's clock.
    pub expires_at: Timestamp,
    /// Seconds from `iat` to `exp`: at most 7200.
    pub lifetime: u32,
    /// Its `jti`.
    pub credential_id: String,
}

#[derive(Deserialize)]
struct Answer {
    status: AnswerStatus,
}

#[derive(Deserialize)]
struct AnswerStatus {
    token: SecretString,
}

/// The claims that matter; nobody trusts them, they are read to know what the cluster issued.
#[derive(Deserialize)]
struct Claims {
    exp: i64,
    iat: i64,
    jti: Option<String>,
}

impl Cluster {
    /// Asks for a token of a workspace's ServiceAccount for [`TOKEN_LIFETIME_SECONDS`].
    ///
    /// With a Secret the token dies as soon as that is deleted. The uid makes the request fail if the ServiceAccount was made anew by somebody else. The
    /// request carries our request id as `Audit-ID`, which the API server's audit log keeps.
    ///
    /// # Errors
    /// [`ClusterError::Token`] if the token would live longer than asked for; it is dropped.
    pub async fn request_token(
        &self,
        namespace: &str,
        uid: &str,
        secret: Option<&TokenSecret>,
    ) -> Result<IssuedToken, ClusterError> {
        let audit_id = problem::request_id().unwrap_or_else(|| self.clock.random_id().to_string());
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
            "/api/v1/namespaces/{namespace}/serviceaccounts/{SERVICE_ACCOUNT_NAME}/token"
        ))
        .header(http::header::CONTENT_TYPE, "application/json")
        .header("Audit-ID", &audit_id)
        .body(kube::client::Body::from(body.to_string().into_bytes()))
        .map_err(kube::Error::HttpError)?;
        let asked_at = std::time::Instant::now();
        let response = self.client.send(request).await?;
        self.metrics.token_request(asked_at.elapsed().as_secs_f64());
        let status = response.status();
        let body = http_body_util::BodyExt::collect(http_body_util::Limited::new(
            response.into_body(),
            MOST_BYTES,
        ))
        .await
        .map_err(kube::Error::Service)?
        .to_bytes();
        if !status.is_success() {
            return Err(refusal(status.as_u16(), &body));
        }
        // kube would log an answer that it cannot read, and with it the token: it is read here.
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|_| ClusterError::Token("the answer is no TokenRequest".to_owned()))?;
        inspect(answer.status.token, audit_id)
    }
}

fn refusal(code: u16, body: &[u8]) -> ClusterError {
    use kube::core::Status;
    let text = String::from_utf8_lossy(body);
    // Under load the API server answers plain text.
    let status = serde_json::from_slice::<Status>(body)
        .unwrap_or_else(|_| Status::failure(text.trim(), "").with_code(code));
    kube::Error::Api(status.boxed()).into()
}

/// Reads what was issued; the id of our request stands in for a `jti` that old servers leave out.
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
    fn a_token_of_two_hours_or_less_passes_with_its_real_end() {
        let token = jwt(&json!({"iat": 1000, "exp": 4600, "jti": "j"}));
        let issued = inspect(token, "a".into()).unwrap();
        assert_eq!((issued.lifetime, issued.credential_id.as_str()), (3600, "j"));
        assert_eq!(issued.expires_at.as_second(), 4600);
        assert!(inspect(jwt(&json!({"iat": 0, "exp": 7200})), "a".into()).is_ok());
    }

    #[test]
    fn a_longer_one_is_dropped() {
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
