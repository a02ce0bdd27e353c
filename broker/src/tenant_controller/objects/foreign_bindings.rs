//! RoleBindings that others made under names of the broker, or that make somebody an owner: they do
//! not have the label of the tenant, so lists by that label do not find them.
//!
//! The policies let administrators alone write them. A run reads those in the namespaces of its
//! tenant, and then treats them as the objects that it lists.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::{api::rbac::v1::RoleBinding, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use uuid::Uuid;

use super::{
    snapshot::{Snapshot, is_binding_name},
    withdraw::is_binding_of,
};
use crate::{
    cluster::{ClusterError, Object, WatchEvent},
    tenant::{TenantName, home_name, owner_binding_name, tenant_of_home},
    tenant_controller::TenantController,
};

/// Prefix of the names of all RoleBindings that the broker makes for tenants.
const PREFIX: &str = "tenant-";
/// RoleBindings that are kept at most. Namespaces that are no tenant's may have any number of them.
const MAX_KEPT: usize = 10_000;
/// RoleBindings that a run reads at most. The next one reads others, because these are gone then.
const MAX_READ: usize = 100;

/// Namespace and name.
type Key = (String, String);

/// The names of RoleBindings that may be foreign, as the watch passes them.
#[derive(Debug, Default)]
pub(in crate::tenant_controller) struct ForeignBindings(Mutex<ForeignBindingNames>);

/// The names, and those of a list that is under way.
#[derive(Debug, Default)]
struct ForeignBindingNames {
    bindings: BTreeSet<Key>,
    /// Bindings of a list that is not complete.
    list: Option<BTreeSet<Key>>,
    /// Whether the log says that some are left out.
    is_logged: bool,
}

impl ForeignBindings {
    /// Takes an event over. Returns the namespace of a RoleBinding that may be foreign. Once
    /// [`MAX_KEPT`] are kept, only those in namespaces for which `is_tenants` holds are.
    pub(in crate::tenant_controller) fn apply_event<'a>(
        &self,
        event: &'a WatchEvent<ObjectMeta>,
        is_tenants: impl Fn(&str) -> bool,
    ) -> Option<&'a str> {
        let mut kept = self.lock();
        match event {
            WatchEvent::Init => kept.list = Some(BTreeSet::new()),
            WatchEvent::InitDone => kept.bindings = kept.list.take().unwrap_or_default(),
            WatchEvent::Apply(binding) if may_be_foreign(binding) => {
                let ForeignBindingNames { bindings, list, is_logged } = &mut *kept;
                for all in [Some(bindings), list.as_mut()].into_iter().flatten() {
                    if !insert(all, key(binding), &is_tenants) && !*is_logged {
                        *is_logged = true;
                        tracing::warn!(
                            "too many RoleBindings named tenant-* that the broker did not make; \
                             those outside of tenants' namespaces are left out"
                        );
                    }
                }
                return binding.namespace.as_deref();
            }
            WatchEvent::Apply(binding) | WatchEvent::Delete(binding) => {
                kept.bindings.remove(&key(binding));
            }
        }
        None
    }

    /// Bindings in the namespaces and the home of a tenant that concern it by their name, or are in
    /// its home.
    fn of_tenant(&self, tenant: &TenantName, snapshot: &Snapshot) -> Vec<Key> {
        let home = home_name(tenant);
        let kept = self.lock();
        let concerns = |(namespace, name): &&Key| {
            snapshot.belongs_to(tenant, namespace)
                && (*namespace == home || is_binding_name(tenant, name))
        };
        kept.bindings.iter().filter(concerns).take(MAX_READ).cloned().collect()
    }

    /// No code panics while it has the lock.
    fn lock(&self) -> MutexGuard<'_, ForeignBindingNames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TenantController {
    /// The objects of a tenant, with RoleBindings that others made under its names or that make
    /// owners.
    ///
    /// # Errors
    /// A request failed.
    pub(in crate::tenant_controller) async fn snapshot(
        &self,
        tenant: &TenantName,
    ) -> Result<Snapshot, ClusterError> {
        let broker_bindings = |namespace: &str| self.broker_bindings(tenant, namespace);
        let mut snapshot = Snapshot::read(&self.cluster, tenant, broker_bindings).await?;
        for (namespace, name) in self.foreign_bindings.of_tenant(tenant, &snapshot) {
            let metadata =
                ObjectMeta { namespace: Some(namespace), name: Some(name), ..Default::default() };
            let named = RoleBinding { metadata, ..RoleBinding::default() };
            let live = self.cluster.get_object(&Object::RoleBinding(Box::new(named))).await?;
            snapshot.extend(live.filter(|live| is_binding_of(tenant, live)));
        }
        Ok(snapshot)
    }
}

/// Whether a RoleBinding may be foreign: whose tenant it is in, the watch does not say.
fn may_be_foreign(binding: &ObjectMeta) -> bool {
    let name = binding.name.as_deref().unwrap_or_default();
    let namespace = binding.namespace.as_deref().unwrap_or_default();
    let tenant = TenantName::of_object(binding);
    if let Some(home) = tenant_of_home(namespace) {
        let is_own = name == owner_binding_name(&home) && tenant == Some(home);
        return !is_own;
    }
    let is_personal = namespace.strip_prefix(PREFIX).is_some_and(|id| Uuid::try_parse(id).is_ok());
    let is_labelled = tenant.is_some_and(|tenant| is_binding_name(&tenant, name));
    name.starts_with(PREFIX) && !is_labelled && !is_personal
}

