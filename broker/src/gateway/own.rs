//! What a tenant expects and RBAC cannot give: a list of the namespaces that are theirs.
//!
//! RBAC knows no list of some objects. So the list is made of the one namespace that the person may
//! read, and a watch becomes a watch of that one. Whether they may is the API server's decision all
//! the same, for it is asked with their token; whatever else is asked for goes on as it was written.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Value, json};

use super::path::{Kind, Target};

/// Bytes of an answer that is read and made anew, at most.
pub(super) const MOST_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of a review that is read, at most.
pub(super) const MOST_REVIEW_BYTES: usize = 64 * 1024;
const NAMESPACES: &str = "/api/v1/namespaces";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// Where a review of oneself names the person and their address.
const PERSON: [&str; 2] = ["tenant-broker.io/user-id", "tenant-broker.io/email"];

/// What is asked for, as far as the gateway has a part in the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing of that: it goes on as it was written.
    AsWritten,
    /// A watch of the person's namespaces: it goes on with this path and query.
    Watch(String),
    /// A list of them, in this form.
    List(Form),
    /// Whether the person may do something.
    AccessReview,
    /// Who the person is.
    SelfReview,
}

/// The form of an answer, as `Accept` asks for it (API concepts, "Alternate representations").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The object.
    Plain,
    /// Columns and rows, as kubectl shows them.
    Table,
    /// Metadata only.
    Metadata,
}

impl Form {
    /// The first form that the client takes and that is written in JSON.
    fn wanted(headers: &HeaderMap) -> Option<Self> {
        let Some(accept) = headers.get(header::ACCEPT) else { return Some(Self::Plain) };
        accept.to_str().ok()?.split(',').find_map(|item| {
            let mut parts = item.split(';').map(str::trim);
            let is_json = matches!(parts.next()?, "application/json" | "application/*" | "*/*");
            let parameters: Vec<&str> = parts.collect();
            let form = parameters.iter().find_map(|parameter| parameter.strip_prefix("as="));
            match form {
                _ if !is_json => None,
                None => Some(Self::Plain),
                Some(_) if !parameters.contains(&"v=v1") => None,
                Some("Table") => Some(Self::Table),
                Some("PartialObjectMetadataList") => Some(Self::Metadata),
                Some(_) => None,
            }
        })
    }

    /// How the one object is asked for.
    fn accept(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Plain => "application/json",
            Self::Table => "application/json;as=Table;v=v1;g=meta.k8s.io",
            Self::Metadata => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        })
    }
}

/// Reads what is asked for, of somebody whose namespace this is.
pub(super) fn asked(method: &Method, target: &Target<'_>, headers: &HeaderMap, own: &str) -> Asked {
    let whole = target.path_and_query;
    let (path, query) = whole.split_once('?').unwrap_or((whole, ""));
    let takes_json = || Form::wanted(headers) == Some(Form::Plain);
    match (method, path) {
        (&Method::GET, NAMESPACES) if target.kind == Kind::Watch && is_of_own(query, own, true) => {
            Asked::Watch(format!("/api/v1/watch/namespaces/{own}?{query}"))
        }
        (&Method::GET, NAMESPACES) if target.kind == Kind::Call && is_of_own(query, own, false) => {
            Form::wanted(headers).map_or(Asked::AsWritten, Asked::List)
        }
        (&Method::POST, ACCESS_REVIEWS) if takes_json() => Asked::AccessReview,
        (&Method::POST, SELF_REVIEWS) if takes_json() => Asked::SelfReview,
        _ => Asked::AsWritten,
    }
}

/// Whether a selector leaves the own namespace in, or there is none. Labels are left to the API
/// server, which knows them only where one namespace is asked for: in a watch.
fn is_of_own(query: &str, own: &str, labels: bool) -> bool {
    url::form_urlencoded::parse(query.as_bytes()).all(|(key, value)| match &*key {
        "fieldSelector" => ["", &format!("metadata.name={own}"), &format!("metadata.name=={own}")]
            .contains(&&*value),
        "labelSelector" => labels || value.is_empty(),
        "continue" => value.is_empty(),
        _ => true,
    })
}

/// Makes a client's headers those of a question whose answer is read here.
pub(super) fn readable(headers: &mut HeaderMap, form: Form) {
    headers.insert(header::ACCEPT, form.accept());
    headers.remove(header::ACCEPT_ENCODING);
    headers.remove(header::IF_NONE_MATCH);
}

/// The paths of which a list is made: one whose answer says how new it is, and the namespace.
pub(super) fn paths(own: &str) -> [String; 2] {
    // The version comes first: what changes in between, a watch that begins there shows again.
    [format!("{NAMESPACES}/{own}/limitranges?limit=1"), format!("{NAMESPACES}/{own}")]
}

