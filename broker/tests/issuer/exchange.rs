//! Machines exchange tokens of a trusted issuer for a session of one workspace.

use std::collections::BTreeMap;

use integration::oidc_provider::OidcProvider;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tenant_broker::{
    base::throttle::WindowQuota,
    issuer::token_exchange::{Rule, WorkloadSettings},
    on_engine,
};
use uuid::Uuid;

use crate::{
    upstream::reasons,
    world::{JsonResponse, On, World, on_both_engines},
};

on_both_engines!(
    a_machine_gets_a_short_session_for_its_workspace,
    a_session_never_outlives_the_machine_s_token,
    an_invalid_subject_token_is_refused,
    a_rule_admits_only_the_claims_that_it_names,
    exchanges_are_rate_limited_and_do_not_flood_the_key_endpoint,
    a_machine_may_use_only_its_workspace,
);

const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const AUDIENCE: &str = "https://broker.example.com";

struct Pipeline {
    world: World,
    ci: OidcProvider,
    workspace: Uuid,
    other: Uuid,
}

impl Pipeline {
    async fn start(on: On) -> Self {
        let ci = OidcProvider::start().await.unwrap();
        let namespace = "tenant-of-ada";
        let rule = Rule {
            workspace: namespace.to_owned(),
            claims: BTreeMap::from([
                ("repository".to_owned(), "acme/app".to_owned()),
                ("kubernetes.io.serviceaccount.name".to_owned(), "builder".to_owned()),
            ]),
        };
        let workload = WorkloadSettings {
            issuer: ci.issuer().to_owned(),
            audience: AUDIENCE.to_owned(),
            ca_file: None,
            jwks_uri: None,
            rules: BTreeMap::from([("deploy".to_owned(), rule)]),
        };
        let world = World::with(on, |settings| {
            settings.workloads = BTreeMap::from([("ci".to_owned(), workload)]);
            settings.exchange = WindowQuota { count: 30, window_seconds: 300 };
        })
        .await;
        let workspace = workspace(&world, namespace).await;
        let other = self::workspace(&world, "tenant-of-ada-2").await;
        Self { world, ci, workspace, other }
    }

    /// A token of the CI system, with other claims than the usual ones.
    async fn token(&self, more: Value) -> String {
        let now = self.world.clock.now_ms() / 1000;
        let mut claims = json!({
            "iss": self.ci.issuer(), "aud": [AUDIENCE, "another"], "sub": "repo:acme/app",
            "iat": now, "nbf": now, "exp": now + 3600, "repository": "acme/app",
            "kubernetes.io": { "serviceaccount": { "name": "builder" } },
        });
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.ci.sign(json!({ "claims": claims })).await.unwrap()
    }

    async fn exchange(&self, token: &str, workspace: &str) -> JsonResponse {
        let form = [
            ("grant_type", GRANT),
            ("subject_token", token),
            ("subject_token_type", JWT),
            ("audience", workspace),
        ];
        self.world.token(&form).await
    }

    async fn refused(&self, token: &str, text: &str) {
        let answer = self.exchange(token, "tenant-of-ada").await;
        answer.refused(400, "invalid_request");
        assert!(answer.body["error_description"].as_str().unwrap().contains(text), "{answer:?}");
    }
}

async fn workspace(world: &World, namespace: &str) -> Uuid {
    let (id, mut tx) = (world.clock.random_id(), world.db.begin().await.unwrap());
    on_engine!(tx.connection(), c => sqlx::query(
        "INSERT INTO tenants (id, created_at) VALUES ($1, 0)")
        .bind(id).execute(c).await.map(drop))
    .unwrap();
    on_engine!(tx.connection(), c => sqlx::query(
        "INSERT INTO workspaces (id, tenant_id, user_id, cluster, k8s_namespace, k8s_sa_name, \
           tier, quota_cpu, quota_memory, status, status_changed_at, created_at) \
         VALUES ($1, $1, $2, 'internal-cluster', $3, 'sa', 'basic', '4', '8Gi', 'ready', 0, 0)")
        .bind(id).bind(world.user).bind(namespace).execute(c).await.map(drop))
    .unwrap();
    tx.commit().await.unwrap();
    id
}

