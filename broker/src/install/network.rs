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
        NETWORKING, OBJECT_NAME, TENANT_NAMESPACE_PATTERN, WRITE_OPERATIONS, administrator, fixed,
        in_namespace_of_tenant, is_allowed_in_all_namespaces, is_broker,
        is_broker_writing_its_kinds, is_system, is_workspace_account_or_broker, label,
        managed_namespaces, unless_administrator,
    },
    hosts,
    policy::{Message, Namespaces, Policy, rule},
    quoted, quoted_list,
};
use crate::workspace::NETWORK_POLICY_NAME;

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
    Policy {
        name: "tenant-broker-fence-network",
        reason: "The broker creates one NetworkPolicy in each tenant's namespace, always the same. \
                 With the RBAC permission alone it could open or cut off the network of every \
                 namespace.",
        rules: vec![rule(NETWORKING, &["networkpolicies"], &WRITE_OPERATIONS, "Namespaced")],
        conditions: vec![("is-broker", is_broker(parameters))],
        variables: vec![],
        validations: vec![
            require_tier_with_network_policy(parameters),
            (
                format!(
                    "request.operation == \"CREATE\" && object.metadata.name == {}",
                    quoted(NETWORK_POLICY_NAME)
                ),
                Message::Fixed(format!(
                    "the broker may make the NetworkPolicy {NETWORK_POLICY_NAME} only, and change none"
                )),
            ),
            require_denied_ingress(),
        ],
        namespaces: Namespaces::All,
    }
}

/// Validation: the namespace is a managed one, and its tier has a NetworkPolicy.
fn require_tier_with_network_policy(parameters: &Parameters) -> (String, Message) {
    let mut tiers = parameters.network_policy_tiers.clone();
    // Namespaces of earlier versions have no tier label.
    tiers.push(String::new());
    (
        format!(
            "request.namespace.matches({}) && {} != \"\" && {} in {}",
            quoted(TENANT_NAMESPACE_PATTERN),
            label("namespaceObject", WORKSPACE_LABEL),
            label("namespaceObject", TIER_LABEL),
            quoted_list(&tiers),
        ),
        fixed(
            "the broker may write NetworkPolicies in managed tenant namespaces only whose tier \
             has one (network_policy)",
        ),
    )
}

/// Validation: a new NetworkPolicy denies all pods ingress from other namespaces, and does nothing
/// else.
fn require_denied_ingress() -> (String, Message) {
    let is_empty = |field: &str| format!("object.{field}.orValue([]).size() == 0");
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
    )
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
    let hosts = hosts::HostRules::new(parameters);
    Policy {
        name: "tenant-network",
        reason: "Addresses and host names that are not the tenant's: with externalIPs a Service \
                 receives the traffic of every node for any address (CVE-2020-8554); with a host \
                 name, an Ingress or a route receives the traffic of another site, for example \
                 the broker's.",
        rules: vec![
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
        ],
        conditions: vec![("is-wrong", is_wrong(parameters))],
        variables: [administrator(), controller(parameters), hosts.variables()].concat(),
        validations: [object_validations(parameters), host_validations(&hosts)].concat(),
        namespaces: managed_namespaces(parameters),
    }
}

/// CEL: whether a request may be wrong, and is neither of the cluster itself nor for the broker's
/// NetworkPolicy. Only such requests reach the validations. The cheapest test comes first.
fn is_wrong(parameters: &Parameters) -> String {
    let may_be_wrong = [
        format!("({IS_STATUS}) ? {}", may_not_write_status(parameters)),
        format!("{} ? ({}) || ({})", is("services"), new_external_ip(), new_load_balancer_ip()),
        format!("{} ? {}", is("networkpolicies"), has_reserved_name()),
        "(request.operation == \"CREATE\" || object.spec != oldObject.spec || \
         object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({}))"
            .to_owned(),
    ]
    .join(" : ");
    let passes = format!("{} || {}", is_broker_writing_its_kinds(parameters), is_system());
    format!("({may_be_wrong}) && !({passes})")
}

/// CEL: whether the caller possibly may not write a status. Without tenants this decides. With them
/// the label of the namespace decides, which a match condition does not know.
fn may_not_write_status(parameters: &Parameters) -> String {
    if parameters.tenants.enabled {
        "true".to_owned()
    } else {
        is_workspace_account_or_broker(parameters)
    }
}

/// Variables: whether the caller may write the resource of the request in all namespaces, as a
/// controller of load balancers. The request does not say which verb it needs.
fn controller(parameters: &Parameters) -> Vec<(&'static str, String)> {
    if parameters.tenants.enabled {
        vec![
            ("updatesAll", is_allowed_in_all_namespaces("update")),
            ("patchesAll", is_allowed_in_all_namespaces("patch")),
        ]
    } else {
        vec![]
    }
}

/// Validation: tenants write no status. In the namespaces of tenants members act as users, groups
/// and ServiceAccounts of any name, so everybody is refused who is no controller.
fn refuse_status(parameters: &Parameters) -> (String, Message) {
    let expression = if parameters.tenants.enabled {
        format!(
            "!({IS_STATUS}) || ({} ? variables.updatesAll || variables.patchesAll : !{})",
            in_namespace_of_tenant(),
            is_workspace_account_or_broker(parameters),
        )
    } else {
        format!("!({IS_STATUS})")
    };
    unless_administrator(
        &expression,
        "the status of a Service or an Ingress is the load balancer's to write",
    )
}

/// CEL: whether the object has the name of the broker's NetworkPolicy.
fn has_reserved_name() -> String {
    format!("{OBJECT_NAME} == {}", quoted(NETWORK_POLICY_NAME))
}

/// The validations of Services and NetworkPolicies, and of the status of Ingresses.
fn object_validations(parameters: &Parameters) -> Vec<(String, Message)> {
    vec![
        refuse_status(parameters),
        refuse(
            &is("services"),
            &new_external_ip(),
            "a Service in a tenant's namespace may not have spec.externalIPs: every node would send \
             the traffic for such an address to the tenant's pods",
        ),
        refuse(
            &is("services"),
            &new_load_balancer_ip(),
            "a Service in a tenant's namespace may not have spec.loadBalancerIP: the load balancer \
             chooses the address",
        ),
        // Reserved also while no tier has one, because a tenant's NetworkPolicy of this name would
        // conflict once a tier gets one.
        refuse(
            &is("networkpolicies"),
            &has_reserved_name(),
            &format!("the name {NETWORK_POLICY_NAME} is reserved for the broker's NetworkPolicy"),
        ),
    ]
}

/// Validation: an object of this kind, unless its status is written, is not `bad`.
fn refuse(kind: &str, bad: &str, message: &str) -> (String, Message) {
    unless_administrator(&format!("!(!({IS_STATUS}) && {kind} && ({bad}))"), message)
}

/// The validations of host names, for everybody but administrators.
fn host_validations(hosts: &hosts::HostRules<'_>) -> Vec<(String, Message)> {
    hosts
        .validations()
        .into_iter()
        .map(|(expression, message)| {
            let expression = format!("({IS_STATUS}) || {expression} || variables.administrator");
            (expression, message)
        })
        .collect()
}
