//! The resource of a request, as `kubectl auth can-i` writes it. Plurals only, because no discovery
//! is needed then.

use std::str::FromStr;

/// `RESOURCE[.GROUP][/NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceTarget {
    /// Resource in the plural.
    pub(crate) resource: String,
    /// API group; empty for the core group.
    pub(crate) group: String,
    /// Name of one object.
    pub(crate) name: Option<String>,
}

impl FromStr for ResourceTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (kind, Some(name)),
            None => (text, None),
        };
        let (resource, group) = kind.split_once('.').unwrap_or((kind, ""));
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_resource =
            resource == "*" || (!resource.is_empty() && resource.bytes().all(is_plain));
        let is_group = group.bytes().all(|byte| is_plain(byte) || byte == b'.')
            && (!group.is_empty() || !kind.contains('.'));
        let is_name = name.is_none_or(|name| !name.is_empty() && !name.contains('/'));
        if !is_resource || !is_group || !is_name {
            return Err("write the resource in the plural, as in pods, deployments.apps or \
                        secrets/NAME; --subresource names a subresource"
                .to_owned());
        }
        Ok(Self {
            resource: resource.to_owned(),
            group: group.to_owned(),
            name: name.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_group_and_name_are_told_apart() {
        for (text, resource, group, name) in [
            ("pods", "pods", "", None),
            ("*", "*", "", None),
            ("deployments.apps", "deployments", "apps", None),
            ("ingresses.networking.k8s.io/web.1", "ingresses", "networking.k8s.io", Some("web.1")),
            ("secrets/a", "secrets", "", Some("a")),
        ] {
            let target: ResourceTarget = text.parse().unwrap();
            assert_eq!((&*target.resource, &*target.group), (resource, group), "{text}");
            assert_eq!(target.name.as_deref(), name, "{text}");
        }
        for text in ["", "/a", "pods/", "pods/a/log", "Pod", "pods.", ".apps", "p s", "pods.A"] {
            assert!(text.parse::<ResourceTarget>().is_err(), "{text:?}");
        }
    }
}
