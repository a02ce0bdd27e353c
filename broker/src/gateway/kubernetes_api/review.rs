//! Parser of `SelfSubjectAccessReview` and `SelfSubjectRulesReview` (API reference,
//! authorization.k8s.io/v1) in JSON and in Protobuf, which newer versions of kubectl send.

use prost::Message;
use serde::{Deserialize, de::DeserializeOwned};

use crate::cluster::{ClusterList, PROTOBUF_MAGIC, ProtobufEnvelope};

#[derive(Message, Deserialize)]
struct Review {
    #[prost(message, optional, tag = "2")]
    spec: Option<Spec>,
}

#[derive(Message, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[prost(message, optional, tag = "1")]
    resource_attributes: Option<ResourceAttributes>,
}

/// The access that is reviewed (`spec.resourceAttributes`).
#[derive(Message, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(in crate::gateway) struct ResourceAttributes {
    #[prost(string, tag = "1")]
    pub(in crate::gateway) namespace: String,
    #[prost(string, tag = "2")]
    pub(in crate::gateway) verb: String,
    #[prost(string, tag = "3")]
    group: String,
    #[prost(string, tag = "4")]
    version: String,
    #[prost(string, tag = "5")]
    resource: String,
    #[prost(string, tag = "6")]
    subresource: String,
    #[prost(string, tag = "7")]
    pub(in crate::gateway) name: String,
}

#[derive(Message, Deserialize)]
struct RulesReview {
    #[prost(message, optional, tag = "2")]
    spec: Option<RulesSpec>,
}

#[derive(Message, Deserialize)]
#[serde(default)]
struct RulesSpec {
    #[prost(string, tag = "1")]
    namespace: String,
}

/// Decodes an object of this kind from one of both formats.
fn decode<M: Message + Default + DeserializeOwned>(object: &[u8]) -> Option<M> {
    if object.starts_with(PROTOBUF_MAGIC) {
        M::decode(&*ProtobufEnvelope::parse(object)?.raw).ok()
    } else {
        serde_json::from_slice(object).ok()
    }
}

/// The access that a `SelfSubjectAccessReview` is about, if it is about a resource.
pub(in crate::gateway) fn attributes(review: &[u8]) -> Option<ResourceAttributes> {
    decode::<Review>(review)?.spec?.resource_attributes
}

/// The namespace that a `SelfSubjectRulesReview` is about.
pub(in crate::gateway) fn rules_namespace(review: &[u8]) -> Option<String> {
    Some(decode::<RulesReview>(review)?.spec?.namespace)
}

impl ResourceAttributes {
    /// Whether it is about namespaces themselves.
    pub(in crate::gateway) fn is_about_namespaces(&self) -> bool {
        self.group.is_empty() && self.resource == "namespaces" && self.subresource.is_empty()
    }

    /// The resource that it is about as a whole, if members of tenants may be granted lists of it.
    pub(in crate::gateway) fn cluster_list(&self) -> Option<ClusterList> {
        // Other versions have other paths. RBAC does not distinguish them, and kubectl names none.
        let is_version = ["", "*", ClusterList::VERSION].contains(&self.version.as_str());
        let list = ClusterList::ALL
            .into_iter()
            .find(|list| list.group() == self.group && list.resource() == self.resource);
        list.filter(|_| is_version && self.subresource.is_empty())
    }

    /// Whether it is about listing or watching.
    pub(in crate::gateway) fn is_list(&self) -> bool {
        matches!(&*self.verb, "list" | "watch")
    }
}

