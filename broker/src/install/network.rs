//! Admission policies for network objects: a tenant may not claim addresses and host names that are
//! not its own (`tenant-network`), and the broker may create one NetworkPolicy only
//! (`tenant-broker-fence-network`).
//!
//! All kinds share a policy, because every policy costs time in every write in the cluster. A rule
//! for an API group that the cluster does not serve, such as the Gateway API's, matches nothing.

use tenant_shared::{TIER_LABEL, WORKSPACE_LABEL};

use super::{
    Parameters,
    cel::{
        MANAGED_NAMESPACES, OBJECT_NAME, TENANT_NAMESPACE_PATTERN, WRITE_OPERATIONS, administrator,
        fixed, is_broker, is_system, label, tenant_account, unless_administrator,
    },
    hosts,
    policy::{Message, Namespaces, Policy, rule},
    quoted, quoted_list,
};
use crate::workspace::NETWORK_POLICY_NAME;

const NETWORKING: &str = "networking.k8s.io";
/// Writes that create or change an object.
const CREATE_OR_UPDATE: [&str; 2] = ["CREATE", "UPDATE"];
/// CEL: whether the request is for the status of the object.
const IS_STATUS: &str = "has(request.subResource) && request.subResource == \"status\"";

/// CEL: whether the request is for this resource.
fn is(resource: &str) -> String {
    format!("request.resource.resource == {}", quoted(resource))
}

/// CEL: whether the request adds an external IP to a Service; the same rule as the admission plugin
/// `DenyServiceExternalIPs`.
fn new_external_ip() -> String {
    "has(object.spec.externalIPs) && object.spec.externalIPs.exists(ip, request.operation == \
     \"CREATE\" || !(ip in oldObject.spec.?externalIPs.orValue([])))"
        .to_owned()
}

/// CEL: whether the request adds or changes `loadBalancerIP` of a Service.
fn new_load_balancer_ip() -> String {
    let ip = "object.spec.loadBalancerIP";
    format!(
        "has({ip}) && {ip} != \"\" && (request.operation == \"CREATE\" || \
         {ip} != oldObject.spec.?loadBalancerIP.orValue(\"\"))"
    )
}

/// The policy for the broker's NetworkPolicy, installed only where the broker may create one. It
/// applies to all namespaces, like the policy for the broker's Secrets.
pub(super) fn broker_policy(parameters: &Parameters) -> Policy {
    let name = quoted(NETWORK_POLICY_NAME);
    let mut tiers = parameters.network_policy_tiers.clone();
    // Namespaces of earlier versions have no tier label.
    tiers.push(String::new());
    let tiers = quoted_list(&tiers);
    let is_empty = |field: &str| format!("object.{field}.orValue([]).size() == 0");
    Policy {
        name: "tenant-broker-fence-network",
        reason: "The broker creates one NetworkPolicy in each tenant's namespace, always the same. \
                 With the RBAC permission alone it could open or cut off the network of every \
                 namespace.",
        rules: vec![rule(NETWORKING, &["networkpolicies"], &WRITE_OPERATIONS, "Namespaced")],
        conditions: vec![("is-broker", is_broker(parameters))],
        variables: vec![],
        validations: vec![
            (
                format!(
                    "request.namespace.matches({}) && {} != \"\" && {} in {tiers}",
                    quoted(TENANT_NAMESPACE_PATTERN),
                    label("namespaceObject", WORKSPACE_LABEL),
                    label("namespaceObject", TIER_LABEL),
                ),
                fixed(
                    "the broker may write NetworkPolicies in managed tenant namespaces only whose tier \
                     has one (network_policy)",
                ),
            ),
            (
                format!("request.operation == \"CREATE\" && object.metadata.name == {name}"),
                Message::Fixed(format!(
                    "the broker may make the NetworkPolicy {NETWORK_POLICY_NAME} only, and change none"
                )),
            ),
            (
                format!(
                    "request.operation != \"CREATE\" || ({} && object.spec.policyTypes == \
                     [\"Ingress\"] && object.spec.?egress.orValue([]).size() == 0 && \
                     object.spec.?ingress.orValue([]).size() == 1 && \
                     object.spec.ingress[0].?ports.orValue([]).size() == 0 && \
                     object.spec.ingress[0].?from.orValue([]).size() == 1 && \
                     !has(object.spec.ingress[0].from[0].ipBlock) && \
                     !has(object.spec.ingress[0].from[0].namespaceSelector) && {} && {} && {})",
                    selects_all("object.spec"),
                    selects_all("object.spec.ingress[0].from[0]"),
                    is_empty("metadata.?finalizers"),
                    is_empty("metadata.?ownerReferences"),
                ),
                fixed(
                    "the broker's NetworkPolicy denies ingress from other namespaces, and nothing \
                     holds it or owns it",
                ),
            ),
        ],
        namespaces: Namespaces::All,
    }
}

