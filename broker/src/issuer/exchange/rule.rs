//! A rule: which machines may use which workspace.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::issuer::trust::path;

/// A rule of the operator. Every claim must be there with exactly this value; there are no
/// patterns, for `repo:acme/*` would let in `repo:acme/anything` that somebody may create later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The workspace: its identifier or its namespace.
    pub workspace: String,
    /// Paths of claims, and their values as text.
    pub claims: BTreeMap<String, String>,
}

impl Rule {
    /// Whether these claims are what the rule asks for. A rule that asks for nothing fits nobody.
    pub(super) fn fits(&self, claims: &Map<String, Value>) -> bool {
        !self.claims.is_empty()
            && self.claims.iter().all(|(name, expected)| is(path::at(claims, name), expected))
    }
}

/// Whether a claim is this text, number or truth value. Lists and objects are nothing of these.
fn is(claim: Option<&Value>, expected: &str) -> bool {
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

    fn fits(rule: &[(&str, &str)], claims: &Value) -> bool {
        let claims_of_rule =
            rule.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let rule = Rule { workspace: "tenant-x".to_owned(), claims: claims_of_rule };
        rule.fits(claims.as_object().unwrap())
    }

    #[test]
    fn every_claim_must_be_exactly_that() {
        let claims = json!({
            "repository": "acme/app", "ref": "refs/heads/main", "run": 7, "protected": true,
            "list": ["acme/app"], "kubernetes.io": { "serviceaccount": { "name": "builder" } },
        });
        assert!(fits(&[("repository", "acme/app"), ("ref", "refs/heads/main")], &claims));
        assert!(fits(&[("run", "7"), ("protected", "true")], &claims));
        assert!(fits(&[("kubernetes.io.serviceaccount.name", "builder")], &claims));
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
            assert!(!fits(rule, &claims), "{rule:?}");
        }
    }

    proptest! {
        #[test]
        fn only_the_same_text_fits(expected in ".{0,10}", sent in ".{0,10}") {
            prop_assert_eq!(fits(&[("sub", &expected)], &json!({ "sub": sent })), expected == sent);
        }
    }
}
