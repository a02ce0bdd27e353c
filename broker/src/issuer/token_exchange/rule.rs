//! Rules of token exchange: which machines may use which workspace.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::issuer::jwt::claim_path;

/// A rule of the operator. Every claim must be present with exactly this value; there are no
/// patterns, because `repo:acme/*` would admit `repo:acme/anything` that somebody creates later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The workspace: its identifier or its namespace.
    pub workspace: String,
    /// Expected values, as text, by claim path.
    pub claims: BTreeMap<String, String>,
}

impl Rule {
    /// Whether these claims satisfy the rule. A rule without claims matches nothing.
    pub(super) fn matches(&self, claims: &Map<String, Value>) -> bool {
        !self.claims.is_empty()
            && self
                .claims
                .iter()
                .all(|(name, expected)| equals(claim_path::lookup(claims, name), expected))
    }
}

/// Whether a claim is this text, number or boolean. Lists and objects never match.
fn equals(claim: Option<&Value>, expected: &str) -> bool {
    match claim {
        Some(Value::String(text)) => text == expected,
        Some(Value::Number(number)) => number.to_string() == expected,
        Some(Value::Bool(truth)) => expected == if *truth { "true" } else { "false" },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn matches(rule: &[(&str, &str)], claims: &Value) -> bool {
        let claims_of_rule =
            rule.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let rule = Rule { workspace: "tenant-x".to_owned(), claims: claims_of_rule };
        rule.matches(claims.as_object().unwrap())
    }

    #[test]
    fn every_claim_must_have_exactly_the_expected_value() {
        let claims = json!({
            "repository": "acme/app", "ref": "refs/heads/main", "run": 7, "protected": true,
            "list": ["acme/app"], "kubernetes.io": { "serviceaccount": { "name": "builder" } },
        });
        assert!(matches(&[("repository", "acme/app"), ("ref", "refs/heads/main")], &claims));
        assert!(matches(&[("run", "7"), ("protected", "true")], &claims));
        assert!(matches(&[("kubernetes.io.serviceaccount.name", "builder")], &claims));
        for rule in [
            &[][..],
            &[("repository", "acme/app"), ("ref", "refs/heads/other")],
            &[("repository", "acme/*")],
            &[("repository", "acme/ap")],
            &[("repository", "Acme/App")],
            &[("repository", "")],
            &[("missing", "")],
            &[("missing", "null")],
            &[("list", "acme/app")],
            &[("kubernetes.io", "builder")],
        ] {
            assert!(!matches(rule, &claims), "{rule:?}");
        }
    }

    proptest! {
        #[test]
        fn only_the_same_text_matches(expected in ".{0,10}", sent in ".{0,10}") {
            prop_assert_eq!(matches(&[("sub", &expected)], &json!({ "sub": sent })), expected == sent);
        }
    }
}
