//! The admission policy for TokenRequests in tenants' namespaces (`tenant-tokens`). The rules for
//! the broker and for everybody else share one policy, because this is the most frequent request.
//!
//! The cost of a policy does not depend on its expressions. The API server converts request, object
//! and namespace to maps by reflection, once for the match conditions and once each for the
//! validations, their messages and the audit annotations. Therefore one match condition decides
//! whether anything is wrong, so that for an allowed request nothing else is evaluated; the
//! validations say what is wrong. Both are built from the same list, so no validation refuses what
//! the condition passes.

use tenant_shared::{MEMBER_PREFIX, SERVICE_ACCOUNT_NAME, TOKEN_LIFETIME_SECONDS};

use super::{
    Parameters,
    cel::{
        MEMBER_PATTERN, TENANT_NAMESPACE_PATTERN, administrator, fixed, is_broker, is_system,
        managed_namespaces, tenant_name_required,
    },
    policy::{Message, Policy, rule},
    quoted, quoted_list,
};

pub(super) fn policy(parameters: &Parameters) -> Policy {
    let is_broker = is_broker(parameters);
    let requirements = requirements(parameters);
    let all: Vec<String> =
        requirements.iter().map(|(expression, _)| format!("({expression})")).collect();
    let mut validations = vec![(
        format!("{is_broker} || variables.administrator"),
        fixed(
            "tokens of a tenant's namespace come from the broker only, for two hours; programs use \
             the token that their pod is given",
        ),
    )];
    validations.extend(
        requirements
            .into_iter()
            .map(|(expression, message)| (format!("!({is_broker}) || ({expression})"), message)),
    );
    Policy {
        name: "tenant-tokens",
        reason: "A tenant with the role admin could request tokens that live for years. Therefore \
                 only the broker gets tokens; kubelets still get those of pods. RBAC limits the \
                 broker's requests by name, not by lifetime. The requested lifetime alone is no \
                 limit either, because a token of 3607 s that is bound to a pod lives for a year.",
        rules: vec![rule("", &["serviceaccounts/token"], &["CREATE"], "Namespaced")],
        // One condition, because the API server evaluates all conditions. An error in it refuses.
        conditions: vec![(
            "is-wrong",
            format!("!({is_broker} ? {} : {})", all.join(" && "), is_system()),
        )],
        variables: administrator(),
        validations,
        namespaces: managed_namespaces(parameters),
    }
}

/// Requirements for the broker's requests: expression and message.
fn requirements(parameters: &Parameters) -> Vec<(String, Message)> {
    let audiences = quoted_list(&parameters.audiences);
    let [namespace, account] = requirements_of_account(parameters);
    vec![
        namespace,
        account,
        (
            format!("object.spec.expirationSeconds <= {TOKEN_LIFETIME_SECONDS}"),
            Message::Fixed(format!(
                "the broker may ask for tokens of at most {TOKEN_LIFETIME_SECONDS} s"
            )),
        ),
        (
            // The field is null if it was left out.
            "object.spec.?boundObjectRef.orValue(null) == null || \
             object.spec.boundObjectRef.kind == \"Secret\""
                .to_owned(),
            fixed("the broker's tokens may be bound to a Secret only"),
        ),
        (
            format!("object.spec.audiences == {audiences}"),
            Message::Built(
                format!(
                    "\"the broker's tokens are for the audience \" + {} + \" only \
                     (cluster.audiences), not \" + object.spec.audiences.join(\", \")",
                    quoted(&parameters.audiences.join(", "))
                ),
                "the broker's tokens are for the API server only (cluster.audiences)".to_owned(),
            ),
        ),
    ]
}

/// The requirements for the namespace and the name of the ServiceAccount. Match conditions do not
/// know the labels of the namespace; its name tells homes of tenants from personal workspaces.
fn requirements_of_account(parameters: &Parameters) -> [(String, Message); 2] {
    let personal = format!("request.name == {}", quoted(SERVICE_ACCOUNT_NAME));
    if !parameters.tenants.enabled {
        let message = format!("the broker may ask for tokens of {SERVICE_ACCOUNT_NAME} only");
        return [tenant_name_required(), (personal, Message::Fixed(message))];
    }
    [
        (
            "request.namespace.startsWith(\"tenant-\")".to_owned(),
            fixed("the broker may ask for tokens of workspaces and of homes of tenants only"),
        ),
        (
            format!(
                "request.namespace.matches({}) ? {personal} : request.name.matches({})",
                quoted(TENANT_NAMESPACE_PATTERN),
                quoted(MEMBER_PATTERN)
            ),
            Message::Fixed(format!(
                "the broker may ask for tokens of {SERVICE_ACCOUNT_NAME} in workspaces, and of \
                 {MEMBER_PREFIX}<uuid> in homes of tenants only"
            )),
        ),
    ]
}
