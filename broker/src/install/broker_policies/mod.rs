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

use tenant_shared::{SERVICE_ACCOUNT_NAME, WORKSPACE_LABEL};

pub(super) use self::secrets::policy as secrets;
use super::{
    Parameters,
    cel::{
        OBJECT_NAME, RBAC, TENANT_NAMESPACE_PATTERN, TENANT_OBJECTS, WRITE_OPERATIONS, adds_no,
        broker_only,
    },
    network,
    policy::{Message, Namespaces, Policy, rule},
    quoted,
};

/// CEL: whether the request is for a RoleBinding.
const IS_BINDING: &str = "request.resource.resource == \"rolebindings\"";

pub(super) fn policies(parameters: &Parameters) -> Vec<Policy> {
    let mut policies = vec![namespaces::policy(parameters), objects::policy(parameters)];
    if parameters.bind_tokens {
        policies.push(secrets(parameters));
    }
    if !parameters.network_policy_tiers.is_empty() {
        policies.push(network::broker_policy(parameters));
    }
    policies.push(outside(parameters));
    policies
}

/// CEL: whether an update only removes finalizers of a RoleBinding or a ServiceAccount.
fn only_removes_finalizers() -> String {
    let unchanged = |field: &str| format!("object.?{field} == oldObject.?{field}");
    let metadata = ["labels", "annotations", "ownerReferences"]
        .map(|field| format!("object.metadata.?{field} == oldObject.metadata.?{field}"));
    let fields =
        ["roleRef", "subjects", "secrets", "imagePullSecrets", "automountServiceAccountToken"];
    let all: Vec<String> = std::iter::once(adds_no("finalizers"))
        .chain(metadata)
        .chain(fields.map(unchanged))
        .collect();
    all.join(" && ")
}

fn outside(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-broker-fence-outside",
        reason: "The broker may not write in namespaces that are not a tenant's. Where somebody \
                 removed the label of a namespace that has a tenant's name, the broker may revoke \
                 access but not grant it.",
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
                "request.operation != \"CREATE\" && request.namespace.matches({}) && \
                 ({IS_BINDING} || request.resource.resource == \"serviceaccounts\" && \
                 {OBJECT_NAME} == {}) && (request.operation == \"DELETE\" || ({}))",
                quoted(TENANT_NAMESPACE_PATTERN),
                quoted(SERVICE_ACCOUNT_NAME),
                only_removes_finalizers(),
            ),
            Message::Built(
                "\"the broker may not write in namespace \" + request.namespace + \": it is not a \
                 managed tenant namespace\""
                    .to_owned(),
                "the broker may write in managed tenant namespaces only".to_owned(),
            ),
        )],
        namespaces: Namespaces::Lacking(WORKSPACE_LABEL),
    }
}
