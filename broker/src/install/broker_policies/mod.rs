//! Admission policies for the broker's own identity (`tenant-broker-fence-*`): they limit what a
//! stolen credential of the broker can do.
//!
//! RBAC already refuses every resource that is not named here. The policies name only the resources
//! that the broker may write, so that writes of other resources cost the API server nothing.
//!
//! Every policy costs a thousandth of the API server's time for each write in the cluster that it
//! does not apply to. Therefore kinds share a policy where they can.
//!
//! Selectors of the bindings decide by namespace: a policy of its own refuses writes outside of
//! managed namespaces (`outside`) and in suspended ones ([`super::tenant_policies`], for
//! everybody). The other policies need not check the namespace again.

mod namespaces;
mod objects;
mod secrets;
mod tenant_kind;
mod tenant_namespaces;
mod tenant_objects;

use tenant_shared::{SERVICE_ACCOUNT_NAME, TENANT_LABEL, TENANT_OWNER_ROLE};

pub(super) use self::secrets::policy as secrets;
use super::{
    Parameters,
    cel::{
        MEMBER_PATTERN, OBJECT_NAME, TENANT_NAMESPACE_PATTERN, TENANT_OBJECTS, WRITE_OPERATIONS,
        adds_no, broker_only, has_label, label, unmanaged_namespaces,
    },
    network,
    policy::{Message, Policy, rule},
    quoted,
};
use crate::cluster::RBAC;

/// CEL: whether the request is for a RoleBinding.
const IS_BINDING: &str = "request.resource.resource == \"rolebindings\"";

pub(super) fn policies(parameters: &Parameters) -> Vec<Policy> {
    let mut policies = vec![namespaces::policy(parameters), objects::policy(parameters)];
    if parameters.tenants.enabled {
        policies.extend([
            tenant_namespaces::policy(parameters),
            tenant_objects::policy(parameters),
            tenant_kind::policy(parameters),
        ]);
    }
    if parameters.bind_tokens {
        policies.push(secrets(parameters));
    }
    if !parameters.network_policy_tiers.is_empty() {
        policies.push(network::broker_policy(parameters));
    }
    policies.push(outside(parameters));
    policies
}

/// Match conditions: only requests of the broker, for namespaces of tenants or for all others. Each
/// request for a namespace is matched by one of the two policies, and has to be: a namespace is
/// what its labels before an update say.
fn namespace_conditions(parameters: &Parameters, of_tenants: bool) -> Vec<(&'static str, String)> {
    let mut conditions = broker_only(parameters);
    if parameters.tenants.enabled {
        let is_tenants =
            has_label("(request.operation == \"CREATE\" ? object : oldObject)", TENANT_LABEL);
        conditions.push(if of_tenants {
            ("is-of-tenant", is_tenants)
        } else {
            ("is-of-no-tenant", format!("!({is_tenants})"))
        });
    }
    conditions
}

/// CEL: whether an update only removes finalizers of a RoleBinding or a ServiceAccount.
fn only_removes_finalizers() -> String {
    changes_finalizers_and("object.?subjects == oldObject.?subjects")
}

/// CEL: whether an update only removes finalizers of a RoleBinding or a ServiceAccount, or also all
/// subjects of a RoleBinding.
fn only_revokes() -> String {
    changes_finalizers_and(
        "(object.?subjects.orValue([]).size() == 0 || object.?subjects == oldObject.?subjects)",
    )
}

/// CEL: whether an update removes finalizers, and this holds of the subjects, and nothing else of a
/// RoleBinding or a ServiceAccount changes.
fn changes_finalizers_and(subjects: &str) -> String {
    let unchanged = |field: &str| format!("object.?{field} == oldObject.?{field}");
    let metadata = ["labels", "annotations", "ownerReferences"]
        .map(|field| format!("object.metadata.?{field} == oldObject.metadata.?{field}"));
    let fields = ["secrets", "imagePullSecrets", "automountServiceAccountToken"].map(unchanged);
    let all: Vec<String> = std::iter::once(adds_no("finalizers"))
        .chain(metadata)
        .chain([unchanged("roleRef"), subjects.to_owned()])
        .chain(fields)
        .collect();
    all.join(" && ")
}

fn outside(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-broker-fence-outside",
        reason: "The broker may not write in namespaces that are not a tenant's. Where somebody \
                 removed the label of a namespace that has a tenant's name, or in which the broker \
                 bound somebody, it may revoke access but not grant it.",
        rules: vec![
            rule(
                "",
                &[&["serviceaccounts/token"], &TENANT_OBJECTS[..]].concat(),
                &WRITE_OPERATIONS,
                "Namespaced",
            ),
            rule(RBAC, &["rolebindings"], &WRITE_OPERATIONS, "Namespaced"),
        ],
        conditions: broker_only(parameters),
        variables: vec![],
        validations: vec![(
            format!(
                "request.operation != \"CREATE\" && ({} && ({IS_BINDING} || \
                 request.resource.resource == \"serviceaccounts\" && {}){}) && \
                 (request.operation == \"DELETE\" || ({}))",
                has_name_of_broker(parameters),
                is_own_account(parameters),
                or_is_own_binding(parameters),
                only_removes_finalizers(),
            ),
            Message::Built(
                "\"the broker may not write in namespace \" + request.namespace + \": it is not a \
                 managed tenant namespace\""
                    .to_owned(),
                "the broker may write in managed tenant namespaces only".to_owned(),
            ),
        )],
        namespaces: unmanaged_namespaces(parameters),
    }
}

/// CEL: whether the namespace has a name that the broker gives to personal workspaces, or that of a
/// home and the object a name that the broker gives there. Other programs, too, have namespaces
/// `tenant-*`.
fn has_name_of_broker(parameters: &Parameters) -> String {
    if parameters.tenants.enabled {
        format!(
            "(request.namespace.matches({}) || request.namespace.startsWith(\"tenant-\") && \
             ({OBJECT_NAME} == request.namespace + \"-{TENANT_OWNER_ROLE}\" || \
             {OBJECT_NAME}.matches({})))",
            quoted(TENANT_NAMESPACE_PATTERN),
            quoted(MEMBER_PATTERN)
        )
    } else {
        format!("request.namespace.matches({})", quoted(TENANT_NAMESPACE_PATTERN))
    }
}

/// CEL: the alternative that a RoleBinding is one that the broker made for a tenant. An administrator
/// removed the label of its namespace. Nobody else gives a RoleBinding this label
/// (`tenant-guard-labels`).
fn or_is_own_binding(parameters: &Parameters) -> String {
    if !parameters.tenants.enabled {
        return String::new();
    }
    let tenant = label("oldObject", TENANT_LABEL);
    format!(
        " || {IS_BINDING} && {tenant} != \"\" && oldObject.metadata.name == \"tenant-\" + {tenant} + \
         \"-\" + oldObject.roleRef.name"
    )
}

/// CEL: whether the object has the name of a ServiceAccount of the broker.
fn is_own_account(parameters: &Parameters) -> String {
    let personal = format!("{OBJECT_NAME} == {}", quoted(SERVICE_ACCOUNT_NAME));
    if parameters.tenants.enabled {
        format!("({personal} || {OBJECT_NAME}.matches({}))", quoted(MEMBER_PATTERN))
    } else {
        personal
    }
}

#[cfg(test)]
mod tests;
