//! Tests that the broker's own credential is sent with nothing but reads of the selected objects.

use proptest::prelude::*;

use super::*;

fn read(query: &str) -> BrokerRead {
    BrokerRead::namespaces(["lunar", "solar"], query, false).unwrap()
}

/// The parameters of a read, decoded.
fn parameters(read: &BrokerRead) -> Vec<(String, String)> {
    let (path, query) = read.path_and_query.split_once('?').unwrap();
    assert_eq!(path, read.resource.path());
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

fn selector(read: &BrokerRead) -> String {
    let parameters = parameters(read);
    let mut selectors = parameters.iter().filter(|(name, _)| name == "labelSelector");
    let (_, selector) = selectors.next().unwrap();
    assert!(selectors.next().is_none(), "two selectors: {parameters:?}");
    selector.clone()
}

const SCOPE: &str = "tenant-broker.io/tenant in (lunar,solar),!tenant-broker.io/home";

fn reader(identity: AuthInfo) -> BrokerReader {
    let mut config = Config::new("https://127.0.0.1:1/prefix".parse().unwrap());
    config.auth_info = identity;
    BrokerReader::new(&config).unwrap()
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
        let refused = BrokerRead::namespaces(["solar"], query, false);
        assert!(matches!(refused, Err(BrokerReadError::Selector(_))), "{query}: {refused:?}");
    }
}

#[test]
fn no_tenant_selects_nothing() {
    for names in [&[][..], &[""], &["a,b"], &["a)"], &["A"], &["a b"]] {
        let refused = BrokerRead::namespaces(names.iter().copied(), "", false);
        assert_eq!(refused, Err(BrokerReadError::NoTenant), "{names:?}");
    }
}

fn node_selectors(pools: &[&str]) -> BTreeSet<RequiredLabels> {
    let selector = |pool: &&str| RequiredLabels::from([("pool".to_owned(), (*pool).to_owned())]);
    pools.iter().map(selector).collect()
}

fn nodes(pools: &[&str], query: &str) -> Result<BrokerRead, BrokerReadError> {
    BrokerRead::cluster_list(ClusterList::Nodes, &node_selectors(pools), query, false)
}

#[test]
fn nodes_are_never_read_without_a_selector() {
    assert_eq!(nodes(&[], ""), Err(BrokerReadError::NoSelector));
    assert_eq!(nodes(&[], "labelSelector=pool%3Da"), Err(BrokerReadError::NoSelector));
    assert_eq!(nodes(&["a,b"], ""), Err(BrokerReadError::NoLabel("pool=a,b".to_owned())));
    assert_eq!(selector(&nodes(&["a"], "").unwrap()), "pool=a");
    let narrowed = nodes(&["a", "b"], "labelSelector=pool+in+%28b%2Cc%29%2Cx").unwrap();
    assert_eq!(selector(&narrowed), "pool in (a,b),pool in (b,c),x");
    for query in ["labelSelector=x%29", "labelSelector=x%2C"] {
        assert!(matches!(nodes(&["a"], query), Err(BrokerReadError::Selector(_))), "{query}");
    }
}

#[test]
fn classes_are_read_as_a_whole_or_with_the_clients_selector() {
    let classes = |query| {
        let list = ClusterList::StorageClasses;
        parameters(&BrokerRead::cluster_list(list, &node_selectors(&["a"]), query, false).unwrap())
    };
    assert!(classes("").is_empty());
    let expected = [("labelSelector".to_owned(), "tier==fast".to_owned())];
    assert_eq!(classes("labelSelector=tier%3D%3Dfast&dryRun=All"), expected);
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
    let watch = BrokerRead::namespaces(["solar"], "watch=0&allowWatchBookmarks=true", true);
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

    let accept = HeaderValue::from_static("application/json;as=Secret");
    let client = ReadClient { accept: Some(&accept), request_id: "r-1\r\nx: y", address: None };
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
    /// Whatever a client sends, the request is for nodes of these pools, or for the classes.
    #[test]
    fn no_query_reads_another_resource_or_other_nodes(
        query in "(labelSelector|fieldSelector|watch|limit|[a-z]|=|&|%2[0-9C]|%3D|[ ,()!#?/;+%]){0,20}",
        list in proptest::sample::select(ClusterList::ALL.to_vec()),
        is_watch in any::<bool>(),
    ) {
        let pools = node_selectors(&["a", "b"]);
        if let Ok(read) = BrokerRead::cluster_list(list, &pools, &query, is_watch) {
            let uri: http::Uri = read.path_and_query.parse().unwrap();
            prop_assert_eq!(ClusterList::of_path(uri.path()), Some(list));
            let names: Vec<String> = parameters(&read).into_iter().map(|(name, _)| name).collect();
            let is_known = |name: &String| {
                ["labelSelector", "watch"].contains(&&**name) || PASSED.contains(&&**name)
            };
            prop_assert!(names.iter().all(is_known), "{:?}", names);
            let distinct: BTreeSet<&String> = names.iter().collect();
            prop_assert_eq!(distinct.len(), names.len());
            prop_assert_eq!(names.iter().any(|name| name == "watch"), is_watch);
            if list == ClusterList::Nodes {
                let selector = selector(&read);
                let scope = "pool in (a,b)";
                let is_narrowed = selector.starts_with(&format!("{scope},"));
                prop_assert!(selector == scope || is_narrowed, "{}", selector);
            }
        }
    }

    /// Whatever a client sends, the request is for namespaces of these tenants.
    #[test]
    fn no_query_leaves_the_selection(
        query in "(labelSelector|fieldSelector|watch|limit|[a-z]|=|&|%2[0-9C]|%3D|[ ,()!#?/;+%]){0,20}"
    ) {
        if let Ok(read) = BrokerRead::namespaces(["lunar", "solar"], &query, false) {
            let selector = selector(&read);
            let is_narrowed = selector.starts_with(&format!("{SCOPE},"));
            prop_assert!(selector == SCOPE || is_narrowed);
            prop_assert!(super::selector::parse(&selector).is_ok());
            let uri: http::Uri = read.path_and_query.parse().unwrap();
            prop_assert_eq!(uri.path(), "/api/v1/namespaces");
        }
    }
}
