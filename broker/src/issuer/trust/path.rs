//! Naming a claim inside other claims.

use serde_json::{Map, Value};

/// The value at a path whose parts are divided by dots. Keys may have dots themselves
/// (`kubernetes.io`), so every way to read the path is tried; one that can be read in two ways
/// names nothing.
pub(in crate::issuer) fn at<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut found = Vec::new();
    collect(claims, path, &mut found);
    match found.as_slice() {
        [only] => Some(only),
        _ => None,
    }
}

fn collect<'a>(claims: &'a Map<String, Value>, path: &str, found: &mut Vec<&'a Value>) {
    found.extend(claims.get(path));
    for (dot, _) in path.match_indices('.') {
        let (key, rest) = (&path[..dot], &path[dot + 1..]);
        if let Some(Value::Object(inner)) = claims.get(key) {
            collect(inner, rest, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn look(claims: &Value, path: &str) -> Option<Value> {
        at(claims.as_object().unwrap(), path).cloned()
    }

    #[test]
    fn keys_with_dots_are_found() {
        let claims = json!({
            "kubernetes.io": { "serviceaccount": { "name": "builder" }, "pod.name": "p" },
            "sub": "s", "a": { "b": 1 }, "a.b": 2,
        });
        assert_eq!(look(&claims, "kubernetes.io.serviceaccount.name"), Some(json!("builder")));
        assert_eq!(look(&claims, "kubernetes.io.pod.name"), Some(json!("p")));
        assert_eq!(look(&claims, "sub"), Some(json!("s")));
        assert_eq!(look(&claims, "a.b"), None, "two readings");
        for path in ["", ".", "sub.", ".sub", "sub.x", "kubernetes", "kubernetes.io.x"] {
            assert_eq!(look(&claims, path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_breaks_it(path in "[a-c.ä]{0,12}") {
            let claims = json!({ "a": { "b": { "c": 1 }, "b.c": 2 }, "a.b": { "c": 3 }, "": 4 });
            let _ = look(&claims, &path);
        }
    }
}
