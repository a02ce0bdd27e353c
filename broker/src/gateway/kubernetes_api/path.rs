//! Parser of request paths: `/clusters/{cluster}/…`. Pure.
//!
//! The path is forwarded byte for byte as it was parsed here: nothing is decoded, joined or
//! normalized. An ambiguous path, which two parsers may read in different ways, is refused (RFC
//! 3986 section 6 lists equivalent spellings).

use http::Uri;
use tenant_shared::GATEWAY_PATH;

/// The limit of path and query in bytes; `exec` carries its command line in the query.
const MAX_BYTES: usize = 32 * 1024;

/// Kind of a request, as far as the gateway distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::gateway) enum Kind {
    /// A request with a response that ends.
    Call,
    Watch,
    /// `logs -f`.
    Follow,
    /// `exec`, `attach` or `port-forward`.
    Session,
    /// A request to a tenant's program behind `/proxy/`.
    Proxy,
}

impl Kind {
    /// All kinds.
    pub(in crate::gateway) const ALL: [Self; 5] =
        [Self::Call, Self::Watch, Self::Follow, Self::Session, Self::Proxy];

    /// The name in log lines and metrics.
    pub(in crate::gateway) fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Watch => "watch",
            Self::Follow => "follow",
            Self::Session => "session",
            Self::Proxy => "proxy",
        }
    }

    /// Whether it is a stream, which stays open until one side ends it.
    pub(in crate::gateway) fn is_stream(self) -> bool {
        self != Self::Call
    }
}

/// The parsed target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct Target<'a> {
    /// Name of the cluster.
    pub(in crate::gateway) cluster: &'a str,
    /// The path prefix of the cluster: `/clusters/CLUSTER`.
    pub(in crate::gateway) gateway_prefix: &'a str,
    /// Path and query for the API server, unchanged.
    pub(in crate::gateway) path_and_query: &'a str,
    /// The namespace that the path names.
    pub(in crate::gateway) namespace: Option<&'a str>,
    /// The resource that the path names, for example `pods`.
    pub(in crate::gateway) resource: Option<&'a str>,
    /// The name of the object that the path names.
    pub(in crate::gateway) name: Option<&'a str>,
    /// Kind of the request.
    pub(in crate::gateway) kind: Kind,
}

/// A path that the gateway does not forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::gateway) enum PathError {
    /// Path and query are longer than [`MAX_BYTES`].
    #[error("path and query may have 32 KiB at most")]
    TooLong,
    /// It names no cluster.
    #[error("the path is /clusters/CLUSTER/…, and the cluster's name is missing")]
    NoCluster,
    /// It has an empty segment.
    #[error("the path has an empty segment (//); remove it")]
    EmptySegment,
    /// A segment is `.` or `..`, plain or encoded.
    #[error("the path has a segment that is . or ..; remove it")]
    Dots,
    /// It has a backslash or control character, plain or encoded, or an encoded slash, percent
    /// sign, letter or digit.
    #[error(
        "the path has an encoded slash, backslash, percent sign, control character, letter or digit in \
         a name; write letters and digits as they are"
    )]
    Encoded,
    /// It has a percent sign without two hexadecimal digits.
    #[error("the path has a percent sign without two hexadecimal digits")]
    BadEscape,
}

/// Parses the target of a request. The scheme and host of an absolute URI are ignored.
///
/// # Errors
/// The path must not be forwarded; see [`PathError`].
pub(in crate::gateway) fn parse(uri: &Uri) -> Result<Target<'_>, PathError> {
    let whole = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    if whole.len() > MAX_BYTES {
        return Err(PathError::TooLong);
    }
    let rest = whole.strip_prefix(GATEWAY_PATH).ok_or(PathError::NoCluster)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (cluster, path_and_query) = rest.split_at(end);
    if cluster.is_empty() || path_and_query.starts_with('?') {
        return Err(PathError::NoCluster);
    }
    check_segment(cluster)?;
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        // A trailing slash is a different path (`/healthz/`); an empty segment in the middle is
        // ambiguous.
        if segment.is_empty() && segments.peek().is_some() {
            return Err(PathError::EmptySegment);
        }
        check_segment(segment)?;
    }
    let names = ResourcePath::parse(path);
    Ok(Target {
        cluster,
        gateway_prefix: &whole[..GATEWAY_PATH.len() + end],
        path_and_query: if path_and_query.is_empty() { "/" } else { path_and_query },
        namespace: names.namespace,
        resource: names.resource,
        name: names.name,
        kind: names.kind(query),
    })
}

