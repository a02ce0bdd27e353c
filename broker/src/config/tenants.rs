//! Settings of tenants (`tenants.*`).

use super::{
    Settings,
    declaration::{Declaration, Setting},
    parse::from_str,
};
use crate::tenant::TenantSettings;

const ENABLED: Setting<bool> = Setting::new(
    "tenants.enabled",
    "false",
    from_str,
    "Whether tenant-broker install makes the definition of the kind Tenant \
     (tenants.tenant-broker.io). The feature is incomplete: the broker does not act on Tenants \
     yet.",
);
pub(super) const SETTINGS: &[&dyn Declaration] = &[&ENABLED];

pub(super) fn read(s: &mut Settings) -> TenantSettings {
    TenantSettings { enabled: ENABLED.read(s) }
}
