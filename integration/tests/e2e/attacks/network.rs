//! Attacks of a tenant with the network API: addresses and host names that are not its own.

use std::time::Duration;

use integration::kubectl::Kubectl;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};

use super::{are_refused, is_refused, until_creation_is_refused};
use crate::until_accepted;

const NETWORK: &str = "tenant-network";
const CREATE: [&str; 3] = ["create", "-f", "-"];
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

fn service(name: &str, more: &Value) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"app": "mine"}, "ports": [{"port": 443}]}});
    for (key, value) in more.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    service
}

async fn make(kubectl: &Kubectl, object: &Value) {
    let made = kubectl.run_with_input(CREATE, object.to_string()).await.unwrap();
    assert!(made.status.success(), "{object}: {}", made.stderr);
}

/// CVE-2020-8554: every node would send the traffic for that address to the tenant's pods.
#[tokio::test]
async fn no_service_takes_an_address_that_is_not_its_own() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let (kubectl, admin) = (mallory.kubectl(), world.admin_kubectl().unwrap());
    for more in [json!({"externalIPs": ["10.0.0.1"]}), json!({"loadBalancerIP": "10.0.0.1"})] {
        is_refused(kubectl, &CREATE, &service("evil", &more), NETWORK).await;
    }
    make(kubectl, &service("good", &json!({}))).await;
    make(kubectl, &service("headless", &json!({"clusterIP": "None"}))).await;
    let ips = r#"{"spec":{"externalIPs":["1.1.1.1"]}}"#;
    let ip = r#"{"spec":{"loadBalancerIP":"1.1.1.1"}}"#;
    let patch = |patch| ["patch", "service", "good", "--type=merge", "-p", patch];
    are_refused(kubectl, &[(&patch(ips), NETWORK), (&patch(ip), NETWORK)]).await;
    kubectl.run(["label", "service", "good", "a=b"]).await.unwrap().success().unwrap();

    // An operator may assign one. The tenant may keep it and release it, and take no other.
    let namespace = mallory.namespace();
    let both = r#"{"spec":{"externalIPs":["192.0.2.1","192.0.2.2"]}}"#;
    let give = patch(both).into_iter().chain(["-n", &namespace]);
    admin.run(give).await.unwrap().success().unwrap();
    kubectl.run(["label", "service", "good", "c=d"]).await.unwrap().success().unwrap();
    let other = r#"{"spec":{"externalIPs":["192.0.2.1","192.0.2.3"]}}"#;
    are_refused(kubectl, &[(&patch(other), NETWORK)]).await;
    let one = r#"{"spec":{"externalIPs":["192.0.2.1"]}}"#;
    for less in [one, r#"{"spec":{"externalIPs":null}}"#] {
        kubectl.run(patch(less)).await.unwrap().success().unwrap();
    }
    are_refused(kubectl, &[(&patch(one), NETWORK)]).await;
}