fn check_segment(segment: &str) -> Result<(), PathError> {
    let bytes = segment.as_bytes();
    let (mut dots, mut has_encoded_dot) = (0, false);
    let (mut at, mut characters) = (0, 0);
    while let Some(&byte) = bytes.get(at) {
        let (byte, width) = match byte {
            b'%' => {
                let hex = segment.get(at + 1..at + 3).ok_or(PathError::BadEscape)?;
                if !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return Err(PathError::BadEscape);
                }
                let byte = u8::from_str_radix(hex, 16).map_err(|_| PathError::BadEscape)?;
                // The API server decodes `namespaces/solar%2Da/pods/p/ex%65c` before it parses it, so
                // its meaning would not be recognized here. No client has a reason to encode an
                // unreserved character (RFC 3986 section 2.3).
                let is_unreserved =
                    matches!(byte, b'-' | b'_' | b'~') || byte.is_ascii_alphanumeric();
                if matches!(byte, b'/' | b'%') || is_unreserved {
                    return Err(PathError::Encoded);
                }
                has_encoded_dot |= byte == b'.';
                (byte, 3)
            }
            byte => (byte, 1),
        };
        if byte == b'\\' || byte.is_ascii_control() {
            return Err(PathError::Encoded);
        }
        // Servers that support path parameters treat `..;` as `..`.
        if byte == b';' && characters == dots && dots > 0 {
            return Err(PathError::Dots);
        }
        dots += usize::from(byte == b'.');
        characters += 1;
        at += width;
    }
    if characters == dots && (1..=2).contains(&dots) {
        Err(PathError::Dots)
    } else if has_encoded_dot {
        Err(PathError::Encoded)
    } else {
        Ok(())
    }
}

/// The parts of a resource path (Kubernetes API reference, "Resource URIs").
#[derive(Default)]
struct ResourcePath<'a> {
    watch: bool,
    namespace: Option<&'a str>,
    resource: Option<&'a str>,
    name: Option<&'a str>,
    subresource: Option<&'a str>,
}

impl<'a> ResourcePath<'a> {
    fn parse(path: &'a str) -> Self {
        let mut segments = path.split('/').skip(1).filter(|segment| !segment.is_empty()).peekable();
        let group = match segments.next() {
            Some("api") => 1,
            Some("apis") => 2,
            _ => return Self::default(),
        };
        if segments.by_ref().take(group).count() < group {
            return Self::default();
        }
        let watch = segments.next_if_eq(&"watch").is_some();
        let mut names = Self { watch, ..Self::default() };
        let Some(first) = segments.next() else { return names };
        if first == "namespaces" {
            names.namespace = segments.next();
            match segments.next() {
                // The namespace itself or one of its subresources.
                None | Some("status" | "finalize") => {
                    names.resource = Some("namespaces");
                    names.name = names.namespace;
                    return names;
                }
                resource => names.resource = resource,
            }
        } else {
            names.resource = Some(first);
        }
        names.name = segments.next();
        names.subresource = segments.next();
        names
    }

