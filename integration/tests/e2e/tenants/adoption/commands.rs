//! `kubectl tenant namespaces adopt` and `transfer`, as an administrator uses them.

use integration::person::Person;
use integration::process::Finished;
use serde_json::json;

use super::{Fixture, builder, robot, user};
use crate::tenants::TENANT_BROKER;

const NAMESPACE: &str = "legacy";

/// Runs `kubectl tenant namespaces …` with the kubeconfig of an administrator of the cluster.
async fn run(person: &Person, fixture: &Fixture, args: &[&str]) -> Finished {
    let kubeconfig = fixture.world.cluster().admin_kubeconfig().display();
    let kubeconfig = format!("--kubeconfig={kubeconfig}");
    let args = [&["tenant", "namespaces"], args, &[&kubeconfig]].concat();
    person.kubectl().run(args).await.unwrap()
}

fn has_text(finished: &Finished, code: i32, texts: &[&str]) {
    assert_eq!(finished.code(), code, "{finished:?}");
    for text in texts {
        let printed = format!("{}{}", finished.stdout, finished.stderr);
        assert!(printed.contains(text), "{text:?} is not in {finished:?}");
    }
}

#[tokio::test]
async fn an_administrator_adopts_and_transfers_a_namespace() {
    let fixture = Fixture::start(builder().tls()).await;
    let operator = fixture.world.administrator("root").await.unwrap();
    let mallory = fixture.world.person("mallory").await.unwrap();
    for person in [&operator, &mallory] {
        person.login(&[]).await.unwrap().success().unwrap();
    }
    fixture.namespace(NAMESPACE, &json!({"team": "x"})).await;
    fixture.bind(NAMESPACE, "people", user("bob")).await;
    fixture.bind(NAMESPACE, "program", robot(NAMESPACE)).await;
    fixture.as_admin(&["create", "quota", "operator", "--hard=pods=50", "-n", NAMESPACE]).await;

    nobody_else_moves_a_namespace(&fixture, &mallory, &operator).await;
    a_dry_run_changes_nothing(&fixture, &operator).await;
    a_foreign_namespace_is_adopted(&fixture, &operator).await;
    it_is_transferred(&fixture, &operator).await;
    what_is_in_the_way_is_refused(&fixture, &operator).await;
    a_kept_namespace_is_adopted_again(&fixture, &operator).await;
}

async fn nobody_else_moves_a_namespace(fixture: &Fixture, mallory: &Person, operator: &Person) {
    let adopt = ["adopt", NAMESPACE, "--tenant", "solar", "--yes"];
    let refused = run(mallory, fixture, &adopt).await;
    has_text(&refused, 5, &["administrator"]);
    assert!(fixture.reasons("MoveNamespace").await[0].contains("tenant solar: namespace legacy"));
    // An administrator of the broker without rights in the cluster.
    let file = fixture.world.cluster().kubeconfig_for("bob", None, fixture.world.folder()).unwrap();
    let file = format!("--kubeconfig={}", file.display());
    let args = [&["tenant", "namespaces"], &adopt[..], &[&file]].concat();
    let refused = operator.kubectl().run(args).await.unwrap();
    has_text(&refused, 5, &["kubectl did not label the namespace", "orbidden"]);
    assert_eq!(fixture.reasons("MoveNamespace").await.len(), 1, "nothing was announced");
}

async fn a_dry_run_changes_nothing(fixture: &Fixture, operator: &Person) {
    let before = fixture.object(&["namespace", NAMESPACE]).await;
    let planned =
        run(operator, fixture, &["adopt", NAMESPACE, "--tenant", "solar", "--dry-run"]).await;
    let texts = [
        "no tenant -> tenant solar",
        r#"RoleBindings that are deleted: "people" (ClusterRole "view": User "bob")"#,
        r#"stay: "program" (ClusterRole "view": ServiceAccount "robot")"#,
        "limits of tenant solar: tenant-quota-0, tenant-quota-1, tenant-limits-0",
        "limits of others that stay: operator",
        "does not begin with solar-",
        "Pod Security level",
        "Dry run",
    ];
    has_text(&planned, 0, &texts);
    // Without a terminal nobody can be asked.
    let asked = run(operator, fixture, &["adopt", NAMESPACE, "--tenant", "solar"]).await;
    has_text(&asked, 2, &["--yes"]);
    assert_eq!(fixture.object(&["namespace", NAMESPACE]).await, before);
}

