//! `tenant-guard-tenant-objects`: RoleBindings, quotas and limits in namespaces of tenants.

use integration::control_plane::BROKER_USER;
use integration::probe::{self, Probe};
use serde_json::{Value, json};

use crate::tenants::cluster::{
    CREATE, RIGHTS_TIMEOUT, TenantCluster, account, are_accepted, are_refused, group, is_refused,
    role_binding, send, until_allowed, user,
};

const OWN: &str = "solar-production";
const OPEN: &str = "solar-open";
const POLICY: &str = "tenant-guard-tenant-objects";

fn view(namespace: &str, subject: &Value) -> Value {
    role_binding(namespace, "extra", "view", &json!([subject]))
}

/// Subjects in a namespace with `bindings: Own`, in one with `bindings: Any`, and whether the
/// binding is accepted.
fn subjects() -> Vec<(&'static str, Value, bool)> {
    vec![
        (OWN, account(OWN, "robot"), true),
        (OWN, account(OPEN, "robot"), false),
        (OWN, account("default", "robot"), false),
        (OWN, account("tenant-solar", "member-x"), false),
        (OWN, user("bob"), false),
        (OWN, group("developers"), false),
        (OWN, group("system:authenticated"), false),
        (OWN, user("system:serviceaccount:solar-production:robot"), false),
        (OPEN, account(OPEN, "robot"), true),
        (OPEN, account("default", "robot"), true),
        (OPEN, user("bob"), true),
        (OPEN, group("developers"), true),
        (OPEN, user(BROKER_USER), false),
        (OPEN, group("system:authenticated"), false),
        (OPEN, group("system:serviceaccounts:tenant-lunar"), false),
        (OPEN, user("system:serviceaccount:tenant-lunar:member-x"), false),
        (OPEN, account("tenant-lunar", "member-x"), false),
        (OPEN, account("tenant-solar", "member-x"), false),
    ]
}

pub(super) async fn owners_bind_their_own_programs(cluster: &TenantCluster) {
    let alice = cluster.person("alice", None);
    for namespace in [OWN, OPEN] {
        let bind = json!({"namespace": namespace, "group": "rbac.authorization.k8s.io",
            "verb": "create", "resource": "rolebindings"});
        until_allowed(&alice, &bind).await;
    }
    for (namespace, subject, is_accepted) in subjects() {
        let what = format!("{subject} in {namespace}");
        let tried = send(&alice, CREATE, &view(namespace, &subject)).await;
        if is_accepted {
            assert!(tried.status.success(), "{what}: {}", tried.stderr);
            are_accepted(&alice, &[&["delete", "rolebinding", "extra", "-n", namespace]]).await;
        } else {
            is_refused(&tried, &what, POLICY);
        }
    }
    long_lists_are_refused(cluster).await;
    long_names_are_refused(cluster).await;
    large_metadata_is_refused(cluster).await;
    changes_are_checked_as_creations_are(cluster).await;
}

async fn large_metadata_is_refused(cluster: &TenantCluster) {
    let alice = cluster.person("alice", None);
    let entries = |count: usize| -> Value {
        let all = (0..count).map(|number| (format!("example.com/{number}"), json!("x")));
        Value::Object(all.collect())
    };
    let with = |metadata: &str, entries: Value| {
        let mut binding = view(OWN, &account(OWN, "robot"));
        binding["metadata"][metadata] = entries;
        binding
    };
    let try_it = &["create", "--dry-run=server", "-f", "-"];
    for (what, binding, is_accepted) in [
        ("64 labels", with("labels", entries(64)), true),
        ("65 labels", with("labels", entries(65)), false),
        ("65 annotations", with("annotations", entries(65)), false),
        ("a long annotation", with("annotations", json!({"a": "x".repeat(60_000)})), true),
        ("too long an annotation", with("annotations", json!({"a": "x".repeat(70_000)})), false),
    ] {
        let tried = send(&alice, try_it, &binding).await;
        if is_accepted {
            assert!(tried.status.success(), "{what}: {}", tried.stderr);
        } else {
            is_refused(&tried, what, "has at most 64 labels");
        }
    }
}

