//! The property of the candidates' way: it finds the namespaces that the caller may read, whatever
//! the bindings are.

use std::collections::BTreeSet;

use http::StatusCode;
use integration::acceptance::tenants::Rng;
use integration::http_client::http_client;
use integration::kubectl::Kubectl;
use integration::progress::print_message;
use integration::world::World;
use serde_json::{Value, json};

use super::fixture::{Client, apply, until_allowed};

/// Users with a token: token, name, uid, groups.
const USERS: &str = "p0-token-1c55,p0,u-p0,\"g0\"\n\
                     p1-token-77aa,p1,u-p1,\"g0,g1\"\n\
                     p2-token-09f3,p2,u-p2\n";
const TOKENS: [&str; 3] = ["p0-token-1c55", "p1-token-77aa", "p2-token-09f3"];
/// Rounds with other bindings.
const ROUNDS: usize = 5;
/// The namespaces are `property-0` and so on.
const NAMESPACES: usize = 6;
/// Label of the objects of a round.
const LABEL: &str = "property-round";
/// Repeats a run with the seed that it printed.
const SEED: &str = "NAMESPACES_SEED";

fn namespace(number: usize) -> String {
    format!("property-{number}")
}

fn subjects() -> Vec<Value> {
    let of_rbac = |kind: &str, name: &str| json!({"kind": kind, "apiGroup": "rbac.authorization.k8s.io", "name": name});
    let account = |number| json!({"kind": "ServiceAccount", "name": "builder", "namespace": namespace(number)});
    vec![
        of_rbac("User", "p0"),
        of_rbac("User", "p1"),
        of_rbac("User", "p2"),
        of_rbac("Group", "g0"),
        of_rbac("Group", "g1"),
        account(0),
        account(1),
        // Names of accounts as users, and names that belong to something of another kind.
        of_rbac("User", "system:serviceaccount:property-1:builder"),
        of_rbac("User", "builder"),
        of_rbac("User", "g0"),
        of_rbac("User", "P0"),
        of_rbac("Group", "p2"),
        json!({"kind": "ServiceAccount", "name": "p0", "namespace": namespace(0)}),
        of_rbac("Group", "system:serviceaccounts"),
        of_rbac("Group", "system:serviceaccounts:property-0"),
        of_rbac("Group", "system:authenticated"),
    ]
}

/// A ClusterRole of this name, or the Role of a namespace.
fn role(name: &str, namespace: Option<&str>, rules: &Value, round: &str) -> Value {
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "rules": rules,
        "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: round}}})
}

fn binding(
    name: &str,
    namespace: Option<&str>,
    (kind, role): (&str, &str),
    subjects: &[Value],
    round: &str,
) -> Value {
    let of_kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": of_kind, "subjects": subjects,
        "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: round}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}})
}

/// Rules about namespaces: all, or those with these names.
fn on_namespaces(verbs: &[&str], names: &[String]) -> Value {
    let mut rule = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": verbs});
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    json!([rule])
}

/// Roles and bindings of a round, chosen by chance.
fn objects(rng: &mut Rng, number: usize) -> Vec<Value> {
    let (round, subjects) = (number.to_string(), subjects());
    let own = |kind: &str| format!("property-{kind}-{round}");
    let mut names: Vec<String> = (0..NAMESPACES).map(namespace).collect();
    names.push("property-missing".to_owned());
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]);
    let chosen = rng.subset(&names, 1);
    let mut objects = vec![
        role(&own("named"), None, &on_namespaces(&["get"], &chosen), &round),
        role(&own("get"), None, &on_namespaces(&["get"], &[]), &round),
        role(&own("star"), None, &on_namespaces(&["*"], &chosen), &round),
        role(&own("secrets"), None, &secrets, &round),
    ];
    let some = |rng: &mut Rng| {
        let count = 1 + rng.below(2);
        (0..count).filter_map(|_| rng.choose(&subjects).cloned()).collect::<Vec<_>>()
    };
    for number in 0..NAMESPACES {
        let namespace = namespace(number);
        // The Role of a namespace gives the right to that one alone, whatever names it has.
        let of_role = if rng.percent(50) { rng.subset(&names, 1) } else { Vec::new() };
        objects.push(role("local", Some(&namespace), &on_namespaces(&["get"], &of_role), &round));
        for count in 0..rng.below(3) {
            let cluster_roles =
                [own("named"), own("get"), own("star"), own("secrets"), "missing".to_owned()];
            let cluster_role = rng.choose(&cluster_roles).cloned().unwrap_or_default();
            let role = match rng.below(4) {
                0 => ("ClusterRole", "view"),
                1 => ("Role", "local"),
                _ => ("ClusterRole", cluster_role.as_str()),
            };
            let (name, subjects) = (format!("r{round}-{count}"), some(rng));
            objects.push(binding(&name, Some(&namespace), role, &subjects, &round));
        }
    }
    for count in 0..rng.below(3) {
        let role = match rng.below(10) {
            0 => own("get"),
            1 => "view".to_owned(),
            2 => own("secrets"),
            3 | 4 => own("star"),
            _ => own("named"),
        };
        let subjects: Vec<Value> = rng.choose(&subjects).cloned().into_iter().collect();
        let name = format!("property-{round}-{count}");
        objects.push(binding(&name, None, ("ClusterRole", &role), &subjects, &round));
    }
    objects.extend(markers(&round));
    objects
}

