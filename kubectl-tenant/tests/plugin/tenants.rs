//! Tests of the commands for tenants with a stub broker. The tests with a real broker and cluster
//! are in `integration`.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::{
    stub_broker::{self, Account},
    stub_server::{RecordedRequest, StubResponse, StubServer, json_response, problem},
    support::{CLUSTER, CommandOutput, Home, run},
};

const GATEWAY: &str = "/clusters/internal-cluster";
const MEMBERSHIP: &str = "30000000-0000-4000-8000-000000000000";
const REASON: &str = "RBAC: allowed by RoleBinding \"tenant-solar-admin/solar-a\" of ClusterRole \
                      \"admin\" to ServiceAccount \"member-1/tenant-solar\"";

fn tenant(name: &str, state: &str, workspace: Option<&str>) -> Value {
    let mut tenant = json!({
        "name": name, "api_group": "tenant-broker.io", "state": state, "is_owner": true,
        "namespace_count": 1, "namespace_quota": 5,
        "roles": [{"cluster_role": "admin", "given_by": ["owner User dev1@example.com"]}],
    });
    if let Some(workspace) = workspace {
        tenant["workspace"] = workspace.into();
    }
    tenant
}

fn membership() -> Value {
    let mut workspace = Account(1).as_workspace();
    workspace["id"] = MEMBERSHIP.into();
    workspace["namespace"] = "tenant-solar".into();
    workspace["tenant"] = "solar".into();
    workspace
}

fn namespace(name: &str, status: &str) -> Value {
    json!({"name": name, "status": status, "created_at": "2026-01-01T00:00:00Z"})
}

fn kubeconfig(host: &str) -> StubResponse {
    let broker = format!("--broker=http://{host}");
    let document = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "tenant-context",
        "clusters": [{"name": CLUSTER, "cluster": {"server": "https://k8s.example.com"}}],
        "contexts": [{"name": "tenant-context", "context": {
            "cluster": CLUSTER, "namespace": "tenant-solar", "user": "sa-tenant-admin",
        }}],
        "users": [{"name": "sa-tenant-admin", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "kubectl-tenant",
            "args": ["get-token", broker, format!("--workspace={MEMBERSHIP}")],
        }}}],
    });
    StubResponse::Http(200, "application/yaml", document.to_string())
}

/// Responds like a broker at which the person owns the tenants lunar and solar.
fn respond(request: &RecordedRequest) -> StubResponse {
    let ok = |body: &Value| json_response(200, body);
    let path = request.path.split('?').next().unwrap();
    match (request.method.as_str(), path) {
        ("GET", "/api/v1/tenants") => {
            let tenants =
                [tenant("lunar", "Active", None), tenant("solar", "Active", Some(MEMBERSHIP))];
            ok(&json!({ "items": tenants }))
        }
        ("GET", "/api/v1/tenants/lunar") => ok(&tenant("lunar", "Active", None)),
        ("GET", "/api/v1/tenants/solar") => ok(&tenant("solar", "Active", Some(MEMBERSHIP))),
        ("POST", "/api/v1/tenants/solar/members") => json_response(201, &membership()),
        ("GET", "/api/v1/tenants/lunar/namespaces") => ok(&json!({"items": []})),
        ("GET", "/api/v1/tenants/solar/namespaces") => {
            let items = [namespace("solar-0", "creating"), namespace("solar-a", "active")];
            ok(&json!({ "items": items }))
        }
        ("POST", "/api/v1/tenants/solar/namespaces") => {
            json_response(201, &namespace("solar-b", "active"))
        }
        ("GET", _) if path == format!("/api/v1/workspaces/{MEMBERSHIP}") => ok(&membership()),
        ("GET", "/api/v1/workspaces/credentials/kubeconfig") => kubeconfig(&request.host),
        ("POST", _) if path.starts_with(GATEWAY) => json_response(
            201,
            &json!({
                "kind": "SelfSubjectAccessReview", "status": {"allowed": true, "reason": REASON},
            }),
        ),
        ("DELETE", _) => ok(&json!({"kind": "Namespace", "metadata": {"uid": "u"}})),
        _ => stub_broker::respond(request),
    }
}

fn signed_in(
    more: impl Fn(&RecordedRequest) -> Option<StubResponse> + Send + Sync + 'static,
) -> (Home, StubServer) {
    let broker =
        StubServer::start(move |request, _| more(request).unwrap_or_else(|| respond(request)));
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    (home, broker)
}

