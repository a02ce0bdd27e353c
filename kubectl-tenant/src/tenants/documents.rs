//! The objects in a YAML file: its documents, and the items of lists.

use serde::Deserialize as _;
use serde_norway::{Deserializer, Value};

use crate::error::Error;

/// Maximum number of documents in a file.
const MAX_DOCUMENTS: usize = 1000;

/// An object and where it is in the file.
#[derive(Debug)]
pub(super) struct Object {
    /// For messages: `document 2`, `document 2, item 3`.
    pub(super) place: String,
    pub(super) value: Value,
}

/// Reads all objects of a file. `kubectl get -o yaml` prints several objects as a list.
pub(super) fn read(text: &str) -> Result<Vec<Object>, Error> {
    let mut objects = Vec::new();
    for (index, document) in Deserializer::from_str(text).enumerate() {
        let place = format!("document {}", index + 1);
        if index >= MAX_DOCUMENTS {
            return Err(Error::other(format!("there are more than {MAX_DOCUMENTS} documents"))
                .hint("split the file"));
        }
        let invalid = |error: serde_norway::Error| {
            // The position counts from the beginning of the file.
            let line = error.location().map(|at| format!(", line {}", at.line()));
            let line = line.unwrap_or_default();
            Error::other(format!("{place}{line} is not valid YAML: {error}"))
        };
        let mut value = Value::deserialize(document).map_err(invalid)?;
        value.apply_merge().map_err(invalid)?;
        match value {
            // An empty document, as after a `---` at the end.
            Value::Null => {}
            Value::Mapping(mut list) if list.contains_key("items") => {
                let items = list.remove("items");
                let Some(Value::Sequence(items)) = items else {
                    return Err(Error::other(format!("{place}: items is not a list")));
                };
                objects.extend(items.into_iter().enumerate().map(|(item, value)| Object {
                    place: format!("{place}, item {}", item + 1),
                    value,
                }));
            }
            value => objects.push(Object { place, value }),
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Vec<String> {
        read(text).unwrap().into_iter().map(|it| it.place).collect()
    }

    fn error(text: &str) -> String {
        read(text).unwrap_err().message
    }

    #[test]
    fn documents_and_items_of_lists_are_objects() {
        assert_eq!(places(""), [""; 0]);
        assert_eq!(places("---\n# nothing\n---\na: 1\n---\n"), ["document 2"]);
        assert_eq!(
            places("a: 1\n---\nkind: List\nitems:\n- a: 1\n- b: 2\n---\nc: 3\n"),
            ["document 1", "document 2, item 1", "document 2, item 2", "document 3"]
        );
        let merged = &read("a: &a {x: 1}\nb:\n  <<: *a\n  y: 2\n").unwrap()[0].value;
        assert_eq!(merged["b"]["x"], 1);
    }

    #[test]
    fn an_error_names_document_and_line() {
        let unbalanced = error("a: 1\n---\nb: [1\nc: 2\n");
        assert!(unbalanced.starts_with("document 2, line "), "{unbalanced}");
        let twice = error("a: 1\n---\nb: 1\nb: 2\n");
        assert!(twice.starts_with("document 2") && twice.contains("duplicate"), "{twice}");
        assert!(error("items: 1").contains("items is not a list"));
        let many = "---\na: 1\n".repeat(MAX_DOCUMENTS + 1);
        assert!(error(&many).contains("more than 1000 documents"));
        assert_eq!(places(&"---\na: 1\n".repeat(MAX_DOCUMENTS)).len(), MAX_DOCUMENTS);
    }
}
