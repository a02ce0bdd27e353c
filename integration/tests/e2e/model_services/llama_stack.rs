//! Llama Stack: install, status, delete.

use futures_util::future::join_all;
use http::{Method, StatusCode};
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::kubectl::Kubectl;
use integration::world::World;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::fixture::{
    ADM, Client, NONE, REG, VIEWER, apply, create_with_status, model, namespace_of, person, world,
};
use crate::object;

pub(super) const LSD: &str = "lsd-genai-playground";

/// Creates a model with an address.
pub(super) async fn ready_model(admin: &Kubectl, namespace: &str, name: &str) {
    let url = format!("https://{name}.{namespace}.svc.cluster.local");
    let status =
        json!({"address": {"url": url}, "conditions": [{"type": "Ready", "status": "True"}]});
    create_with_status(admin, &model(namespace, name), &status).await;
}

pub(super) async fn distribution(world: &World, namespace: &str) -> Option<Value> {
    object(world, &["llamastackdistribution", LSD, "-n", namespace]).await.unwrap()
}

pub(super) async fn config_map(world: &World, namespace: &str) -> Option<Value> {
    object(world, &["configmap", "llama-stack-config", "-n", namespace]).await.unwrap()
}

/// The users who sent this kind of request, by the API server's audit log.
fn senders(world: &World, verb: &str, namespace: &str, resource: &str) -> Vec<String> {
    let events = world.cluster().audit_events(namespace).unwrap();
    let is_it = |event: &&Value| {
        event["verb"] == verb
            && event["objectRef"]["namespace"] == namespace
            && event["objectRef"]["resource"] == resource
            && event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300)
    };
    let name = |event: &Value| event["user"]["username"].as_str().unwrap().to_owned();
    events.iter().filter(is_it).map(name).collect()
}

