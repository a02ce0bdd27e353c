//! Interception: requests whose response the gateway adapts, because RBAC cannot give tenants a
//! list of their namespaces.
//!
//! RBAC allows a list of all objects of a kind or of none. So the gateway builds the list from the
//! user's own namespace, and turns a watch of namespaces into a watch of that one. The API server
//! still decides whether the user may read it, because it is asked with the user's token. All other
//! requests pass through unchanged.

mod broker_read;
pub(super) mod namespace_creation;
pub(super) mod synthesized;
mod tenant;
mod tenant_review;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Value, json};

use super::{
    in_flight::BrokerReadView,
    kubernetes_api::path::{Kind, Target},
    principals::{Principal, VisibleObjects},
};
use crate::cluster::{BrokerRead, BrokerReadResource, Cluster, ClusterList};

/// The limit of a response that is rewritten, in bytes.
pub(super) const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;
/// The limit of a review in a request, in bytes.
pub(super) const MAX_REVIEW_BYTES: usize = 64 * 1024;
pub(super) const NAMESPACES: &str = "/api/v1/namespaces";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// The keys of `status.userInfo.extra` in a `SelfSubjectReview` with the user id and email address.
const USER_EXTRA_KEYS: [&str; 2] = ["tenant-broker.io/user-id", "tenant-broker.io/email"];

/// How the gateway handles a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Interception {
    /// Forwards it unchanged.
    PassThrough,
    /// A watch of namespaces: it is forwarded with this path and query.
    Watch(String),
    /// A list of namespaces, in this representation.
    List(Representation),
    /// A `SelfSubjectAccessReview`.
    AccessReview,
    /// A `SelfSubjectReview`.
    SelfReview,
    /// A `SelfSubjectRulesReview` of a member of tenants.
    RulesReview,
    /// A list or watch of a member of tenants that is sent with the broker's own credential.
    BrokerRead(Box<BrokerReadRequest>),
    /// A list or watch of nodes that tenants select by labels which cannot be joined. It is forwarded,
    /// and a refusal has this text.
    UnjoinedNodes(String),
    /// The creation of a namespace by a member of tenants.
    CreateNamespace,
    /// A read of a namespace that may be none of the caller's; a refusal is shown as 404.
    ReadNamespace,
    /// A read of an object in a namespace that no tenant has yet and one of the caller's may create;
    /// a refusal is shown as 404.
    ReadInUnknownNamespace,
}

impl Interception {
    /// The view of a list or watch with the broker's own credential, so that it is closed when that
    /// changes or a membership ends that grants it.
    pub(super) fn broker_read_view(
        &self,
        principal: &Principal,
        cluster: &Cluster,
    ) -> Option<Arc<BrokerReadView>> {
        let Self::BrokerRead(own) = self else { return None };
        Some(Arc::new(BrokerReadView {
            caller: principal.caller.clone(),
            memberships: principal.memberships(cluster.name(), own.shown.tenants()),
            shown: own.shown.clone(),
        }))
    }

    /// Whether a refusal is shown as 404.
    pub(super) fn is_shown_as_not_found(&self) -> bool {
        matches!(self, Self::ReadNamespace | Self::ReadInUnknownNamespace)
    }
}

/// A request that is sent with the broker's own credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrokerReadRequest {
    pub(super) read: BrokerRead,
    /// The objects that it may show.
    pub(super) shown: VisibleObjects,
}

/// The representation that `Accept` asks for (API concepts, "Alternate representations of
/// resources").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Representation {
    /// The objects.
    Plain,
    /// A table of columns and rows, as kubectl shows it.
    Table,
    /// The metadata of the objects only.
    Metadata,
}