fn command(home: &Home, args: &[&str]) -> CommandOutput {
    let mut command = home.command(args);
    run(command.env("TENANT_BROKER_URL", &home.broker).env("KUBECONFIG", home.path("config")))
}

/// Method, path and body of the requests that change something.
fn changes(broker: &StubServer) -> Vec<(String, String)> {
    let changing = broker.requests().into_iter().filter(|request| request.method != "GET");
    changing.map(|it| (format!("{} {}", it.method, it.path), it.body)).collect()
}

/// A failure as the API server reports it.
fn status(code: u16, message: &str) -> StubResponse {
    json_response(code, &json!({"kind": "Status", "code": code, "message": message}))
}

#[test]
fn whoami_shows_tenants() {
    let (home, _broker) = signed_in(|_| None);
    let text = command(&home, &["whoami"]).stdout;
    assert!(text.contains("\nTenants lunar, solar\n"), "{text}");
    let document = command(&home, &["whoami", "-o", "json"]).document();
    assert_eq!(document["tenants"], json!(["lunar", "solar"]));
}

#[test]
fn namespaces_of_all_tenants_are_listed() {
    let (home, _broker) = signed_in(|_| None);
    let list = command(&home, &["namespaces", "-o", "json"]).document();
    assert_eq!(list["items"][1]["tenant"], "solar");
    assert_eq!(list["items"][1]["name"], "solar-a");
    let output = command(&home, &["namespaces", "list", "--tenant", "lunar"]);
    assert_eq!(output.stdout, "NAME   TENANT   STATUS   SINCE\n");
    assert!(output.stderr.contains("there is no namespace yet"), "{output:?}");
}

#[test]
fn a_new_namespace_goes_to_the_tenant_of_its_name() {
    let (home, broker) = signed_in(|_| None);
    let create = ["namespaces", "create", "solar-b", "--label", "a=b=c", "--annotation", "d="];
    let output = command(&home, &create);
    assert!(output.code == 0 && output.stdout.contains("solar-b"), "{output:?}");
    assert!(output.stderr.contains("kubectl tenant use solar --namespace solar-b"), "{output:?}");
    let [(request, body)] = changes(&broker).try_into().unwrap();
    assert_eq!(request, "POST /api/v1/tenants/solar/namespaces");
    let body: Value = serde_json::from_str(&body).unwrap();
    let expected = json!({"name": "solar-b", "labels": {"a": "b=c"}, "annotations": {"d": ""}});
    assert_eq!(body, expected);
    let output = command(&home, &["namespaces", "create", "other"]);
    assert!(output.failed(5).contains("you own several tenants (lunar, solar)"), "{output:?}");
    assert_eq!(changes(&broker).len(), 1);
}

