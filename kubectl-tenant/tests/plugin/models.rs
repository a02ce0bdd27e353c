//! Tests of the commands for models with a stub broker. The tests with a real broker and cluster are
//! in `integration`.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::{
    stub_broker::{self, Account},
    stub_server::{RecordedRequest, StubResponse, StubServer, json_response, problem},
    support::{CommandOutput, Home, run},
};

const API: &str = "/gen-ai/api/v1";

fn signed_in(
    respond: impl Fn(&RecordedRequest) -> Option<StubResponse> + Send + Sync + 'static,
) -> (Home, StubServer) {
    let broker = StubServer::start(move |request, _| {
        respond(request).unwrap_or_else(|| stub_broker::respond(request))
    });
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    (home, broker)
}

fn command(home: &Home, args: &[&str]) -> CommandOutput {
    run(home.command(args).env("TENANT_BROKER_URL", &home.broker))
}

fn own_namespace() -> String {
    format!("tenant-{}", Account(1).user())
}

/// The requests for models, each with its body.
fn requests(broker: &StubServer) -> Vec<String> {
    let of_models = broker.requests().into_iter().filter(|it| it.path.starts_with(API));
    of_models.map(|it| format!("{} {} {}", it.method, &it.path[API.len()..], it.body)).collect()
}

fn failure(status: u16, message: &str) -> StubResponse {
    json_response(status, &json!({"error": {"code": status.to_string(), "message": message}}))
}

fn model(name: &str, status: &str) -> Value {
    json!({
        "model_name": name, "model_id": name, "serving_runtime": "vLLM", "api_protocol": "REST",
        "version": "", "description": "", "usecase": "", "display_name": format!("The {name}"),
        "status": status, "endpoints": [format!("internal: http://{name}.ns")],
        "sa_token": {"name": "", "token_name": "", "token": ""},
    })
}

fn status(phase: &str) -> StubResponse {
    json_response(
        200,
        &json!({"data": {"name": "lsd-genai-playground", "phase": phase, "version": "0.3.5",
            "distributionConfig": {"activeDistribution": "rh-dev", "providers": [],
                "availableDistributions": {}}}}),
    )
}

#[test]
fn models_of_the_workspace_or_of_a_namespace_are_listed() {
    let models = json!({"data": [model("granite", "Running"), model("evil\u{1b}", "Stop")]});
    let answer = models.clone();
    let (home, broker) = signed_in(move |request| {
        let path = request.path.strip_prefix(API)?;
        path.starts_with("/aaa/models?").then(|| {
            let is_empty = path.ends_with("=empty");
            if is_empty {
                json_response(200, &json!({"data": []}))
            } else {
                json_response(200, &answer)
            }
        })
    });
    let output = command(&home, &["models"]);
    assert_eq!(
        output.stdout,
        "NAME      DISPLAY NAME   RUNTIME   STATUS    ENDPOINT\n\
         granite   The granite    vLLM      Running   http://granite.ns\n\
         evil      The evil       vLLM      Stop      http://evil .ns\n",
        "{output:?}"
    );
    let document = command(&home, &["models", "list", "-n", "team-a", "-o", "json"]).document();
    assert_eq!(document, models);
    let names = command(&home, &["models", "list", "-n", "team-a", "-o", "name"]);
    assert_eq!(names.stdout, "granite\nevil \n", "{names:?}");
    let wide = command(&home, &["models", "-n", "team-a", "-o", "wide"]);
    let head = "EXTERNAL ENDPOINT   MODEL ID   PROTOCOL   VERSION   USE CASE";
    assert!(wide.stdout.lines().next().unwrap().ends_with(head), "{wide:?}");
    assert_eq!(command(&home, &["models", "status", "-o", "wide"]).code, 2);
    let empty = command(&home, &["models", "-n", "empty"]);
    assert_eq!((empty.code, empty.stdout.lines().count()), (0, 1), "{empty:?}");
    assert!(empty.stderr.contains("opendatahub.io/genai-asset=true"), "{empty:?}");
    assert_eq!(
        requests(&broker),
        [&own_namespace(), "team-a", "team-a", "team-a", "empty"]
            .map(|it| format!("GET /aaa/models?namespace={it} "))
    );
    let usage = command(&home, &["models", "-n", "../a"]);
    assert_eq!(usage.code, 2, "{usage:?}");
}

