//! Claim paths: lookup of nested claims.

use serde_json::{Map, Value};

/// The value at a path of keys separated by dots. Keys may contain dots themselves
/// (`kubernetes.io`), so every way to split the path is tried; a path that matches in two ways
/// gives nothing.
pub(in crate::issuer) fn lookup<'a>(
    claims: &'a Map<String, Value>,
    path: &str,
) -> Option<&'a Value> {
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

    fn at(claims: &Value, path: &str) -> Option<Value> {
        lookup(claims.as_object().unwrap(), path).cloned()
    }

    #[test]
    fn keys_with_dots_are_resolved() {
        let claims = json!({
            "kubernetes.io": { "serviceaccount": { "name": "builder" }, "pod.name": "p" },
            "sub": "s", "a": { "b": 1 }, "a.b": 2,
        });
        assert_eq!(at(&claims, "kubernetes.io.serviceaccount.name"), Some(json!("builder")));
        assert_eq!(at(&claims, "kubernetes.io.pod.name"), Some(json!("p")));
        assert_eq!(at(&claims, "sub"), Some(json!("s")));
        assert_eq!(at(&claims, "a.b"), None, "ambiguous");
        for path in ["", ".", "sub.", ".sub", "sub.x", "kubernetes", "kubernetes.io.x"] {
            assert_eq!(at(&claims, path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_causes_a_panic(path in "[a-c.ä]{0,12}") {
            let claims = json!({ "a": { "b": { "c": 1 }, "b.c": 2 }, "a.b": { "c": 3 }, "": 4 });
            let _ = at(&claims, &path);
        }
    }
}