impl Representation {
    /// The first representation in `Accept` that is JSON.
    pub(super) fn negotiate(headers: &HeaderMap) -> Option<Self> {
        let Some(accept) = headers.get(header::ACCEPT) else { return Some(Self::Plain) };
        accept.to_str().ok()?.split(',').find_map(|item| {
            let mut parts = item.split(';').map(str::trim);
            let is_json = matches!(parts.next()?, "application/json" | "application/*" | "*/*");
            let parameters: Vec<&str> = parts.collect();
            let kind = parameters.iter().find_map(|parameter| parameter.strip_prefix("as="));
            match kind {
                _ if !is_json => None,
                None => Some(Self::Plain),
                Some(_) if !parameters.contains(&"v=v1") => None,
                Some("Table") => Some(Self::Table),
                Some("PartialObjectMetadataList") => Some(Self::Metadata),
                Some(_) => None,
            }
        })
    }

    /// The `Accept` header of the request for the single object.
    fn accept(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Plain => "application/json",
            Self::Table => "application/json;as=Table;v=v1;g=meta.k8s.io",
            Self::Metadata => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        })
    }
}

/// The resource whose collection the path names, if the gateway reads it with the broker's own
/// credential. The path is compared as a whole: a longer one is another resource.
pub(super) fn broker_read_resource(target: &Target<'_>) -> Option<BrokerReadResource> {
    match target.path_and_query.split('?').next()? {
        NAMESPACES => Some(BrokerReadResource::Namespaces),
        path => ClusterList::of_path(path).map(BrokerReadResource::ClusterList),
    }
}

/// Decides how to handle a request of the user with this namespace.
pub(super) fn intercept(
    method: &Method,
    target: &Target<'_>,
    headers: &HeaderMap,
    own_namespace: &str,
) -> Interception {
    let path_and_query = target.path_and_query;
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let accepts_json = || Representation::negotiate(headers) == Some(Representation::Plain);
    match (method, path) {
        (&Method::GET, NAMESPACES)
            if target.kind == Kind::Watch && selects_own_namespace(query, own_namespace, true) =>
        {
            Interception::Watch(format!("/api/v1/watch/namespaces/{own_namespace}?{query}"))
        }
        (&Method::GET, NAMESPACES)
            if target.kind == Kind::Call && selects_own_namespace(query, own_namespace, false) =>
        {
            Representation::negotiate(headers).map_or(Interception::PassThrough, Interception::List)
        }
        (&Method::POST, ACCESS_REVIEWS) if accepts_json() => Interception::AccessReview,
        (&Method::POST, SELF_REVIEWS) if accepts_json() => Interception::SelfReview,
        _ => Interception::PassThrough,
    }
}

/// Whether the selectors, if there are any, select the own namespace. A label selector is left to
/// the API server, which can apply it only to a watch.
fn selects_own_namespace(query: &str, own_namespace: &str, labels: bool) -> bool {
    url::form_urlencoded::parse(query.as_bytes()).all(|(key, value)| match &*key {
        "fieldSelector" => [
            "",
            &format!("metadata.name={own_namespace}"),
            &format!("metadata.name=={own_namespace}"),
        ]
        .contains(&&*value),
        "labelSelector" => labels || value.is_empty(),
        "continue" => value.is_empty(),
        _ => true,
    })
}

/// Changes a client's headers for a request with another body and a response that the gateway can
/// parse: JSON, not compressed and not conditional.
pub(super) fn prepare_headers(headers: &mut HeaderMap, representation: Representation) {
    headers.insert(header::ACCEPT, representation.accept());
    headers.remove(header::ACCEPT_ENCODING);
    headers.remove(header::IF_NONE_MATCH);
    headers.remove(header::CONTENT_LENGTH);
}

/// The paths that a list is built from: a list for its `resourceVersion`, and the namespace.
pub(super) fn list_paths(own_namespace: &str) -> [String; 2] {
    // The version is read first: a watch that starts there repeats what changes in between.
    [
        format!("{NAMESPACES}/{own_namespace}/limitranges?limit=1"),
        format!("{NAMESPACES}/{own_namespace}"),
    ]
}

