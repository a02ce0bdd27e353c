//! The definitions of the kind `Tenant` as YAML, optional.

use serde_json::json;

use super::{
    INSTALLED_BY_LABEL, INSTALLED_BY_VALUE,
    yaml::{comment, document},
};
use crate::tenant::{ApiGroup, custom_resource_definition};

/// The definitions of Tenants in these API groups as YAML, to be appended to the manifest.
pub fn tenant_definitions(groups: &[ApiGroup]) -> String {
    let mut yaml = String::new();
    for group in groups {
        let mut definition = custom_resource_definition(*group);
        definition["metadata"]["labels"] = json!({INSTALLED_BY_LABEL: INSTALLED_BY_VALUE});
        yaml.push_str("---\n");
        comment(&mut yaml, reason(*group));
        document(&mut yaml, &definition);
    }
    yaml
}

fn reason(group: ApiGroup) -> &'static str {
    match group {
        ApiGroup::TenantBroker => "Tenants: owners, namespaces and roles (tenants.enabled).",
        ApiGroup::Capsule => {
            "The same kind in the API group of Capsule, so that files for it can be applied \
             unchanged (--capsule-api)."
        }
    }
}
