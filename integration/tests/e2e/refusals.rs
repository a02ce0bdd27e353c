//! Refusals of every operation of the OpenAPI document. The list of operations is the document's,
//! so a new operation is tested without being named here.

use http::{Method, StatusCode};
use integration::world::World;
use secrecy::SecretString;
use serde_json::Value;
use tenant_shared::PROBLEM_CONTENT_TYPE;
use uuid::Uuid;

/// Operations without a path parameter: they concern the caller's own data, so there is nothing of
/// another tenant to request. This list may only shrink.
const OWN_THINGS: [&str; 8] = [
    "/auth/logout",
    "/me",
    "/me/sessions",
    "/workspaces",
    "/workspaces/init",
    "/workspaces/credentials/kubeconfig",
    "/tenants",
    "/audit-logs",
];
/// Operations for unauthenticated callers, who sign in or register. This list may only shrink.
pub(crate) const FOR_STRANGERS: [&str; 2] = ["/auth/login", "/auth/register"];
/// Operations without a path parameter for administrators alone. Without tenants `POST /tenants`
/// answers 404 to everybody; `tenants::write` tests it with them.
const ADMINISTRATORS_THINGS: [(Method, &str); 3] =
    [(Method::GET, "/users"), (Method::GET, "/audit-logs/export"), (Method::POST, "/tenants")];

/// Operations that look up a name in their query; the name of another tenant yields nothing.
const BY_NAME: [&str; 2] = ["/workspaces/lookup", "/users/lookup"];

/// Returns every operation of the document: method and path.
pub(crate) fn operations() -> Vec<(Method, String)> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/broker.yaml");
    let document: Value = serde_norway::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            operations.push((method, path.trim_end_matches('/').to_owned()));
        }
    }
    assert!(operations.len() >= 9, "{operations:?}");
    operations
}

/// Returns the path with a workspace as its parameter, or with a tenant that the broker does not have.
pub(crate) fn filled(path: &str, workspace: Uuid) -> String {
    path.replace("{id}", &workspace.to_string())
        .replace("{name}", "solar")
        .replace("{credential_id}", "6ba7b810-9dad-11d1-80b4-00c04fd430c8")
        .trim_start_matches('/')
        .to_owned()
}

async fn assert_problem(answer: reqwest::Response, statuses: &[u16], what: &str) {
    let status = answer.status().as_u16();
    let content_type = answer.headers()["content-type"].to_str().unwrap().to_owned();
    assert!(answer.headers().contains_key("x-request-id"), "{what}");
    let body = answer.text().await.unwrap();
    assert!(statuses.contains(&status), "{what}: {status} {body}");
    assert_eq!(content_type, PROBLEM_CONTENT_TYPE, "{what}: {body}");
    let problem: tenant_shared::Problem = serde_json::from_str(&body).unwrap();
    assert_eq!(problem.status, status, "{what}");
    assert!(problem.request_id.is_some() && !problem.detail.is_empty(), "{what}: {body}");
}

