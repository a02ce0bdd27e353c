//! Settings of the gateway (`gateway.*`).

use super::{
    declaration::{Declaration, Setting},
    parse::from_str,
};

pub(super) const OWN_ANSWERS: Setting<bool> = Setting::new(
    "gateway.own_answers",
    "true",
    from_str,
    "Whether the gateway itself answers a tenant's `get namespaces` and self-reviews, for the \
     tenant's own namespace, and lists what Tenants grant (`tenants.cluster_lists`). false forwards \
     them unchanged, for clusters whose tenants may list namespaces.",
);
pub(super) const SETTINGS: &[&dyn Declaration] = &[&OWN_ANSWERS];
