//! The namespaces of an administrator, of a user with one namespace and of one with none, by each way
//! in which a cluster gives them.

use http::Method;
use integration::extension::{Aggregation, Authorizer, PROJECTS, Project, ProjectsServer};
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::{World, WorldBuilder};
use serde_json::{Value, json};

use super::fixture::{ADM, Client, NONE, ONE, REG, TIMEOUT, apply, bind, builder, until_allowed};
use crate::{object, object_list, until_logged};

const NAMESPACE: &str = "user-ns";
/// Display name of the namespace itself.
const OF_NAMESPACE: &str = "Namespace of reg";
/// Namespaces of the platform, beside those that every cluster has.
const PLATFORM: [&str; 4] = ["openshift", "openshift-ai", "opendatahub", "system"];

fn user(name: &str) -> Value {
    json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name})
}

/// Creates the namespaces, makes `adm` an administrator, and gives `reg` one namespace.
async fn prepare(admin: &Kubectl) {
    let namespace = |name: &str, display_name: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name,
            "annotations": {"openshift.io/display-name": display_name}}})
    };
    let mut items = vec![namespace(NAMESPACE, OF_NAMESPACE), namespace("other-ns", "Other")];
    items.extend(PLATFORM.iter().map(|name| namespace(name, name)));
    items.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "test-adm"}, "subjects": [user("adm")],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "cluster-admin"}}));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    apply(admin, list.to_string()).await;
    bind(admin, NAMESPACE, &user("reg"), "admin").await;
    until_allowed(admin, &["--as=adm", "list", "namespaces"]).await;
    let namespace = format!("namespaces/{NAMESPACE}");
    until_allowed(admin, &["--as=reg", "get", &namespace, "-n", NAMESPACE]).await;
}

/// Checks that `adm` sees all namespaces but those of the platform, and `reg` exactly one with this
/// display name.
async fn assert_seen(world: &World, client: &Client, display_name: &str) {
    let all = object_list(world, &["namespaces"]).await.unwrap();
    let mut all: Vec<&str> =
        all.iter().map(|it| it["metadata"]["name"].as_str().unwrap()).collect();
    all.retain(|name| !PLATFORM.contains(name) && *name != "default" && !name.starts_with("kube-"));
    all.sort_unstable();
    assert!(all.contains(&NAMESPACE) && all.contains(&"other-ns"), "{all:?}");
    let found = client.get("/namespaces", ADM).await;
    let items = found.data().as_array().unwrap().iter();
    let names: Vec<&str> = items.map(|item| item["name"].as_str().unwrap()).collect();
    assert_eq!(names, all);
    let found = client.get("/namespaces", REG).await;
    assert_eq!(*found.data(), json!([{"name": NAMESPACE, "displayName": display_name}]));
    assert_eq!(*client.get("/namespaces", NONE).await.data(), json!([]));
}

/// Gives a subject the right to list projects.
async fn allow_projects(admin: &Kubectl, name: &str, subject: &Value) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
         "metadata": {"name": "test-projects"},
         "rules": [{"apiGroups": ["project.openshift.io"], "resources": ["projects"],
                    "verbs": ["list"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
         "metadata": {"name": name}, "subjects": [subject],
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                     "name": "test-projects"}},
    ]});
    apply(admin, list.to_string()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_sees_the_same_without_projects_and_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let aggregation = Aggregation::new(folder.path()).unwrap();
    let flags = aggregation.apiserver_flags().iter();
    let world = flags.fold(builder().fault_proxy(), WorldBuilder::apiserver_flag);
    let world = world.start().await.unwrap();
    let (admin, client) = (world.admin_kubectl().unwrap(), Client::new(&world));
    prepare(&admin).await;
    assert_seen(&world, &client, OF_NAMESPACE).await;

    projects_as_a_custom_resource(&world, &admin, &client).await;
    projects_behind_the_aggregation_layer(&world, &admin, &client, &aggregation).await;
}

