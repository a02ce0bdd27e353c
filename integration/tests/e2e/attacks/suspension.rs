//! Attacks of a tenant on the kill switch.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use integration::api::Api as BrokerApi;
use integration::control_plane::client;
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use tenant_shared::{SuspendRequest, WorkspaceStatus};

use super::are_refused;

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// Whether a loop keeps the bindings that it creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    Yes,
    No,
}

/// Returns a kubeconfig with a stolen token, and a client with it.
async fn stolen(world: &World, api: &BrokerApi) -> (PathBuf, kube::Client) {
    let kubeconfig = world.folder().join("stolen.kubeconfig");
    std::fs::write(&kubeconfig, api.kubeconfig("static").await.unwrap()).unwrap();
    let client = client(&kubeconfig).await.unwrap();
    (kubeconfig, client)
}

/// Whether a stolen token was refused: because it lacks rights, or, where the API server had not
/// authenticated it for ten seconds, because its ServiceAccount is gone.
fn is_cut_off(refusal: &str) -> bool {
    refusal.contains("orbidden")
        || refusal.contains("Unauthorized")
        || refusal.contains("logged in")
}

async fn cannot(kubectl: &Kubectl, attempts: &[&[&str]]) {
    for args in attempts {
        let finished = kubectl.run(*args).await.unwrap();
        assert!(!finished.status.success(), "{args:?} should be refused");
        assert!(is_cut_off(&finished.stderr), "{args:?}: {}", finished.stderr);
    }
}

async fn until_made(made: &AtomicUsize, enough: usize) {
    probe::until("the loop to run", WAIT_TIMEOUT, || async {
        let so_far = made.load(Ordering::SeqCst);
        Ok(if so_far >= enough {
            Probe::Ready(())
        } else {
            Probe::NotYet(format!("{so_far} bindings"))
        })
    })
    .await
    .unwrap();
}

/// The quota lets nobody create that many; here it is raised. More are created while the kill
/// switch runs, and each of them would restore access.
#[tokio::test]
async fn a_hundred_bindings_and_those_added_meanwhile_are_all_deleted() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let namespace = mallory.namespace();
    let api = mallory.api().await.unwrap();
    let id = api.workspaces(false).await.unwrap().items[0].id;
    let (kubeconfig, client) = stolen(&world, &api).await;
    mallory.kubectl().run(["create", "serviceaccount", "extra"]).await.unwrap().success().unwrap();
    let quota = r#"{"spec":{"hard":{"count/rolebindings.rbac.authorization.k8s.io":"5000"}}}"#;
    let raise = ["patch", "quota", "tenant-quota", "-n", &namespace, "-p", quota];
    world.admin_kubectl().unwrap().run(raise).await.unwrap().success().unwrap();

    let made = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (client, namespace) = (client.clone(), namespace.clone());
            let made = Arc::clone(&made);
            tokio::spawn(async move {
                bind_until_refused(client, &namespace, worker, Keep::Yes, &made).await
            })
        })
        .collect();
    until_made(&made, 100).await;
    let suspension = operator.suspend(id, &SuspendRequest::default()).await.unwrap();
    assert_eq!(suspension.status, WorkspaceStatus::Suspended, "{suspension:?}");
    // The call has returned: from here on nothing is allowed.
    let stolen = world.kubectl_with(&kubeconfig).unwrap();
    let extra = format!("system:serviceaccount:{namespace}:extra");
    let as_extra = ["get", "secrets", "--as", &extra];
    cannot(&stolen, &[&["get", "secrets"], &as_extra, &["create", "configmap", "c"]]).await;
    for worker in workers {
        let refusal = worker.await.unwrap();
        assert!(is_cut_off(&refusal), "the loop ended otherwise: {refusal}");
    }
    let bindings = super::super::object(&world, &["rolebindings", "-n", &namespace]).await.unwrap();
    assert!(bindings.is_none(), "{bindings:?}");
}

/// A DELETE that returns 404 is no success, because a renamed binding would remain.
#[tokio::test]
async fn a_renamed_binding_is_deleted_as_well() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let namespace = mallory.namespace();
    let api = mallory.api().await.unwrap();
    let id = api.workspaces(false).await.unwrap().items[0].id;
    let (kubeconfig, _) = stolen(&world, &api).await;
    let account = format!("--serviceaccount={namespace}:sa-tenant-admin");
    // The policies let no tenant do it (`no_binding_names_a_subject_from_outside`); an
    // administrator may.
    let admin = world.admin_kubectl().unwrap();
    let rename: [&[&str]; 2] = [
        &["create", "rolebinding", "other", "--clusterrole=admin", &account, "-n", &namespace],
        &["delete", "rolebinding", "rb-tenant-admin", "-n", &namespace],
    ];
    for args in rename {
        admin.run(args).await.unwrap().success().unwrap();
    }
    let stolen = world.kubectl_with(&kubeconfig).unwrap();
    stolen.run(["get", "secrets"]).await.unwrap().success().unwrap();

    let suspension = operator.suspend(id, &SuspendRequest::default()).await.unwrap();
    assert_eq!(suspension.status, WorkspaceStatus::Suspended, "{suspension:?}");
    cannot(&stolen, &[&["get", "secrets"]]).await;
    let bindings = super::super::object(&world, &["rolebindings", "-n", &namespace]).await.unwrap();
    assert!(bindings.is_none(), "{bindings:?}");
}