/// CEL: whether the pod selector of this part of the object selects all pods.
fn selects_all(part: &str) -> String {
    let selector = format!("{part}.podSelector");
    format!(
        "({selector}.?matchLabels.orValue({{}}).size() == 0 && \
         {selector}.?matchExpressions.orValue([]).size() == 0)"
    )
}

pub(super) fn policy(parameters: &Parameters) -> Policy {
    let is_tenant = format!("request.userInfo.username.matches({})", quoted(&tenant_account()));
    let (is_service, is_network_policy) = (is("services"), is("networkpolicies"));
    let (external, balancer) = (new_external_ip(), new_load_balancer_ip());
    let is_ours = format!("{OBJECT_NAME} == {}", quoted(NETWORK_POLICY_NAME));
    // The cheapest test comes first. Only requests that may be wrong reach the validations.
    let may_be_wrong = [
        format!("({IS_STATUS}) ? {is_tenant}"),
        format!("{is_service} ? ({external}) || ({balancer})"),
        format!("{is_network_policy} ? {is_ours}"),
        "(request.operation == \"CREATE\" || object.spec != oldObject.spec || \
         object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({}))"
            .to_owned(),
    ]
    .join(" : ");
    let passes = format!("{} || {}", is_broker(parameters), is_system());
    let only = |kind: &str, bad: &str, message: &str| {
        unless_administrator(&format!("!(!({IS_STATUS}) && {kind} && ({bad}))"), message)
    };
    let mut validations = vec![
        unless_administrator(
            &format!("!({IS_STATUS})"),
            "the status of a Service or an Ingress is the load balancer's to write",
        ),
        only(
            &is_service,
            &external,
            "a Service in a tenant's namespace may not have spec.externalIPs: every node would send \
             the traffic for such an address to the tenant's pods",
        ),
        only(
            &is_service,
            &balancer,
            "a Service in a tenant's namespace may not have spec.loadBalancerIP: the load balancer \
             chooses the address",
        ),
    ];
    // Reserved also while no tier has one, because a tenant's NetworkPolicy of this name would
    // conflict once a tier gets one.
    let message =
        format!("the name {NETWORK_POLICY_NAME} is reserved for the broker's NetworkPolicy");
    validations.push(only(&is_network_policy, &is_ours, &message));
    let hosts = hosts::HostRules::new(parameters);
    validations.extend(hosts.validations().into_iter().map(|(expression, message)| {
        let expression = format!("({IS_STATUS}) || {expression} || variables.administrator");
        (expression, message)
    }));
    let rules = vec![
        rule("", &["services"], &CREATE_OR_UPDATE, "Namespaced"),
        rule("", &["services/status"], &["UPDATE"], "Namespaced"),
        rule(NETWORKING, &["ingresses"], &CREATE_OR_UPDATE, "Namespaced"),
        rule(NETWORKING, &["ingresses/status"], &["UPDATE"], "Namespaced"),
        rule(
            hosts::GATEWAY_API_GROUP,
            &hosts::GATEWAY_API_RESOURCES,
            &CREATE_OR_UPDATE,
            "Namespaced",
        ),
        rule(NETWORKING, &["networkpolicies"], &WRITE_OPERATIONS, "Namespaced"),
    ];
    Policy {
        name: "tenant-network",
        reason: "Addresses and host names that are not the tenant's: with externalIPs a Service \
                 receives the traffic of every node for any address (CVE-2020-8554); with a host \
                 name, an Ingress or a route receives the traffic of another site, for example \
                 the broker's.",
        rules,
        conditions: vec![("is-wrong", format!("({may_be_wrong}) && !({passes})"))],
        variables: [administrator(), hosts.variables()].concat(),
        validations,
        namespaces: MANAGED_NAMESPACES,
    }
}
