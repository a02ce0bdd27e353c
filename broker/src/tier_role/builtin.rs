//! The built-in ClusterRole `admin`: what `system:aggregate-to-admin`, `-edit` and `-view` of a fresh
//! cluster give together. An end-to-end test compares the table with the real API server.

use std::collections::{BTreeMap, BTreeSet};

/// A line for each resource: API group (`core` for the core), resource, verbs.
const TABLE: &str = include_str!("builtin_admin.txt");

/// Verbs by group and resource.
pub(super) fn rights() -> BTreeMap<(&'static str, &'static str), BTreeSet<&'static str>> {
    TABLE
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (group, resource) = (words.next()?, words.next()?);
            Some(((if group == "core" { "" } else { group }, resource), words.collect()))
        })
        .collect()
}