async fn long_lists_are_refused(cluster: &TenantCluster) {
    let alice = cluster.person("alice", None);
    let with = |count: usize| {
        let robots: Vec<Value> =
            (0..count).map(|number| account(OWN, &format!("robot-{number}"))).collect();
        role_binding(OWN, "extra", "view", &json!(robots))
    };
    let try_it = &["create", "--dry-run=server", "-f", "-"];
    send(&alice, try_it, &with(256)).await.success().unwrap();
    let text = "has at most 256 subjects";
    is_refused(&send(&alice, try_it, &with(257)).await, "257 subjects", text);
}

async fn long_names_are_refused(cluster: &TenantCluster) {
    let alice = cluster.person("alice", None);
    let named = |name: String| {
        let mut binding = view(OPEN, &user("bob"));
        binding["metadata"]["name"] = json!(name);
        binding
    };
    let try_it = &["create", "--dry-run=server", "-f", "-"];
    for longest in [named("x".repeat(339)), view(OPEN, &user(&"x".repeat(339)))] {
        send(&alice, try_it, &longest).await.success().unwrap();
    }
    for (what, binding) in [
        ("a name", named("x".repeat(340))),
        ("a subject", view(OPEN, &user(&"x".repeat(340)))),
        ("the namespace of a subject", view(OPEN, &account(&"x".repeat(340), "robot"))),
    ] {
        let tried = send(&alice, try_it, &binding).await;
        is_refused(&tried, what, "has names of at most 339 characters");
    }
}

async fn changes_are_checked_as_creations_are(cluster: &TenantCluster) {
    let alice = cluster.person("alice", None);
    let robot = view(OWN, &account(OWN, "robot"));
    send(&alice, CREATE, &robot).await.success().unwrap();
    let add = r#"[{"op":"add","path":"/subjects/-","value":{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"bob"}}]"#;
    let hold = r#"{"metadata":{"finalizers":["example.com/hold"]}}"#;
    let owned = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap",
        "name": "c", "uid": "00000000-0000-4000-8000-000000000000"}]}});
    let owned = owned.to_string();
    let patch = ["patch", "rolebinding", "extra", "-n", OWN];
    let with = |more: &[&'static str], last: &str| {
        let args = patch.iter().chain(more).copied().map(str::to_owned);
        args.chain([last.to_owned()]).collect::<Vec<String>>()
    };
    for (args, what) in [
        (with(&["--type=json", "-p"], add), "a subject from outside"),
        (with(&["-p"], hold), "a finalizer"),
        (with(&["-p"], &owned), "an owner"),
    ] {
        is_refused(&alice.run(&args).await.unwrap(), what, POLICY);
    }
    are_accepted(&alice, &[&["label", "rolebinding", "extra", "a=b", "-n", OWN]]).await;
    // An operator (controller) owns the bindings that it makes; a program of the tenant does not.
    for (namespace, is_accepted) in [("default", true), (OWN, false)] {
        let operator = format!("operator-{namespace}");
        let role = role_binding(OWN, &operator, "admin", &json!([account(namespace, "operator")]));
        cluster.make(&role).await;
        let acting = format!("--as=system:serviceaccount:{namespace}:operator");
        let may = json!({"namespace": OWN, "group": "rbac.authorization.k8s.io", "verb": "patch",
            "resource": "rolebindings"});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": format!("system:serviceaccount:{namespace}:operator"),
                "resourceAttributes": may}});
        until_reviewed(cluster, &review).await;
        let mut args = with(&["-p"], &owned);
        args.extend([acting, "--dry-run=server".to_owned()]);
        let tried = cluster.admin.run(&args).await.unwrap();
        if is_accepted {
            tried.success().unwrap();
        } else {
            is_refused(&tried, &format!("an owner by {operator}"), POLICY);
        }
    }
    are_accepted(&alice, &[&["delete", "rolebinding", "extra", "-n", OWN]]).await;
}

