//! Writes of Tenants by administrators (`tenants.write`): REST and plugin.

mod cli;
mod conflicts;
mod crash;
mod rest;

use integration::api::Api;
use integration::kubectl::Kubectl;
use integration::world::{World, WorldBuilder};
use serde_json::{Value, json};
use tenant_shared::{ApplyTenantRequest, AuditEntry, CreateTenantRequest};

use super::{TENANT_BROKER, tenant, until_served};

const SOLAR: &str = "solar";

/// A world whose broker writes Tenants.
fn builder() -> WorldBuilder {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    // Otherwise the interval could hide that an event was missed.
    builder.installed("tenants.write", true).setting("drift_seconds", 3600)
}

/// A world whose broker writes Tenants, and an administrator.
async fn start(builder: WorldBuilder) -> (World, Kubectl, Api) {
    let world = builder.start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    (world, admin, operator)
}

/// A specification with one owner and a quota.
fn spec(owner: &str, quota: u32) -> Value {
    json!({
        "owners": [{"kind": "User", "name": owner}],
        "namespaceOptions": {"quota": quota},
    })
}

fn create(name: &str, spec: Value) -> CreateTenantRequest {
    CreateTenantRequest { name: name.to_owned(), spec, reason: Some("ticket 7".to_owned()) }
}

fn apply(spec: Value) -> ApplyTenantRequest {
    ApplyTenantRequest { spec, ..ApplyTenantRequest::default() }
}

/// The rows of an action, oldest first.
async fn rows(operator: &Api, action: &str) -> Vec<AuditEntry> {
    let query = format!("action={action}&limit=500");
    let mut rows = operator.audit_logs(&query).await.unwrap().items;
    rows.reverse();
    rows
}

/// The outcomes of an action, oldest first.
async fn outcomes(operator: &Api, action: &str) -> Vec<String> {
    rows(operator, action).await.into_iter().map(|row| row.outcome).collect()
}

async fn resource_version(admin: &Kubectl, name: &str) -> Value {
    tenant(admin, TENANT_BROKER, name).await["metadata"]["resourceVersion"].clone()
}
