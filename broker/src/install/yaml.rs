//! The objects as YAML with the reasons as comments, for a person to read and `kubectl apply`.

use std::fmt::Write as _;

use serde::Serialize;

use super::{
    INSTALLED_BY_LABEL, INSTALLED_BY_VALUE, Parameters, ROLE_NAME, quoted, quoted_list, role,
};
use crate::config::BrokerUser;

const RBAC: &str = "rbac.authorization.k8s.io";
/// Width of comments.
const WIDTH: usize = 98;

/// Everything that `install` makes.
pub fn manifest(parameters: &Parameters) -> String {
    let policies = parameters.policies();
    let mut yaml = String::from(
        "# What the tenant broker needs in the cluster. Apply it as an administrator:\n\
         #   tenant-broker install | kubectl apply --server-side -f -\n\
         #\n\
         # The policies come first: the broker has no rights before it is fenced in.\n---\n",
    );
    for policy in &policies {
        comment(&mut yaml, policy.why);
        document(&mut yaml, &policy.policy());
        yaml.push_str("---\n");
        document(&mut yaml, &policy.binding());
        yaml.push_str("---\n");
    }
    if let BrokerUser::ServiceAccount { namespace, name } = &parameters.broker {
        comment(&mut yaml, "Who the broker is. Its namespace is for you to make.");
        let _ = write!(
            yaml,
            "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {}\n  namespace: {}\n  \
             labels:\n    {INSTALLED_BY_LABEL}: {INSTALLED_BY_VALUE}\n---\n",
            quoted(name),
            quoted(namespace)
        );
    }
    cluster_role(&mut yaml, &role::rules(parameters, &parameters.policy_names()));
    yaml.push_str("---\n");
    cluster_role_binding(&mut yaml, &parameters.broker);
    yaml
}

fn comment(yaml: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(yaml, "{line}");
            "#".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(yaml, "{line}");
}

fn document(yaml: &mut String, object: &impl Serialize) {
    // These types hold text, lists and maps with text as keys: nothing that YAML has not.
    yaml.push_str(&serde_norway::to_string(object).unwrap_or_default());
}

fn head(yaml: &mut String, kind: &str) {
    let _ = write!(
        yaml,
        "apiVersion: {RBAC}/v1\nkind: {kind}\nmetadata:\n  name: {ROLE_NAME}\n  labels:\n    \
         {INSTALLED_BY_LABEL}: {INSTALLED_BY_VALUE}\n"
    );
}

fn cluster_role(yaml: &mut String, rules: &[role::Rule<'_>]) {
    comment(yaml, "Rights of the tenant broker: the least that its workflows need.");
    head(yaml, "ClusterRole");
    yaml.push_str("rules:\n");
    for rule in rules {
        comment(yaml, rule.reason);
        // Writing to a String cannot fail.
        let _ = write!(
            yaml,
            "- apiGroups: [{}]\n  resources: {}\n",
            quoted(rule.group),
            quoted_list(rule.resources)
        );
        if !rule.names.is_empty() {
            let _ = writeln!(yaml, "  resourceNames: {}", quoted_list(&rule.names));
        }
        let _ = writeln!(yaml, "  verbs: {}", quoted_list(rule.verbs));
    }
}

fn cluster_role_binding(yaml: &mut String, broker: &BrokerUser) {
    head(yaml, "ClusterRoleBinding");
    let _ = write!(
        yaml,
        "roleRef:\n  apiGroup: {RBAC}\n  kind: ClusterRole\n  name: {ROLE_NAME}\nsubjects:\n"
    );
    let _ = match broker {
        BrokerUser::User(name) => {
            write!(yaml, "- apiGroup: {RBAC}\n  kind: User\n  name: {}\n", quoted(name))
        }
        BrokerUser::ServiceAccount { namespace, name } => write!(
            yaml,
            "- kind: ServiceAccount\n  namespace: {}\n  name: {}\n",
            quoted(namespace),
            quoted(name)
        ),
    };
}
