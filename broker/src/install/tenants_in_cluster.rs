//! Definitions of Tenants in the cluster. `install` changes none of another program, deletes none
//! that has objects, and reports Tenants that break the rules.

use anyhow::{Context as _, bail};
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectList, PartialObjectMeta,
    },
};
use serde_json::Value;
use tenant_shared::{HOME_LABEL, NAME_PREFIX, WORKSPACE_LABEL};

use super::{
    Administrator, INSTALLED_BY_LABEL, INSTALLED_BY_VALUE,
    admin::{Report, is_definition, title},
};
use crate::tenant::{ApiGroup, Tenant, Violation};

/// Namespaces of one list request.
const NAMESPACE_PAGE_SIZE: u32 = 500;
/// Tenants of one list request; each may have 1.5 MiB.
const PAGE_SIZE: u32 = 20;
/// Lines about broken rules in a report.
const MAX_FAULT_LINES: usize = 50;
/// Characters of such a line.
const MAX_LINE_CHARS: usize = 300;

impl Administrator {
    /// Checks that the definitions of a manifest do not replace those of another program.
    ///
    /// # Errors
    /// A definition exists without the label of `install`, or the API server refuses.
    pub(super) async fn check_definitions(&self, objects: &[DynamicObject]) -> anyhow::Result<()> {
        for object in objects.iter().filter(|object| is_definition(object)) {
            let Some(existing) = self.get(object).await? else { continue };
            let made_by = existing.metadata.labels.unwrap_or_default();
            if made_by.get(INSTALLED_BY_LABEL).map(String::as_str) != Some(INSTALLED_BY_VALUE) {
                bail!(
                    "{} exists, and tenant-broker install did not make it: another program, such \
                     as Capsule, needs it as it is. Nothing was changed. Run this without \
                     --capsule-api, or delete the definition if nothing uses it, which deletes its \
                     objects, too",
                    title(object)
                );
            }
        }
        Ok(())
    }

    /// The line of the report on an object that stays although it is no longer wanted: a definition
    /// with objects, which the API server would delete with it.
    ///
    /// # Errors
    /// The API server refuses.
    pub(super) async fn reason_to_keep(
        &self,
        object: &DynamicObject,
    ) -> anyhow::Result<Option<String>> {
        if !is_definition(object) {
            return Ok(None);
        }
        let count = self.count_objects(object).await?;
        let name = object.metadata.name.as_deref().unwrap_or_default();
        Ok((count > 0).then(|| {
            format!(
                "{} stays, because deleting it would delete its objects, {count} in number. Delete \
                 them first (kubectl get {name})",
                title(object)
            )
        }))
    }

