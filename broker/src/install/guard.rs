//! What holds everybody but the broker inside tenants' namespaces: it keeps a tenant's rights
//! revocable, and a suspended namespace still.
//!
//! The cluster's own controllers pass, and so does whoever could change these policies anyway.

use tenant_shared::{
    LABEL_PREFIX, ROLE_BINDING_NAME, SERVICE_ACCOUNT_NAME, SUSPENDED_LABEL, TOKEN_SECRET_PREFIX,
    WORKSPACE_LABEL,
};

use super::{
    Parameters,
    fence::{NAME, TENANT, WRITES, is_broker, none_added, writes_of_objects},
    policy::{Message, Namespaces, Policy, rule},
    quoted, quoted_list,
};
use crate::workspace::{LIMITS_NAME, QUOTA_NAME};

/// Components of the control plane, by user.
const SYSTEM_USERS: [&str; 3] =
    ["system:kube-controller-manager", "system:kube-scheduler", "system:apiserver"];
/// Administrators of last resort, kubelets, controllers.
const SYSTEM_GROUPS: [&str; 3] =
    ["system:masters", "system:nodes", "system:serviceaccounts:kube-system"];
/// Namespaces that the broker made.
pub(super) const MANAGED: Namespaces = Namespaces::Having(WORKSPACE_LABEL);
/// Namespaces of workspaces that are suspended.
const SUSPENDED: Namespaces = Namespaces::Having(SUSPENDED_LABEL);

pub(super) fn policies(parameters: &Parameters) -> Vec<Policy> {
    vec![secrets(parameters), objects(parameters), namespaces(parameters), suspended(parameters)]
}

fn is_no_system(parameters: &Parameters) -> Vec<(&'static str, String)> {
    let broker = quoted(&parameters.broker.to_string());
    vec![("is-no-system", format!("!(request.userInfo.username == {broker} || {})", is_system()))]
}

/// Whether the cluster itself asks.
pub(super) fn is_system() -> String {
    format!(
        "request.userInfo.username in {} || request.userInfo.?groups.orValue([]).exists(g, g in {})",
        quoted_list(&SYSTEM_USERS),
        quoted_list(&SYSTEM_GROUPS)
    )
}

/// Asked only when something is about to be refused: it costs an authorization.
pub(super) fn administrator() -> Vec<(&'static str, String)> {
    vec![(
        "administrator",
        "authorizer.group(\"admissionregistration.k8s.io\")\
         .resource(\"validatingadmissionpolicies\").check(\"update\").allowed()"
            .to_owned(),
    )]
}

/// What must hold for everybody but administrators.
pub(super) fn unless_administrator(expression: &str, message: &str) -> (String, Message) {
    (format!("{expression} || variables.administrator"), Message::Fixed(message.to_owned()))
}

fn secrets(parameters: &Parameters) -> Policy {
    Policy {
        name: "tenant-guard-secrets",
        why: "A Secret of this type is filled with a token that never ends; the type cannot be \
              changed later. To the broker's own, tokens are bound: one that was changed the broker \
              could not delete any more, and the token would live on. A tenant may delete them, \
              which ends a token of its own.",
        rules: vec![rule("", &["secrets"], &["CREATE", "UPDATE"], "Namespaced")],
        conditions: is_no_system(parameters),
        variables: administrator(),
        validations: vec![
            unless_administrator(
                "request.operation != \"CREATE\" || object.?type.orValue(\"\") != \
                 \"kubernetes.io/service-account-token\"",
                "Secrets of type kubernetes.io/service-account-token are not allowed in a tenant's \
                 namespace: their tokens never end",
            ),
            unless_administrator(
                &format!("!object.metadata.name.startsWith({})", quoted(TOKEN_SECRET_PREFIX)),
                &format!("Secrets with names {TOKEN_SECRET_PREFIX}* belong to the broker"),
            ),
        ],
        namespaces: MANAGED,
    }
}

