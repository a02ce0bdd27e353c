//! Drift and GitOps: an administrator deletes, alters and adds objects of a tenant, and a tool
//! applies its files again and again.

mod limits;
mod unchanged;

use http::{Method, StatusCode};
use integration::api::Api;
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};

use super::cluster::{group, role_binding, user};
use super::reconcile::{
    PRODUCTION, RECONCILE_TIMEOUT, create_namespace, has_condition, subjects, until, until_status,
};
use super::{TENANT_BROKER, until_served, with_object};

const HOME: &str = "tenant-solar";
const TENANT: &str = "tenant-broker.io/tenant";

/// A tenant of alice with a namespace, in a cluster that the broker compares every second.
struct Fixture {
    world: World,
    admin: Kubectl,
    operator: Api,
    /// ServiceAccount of alice's membership.
    account: String,
}

/// The Tenant, with each kind of object that the broker makes in a namespace.
fn solar() -> Value {
    json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": "solar"},
        "spec": {
            "owners": [{"kind": "User", "name": "alice@example.com"}],
            "additionalRoleBindings": [
                {"clusterRoleName": "view", "subjects": [group("developers")]},
            ],
            "namespaceOptions": {
                "quota": 5,
                "additionalMetadata": {
                    "labels": {"team": "sun"}, "annotations": {"example.com/cost": "7"},
                },
            },
            "resourceQuotas": {"scope": "Namespace", "items": [{"hard": {"pods": "4"}}]},
            "limitRanges": {
                "items": [{"limits": [{"type": "Container", "default": {"memory": "64Mi"}}]}],
            },
        },
    })
}

impl Fixture {
    async fn start() -> Self {
        let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
        let world =
            builder.setting("drift_seconds", 1).setting("sweep_seconds", 1).start().await.unwrap();
        let admin = world.admin_kubectl().unwrap();
        until_served(&admin, TENANT_BROKER).await;
        with_object(&admin, &["apply"], solar().to_string()).await.success().unwrap();
        until_status(&world, |status| status["state"] == "Active").await;
        let alice = world.person("alice").await.unwrap();
        let api = alice.api().await.unwrap();
        let joined = api.request(Method::POST, "tenants/solar/members").unwrap();
        assert_eq!(joined.send().await.unwrap().status(), StatusCode::CREATED);
        let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
        let account = format!("member-{}", alice.id());
        let fixture = Self { world, admin, operator, account };
        create_namespace(&fixture.admin, PRODUCTION).await;
        fixture.until_ready().await;
        fixture
    }

    /// Waits until the broker has made everything, and has looked at it once more.
    async fn until_ready(&self) {
        let status = |status: &Value| status["state"] == "Active" && status["size"] == 1;
        until_status(&self.world, status).await;
        self.until_bound(PRODUCTION, "view", &["developers"]).await;
        self.rounds(2).await;
    }

    async fn run(&self, args: &[&str]) {
        self.admin.run(args).await.unwrap().success().unwrap();
    }

    async fn make(&self, object: &Value) {
        with_object(&self.admin, &["create"], object.to_string()).await.success().unwrap();
    }

    /// Waits until a role has exactly these subjects, and the binding has the label of the tenant.
    async fn until_bound(&self, namespace: &str, role: &str, expected: &[&str]) {
        let name = format!("tenant-solar-{role}");
        until(&self.world, &["rolebinding", &name, "-n", namespace], |binding| {
            subjects(binding) == expected.iter().copied().collect()
                && binding["metadata"]["labels"][TENANT] == "solar"
        })
        .await;
    }

    async fn until_gone(&self, kind: &str, name: &str, namespace: &str) {
        until(&self.world, &[kind, name, "-n", namespace], Value::is_null).await;
    }

    /// Waits until the audit trail has this reason for a repair.
    async fn until_recorded(&self, reason: &str) {
        self.until_action("DriftRepaired", |recorded| recorded == reason).await;
    }

    /// Waits until the audit trail has such a reason for this action.
    async fn until_action(&self, action: &str, holds: impl Fn(&str) -> bool) {
        probe::until(action, RECONCILE_TIMEOUT, || async {
            let page = self.operator.audit_logs(&format!("action={action}&limit=100")).await?;
            let reasons: Vec<_> = page.items.into_iter().filter_map(|it| it.reason).collect();
            let is_recorded = reasons.iter().any(|recorded| holds(recorded));
            Ok(if is_recorded { Probe::Ready(()) } else { Probe::NotYet(format!("{reasons:?}")) })
        })
        .await
        .unwrap();
    }

