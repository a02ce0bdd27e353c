//! Tests that the broker's own credential is sent with nothing but reads of tenants' namespaces.

use proptest::prelude::*;

use super::*;

fn read(query: &str) -> OwnNamespacesRead {
    OwnNamespacesRead::new(["lunar", "solar"], query, false).unwrap()
}

/// The parameters of a read, decoded.
fn parameters(read: &OwnNamespacesRead) -> Vec<(String, String)> {
    let (path, query) = read.path_and_query.split_once('?').unwrap();
    assert_eq!(path, "/api/v1/namespaces");
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

fn selector(read: &OwnNamespacesRead) -> String {
    let parameters = parameters(read);
    let mut selectors = parameters.iter().filter(|(name, _)| name == "labelSelector");
    let (_, selector) = selectors.next().unwrap();
    assert!(selectors.next().is_none(), "two selectors: {parameters:?}");
    selector.clone()
}

const SCOPE: &str = "tenant-broker.io/tenant in (lunar,solar),!tenant-broker.io/home";

fn reader(identity: AuthInfo) -> OwnReader {
    let mut config = Config::new("https://127.0.0.1:1/prefix".parse().unwrap());
    config.auth_info = identity;
    OwnReader::new(&config).unwrap()
}

#[test]
fn a_clients_selector_narrows_the_selection() {
    assert_eq!(selector(&read("")), SCOPE);
    assert_eq!(selector(&read("labelSelector=")), SCOPE);
    assert_eq!(selector(&read("labelSelector=a%3Db%2C%21c")), format!("{SCOPE},a=b,!c"));
    let other = read("labelSelector=tenant-broker.io%2Ftenant+in+%28stellar%29");
    assert_eq!(selector(&other), format!("{SCOPE},tenant-broker.io/tenant in (stellar)"));
    // The API server uses the first value, so a second one is not sent.
    assert_eq!(selector(&read("labelSelector=a&labelSelector=b")), format!("{SCOPE},a"));
    for query in ["labelSelector=a%29", "labelSelector=a%2C", "labelSelector=a%0A%26b"] {
        let refused = OwnNamespacesRead::new(["solar"], query, false);
        assert!(matches!(refused, Err(OwnReadError::Selector(_))), "{query}: {refused:?}");
    }
}

#[test]
fn no_tenant_selects_nothing() {
    for names in [&[][..], &[""], &["a,b"], &["a)"], &["A"], &["a b"]] {
        let refused = OwnNamespacesRead::new(names.iter().copied(), "", false);
        assert_eq!(refused, Err(OwnReadError::NoTenant), "{names:?}");
    }
}

#[test]
fn only_known_parameters_are_sent() {
    let query = "limit=500&continue=a%26b&watch=1&pretty=true&dryRun=All&fieldManager=x&%6cimit=7&\
                 fieldSelector=metadata.name%3Da&as=admin&includeObject=Object";
    let expected = [
        ("labelSelector", SCOPE),
        ("fieldSelector", "metadata.name=a"),
        ("limit", "500"),
        ("continue", "a&b"),
        ("includeObject", "Object"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(parameters(&read(query)), expected);
    let watch = OwnNamespacesRead::new(["solar"], "watch=0&allowWatchBookmarks=true", true);
    let watched = parameters(&watch.unwrap());
    let names: Vec<&str> = watched.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["labelSelector", "watch", "allowWatchBookmarks"]);
    assert_eq!(watched[1].1, "true");
}

#[test]
fn the_request_is_a_read_with_four_headers_at_most() {
    let reader = reader(AuthInfo { token: Some("t".into()), ..AuthInfo::default() });
    let accept = HeaderValue::from_static("application/json");
    let client = ReadClient {
        accept: Some(&accept),
        request_id: "r-1",
        address: Some([192, 0, 2, 1].into()),
    };
    let request = reader.request(&read("limit=1"), client).unwrap();
    assert_eq!(request.method(), Method::GET);
    assert_eq!(request.uri().host(), Some("127.0.0.1"));
    assert_eq!(request.uri().path(), "/prefix/api/v1/namespaces");
    let mut names: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "audit-id", "authorization", "x-forwarded-for"]);
    let authorization = &request.headers()[header::AUTHORIZATION];
    assert!(authorization.is_sensitive());
    assert_eq!(authorization, "Bearer t");

    let client = ReadClient { accept: None, request_id: "r-1\r\nx: y", address: None };
    let request = reader.request(&read(""), client).unwrap();
    assert_eq!(request.headers().len(), 1, "{:?}", request.headers());
}

#[test]
fn a_credential_without_a_token_has_no_header() {
    assert_eq!(reader(AuthInfo::default()).authorization, None);
    let identity = AuthInfo {
        username: Some("a".to_owned()),
        password: Some("b".into()),
        ..AuthInfo::default()
    };
    assert_eq!(reader(identity).authorization.unwrap(), "Basic YTpi");
    let broken = AuthInfo { token: Some("a\nb".into()), ..AuthInfo::default() };
    assert!(matches!(authorization(&broken), Err(ConnectError::Token)));
}

proptest! {
    /// Whatever a client sends, the request is for namespaces of these tenants.
    #[test]
    fn no_query_leaves_the_selection(
        query in "(labelSelector|fieldSelector|watch|limit|[a-z]|=|&|%2[0-9C]|%3D|[ ,()!#?/;+%]){0,20}"
    ) {
        if let Ok(read) = OwnNamespacesRead::new(["lunar", "solar"], &query, false) {
            let selector = selector(&read);
            let is_narrowed = selector.starts_with(&format!("{SCOPE},"));
            prop_assert!(selector == SCOPE || is_narrowed);
            prop_assert!(super::selector::parse(&selector).is_ok());
            let uri: http::Uri = read.path_and_query.parse().unwrap();
            prop_assert_eq!(uri.path(), PATH);
        }
    }
}