/// The second half of the CVE. `admin` cannot write a status; a tier's role might by mistake.
#[tokio::test]
async fn no_status_names_a_load_balancer_that_does_not_exist() {
    let builder = World::builder().setting("tiers.basic.quota.services.loadbalancers", "1");
    let world = builder.start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let (kubectl, namespace) = (mallory.kubectl(), mallory.namespace());
    let admin = world.admin_kubectl().unwrap();
    // For other types the API server refuses the status itself.
    let balanced = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false});
    make(kubectl, &service("good", &balanced)).await;
    let status = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"1.1.1.1"}]}}}"#;
    let patch = ["patch", "service", "good", "--subresource=status", "-p", status];
    are_refused(kubectl, &[(&patch, "cannot")]).await;
    let role = format!("status-{namespace}");
    let account = format!("--serviceaccount={namespace}:sa-tenant-admin");
    for args in [
        &["create", "clusterrole", &role, "--verb=patch,update", "--resource=services/status"][..],
        &["create", "clusterrolebinding", &role, &format!("--clusterrole={role}"), &account],
    ] {
        admin.run(args).await.unwrap().success().unwrap();
    }
    kubectl.until_allowed(&["patch", "services", "--subresource=status"]).await.unwrap();
    are_refused(kubectl, &[(&patch, NETWORK)]).await;
    // A controller of the operator may, without any right on the policies.
    let controller = world.cluster().kubeconfig_for("metallb", None, world.folder()).unwrap();
    let bind = ["create", "clusterrolebinding", &format!("{role}-lb"), "--user=metallb"];
    let binding = bind.into_iter().chain(["--clusterrole=cluster-admin-of-services"]);
    let rights = "--resource=services,services/status";
    let create = ["create", "clusterrole", "cluster-admin-of-services", "--verb=get,patch", rights];
    admin.run(create).await.unwrap().success().unwrap();
    admin.run(binding).await.unwrap().success().unwrap();
    let metallb = world.kubectl_with(&controller).unwrap();
    let may = ["patch", "services", "--subresource=status", "-n", &namespace];
    metallb.until_allowed(&may).await.unwrap();
    let patch = patch.into_iter().chain(["-n", &namespace]);
    metallb.run(patch).await.unwrap().success().unwrap();
    for (kind, name) in [
        ("clusterrolebinding", role.as_str()),
        ("clusterrolebinding", &format!("{role}-lb")),
        ("clusterrole", &role),
        ("clusterrole", "cluster-admin-of-services"),
    ] {
        admin.run(["delete", kind, name]).await.unwrap().success().unwrap();
    }
}

fn ingress(name: &str, hosts: &[&str], tls: &[&str]) -> Value {
    let rule = |host: &&str| {
        let path = json!({"path": "/", "pathType": "Prefix",
            "backend": {"service": {"name": "good", "port": {"number": 443}}}});
        let mut rule = json!({"http": {"paths": [path]}});
        if !host.is_empty() {
            rule["host"] = json!(host);
        }
        rule
    };
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name},
        "spec": {"rules": hosts.iter().map(rule).collect::<Vec<_>>(),
            "tls": [{"hosts": tls, "secretName": "tls"}]}})
}

/// Installs kinds of the Gateway API as far as host names need them; the real ones have more
/// fields.
async fn install_gateway_api(admin: &Kubectl) {
    for (kind, plural) in
        [("HTTPRoute", "httproutes"), ("GRPCRoute", "grpcroutes"), ("Gateway", "gateways")]
    {
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.gateway.networking.k8s.io"), "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api"}},
            "spec": {"group": "gateway.networking.k8s.io", "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": {"type": "object",
                        "x-kubernetes-preserve-unknown-fields": true}}}]}});
        make(admin, &crd).await;
    }
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "gateway-api",
            "labels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}},
        "rules": [{"apiGroups": ["gateway.networking.k8s.io"], "resources": ["*"], "verbs": ["*"]}]});
    make(admin, &role).await;
    for crd in ["httproutes", "grpcroutes", "gateways"] {
        let crd = format!("crd/{crd}.gateway.networking.k8s.io");
        let wait = ["wait", "--for=condition=Established", "--timeout=30s", &crd];
        admin.run(wait).await.unwrap().success().unwrap();
    }
}

/// Installs the policies of a broker at `tenants.example.com`, with this suffix for hosts in the
/// tier `basic`.
async fn at_a_host(world: &World, suffix: &str) {
    let admin = world.cluster().admin_kubeconfig().display().to_string();
    let apply = [
        "install",
        "--apply",
        "--kubeconfig",
        &admin,
        "--set=public_url=https://tenants.example.com",
        &format!("--set=tiers.basic.ingress_host_suffix={suffix}"),
    ];
    world.broker().run(&apply).await.unwrap().success().unwrap();
}

async fn tenant(world: &World, name: &str) -> Person {
    let person = world.person(name).await.unwrap();
    person.login(&[]).await.unwrap().success().unwrap();
    person
}

