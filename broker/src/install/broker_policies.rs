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

use tenant_shared::{
    MANAGED_BY_LABEL, MANAGED_BY_VALUE, ROLE_BINDING_NAME, SERVICE_ACCOUNT_NAME, SUSPENDED_LABEL,
    TIER_LABEL, TOKEN_SECRET_PREFIX, WORKSPACE_LABEL,
};

use super::{
    Parameters,
    cel::{
        MANAGED_NAMESPACES, OBJECT_NAME, RBAC, TENANT_NAMESPACE_PATTERN, TENANT_OBJECTS,
        WRITE_OPERATIONS, adds_no, broker_only, fixed, label, object_write_rules,
        tenant_name_required,
    },
    network,
    policy::{Message, Namespaces, Policy, rule},
    quoted, quoted_list,
};
use crate::{
    cluster::SECRET_TYPE,
    workspace::{LIMITS_NAME, QUOTA_NAME},
};

const IS_BINDING: &str = "request.resource.resource == \"rolebindings\"";
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";
const POD_SECURITY_WARN: &str = "pod-security.kubernetes.io/warn";

pub(super) fn policies(parameters: &Parameters) -> Vec<Policy> {
    let mut policies = vec![namespaces(parameters), objects(parameters)];
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

fn namespaces(parameters: &Parameters) -> Policy {
    let allowed_labels = [
        MANAGED_BY_LABEL,
        WORKSPACE_LABEL,
        TIER_LABEL,
        POD_SECURITY,
        POD_SECURITY_WARN,
        // Set by the API server.
        "kubernetes.io/metadata.name",
    ];
    let empty = |field: &str| format!("object.metadata.?{field}.orValue([]).size() == 0");
    let suspended = quoted(SUSPENDED_LABEL);
    let unchanged = |field: &str, empty: &str| {
        format!(
            "object.metadata.?{field}.orValue({empty}) == oldObject.metadata.?{field}.orValue({empty})"
        )
    };
    let same_labels = |one: &str, other: &str| {
        format!(
            "{one}.metadata.?labels.orValue({{}}).all(k, k == {suspended} || (k in \
             {other}.metadata.?labels.orValue({{}}) && {other}.metadata.labels[k] == \
             {one}.metadata.labels[k]))"
        )
    };
    Policy {
        name: "tenant-broker-fence-namespaces",
        reason: "The broker creates tenants' namespaces and labels them as suspended. It may not \
                 adopt, change or delete other namespaces, nor weaken what its own enforce.",
        rules: vec![rule("", &["namespaces", "namespaces/*"], &WRITE_OPERATIONS, "Cluster")],
        conditions: broker_only(parameters),
        variables: vec![],
        validations: vec![
            (
                "request.operation != \"DELETE\"".to_owned(),
                fixed("the broker may not delete namespaces: that is for an administrator"),
            ),
            (
                "request.?subResource.orValue(\"\") == \"\"".to_owned(),
                fixed("the broker may not write a namespace's status or finalizers"),
            ),
            (
                format!(
                    "request.operation != \"CREATE\" || (object.metadata.name.matches({}) && {} == \
                     {} && {} != \"\" && {} != \"\" && {} in {})",
                    quoted(TENANT_NAMESPACE_PATTERN),
                    label("object", MANAGED_BY_LABEL),
                    quoted(MANAGED_BY_VALUE),
                    label("object", WORKSPACE_LABEL),
                    label("object", TIER_LABEL),
                    label("object", POD_SECURITY),
                    quoted_list(&parameters.pod_security),
                ),
                Message::Fixed(format!(
                    "the broker may make namespaces tenant-<uuid> only, with the labels \
                     {MANAGED_BY_LABEL}={MANAGED_BY_VALUE}, {WORKSPACE_LABEL}, {TIER_LABEL} and \
                     {POD_SECURITY} of a tier"
                )),
            ),
            (
                format!(
                    "request.operation != \"CREATE\" || (object.metadata.labels.all(k, k in {}) && \
                     object.metadata.?annotations.orValue({{}}).size() == 0 && {} && {} && \
                     object.?spec.finalizers.orValue([]).all(f, f == \"kubernetes\"))",
                    quoted_list(&allowed_labels),
                    empty("finalizers"),
                    empty("ownerReferences"),
                ),
                Message::Built(
                    format!(
                        "\"the broker may make plain namespaces only: no annotations, finalizers and \
                         owners, and no other labels than \" + {}.join(\", \")",
                        quoted_list(&allowed_labels)
                    ),
                    "the broker may make plain namespaces only".to_owned(),
                ),
            ),
            (
                format!(
                    "request.operation != \"UPDATE\" || (oldObject.metadata.name.matches({}) && {} \
                     && {} && {} && {} && {} && {} && object.spec == oldObject.spec)",
                    quoted(TENANT_NAMESPACE_PATTERN),
                    format_args!("{} != \"\"", label("oldObject", WORKSPACE_LABEL)),
                    same_labels("object", "oldObject"),
                    same_labels("oldObject", "object"),
                    unchanged("annotations", "{}"),
                    unchanged("finalizers", "[]"),
                    unchanged("ownerReferences", "[]"),
                ),
                Message::Fixed(format!(
                    "the broker may change nothing of a namespace but the label {SUSPENDED_LABEL} \
                     of a managed one"
                )),
            ),
        ],
        namespaces: Namespaces::All,
    }
}

fn objects(parameters: &Parameters) -> Policy {
    let creates = "request.operation == \"CREATE\"";
    let binds_well = |what: String| format!("!({IS_BINDING} && {creates}) || ({what})");
    Policy {
        name: "tenant-broker-fence-objects",
        reason: "Accounts, quotas and limits: the broker may write its own, in tenants' \
                 namespaces. There it may bind a tier's role to the tenant's own account, and \
                 delete bindings of anybody, together with the finalizers that block the deletion.",
        rules: object_write_rules(),
        conditions: broker_only(parameters),
        variables: vec![],
        validations: vec![
            tenant_name_required(),
            (
                format!(
                    "{IS_BINDING} ? !({creates}) || {OBJECT_NAME} == {} : {OBJECT_NAME} in {}",
                    quoted(ROLE_BINDING_NAME),
                    quoted_list(&[SERVICE_ACCOUNT_NAME, QUOTA_NAME, LIMITS_NAME])
                ),
                Message::Built(
                    format!(
                        "\"the broker may not write \" + request.resource.resource + \" \" + \
                         {OBJECT_NAME}"
                    ),
                    "the broker may write its own objects only".to_owned(),
                ),
            ),
            (
                format!(
                    "request.operation != \"UPDATE\" || (request.resource.resource in {} && {})",
                    quoted_list(&["rolebindings", "serviceaccounts"]),
                    only_removes_finalizers()
                ),
                fixed(
                    "the broker may change nothing of what is there: it may take finalizers off \
                     RoleBindings and its ServiceAccount",
                ),
            ),
            (
                format!(
                    "!({creates}) || ({} && {})",
                    adds_no("finalizers"),
                    adds_no("ownerReferences")
                ),
                fixed("the broker makes nothing with finalizers or owners"),
            ),
            (
                binds_well(format!(
                    "object.roleRef.kind == \"ClusterRole\" && object.roleRef.name in {}",
                    quoted_list(&parameters.roles)
                )),
                Message::Fixed(format!(
                    "the broker may bind the ClusterRoles of tiers only: {}",
                    parameters.roles.join(", ")
                )),
            ),
            (
                binds_well(format!(
                    "object.?subjects.orValue([]).size() == 1 && object.subjects.all(s, s.kind \
                     == \"ServiceAccount\" && s.name == {} && s.?namespace.orValue(\"\") == \
                     request.namespace)",
                    quoted(SERVICE_ACCOUNT_NAME)
                )),
                Message::Fixed(format!(
                    "the broker may bind {SERVICE_ACCOUNT_NAME} of the same namespace only"
                )),
            ),
        ],
        namespaces: MANAGED_NAMESPACES,
    }
}

/// The policy for Secrets, installed only where the broker may write them; elsewhere RBAC refuses
/// that. It applies to all namespaces, so that the other policies are the same with the permission
/// and without.
pub(super) fn secrets(parameters: &Parameters) -> Policy {
    let none =
        |field: &str, empty: &str| format!("variables.secret.{field}.orValue({empty}).size() == 0");
    let only_create = |expression: &str| format!("request.operation != \"CREATE\" || {expression}");
    let labels = format!(
        "{} == {} && {} != \"\" && {} == {}",
        label("variables.secret", MANAGED_BY_LABEL),
        quoted(MANAGED_BY_VALUE),
        label("variables.secret", WORKSPACE_LABEL),
        label("variables.secret", WORKSPACE_LABEL),
        label("namespaceObject", WORKSPACE_LABEL),
    );
    Policy {
        name: "tenant-broker-fence-secrets",
        reason: "The broker creates empty Secrets that tokens are bound to, and may delete only \
                 these. With the RBAC permission alone it could create one that is filled with a \
                 token that never expires, or delete Secrets of others.",
        rules: vec![rule("", &["secrets"], &WRITE_OPERATIONS, "Namespaced")],
        conditions: broker_only(parameters),
        variables: vec![(
            "secret",
            "request.operation == \"DELETE\" ? oldObject : object".to_owned(),
        )],
        validations: vec![
            (
                format!(
                    "request.namespace.matches({}) && {} != \"\"",
                    quoted(TENANT_NAMESPACE_PATTERN),
                    label("namespaceObject", WORKSPACE_LABEL),
                ),
                fixed("the broker may write Secrets in managed tenant namespaces only"),
            ),
            (
                "request.operation != \"UPDATE\"".to_owned(),
                fixed("the broker may not change Secrets"),
            ),
            (
                format!(
                    "variables.secret.metadata.name.startsWith({})",
                    quoted(TOKEN_SECRET_PREFIX)
                ),
                Message::Fixed(format!(
                    "the broker may write Secrets with names {TOKEN_SECRET_PREFIX}* only"
                )),
            ),
            (
                format!(
                    "variables.secret.?type.orValue(\"\") == {} && {}",
                    quoted(SECRET_TYPE),
                    none("?data", "{}")
                ),
                Message::Fixed(format!(
                    "the broker may write empty Secrets of type {SECRET_TYPE} only"
                )),
            ),
            (
                labels,
                Message::Fixed(format!(
                    "the broker may write Secrets with the labels {MANAGED_BY_LABEL} and \
                     {WORKSPACE_LABEL} of their namespace only"
                )),
            ),
            (
                only_create(&format!(
                    "(variables.secret.?immutable.orValue(false) && {} && {})",
                    none("metadata.?finalizers", "[]"),
                    none("metadata.?ownerReferences", "[]")
                )),
                fixed("the broker's Secrets are immutable, and nothing holds them or owns them"),
            ),
        ],
        namespaces: Namespaces::All,
    }
}
