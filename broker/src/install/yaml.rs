//! The manifest: all objects as YAML for `kubectl apply`, with the reasons as comments.

use std::fmt::Write as _;

use serde::Serialize;

use super::{
    INSTALLED_BY_LABEL, INSTALLED_BY_VALUE, Parameters, ROLE_NAME, direct_namespaces,
    permission::Rule, quoted, quoted_list, role, tenant_role,
};
use crate::cluster::{KubernetesUser, RBAC};

/// Width of comments in characters.
const COMMENT_WIDTH: usize = 98;

/// The manifest with all objects.
pub fn manifest(parameters: &Parameters) -> String {
    let mut policies = parameters.policies();
    policies.extend(parameters.unverified_policies());
    let mut yaml = String::from(
        "# Objects of the tenant broker in the cluster. Apply them as an administrator:\n\
         #   tenant-broker install | kubectl apply --server-side -f -\n\
         #\n\
         # The policies come first, so that they restrict the broker before it gets its permissions.\n---\n",
    );
    for policy in &policies {
        comment(&mut yaml, policy.reason);
        document(&mut yaml, &policy.policy());
        yaml.push_str("---\n");
        for binding in policy.bindings() {
            document(&mut yaml, &binding);
            yaml.push_str("---\n");
        }
    }
    explained(&mut yaml, direct_namespaces::mutation(parameters));
    if let KubernetesUser::ServiceAccount { namespace, name } = &parameters.broker {
        comment(&mut yaml, "The ServiceAccount of the broker. Create its namespace yourself.");
        let _ = write!(
            yaml,
            "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {}\n  namespace: {}\n  \
             labels:\n    {INSTALLED_BY_LABEL}: {INSTALLED_BY_VALUE}\n---\n",
            quoted(name),
            quoted(namespace)
        );
    }
    for (reason, role) in tenant_role::cluster_roles(parameters) {
        comment(&mut yaml, reason);
        document(&mut yaml, &role);
        yaml.push_str("---\n");
    }
    cluster_role(&mut yaml, &role::rules(parameters, parameters.policy_names()));
    yaml.push_str("---\n");
    cluster_role_binding(&mut yaml, &parameters.broker);
    for (reason, object) in direct_namespaces::provisioner(parameters) {
        yaml.push_str("---\n");
        comment(&mut yaml, reason);
        document(&mut yaml, &object);
    }
    yaml
}

/// Adds objects with their purposes, each followed by a separator.
fn explained(yaml: &mut String, objects: Vec<direct_namespaces::Explained>) {
    for (reason, object) in objects {
        comment(yaml, reason);
        document(yaml, &object);
        yaml.push_str("---\n");
    }
}

/// Adds a text as comment lines.
pub(super) fn comment(yaml: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > COMMENT_WIDTH {
            let _ = writeln!(yaml, "{line}");
            "#".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(yaml, "{line}");
}

/// Adds an object.
pub(super) fn document(yaml: &mut String, object: &impl Serialize) {
    // Cannot fail: these objects contain only plain values, lists and maps with text keys.
    yaml.push_str(&serde_norway::to_string(object).unwrap_or_default());
}

fn head(yaml: &mut String, kind: &str) {
    let _ = write!(
        yaml,
        "apiVersion: {RBAC}/v1\nkind: {kind}\nmetadata:\n  name: {ROLE_NAME}\n  labels:\n    \
         {INSTALLED_BY_LABEL}: {INSTALLED_BY_VALUE}\n"
    );
}

fn cluster_role(yaml: &mut String, rules: &[Rule]) {
    comment(yaml, "Permissions of the tenant broker: the minimum that its workflows need.");
    head(yaml, "ClusterRole");
    yaml.push_str("rules:\n");
    for rule in rules {
        comment(yaml, rule.reason);
        // Writing to a String cannot fail.
        let _ = write!(
            yaml,
            "- apiGroups: [{}]\n  resources: {}\n",
            quoted(rule.group),
            quoted_list(&rule.resources)
        );
        if !rule.names.is_empty() {
            let _ = writeln!(yaml, "  resourceNames: {}", quoted_list(&rule.names));
        }
        let _ = writeln!(yaml, "  verbs: {}", quoted_list(rule.verbs));
    }
}

fn cluster_role_binding(yaml: &mut String, broker: &KubernetesUser) {
    head(yaml, "ClusterRoleBinding");
    let _ = write!(
        yaml,
        "roleRef:\n  apiGroup: {RBAC}\n  kind: ClusterRole\n  name: {ROLE_NAME}\nsubjects:\n"
    );
    let _ = match broker {
        KubernetesUser::User(name) => {
            write!(yaml, "- apiGroup: {RBAC}\n  kind: User\n  name: {}\n", quoted(name))
        }
        KubernetesUser::ServiceAccount { namespace, name } => write!(
            yaml,
            "- kind: ServiceAccount\n  namespace: {}\n  name: {}\n",
            quoted(namespace),
            quoted(name)
        ),
    };
}