#[tokio::test]
async fn a_distribution_is_installed_shown_and_deleted_as_the_caller() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let namespace = "lsd-cycle";
    namespace_of(&world, namespace, "reg", "admin").await;
    let status_path = format!("/lsd/status?namespace={namespace}");
    assert_eq!(client.get(&status_path, REG).await.body, json!({"data": null}));
    ready_model(&admin, namespace, "granite").await;
    ready_model(&admin, namespace, "llama").await;
    // The token of the ServiceAccount that a model owns.
    let uid = object(&world, &["inferenceservice", "granite", "-n", namespace]).await.unwrap();
    let uid = uid.unwrap()["metadata"]["uid"].clone();
    let token = "Y2FuYXJ5LW9mLXRoZS1tb2RlbA==";
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "granite-sa",
         "namespace": namespace, "ownerReferences": [{"apiVersion": "serving.kserve.io/v1beta1",
         "kind": "InferenceService", "name": "granite", "uid": uid}]}},
        {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
         "metadata": {"name": "granite-token", "namespace": namespace,
         "annotations": {"kubernetes.io/service-account.name": "granite-sa"}},
         "data": {"extra": token}},
    ]});
    apply(&admin, objects.to_string()).await;

    let installed = client.install(namespace, REG, &["granite", "llama"]).await;
    assert_eq!(*installed.data(), json!({"name": LSD, "httpStatus": "200"}));
    let lsd = distribution(&world, namespace).await.unwrap();
    let server = &lsd["spec"]["server"];
    assert_eq!(lsd["metadata"]["labels"], json!({"opendatahub.io/dashboard": "true"}));
    assert_eq!(server["distribution"], json!({"name": "rh-dev"}));
    assert_eq!(server["userConfig"], json!({"configMapName": "llama-stack-config"}));
    let env = server["containerSpec"]["env"].as_array().unwrap();
    let of_model = |number: usize| {
        let name = format!("VLLM_API_TOKEN_{number}");
        env.iter().find(|variable| variable["name"] == name.as_str()).unwrap()
    };
    let reference = json!({"name": "granite-token", "key": "token"});
    assert_eq!(of_model(1)["valueFrom"]["secretKeyRef"], reference);
    assert_eq!(of_model(2)["value"], "fake");
    let map = config_map(&world, namespace).await.unwrap();
    assert_eq!(
        map["metadata"]["ownerReferences"],
        json!([{"apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
                "name": LSD, "uid": lsd["metadata"]["uid"], "controller": true,
                "blockOwnerDeletion": false}])
    );
    let run: Value = serde_norway::from_str(map["data"]["run.yaml"].as_str().unwrap()).unwrap();
    let url = "http://granite.lsd-cycle.svc.cluster.local/v1";
    assert_eq!(run["providers"]["inference"][1]["config"]["url"], url);
    assert_eq!(senders(&world, "create", namespace, "llamastackdistributions"), ["reg"]);
    assert!(senders(&world, "create", namespace, "configmaps").contains(&"reg".to_owned()));

    // Secrets are listed by their metadata alone, and nothing of a token is anywhere.
    let of_secrets =
        |seen: &&RecordedRequest| !seen.is_as_broker() && seen.path.ends_with("/secrets");
    let requests = world.proxy().unwrap().requests();
    let secrets: Vec<_> = requests.iter().filter(of_secrets).collect();
    assert!(!secrets.is_empty());
    assert!(secrets.iter().all(|seen| {
        seen.headers["accept"].to_str().unwrap().starts_with("application/json;as=PartialObject")
    }));
    assert!(!world.broker().log().unwrap().contains(token));

    assert!(client.install(namespace, REG, &["granite"]).await.failure(409).contains("already"));
    let patch = json!({"status": {"phase": "Ready", "version": {"llamaStackServerVersion": "0.3.5"},
        "distributionConfig": {"activeDistribution": "rh-dev",
            "availableDistributions": {"rh-dev": "quay.io/x"},
            "providers": [{"api": "inference", "provider_id": "p", "provider_type": "remote::vllm",
                           "config": {"a": {"b": [1]}}, "health": {"status": "OK"}}]}}});
    let args = ["patch", "llamastackdistribution", LSD, "-n", namespace, "--subresource=status"];
    let args = args.into_iter().map(str::to_owned).chain([
        "--type=merge".to_owned(),
        "-p".to_owned(),
        patch.to_string(),
    ]);
    admin.run(args).await.unwrap().success().unwrap();
    let shown = client.get(&status_path, REG).await;
    let mut expected = json!({"name": LSD, "phase": "Ready", "version": "0.3.5"});
    expected["distributionConfig"] = patch["status"]["distributionConfig"].clone();
    assert_eq!(*shown.data(), expected);

    client.delete(namespace, REG, "other").await.failure(404);
    client.delete(namespace, NONE, LSD).await.failure(403);
    namespace_of(&world, namespace, "viewer", "view").await;
    client.delete(namespace, VIEWER, LSD).await.failure(403);
    assert!(distribution(&world, namespace).await.is_some());
    let deleted = client.delete(namespace, REG, LSD).await;
    assert_eq!(*deleted.data(), json!({"data": "LlamaStackDistribution deleted successfully"}));
    assert!(distribution(&world, namespace).await.is_none());
    assert!(config_map(&world, namespace).await.is_none());
    assert_eq!(senders(&world, "delete", namespace, "llamastackdistributions"), ["reg"]);

    // Right after a delete, and with the name in the query.
    client.install(namespace, REG, &["llama"]).await.data();
    let by_query = format!("/lsd/delete?namespace={namespace}&name={LSD}");
    client.call(Method::DELETE, &by_query, REG, None).await.data();

    assert_audited(&world, namespace).await;
}