/// A custom resource cannot filter, so it has the only project that `reg` may see, and `none` may not
/// list it.
async fn projects_as_a_custom_resource(world: &World, admin: &Kubectl, client: &Client) {
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": {"name": "projects.project.openshift.io"},
        "spec": {"group": "project.openshift.io", "scope": "Cluster",
                 "names": {"kind": "Project", "plural": "projects", "singular": "project"},
                 "versions": [{"name": "v1", "served": true, "storage": true,
                               "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    apply(admin, definition.to_string()).await;
    let display_name = "Project of reg";
    let project = json!({"apiVersion": "project.openshift.io/v1", "kind": "Project",
        "metadata": {"name": NAMESPACE,
                     "annotations": {"openshift.io/display-name": display_name}}});
    let create = ["create", "-f", "-"];
    probe::until("the kind Project", TIMEOUT, || async {
        let created = admin.run_with_input(create, project.to_string()).await?;
        Ok(if created.status.success() { Probe::Ready(()) } else { Probe::NotYet(created.stderr) })
    })
    .await
    .unwrap();
    allow_projects(admin, "test-projects-reg", &user("reg")).await;
    until_allowed(admin, &["--as=reg", "list", "projects.project.openshift.io"]).await;
    assert_seen(world, client, display_name).await;

    let delete = ["delete", "crd", "projects.project.openshift.io"];
    admin.run(delete).await.unwrap().success().unwrap();
    // Of a custom resource and an aggregated API of one group there can be one.
    probe::until("the end of the kind Project", TIMEOUT, || async {
        Ok(match object(world, &["apiservice", PROJECTS]).await? {
            None => Probe::Ready(()),
            Some(found) => Probe::NotYet(found.to_string()),
        })
    })
    .await
    .unwrap();
    assert_seen(world, client, OF_NAMESPACE).await;
}

async fn projects_behind_the_aggregation_layer(
    world: &World,
    admin: &Kubectl,
    client: &Client,
    aggregation: &Aggregation,
) {
    let display_name = "Aggregated project of reg";
    let project = |user: &str, name: &str| Project {
        user: user.to_owned(),
        name: name.to_owned(),
        display_name: display_name.to_owned(),
    };
    let projects = vec![project("reg", NAMESPACE), project("adm", "other-ns")];
    let server = ProjectsServer::start(aggregation, projects).await.unwrap();
    apply(admin, server.registration().to_string()).await;
    let everybody = json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io",
        "name": "system:authenticated"});
    allow_projects(admin, "test-projects-everybody", &everybody).await;
    until_allowed(admin, &["--as=none", "list", "projects.project.openshift.io"]).await;
    probe::until("the aggregated API", TIMEOUT, || async {
        let listed = admin.run(["get", "--raw", "/apis/project.openshift.io/v1/projects"]).await?;
        Ok(if listed.status.success() { Probe::Ready(()) } else { Probe::NotYet(listed.stderr) })
    })
    .await
    .unwrap();
    assert_seen(world, client, display_name).await;
    let lists = server.lists();
    assert!(lists.iter().all(|list| !list.has_authorization), "{lists:?}");
    let has_listed = |user: &str| lists.iter().any(|list| list.user == user);
    // Who may list the namespaces themselves is not asked for projects.
    assert!(has_listed("reg") && has_listed("none") && !has_listed("adm"), "{lists:?}");

    server.stop().await;
    assert_seen(world, client, OF_NAMESPACE).await;
    until_logged(world.broker(), "cannot list the projects of a caller").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authorizer_that_cannot_say_its_rules_hides_no_namespace() {
    let folder = tempfile::tempdir().unwrap();
    // RBAC does not know of this right.
    let authorizer = Authorizer::start(folder.path(), |spec| {
        let of_resource = &spec["resourceAttributes"];
        spec["user"] == "one"
            && of_resource["verb"] == "get"
            && of_resource["resource"] == "namespaces"
            && of_resource["name"] == "other-ns"
    })
    .await
    .unwrap();
    let flags = authorizer.apiserver_flags().iter();
    let world = flags.fold(builder().fault_proxy(), WorldBuilder::apiserver_flag);
    let world = world.start().await.unwrap();
    let (admin, client) = (world.admin_kubectl().unwrap(), Client::new(&world));
    prepare(&admin).await;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "-"}});
    let args = ["create", "--as=reg", "--validate=false", "-o", "json", "-f", "-"];
    let reviewed = admin.run_with_input(args, review.to_string()).await.unwrap();
    let reviewed: Value = serde_json::from_str(&reviewed.success().unwrap().stdout).unwrap();
    assert_eq!(reviewed["status"]["incomplete"], true, "{reviewed}");

    assert_seen(&world, &client, OF_NAMESPACE).await;
    let found = client.get("/namespaces", ONE).await;
    assert_eq!(*found.data(), json!([{"name": "other-ns", "displayName": "Other"}]));
    // Each namespace of the cluster was read as the caller.
    let proxy = world.proxy().unwrap();
    for name in [NAMESPACE, "other-ns", "kube-system"] {
        let path = format!("/api/v1/namespaces/{name}");
        assert_eq!(proxy.count(|seen| seen.is(&Method::GET, &path) && seen.has_token(ONE)), 1);
    }
}
