//! Exec credential plugin protocol of client-go, `client.authentication.k8s.io` v1 and v1beta1
//! (KEP-541).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::WireTime;

/// API version of the protocol. The response must have the version of the request, or client-go
/// rejects it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecApiVersion {
    /// `client.authentication.k8s.io/v1`, since Kubernetes 1.22.
    #[default]
    #[serde(rename = "client.authentication.k8s.io/v1")]
    V1,
    /// `client.authentication.k8s.io/v1beta1`, spoken by older clients.
    #[serde(rename = "client.authentication.k8s.io/v1beta1")]
    V1Beta1,
}

impl ExecApiVersion {
    /// The `apiVersion` field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "client.authentication.k8s.io/v1",
            Self::V1Beta1 => "client.authentication.k8s.io/v1beta1",
        }
    }
}

/// The part of `KUBERNETES_EXEC_INFO` that the plugin needs. Everything else, such as
/// `spec.cluster` with its free-form `config`, is ignored, so that it cannot cause an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecInfo {
    /// API version of the response.
    pub api_version: ExecApiVersion,
    /// Whether a person is at a terminal that the plugin may use.
    pub interactive: bool,
}

/// Error of parsing `KUBERNETES_EXEC_INFO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecInfoError {
    /// Not a JSON object of the protocol.
    Malformed(String),
    /// A version of the protocol that is not supported.
    Version(String),
}

impl fmt::Display for ExecInfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => {
                write!(f, "KUBERNETES_EXEC_INFO is not an ExecCredential: {why}")
            }
            Self::Version(version) => write!(
                f,
                "KUBERNETES_EXEC_INFO asks for apiVersion {version:?}; this plugin speaks {} and {}",
                ExecApiVersion::V1.as_str(),
                ExecApiVersion::V1Beta1.as_str()
            ),
        }
    }
}

impl std::error::Error for ExecInfoError {}

impl ExecInfo {
    /// Parses the value of `KUBERNETES_EXEC_INFO`.
    ///
    /// # Errors
    /// The text is not a JSON object, or its version is neither v1 nor v1beta1.
    pub fn parse(text: &str) -> Result<Self, ExecInfoError> {
        #[derive(Deserialize)]
        struct Info {
            #[serde(rename = "apiVersion", default)]
            api_version: String,
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        struct Spec {
            #[serde(default)]
            interactive: bool,
        }
        let info: Info = serde_json::from_str(text)
            .map_err(|error| ExecInfoError::Malformed(error.to_string()))?;
        let api_version = [ExecApiVersion::V1, ExecApiVersion::V1Beta1]
            .into_iter()
            .find(|version| version.as_str() == info.api_version)
            .ok_or(ExecInfoError::Version(info.api_version))?;
        Ok(Self { api_version, interactive: info.spec.interactive })
    }
}

/// Output of the plugin: exactly one such document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecCredential {
    /// API version of the request in [`ExecInfo`].
    #[serde(rename = "apiVersion")]
    pub api_version: ExecApiVersion,
    /// Always `ExecCredential`.
    pub kind: String,
    /// The credential.
    pub status: ExecCredentialStatus,
}

/// Credential in an [`ExecCredential`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecCredentialStatus {
    /// Until when client-go may use the token without calling the plugin again, by the client's own
    /// clock.
    pub expiration_timestamp: WireTime,
    /// Bearer token.
    pub token: String,
}

impl fmt::Debug for ExecCredentialStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecCredentialStatus")
            .field("expiration_timestamp", &self.expiration_timestamp)
            .field("token", &"[hidden]")
            .finish()
    }
}

impl ExecCredential {
    /// Creates a document with this token, in this API version.
    pub fn new(api_version: ExecApiVersion, token: String, until: WireTime) -> Self {
        Self {
            api_version,
            kind: "ExecCredential".to_owned(),
            status: ExecCredentialStatus { expiration_timestamp: until, token },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read_and_unknown_fields_are_ignored() {
        let info = ExecInfo::parse(
            "{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1beta1\",\
             \"spec\":{\"cluster\":{\"config\":{\"any\":[1]}},\"interactive\":true,\"new\":1}}\n",
        )
        .unwrap();
        assert_eq!(info, ExecInfo { api_version: ExecApiVersion::V1Beta1, interactive: true });
    }

    #[test]
    fn other_versions_and_malformed_text_are_errors() {
        let error = ExecInfo::parse(r#"{"apiVersion":"client.authentication.k8s.io/v1alpha1"}"#);
        assert!(matches!(error, Err(ExecInfoError::Version(_))));
        assert!(matches!(ExecInfo::parse("nonsense"), Err(ExecInfoError::Malformed(_))));
    }

    #[test]
    fn debug_output_hides_the_token() {
        let credential = ExecCredential::new(
            ExecApiVersion::V1,
            "s3cret".into(),
            "2026-01-01T00:00:00Z".parse().unwrap(),
        );
        assert!(!format!("{credential:?}").contains("s3cret"));
        assert_eq!(
            serde_json::to_string(&credential).unwrap(),
            r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"expirationTimestamp":"2026-01-01T00:00:00Z","token":"s3cret"}}"#
        );
    }
}