async fn a_foreign_namespace_is_adopted(fixture: &Fixture, operator: &Person) {
    let adopt = ["adopt", NAMESPACE, "--tenant", "solar", "--yes", "--reason", "old project"];
    has_text(&run(operator, fixture, &adopt).await, 0, &["is one of tenant solar"]);
    fixture.until_bound("solar", NAMESPACE, "admin", Some("alice")).await;
    assert_eq!(fixture.object(&["rolebinding", "people", "-n", NAMESPACE]).await, None);
    assert!(fixture.object(&["rolebinding", "program", "-n", NAMESPACE]).await.is_some());
    assert!(fixture.object(&["resourcequota", "operator", "-n", NAMESPACE]).await.is_some());
    let live = fixture.object(&["namespace", NAMESPACE]).await.unwrap();
    let tenant = fixture.object(&[TENANT_BROKER.0, "solar"]).await.unwrap();
    let labels = &live["metadata"]["labels"];
    assert_eq!(labels["tenant-broker.io/tenant-uid"], tenant["metadata"]["uid"], "{labels}");
    assert_eq!(labels["team"], "x");
    assert!(labels["pod-security.kubernetes.io/enforce"].is_string(), "{labels}");

    let announced = fixture.reasons("MoveNamespace").await;
    assert!(announced[0].contains("tenant solar: namespace legacy"), "{announced:?}");
    assert!(announced[0].contains("old project"), "{announced:?}");
    let moved = fixture.reasons("NamespaceMoved").await;
    let names = |text: &str| moved.iter().any(|reason| reason.contains(text));
    assert!(names("tenant solar: namespace legacy"), "{moved:?}");
    assert!(names(r#""people" (ClusterRole "view": User "bob")"#), "{moved:?}");
}

async fn it_is_transferred(fixture: &Fixture, operator: &Person) {
    let quota = ["resourcequota", "tenant-quota-0", "-n", NAMESPACE];
    let range = ["limitrange", "tenant-limits-0", "-n", NAMESPACE];
    let before = [fixture.object(&quota).await.unwrap(), fixture.object(&range).await.unwrap()];
    let wrong = ["adopt", NAMESPACE, "--tenant", "lunar", "--yes"];
    has_text(&run(operator, fixture, &wrong).await, 5, &["namespaces transfer legacy --to lunar"]);
    let transfer = ["transfer", NAMESPACE, "--to", "lunar", "--yes"];
    has_text(&run(operator, fixture, &transfer).await, 0, &["is one of tenant lunar"]);
    fixture.until_bound("lunar", NAMESPACE, "admin", Some("carol")).await;
    for gone in ["tenant-solar-admin", "program"] {
        assert_eq!(fixture.object(&["rolebinding", gone, "-n", NAMESPACE]).await, None, "{gone}");
    }
    // The limits with the same names were changed, and not made again.
    let after = [fixture.object(&quota).await.unwrap(), fixture.object(&range).await.unwrap()];
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
        assert_eq!(after["metadata"]["labels"]["tenant-broker.io/tenant"], "lunar");
    }
    assert_eq!(after[0]["spec"]["hard"]["pods"], "3");
    fixture
        .until(&["resourcequota", "tenant-quota-1", "-n", NAMESPACE], serde_json::Value::is_null)
        .await;
    for action in ["MoveNamespace", "NamespaceMoved"] {
        let reasons = fixture.reasons(action).await;
        for text in ["tenant lunar: namespace legacy", "tenant solar: namespace legacy"] {
            assert!(reasons[..2].iter().any(|it| it.contains(text)), "{action}: {reasons:?}");
        }
    }
    fixture.until(&[TENANT_BROKER.0, "lunar"], |it| it["status"]["size"] == 1).await;
    fixture.until(&[TENANT_BROKER.0, "solar"], |it| it["status"]["size"] == 0).await;
}

async fn what_is_in_the_way_is_refused(fixture: &Fixture, operator: &Person) {
    let transfer = ["transfer", NAMESPACE, "--to", "solar", "--yes"];
    let suspend = |verb: &str| format!("tenants/lunar/{verb}");
    let reason = json!({"reason": "test"});
    fixture.call(http::Method::POST, &suspend("suspend"), Some(reason.clone())).await;
    has_text(&run(operator, fixture, &transfer).await, 5, &["tenant lunar is suspended"]);
    integration::probe::until("resumption", super::RECONCILE_TIMEOUT, || async {
        let answer =
            fixture.call(http::Method::POST, &suspend("resume"), Some(reason.clone())).await.1;
        let is_active = answer["state"] == "Active";
        Ok(if is_active {
            integration::probe::Probe::Ready(())
        } else {
            integration::probe::Probe::NotYet(answer.to_string())
        })
    })
    .await
    .unwrap();
    for (args, text) in [
        (["adopt", "kube-system", "--tenant", "solar"], "protects the name"),
        (["adopt", "tenant-lunar", "--tenant", "solar"], "homes of tenants"),
        (["adopt", "absent", "--tenant", "solar"], "no namespace absent"),
        (["adopt", NAMESPACE, "--tenant", "absent"], "not found"),
        (["transfer", NAMESPACE, "--to", "lunar"], "one of tenant lunar already"),
    ] {
        has_text(&run(operator, fixture, &args).await, 5, &[text]);
    }
    let finalizers = |list: &str| {
        let patch = format!("{{\"metadata\":{{\"finalizers\":{list}}}}}");
        ["patch", "namespace", NAMESPACE, "--type=merge", "-p", &patch].map(str::to_owned)
    };
    fixture.admin.run(finalizers("[\"example.com/hold\"]")).await.unwrap().success().unwrap();
    has_text(&run(operator, fixture, &transfer).await, 5, &["finalizers"]);
    fixture.admin.run(finalizers("null")).await.unwrap().success().unwrap();
}

async fn a_kept_namespace_is_adopted_again(fixture: &Fixture, operator: &Person) {
    let keep = "tenant-broker.io/on-delete=keep-namespaces";
    fixture.as_admin(&["annotate", TENANT_BROKER.0, "lunar", keep]).await;
    fixture.as_admin(&["delete", TENANT_BROKER.0, "lunar"]).await;
    fixture.until_bound("lunar", NAMESPACE, "admin", None).await;
    let former = "tenant-broker.io/former-tenant";
    fixture
        .until(&["namespace", NAMESPACE], |it| it["metadata"]["labels"][former] == "lunar")
        .await;
    let quota = ["resourcequota", "tenant-quota-0", "-n", NAMESPACE];
    assert!(fixture.object(&quota).await.is_some(), "limits stay, because programs go on");
    fixture.bind(NAMESPACE, "leftover", user("bob")).await;
    let planned =
        run(operator, fixture, &["adopt", NAMESPACE, "--tenant", "solar", "--dry-run"]).await;
    has_text(&planned, 0, &["until its deletion lunar", "leftover"]);
    let adopt = ["adopt", NAMESPACE, "--tenant", "solar", "--yes"];
    has_text(&run(operator, fixture, &adopt).await, 0, &["is one of tenant solar"]);
    fixture.until_bound("solar", NAMESPACE, "admin", Some("alice")).await;
    assert_eq!(fixture.object(&["rolebinding", "leftover", "-n", NAMESPACE]).await, None);
    let live = fixture.object(&["namespace", NAMESPACE]).await.unwrap();
    assert!(live["metadata"]["labels"][former].is_null(), "{live}");
    let reasons = fixture.reasons("NamespaceMoved").await;
    let names = |text: &str| reasons.iter().any(|reason| reason.contains(text));
    assert!(names("tenant lunar: namespace legacy (uid"), "the closed one, too: {reasons:?}");
}