    fn kind(&self, query: &str) -> Kind {
        // Parsed like `Convert_Slice_string_To_bool` of apimachinery: the first value counts, and
        // only `0` and `false` in any case are false.
        let is_set = |name: &str| {
            url::form_urlencoded::parse(query.as_bytes())
                .find(|(key, _)| key == name)
                .is_some_and(|(_, value)| value != "0" && !value.eq_ignore_ascii_case("false"))
        };
        match (self.resource, self.subresource) {
            (Some("pods"), Some("exec" | "attach" | "portforward")) => Kind::Session,
            (_, Some("proxy")) => Kind::Proxy,
            (Some("pods"), Some("log")) if is_set("follow") => Kind::Follow,
            (Some(_), None) if self.watch || is_set("watch") => Kind::Watch,
            _ => Kind::Call,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<(String, Option<String>, Kind), PathError> {
        let uri: Uri = text.parse().unwrap();
        parse(&uri).map(|target| {
            (target.path_and_query.to_owned(), target.namespace.map(str::to_owned), target.kind)
        })
    }

    #[test]
    fn a_path_is_forwarded_unchanged() {
        for (given, path, namespace, kind) in [
            ("/clusters/c", "/", None, Kind::Call),
            ("/clusters/c/", "/", None, Kind::Call),
            ("/clusters/c/api?timeout=32s", "/api?timeout=32s", None, Kind::Call),
            ("https://broker.example/clusters/c/api", "/api", None, Kind::Call),
            (
                "/clusters/c/api/v1/namespaces/t/pods?limit=500",
                "/api/v1/namespaces/t/pods?limit=500",
                Some("t"),
                Kind::Call,
            ),
            (
                "/clusters/c/apis/apps/v1/namespaces/t/deployments?watch=true",
                "/apis/apps/v1/namespaces/t/deployments?watch=true",
                Some("t"),
                Kind::Watch,
            ),
            (
                "/clusters/c/api/v1/watch/namespaces/t/pods",
                "/api/v1/watch/namespaces/t/pods",
                Some("t"),
                Kind::Watch,
            ),
            (
                "/clusters/c/api/v1/namespaces/t/pods/p/exec?command=a%2Fb&command=..",
                "/api/v1/namespaces/t/pods/p/exec?command=a%2Fb&command=..",
                Some("t"),
                Kind::Session,
            ),
            (
                "/clusters/c/api/v1/namespaces/t/pods/p/log?follow=true",
                "/api/v1/namespaces/t/pods/p/log?follow=true",
                Some("t"),
                Kind::Follow,
            ),
            (
                "/clusters/c/api/v1/namespaces/t/services/http:web:80/proxy/a.b/",
                "/api/v1/namespaces/t/services/http:web:80/proxy/a.b/",
                Some("t"),
                Kind::Proxy,
            ),
            (
                "/clusters/c/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                None,
                Kind::Call,
            ),
        ] {
            assert_eq!(
                read(given),
                Ok((path.to_owned(), namespace.map(str::to_owned), kind)),
                "{given}"
            );
        }
    }

    #[test]
    fn options_are_parsed_as_the_api_server_parses_them() {
        for (value, is_watch) in [
            ("", true),
            ("=", true),
            ("=1", true),
            ("=f", true),
            ("=F", true),
            ("=no", true),
            ("=true&watch=false", true),
            ("=0", false),
            ("=false", false),
            ("=fAlSe", false),
            ("=%66alse", false),
            ("=false&watch=true", false),
        ] {
            let kind = if is_watch { Kind::Watch } else { Kind::Call };
            let path = format!("/clusters/c/api/v1/pods?watch{value}");
            assert_eq!(read(&path).unwrap().2, kind, "{path}");
            let kind = if is_watch { Kind::Follow } else { Kind::Call };
            let value = value.replace("watch", "follow");
            let path = format!("/clusters/c/api/v1/namespaces/t/pods/p/log?follow{value}");
            assert_eq!(read(&path).unwrap().2, kind, "{path}");
        }
    }

    #[test]
    fn a_namespace_is_a_resource_too() {
        let uri: Uri = "/clusters/c/api/v1/namespaces/t".parse().unwrap();
        let target = parse(&uri).unwrap();
        assert_eq!((target.resource, target.name), (Some("namespaces"), Some("t")));
        let uri: Uri = "/clusters/c/api/v1/namespaces".parse().unwrap();
        let target = parse(&uri).unwrap();
        assert_eq!((target.resource, target.name), (Some("namespaces"), None));
    }

    #[test]
    fn an_ambiguous_path_is_refused() {
        for (given, error) in [
            ("/clusters/", PathError::NoCluster),
            ("/clusters/c?a=b", PathError::NoCluster),
            ("/clusters//api", PathError::NoCluster),
            ("/clusters/../api", PathError::Dots),
            ("/clusters/c//api", PathError::EmptySegment),
            ("/clusters/c/api//v1", PathError::EmptySegment),
            ("/clusters/c/api/../apis", PathError::Dots),
            ("/clusters/c/api/.", PathError::Dots),
            ("/clusters/c/api/%2e%2E/apis", PathError::Dots),
            ("/clusters/c/api/.%2e", PathError::Dots),
            ("/clusters/c/api/..;a=b/v1", PathError::Dots),
            ("/clusters/c/api/%2e%2e%3b/v1", PathError::Dots),
            ("/clusters/c/api/v1/namespaces/a%2Fb", PathError::Encoded),
            ("/clusters/c/api/v1/namespaces/a%5cb", PathError::Encoded),
            ("/clusters/c/api/v1/namespaces/a%252Fb", PathError::Encoded),
            ("/clusters/c/api/v1/namespaces/a%00", PathError::Encoded),
            ("/clusters/c/api/v1/namespaces/a%0d%0a", PathError::Encoded),
            ("/clusters/c%2Fd/api", PathError::Encoded),
            ("/clusters/c/api/v1/namespaces/t/pods/p/ex%65c", PathError::Encoded),
            ("/clusters/c/api/v1/namespaces/t/services/s/prox%79/", PathError::Encoded),
            ("/clusters/c/api/v1/%77atch/namespaces/t/pods", PathError::Encoded),
            ("/clusters/c/api/v1/namespaces/solar%2Da/pods", PathError::Encoded),
            ("/clusters/c/api/v1/namespaces/t/pods/a%2Eb", PathError::Encoded),
            ("/clusters/c/api/v1/namespaces/t/pods/a%5Fb%7Ec", PathError::Encoded),
            ("/clusters/c/api/%zz", PathError::BadEscape),
            ("/clusters/c/api/%2", PathError::BadEscape),
        ] {
            assert_eq!(read(given), Err(error), "{given}");
        }
        let long = format!("/clusters/c/{}", "a".repeat(MAX_BYTES));
        assert_eq!(read(&long), Err(PathError::TooLong));
    }

    proptest! {
        #[test]
        fn an_accepted_path_is_unchanged_by_normalization(
            text in "(/|//|[a-z.%;:\\\\]{1,3}|%2[eEfF5]|\\.\\.|namespaces|pods|api|v1|watch){0,12}"
        ) {
            let Ok(uri) = format!("/clusters/c/{text}").parse::<Uri>() else { return Ok(()) };
            if let Ok(target) = parse(&uri) {
                // The path is the same after joining and normalization.
                let base = url::Url::parse("https://k8s.example").unwrap();
                let cleaned = base.join(target.path_and_query).unwrap();
                prop_assert_eq!(cleaned.path().to_lowercase(), target.path_and_query.to_lowercase());
                prop_assert_eq!(cleaned.host_str(), Some("k8s.example"));
                prop_assert!(uri.path().ends_with(target.path_and_query) || target.path_and_query == "/");
            }
        }
    }
}
