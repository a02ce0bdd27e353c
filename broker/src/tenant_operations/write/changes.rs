//! Differences between two specifications of a Tenant, for people.

use serde_json::Value;

use super::truncated;

/// Changes that are named.
const MAX_CHANGES: usize = 20;
/// Characters of a value.
const MAX_VALUE_CHARS: usize = 60;

/// The changed fields with their values, such as `spec.namespaceOptions.quota: 3 -> 5`.
pub(super) fn changes(before: &Value, after: &Value) -> Vec<String> {
    let mut all = Vec::new();
    compare("spec", Some(before), Some(after), &mut all);
    let more = all.len().saturating_sub(MAX_CHANGES);
    if more > 0 {
        all.truncate(MAX_CHANGES - 1);
        all.push(format!("and {} more", more + 1));
    }
    all
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, all: &mut Vec<String>) {
    match (before, after) {
        (Some(before), Some(after)) if before == after => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            for key in before.keys().chain(after.keys().filter(|key| !before.contains_key(*key))) {
                compare(&format!("{path}.{key}"), before.get(key), after.get(key), all);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after)))
            if is_of_subjects(before) && is_of_subjects(after) =>
        {
            compare_subjects(path, before, after, all);
        }
        (before, after) => {
            all.push(format!("{path}: {} -> {}", value_text(before), value_text(after)));
        }
    }
}

/// Whether each item is named by a kind and a name, as owners are.
fn is_of_subjects(items: &[Value]) -> bool {
    items.iter().all(|item| item["kind"].is_string() && item["name"].is_string())
}

fn compare_subjects(path: &str, before: &[Value], after: &[Value], all: &mut Vec<String>) {
    let same = |one: &Value, other: &Value| {
        ["kind", "name", "namespace"].iter().all(|key| one[*key] == other[*key])
    };
    let find = |items: &[Value], wanted: &Value| items.iter().find(|it| same(it, wanted)).cloned();
    let added = after.iter().filter(|item| find(before, item).is_none());
    for item in before.iter().chain(added) {
        let (was, is) = (find(before, item), find(after, item));
        let name = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        let path = format!("{path}[{} {}]", name("kind"), name("name"));
        match (was, is) {
            (Some(was), Some(is)) => compare(&path, Some(&was), Some(&is), all),
            (None, Some(_)) => all.push(format!("{path}: added")),
            _ => all.push(format!("{path}: removed")),
        }
    }
}

fn value_text(value: Option<&Value>) -> String {
    let text = match value {
        None | Some(Value::Null) => return "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    truncated(text.chars(), MAX_VALUE_CHARS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn changes_name_fields_owners_and_values() {
        let before = json!({
            "owners": [{"kind": "User", "name": "joe", "clusterRoles": ["view"]},
                       {"kind": "User", "name": "ann"}],
            "namespaceOptions": {"quota": 3},
            "tier": "basic",
        });
        let after = json!({
            "owners": [{"kind": "User", "name": "joe", "clusterRoles": ["admin"]},
                       {"kind": "Group", "name": "dev"}],
            "namespaceOptions": {"quota": 5, "forceTenantPrefix": true},
        });
        let mut changed = changes(&before, &after);
        changed.sort();
        assert_eq!(
            changed,
            [
                "spec.namespaceOptions.forceTenantPrefix: none -> true",
                "spec.namespaceOptions.quota: 3 -> 5",
                "spec.owners[Group dev]: added",
                "spec.owners[User ann]: removed",
                r#"spec.owners[User joe].clusterRoles: ["view"] -> ["admin"]"#,
                "spec.tier: basic -> none",
            ]
        );
        assert!(changes(&before, &before).is_empty());
    }

    #[test]
    fn many_changes_and_long_values_are_cut() {
        let of = |count: usize| {
            let fields = (0..count).map(|it| (format!("f{it}"), json!("x".repeat(1000))));
            Value::Object(fields.collect::<Map<String, Value>>())
        };
        let all = changes(&json!({}), &of(100));
        assert_eq!(all.len(), MAX_CHANGES);
        assert_eq!(all.last().unwrap(), "and 81 more");
        assert!(all.iter().all(|it| it.chars().count() < 100), "{all:?}");
        assert_eq!(changes(&json!({}), &of(MAX_CHANGES)).last().unwrap().split(':').count(), 2);
    }

    proptest! {
        #[test]
        fn equal_specifications_have_no_changes_and_others_have_some(one in 0..4u8, other in 0..4u8) {
            let of = |number| json!({"owners": [{"kind": "User", "name": format!("u{number}")}]});
            prop_assert_eq!(changes(&of(one), &of(other)).is_empty(), one == other);
        }
    }
}