/// Checks the audit rows of two installations, a refused one, two deletions and three refused ones.
async fn assert_audited(world: &World, namespace: &str) {
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    let rows = operator.audit_logs("limit=100").await.unwrap().items;
    let reasons = |action: &str, outcome: &str| -> Vec<String> {
        let of_action = rows.iter().filter(|row| row.action == action && row.outcome == outcome);
        of_action.filter_map(|row| row.reason.clone()).collect()
    };
    let installs = reasons("InstallLlamaStack", "success");
    assert_eq!(installs.len(), 2, "{installs:?}");
    let expected =
        format!("Kubernetes user \"reg\", namespace {namespace}, {LSD}, models granite, llama");
    assert!(installs.contains(&expected), "{installs:?}");
    assert_eq!(reasons("InstallLlamaStack", "refused").len(), 1);
    assert_eq!(reasons("DeleteLlamaStack", "success").len(), 2);
    assert_eq!(reasons("DeleteLlamaStack", "refused").len(), 3, "another name, and two people");
}

#[tokio::test]
async fn a_model_does_not_get_the_token_of_another_kind_of_its_name() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let namespace = "lsd-twin";
    namespace_of(&world, namespace, "reg", "admin").await;
    let llm = json!({"apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceService",
        "metadata": {"name": "twin", "namespace": namespace}, "spec": {}});
    apply(&admin, llm.to_string()).await;
    let uid = object(&world, &["llminferenceservice", "twin", "-n", namespace]).await.unwrap();
    let uid = uid.unwrap()["metadata"]["uid"].clone();
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "twin-sa",
         "namespace": namespace, "ownerReferences": [{"apiVersion": "serving.kserve.io/v1alpha1",
         "kind": "LLMInferenceService", "name": "twin", "uid": uid}]}},
        {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
         "metadata": {"name": "twin-token", "namespace": namespace,
         "annotations": {"kubernetes.io/service-account.name": "twin-sa"}}},
    ]});
    apply(&admin, objects.to_string()).await;
    ready_model(&admin, namespace, "twin").await;
    client.install(namespace, REG, &["twin"]).await.data();
    let lsd = distribution(&world, namespace).await.unwrap();
    let env = lsd["spec"]["server"]["containerSpec"]["env"].as_array().unwrap();
    let token = env.iter().find(|variable| variable["name"] == "VLLM_API_TOKEN_1").unwrap();
    assert_eq!(token["value"], "fake");
}

#[tokio::test]
async fn nothing_is_created_unless_every_model_is_good() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let namespace = "lsd-models";
    namespace_of(&world, namespace, "reg", "admin").await;
    ready_model(&admin, namespace, "good").await;
    apply(&admin, model(namespace, "starting").to_string()).await;
    let status = json!({"address": {"url": "http://${env.VLLM_API_TOKEN_1}"}});
    create_with_status(&admin, &model(namespace, "evil"), &status).await;
    for (models, status) in [
        (&["good", "missing"][..], 404),
        (&["good", "starting"], 409),
        (&["good", "evil"], 400),
        (&["good", "good"], 400),
        (&["../good"], 400),
        (&[], 400),
    ] {
        client.install(namespace, REG, models).await.failure(status);
    }
    let path = format!("/lsd/install?namespace={namespace}");
    let maas = json!({"models": [{"model_name": "good", "is_maas_model": true}]});
    client.call(Method::POST, &path, REG, Some(&maas)).await.failure(400);
    for body in ["", "{", "[]", "{\"models\": 1}", &"[".repeat(60_000)] {
        let request = client.request(Method::POST, &path).bearer_auth(REG);
        let request = request.header("content-type", "application/json").body(body.to_owned());
        super::fixture::answer(request).await.failure(400);
    }
    assert!(distribution(&world, namespace).await.is_none());
    assert!(senders(&world, "create", namespace, "llamastackdistributions").is_empty());
}

#[tokio::test]
async fn of_twenty_installations_at_once_one_is_made() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let namespace = "lsd-twenty";
    namespace_of(&world, namespace, "reg", "admin").await;
    ready_model(&admin, namespace, "good").await;
    let all = join_all((0..20).map(|_| client.install(namespace, REG, &["good"]))).await;
    let mut statuses: Vec<u16> = all.iter().map(|answer| answer.status.as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses[0], 200, "{statuses:?}");
    assert!(statuses[1..].iter().all(|status| *status == 409), "{statuses:?}");
    let (lsd, map) = (distribution(&world, namespace).await, config_map(&world, namespace).await);
    let (lsd, map) = (lsd.unwrap(), map.unwrap());
    assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], lsd["metadata"]["uid"]);
}

