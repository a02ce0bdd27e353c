//! What a write did to a Tenant.

use tenant_shared::{TenantWrite, TenantWriteResult};

use crate::world::World;

/// The line of a Tenant, as kubectl prints it.
pub(super) fn line(write: &TenantWrite) -> String {
    let result = match write.result {
        TenantWriteResult::Created => "created",
        TenantWriteResult::Configured => "configured",
        TenantWriteResult::Unchanged => "unchanged",
    };
    let dry_run = if write.dry_run { " (server dry run)" } else { "" };
    format!("tenant {} {result}{dry_run}\n", write.tenant.name)
}

/// Reports the changed fields, and what the broker does not carry out.
pub(super) fn details(write: &TenantWrite, world: &World) {
    let name = &write.tenant.name;
    if write.result == TenantWriteResult::Configured {
        for change in &write.changes {
            world.print_message(format!("{name}: {change}"));
        }
    }
    for condition in &write.conditions {
        world.print_message(format!("warning: {name}: {}: {}", condition.kind, condition.message));
    }
}