fn objects(parameters: &Parameters) -> Policy {
    let account = quoted(SERVICE_ACCOUNT_NAME);
    Policy {
        name: "tenant-guard-objects",
        why: "What limits and carries a tenant is the broker's, whatever role a tier gives. A tenant \
              gives rights to its own programs, not to people, other tenants or everybody: those \
              would outlive a suspension of theirs. A second binding of the session's account would \
              be a way around the broker's.",
        rules: writes_of_objects(),
        conditions: is_no_system(parameters),
        variables: administrator(),
        validations: vec![
            unless_administrator(
                &format!(
                    "!({NAME} in {})",
                    quoted_list(&[
                        SERVICE_ACCOUNT_NAME,
                        QUOTA_NAME,
                        LIMITS_NAME,
                        ROLE_BINDING_NAME
                    ])
                ),
                &format!(
                    "{SERVICE_ACCOUNT_NAME}, {QUOTA_NAME}, {LIMITS_NAME} and {ROLE_BINDING_NAME} \
                     belong to the broker"
                ),
            ),
            unless_administrator(
                &format!(
                    "request.resource.resource != \"rolebindings\" || request.operation == \
                     \"DELETE\" || object.?subjects.orValue([]).all(s, s.kind == \
                     \"ServiceAccount\" && s.?namespace.orValue(\"\") == request.namespace && \
                     s.name != {account})"
                ),
                &format!(
                    "a RoleBinding in a tenant's namespace may name ServiceAccounts of the same \
                     namespace only, and not {SERVICE_ACCOUNT_NAME}"
                ),
            ),
            unless_administrator(
                &format!("{UNBINDS_OR_OTHER} || {}", none_added("finalizers")),
                "a RoleBinding in a tenant's namespace may not have finalizers, because it grants its \
                 role until it is gone",
            ),
            // Operators of the cluster own what they make for a tenant; a tenant needs no such thing.
            unless_administrator(
                &format!(
                    "{UNBINDS_OR_OTHER} || !({}) || {}",
                    is_tenant(),
                    none_added("ownerReferences")
                ),
                "a tenant's RoleBinding may not have ownerReferences, because the owner's deletion \
                 would decide when it is gone",
            ),
        ],
        namespaces: MANAGED,
    }
}

/// What is no RoleBinding, or takes one away.
const UNBINDS_OR_OTHER: &str =
    "request.resource.resource != \"rolebindings\" || request.operation == \"DELETE\"";

fn namespaces(parameters: &Parameters) -> Policy {
    let ours = quoted(LABEL_PREFIX);
    let same = |one: &str, other: &str| {
        format!(
            "{one}.metadata.?labels.orValue({{}}).all(k, !k.startsWith({ours}) || (k in \
             {other}.metadata.?labels.orValue({{}}) && {other}.metadata.labels[k] == \
             {one}.metadata.labels[k]))"
        )
    };
    let managed = format!(
        "{}.?labels.orValue({{}}).exists(k, k == {})",
        "(request.operation == \"CREATE\" ? object : oldObject).metadata",
        quoted(WORKSPACE_LABEL)
    );
    Policy {
        name: "tenant-guard-namespaces",
        why: "The policies select tenants' namespaces by labels of tenant-broker.io, so nobody but the \
              broker and administrators of the policies may write these. The labels of a tenant's \
              namespace decide over pod security too: no account of a tenant may change any of them, \
              whatever role a tier gives. Others may write other labels as RBAC lets them.",
        rules: vec![rule("", &["namespaces", "namespaces/*"], &WRITES, "Cluster")],
        conditions: is_no_system(parameters),
        variables: administrator(),
        validations: vec![
            unless_administrator(
                &format!("!({}) || !({managed} || {NAME}.startsWith(\"tenant-\"))", is_tenant()),
                "tenants' namespaces are made, labelled and deleted by the broker and administrators",
            ),
            unless_administrator(
                &format!(
                    "request.operation == \"DELETE\" || (request.operation == \"CREATE\" ? \
                     object.metadata.?labels.orValue({{}}).all(k, !k.startsWith({ours})) : {} && {})",
                    same("object", "oldObject"),
                    same("oldObject", "object"),
                ),
                &format!(
                    "labels {LABEL_PREFIX}* of a namespace are written by the broker (kubectl tenant \
                     suspend) and by administrators of its policies only"
                ),
            ),
        ],
        namespaces: Namespaces::All,
    }
}

/// Whether an account of a tenant's namespace asks.
fn is_tenant() -> String {
    format!("request.userInfo.username.matches({})", quoted(&tenant_account()))
}

/// User names of the accounts in tenants' namespaces. The whole of the namespace's name counts: the
/// broker itself may be an account of a namespace `tenant-broker`.
pub(super) fn tenant_account() -> String {
    format!("^system:serviceaccount:{}:", TENANT.trim_matches(['^', '$']))
}

fn suspended(parameters: &Parameters) -> Policy {
    let is_broker = is_broker(parameters);
    let gives = "request.?subResource.orValue(\"\") == \"token\" || (request.resource.resource in \
                 [\"rolebindings\", \"secrets\"] && request.operation == \"CREATE\")";
    Policy {
        name: "tenant-suspended",
        why: "The write side of the kill switch: from the moment of the label nothing is written \
              or connected to (exec, attach, port-forward), so that a tenant that makes bindings in \
              a loop is out. Reads end with the bindings. Controllers go on. The broker takes rights \
              away and gives none before it has taken the label off.",
        // Of cluster-scoped objects a namespace selector skips none: this must not see them.
        rules: vec![rule("*", &["*/*"], &["*"], "Namespaced")],
        conditions: vec![("is-held", format!("{is_broker} ? {gives} : !({})", is_system()))],
        variables: administrator(),
        validations: vec![
            (
                format!("!({is_broker})"),
                Message::Fixed(
                    "the workspace is suspended: no tokens, and no rights are given".to_owned(),
                ),
            ),
            (
                format!("{is_broker} || variables.administrator"),
                Message::Fixed("the workspace is suspended".to_owned()),
            ),
        ],
        namespaces: SUSPENDED,
    }
}