#[tokio::test]
async fn a_failure_half_way_leaves_nothing_or_what_delete_takes_away() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let namespace = "lsd-faults";
    namespace_of(&world, namespace, "reg", "admin").await;
    ready_model(&admin, namespace, "good").await;
    let proxy = world.proxy().unwrap();
    let creates = |end: &'static str| {
        move |seen: &RecordedRequest| seen.is(&Method::POST, end) && !seen.is_as_broker()
    };
    // The ConfigMap is refused or fails: the distribution is taken back.
    for fault in [
        Fault::respond(StatusCode::FORBIDDEN),
        Fault::respond(StatusCode::INTERNAL_SERVER_ERROR),
        Fault::CutBefore,
    ] {
        proxy.add(Rule::new(fault).when(creates("/configmaps")));
        let failed = client.install(namespace, REG, &["good"]).await;
        assert!([403, 500].contains(&failed.status.as_u16()), "{failed:?}");
        proxy.clear();
        assert!(distribution(&world, namespace).await.is_none());
        client.install(namespace, REG, &["good"]).await.data();
        client.delete(namespace, REG, LSD).await.data();
    }
    // A quota's text reaches the person.
    proxy.add(
        Rule::new(Fault::Respond {
            status: StatusCode::FORBIDDEN,
            headers: http::HeaderMap::new(),
            body: json!({"message": "exceeded quota:\nfour"}).to_string(),
        })
        .when(creates("/llamastackdistributions")),
    );
    let refused = client.install(namespace, REG, &["good"]).await;
    assert!(refused.failure(403).ends_with("exceeded quota: four"), "{refused:?}");
    proxy.clear();
    // A ConfigMap of somebody else stays as it is.
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata":
        {"name": "llama-stack-config", "namespace": namespace}, "data": {"a": "b"}});
    apply(&admin, foreign.to_string()).await;
    let refused = client.install(namespace, REG, &["good"]).await;
    assert!(refused.failure(409).contains("llama-stack-config"));
    assert!(distribution(&world, namespace).await.is_none());
    assert_eq!(config_map(&world, namespace).await.unwrap()["data"], json!({"a": "b"}));
    let delete = ["delete", "configmap", "llama-stack-config", "-n", namespace];
    admin.run(delete).await.unwrap().success().unwrap();
    // The text of another conflict reaches the person, and nothing is there.
    for end in ["/llamastackdistributions", "/configmaps"] {
        let body =
            json!({"reason": "Conflict", "message": "cannot be fulfilled on resourcequotas"});
        proxy.add(
            Rule::new(Fault::Respond {
                status: StatusCode::CONFLICT,
                headers: http::HeaderMap::new(),
                body: body.to_string(),
            })
            .when(creates(end)),
        );
        let refused = client.install(namespace, REG, &["good"]).await;
        assert!(refused.failure(409).ends_with("cannot be fulfilled on resourcequotas"));
        proxy.clear();
        assert!(distribution(&world, namespace).await.is_none());
    }
    // A distribution of another name that is not of this service stays as it is.
    let other = json!({"apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
        "metadata": {"name": "mine", "namespace": namespace},
        "spec": {"server": {"distribution": {"name": "starter"}}}});
    apply(&admin, other.to_string()).await;
    client.delete(namespace, ADM, "mine").await.failure(404);
    assert!(
        object(&world, &["llamastackdistribution", "mine", "-n", namespace])
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn a_session_installs_as_the_account_of_its_workspace() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let (alice, session) = person(&world, "alice").await;
    let (session, namespace) = (session.expose_secret(), alice.namespace());
    ready_model(&admin, &namespace, "good").await;
    client.install(&namespace, session, &["good"]).await.data();
    let account = format!("system:serviceaccount:{namespace}:sa-tenant-admin");
    assert_eq!(senders(&world, "create", &namespace, "llamastackdistributions"), [account]);
    client.delete(&namespace, session, LSD).await.data();
    let rows = alice.api().await.unwrap().audit_logs("action=InstallLlamaStack").await.unwrap();
    assert_eq!(rows.items.len(), 1);
    assert_eq!(rows.items[0].user_id, Some(alice.id()));
    assert!(rows.items[0].reason.as_ref().unwrap().starts_with(&format!("namespace {namespace}")));
}

