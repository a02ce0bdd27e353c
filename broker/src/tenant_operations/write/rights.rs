//! Rights that a change of a Tenant gives and takes away, for the audit trail.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Characters of all rights in one audit row.
const MAX_CHARS: usize = 8_000;

/// The rights that differ between two specifications, such as `User "joe" gets admin; Group "dev"
/// loses view`: of owners and of additional RoleBindings, with whole names. One that is too long is
/// cut, and ends with the SHA-256 of the new specification. Empty if the rights are equal.
pub(super) fn changed_rights(before: &Value, after: &Value) -> String {
    let (was, is) = (rights(before), rights(after));
    let gained = is.difference(&was).map(|(subject, role)| format!("{subject} gets {role}"));
    let lost = was.difference(&is).map(|(subject, role)| format!("{subject} loses {role}"));
    let all: Vec<String> = gained.chain(lost).collect();
    let text = all.join("; ");
    if text.chars().count() <= MAX_CHARS {
        return text;
    }
    let mut cut: String = text.chars().take(MAX_CHARS).collect();
    let digest = Sha256::digest(after.to_string().as_bytes());
    let _ = write!(cut, "…; {} changes of rights; SHA-256 of the specification: ", all.len());
    digest.iter().for_each(|byte| {
        let _ = write!(cut, "{byte:02x}");
    });
    cut
}

/// Each subject with each of its roles.
fn rights(spec: &Value) -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for owner in items(&spec["owners"]) {
        let roles = &owner["clusterRoles"];
        if roles.is_null() {
            all.insert((subject_text(owner), "the default roles of owners".to_owned()));
        }
        for role in items(roles) {
            all.insert((subject_text(owner), text(role)));
        }
    }
    for binding in items(&spec["additionalRoleBindings"]) {
        for subject in items(&binding["subjects"]) {
            all.insert((subject_text(subject), text(&binding["clusterRoleName"])));
        }
    }
    all
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Kind and name, and the namespace of a ServiceAccount.
fn subject_text(subject: &Value) -> String {
    let namespace = subject["namespace"].as_str();
    let namespace = namespace.map(|it| format!(" in {it:?}")).unwrap_or_default();
    let name = subject["name"].as_str().unwrap_or_default();
    format!("{} {name:?}{namespace}", text(&subject["kind"]))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_subject_is_named_with_what_it_gets_and_loses() {
        let before = json!({
            "owners": [{"kind": "User", "name": "joe", "clusterRoles": ["admin", "view"]}],
            "additionalRoleBindings": [
                {"clusterRoleName": "edit", "subjects": [{"kind": "User", "name": "ann"}]},
            ],
        });
        let after = json!({
            "owners": [
                {"kind": "User", "name": "joe", "clusterRoles": ["view"]},
                {"kind": "Group", "name": "dev"},
            ],
            "additionalRoleBindings": [
                {"clusterRoleName": "edit", "subjects": [
                    {"kind": "User", "name": "ann"},
                    {"kind": "ServiceAccount", "name": "ci", "namespace": "builds"},
                ]},
                {"clusterRoleName": "admin", "subjects": [{"kind": "User", "name": "mallory"}]},
            ],
        });
        assert_eq!(
            changed_rights(&before, &after),
            "Group \"dev\" gets the default roles of owners; \
             ServiceAccount \"ci\" in \"builds\" gets edit; User \"mallory\" gets admin; \
             User \"joe\" loses admin"
        );
        assert_eq!(changed_rights(&before, &before), "");
        assert!(changed_rights(&json!({}), &after).contains("User \"mallory\" gets admin"));
    }

    #[test]
    fn too_many_rights_end_with_a_hash() {
        let owner = |n: usize| json!({"kind": "User", "name": format!("{n}{}", "x".repeat(200))});
        let of = |count| json!({"owners": (0..count).map(owner).collect::<Vec<_>>()});
        let text = changed_rights(&json!({}), &of(100));
        assert!(text.contains("100 changes of rights; SHA-256 of the specification: "), "{text}");
        assert!(text.chars().count() < MAX_CHARS + 200);
        assert_ne!(
            text,
            changed_rights(&json!({}), &json!({"tier": "x", "owners": of(100)["owners"]}))
        );
    }

    #[test]
    fn odd_values_are_no_rights() {
        for spec in [json!(null), json!({"owners": 1}), json!({"owners": [1, {"clusterRoles": 2}]})]
        {
            let _ = changed_rights(&spec, &json!({"additionalRoleBindings": [null, {}]}));
        }
    }
}
