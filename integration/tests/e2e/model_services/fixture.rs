//! A cluster with the kinds of KServe and Llama Stack, its users, and a client of model services.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use integration::fault_proxy::{Fault, Rule};
use integration::kubectl::Kubectl;
pub(super) use integration::model_kinds::{DEFINITIONS, TIMEOUT, inference_service as model};
use integration::person::Person;
use integration::world::{World, WorldBuilder};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The users of the document, and two more: token, name, uid, groups.
const USERS: &str = "adm-token-6f2b,adm,u-adm\n\
                     reg-token-81cc,reg,u-reg\n\
                     none-token-93d1,none,u-none\n\
                     one-token-2a7e,one,u-one,\"team\"\n\
                     viewer-token-5c0f,viewer,u-viewer\n";
pub(super) const ADM: &str = "adm-token-6f2b";
pub(super) const REG: &str = "reg-token-81cc";
pub(super) const NONE: &str = "none-token-93d1";
pub(super) const ONE: &str = "one-token-2a7e";
pub(super) const VIEWER: &str = "viewer-token-5c0f";

/// Limit of the time until a request is held.
const HELD_TIMEOUT: Duration = Duration::from_mins(1);

/// The builder of a world whose broker serves model services and whose cluster has users by token.
pub(super) fn builder() -> WorldBuilder {
    World::builder().token_users(USERS).setting("model_services.enabled", true)
}

/// The builder of a world with the kinds of KServe and Llama Stack.
pub(crate) fn builder_with_kinds() -> WorldBuilder {
    builder()
        .every_controller()
        .apiserver_flag("--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
}

/// Starts the world, behind a fault proxy, and installs the kinds.
pub(super) async fn world() -> World {
    let world = builder_with_kinds().fault_proxy().start().await.unwrap();
    install_kinds(&world).await;
    world
}

/// Installs the kinds and waits until their lists are served.
pub(crate) async fn install_kinds(world: &World) {
    integration::model_kinds::install(world).await.unwrap();
}

/// As [`install_kinds`], with these definitions.
pub(super) async fn install_definitions(world: &World, definitions: &str) {
    integration::model_kinds::install_definitions(world, definitions).await.unwrap();
}

/// Waits until `kubectl auth can-i` says yes.
pub(super) async fn until_allowed(admin: &Kubectl, args: &[&str]) {
    admin.until_allowed(args).await.unwrap();
}

pub(super) async fn apply(admin: &Kubectl, objects: impl Into<Vec<u8>>) {
    admin.run_with_input(["apply", "-f", "-"], objects).await.unwrap().success().unwrap();
}

/// Creates a namespace, and gives a user a ClusterRole in it.
pub(crate) async fn namespace_of(world: &World, name: &str, user: &str, role: &str) {
    let admin = world.admin_kubectl().unwrap();
    apply(
        &admin,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string(),
    )
    .await;
    bind(
        &admin,
        name,
        &json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}),
        role,
    )
    .await;
    let user = format!("--as={user}");
    until_allowed(&admin, &[&user, "list", "llamastackdistributions.llamastack.io", "-n", name])
        .await;
}

/// Binds a ClusterRole to a subject in a namespace.
pub(super) async fn bind(admin: &Kubectl, namespace: &str, subject: &Value, role: &str) {
    let name = format!("{role}-{}", subject["name"].as_str().unwrap());
    apply(
        admin,
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        })
        .to_string(),
    )
    .await;
}

/// Creates an object with a status, which is written by itself.
pub(super) async fn create_with_status(admin: &Kubectl, object: &Value, status: &Value) {
    integration::model_kinds::apply_with_status(admin, object, status).await.unwrap();
}

/// A client of model services.
#[derive(Clone, Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    base: String,
}

/// An answer of model services.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

