//! Becoming a member of a tenant.

use tenant_shared::{TenantInfo, Workspace};

use crate::{broker::Broker, error::Error, workspace, world::World};

/// Makes the person a member of a tenant, if they are not yet, and waits until the membership can be
/// used.
pub(super) async fn join(broker: &Broker, tenant: &str, world: &World) -> Result<Workspace, Error> {
    world.print_message(format!("Joining tenant {tenant} …"));
    let membership = broker.join_tenant(tenant).await?;
    workspace::until_provisioned(broker, membership).await
}

/// The person's membership in a tenant; they become a member if they are not yet.
pub(super) async fn of_tenant(
    broker: &Broker,
    tenant: &TenantInfo,
    world: &World,
) -> Result<Workspace, Error> {
    match tenant.workspace {
        Some(id) => broker.workspace(id).await,
        None => join(broker, &tenant.name, world).await,
    }
}
