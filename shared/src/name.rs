//! Names of workspaces and users on the command line and in lookups.

use std::fmt;

use uuid::Uuid;

/// Maximum length of a name, in bytes: that of an e-mail address (RFC 5321 section 4.5.3.1.3).
pub const MAX_NAME_BYTES: usize = 254;
/// Maximum length of a namespace's name, in bytes (RFC 1123, "label").
const MAX_LABEL_BYTES: usize = 63;

/// Name of a workspace or of a user: the identifier of either, the namespace of the workspace, or
/// the e-mail address of the user. A user's name also names their workspaces, and a workspace's
/// name its owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// Identifier of a workspace or of a user.
    Id(Uuid),
    /// Namespace of a workspace, a DNS label.
    Namespace(String),
    /// E-mail address of a user, in lower case as the broker stores it.
    Email(String),
}

/// Error for a text that names neither a workspace nor a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameError;

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "write a namespace (tenant-…), an identifier (UUID) or an e-mail address \
             (name@example.com), {MAX_NAME_BYTES} bytes at most"
        )
    }
}

impl std::error::Error for NameError {}

impl std::str::FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let text = text.trim_matches(' ');
        if text.len() > MAX_NAME_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(NameError);
        }
        if let Ok(id) = text.parse() {
            Ok(Self::Id(id))
        } else if text.contains('@') {
            Ok(Self::Email(text.to_ascii_lowercase()))
        } else if is_dns_label(text) {
            Ok(Self::Namespace(text.to_owned()))
        } else {
            Err(NameError)
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Namespace(text) | Self::Email(text) => f.write_str(text),
        }
    }
}

/// Whether a text is a DNS label (RFC 1123), as the names of namespaces and tenants are.
pub fn is_dns_label(text: &str) -> bool {
    (1..=MAX_LABEL_BYTES).contains(&text.len())
        && text.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_an_identifier_a_namespace_or_an_address() {
        let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        assert_eq!(id.parse(), Ok(Name::Id(id.parse().unwrap())));
        let namespace = format!("tenant-{id}");
        assert_eq!(namespace.parse(), Ok(Name::Namespace(namespace.clone())));
        assert_eq!(" Ada@Example.COM ".parse(), Ok(Name::Email("ada@example.com".to_owned())));
        for name in [id, &namespace, "ada@example.com"] {
            assert_eq!(name.parse::<Name>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let long = format!("{}@example.com", "a".repeat(250));
        let label = "a".repeat(64);
        for text in ["", " ", "-a", "a-", "Tenant", "a b", "a\nb", "ä@b.de", "a/b", &long, &label]
        {
            assert_eq!(text.parse::<Name>(), Err(NameError), "{text:?}");
        }
    }
}