/// Builds the list of one namespace; `None` if a response cannot be parsed.
pub(super) fn namespace_list(
    representation: Representation,
    versioned: &[u8],
    namespace: &[u8],
) -> Option<Bytes> {
    let versioned: Value = serde_json::from_slice(versioned).ok()?;
    let version = versioned["metadata"]["resourceVersion"].as_str()?;
    let mut object: Value = serde_json::from_slice(namespace).ok()?;
    let metadata = json!({"resourceVersion": version});
    let list = match representation {
        Representation::Table => {
            object["metadata"] = metadata;
            object
        }
        Representation::Plain => {
            let fields = object.as_object_mut()?;
            fields.remove("kind");
            fields.remove("apiVersion");
            json!({"kind": "NamespaceList", "apiVersion": "v1", "metadata": metadata,
                "items": [object]})
        }
        Representation::Metadata => json!({"kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": [object]}),
    };
    Some(list.to_string().into())
}

/// The reason that the gateway allows a list or watch of namespaces.
pub(super) const LISTS_NAMESPACES: &str =
    "tenant-broker: the gateway lists the namespaces that are yours";
/// The reason that the gateway allows a list or watch of a cluster-scoped resource.
pub(super) const LISTS_GRANTED: &str =
    "tenant-broker: the gateway lists this resource, because a Tenant grants it to you";
/// The reason that the gateway allows the creation of namespaces.
pub(super) const CREATES_NAMESPACES: &str =
    "tenant-broker: the gateway creates the namespaces of tenants that you own";

/// Sets a `SelfSubjectAccessReview` to allowed, for this reason.
pub(super) fn allow_review(response: &[u8], reason: &str) -> Option<Bytes> {
    let mut review: Value = serde_json::from_slice(response).ok()?;
    review["status"] = json!({"allowed": true, "reason": reason});
    Some(review.to_string().into())
}

/// Adds rules to the `resourceRules` of a `SelfSubjectRulesReview`.
pub(super) fn add_rules(response: &[u8], rules: Vec<Value>) -> Option<Bytes> {
    let mut review: Value = serde_json::from_slice(response).ok()?;
    let all = review.get_mut("status")?.get_mut("resourceRules")?;
    if all.is_null() {
        *all = json!([]);
    }
    all.as_array_mut()?.extend(rules);
    Some(review.to_string().into())
}