#[test]
fn a_large_list_is_shown_and_the_error_of_a_larger_one_names_the_limit() {
    let (home, _broker) = signed_in(|request| {
        let path = request.path.strip_prefix(API)?;
        let mib = if path.ends_with("=large") { 2 } else { 32 };
        let mut large = model("granite", "Running");
        large["description"] = "x".repeat(mib * 1024 * 1024).into();
        Some(json_response(200, &json!({"data": [large]})))
    });
    let names = command(&home, &["models", "list", "-n", "large", "-o", "name"]);
    assert_eq!((names.code, names.stdout.as_str()), (0, "granite\n"), "{}", names.stderr);
    let output = command(&home, &["models", "-n", "larger"]);
    let error = output.failed(1);
    assert!(error.contains("/gen-ai/api/v1/aaa/models is larger than 32 MiB"), "{error}");
    assert!(!error.contains("cannot be reached"), "{error}");
}

#[test]
fn an_installation_reports_each_phase_until_it_is_ready() {
    let polls = AtomicUsize::new(0);
    let (home, broker) = signed_in(move |request| {
        let path = request.path.strip_prefix(API)?;
        if path.starts_with("/lsd/install?") {
            let data = json!({"name": "lsd-genai-playground", "httpStatus": "200"});
            return Some(json_response(200, &json!({ "data": data })));
        }
        path.starts_with("/lsd/status?").then(|| match polls.fetch_add(1, Ordering::SeqCst) {
            0 => status(""),
            1 => failure(500, "the request could not be completed"),
            2 => status("Initializing"),
            _ => status("Ready"),
        })
    });
    let install = ["models", "install", "granite", "qwen-3.1", "-n", "team-a"];
    let output = command(&home, &[&install[..], &["--wait", "5m"]].concat());
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(output.stdout, "LlamaStackDistribution lsd-genai-playground created in team-a\n");
    let told: Vec<&str> = output.stderr.lines().collect();
    let [first, second, third, last] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(*first, "lsd-genai-playground: not yet seen by its operator");
    assert!(second.ends_with("500 Internal Server Error: the request could not be completed"));
    assert_eq!(*third, "lsd-genai-playground: Initializing");
    assert_eq!(*last, "lsd-genai-playground: Ready");
    let body = r#"{"models":[{"model_name":"granite","is_maas_model":false},{"model_name":"qwen-3.1","is_maas_model":false}]}"#;
    assert_eq!(requests(&broker)[0], format!("POST /lsd/install?namespace=team-a {body}"));

    // Without --wait it asks no more.
    let count = requests(&broker).len();
    let output = command(&home, &install);
    assert_eq!((output.code, requests(&broker).len()), (0, count + 1), "{output:?}");
    assert!(output.stderr.contains("kubectl tenant models status -n team-a"), "{output:?}");
}

#[test]
fn an_installation_that_does_not_become_ready_fails() {
    for (phase, wait, code, text) in [
        ("Failed", "5m", 1, "lsd-genai-playground failed"),
        ("Terminating", "5m", 5, "is being deleted"),
        ("Pending", "0s", 4, "is not ready yet: Pending"),
    ] {
        let (home, _broker) = signed_in(move |request| {
            let path = request.path.strip_prefix(API)?;
            let data = json!({"name": "lsd-genai-playground", "httpStatus": "200"});
            Some(if path.starts_with("/lsd/install?") {
                json_response(200, &json!({ "data": data }))
            } else {
                status(phase)
            })
        });
        let output = command(&home, &["models", "install", "m", "--wait", wait]);
        assert_eq!(output.code, code, "{output:?}");
        assert!(output.stderr.contains(text), "{output:?}");
    }
}

#[test]
fn the_status_and_the_deletion_of_a_llama_stack() {
    let (home, broker) = signed_in(|request| {
        let path = request.path.strip_prefix(API)?;
        Some(match path.split_once('?').unwrap() {
            ("/lsd/status", "namespace=none") => json_response(200, &json!({"data": null})),
            ("/lsd/status", _) => status("Ready"),
            _ => json_response(
                200,
                &json!({"data": {"data": "LlamaStackDistribution deleted successfully"}}),
            ),
        })
    });
    let output = command(&home, &["models", "status"]);
    assert_eq!(
        output.stdout,
        "NAME                   PHASE   VERSION   DISTRIBUTION\n\
         lsd-genai-playground   Ready   0.3.5     rh-dev\n"
    );
    let none = command(&home, &["models", "status", "-n", "none", "-o", "json"]);
    assert_eq!((none.code, none.document()), (0, json!({"data": null})));
    assert!(none.stderr.contains("there is no Llama Stack in none"), "{none:?}");
    for (args, name) in [(&[][..], "lsd-genai-playground"), (&["lsd-other"], "lsd-other")] {
        let output = command(&home, &[&["models", "delete", "-n", "team-a"], args].concat());
        assert_eq!(output.stdout, format!("LlamaStackDistribution {name} deleted in team-a\n"));
        let sent = requests(&broker).pop().unwrap();
        assert_eq!(sent, format!("DELETE /lsd/delete?namespace=team-a&name={name} "));
    }
}

