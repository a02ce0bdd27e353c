//! How many objects a page of a list has at most.

use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::Resource;

/// Objects of most kinds.
const MOST: u32 = 500;
/// RoleBindings, full or as metadata: a tenant may make each as large as the API server accepts,
/// 1.5 MiB, by labels alone, and a page is in memory as a whole. So are namespaces, whose annotations
/// have up to 256 KiB, and six times as much in JSON.
const LARGE_OBJECTS: u32 = 50;
/// The same of the watch of all namespaces.
const WATCHED_LARGE_OBJECTS: u32 = 20;

/// Objects of a kind in a page of a list.
pub(super) fn listed<K: Resource<DynamicType = ()>>() -> u32 {
    if may_be_large::<K>() { LARGE_OBJECTS } else { MOST }
}

/// Objects of a kind in a page of the list with which a watch begins.
pub(super) fn watched<K: Resource<DynamicType = ()>>() -> u32 {
    if may_be_large::<K>() { WATCHED_LARGE_OBJECTS } else { MOST }
}

fn may_be_large<K: Resource<DynamicType = ()>>() -> bool {
    is::<K, RoleBinding>() || is::<K, Namespace>()
}

/// Whether `K` is a kind, or its metadata.
fn is<K: Resource<DynamicType = ()>, L: Resource<DynamicType = ()>>() -> bool {
    K::kind(&()) == L::kind(&()) && K::group(&()) == L::group(&())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceQuota;
    use kube::core::PartialObjectMeta;

    use super::*;

    #[test]
    fn pages_of_objects_that_tenants_may_make_large_are_small() {
        assert_eq!((listed::<RoleBinding>(), watched::<RoleBinding>()), (50, 20));
        let metadata = watched::<PartialObjectMeta<RoleBinding>>();
        assert_eq!(metadata, WATCHED_LARGE_OBJECTS);
        assert_eq!(
            (listed::<Namespace>(), watched::<Namespace>()),
            (LARGE_OBJECTS, WATCHED_LARGE_OBJECTS)
        );
        assert_eq!((listed::<ResourceQuota>(), watched::<ResourceQuota>()), (MOST, MOST));
    }
}