async fn a_machine_gets_a_short_session_for_its_workspace(on: On) {
    let pipeline = Pipeline::start(on).await;
    let token = pipeline.token(json!({})).await;
    for name in ["tenant-of-ada".to_owned(), pipeline.workspace.to_string()] {
        let answer = pipeline.exchange(&token, &name).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        assert_eq!(answer.headers["cache-control"], "no-store");
        assert!(answer.body["access_token"].as_str().unwrap().starts_with("tba_"));
        assert_eq!(
            answer.body["issued_token_type"],
            "urn:ietf:params:oauth:token-type:access_token"
        );
        assert_eq!(answer.body["expires_in"], 900);
        assert!(
            answer.body.get("refresh_token").is_none() && answer.body.get("id_token").is_none()
        );
    }
    let recorded = reasons(&pipeline.world, "ExchangeToken").await;
    assert_eq!(recorded, ["ci/deploy: \"repo:acme/app\""; 2]);
    let theirs = "SELECT COUNT(*) FROM sessions WHERE workspace_id IS NOT NULL \
                  AND client_id = 'workload:ci'";
    assert_eq!(pipeline.world.number(theirs).await, 2);
    // The endpoint says so; another grant still wants its client.
    let document = pipeline.world.at("/.well-known/openid-configuration");
    let document = JsonResponse::send(pipeline.world.http.get(document)).await.body;
    assert!(document["grant_types_supported"].as_array().unwrap().contains(&json!(GRANT)));
}

async fn a_session_never_outlives_the_machine_s_token(on: On) {
    let pipeline = Pipeline::start(on).await;
    let now = pipeline.world.clock.now_ms() / 1000;
    let token = pipeline.token(json!({ "exp": now + 100 })).await;
    let answer = pipeline.exchange(&token, "tenant-of-ada").await;
    assert!((99..=100).contains(&answer.body["expires_in"].as_i64().unwrap()), "{answer:?}");
    let access = answer.body["access_token"].as_str().unwrap();
    assert_eq!(pipeline.world.me(access).await, Err(StatusCode::FORBIDDEN));
    pipeline.world.advance_seconds(101);
    assert_eq!(pipeline.world.me(access).await, Err(StatusCode::UNAUTHORIZED));
    // Within the skew it is still believed, and gives nothing.
    pipeline.refused(&token, "has expired").await;
}

async fn an_invalid_subject_token_is_refused(on: On) {
    let pipeline = Pipeline::start(on).await;
    let now = pipeline.world.clock.now_ms() / 1000;
    for more in [
        json!({ "aud": "another" }),
        json!({ "exp": now - 60 }),
        json!({ "exp": null }),
        json!({ "iat": now + 61 }),
        json!({ "nbf": now + 61 }),
        json!({ "sub": null }),
        json!({ "events": { "http://schemas.openid.net/event/backchannel-logout": {} } }),
    ] {
        let token = pipeline.token(more.clone()).await;
        pipeline.refused(&token, "not valid here").await;
    }
    let token = pipeline.token(json!({ "iss": "https://evil.example" })).await;
    pipeline.refused(&token, "issuer of subject_token is not configured here").await;
    for text in ["x", "a.b.c", "..", &"a".repeat(5000)] {
        pipeline.refused(text, "issuer of subject_token is not configured here").await;
    }
    let usual = pipeline.token(json!({})).await;
    let claims = usual.split('.').nth(1).unwrap();
    let claims: Value = serde_json::from_slice(&decode(claims)).unwrap();
    for how in [
        json!({ "header": { "alg": "none" } }),
        json!({ "header": { "alg": "HS256" } }),
        json!({ "header": { "typ": "logout+jwt" } }),
        json!({ "foreign": true }),
    ] {
        let mut how = how;
        how["claims"] = claims.clone();
        let token = pipeline.ci.sign(how.clone()).await.unwrap();
        let answer = pipeline.exchange(&token, "tenant-of-ada").await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{how}");
    }
    assert_eq!(pipeline.world.number("SELECT COUNT(*) FROM sessions").await, 0);
    // Requests with unsupported parameters.
    for (name, value) in [
        ("subject_token_type", "urn:ietf:params:oauth:token-type:saml2"),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:refresh_token"),
        ("actor_token", "x"),
        ("resource", "tenant-of-ada"),
        ("audience", ""),
    ] {
        let mut form = vec![
            ("grant_type", GRANT),
            ("subject_token", usual.as_str()),
            ("subject_token_type", JWT),
            ("audience", "tenant-of-ada"),
        ];
        form.retain(|(kept, _)| *kept != name);
        form.push((name, value));
        pipeline.world.token(&form).await.refused(400, "invalid_request");
    }
}

