//! The fence around the broker's own identity: what a stolen credential of it cannot do.
//!
//! RBAC already refuses every resource that is not named here. The policies name just those that
//! the broker may write, so that writes of others cost the API server nothing.
//!
//! Every policy costs every write in the cluster that it is not for a thousandth of the API server's
//! time: kinds that can share one do.
//!
//! What a namespace is, selectors of the bindings decide: outside of managed ones, and in suspended
//! ones, a policy of its own refuses (`outside`, and [`super::guard`]'s for everybody); the others
//! need not look at the namespace again.

use k8s_openapi::api::admissionregistration::v1::NamedRuleWithOperations;
use tenant_shared::{
    MANAGED_BY_LABEL, MANAGED_BY_VALUE, ROLE_BINDING_NAME, SERVICE_ACCOUNT_NAME, SUSPENDED_LABEL,
    TIER_LABEL, TOKEN_SECRET_PREFIX, WORKSPACE_LABEL,
};

use super::{
    Parameters,
    guard::MANAGED,
    network,
    policy::{Message, Namespaces, Policy, rule},
    quoted, quoted_list,
};
use crate::{
    cluster::SECRET_TYPE,
    workspace::{LIMITS_NAME, QUOTA_NAME},
};

const RBAC: &str = "rbac.authorization.k8s.io";
const IS_BINDING: &str = "request.resource.resource == \"rolebindings\"";
pub(super) const WRITES: [&str; 3] = ["CREATE", "UPDATE", "DELETE"];
/// The name of what is written, as CEL.
pub(super) const NAME: &str =
    "(request.operation == \"DELETE\" ? oldObject : object).metadata.name";
/// The namespace of a user, `tenant-<uuid>`.
pub(super) const TENANT: &str =
    "^tenant-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
/// What limits and carries a tenant.
const OBJECTS: [&str; 3] = ["serviceaccounts", "resourcequotas", "limitranges"];
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";
const POD_SECURITY_WARN: &str = "pod-security.kubernetes.io/warn";

pub(super) fn policies(parameters: &Parameters) -> Vec<Policy> {
    let mut policies = vec![namespaces(parameters), objects(parameters)];
    if parameters.bind_tokens {
        policies.push(secrets(parameters));
    }
    if !parameters.network_policy_tiers.is_empty() {
        policies.push(network::fence(parameters));
    }
    policies.push(outside(parameters));
    policies
}

/// Whether the broker asks.
pub(super) fn is_broker(parameters: &Parameters) -> String {
    format!("request.userInfo.username == {}", quoted(&parameters.broker.to_string()))
}

fn brokers(parameters: &Parameters) -> Vec<(&'static str, String)> {
    vec![("is-broker", is_broker(parameters))]
}

pub(super) fn fixed(text: &str) -> Message {
    Message::Fixed(text.to_owned())
}

/// The value of a label of `object` as CEL; empty if it has none.
pub(super) fn label(object: &str, name: &str) -> String {
    format!("{object}.metadata.?labels[{}].orValue(\"\")", quoted(name))
}

/// Whether an update adds nothing to this list of `metadata`, or a new object has none of it.
pub(super) fn none_added(list: &str) -> String {
    format!(
        "object.metadata.?{list}.orValue([]).all(it, request.operation == \"UPDATE\" && it in \
         oldObject.metadata.?{list}.orValue([]))"
    )
}

/// Whether an update does nothing but take finalizers away from a RoleBinding or a ServiceAccount.
fn releases() -> String {
    let unchanged = |field: &str| format!("object.?{field} == oldObject.?{field}");
    let metadata = ["labels", "annotations", "ownerReferences"]
        .map(|field| format!("object.metadata.?{field} == oldObject.metadata.?{field}"));
    let fields =
        ["roleRef", "subjects", "secrets", "imagePullSecrets", "automountServiceAccountToken"];
    let all: Vec<String> = std::iter::once(none_added("finalizers"))
        .chain(metadata)
        .chain(fields.map(unchanged))
        .collect();
    all.join(" && ")
}

/// A managed namespace has a tenant's name. The label alone would be as good as whoever sets it.
pub(super) fn named() -> (String, Message) {
    (
        format!("request.namespace.matches({})", quoted(TENANT)),
        fixed("the broker may write in namespaces tenant-<uuid> only"),
    )
}