    /// A line for each rule of the definitions that a Tenant breaks. The API server checks a Tenant
    /// when it is written, so one that was written under another definition may break rules.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn report_tenants(
        &self,
        groups: &[ApiGroup],
        report: &mut Report<'_>,
    ) -> anyhow::Result<()> {
        let mut found = 0_usize;
        for group in groups {
            let kind = GroupVersionKind::gvk(group.name(), group.version(), "Tenant");
            let resource = ApiResource::from_gvk(&kind);
            let api: Api<DynamicObject> = Api::all_with(self.client(), &resource);
            let list = async |page: &ListParams| match api.list(page).await {
                // It is not served yet because it was just made, so it has no objects.
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                result => result.map(Some).context("cannot list the Tenants"),
            };
            let report_violations = |tenant: &DynamicObject| -> anyhow::Result<()> {
                let name = tenant.metadata.name.as_deref().unwrap_or_default();
                for violation in violations(name, tenant) {
                    found += 1;
                    if found <= MAX_FAULT_LINES {
                        report.line(&line(*group, name, &violation))?;
                    }
                }
                Ok(())
            };
            visit_pages(PAGE_SIZE, list, report_violations).await?;
        }
        if found > MAX_FAULT_LINES {
            let more = found - MAX_FAULT_LINES;
            report.line(&format!("Tenants break rules in {more} more fields"))?;
        }
        Ok(())
    }

    /// A line for each namespace with the name of a tenant's home that the broker did not make. The
    /// policies take a RoleBinding to the ClusterRole `tenant-owner` in it for ownership of that tenant.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn report_homes(&self, report: &mut Report<'_>) -> anyhow::Result<()> {
        let api: Api<Namespace> = Api::all(self.client());
        let mut found = 0_usize;
        let list = async |page: &ListParams| {
            api.list_metadata(page).await.map(Some).context("cannot list the namespaces")
        };
        let report_home = |namespace: &PartialObjectMeta<Namespace>| {
            let Some(name) = foreign_home(&namespace.metadata) else { return Ok(()) };
            found += 1;
            if found > MAX_FAULT_LINES {
                return Ok(());
            }
            report.line(&format!(
                "Namespace {name} has the name of a tenant's home, and the broker did not make it: a \
                 RoleBinding to tenant-owner in it makes owners, and a Tenant of that name cannot be \
                 carried out; move its contents, and delete it"
            ))
        };
        visit_pages(NAMESPACE_PAGE_SIZE, list, report_home).await?;
        if found > MAX_FAULT_LINES {
            let more = found - MAX_FAULT_LINES;
            report.line(&format!("{more} more namespaces have names of homes"))?;
        }
        Ok(())
    }

    /// How many objects a definition has.
    async fn count_objects(&self, definition: &DynamicObject) -> anyhow::Result<usize> {
        // A definition that the API server never accepted has none, and is not served.
        if !is_established(&definition.data) {
            return Ok(0);
        }
        let spec = &definition.data["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut versions = spec["versions"].as_array().into_iter().flatten();
        let served = versions.find(|version| version["served"] == true);
        let version = served.map(|version| text(&version["name"])).unwrap_or_default();
        let kind =
            GroupVersionKind::gvk(&text(&spec["group"]), &version, &text(&spec["names"]["kind"]));
        let resource = ApiResource::from_gvk_with_plural(&kind, &text(&spec["names"]["plural"]));
        let api: Api<DynamicObject> = Api::all_with(self.client(), &resource);
        let objects = api
            .list_metadata(&ListParams::default())
            .await
            .with_context(|| format!("cannot count the objects of {}", title(definition)))?;
        Ok(objects.items.len())
    }
}

/// Passes each object of a list to `visit`. `list` requests a page, and returns `None` if the API server
/// does not serve the kind.
///
/// # Errors
/// `list` or `visit` failed.
async fn visit_pages<K: Clone>(
    page_size: u32,
    list: impl AsyncFn(&ListParams) -> anyhow::Result<Option<ObjectList<K>>>,
    mut visit: impl FnMut(&K) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut page = ListParams::default().limit(page_size);
    while let Some(objects) = list(&page).await? {
        objects.items.iter().try_for_each(&mut visit)?;
        match objects.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    Ok(())
}

/// The name of a namespace that would be the home of a tenant, and is neither one nor that of a personal
/// workspace.
fn foreign_home(metadata: &ObjectMeta) -> Option<&str> {
    let has = |label: &str| metadata.labels.as_ref().is_some_and(|it| it.contains_key(label));
    let name = metadata.name.as_deref().filter(|name| name.starts_with(NAME_PREFIX))?;
    (!has(HOME_LABEL) && !has(WORKSPACE_LABEL)).then_some(name)
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

fn violations(name: &str, tenant: &DynamicObject) -> Vec<Violation> {
    Tenant::parse(name, &tenant.data["spec"]).err().unwrap_or_default()
}

/// The line of the report on a fault, which quotes texts of the object.
fn line(group: ApiGroup, name: &str, violation: &Violation) -> String {
    let line = format!("Tenant {name} ({}) breaks a rule: {violation}", group.name());
    line.chars().take(MAX_LINE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_the_name_of_a_home_needs_a_label_of_the_broker() {
        let found = |name: &str, label: Option<&str>| {
            let labels = label.map(|label| [(label.to_owned(), "x".to_owned())].into());
            let metadata =
                ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() };
            foreign_home(&metadata).is_some()
        };
        assert!(found("tenant-ops", None) && found("tenant-ops", Some("team")));
        assert!(!found("tenant-solar", Some(HOME_LABEL)));
        assert!(!found("tenant-a1", Some(WORKSPACE_LABEL)));
        assert!(!found("tenants", None) && !found("ops", None));
    }
}
