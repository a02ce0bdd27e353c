//! The suffix that hosts of a namespace's Ingresses and routes must have (`ingress_host_suffix`).

use std::str::FromStr;
use tenant_shared::is_dns_label;

/// Placeholder for the name of the namespace.
const PLACEHOLDER: &str = "{namespace}";
/// Limit of a host name (RFC 1035), minus the 43 characters of a namespace's name, in bytes.
const MAX_BYTES: usize = 253 - 43;

/// A suffix that contains the name of the namespace: `.{namespace}.apps.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSuffix {
    /// The separator before the name: `.`, or `-` if the tenant chooses the beginning of the label.
    pub before: String,
    /// The domain after the name, with its leading dot.
    pub after: String,
}

impl FromStr for HostSuffix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "a dot or a dash, {namespace}, and a domain: .{namespace}.apps.example.com".to_owned()
        };
        let (before, after) = text.split_once(PLACEHOLDER).ok_or_else(wrong)?;
        // Without the dot after it, the name of a namespace could be a part of another label.
        let domain = after.strip_prefix('.').ok_or_else(wrong)?;
        let is_valid = [".", "-"].contains(&before)
            && text.len() <= MAX_BYTES
            && domain.split('.').all(is_dns_label);
        is_valid
            .then(|| Self { before: before.to_owned(), after: after.to_owned() })
            .ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_contains_the_namespace_between_separators() {
        for good in [".{namespace}.apps.example.com", "-{namespace}.example.com", ".{namespace}.x"]
        {
            assert!(good.parse::<HostSuffix>().is_ok(), "{good}");
        }
        for bad in [
            "",
            ".apps.example.com",
            "{namespace}.example.com",
            "x.{namespace}.example.com",
            ".{namespace}",
            ".{namespace}.",
            ".{namespace}apps.example.com",
            ".{namespace}.Apps.example.com",
            ".{namespace}.a..b",
            ".{namespace}.{namespace}.example.com",
            ".{namespace}.\" || true",
        ] {
            assert!(bad.parse::<HostSuffix>().is_err(), "{bad}");
        }
    }
}
