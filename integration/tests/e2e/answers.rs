//! Responses about personal workspaces, kubeconfigs and names of objects, byte for byte: they are
//! those from before there were tenants, because programs, scripts and files of people depend on them.

use std::fmt::Write as _;
use std::time::Duration;

use http::Method;
use integration::api::Api;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};
use url::Url;
use uuid::Uuid;

use crate::tenants::{TENANT_BROKER, until_served, with_object};

/// Limit of the time until the broker has carried out a Tenant.
const JOIN_TIMEOUT: Duration = Duration::from_mins(1);

/// Requests about a workspace: the method, the path and the body.
const REQUESTS: [(Method, &str, &str); 8] = [
    (Method::GET, "me", ""),
    (Method::GET, "workspaces", ""),
    (Method::GET, "workspaces/{id}", ""),
    (Method::POST, "workspaces/init", r#"{"tier":"basic"}"#),
    (Method::POST, "workspaces/{id}/credentials", ""),
    (Method::GET, "workspaces/{id}/usage", ""),
    (Method::GET, "workspaces/credentials/kubeconfig", ""),
    (Method::GET, "workspaces/credentials/kubeconfig?mode=exec", ""),
];
/// The line of [`answers`] with the list of workspaces.
const LINE_OF_LIST: usize = 5;
/// Fields that differ at each request.
const VOLATILE: [&str; 6] =
    ["token", "credential_id", "expiration_timestamp", "expires_in", "duration_ms", "request_id"];
/// Fields that differ from one person to another, besides identifiers and addresses.
const PERSONAL: [&str; 4] =
    ["created_at", "session_expires_at", "session_id", "certificate-authority-data"];

/// The responses to [`REQUESTS`], without what differs at each request.
pub(crate) async fn answers(api: &Api, workspace: Uuid) -> String {
    let mut text = String::new();
    for (method, path, body) in REQUESTS {
        let path = path.replace("{id}", &workspace.to_string());
        let answer = answer(api, method.clone(), &path, body).await;
        writeln!(text, "{method} {path}\n{answer}").unwrap();
    }
    text
}

/// The status, the media type and the body of a response, without what differs at each request.
async fn answer(api: &Api, method: Method, path: &str, body: &'static str) -> String {
    let mut request = api.request(method, path).unwrap();
    if !body.is_empty() {
        request = request.header("content-type", "application/json").body(body);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let media_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    let body = response.text().await.unwrap();
    format!("{status} {media_type}\n{}", mask(&body, &VOLATILE))
}

/// Replaces the values of fields, in JSON and in YAML.
fn mask(text: &str, fields: &[&str]) -> String {
    // A string has no escapes.
    let end_in_json = |value: &str| match value.strip_prefix('"') {
        Some(text) => text.find('"').map(|end| end + 2),
        None => value.find([',', '}']),
    };
    let end_in_yaml = |value: &str| value.find('\n');
    fields.iter().fold(text.to_owned(), |text, field| {
        let text = mask_after(&text, &format!("\"{field}\":"), end_in_json);
        mask_after(&text, &format!(" {field}: "), end_in_yaml)
    })
}

/// Replaces what follows each occurrence of `key`, up to the end that `end_of` finds.
fn mask_after(text: &str, key: &str, end_of: impl Fn(&str) -> Option<usize>) -> String {
    let mut parts = text.split(key);
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_at(end_of(part).unwrap_or(part.len()));
        masked.extend([key, "*", rest]);
    }
    masked
}

/// The objects of a person's workspace, each with its kind, name and identifier.
pub(crate) async fn objects(world: &World, namespace: &str) -> Vec<String> {
    let kinds = "limitranges,resourcequotas,rolebindings,serviceaccounts";
    let listed = crate::object_list(world, &[kinds, "-n", namespace]).await.unwrap();
    let line = |object: &Value| {
        let metadata = &object["metadata"];
        format!("{} {} {}", object["kind"], metadata["name"], metadata["uid"])
    };
    // Kubernetes makes one for each namespace.
    let is_ours = |object: &&Value| object["metadata"]["name"] != "default";
    listed.iter().filter(is_ours).map(line).collect()
}

/// The responses of the version before tenants to a person with a new workspace. `USER`,
/// `WORKSPACE`, `BROKER` and `SERVER` stand for identifiers and addresses.
const BEFORE_TENANTS: &str = r#"GET me
200 application/json; charset=utf-8
{"email":"alice@example.com","id":"USER","role":"user","session_expires_at":*,"session_id":*}
GET workspaces
200 application/json; charset=utf-8
{"items":[{"cluster":"internal-cluster","created_at":*,"id":"WORKSPACE","namespace":"tenant-USER","owner":"USER","owner_email":"alice@example.com","quota":{"cpu":"4","memory":"8Gi"},"status":"provisioned","tier":"basic"}]}
GET workspaces/WORKSPACE
200 application/json; charset=utf-8
{"cluster":"internal-cluster","created_at":*,"id":"WORKSPACE","namespace":"tenant-USER","owner":"USER","owner_email":"alice@example.com","quota":{"cpu":"4","memory":"8Gi"},"status":"provisioned","tier":"basic"}
POST workspaces/init
200 application/json; charset=utf-8
{"cluster":"internal-cluster","created_at":*,"id":"WORKSPACE","namespace":"tenant-USER","owner":"USER","quota":{"cpu":"4","memory":"8Gi"},"status":"provisioned","tier":"basic"}
POST workspaces/WORKSPACE/credentials
200 application/json; charset=utf-8
{"credential_id":*,"expiration_timestamp":*,"expires_in":*,"token":*,"workspace_id":"WORKSPACE"}
GET workspaces/WORKSPACE/usage
200 application/json; charset=utf-8
{"items":[],"workspace_id":"WORKSPACE"}
GET workspaces/credentials/kubeconfig
200 application/x-yaml
apiVersion: v1
clusters:
- cluster:
    server: SERVER
    certificate-authority-data: *
  name: internal-cluster
contexts:
- context:
    cluster: internal-cluster
    namespace: tenant-USER
    user: sa-tenant-admin
  name: tenant-context
current-context: tenant-context
kind: Config
users:
- user:
    token: *
  name: sa-tenant-admin

GET workspaces/credentials/kubeconfig?mode=exec
200 application/x-yaml
apiVersion: v1
clusters:
- cluster:
    server: SERVER
    certificate-authority-data: *
  name: internal-cluster
contexts:
- context:
    cluster: internal-cluster
    namespace: tenant-USER
    user: sa-tenant-admin
  name: tenant-context
current-context: tenant-context
kind: Config
users:
- user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: kubectl-tenant
      args:
      - get-token
      - --broker=BROKER
      - --cluster=internal-cluster
      - --workspace=WORKSPACE
      interactiveMode: IfAvailable
      provideClusterInfo: false
      installHint: kubectl-tenant is not on your PATH. Build it with `cargo install --path kubectl-tenant` from the project's source, or ask your platform team.
  name: sa-tenant-admin

"#;

/// The response to the creation of the workspace.
const CREATED: &str = r#"201 application/json; charset=utf-8
{"cluster":"internal-cluster","created_at":*,"id":"WORKSPACE","namespace":"tenant-USER","owner":"USER","quota":{"cpu":"4","memory":"8Gi"},"status":"provisioned","tier":"basic"}"#;

/// The response to its suspension.
const SUSPENDED: &str = r#"200 application/json; charset=utf-8
{"id":"WORKSPACE","status":"suspended","steps":[{"duration_ms":*,"result":"done","step":"record"},{"duration_ms":*,"result":"done","step":"label_namespace"},{"duration_ms":*,"result":"done","step":"delete_role_bindings"},{"duration_ms":*,"result":"done","step":"delete_service_account"},{"duration_ms":*,"result":"done","step":"close_streams"},{"duration_ms":*,"result":"done","step":"finish"}]}"#;

/// The response to a request for a credential after that.
const REFUSED: &str = r#"409 application/problem+json
{"type":"about:blank","title":"The workspace is suspended","status":409,"code":"workspace_suspended","detail":"the workspace is suspended; ask an administrator","request_id":*}"#;

/// Kinds and names of its objects.
const OBJECTS: [&str; 4] = [
    r#""LimitRange" "tenant-limits""#,
    r#""ResourceQuota" "tenant-quota""#,
    r#""RoleBinding" "rb-tenant-admin""#,
    r#""ServiceAccount" "sa-tenant-admin""#,
];

/// Compares line by line, so that a failure shows where a response differs.
fn is_same(found: &str, expected: &str) {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<String>>();
    assert_eq!(lines(found), lines(expected));
    assert_eq!(found, expected);
}

/// A person with a workspace, whose identifiers and addresses are replaced in responses.
struct Owner {
    world: World,
    person: Person,
    api: Api,
    workspace: Uuid,
}

impl Owner {
    fn is_expected(&self, found: &str, expected: &str) {
        let address = |url: &Url| url.as_str().trim_end_matches('/').to_owned();
        let replaced = [
            (self.workspace.to_string(), "WORKSPACE"),
            (self.person.id().to_string(), "USER"),
            (address(&self.world.broker().public_url().unwrap()), "BROKER"),
            (address(self.world.cluster().url()), "SERVER"),
        ];
        let named = replaced
            .iter()
            .fold(mask(found, &PERSONAL), |text, (value, name)| text.replace(value, name));
        is_same(&named, expected);
    }
}

/// With tenants switched on, and for a person who becomes a member of one.
#[tokio::test]
async fn responses_and_kubeconfigs_of_personal_workspaces_are_those_from_before_tenants() {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let world = builder.start().await.unwrap();
    let person = world.person("alice").await.unwrap();
    let api = person.api().await.unwrap();
    let init = r#"{"tier":"basic"}"#;
    let created = answer(&api, Method::POST, "workspaces/init", init).await;
    let workspace = api.workspaces(false).await.unwrap().items[0].id;
    let owner = Owner { world, person, api, workspace };
    owner.is_expected(&created, CREATED);
    let before = answers(&owner.api, workspace).await;
    owner.is_expected(&before, BEFORE_TENANTS);
    let objects = objects(&owner.world, &owner.person.namespace()).await;
    let names = objects.iter().map(|line| line.rsplit_once(' ').unwrap().0);
    assert_eq!(names.collect::<Vec<&str>>(), OBJECTS);
    a_membership_changes_nothing_else(&owner, &before).await;

    let operator = owner.world.administrator("operator").await.unwrap().api().await.unwrap();
    let path = format!("workspaces/{workspace}");
    let suspended = answer(&operator, Method::POST, &format!("{path}/suspend"), "{}").await;
    owner.is_expected(&suspended, SUSPENDED);
    let refused = answer(&owner.api, Method::POST, &format!("{path}/credentials"), "").await;
    owner.is_expected(&refused, REFUSED);
}

/// It is a further workspace in the list.
async fn a_membership_changes_nothing_else(owner: &Owner, before: &str) {
    let admin = owner.world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let tenant = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": "solar"},
        "spec": {"owners": [{"kind": "User", "name": owner.person.email()}]},
    });
    with_object(&admin, &["apply"], tenant.to_string()).await.success().unwrap();
    probe::until("the membership", JOIN_TIMEOUT, || async {
        Ok(match owner.api.join_tenant("solar").await {
            Ok(_) => Probe::Ready(()),
            Err(error) => Probe::NotYet(error.to_string()),
        })
    })
    .await
    .unwrap();
    let after = answers(&owner.api, owner.workspace).await;
    let list = |text: &str| text.lines().nth(LINE_OF_LIST).unwrap().to_owned();
    is_same(&after.replace(&list(&after), &list(before)), before);
    let [was, is] = [before, &after].map(|text| {
        let list: Value = serde_json::from_str(&list(text)).unwrap();
        list["items"].as_array().unwrap().clone()
    });
    assert_eq!((is.len(), &is[0]), (2, &was[0]));
}