    /// Waits for this many further runs on tenants in which nothing was left to do.
    async fn rounds(&self, count: u64) {
        const NAME: &str = "tenant_broker_tenant_reconciles_total{outcome=\"done\"} ";
        let done = async || {
            let text = self.world.broker().metrics().await.unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix(NAME));
            line.map_or(0, |number| number.parse::<u64>().unwrap())
        };
        let before = done().await;
        probe::until("rounds", RECONCILE_TIMEOUT, || async {
            let now = done().await;
            let is_over = now >= before + count;
            Ok(if is_over { Probe::Ready(()) } else { Probe::NotYet(now.to_string()) })
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn what_an_administrator_changes_is_undone_or_reported_and_on_record() {
    let fixture = Fixture::start().await;
    unchanged::an_unchanged_apply_leads_to_no_write(&fixture).await;
    unchanged::a_tool_and_the_broker_write_fields_of_their_own(&fixture).await;
    bindings_of_a_namespace_come_back(&fixture).await;
    limits_of_a_namespace_come_back(&fixture).await;
    limits::limits_of_single_objects_come_back(&fixture).await;
    limits::limits_without_their_label_are_made_again(&fixture).await;
    a_namespace_is_restored_or_reported(&fixture).await;
    unchanged::a_label_that_contradicts_the_tenant_does_not_last(&fixture).await;
    a_namespace_without_its_label_is_released_without_rights(&fixture).await;
    the_status_is_restored(&fixture).await;
    bindings_and_accounts_of_the_home_come_back(&fixture).await;
    the_home_is_reported_or_made_again(&fixture).await;
    limits::amounts_for_the_whole_tenant_come_back(&fixture).await;
}

async fn bindings_of_a_namespace_come_back(fixture: &Fixture) {
    let admins = ["alice@example.com", fixture.account.as_str()];
    let of = |name: &str, what: &str| {
        format!("RoleBinding {name} in {PRODUCTION} of tenant solar {what}")
    };
    fixture.run(&["delete", "rolebinding", "tenant-solar-admin", "-n", PRODUCTION]).await;
    fixture.until_bound(PRODUCTION, "admin", &admins).await;
    fixture.until_recorded(&of("tenant-solar-admin", "does not exist")).await;

    let view = ["rolebinding", "tenant-solar-view", "-n", PRODUCTION];
    let mallory = json!({"subjects": [group("developers"), user("mallory")]}).to_string();
    let patch = [&["patch"][..], &view, &["--type=merge", "-p", &mallory]].concat();
    fixture.run(&patch).await;
    fixture.until_bound(PRODUCTION, "view", &["developers"]).await;
    fixture.until_recorded(&of("tenant-solar-view", "binds somebody else")).await;

    let unlabel = [&["label"][..], &view, &["tenant-broker.io/tenant-"]].concat();
    fixture.run(&unlabel).await;
    fixture.until_bound(PRODUCTION, "view", &["developers"]).await;
    let foreign = of("tenant-solar-view", "exists and is not managed by the broker");
    fixture.until_recorded(&foreign).await;

    // Under names of the broker, without its label or with that of another tenant. One that an
    // owner could have made stays.
    let mut bindings = ["edit", "lister"].map(|role| {
        let name = format!("tenant-solar-{role}");
        role_binding(PRODUCTION, &name, "edit", &json!([user("mallory")]))
    });
    bindings[1]["metadata"]["labels"] = json!({TENANT: "lunar"});
    for binding in &bindings {
        fixture.make(binding).await;
    }
    fixture.make(&role_binding(PRODUCTION, "own", "edit", &json!([user("bob")]))).await;
    for name in ["tenant-solar-edit", "tenant-solar-lister"] {
        fixture.until_gone("rolebinding", name, PRODUCTION).await;
        fixture.until_recorded(&of(name, "is not desired")).await;
    }
    let own = ["rolebinding", "own", "-n", PRODUCTION];
    assert!(crate::object(&fixture.world, &own).await.unwrap().is_some());
}

async fn limits_of_a_namespace_come_back(fixture: &Fixture) {
    let quota = ["resourcequota", "tenant-quota-0", "-n", PRODUCTION];
    let amount = |quota: &Value| quota["spec"]["hard"]["pods"].clone();
    let of = |name: &str, what: &str| format!("{name} in {PRODUCTION} of tenant solar {what}");
    fixture.run(&[&["delete"][..], &quota].concat()).await;
    until(&fixture.world, &quota, |quota| amount(quota) == "4").await;
    fixture.until_recorded(&of("ResourceQuota tenant-quota-0", "does not exist")).await;
    // The bindings waited for the quota to be enforced; the namespace is complete again.
    fixture.rounds(2).await;
    let more = r#"{"spec":{"hard":{"pods":"400"}}}"#;
    fixture.run(&[&["patch"][..], &quota, &["-p", more]].concat()).await;
    until(&fixture.world, &quota, |quota| amount(quota) == "4").await;
    fixture.until_recorded(&of("ResourceQuota tenant-quota-0", "has another spec")).await;

    let labels = json!({TENANT: "solar", "app.kubernetes.io/managed-by": "tenant-broker"});
    let metadata =
        |name: &str| json!({"name": name, "namespace": PRODUCTION, "labels": labels.clone()});
    let limits = json!([{"type": "Container", "default": {"memory": "1Gi"}}]);
    for object in [
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata("tenant-quota-7"),
            "spec": {"hard": {"pods": "1"}}}),
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata("tenant-limits-7"),
            "spec": {"limits": limits}}),
    ] {
        fixture.make(&object).await;
        let (kind, name) =
            (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        fixture.until_gone(kind, name, PRODUCTION).await;
        fixture.until_recorded(&of(&format!("{kind} {name}"), "is not desired")).await;
    }
}

