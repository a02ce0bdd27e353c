//! What holds everybody but the broker inside tenants' namespaces: it keeps a tenant's rights
//! revocable, and a suspended namespace still.
//!
//! The cluster's own controllers pass, and so does whoever could change these policies anyway.

use tenant_shared::{
    MANAGED_BY_LABEL, MANAGED_BY_VALUE, ROLE_BINDING_NAME, SERVICE_ACCOUNT_NAME, SUSPENDED_LABEL,
    TOKEN_SECRET_PREFIX,
};

use super::{
    Parameters,
    fence::{NAME, TENANT, WRITES, is_broker, label, writes_of_objects},
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
pub(super) const MANAGED: Namespaces = Namespaces::With(MANAGED_BY_LABEL, MANAGED_BY_VALUE);
/// Namespaces of workspaces that are suspended.
const SUSPENDED: Namespaces = Namespaces::Having(SUSPENDED_LABEL);

pub(super) fn policies(parameters: &Parameters) -> Vec<Policy> {
    vec![secrets(parameters), objects(parameters), namespaces(), suspended(parameters), pods()]
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
fn unless_administrator(expression: &str, message: &str) -> (String, Message) {
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
        ],
        namespaces: MANAGED,
    }
}

fn namespaces() -> Policy {
    Policy {
        name: "tenant-guard-namespaces",
        why: "The labels of a namespace decide over pod security and over these policies: no \
              account of a tenant may change them, whatever role a tier gives. Others of the \
              cluster's administrators may label namespaces as RBAC lets them.",
        rules: vec![rule("", &["namespaces", "namespaces/*"], &WRITES, "Cluster")],
        conditions: vec![(
            "is-tenant",
            format!("request.userInfo.username.matches({})", quoted(&tenant_account())),
        )],
        variables: administrator(),
        validations: vec![unless_administrator(
            &format!(
                "(request.operation == \"CREATE\" ? {new} : {old}) != {value} && \
                 !{NAME}.startsWith(\"tenant-\")",
                new = label("object", MANAGED_BY_LABEL),
                old = label("oldObject", MANAGED_BY_LABEL),
                value = quoted(MANAGED_BY_VALUE)
            ),
            "tenants' namespaces are made, labelled and deleted by the broker and administrators",
        )],
        namespaces: Namespaces::All,
    }
}

/// User names of the accounts in tenants' namespaces. The whole of the namespace's name counts: the
/// broker itself may be an account of a namespace `tenant-broker`.
fn tenant_account() -> String {
    format!("^system:serviceaccount:{}:", TENANT.trim_matches(['^', '$']))
}

fn suspended(parameters: &Parameters) -> Policy {
    let is_broker = is_broker(parameters);
    let gives = "request.?subResource.orValue(\"\") == \"token\" || (request.resource.resource in \
                 [\"rolebindings\", \"secrets\"] && request.operation != \"DELETE\")";
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

fn pods() -> Policy {
    Policy {
        name: "tenant-pods",
        why: "A pod with the session's account would carry a token of up to a year. For everybody, \
              because controllers make the pods of tenants.",
        rules: vec![rule("", &["pods"], &["CREATE"], "Namespaced")],
        conditions: vec![],
        variables: vec![],
        validations: vec![(
            format!(
                "object.spec.?serviceAccountName.orValue(\"\") != {}",
                quoted(SERVICE_ACCOUNT_NAME)
            ),
            Message::Fixed(format!(
                "a pod may not run as {SERVICE_ACCOUNT_NAME}: make a ServiceAccount for it"
            )),
        )],
        namespaces: MANAGED,
    }
}
