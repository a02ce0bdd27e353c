//! Parser of the reason with which the API server's RBAC allows a request. Its format is that of
//! `plugin/pkg/auth/authorizer/rbac` of Kubernetes:
//! `RBAC: allowed by RoleBinding "NAME/NAMESPACE" of ClusterRole "ROLE" to ServiceAccount "…"`.

/// The binding that allows a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AllowingBinding {
    /// `RoleBinding` or `ClusterRoleBinding`.
    pub(super) kind: String,
    /// Name of the binding.
    pub(super) name: String,
    /// `ClusterRole` or `Role`.
    pub(super) role_kind: String,
    /// Name of the role.
    pub(super) role: String,
}

/// Parses a reason; [`None`] if it is another authorizer's.
pub(super) fn parse(reason: &str) -> Option<AllowingBinding> {
    let (kind, rest) = reason.strip_prefix("RBAC: allowed by ")?.split_once(' ')?;
    let (binding, rest) = quoted(rest)?;
    let (role_kind, rest) = rest.strip_prefix(" of ")?.split_once(' ')?;
    let (role, _) = quoted(rest)?;
    let name = match kind {
        "RoleBinding" => binding.rsplit_once('/')?.0.to_owned(),
        "ClusterRoleBinding" => binding,
        _ => return None,
    };
    Some(AllowingBinding { kind: kind.to_owned(), name, role_kind: role_kind.to_owned(), role })
}

/// A text in quotes as Go's `%q` writes it, and what follows. Whoever may create a RoleBinding
/// chooses its name, which may contain quotes.
fn quoted(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut characters = inner.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, inner.get(at + 1..)?)),
            // Other escapes than those of quote and backslash are of characters that no tool uses.
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(reason: &str) -> Option<[String; 4]> {
        parse(reason).map(|it| [it.kind, it.name, it.role_kind, it.role])
    }

    #[test]
    fn the_binding_and_its_role_are_read() {
        let reason = "RBAC: allowed by RoleBinding \"tenant-solar-admin/solar-production\" of \
                      ClusterRole \"admin\" to ServiceAccount \"member-1/tenant-solar\"";
        let expected = ["RoleBinding", "tenant-solar-admin", "ClusterRole", "admin"];
        assert_eq!(parsed(reason).unwrap(), expected);
        let reason = "RBAC: allowed by ClusterRoleBinding \"a:b\" of ClusterRole \"c:d\" to Group \
                      \"system:authenticated\"";
        assert_eq!(parsed(reason).unwrap(), ["ClusterRoleBinding", "a:b", "ClusterRole", "c:d"]);
    }

    #[test]
    fn a_name_with_quotes_does_not_forge_another_role() {
        let reason = r#"RBAC: allowed by RoleBinding "x\" of ClusterRole \"admin/ns" of Role "view" to User "a""#;
        let expected = ["RoleBinding", "x\" of ClusterRole \"admin", "Role", "view"];
        assert_eq!(parsed(reason).unwrap(), expected);
    }

    #[test]
    fn other_reasons_have_no_binding() {
        for reason in [
            "",
            "tenant-broker: the gateway lists the namespaces that are yours",
            "RBAC: allowed by RoleBinding",
            "RBAC: allowed by RoleBinding \"a",
            "RBAC: allowed by RoleBinding \"a\" of ClusterRole \"b\" to User \"c\"",
            "RBAC: allowed by Something \"a/b\" of ClusterRole \"b\" to User \"c\"",
        ] {
            assert_eq!(parsed(reason), None, "{reason}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_reason_causes_a_panic(reason in "(RBAC: allowed by RoleBinding )?[ -~é]{0,60}") {
            let _ = parse(&reason);
        }
    }
}