/// Keeps a RoleBinding. Without a place, those outside of tenants' namespaces give way to one in such
/// a namespace. Returns false if one is left out.
fn insert(all: &mut BTreeSet<Key>, key: Key, is_tenants: impl Fn(&str) -> bool) -> bool {
    if all.len() < MAX_KEPT || all.contains(&key) {
        all.insert(key);
        return true;
    }
    if is_tenants(&key.0) {
        all.retain(|(namespace, _)| is_tenants(namespace));
        if all.len() < MAX_KEPT {
            all.insert(key);
        }
    }
    false
}

fn key(binding: &ObjectMeta) -> Key {
    (binding.namespace.clone().unwrap_or_default(), binding.name.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenant_shared::{HOME_LABEL, TENANT_LABEL, WORKSPACE_LABEL};

    use super::*;

    fn binding(namespace: &str, name: &str, tenant: Option<&str>) -> ObjectMeta {
        let labels = tenant.map(|tenant| json!({TENANT_LABEL: tenant}));
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        serde_json::from_value(metadata).unwrap()
    }

    #[test]
    fn bindings_under_names_of_the_broker_without_its_label_may_be_foreign() {
        let person = format!("tenant-{}", Uuid::from_u128(7));
        for (namespace, name, tenant, expected) in [
            ("solar-a", "tenant-solar-view", None, true),
            ("solar-a", "tenant-solar-view", Some("solar"), false),
            ("solar-a", "tenant-solar-view", Some("lunar"), true),
            ("solar-a", "own", None, false),
            ("tenant-solar", "tenant-solar-tenant-owner", Some("solar"), false),
            ("tenant-solar", "tenant-solar-tenant-owner", None, true),
            ("tenant-solar", "tenant-solar-view", Some("solar"), true),
            ("tenant-solar", "own", Some("solar"), true),
            ("tenant-solar", "own", None, true),
            (person.as_str(), "tenant-solar-view", None, false),
        ] {
            let metadata = binding(namespace, name, tenant);
            assert_eq!(may_be_foreign(&metadata), expected, "{metadata:?}");
        }
    }

    #[test]
    fn bindings_in_namespaces_of_tenants_are_kept_when_there_are_too_many() {
        let key = |namespace: &str, number: usize| (namespace.to_owned(), number.to_string());
        let is_tenants = |namespace: &str| namespace == "solar-a";
        let mut all: BTreeSet<Key> = (1..MAX_KEPT).map(|number| key("other", number)).collect();
        assert!(insert(&mut all, key("solar-a", 0), is_tenants));
        assert!(insert(&mut all, key("solar-a", 0), is_tenants), "it is kept already");
        assert!(!insert(&mut all, key("other", 0), is_tenants));
        assert_eq!(all.len(), MAX_KEPT);
        assert!(!insert(&mut all, key("solar-a", 1), is_tenants));
        assert_eq!(all, [key("solar-a", 0), key("solar-a", 1)].into());
    }

    #[test]
    fn a_list_replaces_what_was_known_before_it() {
        let (foreign, solar) = (ForeignBindings::default(), "solar".parse().unwrap());
        let namespace = |name: &str, labels: serde_json::Value| {
            let namespace = json!({"metadata": {"name": name, "labels": labels}});
            Object::Namespace(serde_json::from_value(namespace).unwrap())
        };
        let labels = json!({TENANT_LABEL: "solar"});
        let home = json!({TENANT_LABEL: "solar", HOME_LABEL: "true"});
        let person = json!({TENANT_LABEL: "solar", WORKSPACE_LABEL: "x"});
        let snapshot = Snapshot::new([
            namespace("solar-a", labels.clone()),
            namespace("solar-p", person),
            namespace("tenant-solar", home),
        ]);
        let of = || -> Vec<String> {
            let all = foreign.of_tenant(&solar, &snapshot);
            all.into_iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect()
        };
        let apply = |event| foreign.apply_event(&event, |_| true).map(str::to_owned);
        let view = |namespace| binding(namespace, "tenant-solar-view", None);
        assert_eq!(apply(WatchEvent::Apply(view("solar-a"))), Some("solar-a".to_owned()));
        for other in [view("solar-p"), view("other"), binding("solar-a", "tenant-x", None)] {
            apply(WatchEvent::Apply(other));
        }
        assert_eq!(of(), ["solar-a/tenant-solar-view"]);
        apply(WatchEvent::Apply(binding("solar-a", "tenant-solar-view", Some("solar"))));
        assert_eq!(of(), Vec::<String>::new());
        apply(WatchEvent::Apply(view("solar-a")));
        apply(WatchEvent::Init);
        apply(WatchEvent::Apply(binding("tenant-solar", "own", None)));
        assert_eq!(of(), ["solar-a/tenant-solar-view", "tenant-solar/own"]);
        apply(WatchEvent::InitDone);
        assert_eq!(of(), ["tenant-solar/own"]);
        apply(WatchEvent::Delete(binding("tenant-solar", "own", None)));
        assert_eq!(of(), Vec::<String>::new());
        // Without its label a home is somebody else's namespace.
        apply(WatchEvent::Apply(binding("tenant-solar", "own", None)));
        let taken = Snapshot::new([namespace("tenant-solar", labels)]);
        assert_eq!(foreign.of_tenant(&solar, &taken), Vec::new());
    }
}
