//! Namespaces that administrators adopt into tenants and transfer between them.

mod commands;
mod handover;
mod labels;
mod rights;

use http::{Method, StatusCode};
use integration::api::Api;
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::{World, WorldBuilder};
use serde_json::{Value, json};

use super::reconcile::{RECONCILE_TIMEOUT, condition_message};
use super::{TENANT_BROKER, until_served, with_object};

const RBAC: &str = "rbac.authorization.k8s.io";

/// A world with the tenants `solar` of alice and `lunar` of carol, who are users of the cluster, and
/// an administrator of the broker.
struct Fixture {
    world: World,
    admin: Kubectl,
    operator: Api,
}

fn builder() -> WorldBuilder {
    // Otherwise the interval could hide that an event was missed.
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    builder.setting("drift_seconds", 3600)
}

impl Fixture {
    async fn start(builder: WorldBuilder) -> Self {
        let world = builder.start().await.unwrap();
        let admin = world.admin_kubectl().unwrap();
        until_served(&admin, TENANT_BROKER).await;
        let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
        let fixture = Self { world, admin, operator };
        let pods = |pods: &str| json!({"hard": {"pods": pods}});
        fixture.apply("solar", "alice", &[pods("4"), pods("9")], "Namespace").await;
        fixture.apply("lunar", "carol", &[pods("3")], "Namespace").await;
        fixture
    }

    /// Applies a Tenant with an owner and quotas, and waits until it works.
    async fn apply(&self, tenant: &str, owner: &str, quotas: &[Value], scope: &str) {
        let range = json!({"limits": [{"type": "Container", "max": {"cpu": "2"}}]});
        let object = json!({
            "apiVersion": TENANT_BROKER.1,
            "kind": "Tenant",
            "metadata": {"name": tenant},
            "spec": {
                "owners": [{"kind": "User", "name": owner, "clusterRoles": ["admin"]}],
                "bindings": "Any",
                "resourceQuotas": {"scope": scope, "items": quotas},
                "limitRanges": {"items": [range]},
            },
        });
        with_object(&self.admin, &["apply"], object.to_string()).await.success().unwrap();
        let home = format!("tenant-{tenant}");
        self.until_bound(tenant, &home, "tenant-owner", Some(owner)).await;
    }

    async fn as_admin(&self, args: &[&str]) {
        self.admin.run(args).await.unwrap().success().unwrap();
    }

    /// Makes a namespace with these labels.
    async fn namespace(&self, name: &str, labels: &Value) {
        let metadata = json!({"name": name, "labels": labels});
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        with_object(&self.admin, &["create"], object.to_string()).await.success().unwrap();
    }

    /// Makes a namespace of a tenant, and waits until its owner has the right in it.
    async fn namespace_of(&self, tenant: &str, name: &str, owner: &str) {
        let labels = json!({
            "tenant-broker.io/tenant": tenant,
            "pod-security.kubernetes.io/enforce": "restricted",
        });
        self.namespace(name, &labels).await;
        self.until_bound(tenant, name, "admin", Some(owner)).await;
    }

    /// Binds a role to a subject, as an owner with `bindings: Any` may do.
    async fn bind(&self, namespace: &str, name: &str, subject: Value) {
        let object = json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
            "subjects": [subject],
        });
        with_object(&self.admin, &["create"], object.to_string()).await.success().unwrap();
    }

    async fn object(&self, args: &[&str]) -> Option<Value> {
        crate::object(&self.world, args).await.unwrap()
    }

    /// Waits until an object, `null` if there is none, satisfies a condition.
    async fn until(&self, args: &[&str], holds: impl Fn(&Value) -> bool) -> Value {
        super::reconcile::until(&self.world, args, holds).await
    }

    /// Waits until the broker's binding of a role has this only subject; `None`: until there is none.
    async fn until_bound(&self, tenant: &str, namespace: &str, role: &str, user: Option<&str>) {
        let name = format!("tenant-{tenant}-{role}");
        self.until(&["rolebinding", &name, "-n", namespace], |binding| match user {
            Some(user) => binding["subjects"][0]["name"] == user,
            None => binding.is_null(),
        })
        .await;
    }

    async fn until_conflict(&self, tenant: &str, text: &str) {
        self.until(&[TENANT_BROKER.0, tenant], |object| {
            condition_message(&object["status"], "NamespaceConflict").contains(text)
        })
        .await;
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let mut request = self.operator.request(method, path).unwrap();
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    async fn plan(&self, to: &str, namespace: &str) -> Value {
        let (status, plan) =
            self.call(Method::GET, &format!("tenants/{to}/moves/{namespace}"), None).await;
        assert_eq!(status, StatusCode::OK, "{plan}");
        plan
    }

    /// Announces a move, and returns the plan.
    async fn announce(&self, to: &str, namespace: &str) -> Value {
        let plan = self.plan(to, namespace).await;
        let mut body = json!({"namespace_uid": plan["namespace_uid"], "reason": "test"});
        if !plan["from"].is_null() {
            body["from"] = plan["from"].clone();
        }
        let path = format!("tenants/{to}/moves/{namespace}");
        let (status, announced) = self.call(Method::POST, &path, Some(body)).await;
        assert_eq!(status, StatusCode::OK, "{announced}");
        announced
    }

    /// Sets the labels of a plan, as an administrator of the cluster does.
    async fn label(&self, plan: &Value) {
        let patch = json!({"metadata": {"labels": plan["labels"]}}).to_string();
        let namespace = plan["namespace"].as_str().unwrap();
        self.as_admin(&["patch", "namespace", namespace, "--type=merge", "-p", &patch]).await;
    }

    /// Waits until a tenant has a namespace with all rights, and no move is under way.
    async fn until_moved(&self, to: &str, namespace: &str) {
        let path = format!("tenants/{to}/namespaces");
        probe::until(&format!("{namespace} in {to}"), RECONCILE_TIMEOUT, || async {
            let (_, list) = self.call(Method::GET, &path, None).await;
            let items = list["items"].as_array();
            let mut items = items.into_iter().flatten();
            let has = items.any(|it| it["name"] == namespace && it["status"] == "active");
            Ok(if has { Probe::Ready(()) } else { Probe::NotYet(list.to_string()) })
        })
        .await
        .unwrap();
    }

    /// The reasons of the audit rows of an action, the newest first.
    async fn reasons(&self, action: &str) -> Vec<String> {
        let page = self.operator.audit_logs(&format!("action={action}&limit=50")).await.unwrap();
        page.items.into_iter().filter_map(|row| row.reason).collect()
    }
}

fn user(name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "User", "name": name})
}

fn robot(namespace: &str) -> Value {
    json!({"kind": "ServiceAccount", "namespace": namespace, "name": "robot"})
}
