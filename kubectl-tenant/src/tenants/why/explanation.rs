//! The output of `why`.

use serde::Serialize;
use serde_json::Value;
use tenant_shared::{NAME_PREFIX, TenantInfo, TenantRole};

use super::reason;
use crate::{cli::tenants::WhyArgs, tenants::list, terminal};

/// Resources of the API group of Kubernetes without a name (API reference, core/v1), and `*`.
const CORE_RESOURCES: [&str; 18] = [
    "*",
    "bindings",
    "componentstatuses",
    "configmaps",
    "endpoints",
    "events",
    "limitranges",
    "namespaces",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "serviceaccounts",
    "services",
];

/// Output of `why`.
#[derive(Serialize)]
pub(super) struct Explanation {
    namespace: String,
    tenant: String,
    verb: String,
    resource: String,
    group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subresource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    allowed: bool,
    /// Reason of the API server; may be empty.
    reason: String,
    /// The binding that allows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    binding: Option<String>,
    /// The role that it binds.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    /// Whether the binding is one that the broker makes for the Tenant.
    by_tenant: bool,
    /// The entries of the Tenant that give the role.
    given_by: Vec<String>,
    /// All ClusterRoles that the Tenant gives the person.
    roles: Vec<TenantRole>,
}

impl Explanation {
    /// Explains a request by the status of its `SelfSubjectAccessReview`.
    pub(super) fn new(options: &WhyArgs, tenant: TenantInfo, status: &Value) -> Self {
        let reason = status["reason"].as_str().unwrap_or_default();
        let allowed = status["allowed"] == true;
        let binding = if allowed { reason::parse(reason) } else { None };
        let role = binding.as_ref().and_then(|it| {
            // The broker has one binding for each ClusterRole, with a name that says which.
            let is_ours = it.kind == "RoleBinding"
                && it.role_kind == "ClusterRole"
                && it.name == format!("{NAME_PREFIX}{}-{}", tenant.name, it.role);
            is_ours.then_some(it.role.as_str())
        });
        let given = tenant.roles.iter().find(|it| Some(it.cluster_role.as_str()) == role);
        let target = options.target.clone();
        Self {
            namespace: options.namespace.clone(),
            verb: options.verb.clone(),
            resource: target.resource,
            group: target.group,
            subresource: options.subresource.clone(),
            name: target.name,
            allowed,
            reason: reason.to_owned(),
            by_tenant: role.is_some(),
            given_by: given.map(|it| it.given_by.clone()).unwrap_or_default(),
            binding: binding.as_ref().map(|it| format!("{} {}", it.kind, it.name)),
            role: binding.map(|it| format!("{} {}", it.role_kind, it.role)),
            tenant: tenant.name,
            roles: tenant.roles,
        }
    }

    /// Renders lines for a person.
    pub(super) fn text(&self) -> String {
        let answer = if self.allowed { "allowed" } else { "denied" };
        let mut text = format!("{answer}: {}\n", self.request());
        if !self.reason.is_empty() {
            text.extend(["The API server says: ", &terminal::sanitize(&self.reason), "\n"]);
        }
        text += &if self.allowed { self.why_allowed() } else { self.hint() };
        text
    }

    /// The request as in `kubectl auth can-i`.
    fn request(&self) -> String {
        let mut text = format!("{} {}", self.verb, self.resource);
        for (separator, part) in [
            (".", Some(&self.group).filter(|group| !group.is_empty())),
            ("/", self.name.as_ref()),
            (" --subresource=", self.subresource.as_ref()),
        ] {
            text.extend(part.map(|part| format!("{separator}{part}")));
        }
        terminal::sanitize(&format!("{text} in namespace {}", self.namespace))
    }

    fn why_allowed(&self) -> String {
        let (Some(binding), Some(role)) = (&self.binding, &self.role) else {
            return "The reason names no binding of the Tenant.\n".to_owned();
        };
        let (binding, role) = (terminal::sanitize(binding), terminal::sanitize(role));
        let tenant = terminal::sanitize(&self.tenant);
        if !self.by_tenant {
            return format!(
                "The {binding} is not one of tenant {tenant}: somebody else bound the {role}.\n"
            );
        }
        if self.given_by.is_empty() {
            return format!(
                "Tenant {tenant} does not give you the {role} any more, or the binding was just \
                 made: ask again in a moment.\n"
            );
        }
        let mut text = format!("Tenant {tenant} gives you the {role} by:\n");
        text.extend(self.given_by.iter().map(|it| format!("  {}\n", terminal::sanitize(it))));
        text
    }