#[tokio::test]
async fn nobody_claims_the_brokers_host_nor_all_hosts() {
    let world = World::builder().own_control_plane().start().await.unwrap();
    let mallory = tenant(&world, "mallory").await;
    let (kubectl, admin) = (mallory.kubectl(), world.admin_kubectl().unwrap());
    // The policy exists without the Gateway API.
    make(kubectl, &ingress("early", &["early.example.net"], &[])).await;
    install_gateway_api(&admin).await;
    // The API server serves the kinds, and `admin` has them by aggregation, a moment later.
    until_accepted(kubectl, &["get", "httproutes,grpcroutes,gateways"]).await;
    at_a_host(&world, "").await;
    let ours = ingress("evil", &["tenants.example.com"], &[]);
    until_creation_is_refused(kubectl, &ours, "is the host of the broker").await;

    let route = |kind: &str, hosts: &[&str]| {
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind,
            "metadata": {"name": "r"}, "spec": {"hostnames": hosts}})
    };
    let gateway = |listeners: Value| {
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "g"}, "spec": {"listeners": listeners}})
    };
    let mut nobody = ingress("evil", &[], &[]);
    nobody["spec"] = json!({"defaultBackend": {"service": {"name": "a", "port": {"number": 1}}}});
    let mut alias = ingress("evil", &["mine.example.net"], &[]);
    let annotation = "nginx.ingress.kubernetes.io/server-alias";
    alias["metadata"]["annotations"] = json!({annotation: "tenants.example.com"});
    let the_brokers = "is the host of the broker";
    for (object, why) in [
        (ingress("evil", &["mine.example.net", "tenants.example.com"], &[]), the_brokers),
        (ingress("evil", &["*.example.com"], &[]), the_brokers),
        (ingress("evil", &["mine.example.net"], &["tenants.example.com"]), the_brokers),
        (ingress("evil", &["mine.example.net"], &["*.example.com"]), the_brokers),
        (ingress("evil", &[""], &[]), "name every host"),
        (nobody, "name every host"),
        (alias, "server-alias"),
        (route("HTTPRoute", &["tenants.example.com"]), the_brokers),
        (route("HTTPRoute", &["*.com"]), the_brokers),
        (route("HTTPRoute", &[]), "name every host"),
        (route("GRPCRoute", &["*.example.com"]), the_brokers),
        (gateway(json!([{"protocol": "HTTP", "hostname": "*.example.com"}])), the_brokers),
        (gateway(json!([{"protocol": "HTTP"}])), "name every host"),
    ] {
        is_refused(kubectl, &CREATE, &object, why).await;
    }

    for object in [
        ingress("good", &["mine.example.net", "*.example.net"], &["mine.example.net"]),
        ingress("near", &["nottenants.example.com", "*.tenants.example.com"], &[]),
        route("HTTPRoute", &["mine.example.net"]),
        gateway(json!([{"protocol": "HTTP", "hostname": "mine.example.net"}, {"protocol": "TCP"}])),
    ] {
        make(kubectl, &object).await;
    }
    let taken = r#"[{"op":"replace","path":"/spec/rules/0/host","value":"tenants.example.com"}]"#;
    let take = ["patch", "ingress", "good", "--type=json", "-p", taken];
    are_refused(kubectl, &[(&take, the_brokers)]).await;
    let annotate = format!("{annotation}=tenants.example.com");
    are_refused(kubectl, &[(&["annotate", "ingress", "good", &annotate], "server-alias")]).await;

    // The operator's own Ingress of the broker is not a tenant's, and neither is an
    // administrator's.
    let theirs = ingress("theirs", &["tenants.example.com"], &[]);
    make(&admin, &theirs).await;
    let there = ["create", "-f", "-", "-n", &mallory.namespace()];
    admin.run_with_input(there, theirs.to_string()).await.unwrap().success().unwrap();
    // An admitted Ingress keeps its host; only spec and annotations are checked again.
    kubectl.run(["label", "ingress", "theirs", "a=b"]).await.unwrap().success().unwrap();
}