/// Objects that are created last, one of each kind. RBAC follows all others once it follows these.
fn markers(round: &str) -> Vec<Value> {
    let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let (name, namespace) = (format!("property-marker-{round}"), namespace(0));
    let subject = [json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name})];
    let local = [json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io",
        "name": format!("{name}-local")})];
    vec![
        role(&name, None, &pods, round),
        binding(&name, None, ("ClusterRole", &name), &subject, round),
        role(&name, Some(&namespace), &pods, round),
        binding(&name, Some(&namespace), ("Role", &name), &local, round),
    ]
}

async fn replace_objects(admin: &Kubectl, rng: &mut Rng, number: usize) {
    let kinds = "rolebindings,clusterrolebindings,roles,clusterroles";
    let delete = ["delete", kinds, "-A", "-l", LABEL];
    admin.run(delete).await.unwrap().success().unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects(rng, number)});
    let created = admin.run_with_input(["create", "-f", "-"], list.to_string()).await.unwrap();
    created.success().unwrap();
    let marker = format!("--as=property-marker-{number}");
    until_allowed(admin, &[&marker, "get", "pods", "-n", "default"]).await;
    until_allowed(admin, &[&format!("{marker}-local"), "get", "pods", "-n", &namespace(0)]).await;
}

/// The namespaces that the user of this token may read, asked one by one.
async fn readable(world: &World, http: &reqwest::Client, token: &str) -> BTreeSet<String> {
    let mut readable = BTreeSet::new();
    for name in (0..NAMESPACES).map(namespace) {
        let url = world.cluster().url().join(&format!("api/v1/namespaces/{name}")).unwrap();
        let status = http.get(url).bearer_auth(token).send().await.unwrap().status();
        match status {
            StatusCode::OK => drop(readable.insert(name)),
            _ => assert_eq!(status, StatusCode::FORBIDDEN),
        }
    }
    readable
}

#[tokio::test]
async fn the_candidates_way_equals_asking_for_every_namespace() {
    let random = || u64::from_str_radix(&integration::random::hex(8).unwrap(), 16).unwrap();
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(random);
    print_message(&format!("namespaces with random bindings: {SEED}={seed}"));
    let mut rng = Rng::new(seed);
    let builder = World::builder().token_users(USERS).setting("model_services.enabled", true);
    let world = builder.start().await.unwrap();
    let (admin, client) = (world.admin_kubectl().unwrap(), Client::new(&world));
    let items = (0..NAMESPACES).flat_map(|number| {
        let name = namespace(number);
        let account = json!({"name": "builder", "namespace": name});
        [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}),
        ]
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items.collect::<Vec<_>>()});
    apply(&admin, list.to_string()).await;
    let mut tokens: Vec<String> = TOKENS.map(str::to_owned).into();
    for namespace in [namespace(0), namespace(1)] {
        let token = admin.run(["create", "token", "builder", "-n", &namespace]).await.unwrap();
        tokens.push(token.success().unwrap().stdout.trim().to_owned());
    }
    let http = http_client(Some(world.cluster().authority().certificate())).unwrap();

    let mut sizes = BTreeSet::new();
    for round in 0..ROUNDS {
        replace_objects(&admin, &mut rng, round).await;
        for (number, token) in tokens.iter().enumerate() {
            let found = client.get("/namespaces", token).await;
            let found: BTreeSet<String> = found
                .data()
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["name"].as_str().unwrap().to_owned())
                .collect();
            let readable = readable(&world, &http, token).await;
            assert_eq!(found, readable, "{SEED}={seed}, round {round}, caller {number}");
            sizes.insert(readable.len());
        }
    }
    assert!(sizes.len() > 1, "every caller may read as many namespaces: {sizes:?}");
}
