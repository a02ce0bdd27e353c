//! Table of the built-in ClusterRole `admin`: the permissions of `system:aggregate-to-admin`,
//! `-edit` and `-view` of a new cluster together. An end-to-end test compares the table with the
//! real API server.

use std::collections::{BTreeMap, BTreeSet};

/// One line for each resource: API group (`core` for the core group), resource, verbs.
const TABLE: &str = include_str!("builtin_admin.txt");

/// Verbs by group and resource.
pub(super) fn permissions() -> BTreeMap<(&'static str, &'static str), BTreeSet<&'static str>> {
    TABLE
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (group, resource) = (words.next()?, words.next()?);
            Some(((if group == "core" { "" } else { group }, resource), words.collect()))
        })
        .collect()
}