#[test]
fn a_deletion_waits_until_the_namespace_is_gone() {
    let polls = AtomicUsize::new(0);
    let path = format!("{GATEWAY}/api/v1/namespaces/solar-a");
    let polled = path.clone();
    let (home, broker) = signed_in(move |request| {
        let is_poll = request.method == "GET" && request.path == polled;
        is_poll.then(|| match polls.fetch_add(1, Ordering::SeqCst) {
            0 => json_response(
                200,
                &json!({"kind": "Namespace", "metadata": {"uid": "u"}, "status": {"conditions": [
                    {"type": "NamespaceContentRemaining", "status": "True", "message": "1 pod"},
                ]}}),
            ),
            _ => status(404, "namespaces \"solar-a\" not found"),
        })
    });
    let output = command(&home, &["namespaces", "delete", "solar-a"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
    for line in ["is being deleted.", "Waiting: 1 pod", "is gone."] {
        assert!(output.stderr.contains(line), "{output:?}");
    }
    assert_eq!(changes(&broker), [(format!("DELETE {path}"), String::new())]);
    assert_eq!(broker.request_count(&path), 3);
    let output = command(&home, &["namespaces", "delete", "solar-a", "--wait=false"]);
    assert_eq!((output.code, broker.request_count(&path)), (0, 4), "{output:?}");
    let output = command(&home, &["namespaces", "delete", "solar-x"]);
    assert!(output.failed(5).contains("no tenant of yours has a namespace solar-x"), "{output:?}");
}

#[test]
fn a_refusal_of_the_cluster_is_reported() {
    for (response, code, text) in [
        (status(403, "namespaces is forbidden"), 5, "refused (403): namespaces is forbidden"),
        (status(401, "Unauthorized"), 3, "kubectl tenant login"),
        (StubResponse::Http(200, "text/html", "<h1>".to_owned()), 4, "not as a cluster does"),
    ] {
        let (home, _broker) = signed_in(move |request| {
            if request.path == "/oauth2/token" {
                return Some(stub_broker::oauth_error("invalid_grant"));
            }
            (request.method == "DELETE").then(|| response.clone())
        });
        let output = command(&home, &["namespaces", "delete", "solar-a"]);
        assert!(output.failed(code).contains(text), "{output:?}");
    }
}

#[test]
fn a_request_is_sent_again_when_the_gateway_asks_for_it() {
    for (refusals, code, requests) in [(2, 0, 3), (usize::MAX, 4, 6)] {
        let sent = AtomicUsize::new(0);
        let (home, broker) = signed_in(move |request| {
            let is_refused =
                request.method == "DELETE" && sent.fetch_add(1, Ordering::SeqCst) < refusals;
            let response = Box::new(status(503, "the token of the workspace was just replaced"));
            is_refused.then_some(StubResponse::WithHeaders("retry-after: 0\r\n", response))
        });
        let output = command(&home, &["namespaces", "delete", "solar-a", "--wait=false"]);
        assert_eq!(output.code, code, "{output:?}");
        assert_eq!(changes(&broker).len(), requests, "{output:?}");
        if code != 0 {
            assert!(output.stderr.contains("was just replaced"), "{output:?}");
        }
    }
}

#[test]
fn use_joins_and_makes_a_context_of_its_own() {
    let (home, broker) = signed_in(|_| None);
    let output = command(&home, &["use", "solar"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("Default namespace solar-a"), "{output:?}");
    let joined = [("POST /api/v1/tenants/solar/members".to_owned(), String::new())];
    assert_eq!(changes(&broker), joined);
    let path =
        format!("/api/v1/workspaces/credentials/kubeconfig?mode=exec&workspace={MEMBERSHIP}");
    assert_eq!(broker.request_count(&path), 1);
    let config = std::fs::read_to_string(home.path("config")).unwrap();
    let config: Value = serde_norway::from_str(&config).unwrap();
    assert_eq!(config["current-context"], "tenant-solar");
    assert_eq!(config["contexts"][0]["context"]["namespace"], "solar-a");
    let extension = &config["users"][0]["user"]["extensions"][0]["extension"];
    assert_eq!(extension["workspace"], MEMBERSHIP);

    let again = command(&home, &["use", "solar", "--namespace", "solar-0", "--context", "mine"]);
    assert!(again.code == 0 && again.stderr.contains("solar-0 is creating"), "{again:?}");
    let config = std::fs::read_to_string(home.path("config")).unwrap();
    let config: Value = serde_norway::from_str(&config).unwrap();
    assert_eq!(config["contexts"][1]["context"]["namespace"], "solar-0");
    assert_eq!(config["current-context"], "mine");
}

#[test]
fn use_refuses_a_namespace_that_the_tenant_does_not_have() {
    let (home, broker) = signed_in(|_| None);
    let output = command(&home, &["use", "solar", "--namespace", "solar-aa"]);
    let error = "error: tenant solar has no namespace solar-aa\n";
    assert!(output.failed(5).starts_with(error), "{output:?}");
    let hint = "hint: did you mean solar-a? its namespaces: solar-0, solar-a\n";
    assert!(output.stderr.ends_with(hint), "{output:?}");
    assert!(changes(&broker).is_empty() && !home.path("config").exists());
    // A list that cannot be read is no reason to refuse.
    let (home, _broker) = signed_in(|request| {
        request.path.ends_with("/namespaces").then(|| problem(403, "forbidden"))
    });
    let output = command(&home, &["use", "solar", "--namespace", "solar-aa"]);
    assert_eq!(output.code, 0, "{output:?}");
    let warning = "warning: whether tenant solar has a namespace solar-aa is not known: ";
    assert!(output.stderr.contains(warning), "{output:?}");
}

/// A broker at which tenant solar is suspended.
fn suspended(request: &RecordedRequest) -> Option<StubResponse> {
    let solar = tenant("solar", "Suspended", Some(MEMBERSHIP));
    let workspaces = json!({"items": [Account(1).as_workspace(), membership()]});
    match request.path.as_str() {
        "/api/v1/tenants" => {
            let tenants = [tenant("lunar", "Active", None), solar];
            Some(json_response(200, &json!({ "items": tenants })))
        }
        "/api/v1/tenants/solar" => Some(json_response(200, &solar)),
        "/api/v1/workspaces" => Some(json_response(200, &workspaces)),
        path if path == format!("/api/v1/workspaces/{MEMBERSHIP}/credentials") => {
            let detail = "the tenant solar is suspended or was deleted; ask an administrator";
            let body = json!({
                "title": "T", "status": 409, "code": "workspace_suspended", "detail": detail,
            });
            Some(json_response(409, &body))
        }
        _ => None,
    }
}

#[test]
fn a_suspended_tenant_is_shown_as_such() {
    let (home, broker) = signed_in(suspended);
    home.forge_token_of(MEMBERSHIP, "old", 1, 3600);
    home.forge_token("works", 1, 3600);
    let text = command(&home, &["whoami"]).stdout;
    for line in [
        "Member of tenant solar in internal-cluster (basic, provisioned; the tenant is suspended)",
        "Tenants lunar, solar (suspended)",
        "Token for tenant solar in internal-cluster, directly, not accepted: suspended",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line} is not in {text}");
    }
    assert_eq!(text.matches(", directly, until ").count(), 1, "{text}");
    let document = command(&home, &["whoami", "-o", "json"]).document();
    assert_eq!(document["suspended_tenants"], json!(["solar"]));
    let suspended = |it: &&Value| it["suspended"] == true;
    let tokens = document["tokens"].as_array().unwrap();
    let [token] = tokens.iter().filter(suspended).collect::<Vec<_>>()[..] else {
        panic!("{tokens:?}")
    };
    assert_eq!(token["workspace"], MEMBERSHIP);

    for args in [&["namespaces"][..], &["namespaces", "--tenant", "solar"]] {
        let table = command(&home, args).stdout;
        assert!(table.contains("solar-a   solar    active (tenant suspended)"), "{table}");
    }
    let list = command(&home, &["namespaces", "-o", "json"]).document();
    assert_eq!(
        (&list["items"][1]["status"], &list["items"][1]["tenant_state"]),
        (&json!("active"), &json!("Suspended"))
    );

    // kubectl in the context of the tenant.
    let output = run(home.get_token_of(MEMBERSHIP).arg("--force"));
    let error = "error: the tenant solar is suspended or was deleted\n";
    assert!(output.failed(5).starts_with(error), "{output:?}");
    let hint = format!("hint: ask an administrator of {}\n", broker.url);
    assert!(output.stderr.ends_with(&hint), "{output:?}");
}

#[test]
fn a_namespace_that_is_being_deleted_is_no_missing_right() {
    let (home, _broker) = signed_in(|request| match request.path.as_str() {
        "/api/v1/tenants/solar/namespaces" => {
            let items = [namespace("solar-a", "terminating"), namespace("solar-b", "active")];
            Some(json_response(200, &json!({ "items": items })))
        }
        _ => (request.method == "DELETE").then(|| status(403, "namespaces is forbidden")),
    });
    let output = command(&home, &["namespaces", "delete", "solar-a"]);
    let error = "error: namespace solar-a is being deleted already\n";
    assert!(output.failed(5).starts_with(error), "{output:?}");
    let output = command(&home, &["namespaces", "delete", "solar-b"]);
    assert!(output.failed(5).contains("refused (403): namespaces is forbidden"), "{output:?}");
}

#[test]
fn somebody_whom_no_tenant_names_is_not_told_to_create_a_namespace() {
    let stranger = |other: bool| {
        signed_in(move |request| {
            let mut lunar = tenant("lunar", "Active", None);
            lunar["is_owner"] = false.into();
            lunar["roles"] = json!([]);
            let items = if other { vec![lunar] } else { Vec::new() };
            (request.path == "/api/v1/tenants")
                .then(|| json_response(200, &json!({ "items": items })))
        })
    };
    for (sees_another, text) in [
        (false, "no Tenant names you; ask an administrator"),
        (
            true,
            "no Tenant names you; to list the namespaces of one: kubectl tenant namespaces --tenant NAME",
        ),
    ] {
        let (home, _broker) = stranger(sees_another);
        let output = command(&home, &["namespaces"]);
        assert!(output.code == 0 && output.stderr.contains(text), "{output:?}");
        assert!(!output.stderr.contains("namespaces create"), "{output:?}");
    }
}

#[test]
fn why_names_the_entry_of_the_tenant() {
    let (home, broker) = signed_in(|_| None);
    let args = ["why", "create", "deployments.apps/web", "-n", "solar-a", "--subresource", "scale"];
    let output = command(&home, &args);
    assert!(output.stdout.starts_with("allowed: create deployments.apps/web"), "{output:?}");
    assert!(output.stdout.ends_with("by:\n  owner User dev1@example.com\n"), "{output:?}");
    let [(request, body)] = changes(&broker).try_into().unwrap();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(request, format!("POST {GATEWAY}{path}"));
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body["spec"]["resourceAttributes"],
        json!({
            "namespace": "solar-a", "verb": "create", "group": "apps", "resource": "deployments",
            "subresource": "scale", "name": "web",
        })
    );
    let document =
        command(&home, &["why", "get", "pods", "-n", "solar-a", "-o", "json"]).document();
    assert_eq!(document["given_by"], json!(["owner User dev1@example.com"]));
    assert_eq!(document["by_tenant"], true);
}

#[test]
fn a_suspension_is_waited_for() {
    let polls = AtomicUsize::new(0);
    let (home, broker) = signed_in(move |request| match request.path.as_str() {
        "/api/v1/tenants/solar/suspend" => Some(json_response(
            202,
            &json!({
                "name": "solar", "state": "Suspending",
                "steps": [
                    {"step": "record", "result": "done", "duration_ms": 1},
                    {"step": "revoke", "result": "open", "duration_ms": 10_000},
                ],
            }),
        )),
        "/api/v1/tenants/solar" => {
            let is_first = polls.fetch_add(1, Ordering::SeqCst) == 0;
            let state = if is_first { "Suspending" } else { "Suspended" };
            Some(json_response(200, &tenant("solar", state, None)))
        }
        _ => None,
    });
    let output = command(&home, &["tenants", "suspend", "solar", "--reason", "stolen"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stdout.contains("revoke   open"), "{output:?}");
    let waiting = "Waiting; the tenant is Suspending";
    for line in ["these steps are open: revoke", waiting, "Tenant solar is suspended"] {
        assert!(output.stderr.contains(line), "{output:?}");
    }
    let reason = r#"{"reason":"stolen"}"#.to_owned();
    assert_eq!(changes(&broker), [("POST /api/v1/tenants/solar/suspend".to_owned(), reason)]);
}

#[test]
fn a_broker_without_tenants_says_so() {
    let (home, _broker) = signed_in(|request| {
        request.path.starts_with("/api/v1/tenants").then(|| problem(404, "not_found"))
    });
    for args in [&["tenants"][..], &["namespaces"], &["use", "solar"]] {
        let output = command(&home, args);
        assert_eq!(output.code, 5, "{output:?}");
        assert!(output.stderr.contains("not found: Detail of not_found."), "{output:?}");
        let is_circular = output.stderr.contains("kubectl tenant tenants");
        assert!(args != ["tenants"] || !is_circular, "{output:?}");
    }
    let (home, _broker) = signed_in(|request| {
        let detail = "this broker has no tenants; an operator can switch them on (tenants.enabled)";
        let body = json!({"title": "T", "status": 404, "code": "not_found", "detail": detail});
        request.path.starts_with("/api/v1/tenants").then(|| json_response(404, &body))
    });
    for args in [&["tenants"][..], &["tenants", "get", "solar"], &["namespaces"]] {
        let output = command(&home, args);
        assert!(output.failed(5).ends_with("(tenants.enabled)\n"), "no hint: {output:?}");
    }
}

#[test]
fn tenants_are_translated() {
    let home = Home::new("https://broker.example.com");
    let file = home.path("tenants.yaml");
    let text = "apiVersion: capsule.clastix.io/v1beta2\nkind: Tenant\nmetadata:\n  name: solar\n\
                spec:\n  owners:\n  - {kind: User, name: alice}\n  storageClasses: {allowed: [a]}\n  \
                networkPolicies: {items: [{podSelector: {}}]}\nstatus: {size: 1}\n---\n\
                apiVersion: v1\nkind: Namespace\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let output = run(&mut home.command(&["import", "-f", file]));
    assert_eq!(
        output.stdout,
        "apiVersion: tenant-broker.io/v1alpha1\nkind: Tenant\nmetadata:\n  name: solar\nspec:\n  \
         owners:\n  - kind: User\n    name: alice\n  networkPolicies:\n    items:\n    - \
         podSelector: {}\n"
    );
    for line in [
        "solar: kept, but not carried out: spec.networkPolicies\n",
        "solar: left out, because tenant-broker.io/v1alpha1 does not have it: spec.storageClasses\n",
        "document 2 is left out",
    ] {
        assert!(output.stderr.contains(line), "{output:?}");
    }
    let report = run(&mut home.command(&["import", "-f", file, "--dry-run"]));
    assert_eq!((report.code, report.stdout.as_str()), (0, ""), "{report:?}");
    assert!(report.stderr.contains("spec.storageClasses"), "{report:?}");

    for (text, message) in [
        ("a: 1\n---\nb: [1\nc: 2\n".to_owned(), "document 2, line"),
        ("a: 1\n".to_owned(), "has no Tenant of capsule.clastix.io"),
        ("x".repeat(1024 * 1024 + 1), "has more than 1 MiB"),
    ] {
        std::fs::write(file, text).unwrap();
        let output = run(&mut home.command(&["import", "-f", file]));
        assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{output:?}");
        assert!(output.stderr.contains(message), "{output:?}");
    }
    let missing = run(&mut home.command(&["import", "-f", "/nonexistent/file"]));
    assert!(missing.failed(1).contains("cannot read /nonexistent/file"), "{missing:?}");
}

/// The plan is printed, and neither the broker nor the cluster is asked to change anything.
#[test]
fn a_refused_move_is_neither_announced_nor_labelled() {
    let (home, broker) = signed_in(|request| {
        (request.path == "/api/v1/tenants/lunar/moves/solar-a").then(|| {
            json_response(
                200,
                &json!({
                    "namespace": "solar-a", "namespace_uid": "u", "resource_version": "7",
                    "from": "solar", "to": "lunar", "labels": {}, "changes": ["something"],
                    "refusals": ["tenant solar is suspended: resume it"],
                }),
            )
        })
    });
    let transfer = ["namespaces", "transfer", "solar-a", "--to", "lunar", "--yes"];
    let output = command(&home, &transfer);
    assert_eq!(output.code, 5, "{output:?}");
    assert!(output.stderr.contains("tenant solar is suspended: resume it"), "{output:?}");
    assert!(output.stdout.contains("solar-a: tenant solar -> tenant lunar"), "{output:?}");
    assert!(output.stdout.contains("- something"), "{output:?}");
    let output = command(&home, &[&transfer[..], &["-o", "json"]].concat());
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(document["refusals"], json!(["tenant solar is suspended: resume it"]));
    assert_eq!(changes(&broker), []);
}

/// Responds like a broker that writes Tenants, for an administrator. It refuses the quota 0.
fn writes(request: &RecordedRequest) -> Option<StubResponse> {
    let path = request.path.split('?').next().unwrap();
    let spec = json!({
        "owners": [{"kind": "User", "name": "alice"}], "namespaceOptions": {"quota": 3},
    });
    let object = json!({
        "name": "solar", "api_group": "tenant-broker.io", "uid": "u1", "generation": 7, "spec": spec,
    });
    let write = |result: &str| {
        json_response(
            200,
            &json!({
                "result": result, "dry_run": false, "tenant": object, "conditions": [],
                "changes": ["spec.namespaceOptions.quota: 3 -> \u{1b}[2J5"],
            }),
        )
    };
    let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
    match (request.method.as_str(), path) {
        ("GET", "/api/v1/tenants/solar/spec") => Some(json_response(200, &object)),
        ("PUT", "/api/v1/tenants/solar") if body["spec"]["namespaceOptions"]["quota"] == 0 => {
            Some(problem(400, "invalid_request"))
        }
        ("PUT", "/api/v1/tenants/solar") => Some(write("configured")),
        ("PUT", _) if path.starts_with("/api/v1/tenants/") => Some(problem(409, "field_conflict")),
        ("DELETE", "/api/v1/tenants/solar") => Some(json_response(
            200,
            &json!({
                "name": "solar", "uid": "u1", "dry_run": request.path.contains("dry_run=true"),
                "is_terminating": false, "kept_namespaces": ["solar-a"],
            }),
        )),
        _ => None,
    }
}

/// Writes an editor, a shell script that gets the file, and runs `tenants edit solar` with it.
fn edit(home: &Home, script: &str) -> CommandOutput {
    let path = home.path("editor.sh");
    std::fs::write(&path, script).unwrap();
    let mut command = home.command(&["tenants", "edit", "solar"]);
    let editor = format!("sh '{}'", path.display());
    let temporary = home.path("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    run(command
        .env("TENANT_BROKER_URL", &home.broker)
        .env("EDITOR", editor)
        .env("TMPDIR", temporary))
}

/// Names of the folders of edited files that are left.
fn kept(home: &Home) -> Vec<std::path::PathBuf> {
    let folders = std::fs::read_dir(home.path("tmp")).unwrap();
    folders.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn an_edit_sends_the_version_that_was_opened() {
    let (home, broker) = signed_in(writes);
    let output = edit(&home, "sed -i 's/quota: 3/quota: 5/' \"$1\"\n");
    assert_eq!(output.stdout, "tenant solar configured\n", "{output:?}");
    assert!(output.stderr.contains("solar: spec.namespaceOptions.quota: 3 -> "), "{output:?}");
    assert!(!output.stderr.contains('\u{1b}'), "{output:?}");
    let (line, body) = changes(&broker).remove(0);
    assert_eq!(line, "PUT /api/v1/tenants/solar?dry_run=false&force=false");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&body["uid"], &body["generation"]), (&json!("u1"), &json!(7)));
    assert_eq!(body["spec"]["namespaceOptions"]["quota"], 5);
    assert!(kept(&home).is_empty());
}

#[test]
fn an_edit_without_a_change_sends_nothing() {
    let (home, broker) = signed_in(writes);
    for script in ["true\n", ": > \"$1\"\n", "printf '# only a comment' > \"$1\"\n"] {
        let output = edit(&home, script);
        assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
        assert!(output.stderr.contains("Edit cancelled"), "{output:?}");
    }
    assert!(changes(&broker).is_empty() && kept(&home).is_empty());
}

#[test]
fn a_refused_edit_is_opened_again_and_kept_if_it_is_not_corrected() {
    let (home, broker) = signed_in(writes);
    let correct = "if grep -q '^# The change was not accepted' \"$1\"\n\
                   then sed -i 's/quota: 0/quota: 6/' \"$1\"\n\
                   else sed -i 's/quota: 3/quota: 0/' \"$1\"\nfi\n";
    let output = edit(&home, correct);
    assert_eq!((output.code, output.stdout.as_str()), (0, "tenant solar configured\n"));
    assert_eq!(changes(&broker).len(), 2);
    assert!(kept(&home).is_empty());

    for (script, code) in [
        ("sed -i 's/quota: 3/quota: 0/' \"$1\"\n", 5),
        ("sed -i 's/name: solar/name: lunar/' \"$1\"\n", 1),
        ("grep -q '^{' \"$1\" || echo '{' >> \"$1\"\n", 1),
        ("echo 'x: [' >> \"$1\"; exit 3\n", 1),
    ] {
        let output = edit(&home, script);
        assert_eq!((output.code, output.stdout.as_str()), (code, ""), "{script}: {output:?}");
        let folder = kept(&home).remove(0);
        let file = folder.join("solar.yaml");
        let line = format!("your text is in {}", file.display());
        assert!(output.stderr.contains(&line), "{script}: {output:?}");
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&folder).unwrap());
        assert_eq!(mode & 0o777, 0o700);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_missing_editor_is_named() {
    let (home, _broker) = signed_in(writes);
    let mut command = home.command(&["tenants", "edit", "solar"]);
    std::fs::create_dir_all(home.path("tmp")).unwrap();
    let output = run(command
        .env("TENANT_BROKER_URL", &home.broker)
        .env("TMPDIR", home.path("tmp"))
        .env("KUBE_EDITOR", "/nonexistent/editor -w"));
    let error = output.failed(1);
    assert!(error.contains("cannot run the editor /nonexistent/editor"), "{error}");
    assert!(error.contains("KUBE_EDITOR"), "{error}");
    // Nothing was changed, so no copy is left.
    assert!(kept(&home).is_empty() && !error.contains("your text is in"), "{error}");
}

#[test]
fn a_deletion_is_about_the_tenant_that_was_confirmed() {
    let (home, broker) = signed_in(writes);
    // Standard input is no terminal.
    let output = command(&home, &["tenants", "delete", "solar"]);
    assert!(output.failed(2).contains("--yes"), "{output:?}");
    assert!(changes(&broker).is_empty());
    let args = ["tenants", "delete", "solar", "--namespaces=keep", "--yes", "--reason", "a&b"];
    let output = command(&home, &args);
    assert_eq!(output.stdout, "tenant solar deleted\n", "{output:?}");
    assert!(output.stderr.contains("namespace solar-a stays"), "{output:?}");
    let lines: Vec<String> = changes(&broker).into_iter().map(|(line, _)| line).collect();
    let path = "DELETE /api/v1/tenants/solar?namespaces=keep";
    assert_eq!(
        lines,
        [
            format!("{path}&dry_run=true&reason=a%26b"),
            format!("{path}&dry_run=false&uid=u1&reason=a%26b"),
        ]
    );
}

#[test]
fn each_tenant_of_a_file_is_applied() {
    let (home, broker) = signed_in(writes);
    let file = home.path("tenants.yaml");
    let manifest = |name: &str| {
        format!(
            "apiVersion: tenant-broker.io/v1alpha1\nkind: Tenant\nmetadata: {{name: {name}, labels: \
             {{a: b}}}}\nspec: {{owners: [{{kind: User, name: alice}}]}}\n---\n"
        )
    };
    std::fs::write(&file, manifest("lunar") + &manifest("solar") + &manifest("mars")).unwrap();
    let args = ["tenants", "apply", "-f", file.to_str().unwrap()];
    let output = command(&home, &args);
    assert_eq!((output.code, output.stdout.as_str()), (5, "tenant solar configured\n"));
    assert!(output.stderr.contains("Tenants that were not applied: lunar, mars"), "{output:?}");
    assert!(output.stderr.contains("use kubectl for metadata.labels"), "{output:?}");
    assert_eq!(changes(&broker).len(), 3);
    let dry = command(&home, &[&args[..], &["--dry-run=client"]].concat());
    assert_eq!(dry.stdout.lines().count(), 3, "{dry:?}");
    assert_eq!(changes(&broker).len(), 3);
    std::fs::write(&file, "apiVersion: v1\nkind: Pod\n").unwrap();
    assert!(command(&home, &args).failed(1).contains("document 1 is no Tenant"));
}

#[test]
fn a_resumption_names_the_role_bindings_that_owners_have_to_make_again() {
    let bindings: Vec<_> = (0..12)
        .map(|number| json!({"namespace": "solar-a", "name": format!("app-{number:02}")}))
        .collect();
    let step = json!({"step": "restore", "result": "done", "duration_ms": 7});
    let answer = json!({"name": "solar", "state": "Active", "steps": [step],
        "bindings_not_restored": bindings});
    let broker = StubServer::start(move |request, _| {
        if request.path == "/api/v1/tenants/solar/resume" {
            json_response(200, &answer)
        } else {
            stub_broker::respond_confirmed(request, Account(1))
        }
    });
    let (home, _broker) = stub_broker::sign_in(broker, &[]);
    let output = home.run(&["tenants", "resume", "solar"]);
    assert_eq!(output.code, 0, "{output:?}");
    let named = "have to make them again: solar-a/app-00, ";
    assert!(output.stderr.contains(named), "{output:?}");
    let further = "solar-a/app-09 and 2 more (-o json shows them).";
    assert!(output.stderr.contains(further), "{output:?}");
    let document = home.run(&["tenants", "resume", "solar", "-o", "json"]).document();
    assert_eq!(document["bindings_not_restored"].as_array().unwrap().len(), 12);
}

/// The response to a request that the broker could not complete in time does not have them.
#[test]
fn a_slow_resumption_names_the_role_bindings_as_well() {
    let open = json!({"name": "solar", "state": "Resuming",
        "steps": [{"step": "restore", "result": "open", "duration_ms": 10_000}]});
    let complete = json!({"name": "solar", "state": "Active",
        "steps": [{"step": "restore", "result": "done", "duration_ms": 7}],
        "bindings_not_restored": [{"namespace": "solar-a", "name": "app"}]});
    let requests = AtomicUsize::new(0);
    let broker = StubServer::start(move |request, _| match request.path.as_str() {
        "/api/v1/tenants/solar/resume" => match requests.fetch_add(1, Ordering::SeqCst) {
            0 => json_response(202, &open),
            _ => json_response(200, &complete),
        },
        "/api/v1/tenants/solar" => json_response(200, &tenant("solar", "Active", None)),
        _ => stub_broker::respond_confirmed(request, Account(1)),
    });
    let (home, _broker) = stub_broker::sign_in(broker, &[]);
    let output = home.run(&["tenants", "resume", "solar"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("have to make them again: solar-a/app."), "{output:?}");
}
