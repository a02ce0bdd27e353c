//! The command `tenants`: lists tenants, shows one, and lists its members.

use tenant_shared::{TenantInfo, TenantMember, TenantRole};

use super::{suspension, write};
use crate::{
    account::Account,
    cli::{
        options::OutputArgs,
        tenants::{NamedTenant, Tenants as Options, TenantsAction},
    },
    error::Error,
    output, runtime,
    store::AccountFlags,
    world::World,
};

/// Runs `tenants`.
pub(crate) fn tenants(
    flags: &AccountFlags,
    options: &Options,
    world: &mut World,
) -> Result<(), Error> {
    match &options.action {
        None => list(flags, options.shown, world),
        Some(TenantsAction::List(shown)) => list(flags, *shown, world),
        Some(TenantsAction::Get(named)) => get(flags, named, world),
        Some(TenantsAction::Members(named)) => members(flags, named, world),
        Some(TenantsAction::Create(options)) => write::create(flags, options, world),
        Some(TenantsAction::Apply(options)) => write::apply(flags, options, world),
        Some(TenantsAction::Edit(options)) => write::edit(flags, options, world),
        Some(TenantsAction::Delete(options)) => write::delete(flags, options, world),
        Some(TenantsAction::Suspend(options)) => suspension::suspend(flags, options, world),
        Some(TenantsAction::Resume(options)) => suspension::resume(flags, options, world),
    }
}

fn list(flags: &AccountFlags, options: OutputArgs, world: &mut World) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let found = runtime::block_on(account.broker.tenants())??;
    output::show(world, options.output, &found, |it| table(&it.items))?;
    if found.items.is_empty() {
        world.print_message("no Tenant names you; ask an administrator, or an owner of the tenant");
    }
    Ok(())
}

fn get(flags: &AccountFlags, options: &NamedTenant, world: &mut World) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let tenant = runtime::block_on(account.broker.tenant(&options.tenant))??;
    output::show(world, options.shown.output, &tenant, details)
}

fn members(flags: &AccountFlags, options: &NamedTenant, world: &mut World) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let found = runtime::block_on(account.broker.tenant_members(&options.tenant))??;
    output::show(world, options.shown.output, &found, |it| member_table(&it.items))
}

fn yes_or_no(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

/// Names of ClusterRoles with commas between them.
fn names(roles: &[TenantRole]) -> String {
    roles.iter().map(|it| it.cluster_role.as_str()).collect::<Vec<_>>().join(",")
}

fn table(tenants: &[TenantInfo]) -> String {
    let rows: Vec<[String; 6]> = tenants
        .iter()
        .map(|it| {
            let count = it.namespace_count;
            [
                it.name.clone(),
                it.state.clone(),
                names(&it.roles),
                yes_or_no(it.is_owner),
                it.namespace_quota
                    .map_or_else(|| count.to_string(), |quota| format!("{count}/{quota}")),
                yes_or_no(it.workspace.is_some()),
            ]
        })
        .collect();
    output::columns(["NAME", "STATE", "ROLES", "OWNER", "NAMESPACES", "MEMBER"], &rows)
}

/// The tenant's row, then who gives which role, then the conditions.
fn details(tenant: &TenantInfo) -> String {
    let mut text = table(std::slice::from_ref(tenant));
    if !tenant.roles.is_empty() {
        text += "\n";
        text += &role_table(&tenant.roles);
    }
    if !tenant.conditions.is_empty() {
        let rows: Vec<[String; 2]> =
            tenant.conditions.iter().map(|it| [it.kind.clone(), it.message.clone()]).collect();
        text += "\n";
        text += &output::columns(["CONDITION", "MESSAGE"], &rows);
    }
    text
}

/// Roles with the entries of the Tenant that give them.
pub(super) fn role_table(roles: &[TenantRole]) -> String {
    let rows: Vec<[String; 2]> =
        roles.iter().map(|it| [it.cluster_role.clone(), it.given_by.join("; ")]).collect();
    output::columns(["ROLE", "GIVEN BY"], &rows)
}

fn member_table(members: &[TenantMember]) -> String {
    let rows: Vec<[String; 5]> = members
        .iter()
        .map(|it| {
            [
                it.email.clone(),
                it.status.as_str().to_owned(),
                yes_or_no(it.is_owner),
                names(&it.roles),
                it.workspace.to_string(),
            ]
        })
        .collect();
    output::columns(["E-MAIL", "STATUS", "OWNER", "ROLES", "ID"], &rows)
}

#[cfg(test)]
mod tests {
    use tenant_shared::TenantCondition;

    use super::*;

    #[test]
    fn a_tenant_is_shown_with_its_roles_and_conditions() {
        let role = |name: &str, given_by: &[&str]| TenantRole {
            cluster_role: name.to_owned(),
            given_by: given_by.iter().map(|&it| it.to_owned()).collect(),
        };
        let tenant = TenantInfo {
            name: "solar".to_owned(),
            api_group: "tenant-broker.io".to_owned(),
            state: "Degraded".to_owned(),
            is_owner: true,
            roles: vec![
                role("admin", &["owner User alice", "owner Group dev"]),
                role("view", &["owner Group dev"]),
            ],
            namespace_count: 2,
            namespace_quota: Some(5),
            workspace: None,
            conditions: vec![TenantCondition {
                kind: "UnknownTier".to_owned(),
                message: "tier x is not\nconfigured".to_owned(),
            }],
        };
        insta::assert_snapshot!(details(&tenant), @r"
        NAME    STATE      ROLES        OWNER   NAMESPACES   MEMBER
        solar   Degraded   admin,view   yes     2/5          no

        ROLE    GIVEN BY
        admin   owner User alice; owner Group dev
        view    owner Group dev

        CONDITION     MESSAGE
        UnknownTier   tier x is not configured
        ");
        let plain = TenantInfo { roles: vec![], conditions: vec![], ..tenant };
        assert_eq!(details(&plain).lines().count(), 2);
    }
}