#[test]
fn failures_have_exit_codes_and_a_missing_right_says_who_gives_it() {
    let denied = "You don't have permission to access resources in namespace team-a";
    let quota = "You don't have permission to access resources in namespace team-a: you may not \
                 create the ConfigMap: exceeded quota: tenant-quota";
    for (response, code, texts) in [
        (
            failure(403, denied),
            5,
            &[denied, "team-a may not exist", "llamastackdistributions", "--model-services"][..],
        ),
        (failure(403, quota), 5, &["exceeded quota: tenant-quota"]),
        (failure(403, "the workspace is suspended"), 5, &["the workspace is suspended"]),
        (failure(404, "no model m"), 5, &["no model m"]),
        (failure(409, "there already"), 5, &["there already"]),
        (failure(401, "Missing or invalid"), 3, &["kubectl tenant login"]),
        (failure(429, "too many"), 4, &["429 Too Many Requests: too many"]),
        (failure(500, "an operator finds"), 4, &["an operator finds"]),
        (problem(404, "not_found"), 5, &["has no model services"]),
        (StubResponse::Http(404, "text/html", "<h1>".to_owned()), 4, &["not as a tenant broker"]),
    ] {
        let (home, _broker) = signed_in(move |request| {
            if request.path == "/oauth2/token" {
                return Some(stub_broker::oauth_error("invalid_grant"));
            }
            request.path.starts_with(API).then(|| response.clone())
        });
        let output = command(&home, &["models", "-n", "team-a"]);
        for text in texts {
            assert!(output.failed(code).contains(text), "{text}: {output:?}");
        }
        let is_hint = output.stderr.contains("--model-services");
        assert_eq!(is_hint, texts.contains(&"--model-services"), "{output:?}");
    }
}

#[test]
fn a_mistyped_namespace_has_a_suggestion() {
    let (home, _broker) = signed_in(|request| {
        let denied = "You don't have permission to access resources in namespace x";
        let tenants = json!({"items": [{
            "name": "solar", "api_group": "tenant-broker.io", "state": "Active", "is_owner": true,
            "namespace_count": 1, "roles": [],
        }]});
        let namespaces = json!({"items": [
            {"name": "solar-prod", "status": "active", "created_at": "2026-01-01T00:00:00Z"},
        ]});
        match request.path.as_str() {
            "/api/v1/tenants" => Some(json_response(200, &tenants)),
            "/api/v1/tenants/solar/namespaces" => Some(json_response(200, &namespaces)),
            path => path.starts_with(API).then(|| failure(403, denied)),
        }
    });
    let own = own_namespace();
    for (typed, hint) in [
        (
            "solar-prdo",
            "solar-prdo may not exist, or is not a namespace of yours; did you mean \
                        solar-prod?; models need the rights",
        ),
        ("kube-system", &*format!("of yours; yours: {own}, solar-prod; models need the rights")),
        ("solar-prod", "hint: models need the rights"),
    ] {
        let output = command(&home, &["models", "-n", typed]);
        assert!(output.failed(5).contains(hint), "{typed}: {output:?}");
    }
}

#[test]
fn what_does_not_exist_is_named_with_its_namespace() {
    let (home, _broker) = signed_in(|request| {
        let path = request.path.strip_prefix(API)?;
        let text = if path.starts_with("/lsd/install") { "there is no model m" } else { "none" };
        Some(failure(404, text))
    });
    let output = command(&home, &["models", "install", "m", "-n", "team-a"]);
    assert!(output.failed(5).contains("there is no model m in namespace team-a"), "{output:?}");
    assert!(output.stderr.contains("kubectl tenant models -n team-a"), "{output:?}");
    let output = command(&home, &["models", "delete", "x", "-n", "team-a"]);
    let error = "namespace team-a has no LlamaStackDistribution x";
    assert!(output.failed(5).contains(error), "{output:?}");
}