async fn a_namespace_is_restored_or_reported(fixture: &Fixture) {
    let namespace = ["namespace", PRODUCTION];
    let relabel = |label: &'static str| ["label", "namespace", PRODUCTION, "--overwrite", label];
    fixture.run(&relabel("team=moon")).await;
    until(&fixture.world, &namespace, |it| it["metadata"]["labels"]["team"] == "sun").await;
    let title = format!("Namespace {PRODUCTION} in {PRODUCTION} of tenant solar");
    fixture.until_recorded(&format!("{title} has other labels or annotations")).await;

    // The broker may not change these, so the status has them.
    for (change, back) in [
        (
            "pod-security.kubernetes.io/enforce=privileged",
            "pod-security.kubernetes.io/enforce=restricted",
        ),
        ("tenant-broker.io/suspended=true", "tenant-broker.io/suspended-"),
    ] {
        fixture.run(&relabel(change)).await;
        until_status(&fixture.world, |status| {
            status["state"] == "Degraded" && has_condition(status, "ApplyFailed")
        })
        .await;
        // A failure in this namespace hides nothing in others.
        let owner = "tenant-solar-tenant-owner";
        fixture.run(&["delete", "rolebinding", owner, "-n", HOME]).await;
        fixture
            .until_bound(HOME, "tenant-owner", &["alice@example.com", fixture.account.as_str()])
            .await;
        let row = format!("RoleBinding {owner} in {HOME} of tenant solar does not exist");
        fixture.until_recorded(&row).await;
        fixture.run(&relabel(back)).await;
        until_status(&fixture.world, |status| status["state"] == "Active").await;
    }
}

/// The broker's bindings in it end, and those of others stay. With the label it is the tenant's again.
async fn a_namespace_without_its_label_is_released_without_rights(fixture: &Fixture) {
    let second = "solar-second";
    create_namespace(&fixture.admin, second).await;
    fixture.until_bound(second, "view", &["developers"]).await;
    fixture.make(&role_binding(second, "own", "edit", &json!([user("bob")]))).await;
    fixture.run(&["label", "namespace", second, "tenant-broker.io/tenant-"]).await;
    for role in ["admin", "view"] {
        fixture.until_gone("rolebinding", &format!("tenant-solar-{role}"), second).await;
    }
    let row = format!(
        "Namespace {second} of tenant solar has its label no longer, so it is released without rights"
    );
    fixture.until_action("DriftFound", |recorded| recorded == row).await;
    until_status(&fixture.world, |it| it["state"] == "Active" && it["size"] == 1).await;
    let own = ["rolebinding", "own", "-n", second];
    assert!(crate::object(&fixture.world, &own).await.unwrap().is_some());
    fixture.run(&["label", "namespace", second, "tenant-broker.io/tenant=solar"]).await;
    fixture.until_bound(second, "view", &["developers"]).await;
    fixture.run(&["delete", "namespace", second]).await;
    fixture.until_ready().await;
}

/// Otherwise a Tenant with namespaces could be deleted.
async fn the_status_is_restored(fixture: &Fixture) {
    let none = r#"{"status":{"size":0,"namespaces":[]}}"#;
    let patch = ["patch", TENANT_BROKER.0, "solar", "--subresource=status", "--type=merge", "-p"];
    fixture.run(&[&patch[..], &[none]].concat()).await;
    until_status(&fixture.world, |status| {
        status["size"] == 1 && status["namespaces"] == json!([PRODUCTION])
    })
    .await;
}