/// The list of this one namespace. None if an answer is none of the API server's.
pub(super) fn list(form: Form, versioned: &[u8], namespace: &[u8]) -> Option<Bytes> {
    let versioned: Value = serde_json::from_slice(versioned).ok()?;
    let version = versioned["metadata"]["resourceVersion"].as_str()?;
    let mut found: Value = serde_json::from_slice(namespace).ok()?;
    let metadata = json!({"resourceVersion": version});
    let list = match form {
        Form::Table => {
            found["metadata"] = metadata;
            found
        }
        Form::Plain => {
            let object = found.as_object_mut()?;
            object.remove("kind");
            object.remove("apiVersion");
            json!({"kind": "NamespaceList", "apiVersion": "v1", "metadata": metadata,
                "items": [found]})
        }
        Form::Metadata => json!({"kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": [found]}),
    };
    Some(list.to_string().into())
}

/// The answer to such a review.
pub(super) fn allowed(answer: &[u8]) -> Option<Bytes> {
    let mut review: Value = serde_json::from_slice(answer).ok()?;
    review["status"] = json!({
        "allowed": true,
        "reason": "tenant-broker: the gateway lists the namespaces that are yours",
    });
    Some(review.to_string().into())
}

/// The answer to a review of oneself, with the person beside the account that acts for them.
pub(super) fn with_person(answer: &[u8], user: &str, email: &str) -> Option<Bytes> {
    let mut review: Value = serde_json::from_slice(answer).ok()?;
    let extra = &mut review["status"]["userInfo"];
    if !extra.is_object() {
        return None;
    }
    for (name, value) in PERSON.into_iter().zip([user, email]) {
        extra["extra"][name] = json!([value]);
    }
    Some(review.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::{super::path::parse, *};

    fn read(method: &Method, path: &str, headers: &[(&str, &str)]) -> Asked {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(
                http::HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        let uri = format!("/clusters/c{path}").parse().unwrap();
        asked(method, &parse(&uri).unwrap(), &map, "tenant-a")
    }

    #[test]
    fn a_list_of_namespaces_is_the_own_one_and_all_else_goes_on() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;\
                       v=v1beta1;g=meta.k8s.io,application/json";
        let protobuf = "application/vnd.kubernetes.protobuf";
        for (path, accept, expected) in [
            ("/api/v1/namespaces?limit=500", kubectl, Asked::List(Form::Table)),
            ("/api/v1/namespaces", "application/json", Asked::List(Form::Plain)),
            ("/api/v1/namespaces", "*/*", Asked::List(Form::Plain)),
            (
                "/api/v1/namespaces",
                &format!("{protobuf},application/json"),
                Asked::List(Form::Plain),
            ),
            (
                "/api/v1/namespaces",
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Asked::List(Form::Metadata),
            ),
            (
                "/api/v1/namespaces?fieldSelector=metadata.name%3Dtenant-a",
                "*/*",
                Asked::List(Form::Plain),
            ),
            (
                "/api/v1/namespaces?watch=1&resourceVersion=7",
                protobuf,
                Asked::Watch(
                    "/api/v1/watch/namespaces/tenant-a?watch=1&resourceVersion=7".to_owned(),
                ),
            ),
            ("/api/v1/namespaces", protobuf, Asked::AsWritten),
            ("/api/v1/namespaces?fieldSelector=metadata.name%3Dother", kubectl, Asked::AsWritten),
            ("/api/v1/namespaces?labelSelector=a%3Db", kubectl, Asked::AsWritten),
            ("/api/v1/namespaces/tenant-a", kubectl, Asked::AsWritten),
            ("/api/v1/namespaces/tenant-a/pods", kubectl, Asked::AsWritten),
        ] {
            assert_eq!(
                read(&Method::GET, path, &[("accept", accept)]),
                expected,
                "{path} {accept}"
            );
        }
        for method in [Method::POST, Method::DELETE] {
            assert_eq!(read(&method, NAMESPACES, &[]), Asked::AsWritten);
        }
    }

    #[test]
    fn a_list_says_how_new_it_is() {
        let version = br#"{"metadata": {"resourceVersion": "9"}, "items": []}"#;
        let object = br#"{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "n"}}"#;
        let read = |form| -> Value {
            serde_json::from_slice(&list(form, version, object).unwrap()).unwrap()
        };
        assert_eq!(
            read(Form::Plain),
            json!({"kind": "NamespaceList", "apiVersion": "v1",
                "metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "n"}}]})
        );
        assert_eq!(read(Form::Metadata)["items"][0]["kind"], "Namespace");
        assert_eq!(read(Form::Table)["metadata"]["resourceVersion"], "9");
        assert_eq!(list(Form::Plain, b"{}", object), None);
        assert_eq!(list(Form::Plain, b"<html>", object), None);
    }
}
