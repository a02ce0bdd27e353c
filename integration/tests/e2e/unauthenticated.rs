//! Unauthenticated clients: beyond the limits they cost no transaction, and they do not keep
//! signed-in users out.

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use http::{Method, StatusCode, header};
use integration::api::Api;
use integration::engine::On;
use integration::on_both_engines;
use integration::world::{World, WorldBuilder};
use secrecy::SecretString;
use sqlx::Connection as _;

use crate::refusals::{filled, operations};

/// Number of concurrent requests of one kind. The broker handles 32 of one address at a time.
const CONCURRENT_REQUESTS: usize = 120;
/// Minimum number of these that are refused, however slow the others are.
const MIN_REFUSED: usize = CONCURRENT_REQUESTS - 2 * 32;
/// Requests that the issuer and the pages handle without authentication; all of them need the
/// database.
const BY_ANYBODY: [(Method, &str, &str); 11] = [
    (Method::GET, "login", ""),
    (Method::GET, "login?request=tbq_unknown", ""),
    (Method::POST, "login", "request=tbq_unknown&email=a%40example.com&password=unknown"),
    (Method::POST, "device", "user_code=BCDF-GHJK"),
    (Method::GET, "login/device?request=tbq_unknown", ""),
    (
        Method::GET,
        "oauth2/authorize?client_id=kubectl-tenant&redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2F&\
         response_type=code&scope=openid&code_challenge_method=S256&\
         code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        "",
    ),
    (Method::POST, "oauth2/device_authorization", "client_id=kubectl-tenant&scope=openid"),
    (
        Method::POST,
        "oauth2/token",
        "grant_type=refresh_token&client_id=kubectl-tenant&refresh_token=tbr_unknown",
    ),
    (
        Method::POST,
        "oauth2/token",
        "grant_type=authorization_code&client_id=kubectl-tenant&code=tbc_unknown&\
         redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2F&code_verifier=\
         dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    ),
    (Method::POST, "oauth2/revoke", "client_id=kubectl-tenant&token=tbr_unknown"),
    (Method::POST, "api/v1/auth/login", r#"{"email":"a@example.com","password":"unknown"}"#),
];

/// Allows one request a second per address, with a burst of ten.
fn strict(builder: WorldBuilder) -> WorldBuilder {
    builder.setting("limits.unauthenticated_per_address", 1).setting("log.level", "info")
}

/// Returns the broker's API with an unknown token.
fn forger(world: &World) -> Api {
    world.anonymous_api().unwrap().with_token(SecretString::from(format!("tba_{}", "x".repeat(43))))
}

/// Sends this number of requests concurrently and waits until [`MIN_REFUSED`] of them were refused;
/// the others wait for the database and are dropped.
async fn refused_at_once(api: &Api, method: &Method, path: &str, body: &str) {
    let media_type = if body.starts_with('{') {
        "application/json"
    } else {
        "application/x-www-form-urlencoded"
    };
    let requests = (0..CONCURRENT_REQUESTS).map(|_| {
        let request = api.request(method.clone(), path).unwrap();
        let request = if body.is_empty() {
            request
        } else {
            request.header(header::CONTENT_TYPE, media_type).body(body.to_owned())
        };
        request.send()
    });
    let (mut answers, mut refused) = (requests.collect::<FuturesUnordered<_>>(), 0);
    while refused < MIN_REFUSED {
        let answer = answers.next().await;
        let answer = answer.unwrap_or_else(|| panic!("{method} {path}: {refused} were refused"));
        let answer = answer.unwrap();
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            let seconds = answer.headers()[header::RETRY_AFTER].to_str().unwrap();
            assert!(seconds.parse::<u64>().unwrap() >= 1);
            refused += 1;
        }
    }
}

/// The database does not respond at all, so a 429 did not need it.
#[tokio::test]
async fn a_refusal_beyond_the_limits_needs_no_database() {
    let world = strict(World::builder().own_control_plane().postgres()).start().await.unwrap();
    let (stranger, forger) = (world.anonymous_api().unwrap(), forger(&world));
    world.postgres().unwrap().kill().await.unwrap();
    let at_root = |path: &str| format!("../../{path}");
    let by_anybody = BY_ANYBODY.iter().map(|(method, path, body)| {
        let path = at_root(path);
        (&stranger, method.clone(), path, *body)
    });
    // Every operation of the document, with an unknown token.
    let with_a_token = operations()
        .into_iter()
        .filter(|(_, path)| !crate::refusals::FOR_STRANGERS.contains(&path.as_str()))
        .map(|(method, path)| (&forger, method, filled(&path, uuid::Uuid::nil()), ""));
    let gateway = [
        (&forger, Method::GET, at_root("clusters/internal-cluster/api/v1/pods"), ""),
        (&forger, Method::GET, at_root("oauth2/userinfo"), ""),
    ];
    for (api, method, path, body) in by_anybody.chain(with_a_token).chain(gateway) {
        refused_at_once(api, &method, &path, body).await;
    }
    // The metrics need no database either, and say so.
    let metrics = world.broker().metrics().await.unwrap();
    for gauge in ["tenant_broker_database_up 0", "tenant_broker_ready 0"] {
        assert!(metrics.lines().any(|line| line == gauge), "{metrics}");
    }
    world.postgres().unwrap().restart().await.unwrap();
}

on_both_engines!(a_refusal_beyond_the_limits_writes_nothing_and_keeps_nobody_out);

async fn a_refusal_beyond_the_limits_writes_nothing_and_keeps_nobody_out(on: On) {
    let builder = match on {
        On::Sqlite => World::builder(),
        On::Postgres => World::builder().postgres(),
    };
    let world = strict(builder).start().await.unwrap();
    let alice = world.person("alice").await.unwrap().api().await.unwrap();
    let (workspace, _) = alice.init("basic").await.unwrap();
    let browser = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    let browser = browser.build().unwrap();
    let login = world.broker().url().unwrap().join("login").unwrap();
    let before = begun(&world).await;
    let mut passed = 0;
    for _ in 0..5 {
        let answers =
            join_all((0..CONCURRENT_REQUESTS).map(|_| browser.get(login.clone()).send())).await;
        for answer in answers {
            match answer.unwrap().status() {
                StatusCode::SEE_OTHER => passed += 1,
                status => assert_eq!(status, StatusCode::TOO_MANY_REQUESTS),
            }
        }
        // From the same address.
        alice.credential(workspace.id).await.unwrap();
    }
    assert!(passed > 0 && passed < CONCURRENT_REQUESTS, "{passed} passed");
    let [rows, used] = begun(&world).await;
    let passed = i64::try_from(passed).unwrap();
    assert_eq!([rows - before[0], used - before[1]], [passed; 2]);
    let refusals = "tenant_broker_unauthenticated_refused_total{limit=\"requests_per_address\"}";
    assert!(world.broker().metric(refusals).await.unwrap() > 0.0);
}

/// Returns the number of started sign-ins, and the count against their limit.
async fn begun(world: &World) -> [i64; 2] {
    const ROWS: &str = "SELECT COUNT(*) FROM authorizations";
    const USED: &str = "SELECT CAST(COALESCE(SUM(used), 0) AS BIGINT) FROM throttles \
                        WHERE name = 'sign_in_start'";
    let url = world.database_url().unwrap();
    if url.scheme() == "sqlite" {
        let mut database = sqlx::SqliteConnection::connect(url.as_str()).await.unwrap();
        let rows = sqlx::query_scalar(ROWS).fetch_one(&mut database).await.unwrap();
        [rows, sqlx::query_scalar(USED).fetch_one(&mut database).await.unwrap()]
    } else {
        let mut database = sqlx::PgConnection::connect(url.as_str()).await.unwrap();
        let rows = sqlx::query_scalar(ROWS).fetch_one(&mut database).await.unwrap();
        [rows, sqlx::query_scalar(USED).fetch_one(&mut database).await.unwrap()]
    }
}