fn decode(part: &str) -> Vec<u8> {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    URL_SAFE_NO_PAD.decode(part).unwrap()
}

async fn a_rule_admits_only_the_claims_that_it_names(on: On) {
    let pipeline = Pipeline::start(on).await;
    for more in [
        json!({ "repository": "acme/other" }),
        json!({ "repository": "acme/app2" }),
        json!({ "repository": ["acme/app"] }),
        json!({ "repository": null }),
        json!({ "kubernetes.io": { "serviceaccount": { "name": "default" } } }),
        json!({ "kubernetes.io.serviceaccount.name": "builder" }),
    ] {
        let token = pipeline.token(more.clone()).await;
        pipeline.refused(&token, "no rule").await;
    }
    // Another workspace of the same owner, and none at all, are the same answer.
    let token = pipeline.token(json!({})).await;
    for name in [pipeline.other.to_string(), "tenant-of-nobody".to_owned()] {
        let answer = pipeline.exchange(&token, &name).await;
        answer.refused(400, "invalid_request");
        assert!(answer.body["error_description"].as_str().unwrap().contains("no rule"));
    }
    // The owner's right ends, and with it the machine's.
    pipeline.world.execute("UPDATE users SET status = 'suspended'").await;
    pipeline.refused(&token, "no rule").await;
    assert_eq!(pipeline.world.number("SELECT COUNT(*) FROM sessions").await, 0);
}

async fn exchanges_are_rate_limited_and_do_not_flood_the_key_endpoint(on: On) {
    let pipeline = Pipeline::start(on).await;
    let good = pipeline.token(json!({})).await;
    assert_eq!(pipeline.exchange(&good, "tenant-of-ada").await.status, StatusCode::OK);
    pipeline.world.advance_seconds(5);
    let before = pipeline.ci.counts().await.unwrap()["/jwks"];
    let claims: Value = serde_json::from_slice(&decode(good.split('.').nth(1).unwrap())).unwrap();
    for n in 0..29 {
        let header = json!({ "kid": format!("unknown-{n}") });
        let what = json!({ "header": header, "claims": claims });
        let token = pipeline.ci.sign(what).await.unwrap();
        pipeline.refused(&token, "not valid here").await;
    }
    assert_eq!(pipeline.ci.counts().await.unwrap()["/jwks"] - before, 1);
    let answer = pipeline.exchange(&good, "tenant-of-ada").await;
    answer.refused(429, "temporarily_unavailable");
    assert!(answer.headers.contains_key("retry-after"));
    pipeline.world.advance_seconds(300);
    pipeline.ci.rotate("EC", false).await.unwrap();
    let token = pipeline.token(json!({})).await;
    assert_eq!(pipeline.exchange(&token, "tenant-of-ada").await.status, StatusCode::OK);
    pipeline.world.advance_seconds(3600);
    pipeline.ci.outage(Some(503)).await.unwrap();
    let fresh = pipeline.token(json!({})).await;
    pipeline.exchange(&fresh, "tenant-of-ada").await.refused(503, "temporarily_unavailable");
}

async fn a_machine_may_use_only_its_workspace(on: On) {
    let pipeline = Pipeline::start(on).await;
    // Not even where its owner administers.
    pipeline.world.execute("UPDATE users SET role = 'admin'").await;
    let token = pipeline.token(json!({})).await;
    let answer = pipeline.exchange(&token, "tenant-of-ada").await;
    let access = answer.body["access_token"].as_str().unwrap();
    for path in ["/api/v1/me", "/api/v1/me/sessions", "/api/v1/users", "/oauth2/userinfo"] {
        let request = pipeline.world.http.get(pipeline.world.at(path)).bearer_auth(access);
        let answer = JsonResponse::send(request).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
    let request = pipeline.world.http.delete(pipeline.world.at("/api/v1/me/sessions"));
    let answer = JsonResponse::send(request.bearer_auth(access)).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let login = pipeline.world.http.get(pipeline.world.at("/account")).bearer_auth(access);
    assert_ne!(login.send().await.unwrap().status(), StatusCode::OK);
    pipeline.world.refresh(access).await.refused(400, "invalid_grant");
}
