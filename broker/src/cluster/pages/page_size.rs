//! How many objects a page of a list has at most.

use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::Resource;

/// Objects of a page, from the usual page to the smallest.
const PAGE_SIZES: [u32; 4] = [500, 50, 5, 1];
/// Objects of a page, at least, after one that was too large and of which only the metadata were read:
/// smaller pages cost more requests than they save.
const MIN_BEFORE_METADATA: u32 = 50;
/// Pages that have to fit before the next one is larger. The number does not grow with the pages that do
/// not fit, because then a few large objects would keep the pages of all others small.
const MIN_FITTING_PAGES: u32 = 16;
/// Objects of most kinds in a page of the list with which a watch begins, which is not limited in bytes.
const WATCHED: u32 = 500;
/// The same of RoleBindings, full or as metadata: a tenant may make each as large as the API server
/// accepts, 1.5 MiB, by labels alone, and a page is in memory as a whole. So are namespaces, whose
/// annotations have up to 256 KiB, and six times as much in JSON.
const WATCHED_LARGE_OBJECTS: u32 = 20;

/// Objects of a kind in a page of the list with which a watch begins.
pub(in crate::cluster) fn watched<K: Resource<DynamicType = ()>>() -> u32 {
    if is::<K, RoleBinding>() || is::<K, Namespace>() { WATCHED_LARGE_OBJECTS } else { WATCHED }
}

/// Whether `K` is a kind, or its metadata.
fn is<K: Resource<DynamicType = ()>, L: Resource<DynamicType = ()>>() -> bool {
    K::kind(&()) == L::kind(&()) && K::group(&()) == L::group(&())
}

/// The size of the next page. The API server encodes a page completely before its first byte is read, so
/// larger pages are tried rarely once one did not fit.
#[derive(Debug, Default)]
pub(in crate::cluster) struct PageSize {
    index: usize,
    fitting: u32,
}

impl PageSize {
    /// Pages of [`MIN_BEFORE_METADATA`] objects at first.
    pub(in crate::cluster) fn small() -> Self {
        Self { index: 1, fitting: 0 }
    }

    /// Pages of one object at first.
    pub(in crate::cluster) fn smallest() -> Self {
        Self { index: PAGE_SIZES.len() - 1, fitting: 0 }
    }

    pub(in crate::cluster) fn limit(&self) -> u32 {
        PAGE_SIZES.get(self.index).copied().unwrap_or(1)
    }

    /// A page of this size was small enough.
    pub(in crate::cluster) fn fits(&mut self) {
        self.fitting = self.fitting.saturating_add(1);
        if self.fitting >= MIN_FITTING_PAGES {
            (self.index, self.fitting) = (self.index.saturating_sub(1), 0);
        }
    }

    /// A page of this size was too large. Returns the next smaller size; `None` if there is none.
    pub(in crate::cluster) fn shrink(&mut self) -> Option<u32> {
        self.fitting = 0;
        let smaller = PAGE_SIZES.get(self.index + 1).copied()?;
        self.index += 1;
        Some(smaller)
    }

    /// A page of this size was too large, and only the metadata of its objects are read. The next page
    /// is smaller, but has [`MIN_BEFORE_METADATA`] objects at least.
    pub(in crate::cluster) fn read_as_metadata(&mut self) {
        self.fitting = 0;
        if self.limit() > MIN_BEFORE_METADATA {
            self.shrink();
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceQuota;
    use kube::core::PartialObjectMeta;

    use super::*;

    #[test]
    fn watches_of_what_tenants_may_make_large_have_small_pages() {
        assert_eq!(watched::<RoleBinding>(), WATCHED_LARGE_OBJECTS);
        assert_eq!(watched::<PartialObjectMeta<RoleBinding>>(), WATCHED_LARGE_OBJECTS);
        assert_eq!(watched::<Namespace>(), WATCHED_LARGE_OBJECTS);
        assert_eq!(watched::<ResourceQuota>(), WATCHED);
    }

    #[test]
    fn pages_shrink_at_once_and_grow_rarely() {
        let mut size = PageSize::default();
        for _ in 0..100 {
            size.fits();
        }
        assert_eq!(size.limit(), 500);
        assert_eq!((size.shrink(), size.shrink()), (Some(50), Some(5)));
        for _ in 1..16 {
            size.fits();
        }
        assert_eq!(size.limit(), 5);
        size.fits();
        assert_eq!(size.limit(), 50);
        assert_eq!((size.shrink(), size.shrink(), size.shrink()), (Some(5), Some(1), None));
        assert_eq!(size.limit(), 1);
        // Among a million objects that do not fit together one page of 17 is a larger one.
        let (mut size, mut too_large) = (PageSize::default(), 0);
        for _ in 0..1_000_000 {
            if size.limit() > 1 {
                size.shrink();
                too_large += 1;
            } else {
                size.fits();
            }
        }
        assert!(too_large <= 1_000_000 / 17 + 3, "{too_large}");
        // After all of these the pages are as large again as after the first one.
        for _ in 0..48 {
            size.fits();
        }
        assert_eq!(size.limit(), 500);
    }

    #[test]
    fn pages_may_be_small_from_the_beginning() {
        assert_eq!(PageSize::small().limit(), MIN_BEFORE_METADATA);
        assert_eq!(PageSize::smallest().limit(), 1);
    }

    #[test]
    fn a_page_that_is_replaced_by_metadata_shrinks_to_fifty() {
        let mut size = PageSize::default();
        for _ in 0..100 {
            size.read_as_metadata();
        }
        assert_eq!(size.limit(), 50);
        size.shrink();
        size.read_as_metadata();
        assert_eq!(size.limit(), 5);
    }
}