/// Adds the user to a `SelfSubjectReview`, next to the ServiceAccount that acts for them.
pub(super) fn add_user(response: &[u8], user: &str, email: &str) -> Option<Bytes> {
    let mut review: Value = serde_json::from_slice(response).ok()?;
    let user_info = &mut review["status"]["userInfo"];
    if !user_info.is_object() {
        return None;
    }
    for (name, value) in USER_EXTRA_KEYS.into_iter().zip([user, email]) {
        user_info["extra"][name] = json!([value]);
    }
    Some(review.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::super::kubernetes_api::path::parse;
    use super::*;

    fn read(method: &Method, path: &str, headers: &[(&str, &str)]) -> Interception {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(
                http::HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        let uri = format!("/clusters/c{path}").parse().unwrap();
        intercept(method, &parse(&uri).unwrap(), &map, "tenant-a")
    }

    #[test]
    fn only_lists_and_watches_of_namespaces_are_intercepted() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;\
                       v=v1beta1;g=meta.k8s.io,application/json";
        let protobuf = "application/vnd.kubernetes.protobuf";
        for (path, accept, expected) in [
            ("/api/v1/namespaces?limit=500", kubectl, Interception::List(Representation::Table)),
            ("/api/v1/namespaces", "application/json", Interception::List(Representation::Plain)),
            ("/api/v1/namespaces", "*/*", Interception::List(Representation::Plain)),
            (
                "/api/v1/namespaces",
                &format!("{protobuf},application/json"),
                Interception::List(Representation::Plain),
            ),
            (
                "/api/v1/namespaces",
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Interception::List(Representation::Metadata),
            ),
            (
                "/api/v1/namespaces?fieldSelector=metadata.name%3Dtenant-a",
                "*/*",
                Interception::List(Representation::Plain),
            ),
            (
                "/api/v1/namespaces?watch=1&resourceVersion=7",
                protobuf,
                Interception::Watch(
                    "/api/v1/watch/namespaces/tenant-a?watch=1&resourceVersion=7".to_owned(),
                ),
            ),
            ("/api/v1/namespaces", protobuf, Interception::PassThrough),
            (
                "/api/v1/namespaces?fieldSelector=metadata.name%3Dother",
                kubectl,
                Interception::PassThrough,
            ),
            ("/api/v1/namespaces?labelSelector=a%3Db", kubectl, Interception::PassThrough),
            ("/api/v1/namespaces/tenant-a", kubectl, Interception::PassThrough),
            ("/api/v1/namespaces/tenant-a/pods", kubectl, Interception::PassThrough),
        ] {
            assert_eq!(
                read(&Method::GET, path, &[("accept", accept)]),
                expected,
                "{path} {accept}"
            );
        }
        for method in [Method::POST, Method::DELETE] {
            assert_eq!(read(&method, NAMESPACES, &[]), Interception::PassThrough);
        }
    }

    #[test]
    fn a_request_with_another_body_does_not_have_the_client_s_length() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::CONTENT_LENGTH, "10"),
            (header::ACCEPT_ENCODING, "gzip"),
            (header::IF_NONE_MATCH, "\"x\""),
            (header::ACCEPT, "application/yaml"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        prepare_headers(&mut headers, Representation::Plain);
        assert_eq!(headers.len(), 1, "{headers:?}");
        assert_eq!(headers[header::ACCEPT], "application/json");
    }

    #[test]
    fn rules_are_added_to_those_of_the_api_server() {
        let rule = |resource: &str| json!({"verbs": ["list"], "resources": [resource]});
        let review = json!({"kind": "SelfSubjectRulesReview", "status": {
            "resourceRules": [rule("pods")], "nonResourceRules": [], "incomplete": false,
        }});
        let added = add_rules(review.to_string().as_bytes(), vec![rule("nodes")]).unwrap();
        let added: Value = serde_json::from_slice(&added).unwrap();
        assert_eq!(added["status"]["resourceRules"], json!([rule("pods"), rule("nodes")]));
        assert_eq!(added["kind"], review["kind"]);
        let none = br#"{"status": {"resourceRules": null}}"#;
        let added: Value =
            serde_json::from_slice(&add_rules(none, vec![rule("a")]).unwrap()).unwrap();
        assert_eq!(added["status"]["resourceRules"], json!([rule("a")]));
        for other in ["", "[]", "{}", "{\"status\": 1}", "{\"status\": {\"resourceRules\": 1}}"] {
            assert_eq!(add_rules(other.as_bytes(), vec![rule("nodes")]), None, "{other}");
        }
    }

    #[test]
    fn a_namespace_list_carries_a_resource_version() {
        let version = br#"{"metadata": {"resourceVersion": "9"}, "items": []}"#;
        let object = br#"{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "n"}}"#;
        let read = |representation| -> Value {
            serde_json::from_slice(&namespace_list(representation, version, object).unwrap())
                .unwrap()
        };
        assert_eq!(
            read(Representation::Plain),
            json!({"kind": "NamespaceList", "apiVersion": "v1",
                "metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "n"}}]})
        );
        assert_eq!(read(Representation::Metadata)["items"][0]["kind"], "Namespace");
        assert_eq!(read(Representation::Table)["metadata"]["resourceVersion"], "9");
        assert_eq!(namespace_list(Representation::Plain, b"{}", object), None);
        assert_eq!(namespace_list(Representation::Plain, b"<html>", object), None);
    }
}
