//! Comparison of `cluster.audiences` with the audiences of the API server's tokens.

use http::{Request, header::CONTENT_TYPE};
use serde::Deserialize;
use serde_json::json;

use super::Administrator;
use crate::base::error_chain;

/// The ServiceAccount that a dry run requests a token for. Every cluster has it, and it has no
/// permissions.
const ACCOUNT_PATH: &str = "/api/v1/namespaces/default/serviceaccounts/default";

/// The audiences in the response to a TokenRequest. The token is not read.
#[derive(Deserialize)]
struct TokenResponse {
    spec: TokenResponseSpec,
}

#[derive(Deserialize)]
struct TokenResponseSpec {
    audiences: Vec<String>,
}

impl Administrator {
    /// Compares the audiences of the API server's tokens with the configured ones: the policies
    /// refuse tokens for others. Returns a warning if they differ or cannot be read.
    pub async fn check_audiences(&self, configured: &[String]) -> Option<String> {
        match self.audiences().await {
            Ok(audiences) if audiences == configured => None,
            Ok(audiences) => Some(format!(
                "tokens of this API server have the audiences {}, and cluster.audiences is {}: the \
                 policies refuse every token of a tenant; set cluster.audiences and install again",
                json!(audiences),
                json!(configured)
            )),
            Err(error) => Some(format!(
                "cannot compare cluster.audiences with the audiences of the API server's tokens; \
                 docs/own-cluster.md has a command that prints them: {}",
                error_chain(&error)
            )),
        }
    }

    /// The audiences that the API server gives a token if the request names none.
    async fn audiences(&self) -> kube::Result<Vec<String>> {
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": 600},
        });
        let request = Request::post(format!("{ACCOUNT_PATH}/token?dryRun=All"))
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        let response: TokenResponse = self.client().request(request).await?;
        Ok(response.spec.audiences)
    }
}
