//! The Kubernetes user of the broker (`cluster.identity`).

use std::{fmt, str::FromStr};
use tenant_shared::is_dns_label;

/// Limit of a user name in bytes. The API server itself has none.
const MAX_BYTES: usize = 253;
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// A Kubernetes user. Its text is the user name that the API server authenticates and that the
/// admission policies match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubernetesUser {
    /// A user, for example the common name of a client certificate.
    User(String),
    /// A ServiceAccount, for a broker that runs in the cluster.
    ServiceAccount {
        /// Namespace of the ServiceAccount.
        namespace: String,
        /// Name of the ServiceAccount.
        name: String,
    },
}

impl fmt::Display for KubernetesUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => f.write_str(name),
            Self::ServiceAccount { namespace, name } => {
                write!(f, "{SERVICE_ACCOUNT}{namespace}:{name}")
            }
        }
    }
}

impl FromStr for KubernetesUser {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() || text.len() > MAX_BYTES || text.contains(char::is_control) {
            return Err("a user name of 1 to 253 bytes, without control characters");
        }
        if let Some(account) = text.strip_prefix(SERVICE_ACCOUNT) {
            let parts = account.split_once(':');
            let (namespace, name) = parts
                .filter(|(namespace, name)| {
                    is_dns_label(namespace) && name.split('.').all(is_dns_label)
                })
                .ok_or("a ServiceAccount is written system:serviceaccount:NAMESPACE:NAME")?;
            return Ok(Self::ServiceAccount { namespace: namespace.into(), name: name.into() });
        }
        // The policies exempt the cluster's own components, whose names begin with system:.
        if text.starts_with("system:") {
            return Err(
                "a name that does not begin with system:, because Kubernetes reserves these",
            );
        }
        Ok(Self::User(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing_and_formatting_round_trip() {
        for text in
            ["tenant-broker", "broker@example.com", "system:serviceaccount:ns:tenant-broker"]
        {
            assert_eq!(text.parse::<KubernetesUser>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn system_users_and_invalid_names_are_refused() {
        for text in [
            "",
            "a\nb",
            "system:masters",
            "system:serviceaccount:ns",
            "system:serviceaccount:N:x",
            "system:serviceaccount::x",
        ] {
            assert!(text.parse::<KubernetesUser>().is_err(), "{text}");
        }
        assert!("x".repeat(254).parse::<KubernetesUser>().is_err());
    }
}
