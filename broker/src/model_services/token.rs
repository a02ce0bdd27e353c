//! The Secrets with the tokens of models, by their names. Only the metadata of Secrets is read: no
//! byte of a token enters the broker.

use super::{
    InNamespace,
    call_kind::CallKind,
    failure::Failure,
    inference::ObjectMetadata,
    known_keys::ACCOUNT,
    list::{List, Listed},
    owners::{ModelOwner, OwnedObject},
};

/// Field selector of token Secrets.
const TOKEN_SECRETS: &str = "type=kubernetes.io/service-account-token";
/// The ServiceAccount of a model that has none of its own.
const DEFAULT_ACCOUNT: &str = "default";

/// The ServiceAccounts and token Secrets of a namespace.
#[derive(Debug, Default)]
pub(super) struct TokenSecrets {
    accounts: Vec<OwnedObject>,
    secrets: Vec<ObjectMetadata>,
}

impl TokenSecrets {
    fn new(mut accounts: Vec<OwnedObject>, mut secrets: Vec<ObjectMetadata>) -> Self {
        accounts.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        secrets.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Self { accounts, secrets }
    }

    /// The name of the Secret with the token of a model's ServiceAccount.
    pub(super) fn of_model(&self, model: &ModelOwner) -> Option<String> {
        let account = self.accounts.iter().find(|account| account.metadata.is_owned_by(model));
        let account = account.map_or(DEFAULT_ACCOUNT, |account| account.metadata.name.as_str());
        let secret =
            self.secrets.iter().find(|secret| secret.metadata.annotation(ACCOUNT) == account)?;
        Some(secret.metadata.name.clone())
    }
}

impl InNamespace {
    /// The token Secrets of the namespace; none if the caller may not list them.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn token_secrets(&self) -> Result<TokenSecrets, Failure> {
        let path = |plural: &str| format!("/api/v1/namespaces/{}/{plural}", self.namespace());
        let accounts = List::new(CallKind::ServiceAccounts, path("serviceaccounts"));
        let secrets = List::new(CallKind::Secrets, path("secrets")).fields(TOKEN_SECRETS);
        let (accounts, secrets) = (accounts.metadata_only(), secrets.metadata_only());
        let (accounts, secrets) =
            tokio::try_join!(self.client().list(&accounts), self.client().list(&secrets))?;
        match (accounts, secrets) {
            (Listed::Objects(accounts), Listed::Objects(secrets)) => {
                Ok(TokenSecrets::new(accounts, secrets))
            }
            _ => Ok(TokenSecrets::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_model_has_the_secret_of_its_own_account_or_of_the_default_one() {
        let account = |name: &str, kind: &str, uid: &str| -> OwnedObject {
            from_value(json!({"metadata": {"name": name,
                "ownerReferences": [{"kind": kind, "name": "model", "uid": uid}]}}))
            .unwrap()
        };
        let secret = |name: &str, account: &str| -> ObjectMetadata {
            from_value(json!({"metadata": {"name": name,
                "annotations": {"kubernetes.io/service-account.name": account}}}))
            .unwrap()
        };
        let secrets = TokenSecrets::new(
            vec![
                account("z-sa", "InferenceService", "granite"),
                account("llm-sa", "LLMInferenceService", "llama"),
                account("pod-sa", "Pod", "other"),
                account("empty-sa", "InferenceService", ""),
            ],
            vec![
                secret("z-2", "z-sa"),
                secret("z-1", "z-sa"),
                secret("default-token", "default"),
                secret("pod-token", "pod-sa"),
            ],
        );
        let model = |kind, uid: &str| ModelOwner { kind, uid: uid.into() };
        for (kind, uid, expected) in [
            ("InferenceService", "granite", Some("z-1")),
            ("LLMInferenceService", "granite", Some("default-token")),
            ("LLMInferenceService", "llama", None),
            ("InferenceService", "llama", Some("default-token")),
            ("InferenceService", "other", Some("default-token")),
            ("InferenceService", "no-account", Some("default-token")),
            ("InferenceService", "", Some("default-token")),
        ] {
            let secret = secrets.of_model(&model(kind, uid));
            assert_eq!(secret.as_deref(), expected, "{kind} {uid}");
        }
        let none = TokenSecrets::default();
        assert_eq!(none.of_model(&model("InferenceService", "granite")), None);
    }
}