async fn bindings_and_accounts_of_the_home_come_back(fixture: &Fixture) {
    let owners = ["alice@example.com", fixture.account.as_str()];
    let owner = "tenant-solar-tenant-owner";
    let of =
        |name: &str, what: &str| format!("RoleBinding {name} in {HOME} of tenant solar {what}");
    fixture.rounds(2).await;
    fixture.run(&["delete", "rolebinding", owner, "-n", HOME]).await;
    fixture.until_bound(HOME, "tenant-owner", &owners).await;
    fixture.until_recorded(&of(owner, "does not exist")).await;
    let mallory = json!({"subjects": [user("mallory")]}).to_string();
    fixture.run(&["patch", "rolebinding", owner, "-n", HOME, "--type=merge", "-p", &mallory]).await;
    fixture.until_bound(HOME, "tenant-owner", &owners).await;
    fixture.until_recorded(&of(owner, "binds somebody else")).await;

    // The Tenant alone says who owns it.
    for (name, role) in [("backdoor", "tenant-owner"), ("tenant-solar-view", "view")] {
        fixture.make(&role_binding(HOME, name, role, &json!([user("mallory")]))).await;
        fixture.until_gone("rolebinding", name, HOME).await;
        fixture.until_recorded(&of(name, "is not desired")).await;
    }
    let others = role_binding(HOME, "monitoring", "view", &json!([group("monitoring")]));
    fixture.make(&others).await;

    let account = ["serviceaccount", fixture.account.as_str(), "-n", HOME];
    let before = crate::object(&fixture.world, &account).await.unwrap().unwrap();
    fixture.run(&[&["delete"][..], &account].concat()).await;
    until(&fixture.world, &account, |it| {
        !it.is_null() && it["metadata"]["uid"] != before["metadata"]["uid"]
    })
    .await;
    fixture.until_recorded("ServiceAccount does not exist").await;
    let kept = ["rolebinding", "monitoring", "-n", HOME];
    assert!(crate::object(&fixture.world, &kept).await.unwrap().is_some(), "it makes no owner");
}

async fn the_home_is_reported_or_made_again(fixture: &Fixture) {
    fixture.run(&["label", "namespace", HOME, "tenant-broker.io/home-"]).await;
    until_status(&fixture.world, |status| has_condition(status, "HomeTaken")).await;
    fixture.run(&["label", "namespace", HOME, "tenant-broker.io/home=true"]).await;
    fixture.until_ready().await;
    fixture.run(&["delete", "namespace", HOME]).await;
    until_home_is_whole(fixture).await;
    the_deletion_of_the_home_is_on_record(fixture).await;
}

/// Waits until the home has the binding of the owners and the account of the member.
async fn until_home_is_whole(fixture: &Fixture) {
    let owners = ["alice@example.com", fixture.account.as_str()];
    fixture.until_bound(HOME, "tenant-owner", &owners).await;
    until(&fixture.world, &["serviceaccount", &fixture.account, "-n", HOME], |it| !it.is_null())
        .await;
    fixture.until_ready().await;
}

/// A finalizer keeps the home in its deletion until the broker has found it so. The broker is stopped
/// before, because a run that sees parts of a deletion takes it for a failure of its own.
async fn the_deletion_of_the_home_is_on_record(fixture: &Fixture) {
    let home = ["namespace", HOME];
    let before = crate::object(&fixture.world, &home).await.unwrap().unwrap();
    let patch = |change| ["patch", "namespace", HOME, "--type=merge", "-p", change];
    let broker = fixture.world.broker();
    broker.stop().await.unwrap();
    fixture.run(&patch(r#"{"metadata":{"finalizers":["example.com/hold"]}}"#)).await;
    fixture.run(&["delete", "namespace", HOME, "--wait=false"]).await;
    broker.start().await.unwrap();
    let title = format!("Namespace {HOME} in {HOME} of tenant solar is being deleted");
    fixture.until_action("DriftFound", |recorded| recorded == title).await;
    fixture.run(&patch(r#"{"metadata":{"finalizers":null}}"#)).await;
    until(&fixture.world, &home, |it| {
        !it.is_null() && it["metadata"]["uid"] != before["metadata"]["uid"]
    })
    .await;
    until_home_is_whole(fixture).await;
}
