//! The broker's rights in the cluster, as code: what `tenant-broker install` prints.
//!
//! Each rule is here because a workflow needs it; the reason is printed with it. RBAC alone cannot
//! keep the identity inside the tenants' namespaces (it has no rule for name prefixes of what is
//! created); the admission policies that can are a later step.

use std::fmt::Write as _;

use tenant_shared::SERVICE_ACCOUNT_NAME;

/// Name of the ClusterRole and of its binding.
pub const ROLE_NAME: &str = "tenant-broker";

/// One rule of the ClusterRole.
struct Rule<'a> {
    reason: &'a str,
    group: &'a str,
    resources: &'a [&'a str],
    names: &'a [&'a str],
    verbs: &'a [&'a str],
}

const RBAC: &str = "rbac.authorization.k8s.io";

fn rules<'a>(tier_roles: &'a [&'a str]) -> Vec<Rule<'a>> {
    let rule =
        |reason, group, resources, names, verbs| Rule { reason, group, resources, names, verbs };
    vec![
        rule(
            "make a tenant's namespace; read it back to see that it is ours",
            "",
            &["namespaces"],
            &[],
            &["create", "get", "list"],
        ),
        rule(
            "make and verify what limits and carries a tenant",
            "",
            &["serviceaccounts", "resourcequotas", "limitranges"],
            &[],
            &["create", "get", "list"],
        ),
        rule(
            "make and verify the binding; list what is left of bindings during a suspension",
            RBAC,
            &["rolebindings"],
            &[],
            &["create", "get", "list"],
        ),
        rule(
            "bind the tiers' roles without holding their rights (bind instead of escalate)",
            RBAC,
            &["clusterroles"],
            tier_roles,
            &["bind"],
        ),
        rule(
            "TokenRequest, for this one ServiceAccount name only",
            "",
            &["serviceaccounts/token"],
            &[SERVICE_ACCOUNT_NAME],
            &["create"],
        ),
        rule(
            "suspend and resume: the label tenant-broker.io/suspended",
            "",
            &["namespaces"],
            &[],
            &["patch"],
        ),
        rule(
            "suspend: no binding of the tenant may be left, whoever made it",
            RBAC,
            &["rolebindings"],
            &[],
            &["delete", "deletecollection"],
        ),
        rule(
            "suspend: a new ServiceAccount on resume keeps old tokens dead",
            "",
            &["serviceaccounts"],
            &[SERVICE_ACCOUNT_NAME],
            &["delete"],
        ),
    ]
}

/// Who the broker is to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A user, for example the common name of a client certificate.
    User(String),
    /// A ServiceAccount, for a broker that runs in the cluster.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// The ClusterRole and its binding to the broker's identity, as YAML for `kubectl apply -f -`.
/// `tier_roles` are the ClusterRoles that tiers give.
pub fn manifest(subject: &Subject, tier_roles: &[&str]) -> String {
    let mut yaml = format!(
        "# Rights of the tenant broker: the least that its workflows need.\n\
         # Apply with: tenant-broker install | kubectl apply -f -\n\
         apiVersion: {RBAC}/v1\nkind: ClusterRole\nmetadata:\n  name: {ROLE_NAME}\n  labels:\n    \
         app.kubernetes.io/managed-by: tenant-broker-install\nrules:\n"
    );
    for rule in rules(tier_roles) {
        // Writing to a String cannot fail.
        let _ = write!(
            yaml,
            "# {}\n- apiGroups: [{:?}]\n  resources: {}\n",
            rule.reason,
            rule.group,
            flow(rule.resources)
        );
        if !rule.names.is_empty() {
            let _ = writeln!(yaml, "  resourceNames: {}", flow(rule.names));
        }
        let _ = writeln!(yaml, "  verbs: {}", flow(rule.verbs));
    }
    let subject = match subject {
        Subject::User(name) => {
            format!("- apiGroup: {RBAC}\n  kind: User\n  name: {}\n", quoted(name))
        }
        Subject::ServiceAccount { namespace, name } => format!(
            "- kind: ServiceAccount\n  namespace: {}\n  name: {}\n",
            quoted(namespace),
            quoted(name)
        ),
    };
    let _ = write!(
        yaml,
        "---\napiVersion: {RBAC}/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: {ROLE_NAME}\n  \
         labels:\n    app.kubernetes.io/managed-by: tenant-broker-install\nroleRef:\n  apiGroup: \
         {RBAC}\n  kind: ClusterRole\n  name: {ROLE_NAME}\nsubjects:\n{subject}"
    );
    yaml
}

fn flow(items: &[&str]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
    format!("[{}]", items.join(", "))
}

/// A double-quoted YAML scalar; JSON strings are valid ones.
fn quoted(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_reads_what_is_prohibited_and_none_is_wild() {
        for rule in rules(&["admin"]) {
            for resource in rule.resources {
                assert!(!["secrets", "pods", "deployments", "*"].contains(resource));
            }
            assert!(!rule.verbs.contains(&"*") && !rule.verbs.contains(&"impersonate"));
            assert_ne!(rule.group, "*");
        }
    }

    #[test]
    fn a_hostile_name_stays_a_name() {
        let yaml = manifest(&Subject::User("x\"\n- kind: Group".into()), &["admin"]);
        for document in serde_norway::Deserializer::from_str(&yaml) {
            let value = <serde_norway::Value as serde::Deserialize>::deserialize(document).unwrap();
            if let Some(subjects) = value.get("subjects") {
                assert_eq!(subjects.as_sequence().unwrap().len(), 1);
            }
        }
    }

    #[test]
    fn the_manifest() {
        insta::assert_snapshot!(manifest(&Subject::User("tenant-broker".into()), &["admin"]));
    }
}
