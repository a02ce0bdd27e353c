//! HTTP API of credentials: `/workspaces/{id}/credentials` and the kubeconfig.

mod error;
mod issue;
mod kubeconfig;
mod list;
mod revoke;

use tenant_shared::{Code, CredentialId, CredentialIdError};

use self::{issue::Issue, kubeconfig::Kubeconfig, list::List, revoke::Revoke};
use super::Credentials;
use crate::{http::ApiError, workspace::Workspaces};

/// Operations on credentials.
pub type CredentialApi = (Issue, List, Revoke, Kubeconfig);

/// The operations on these credentials. Kubeconfigs name the broker by `broker_url`.
pub fn api(workspaces: Workspaces, credentials: Credentials, broker_url: String) -> CredentialApi {
    (
        Issue { workspaces: workspaces.clone(), credentials: credentials.clone() },
        List { workspaces: workspaces.clone(), credentials: credentials.clone() },
        Revoke { credentials: credentials.clone() },
        Kubeconfig { workspaces, credentials, broker_url },
    )
}

/// Parses the id in a request. The error does not repeat the text, because it may be anything.
fn parse_credential_id(text: &str) -> Result<CredentialId, ApiError> {
    text.parse()
        .map_err(|error: CredentialIdError| ApiError::new(Code::InvalidRequest, error.to_string()))
}
