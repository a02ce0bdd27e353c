//! Stub broker that signs users in with the device grant, enough for the plugin to get from `login`
//! to a token. It implements no rules; the tests with the real broker are in `integration`.

use std::time::{Duration, UNIX_EPOCH};

use base64::{Engine, engine::general_purpose::STANDARD};
use openidconnect::{
    Audience, EmptyAdditionalClaims, IssuerUrl, JsonWebKeyId, Nonce, PrivateSigningKey,
    StandardClaims, SubjectIdentifier,
    core::{
        CoreEdDsaPrivateSigningKey, CoreIdToken, CoreIdTokenClaims, CoreJsonWebKeySet,
        CoreJwsSigningAlgorithm,
    },
};
use serde_json::{Value, json};

use crate::{
    stub_server::{RecordedRequest, StubResponse, StubServer, credential, json_response, problem},
    support::{CANARY, CLUSTER, Home, now},
};

pub(crate) const USER_CODE: &str = "BCDF-GHJK";

/// An Ed25519 key that is not secret: RFC 8410 section 7, all bytes equal.
fn key() -> CoreEdDsaPrivateSigningKey {
    let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let text = STANDARD.encode([&head[..], &[7; 32]].concat());
    let pem = format!("-----BEGIN {0}-----\n{text}\n-----END {0}-----\n", "PRIVATE KEY");
    let id = JsonWebKeyId::new("k".to_owned());
    CoreEdDsaPrivateSigningKey::from_ed25519_pem(&pem, Some(id)).unwrap()
}

/// A test account: each has its own user, workspace and access token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account(pub(crate) u8);

impl Account {
    pub(crate) fn user(self) -> String {
        format!("00000000-0000-4000-8000-00000000000{}", self.0)
    }

    pub(crate) fn workspace(self) -> String {
        format!("10000000-0000-4000-8000-00000000000{}", self.0)
    }

    pub(crate) fn email(self) -> String {
        format!("dev{}@example.com", self.0)
    }

    pub(crate) fn access(self) -> String {
        format!("access-{CANARY}-{}", self.0)
    }

    pub(crate) fn refresh(self) -> String {
        format!("refresh-{CANARY}-{}", self.0)
    }

    fn from_bearer(request: &RecordedRequest) -> Self {
        Self(request.bearer.bytes().last().map_or(0, |digit| digit - b'0'))
    }

    pub(crate) fn as_workspace(self) -> Value {
        json!({
            "id": self.workspace(), "namespace": format!("tenant-{}", self.user()),
            "status": "provisioned", "quota": {"cpu": "4", "memory": "8Gi"}, "tier": "basic",
            "cluster": CLUSTER, "owner": self.user(), "owner_email": self.email(), "created_at": "2026-01-01T00:00:00Z",
        })
    }
}

/// The issuer's URL, as the client addressed it.
fn issuer(request: &RecordedRequest) -> String {
    format!("http://{}", request.host)
}

pub(crate) fn discovery(request: &RecordedRequest) -> Value {
    let issuer = issuer(request);
    json!({
        "issuer": issuer, "authorization_endpoint": format!("{issuer}/oauth2/authorize"),
        "token_endpoint": format!("{issuer}/oauth2/token"),
        "revocation_endpoint": format!("{issuer}/oauth2/revoke"),
        "device_authorization_endpoint": format!("{issuer}/oauth2/device_authorization"),
        "jwks_uri": format!("{issuer}/jwks"), "response_types_supported": ["code"],
        "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["EdDSA"],
    })
}

/// The token response that completes a sign-in.
pub(crate) fn signed_in(request: &RecordedRequest, account: Account) -> StubResponse {
    signed_in_with_nonce(request, account, None)
}

/// Like [`signed_in`], with the nonce of an authorization request.
pub(crate) fn signed_in_with_nonce(
    request: &RecordedRequest,
    account: Account,
    nonce: Option<String>,
) -> StubResponse {
    let at =
        |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(now() + seconds).unwrap());
    let claims = CoreIdTokenClaims::new(
        IssuerUrl::new(issuer(request)).unwrap(),
        vec![Audience::new("kubectl-tenant".to_owned())],
        at(600).into(),
        at(0).into(),
        StandardClaims::new(SubjectIdentifier::new(account.user())),
        EmptyAdditionalClaims {},
    )
    .set_nonce(nonce.map(Nonce::new));
    let algorithm = CoreJwsSigningAlgorithm::EdDsa;
    let id_token = CoreIdToken::new(claims, &key(), algorithm, None, None).unwrap();
    json_response(
        200,
        &json!({
            "access_token": account.access(), "token_type": "Bearer", "expires_in": 900,
            "refresh_token": account.refresh(), "id_token": id_token.to_string(),
        }),
    )
}