fn outside(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-broker-fence-outside",
        why: "The broker writes nothing in a namespace that is not a tenant's. Where somebody took the \
              label off a tenant's, which its name still tells, it takes rights away and gives none.",
        rules: vec![
            rule("", &[&["serviceaccounts/token"], &OBJECTS[..]].concat(), &WRITES, "Namespaced"),
            rule(RBAC, &["rolebindings"], &WRITES, "Namespaced"),
        ],
        conditions: brokers(parameters),
        variables: vec![],
        validations: vec![(
            format!(
                "request.operation != \"CREATE\" && request.namespace.matches({}) && \
                 ({IS_BINDING} || request.resource.resource == \"serviceaccounts\" && {NAME} == {}) \
                 && (request.operation == \"DELETE\" || ({}))",
                quoted(TENANT),
                quoted(SERVICE_ACCOUNT_NAME),
                releases(),
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
    let made = [
        MANAGED_BY_LABEL,
        WORKSPACE_LABEL,
        TIER_LABEL,
        POD_SECURITY,
        POD_SECURITY_WARN,
        // The API server's own.
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
        why: "The broker makes tenants' namespaces and marks them suspended. It adopts, changes \
              and deletes no other, and cannot weaken what its own enforce.",
        rules: vec![rule("", &["namespaces", "namespaces/*"], &WRITES, "Cluster")],
        conditions: brokers(parameters),
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
                    quoted(TENANT),
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
                    quoted_list(&made),
                    empty("finalizers"),
                    empty("ownerReferences"),
                ),
                Message::Built(
                    format!(
                        "\"the broker may make plain namespaces only: no annotations, finalizers and \
                         owners, and no other labels than \" + {}.join(\", \")",
                        quoted_list(&made)
                    ),
                    "the broker may make plain namespaces only".to_owned(),
                ),
            ),
            (
                format!(
                    "request.operation != \"UPDATE\" || (oldObject.metadata.name.matches({}) && {} \
                     && {} && {} && {} && {} && {} && object.spec == oldObject.spec)",
                    quoted(TENANT),
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

/// Writes of what limits and carries a tenant, and of bindings.
pub(super) fn writes_of_objects() -> Vec<NamedRuleWithOperations> {
    vec![
        rule("", &OBJECTS, &WRITES, "Namespaced"),
        rule(RBAC, &["rolebindings"], &WRITES, "Namespaced"),
    ]
}

fn objects(parameters: &Parameters) -> Policy {
    let creates = "request.operation == \"CREATE\"";
    let binds_well = |what: String| format!("!({IS_BINDING} && {creates}) || ({what})");
    Policy {
        name: "tenant-broker-fence-objects",
        why: "Accounts, quotas and limits: the broker's own, in tenants' namespaces. There it gives a \
              tier's role to the tenant's own account, and takes bindings away, whoever made them, with \
              the finalizers that hold them.",
        rules: writes_of_objects(),
        conditions: brokers(parameters),
        variables: vec![],
        validations: vec![
            named(),
            (
                format!(
                    "{IS_BINDING} ? !({creates}) || {NAME} == {} : {NAME} in {}",
                    quoted(ROLE_BINDING_NAME),
                    quoted_list(&[SERVICE_ACCOUNT_NAME, QUOTA_NAME, LIMITS_NAME])
                ),
                Message::Built(
                    format!(
                        "\"the broker may not write \" + request.resource.resource + \" \" + {NAME}"
                    ),
                    "the broker may write its own objects only".to_owned(),
                ),
            ),
            (
                format!(
                    "request.operation != \"UPDATE\" || (request.resource.resource in {} && {})",
                    quoted_list(&["rolebindings", "serviceaccounts"]),
                    releases()
                ),
                fixed(
                    "the broker may change nothing of what is there: it may take finalizers off \
                     RoleBindings and its ServiceAccount",
                ),
            ),
            (
                format!(
                    "!({creates}) || ({} && {})",
                    none_added("finalizers"),
                    none_added("ownerReferences")
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
        namespaces: MANAGED,
    }
}

/// Only where the broker may write Secrets: elsewhere RBAC refuses it all. It is for all namespaces, so
/// that the other policies are the same with the right and without.
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
        why: "The broker makes empty Secrets for tokens to be bound to, and deletes these and no \
              others: with the right alone it could make one that is filled with a token that \
              never ends, or delete what belongs to others.",
        rules: vec![rule("", &["secrets"], &WRITES, "Namespaced")],
        conditions: brokers(parameters),
        variables: vec![(
            "secret",
            "request.operation == \"DELETE\" ? oldObject : object".to_owned(),
        )],
        validations: vec![
            (
                format!(
                    "request.namespace.matches({}) && {} != \"\"",
                    quoted(TENANT),
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
