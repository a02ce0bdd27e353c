//! Who the broker is to the API server.

use std::{fmt, str::FromStr};

/// Longest name; the API server itself knows no limit.
const MOST_BYTES: usize = 253;
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The Kubernetes identity of the broker. Its text is the user name that the API server sees, the
/// one that the admission policies name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerUser {
    /// A user, for example the common name of a client certificate.
    User(String),
    /// A ServiceAccount, for a broker that runs in the cluster.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for BrokerUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => f.write_str(name),
            Self::ServiceAccount { namespace, name } => {
                write!(f, "{SERVICE_ACCOUNT}{namespace}:{name}")
            }
        }
    }
}

impl FromStr for BrokerUser {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() || text.len() > MOST_BYTES || text.contains(char::is_control) {
            return Err("a user name of 1 to 253 bytes, without control characters");
        }
        if let Some(account) = text.strip_prefix(SERVICE_ACCOUNT) {
            let parts = account.split_once(':');
            let (namespace, name) = parts
                .filter(|(namespace, name)| {
                    super::is_dns_label(namespace) && name.split('.').all(super::is_dns_label)
                })
                .ok_or("a ServiceAccount is written system:serviceaccount:NAMESPACE:NAME")?;
            return Ok(Self::ServiceAccount { namespace: namespace.into(), name: name.into() });
        }
        // The policies let the cluster's own components pass.
        if text.starts_with("system:") {
            return Err("a name of its own: those that begin with system: are the cluster's");
        }
        Ok(Self::User(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_alike() {
        for text in
            ["tenant-broker", "broker@example.com", "system:serviceaccount:ns:tenant-broker"]
        {
            assert_eq!(text.parse::<BrokerUser>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn names_of_the_cluster_and_no_names_are_refused() {
        for text in [
            "",
            "a\nb",
            "system:masters",
            "system:serviceaccount:ns",
            "system:serviceaccount:N:x",
            "system:serviceaccount::x",
        ] {
            assert!(text.parse::<BrokerUser>().is_err(), "{text}");
        }
        assert!("x".repeat(254).parse::<BrokerUser>().is_err());
    }
}