/// An OAuth 2.0 error response.
pub(crate) fn oauth_error(code: &str) -> StubResponse {
    json_response(400, &json!({ "error": code }))
}

/// Responds to every request except those of the token endpoint.
pub(crate) fn respond(request: &RecordedRequest) -> StubResponse {
    let account = Account::from_bearer(request);
    let path = request.path.split('?').next().unwrap_or_default();
    let workspaces = "/api/v1/workspaces";
    match path {
        "/.well-known/openid-configuration" => json_response(200, &discovery(request)),
        "/jwks" => {
            let keys = CoreJsonWebKeySet::new(vec![key().as_verification_key()]);
            json_response(200, &serde_json::to_value(keys).unwrap())
        }
        "/oauth2/device_authorization" => json_response(
            200,
            &json!({
                "device_code": format!("device-{CANARY}"), "user_code": USER_CODE,
                "verification_uri": format!("{}/device", issuer(request)),
                "verification_uri_complete":
                    format!("{}/device?user_code={USER_CODE}", issuer(request)),
                "expires_in": 600, "interval": 1,
            }),
        ),
        "/oauth2/revoke" => json_response(200, &json!({})),
        "/api/v1/me/sessions" if request.method == "GET" => {
            json_response(200, &json!({"items": [session(account, 1), session(account, 2)]}))
        }
        "/api/v1/me/sessions" => json_response(200, &json!({"ended": 2})),
        _ if path.starts_with("/api/v1/me/sessions/") => {
            StubResponse::Http(204, "application/json", String::new())
        }
        "/api/v1/users/lookup" => {
            let known = Account(3);
            lookup(&request.path, known, &user(known, "active"))
        }
        _ if path.starts_with("/api/v1/users/") && path.ends_with("/sessions") => {
            if request.method == "GET" {
                json_response(200, &json!({"items": [session(account, 2)]}))
            } else {
                json_response(200, &json!({"ended": 2}))
            }
        }
        _ if path.starts_with("/api/v1/users/") && path.ends_with("/groups") => {
            let (id, email) = (Account(3).user(), Account(3).email());
            json_response(200, &json!({"id": id, "email": email, "groups": ["dev", "ops"]}))
        }
        "/api/v1/workspaces/lookup" => {
            lookup(&request.path, account, &json!({"items": [account.as_workspace()]}))
        }
        "/api/v1/users" => user_page(request.path.contains("cursor=b%26c")),
        _ if path.starts_with("/api/v1/users/") => {
            let status = if path.ends_with("suspend") { "suspended" } else { "active" };
            json_response(200, &user(Account(3), status))
        }
        "/api/v1/me" => json_response(
            200,
            &json!({
                "id": account.user(), "email": account.email(), "role": "user",
                "session_id": "20000000-0000-4000-8000-000000000000",
                "session_expires_at": "2100-01-01T00:00:00Z",
            }),
        ),
        "/api/v1/workspaces/credentials/kubeconfig" => {
            StubResponse::Http(200, "application/yaml", kubeconfig(&issuer(request), account))
        }
        // A broker without tenants.
        "/api/v1/tenants" => problem(404, "not_found"),
        _ if path == workspaces => json_response(200, &json!({"items": [account.as_workspace()]})),
        _ if path.starts_with(workspaces) && path.contains("/credentials/") => {
            revocation(path.rsplit('/').next().unwrap_or_default(), account)
        }
        _ if path.ends_with("/credentials") && request.method == "GET" => {
            credential_page(request.path.contains("cursor=jti-1"), account)
        }
        _ if path.starts_with(workspaces) && path.ends_with("/credentials") => {
            let StubResponse::Http(status, kind, body) =
                credential(&format!("k8s-{}", account.0), 7200)
            else {
                unreachable!()
            };
            let own = account.workspace();
            StubResponse::Http(status, kind, body.replace(crate::support::WORKSPACE, &own))
        }
        other => panic!("unexpected request: {} {other}", request.method),
    }
}

/// A session; number 1 is the current one.
fn session(account: Account, number: u8) -> Value {
    json!({
        "id": format!("20000000-0000-4000-8000-00000000000{}", number - 1),
        "client": "kubectl-tenant", "created_at": "2026-01-01T00:00:00Z",
        "last_used_at": "2026-01-02T00:00:00Z", "expires_at": "2026-02-01T00:00:00Z",
        "ip_address": "192.0.2.1", "user_agent": account.email(), "current": number == 1,
    })
}

fn user(account: Account, status: &str) -> Value {
    json!({
        "id": account.user(), "email": account.email(), "role": "user", "status": status,
        "created_at": "2026-01-01T00:00:00Z",
    })
}