    fn hint(&self) -> String {
        let tenant = terminal::sanitize(&self.tenant);
        let roles = if self.roles.is_empty() {
            format!("Tenant {tenant} gives you no role.\n")
        } else {
            format!("Tenant {tenant} gives you:\n{}", list::role_table(&self.roles))
        };
        let unknown = if self.group.is_empty() && !CORE_RESOURCES.contains(&&*self.resource) {
            let resource = terminal::sanitize(&self.resource);
            format!(
                "Kubernetes has no resource {resource} without an API group, so nobody has a right to \
                 it. Write the plural with its group, as deployments.apps (kubectl api-resources).\n"
            )
        } else {
            String::new()
        };
        format!(
            "{roles}None of that allows it. {unknown}Ask an owner of the tenant, or an administrator, \
             who can change the Tenant.\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{cli::options::OutputArgs, output};

    fn explain(target: &str, status: &Value) -> Explanation {
        let options = WhyArgs {
            verb: "get".to_owned(),
            target: target.parse().unwrap(),
            namespace: "solar-a".to_owned(),
            subresource: None,
            tenant: None,
            shown: OutputArgs { output: output::Format::Table },
        };
        let tenant = TenantInfo {
            name: "solar".to_owned(),
            api_group: "tenant-broker.io".to_owned(),
            state: "Active".to_owned(),
            is_owner: false,
            roles: vec![TenantRole {
                cluster_role: "view".to_owned(),
                given_by: vec!["additionalRoleBindings User joe".to_owned()],
            }],
            namespace_count: 1,
            namespace_quota: None,
            workspace: None,
            conditions: Vec::new(),
        };
        Explanation::new(&options, tenant, status)
    }

    #[test]
    fn an_allowed_request_names_the_entries_of_the_tenant() {
        let reason = "RBAC: allowed by RoleBinding \"tenant-solar-view/solar-a\" of ClusterRole \
                      \"view\" to ServiceAccount \"member-1/tenant-solar\"";
        let explained =
            explain("deployments.apps/web", &json!({"allowed": true, "reason": reason}));
        assert!(explained.by_tenant);
        assert_eq!(
            explained.text(),
            format!(
                "allowed: get deployments.apps/web in namespace solar-a\nThe API server says: \
                 {reason}\nTenant solar gives you the ClusterRole view by:\n  \
                 additionalRoleBindings User joe\n"
            )
        );
    }

    #[test]
    fn a_binding_of_somebody_else_is_not_explained_by_the_tenant() {
        for binding in [
            "RoleBinding \"mine/solar-a\" of ClusterRole \"view\"",
            "RoleBinding \"tenant-solar-view/solar-a\" of Role \"view\"",
            "ClusterRoleBinding \"tenant-solar-view\" of ClusterRole \"view\"",
        ] {
            let reason = format!("RBAC: allowed by {binding} to User \"joe\"");
            let explained = explain("pods", &json!({"allowed": true, "reason": reason}));
            assert!(!explained.by_tenant && explained.given_by.is_empty(), "{binding}");
            assert!(explained.text().contains("somebody else bound"), "{}", explained.text());
        }
        let other = explain("namespaces", &json!({"allowed": true, "reason": "tenant-broker: x"}));
        assert!(other.text().contains("names no binding"), "{}", other.text());
    }

    #[test]
    fn a_denied_request_shows_what_the_person_has() {
        let text = explain("pods", &json!({"allowed": false})).text();
        assert!(text.starts_with("denied: get pods in namespace solar-a\n"), "{text}");
        for part in ["view   additionalRoleBindings User joe", "Ask an owner of the tenant"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("API server says") && !text.contains("no resource"), "{text}");
    }

    #[test]
    fn a_resource_that_does_not_exist_is_named() {
        for target in ["deployment", "deployments/web", "pod"] {
            let text = explain(target, &json!({"allowed": false})).text();
            assert!(text.contains("as deployments.apps (kubectl api-resources)"), "{text}");
        }
        let text = explain("deployments.apps", &json!({"allowed": false})).text();
        assert!(!text.contains("api-resources"), "{text}");
    }
}