#[tokio::test]
async fn hosts_end_with_the_suffix_of_the_tier() {
    let world = World::builder().own_control_plane().start().await.unwrap();
    let mallory = tenant(&world, "mallory").await;
    let (kubectl, namespace) = (mallory.kubectl(), mallory.namespace());
    let admin = world.admin_kubectl().unwrap();
    at_a_host(&world, ".{namespace}.apps.example.com").await;
    let foreign = ingress("evil", &["mine.example.net"], &[]);
    let told = format!("hosts of this namespace end with .{namespace}.apps.example.com");
    until_creation_is_refused(kubectl, &foreign, &told).await;
    let own = format!("{namespace}.apps.example.com");
    let (below, wild) = (format!("web.{own}"), format!("*.{own}"));
    let (near, twice) = (format!("not{own}"), format!("{own}.example.net"));
    let neighbour = "web.tenant-01940000-0000-7000-8000-000000000001.apps.example.com";
    for host in [neighbour, &near, &twice, "*.apps.example.com", "apps.example.com"] {
        is_refused(kubectl, &CREATE, &ingress("evil", &[host], &[]), &told).await;
        let tls = ingress("evil", &[&below], &[host]);
        is_refused(kubectl, &CREATE, &tls, &told).await;
    }
    make(kubectl, &ingress("good", &[&own, &below, &wild], &[&wild])).await;

    // A tenant may not write the label from which the policies read the tier.
    let label = ["label", "--overwrite", "namespace", &namespace, "tenant-broker.io/tier=premium"];
    are_refused(kubectl, &[(&label, "cannot")]).await;
    are_refused(&world.broker_kubectl().unwrap(), &[(&label, "tenant-broker-fence-namespaces")])
        .await;
    // A tier without a suffix is not restricted; an unconfigured tier may have no host at all.
    let relabel = async |tier: &str| {
        let label = format!("tenant-broker.io/tier={tier}");
        let relabel = ["label", "--overwrite", "namespace", &namespace, &label];
        admin.run(relabel).await.unwrap().success().unwrap();
    };
    relabel("unknown").await;
    until_creation_is_refused(kubectl, &ingress("none", &[&below], &[]), "hosts of this namespace")
        .await;
    relabel("premium").await;
    probe::until("the label to count", WAIT_TIMEOUT, || async {
        let made = kubectl.run_with_input(CREATE, foreign.to_string()).await?;
        Ok(if made.status.success() { Probe::Ready(()) } else { Probe::NotYet(made.stderr) })
    })
    .await
    .unwrap();
}

const NETWORK_POLICY: &str = "tenant-deny-ingress";