/// A tenant that creates bindings in a loop while the kill switch runs, for an account of its own
/// that could restore its access.
#[tokio::test]
async fn a_loop_of_writes_does_not_outlive_the_suspension() {
    // The broker would delete the binding that the test adds.
    let world = World::builder().setting("drift_seconds", 3600).start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    let operator = world.administrator("operator").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let namespace = mallory.namespace();
    let api = mallory.api().await.unwrap();
    let id = api.workspaces(false).await.unwrap().items[0].id;
    let (_, client) = stolen(&world, &api).await;
    mallory.kubectl().run(["create", "serviceaccount", "extra"]).await.unwrap().success().unwrap();

    let made = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (client, namespace) = (client.clone(), namespace.clone());
            let made = Arc::clone(&made);
            tokio::spawn(async move {
                bind_until_refused(client, &namespace, worker, Keep::No, &made).await
            })
        })
        .collect();
    until_made(&made, 8).await;
    let admin = operator.api().await.unwrap();
    let reason = SuspendRequest { reason: Some("a loop".to_owned()) };
    let suspension = admin.suspend(id, &reason).await.unwrap();
    assert_eq!(suspension.status, tenant_shared::WorkspaceStatus::Suspended, "{suspension:?}");
    for worker in workers {
        let refusal = worker.await.unwrap();
        // By the label, or because the rights were revoked a moment later.
        assert!(is_cut_off(&refusal), "the loop ended otherwise: {refusal}");
    }
    let bindings = super::super::object(&world, &["rolebindings", "-n", &namespace]).await.unwrap();
    assert!(bindings.is_none(), "{bindings:?}");

    // Even with remaining rights the label alone stops every write.
    let admin = world.admin_kubectl().unwrap();
    let outsider = world.cluster().kubeconfig_for("outsider", None, world.folder()).unwrap();
    let outsider = world.kubectl_with(&outsider).unwrap();
    let bind = [
        "create",
        "rolebinding",
        "left",
        "--clusterrole=admin",
        "--user=outsider",
        "-n",
        &namespace,
    ];
    admin.run(bind).await.unwrap().success().unwrap();
    let may = ["create", "configmaps", "-n", &namespace];
    outsider.until_allowed(&may).await.unwrap();
    let create = ["create", "configmap", "c", "-n", &namespace];
    are_refused(
        &outsider,
        &[
            (&create, "tenant-suspended"),
            (&["delete", "rolebinding", "left", "-n", &namespace], "tenant-suspended"),
        ],
    )
    .await;
    // An administrator who is not in system:masters can still clean up.
    let keeper = world.cluster().kubeconfig_for("keeper", None, world.folder()).unwrap();
    let give = [
        "create",
        "clusterrolebinding",
        &format!("keeper-{namespace}"),
        "--clusterrole=cluster-admin",
        "--user=keeper",
    ];
    admin.run(give).await.unwrap().success().unwrap();
    let keeper = world.kubectl_with(&keeper).unwrap();
    keeper.until_allowed(&may).await.unwrap();
    keeper.run(create).await.unwrap().success().unwrap();
    keeper
        .run(["delete", "rolebinding", "left", "-n", &namespace])
        .await
        .unwrap()
        .success()
        .unwrap();
    admin
        .run(["delete", "clusterrolebinding", &format!("keeper-{namespace}")])
        .await
        .unwrap()
        .success()
        .unwrap();
}

/// Creates bindings, and deletes them again unless they are kept, until one is refused; returns the
/// text of the refusal.
async fn bind_until_refused(
    client: kube::Client,
    namespace: &str,
    worker: usize,
    keep: Keep,
    made: &AtomicUsize,
) -> String {
    use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
    use kube::api::{Api, DeleteParams, PostParams};

    let api: Api<RoleBinding> = Api::namespaced(client, namespace);
    for round in 0_u32.. {
        let name = format!("extra-{worker}-{round}");
        let mut binding = RoleBinding::default();
        binding.metadata.name = Some(name.clone());
        binding.role_ref = RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: "admin".to_owned(),
        };
        binding.subjects = Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: "extra".to_owned(),
            namespace: Some(namespace.to_owned()),
            ..Subject::default()
        }]);
        if let Err(error) = api.create(&PostParams::default(), &binding).await {
            match error {
                // The quota counts a deletion a moment later.
                kube::Error::Api(status) if status.message.contains("exceeded quota") => continue,
                // Many creations at once: the API server gave up counting one of them.
                kube::Error::Api(status) if status.is_conflict() => continue,
                error => return error.to_string(),
            }
        }
        made.fetch_add(1, Ordering::SeqCst);
        if keep == Keep::Yes {
            continue;
        }
        // The quota allows twenty.
        if let Err(kube::Error::Api(status)) = api.delete(&name, &DeleteParams::default()).await
            && status.code != 404
        {
            return status.message;
        }
    }
    unreachable!("the loop has no end of its own")
}
