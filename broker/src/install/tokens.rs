//! Who gets a token in a tenant's namespace, and which: the broker's fence and the tenants' guard in
//! one policy, for this is the request that is made all the time.
//!
//! What a policy costs the API server is neither its expressions nor their number. Request, object
//! and namespace are turned into maps by reflection, once for the conditions, and once each for the
//! validations, their messages and the audit annotations. So one condition says whether anything is
//! wrong, and a request that is as it should be gets no further; the validations say what is wrong.
//! Both are made from the same list: what the condition lets through, no validation refuses.

use tenant_shared::{SERVICE_ACCOUNT_NAME, TOKEN_LIFETIME_SECONDS};

use super::{
    Parameters,
    fence::{fixed, is_broker, named},
    guard::{MANAGED, administrator, is_system},
    policy::{Message, Policy, rule},
    quoted, quoted_list,
};

pub(super) fn policy(parameters: &Parameters) -> Policy {
    let is_broker = is_broker(parameters);
    let brokers = brokers(parameters);
    let all: Vec<String> = brokers.iter().map(|(right, _)| format!("({right})")).collect();
    let mut validations = vec![(
        format!("{is_broker} || variables.administrator"),
        fixed(
            "tokens of a tenant's namespace come from the broker only, for two hours; programs use \
             the token that their pod is given",
        ),
    )];
    validations.extend(
        brokers.into_iter().map(|(right, told)| (format!("!({is_broker}) || ({right})"), told)),
    );
    Policy {
        name: "tenant-tokens",
        why: "A tenant with the role admin could ask for a token of its own that lives for years: \
              tokens come from the broker, and kubelets go on getting those of pods. RBAC limits the \
              broker's by name, not by length; the length asked for is no limit by itself either, \
              for a token of 3607 s that is bound to a pod lives a year.",
        rules: vec![rule("", &["serviceaccounts/token"], &["CREATE"], "Namespaced")],
        // One condition, for of several the API server evaluates all. An error in it refuses.
        conditions: vec![(
            "is-wrong",
            format!("!({is_broker} ? {} : {})", all.join(" && "), is_system()),
        )],
        variables: administrator(),
        validations,
        namespaces: MANAGED,
    }
}

/// What must hold of the broker's requests.
fn brokers(parameters: &Parameters) -> Vec<(String, Message)> {
    let account = quoted(SERVICE_ACCOUNT_NAME);
    let audiences = quoted_list(&parameters.audiences);
    vec![
        named(),
        (
            format!("request.name == {account}"),
            Message::Fixed(format!("the broker may ask for tokens of {SERVICE_ACCOUNT_NAME} only")),
        ),
        (
            format!("object.spec.expirationSeconds <= {TOKEN_LIFETIME_SECONDS}"),
            Message::Fixed(format!(
                "the broker may ask for tokens of at most {TOKEN_LIFETIME_SECONDS} s"
            )),
        ),
        (
            // The field is there as null if it was left out.
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