/// The broker creates one NetworkPolicy if a tier says so: the tenant may not change it, and the
/// broker's credential can create no other.
#[tokio::test]
async fn the_network_policy_of_a_tier_stays_and_the_brokers_credential_creates_no_other() {
    let world = World::builder()
        .installed("tiers.basic.network_policy", "deny-ingress")
        .start()
        .await
        .unwrap();
    let mallory = tenant(&world, "mallory").await;
    let (kubectl, broker) = (mallory.kubectl(), world.broker_kubectl().unwrap());
    let there = kubectl.json(["get", "networkpolicy", NETWORK_POLICY]).await.unwrap();
    assert_eq!(there["spec"]["policyTypes"], json!(["Ingress"]), "{there}");
    let open = r#"{"spec":{"ingress":[{}]}}"#;
    are_refused(
        kubectl,
        &[
            (&["delete", "networkpolicy", NETWORK_POLICY], NETWORK),
            (&["patch", "networkpolicy", NETWORK_POLICY, "--type=merge", "-p", open], NETWORK),
            (&["annotate", "networkpolicy", NETWORK_POLICY, "a=b"], NETWORK),
        ],
    )
    .await;
    let policy = |name: &str, spec: Value| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name}, "spec": spec})
    };
    let own = policy("own", json!({"podSelector": {}, "ingress": [{}]}));
    make(kubectl, &own).await;
    kubectl.run(["delete", "networkpolicy", "own"]).await.unwrap().success().unwrap();

    // With the broker's stolen credential, in the namespace of a tenant that has none yet.
    let admin = world.admin_kubectl().unwrap();
    let remove = ["delete", "networkpolicy", NETWORK_POLICY, "-n", &mallory.namespace()];
    world.broker().stop().await.unwrap();
    admin.run(remove).await.unwrap().success().unwrap();
    let fence = "tenant-broker-fence-network";
    let ours = |spec: Value| policy(NETWORK_POLICY, spec);
    let same = there["spec"].clone();
    let mut held = ours(same.clone());
    held["metadata"]["finalizers"] = json!(["x.example/keep"]);
    let own_namespace = mallory.namespace();
    for (namespace, object) in [
        (own_namespace.as_str(), policy("other", same.clone())),
        ("default", ours(same.clone())),
        (&own_namespace, ours(json!({"podSelector": {}, "policyTypes": ["Ingress"]}))),
        (&own_namespace, ours(json!({"podSelector": {}, "policyTypes": ["Egress"]}))),
        (&own_namespace, ours(json!({"podSelector": {}, "ingress": [{}]}))),
        (
            &own_namespace,
            ours(json!({"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {}}]}]})),
        ),
        (
            &own_namespace,
            ours(json!({"podSelector": {}, "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {}, "namespaceSelector": {}}]}]})),
        ),
        (&own_namespace, held),
    ] {
        is_refused(&broker, &["create", "-n", namespace, "-f", "-"], &object, fence).await;
    }
    // A workspace is left alone if its tier has none.
    let admin_sets = async |tier: &str| {
        let label = format!("tenant-broker.io/tier={tier}");
        let args = ["label", "--overwrite", "namespace", &own_namespace, &label];
        admin.run(args).await.unwrap().success().unwrap();
    };
    admin_sets("premium").await;
    let create = ["create", "-n", &own_namespace, "-f", "-"];
    probe::until("the label to count", WAIT_TIMEOUT, || async {
        let dry = ["create", "--dry-run=server", "-n", &own_namespace, "-f", "-"];
        let tried = broker.run_with_input(dry, ours(same.clone()).to_string()).await?;
        let refused = tried.stderr.contains("whose tier has one");
        Ok(if refused { Probe::Ready(()) } else { Probe::NotYet(tried.stderr) })
    })
    .await
    .unwrap();
    admin_sets("basic").await;
    let good = ours(same).to_string();
    probe::until("the broker's own to be made", WAIT_TIMEOUT, || async {
        let made = broker.run_with_input(create, good.clone()).await?;
        Ok(if made.status.success() { Probe::Ready(()) } else { Probe::NotYet(made.stderr) })
    })
    .await
    .unwrap();
    are_refused(
        &broker,
        &[
            (&["delete", "networkpolicy", NETWORK_POLICY, "-n", &own_namespace], "cannot"),
            (&["annotate", "networkpolicy", NETWORK_POLICY, "a=b", "-n", &own_namespace], "cannot"),
        ],
    )
    .await;
}

/// Otherwise a tenant's own policy would be in the way once its tier has one.
#[tokio::test]
async fn the_name_of_the_brokers_network_policy_is_reserved_before_a_tier_has_one() {
    let world = World::builder().start().await.unwrap();
    let mallory = tenant(&world, "mallory").await;
    let policy = |name: &str| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name}, "spec": {"podSelector": {}}})
    };
    is_refused(mallory.kubectl(), &CREATE, &policy(NETWORK_POLICY), "is reserved").await;
    make(mallory.kubectl(), &policy("own")).await;
}