#[tokio::test]
async fn strangers_get_401_and_other_tenants_403_or_404() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let (workspace, _) = alice.api().await.unwrap().init("basic").await.unwrap();
    let mallory = world.person("mallory").await.unwrap().api().await.unwrap();
    let stranger = world.anonymous_api().unwrap();
    let forger = world.anonymous_api().unwrap().with_token(SecretString::from("tba_forged"));
    for (method, path) in operations() {
        if FOR_STRANGERS.contains(&path.as_str()) {
            continue;
        }
        let by_name = BY_NAME.contains(&path.as_str());
        let mut url = filled(&path, workspace.id);
        if by_name {
            url = format!("{url}?name={}", alice.namespace());
        }
        for (who, api) in [("a stranger", &stranger), ("a forger", &forger)] {
            let answer = api.request(method.clone(), &url).unwrap().send().await.unwrap();
            assert_problem(answer, &[401], &format!("{who}: {method} {path}")).await;
        }
        let is_administrators = ADMINISTRATORS_THINGS.contains(&(method.clone(), path.as_str()));
        if path.contains('{') || by_name || is_administrators {
            let answer = mallory.request(method.clone(), &url).unwrap().send().await.unwrap();
            assert_problem(answer, &[403, 404], &format!("another tenant: {method} {path}")).await;
        } else {
            assert!(OWN_THINGS.contains(&path.as_str()), "{path} is new: say what it is about");
        }
    }
    // Query parameters do not give access to another's data either.
    for path in [
        format!("workspaces/credentials/kubeconfig?workspace={}", workspace.id),
        format!("workspaces/credentials/kubeconfig?mode=exec&workspace={}", workspace.id),
        format!("audit-logs?workspace_id={}", workspace.id),
        format!("workspaces/lookup?name={}", workspace.id),
        format!("workspaces/lookup?name={}", alice.id()),
        format!("workspaces/lookup?name={}", alice.email()),
        format!("users/lookup?name={}", alice.email()),
        "workspaces?all=true".to_owned(),
        "workspaces?all=true&limit=1".to_owned(),
        format!("workspaces?all=true&cursor=0.{}", workspace.id),
    ] {
        let answer = mallory.request(Method::GET, &path).unwrap().send().await.unwrap();
        assert_problem(answer, &[403, 404], &path).await;
    }
    let theirs = mallory.audit_logs("limit=500").await.unwrap();
    assert!(theirs.items.iter().all(|entry| entry.user_id != Some(alice.id())));
    // Not even an administrator gets a tenant's credentials.
    let admin = world.administrator("operator").await.unwrap().api().await.unwrap();
    assert_eq!(super::refused(admin.credential(workspace.id).await).status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn bad_requests_are_problems_and_write_nothing() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let json = "application/json";
    let long_name = format!("workspaces/lookup?name={}@example.com", "x".repeat(250));
    let huge = format!("{{\"tier\":\"{}\"}}", "x".repeat(100_000));
    let cases: [(&str, &str, &str, &[u16]); 11] = [
        ("malformed", json, "{\"tier\":", &[400]),
        ("not an object", json, "[]", &[400]),
        ("empty", json, "", &[400]),
        ("unknown tier", json, "{\"tier\":\"golden\"}", &[400]),
        ("empty tier", json, "{\"tier\":\"\"}", &[400]),
        ("tier of another type", json, "{\"tier\":7}", &[400]),
        ("unknown field", json, "{\"tier\":\"basic\",\"admin\":true}", &[400]),
        ("not UTF-8", json, "{\"tier\":\"\\ud800\"}", &[400]),
        ("oversized", json, &huge, &[413]),
        ("wrong content type", "text/plain", "{\"tier\":\"basic\"}", &[415]),
        ("form", "application/x-www-form-urlencoded", "tier=basic", &[415]),
    ];
    for (what, content_type, body, statuses) in cases {
        let answer = api
            .request(Method::POST, "workspaces/init")
            .unwrap()
            .header("content-type", content_type)
            .body(body.to_owned())
            .send()
            .await
            .unwrap();
        assert_problem(answer, statuses, what).await;
    }
    for (method, path, statuses) in [
        (Method::GET, "nowhere", [404]),
        (Method::DELETE, "me", [405]),
        (Method::GET, "workspaces/not-a-uuid", [400]),
        (Method::GET, "workspaces?limit=0", [400]),
        (Method::GET, "workspaces?limit=501", [400]),
        (Method::GET, "workspaces?cursor=x", [400]),
        (Method::GET, "workspaces/lookup", [400]),
        (Method::GET, "workspaces/lookup?name=", [400]),
        (Method::GET, "workspaces/lookup?name=a%20b", [400]),
        (Method::GET, "workspaces/lookup?name=tenant-%25", [400]),
        (Method::GET, &long_name, [400]),
        (Method::GET, "workspaces/lookup?name=tenant-x", [404]),
        (Method::GET, "me/sessions?limit=1001", [400]),
        (Method::GET, "me/sessions?cursor=x", [400]),
        (Method::GET, "audit-logs?limit=0", [400]),
        (Method::GET, "audit-logs?limit=501", [400]),
        (Method::GET, "audit-logs?cursor=x", [400]),
        (Method::GET, "audit-logs/export?after=-1", [400]),
        (Method::GET, "audit-logs/export?limit=5001", [400]),
        (Method::GET, "workspaces/credentials/kubeconfig?mode=root", [400]),
        (Method::GET, "workspaces/credentials/kubeconfig", [404]),
    ] {
        let answer = api.request(method, path).unwrap().send().await.unwrap();
        assert_problem(answer, &statuses, path).await;
    }
    assert!(api.workspaces(false).await.unwrap().items.is_empty());
    let logs = api.audit_logs("action=InitWorkspace").await.unwrap();
    assert!(logs.items.is_empty(), "{logs:?}");
    assert!(super::object(&world, &["namespace", &alice.namespace()]).await.unwrap().is_none());
}