/// Whether a review is about listing or watching namespaces, which the gateway allows and RBAC
/// cannot, for the user with this namespace.
pub(in crate::gateway) fn is_namespace_list(review: &[u8], own_namespace: &str) -> bool {
    attributes(review).is_some_and(|attributes| {
        attributes.is_list()
            && attributes.is_about_namespaces()
            && (attributes.namespace.is_empty() || attributes.namespace == own_namespace)
            && (attributes.name.is_empty() || attributes.name == own_namespace)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn about(attributes: &Value) -> bool {
        let text = json!({"kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes}});
        is_namespace_list(text.to_string().as_bytes(), "tenant-a")
    }

    #[test]
    fn only_reviews_of_listing_namespaces_match() {
        for ours in [
            json!({"verb": "list", "resource": "namespaces"}),
            json!({"verb": "watch", "resource": "namespaces", "version": "v1"}),
            json!({"verb": "list", "resource": "namespaces", "name": "tenant-a"}),
        ] {
            assert!(about(&ours), "{ours}");
        }
        for other in [
            json!({"verb": "create", "resource": "namespaces"}),
            json!({"verb": "list", "resource": "namespaces", "name": "other"}),
            json!({"verb": "list", "resource": "namespaces", "namespace": "other"}),
            json!({"verb": "list", "resource": "pods"}),
            json!({"verb": "list", "resource": "namespaces", "group": "x"}),
            json!({"verb": "list", "resource": "namespaces", "subresource": "status"}),
            json!({"verb": "*", "resource": "*"}),
        ] {
            assert!(!about(&other), "{other}");
        }
        assert!(!is_namespace_list(b"{", "tenant-a"));
        assert!(!is_namespace_list(b"{\"spec\": {}}", "tenant-a"));
    }

    #[test]
    fn protobuf_reviews_match_too() {
        let attributes = ResourceAttributes {
            verb: "list".to_owned(),
            resource: "namespaces".to_owned(),
            ..ResourceAttributes::default()
        };
        let review = Review { spec: Some(Spec { resource_attributes: Some(attributes) }) };
        let envelope = ProtobufEnvelope { type_meta: None, raw: review.encode_to_vec() };
        let encoded = [PROTOBUF_MAGIC, &envelope.encode_to_vec()].concat();
        assert!(is_namespace_list(&encoded, "tenant-a"));
        // Recorded from kubectl 1.32.
        let written = b"k8s\0\n2\n\x17authorization.k8s.io/v1\x12\x17SelfSubjectAccessReview\
            \x12<\n\x10\n\0\x12\0\x1a\0\"\0*\x002\08\0B\0\x12\x1e\n\x1c\n\0\x12\x04list\x1a\0\"\0\
            *\nnamespaces2\0:\0\x1a\x08\x08\0\x12\0\x1a\0 \0\x1a\0\"\0";
        assert!(is_namespace_list(written, "tenant-a"));
    }

    #[test]
    fn reviews_of_lists_of_the_cluster_are_recognized() {
        let of = |group: &str, version: &str, resource: &str, subresource: &str| {
            let attributes = json!({
                "group": group, "version": version, "resource": resource,
                "subresource": subresource, "verb": "list", "namespace": "default",
            });
            let text = json!({"spec": {"resourceAttributes": attributes}}).to_string();
            attributes_of(text.as_bytes()).cluster_list()
        };
        for list in ClusterList::ALL {
            for version in ["", "*", "v1"] {
                assert_eq!(of(list.group(), version, list.resource(), ""), Some(list));
            }
            assert_eq!(of(list.group(), "v1beta1", list.resource(), ""), None, "{list}");
            assert_eq!(of(list.group(), "", list.resource(), "status"), None, "{list}");
            assert_eq!(of("example.com", "", list.resource(), ""), None, "{list}");
            assert_eq!(of("*", "", list.resource(), ""), None, "{list}");
        }
        for resource in ["*", "", "persistentvolumes", "namespaces", "secrets", "node"] {
            assert_eq!(of("", "", resource, ""), None, "{resource}");
        }
    }

    fn attributes_of(review: &[u8]) -> ResourceAttributes {
        attributes(review).unwrap()
    }

    #[test]
    fn the_namespace_of_a_review_is_read() {
        let json = br#"{"spec": {"resourceAttributes": {"namespace": "solar-a", "verb": "get"}}}"#;
        assert_eq!(attributes(json).unwrap().namespace, "solar-a");
        assert_eq!(rules_namespace(br#"{"spec": {"namespace": "a"}}"#), Some("a".to_owned()));
        let review = RulesReview { spec: Some(RulesSpec { namespace: "b".to_owned() }) };
        let envelope = ProtobufEnvelope { type_meta: None, raw: review.encode_to_vec() };
        let encoded = [PROTOBUF_MAGIC, &envelope.encode_to_vec()].concat();
        assert_eq!(rules_namespace(&encoded), Some("b".to_owned()));
        assert_eq!(rules_namespace(b"[]"), None);
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            is_namespace_list(&bytes, "tenant-a");
            is_namespace_list(&[PROTOBUF_MAGIC, &bytes].concat(), "tenant-a");
            rules_namespace(&[PROTOBUF_MAGIC, &bytes].concat());
        }
    }
}
