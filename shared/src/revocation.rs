//! Credentials in the ledger, and the revocation of one.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Step, WireTime};

/// Seconds for which an API server may still accept a token that it accepted before, after the
/// token became invalid (`TokenSuccessCacheTTL` of Kubernetes, which has no setting).
pub const TOKEN_CACHE_SECONDS: u32 = 10;

/// Maximum length of a credential's id, in bytes.
pub const MAX_CREDENTIAL_ID_BYTES: usize = 128;

/// Prefix of the id in the cluster's audit log.
const AUDIT_LOG_PREFIX: &str = "JTI=";

/// Id of a credential: its `jti`. Letters, digits and `-_.:`, 128 at most.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CredentialId(String);

/// Error for a text that cannot be the id of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialIdError;

impl fmt::Display for CredentialIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the id of a credential has 1 to {MAX_CREDENTIAL_ID_BYTES} letters, digits or -_.: \
             and may begin with {AUDIT_LOG_PREFIX} as in the cluster's audit log"
        )
    }
}

impl std::error::Error for CredentialIdError {}

impl std::str::FromStr for CredentialId {
    type Err = CredentialIdError;

    /// Parses an id, also as the cluster's audit log writes it
    /// (`authentication.kubernetes.io/credential-id`): `JTI=…`.
    fn from_str(text: &str) -> Result<Self, CredentialIdError> {
        let id = text.strip_prefix(AUDIT_LOG_PREFIX).unwrap_or(text);
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if (1..=MAX_CREDENTIAL_ID_BYTES).contains(&id.len()) && id.bytes().all(is_good) {
            Ok(Self(id.to_owned()))
        } else {
            Err(CredentialIdError)
        }
    }
}

impl CredentialId {
    /// The id without the prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a credential was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum CredentialKind {
    /// In a response to the exec plugin, which renews it.
    Exec,
    /// In a kubeconfig that a user downloaded.
    Kubeconfig,
    /// Not delivered: the gateway keeps it in memory and renews it.
    Gateway,
    /// A kind of a newer broker.
    #[serde(other)]
    Other,
}

impl CredentialKind {
    /// Name on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Kubeconfig => "kubeconfig",
            Self::Gateway => "gateway",
            Self::Other => "other",
        }
    }

    /// Parses the name of a kind.
    pub fn parse(name: &str) -> Self {
        [Self::Exec, Self::Kubeconfig, Self::Gateway]
            .into_iter()
            .find(|kind| kind.as_str() == name)
            .unwrap_or(Self::Other)
    }
}

/// Whether a credential is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum CredentialState {
    /// The credential is valid until it expires.
    Live,
    /// The credential was revoked, by itself or together with another one.
    Revoked,
    /// The workspace was suspended after the credential was issued, or its ServiceAccount was
    /// replaced.
    Withdrawn,
    /// The credential has expired.
    Expired,
    /// A state of a newer broker.
    #[serde(other)]
    Other,
}

impl CredentialState {
    /// Name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Revoked => "revoked",
            Self::Withdrawn => "withdrawn",
            Self::Expired => "expired",
            Self::Other => "other",
        }
    }
}

/// A credential in the ledger, without the token itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
pub struct CredentialInfo {
    /// `jti` of the credential, as in the audit trail and in the cluster's own audit log (there
    /// with the prefix `JTI=`).
    pub credential_id: String,
    /// Workspace that the credential is for.
    pub workspace_id: Uuid,
    /// How the credential was delivered.
    pub kind: CredentialKind,
    /// Whether the credential is valid.
    pub state: CredentialState,
    /// Whether the credential is bound to a Secret of its own, so that it can be revoked without
    /// the others.
    pub bound: bool,
    /// User who got the credential.
    pub user_id: Uuid,
    /// E-mail address of that user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Session in which the user got it.
    pub session_id: Uuid,
    /// Client of that session: `kubectl-tenant`, or `browser`; absent if the session was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// When the credential was issued (RFC 3339, UTC).
    pub issued_at: WireTime,
    /// When the credential expires.
    pub expires_at: WireTime,
    /// When the credential was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<WireTime>,
    /// Id of the credential whose revocation ended this one, if it was another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_with: Option<String>,
}

/// A page of the credentials of a workspace, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
pub struct CredentialPage {
    /// Credentials of the page.
    pub items: Vec<CredentialInfo>,
    /// Parameter `cursor` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Progress of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum RevocationState {
    /// The object that the credential depends on is gone from the cluster.
    Revoked,
    /// The revocation is recorded; the broker retries the open steps.
    Revoking,
    /// Nothing was done, because the credential had expired or its workspace was suspended since.
    Over,
}

/// Object whose removal revokes a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum RevokedBy {
    /// The Secret that only this credential is bound to is deleted.
    Secret,
    /// The ServiceAccount of the workspace is replaced: all credentials of the workspace end.
    ServiceAccount,
}

/// Response body of `DELETE /workspaces/{id}/credentials/{credential_id}`: 200 when every step is
/// done, 202 when the broker retries open steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
pub struct Revocation {
    /// Id of the credential.
    pub credential_id: String,
    /// Workspace of the credential.
    pub workspace_id: Uuid,
    /// Progress of the revocation.
    pub state: RevocationState,
    /// Object whose removal revokes the credential; absent if nothing was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<RevokedBy>,
    /// Number of other valid credentials of the workspace that end with it. Exec plugins get new
    /// ones.
    pub others_revoked: u32,
    /// Ids of those credentials, the newest first, 100 at most.
    pub others: Vec<String>,
    /// Seconds after the last step for which an API server may still accept the token, if it
    /// accepted the token shortly before.
    pub accepted_for_seconds: u32,
    /// Steps in their order of execution: `record`, then `delete_secret`, or
    /// `delete_service_account` and `create_service_account`, then `finish`.
    pub steps: Vec<Step>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_with_and_without_the_audit_log_prefix() {
        let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        for text in [id.to_owned(), format!("JTI={id}")] {
            assert_eq!(text.parse::<CredentialId>().unwrap().as_str(), id);
        }
        let long = "x".repeat(MAX_CREDENTIAL_ID_BYTES + 1);
        for text in ["", "JTI=", "jti=x", "a b", "a/b", "../x", "JTI=JTI=x", "ä", "a\n", &long] {
            assert_eq!(text.parse::<CredentialId>(), Err(CredentialIdError), "{text}");
        }
    }

    #[test]
    fn unknown_values_of_a_newer_broker_are_accepted() {
        assert_eq!(
            serde_json::from_str::<CredentialState>("\"asleep\"").unwrap(),
            CredentialState::Other
        );
        assert_eq!(CredentialKind::parse("carrier-pigeon"), CredentialKind::Other);
        assert_eq!(CredentialKind::parse("kubeconfig"), CredentialKind::Kubeconfig);
    }
}