/// Responds to a lookup: finds the account if the name is one of its names.
fn lookup(path: &str, account: Account, found: &Value) -> StubResponse {
    let name = path.split_once("?name=").map_or("", |(_, name)| name).replace("%40", "@");
    let namespace = format!("tenant-{}", account.user());
    if [account.user(), account.workspace(), account.email(), namespace].contains(&name) {
        json_response(200, found)
    } else {
        json_response(
            404,
            &json!({"title": "Not found", "status": 404, "code": "not_found", "detail": "none"}),
        )
    }
}

/// Two pages of users.
fn user_page(second: bool) -> StubResponse {
    let page = if second {
        json!({"items": [user(Account(2), "suspended")]})
    } else {
        json!({"items": [user(Account(1), "active")], "next_cursor": "b&c"})
    };
    json_response(200, &page)
}

/// Two pages of credentials.
fn credential_page(second: bool, account: Account) -> StubResponse {
    let credential = |number: u8, kind: &str, state: &str| {
        json!({
            "credential_id": format!("jti-{number}"), "workspace_id": account.workspace(),
            "kind": kind, "state": state, "bound": false, "user_id": account.user(),
            "email": account.email(), "session_id": "20000000-0000-4000-8000-000000000000",
            "client": "kubectl-tenant\u{1b}[2J", "issued_at": "2026-01-01T00:00:00Z",
            "expires_at": "2026-01-01T02:00:00Z", "of_a_newer_broker": true,
        })
    };
    let page = if second {
        json!({"items": [credential(2, "carrier_pigeon", "asleep")]})
    } else {
        json!({"items": [credential(1, "kubeconfig", "live")], "next_cursor": "jti-1"})
    };
    json_response(200, &page)
}

/// Responds to a revocation; the id selects the outcome.
fn revocation(id: &str, account: Account) -> StubResponse {
    let step = |name: &str, result: &str| json!({"step": name, "result": result, "duration_ms": 1});
    let body = |state: &str, by: Option<&str>, others: u32, steps: Value| {
        let mut document = json!({
            "credential_id": id, "workspace_id": account.workspace(), "state": state,
            "others_revoked": others, "others": [], "accepted_for_seconds": 10, "steps": steps,
        });
        if let Some(by) = by {
            document["by"] = by.into();
        }
        document
    };
    let open = json!([step("record", "done"), step("delete_secret", "open")]);
    match id {
        "over" => json_response(200, &body("over", None, 0, json!([]))),
        "open" => json_response(202, &body("revoking", Some("secret"), 0, open)),
        "alone" => json_response(200, &body("revoked", Some("secret"), 0, json!([]))),
        "other" => json_response(200, &body("revoked", Some("service_account"), 3, json!([]))),
        _ => json_response(
            404,
            &json!({"title": "Not found", "status": 404, "code": "not_found", "detail": "none"}),
        ),
    }
}

fn kubeconfig(broker: &str, account: Account) -> String {
    let document = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "tenant-context",
        "clusters": [{"name": CLUSTER, "cluster": {"server": "https://k8s.example.com"}}],
        "contexts": [{"name": "tenant-context", "context": {
            "cluster": CLUSTER, "user": "sa-tenant-admin",
            "namespace": format!("tenant-{}", account.user()),
        }}],
        "users": [{"name": "sa-tenant-admin", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "kubectl-tenant",
            "args": ["get-token", format!("--broker={broker}"), format!("--cluster={CLUSTER}"),
                format!("--workspace={}", account.workspace())],
            "interactiveMode": "IfAvailable", "provideClusterInfo": false,
        }}}],
    });
    document.to_string()
}

/// Responds like a broker at which this account is confirmed immediately.
pub(crate) fn respond_confirmed(request: &RecordedRequest, account: Account) -> StubResponse {
    match request.path.as_str() {
        "/oauth2/token" if request.body.contains("device_code") => signed_in(request, account),
        _ => respond(request),
    }
}

/// Starts a broker that confirms every sign-in immediately: the first as account 1, the second as
/// account 2, and so on.
pub(crate) fn auto_confirming() -> StubServer {
    let count = std::sync::atomic::AtomicU8::new(0);
    StubServer::start(move |request, _| match request.path.as_str() {
        "/oauth2/token" if request.body.contains("device_code") => {
            let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
            respond_confirmed(request, Account(number))
        }
        _ => respond(request),
    })
}

/// Signs in at this broker with the device grant, in a new home folder.
pub(crate) fn sign_in(broker: StubServer, more: &[&str]) -> (Home, StubServer) {
    let home = Home::new(&broker.url);
    let output = home.run(&[&["login", "--device", "--broker", &broker.url], more].concat());
    assert_eq!(output.code, 0, "{output:?}");
    (home, broker)
}
