//! How many objects a page of a list has at most.

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Resource;

/// Objects of most kinds.
const MOST: u32 = 500;
/// RoleBindings, full or as metadata: a tenant may make each as large as the API server accepts,
/// 1.5 MiB, by labels alone, and a page is in memory as a whole.
pub(super) const ROLE_BINDINGS: u32 = 50;
/// RoleBindings of the watch of all namespaces.
pub(super) const WATCHED_ROLE_BINDINGS: u32 = 20;

/// Objects of a kind in a page of a list.
pub(super) fn listed<K: Resource<DynamicType = ()>>() -> u32 {
    if is_role_binding::<K>() { ROLE_BINDINGS } else { MOST }
}

/// Objects of a kind in a page of the list with which a watch begins.
pub(super) fn watched<K: Resource<DynamicType = ()>>() -> u32 {
    if is_role_binding::<K>() { WATCHED_ROLE_BINDINGS } else { MOST }
}

fn is_role_binding<K: Resource<DynamicType = ()>>() -> bool {
    K::kind(&()) == RoleBinding::kind(&()) && K::group(&()) == RoleBinding::group(&())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use kube::core::PartialObjectMeta;

    use super::*;

    #[test]
    fn pages_of_objects_that_tenants_may_make_large_are_small() {
        assert_eq!((listed::<RoleBinding>(), watched::<RoleBinding>()), (50, 20));
        let metadata = watched::<PartialObjectMeta<RoleBinding>>();
        assert_eq!(metadata, WATCHED_ROLE_BINDINGS);
        assert_eq!((listed::<Namespace>(), watched::<Namespace>()), (MOST, MOST));
    }
}
