//! What the hosts of a namespace's Ingresses and routes end with.

use std::str::FromStr;

/// Stands for the name of the namespace.
const NAMESPACE: &str = "{namespace}";
/// Longest host name (RFC 1035), less the 43 characters of a namespace's name.
const MAX_LENGTH: usize = 253 - 43;

/// A suffix with the name of the namespace in it: `.{namespace}.apps.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSuffix {
    /// What comes before the name: `.`, or `-` if the label begins with something of the tenant's.
    pub before: String,
    /// What comes after it: a domain with its leading dot.
    pub after: String,
}

impl FromStr for HostSuffix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "a dot or a dash, {namespace}, and a domain: .{namespace}.apps.example.com".to_owned()
        };
        let (before, after) = text.split_once(NAMESPACE).ok_or_else(wrong)?;
        // Without the dot behind it, the name of one namespace could be part of another host.
        let domain = after.strip_prefix('.').ok_or_else(wrong)?;
        let is_well = [".", "-"].contains(&before)
            && text.len() <= MAX_LENGTH
            && domain.split('.').all(super::is_dns_label);
        is_well
            .then(|| Self { before: before.to_owned(), after: after.to_owned() })
            .ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_has_the_namespace_as_a_part_of_its_own() {
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