impl Answer {
    /// The message of a failure with this status, in the format that frontends expect.
    #[track_caller]
    pub(super) fn failure(&self, status: u16) -> &str {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.body["error"]["code"], status.to_string(), "{self:?}");
        assert!(self.headers.contains_key("x-request-id"), "{self:?}");
        assert_eq!(self.headers["cache-control"], "no-store", "{self:?}");
        assert_eq!(self.headers.contains_key("www-authenticate"), status == 401, "{self:?}");
        let message = self.body["error"]["message"].as_str().unwrap();
        assert!(!message.is_empty(), "{self:?}");
        message
    }

    /// The `data` of a success.
    #[track_caller]
    pub(super) fn data(&self) -> &Value {
        assert_eq!(self.status, StatusCode::OK, "{self:?}");
        &self.body["data"]
    }

    pub(super) fn request_id(&self) -> &str {
        self.headers["x-request-id"].to_str().unwrap()
    }
}

impl Client {
    pub(super) fn new(world: &World) -> Self {
        Self::at(world.broker().url().unwrap().join("gen-ai/api/v1").unwrap().as_str())
    }

    /// A client of the services at this base.
    pub(super) fn at(base: &str) -> Self {
        let http = integration::http_client::http_client(None).unwrap();
        Self { http, base: base.to_owned() }
    }

    /// A client of the services at this base, whose certificate is of this CA (PEM).
    pub(super) fn with_authority(base: &str, authority: &str) -> Self {
        let http = integration::http_client::http_client(Some(authority)).unwrap();
        Self { http, base: base.to_owned() }
    }

    pub(super) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base))
    }

    /// Sends a request with this token and this JSON.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: Option<&Value>,
    ) -> Answer {
        let request = self.request(method, path).bearer_auth(token);
        answer(match body {
            Some(body) => request.json(body),
            None => request,
        })
        .await
    }

    /// Sends a request, and returns once this fault holds a call to the API server as the caller,
    /// whose path has this end.
    pub(super) async fn get_held(
        &self,
        world: &World,
        fault: Fault,
        end: &'static str,
        path: &str,
        token: &str,
    ) -> JoinHandle<Answer> {
        let held = world.proxy().unwrap().add(
            Rule::new(fault).when(move |seen| !seen.is_as_broker() && seen.path.ends_with(end)),
        );
        let (client, path, token) = (self.clone(), path.to_owned(), token.to_owned());
        let running = tokio::spawn(async move { client.get(&path, &token).await });
        let is_held = async {
            while held.fired() == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(HELD_TIMEOUT, is_held).await.unwrap();
        running
    }

    pub(super) async fn get(&self, path: &str, token: &str) -> Answer {
        self.call(Method::GET, path, token, None).await
    }

    pub(super) async fn install(&self, namespace: &str, token: &str, models: &[&str]) -> Answer {
        let models: Vec<_> = models.iter().map(|name| json!({"model_name": name})).collect();
        let path = format!("/lsd/install?namespace={namespace}");
        self.call(Method::POST, &path, token, Some(&json!({ "models": models }))).await
    }

    pub(super) async fn delete(&self, namespace: &str, token: &str, name: &str) -> Answer {
        let path = format!("/lsd/delete?namespace={namespace}");
        self.call(Method::DELETE, &path, token, Some(&json!({ "name": name }))).await
    }
}

/// Sends a request.
pub(super) async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Answer { status, headers, body }
}

/// Every operation of the document with its path, and whether it is for strangers too.
pub(super) fn operations() -> Vec<(Method, String)> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/model-services.yaml");
    let document: Value = serde_norway::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            if operation.get("security").is_some() {
                operations.push((method, path.clone()));
            }
        }
    }
    assert!(operations.len() >= 7, "{operations:?}");
    operations
}

/// Whether an operation is on a namespace.
pub(super) fn is_in_namespace(path: &str) -> bool {
    path.starts_with("/aaa/") || path.starts_with("/lsd/")
}

/// Creates a person with a workspace, and returns the access token of a session.
pub(super) async fn person(world: &World, name: &str) -> (Person, SecretString) {
    let person = world.person(name).await.unwrap();
    person.api().await.unwrap().init("basic").await.unwrap();
    let token = person.sign_in().await.unwrap().access_token;
    assert!(token.expose_secret().starts_with("tba_"));
    (person, token)
}
