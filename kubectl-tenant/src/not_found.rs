//! Advice for a 404 of the broker's API, by the resource that the request's path names.

/// How the text of a broker without tenants begins.
const NO_TENANTS: &str = "this broker has no tenants";
/// How the text of a broker without this operation begins.
const NO_SUCH_PATH: &str = "no such path";

/// What the person can do about a 404; [`None`] if the broker's text has a command, or if the broker does
/// not have the feature. `path` may have a query.
pub(crate) fn hint(path: &str, detail: &str) -> Option<&'static str> {
    let has_command = detail.contains("`kubectl tenant ");
    if has_command || [NO_TENANTS, NO_SUCH_PATH].iter().any(|text| detail.starts_with(text)) {
        return None;
    }
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<&str> = path.strip_prefix("/api/v1/")?.split('/').collect();
    match segments.as_slice() {
        ["users", ..] => Some("list users: kubectl tenant users"),
        ["me", "sessions", ..] => Some("list your sessions: kubectl tenant sessions"),
        ["workspaces", _, "credentials", _] => {
            Some("list credentials: kubectl tenant credentials list --all")
        }
        ["workspaces", "lookup"] => {
            Some("list your workspaces: kubectl tenant workspaces; everybody's: with --all")
        }
        ["workspaces", ..] => Some("list your workspaces: kubectl tenant workspaces"),
        ["tenants", _, "moves", _] => {
            Some("list the namespaces of the cluster: kubectl get namespaces")
        }
        // The list itself is missing at a broker without tenants only.
        ["tenants", _, ..] => Some("list your tenants: kubectl tenant tenants"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_decides_on_the_hint() {
        let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        for (path, command) in [
            ("users/lookup?name=bob", Some("kubectl tenant users")),
            (&*format!("users/{id}/suspend"), Some("kubectl tenant users")),
            (&format!("me/sessions/{id}"), Some("kubectl tenant sessions")),
            ("workspaces/lookup?name=tenant-x", Some("kubectl tenant workspaces")),
            (&format!("workspaces/{id}/credentials"), Some("kubectl tenant workspaces")),
            (&format!("workspaces/{id}/credentials/abc"), Some("kubectl tenant credentials")),
            ("tenants/solar", Some("kubectl tenant tenants")),
            ("tenants/solar/namespaces", Some("kubectl tenant tenants")),
            ("tenants/solar/moves/nope", Some("kubectl get namespaces")),
            ("tenants", None),
            ("tenants?dry_run=false", None),
            ("me", None),
        ] {
            let hint = hint(&format!("/api/v1/{path}"), "there is none");
            match command {
                Some(command) => assert!(hint.unwrap().contains(command), "{path}: {hint:?}"),
                None => assert_eq!(hint, None, "{path}"),
            }
        }
        assert_eq!(hint("/oauth2/token", "there is none"), None);
    }

    #[test]
    fn a_text_that_says_what_to_do_has_no_hint() {
        for detail in [
            "there is no such tenant; `kubectl tenant tenants list` lists yours",
            "this broker has no tenants; an operator can switch them on (tenants.enabled)",
            "no such path; see the OpenAPI document",
        ] {
            assert_eq!(hint("/api/v1/tenants/solar", detail), None, "{detail}");
        }
    }
}