/// Waits until RBAC allows a user what an administrator asks for.
async fn until_reviewed(cluster: &TenantCluster, review: &Value) {
    probe::until("the right of an operator", RIGHTS_TIMEOUT, || async {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let sent = ["create", "--raw", path, "-f", "-"];
        let answer = cluster.admin.run_with_input(sent, review.to_string()).await?.success()?;
        let is_allowed = answer.stdout.contains(r#""allowed":true"#);
        Ok(if is_allowed { Probe::Ready(()) } else { Probe::NotYet(answer.stdout) })
    })
    .await
    .unwrap();
}

/// Alice may write quotas and limits, which the role `admin` does not allow.
pub(super) async fn objects_of_the_broker_stay(cluster: &TenantCluster) {
    let alice = cluster.person("alice", None);
    let resources = "resourcequotas,resourcequotas/status,limitranges";
    cluster.give("alice", "quotas", "create,delete,update,patch", resources).await;
    let may = json!({"namespace": OWN, "verb": "patch", "resource": "limitranges"});
    until_allowed(&alice, &may).await;
    let quota = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"namespace": OWN, "name": name}, "spec": {"hard": {"pods": "10"}}})
    };
    let limits = |name: &str| {
        let container = json!([{"type": "Container", "default": {"memory": "1Gi"}}]);
        json!({"apiVersion": "v1", "kind": "LimitRange",
            "metadata": {"namespace": OWN, "name": name}, "spec": {"limits": container}})
    };
    for object in [quota("tenant-quota-1"), limits("tenant-limits-1")] {
        is_refused(&send(&alice, CREATE, &object).await, &object.to_string(), POLICY);
    }
    for object in [quota("mine"), limits("mine")] {
        send(&alice, CREATE, &object).await.success().unwrap();
    }
    for object in [quota("tenant-quota-0"), limits("tenant-limits-0")] {
        cluster.make(&object).await;
    }
    let more = r#"{"spec":{"hard":{"pods":"1000"}}}"#;
    let status = r#"{"status":{"hard":{"pods":"1000"}}}"#;
    let of_status = ["patch", "resourcequota", "tenant-quota-0", "-n", OWN, "--subresource=status"];
    let of_status = [&of_status[..], &["--type=merge", "-p", status]].concat();
    let may = json!({"namespace": OWN, "verb": "patch", "resource": "resourcequotas",
        "subresource": "status"});
    until_allowed(&alice, &may).await;
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{OWN}/rolebindings");
    are_refused(
        &alice,
        &[
            (&["patch", "resourcequota", "tenant-quota-0", "-n", OWN, "-p", more], POLICY),
            // The API server admits by the amounts in the status.
            (&of_status[..], POLICY),
            (&["delete", "resourcequota", "tenant-quota-0", "-n", OWN], POLICY),
            (&["delete", "limitrange", "tenant-limits-0", "-n", OWN], POLICY),
            (&["delete", "rolebinding", "tenant-solar-admin", "-n", OWN], POLICY),
            (&["label", "rolebinding", "tenant-solar-admin", "a=b", "-n", OWN], POLICY),
            // A collection is deleted one by one, and one of them is the broker's.
            (&["delete", "--raw", &bindings], POLICY),
        ],
    )
    .await;
    let own = view(OWN, &account(OWN, "robot"));
    let reserved = own.to_string().replace("\"extra\"", "\"tenant-solar-view\"");
    let tried = alice.run_with_input(CREATE, reserved).await.unwrap();
    is_refused(&tried, "a reserved name", POLICY);
    are_accepted(
        &alice,
        &[
            &["patch", "resourcequota", "mine", "-n", OWN, "-p", more],
            &["delete", "resourcequota,limitrange", "mine", "-n", OWN],
        ],
    )
    .await;
}
