//! The YAML text of a Tenant for kubectl and for people.

use serde_norway::Value;

use crate::{error::Error, output};

/// Texts that YAML 1.1, which kubectl reads, takes for a truth value if they have no quotes (YAML
/// type repository, `bool`), in lower case. YAML 1.2, which is written here, has fewer.
const TRUTH_VALUES: [&str; 6] = ["y", "n", "yes", "no", "on", "off"];

/// Renders an object as YAML. One with a text that kubectl would read as another type is rendered as
/// JSON, which is YAML and has quotes everywhere.
pub(super) fn render(object: &Value) -> Result<String, Error> {
    if has_ambiguous_text(object) { output::json(object) } else { output::yaml(object) }
}

fn has_ambiguous_text(value: &Value) -> bool {
    match value {
        Value::String(text) => is_ambiguous(text),
        Value::Sequence(items) => items.iter().any(has_ambiguous_text),
        Value::Mapping(fields) => {
            fields.iter().any(|(key, value)| has_ambiguous_text(key) || has_ambiguous_text(value))
        }
        _ => false,
    }
}

/// Whether a text without quotes means something else in YAML 1.1: truth values, and numbers with
/// `_` and `:` (YAML type repository, `int` and `float`).
fn is_ambiguous(text: &str) -> bool {
    let is_number = text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
        && text.contains(['_', ':'])
        && text.chars().all(|it| it.is_ascii_hexdigit() || "_:.+-xXoO".contains(it));
    is_number || TRUTH_VALUES.contains(&text.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_kubectl_would_read_as_another_type_have_quotes() {
        for text in ["yes", "No", "ON", "y", "1_000", "190:20:30", "-1_0", "0x_f"] {
            let object: Value = serde_norway::from_str(&format!("a: ['{text}']")).unwrap();
            let rendered = render(&object).unwrap();
            assert!(rendered.contains(&format!("\"{text}\"")), "{rendered}");
            assert_eq!(serde_norway::from_str::<Value>(&rendered).unwrap(), object);
        }
        for text in ["8Gi", "solar", "system:serviceaccount:a:b", "8", "1.5", "true", "a_b"] {
            let object: Value = serde_norway::from_str(&format!("a: ['{text}']")).unwrap();
            let rendered = render(&object).unwrap();
            assert!(rendered.starts_with("a:\n"), "{rendered}");
            assert_eq!(serde_norway::from_str::<Value>(&rendered).unwrap(), object);
        }
    }
}