#[tokio::test]
async fn an_installation_leaves_the_config_map_of_the_one_that_replaced_it() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let namespace = "lsd-replaced";
    namespace_of(&world, namespace, "reg", "admin").await;
    ready_model(&admin, namespace, "good").await;
    // Between the two creations somebody else deletes the distribution and installs another one.
    let other = client.clone();
    let replace = Fault::before(move |_| {
        let client = other.clone();
        async move {
            client.delete(namespace, ADM, LSD).await.data();
            client.install(namespace, ADM, &["good"]).await.data();
        }
    });
    world.proxy().unwrap().add(Rule::new(replace).nth(1).when(|seen: &RecordedRequest| {
        seen.is(&Method::POST, "/configmaps") && seen.has_token(REG)
    }));
    let replaced = client.install(namespace, REG, &["good"]).await;
    assert!(replaced.failure(409).contains("was deleted while it was installed"), "{replaced:?}");
    let (lsd, map) = (distribution(&world, namespace).await, config_map(&world, namespace).await);
    let (lsd, map) = (lsd.unwrap(), map.unwrap());
    assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], lsd["metadata"]["uid"]);
    assert!(senders(&world, "delete", namespace, "configmaps").iter().all(|user| user != "reg"));
    client.delete(namespace, REG, LSD).await.data();
    // A remainder, whose owner is gone, is replaced.
    let orphan = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "llama-stack-config", "namespace": namespace,
        "labels": {"opendatahub.io/dashboard": "true", "llamastack.io/distribution": LSD},
        "ownerReferences": [{"apiVersion": "llamastack.io/v1alpha1",
            "kind": "LlamaStackDistribution", "name": LSD,
            "uid": "00000000-0000-4000-8000-000000000001"}],
    }});
    apply(&admin, orphan.to_string()).await;
    client.install(namespace, REG, &["good"]).await.data();
}

#[tokio::test]
async fn each_conflict_with_a_distribution_says_what_to_do() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let namespace = "lsd-conflicts";
    namespace_of(&world, namespace, "reg", "admin").await;
    ready_model(&admin, namespace, "good").await;
    let mut foreign = json!({"apiVersion": "llamastack.io/v1alpha1",
        "kind": "LlamaStackDistribution",
        "metadata": {"name": LSD, "namespace": namespace, "finalizers": ["example.com/wait"]},
        "spec": {"server": {"distribution": {"name": "starter"}}}});
    apply(&admin, foreign.to_string()).await;
    let refused = client.install(namespace, REG, &["good"]).await;
    assert!(refused.failure(409).contains("did not create"), "{refused:?}");
    client.delete(namespace, REG, LSD).await.failure(404);
    foreign["metadata"]["labels"] = json!({"opendatahub.io/dashboard": "true"});
    apply(&admin, foreign.to_string()).await;
    let refused = client.install(namespace, REG, &["good"]).await;
    assert!(refused.failure(409).contains("delete it first"), "{refused:?}");
    client.delete(namespace, REG, LSD).await.data();
    let refused = client.install(namespace, REG, &["good"]).await;
    assert!(refused.failure(409).contains("is being deleted"), "{refused:?}");
    foreign["metadata"]["finalizers"] = json!([]);
    apply(&admin, foreign.to_string()).await;
    assert!(distribution(&world, namespace).await.is_none());
    client.install(namespace, REG, &["good"]).await.data();
}
