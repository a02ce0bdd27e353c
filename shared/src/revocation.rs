//! What was issued, and taking one credential back.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Step, WireTime};

/// How long an API server goes on accepting a token that it accepted once, after what the token
/// depends on is gone, in seconds (`TokenSuccessCacheTTL` of Kubernetes, which has no setting).
pub const TOKEN_CACHE_SECONDS: u32 = 10;

/// Longest id of a credential, in bytes.
pub const MOST_CREDENTIAL_ID_BYTES: usize = 128;

/// What the cluster's audit log writes before the id.
const AUDIT_LOG_PREFIX: &str = "JTI=";

/// The id of a credential: its `jti`. Letters, digits and `-_.:`, 128 at most.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CredentialId(String);

/// A text that cannot be the id of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialIdError;

impl fmt::Display for CredentialIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the id of a credential has 1 to {MOST_CREDENTIAL_ID_BYTES} letters, digits or -_.: \
             and may begin with {AUDIT_LOG_PREFIX} as in the cluster's audit log"
        )
    }
}

impl std::error::Error for CredentialIdError {}

impl std::str::FromStr for CredentialId {
    type Err = CredentialIdError;

    /// Reads an id, also as the cluster's audit log writes it
    /// (`authentication.kubernetes.io/credential-id`): `JTI=…`.
    fn from_str(text: &str) -> Result<Self, CredentialIdError> {
        let id = text.strip_prefix(AUDIT_LOG_PREFIX).unwrap_or(text);
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if (1..=MOST_CREDENTIAL_ID_BYTES).contains(&id.len()) && id.bytes().all(is_good) {
            Ok(Self(id.to_owned()))
        } else {
            Err(CredentialIdError)
        }
    }
}

impl CredentialId {
    /// The id without a prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a credential left the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum CredentialKind {
    /// As the answer to the exec plugin, which renews it.
    Exec,
    /// In a kubeconfig that somebody downloaded.
    Kubeconfig,
    /// Not at all: the gateway keeps it in memory and renews it.
    Gateway,
    /// A kind of a newer broker.
    #[serde(other)]
    Other,
}

impl CredentialKind {
    /// As written on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Kubeconfig => "kubeconfig",
            Self::Gateway => "gateway",
            Self::Other => "other",
        }
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Self {
        [Self::Exec, Self::Kubeconfig, Self::Gateway]
            .into_iter()
            .find(|kind| kind.as_str() == name)
            .unwrap_or(Self::Other)
    }
}

/// Whether a credential works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum CredentialState {
    /// It works until it expires.
    Live,
    /// It was revoked, by itself or with another one.
    Revoked,
    /// Its workspace was suspended since, or its ServiceAccount replaced.
    Withdrawn,
    /// Its time is over.
    Expired,
    /// A state of a newer broker.
    #[serde(other)]
    Other,
}

impl CredentialState {
    /// As written on the wire.
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

/// A credential in the ledger; never the credential itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
pub struct CredentialInfo {
    /// Its `jti`, under which the audit trail and the cluster's own audit log know it (there with
    /// the prefix `JTI=`).
    pub credential_id: String,
    /// The workspace it is for.
    pub workspace_id: Uuid,
    /// How it left the broker.
    pub kind: CredentialKind,
    /// Whether it works.
    pub state: CredentialState,
    /// Whether it is bound to a Secret of its own, so that it can be revoked without the others.
    pub bound: bool,
    /// Who got it.
    pub user_id: Uuid,
    /// Their e-mail address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// The session in which they got it.
    pub session_id: Uuid,
    /// What that session signed in with: `kubectl-tenant`, or `browser`; absent if the session is
    /// forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// When it was issued (RFC 3339, UTC).
    pub issued_at: WireTime,
    /// When it ends by itself.
    pub expires_at: WireTime,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<WireTime>,
    /// The credential whose revocation ended this one, if it was another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_with: Option<String>,
}

/// A page of the ledger of a workspace, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
pub struct CredentialPage {
    /// The credentials.
    pub items: Vec<CredentialInfo>,
    /// Give this as `cursor` to get the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// How far a revocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum RevocationState {
    /// What the credential depends on is gone from the cluster.
    Revoked,
    /// The decision stands; the broker goes on with the open steps.
    Revoking,
    /// There was nothing to do: it had expired, or its workspace was suspended since.
    Over,
}

/// What a credential was revoked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum RevokedBy {
    /// The Secret that it alone is bound to is deleted.
    Secret,
    /// The workspace's ServiceAccount is replaced: all credentials of the workspace end.
    ServiceAccount,
}

/// Answer of `DELETE /workspaces/{id}/credentials/{credential_id}`: 200 when every step is done, 202
/// when the broker goes on with some.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
pub struct Revocation {
    /// The credential.
    pub credential_id: String,
    /// Its workspace.
    pub workspace_id: Uuid,
    /// How far it is.
    pub state: RevocationState,
    /// What it was revoked by; absent if there was nothing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<RevokedBy>,
    /// How many other live credentials of the workspace ended with it. Exec plugins get new ones.
    pub others_revoked: u32,
    /// Their ids, the newest first, 100 at most.
    pub others: Vec<String>,
    /// For so many seconds after the last step an API server may still accept the token, if it
    /// accepted it shortly before.
    pub accepted_for_seconds: u32,
    /// The steps in the order in which they ran: `record`, then `delete_secret`, or
    /// `delete_service_account` and `create_service_account`, then `finish`.
    pub steps: Vec<Step>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_as_the_cluster_writes_it_and_nothing_else() {
        let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        for text in [id.to_owned(), format!("JTI={id}")] {
            assert_eq!(text.parse::<CredentialId>().unwrap().as_str(), id);
        }
        let long = "x".repeat(MOST_CREDENTIAL_ID_BYTES + 1);
        for text in ["", "JTI=", "jti=x", "a b", "a/b", "../x", "JTI=JTI=x", "ä", "a\n", &long] {
            assert_eq!(text.parse::<CredentialId>(), Err(CredentialIdError), "{text}");
        }
    }

    #[test]
    fn words_of_a_newer_broker_are_understood_as_such() {
        assert_eq!(
            serde_json::from_str::<CredentialState>("\"asleep\"").unwrap(),
            CredentialState::Other
        );
        assert_eq!(CredentialKind::parse("carrier-pigeon"), CredentialKind::Other);
        assert_eq!(CredentialKind::parse("kubeconfig"), CredentialKind::Kubeconfig);
    }
}
