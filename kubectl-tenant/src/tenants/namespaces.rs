//! The command `namespaces`: lists, creates, deletes and moves the namespaces of tenants.

use serde::Serialize;
use tenant_shared::{CreateNamespaceRequest, TenantInfo, TenantNamespace};

use super::{choose, deletion, moves};
use crate::{
    account::Account,
    broker::Broker,
    cli::namespaces::{CreateNamespace, ListedNamespaces, Namespaces as Options, NamespacesAction},
    error::Error,
    output, runtime,
    store::AccountFlags,
    world::World,
};

/// Output of `namespaces list`.
#[derive(Serialize)]
struct NamespaceList {
    items: Vec<ListedNamespace>,
}

/// The API's namespace with its tenant.
#[derive(Serialize)]
struct ListedNamespace {
    tenant: String,
    /// State of the tenant; nobody has rights in the namespaces of a suspended one.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_state: Option<String>,
    #[serde(flatten)]
    namespace: TenantNamespace,
}

/// Runs `namespaces`.
pub(crate) fn namespaces(
    flags: &AccountFlags,
    options: &Options,
    world: &mut World,
) -> Result<(), Error> {
    match &options.action {
        None => list(flags, &options.listed, world),
        Some(NamespacesAction::List(listed)) => list(flags, listed, world),
        Some(NamespacesAction::Create(create)) => create_namespace(flags, create, world),
        Some(NamespacesAction::Delete(delete)) => deletion::delete(flags, delete, world),
        Some(NamespacesAction::Adopt(adopt)) => moves::adopt(flags, adopt, world),
        Some(NamespacesAction::Transfer(transfer)) => moves::transfer(flags, transfer, world),
    }
}

fn list(flags: &AccountFlags, options: &ListedNamespaces, world: &mut World) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let broker = account.broker.with_list_timeout();
    let (tenants, items) = runtime::block_on(async {
        let tenants = match &options.tenant {
            Some(name) => vec![TenantInfo { name: name.clone(), ..broker.tenant(name).await? }],
            None => broker.tenants().await?.items,
        };
        let is_named = options.tenant.is_some();
        let own = if is_named { tenants.clone() } else { choose::own_tenants(tenants.clone()) };
        Ok::<_, Error>((tenants, read(&broker, &own).await?))
    })??;
    let found = NamespaceList { items };
    output::show(world, options.shown.output, &found, |it| table(&it.items))?;
    if found.items.is_empty() {
        world.print_message(nothing_listed(options.tenant.as_deref(), tenants, flags));
    }
    Ok(())
}

/// The namespaces of tenants.
async fn read(broker: &Broker, tenants: &[TenantInfo]) -> Result<Vec<ListedNamespace>, Error> {
    let mut items = Vec::new();
    for tenant in tenants {
        let found = broker.tenant_namespaces(&tenant.name).await?.items;
        items.extend(found.into_iter().map(|namespace| ListedNamespace {
            tenant: tenant.name.clone(),
            tenant_state: Some(tenant.state.clone()),
            namespace,
        }));
    }
    Ok(items)
}

/// Why no namespace is listed, and what the person can do. `tenants` are all that they may see.
fn nothing_listed(named: Option<&str>, tenants: Vec<TenantInfo>, flags: &AccountFlags) -> String {
    if let Some(tenant) = named {
        return format!(
            "there is no namespace yet in tenant {tenant}; an owner creates one: {}",
            flags.command(&format!("namespaces create {tenant}-NAME"))
        );
    }
    let sees_others = !tenants.is_empty();
    let own = choose::own_tenants(tenants);
    if own.iter().any(|it| it.is_owner) {
        let command = flags.command("namespaces create NAME");
        format!("there is no namespace yet; create one: {command}")
    } else if !own.is_empty() {
        "your tenants have no namespace yet; an owner creates one".to_owned()
    } else if sees_others {
        let command = flags.command("namespaces --tenant NAME");
        format!("no Tenant names you; to list the namespaces of one: {command}")
    } else {
        "no Tenant names you; ask an administrator, or an owner of the tenant".to_owned()
    }
}

fn create_namespace(
    flags: &AccountFlags,
    options: &CreateNamespace,
    world: &mut World,
) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let broker = &account.broker;
    let created = runtime::block_on(async {
        let tenant = match &options.tenant {
            Some(name) => name.clone(),
            None => choose::tenant_for(broker.tenants().await?.items, &options.name)?,
        };
        world.print_message(format!("Creating namespace {} of tenant {tenant} …", options.name));
        let request = CreateNamespaceRequest {
            name: options.name.clone(),
            labels: options.labels.iter().cloned().collect(),
            annotations: options.annotations.iter().cloned().collect(),
        };
        let namespace = broker.create_namespace(&tenant, &request).await?;
        Ok::<_, Error>(ListedNamespace { tenant, tenant_state: None, namespace })
    })??;
    output::show(world, options.shown.output, &created, |it| table(std::slice::from_ref(it)))?;
    let command = format!("use {} --namespace {}", created.tenant, created.namespace.name);
    world.print_message(format!("to use it with kubectl: {}", flags.command(&command)));
    Ok(())
}

/// The status of a namespace, and whether its tenant is suspended.
fn status(listed: &ListedNamespace) -> String {
    let status = listed.namespace.status.as_str();
    if listed.tenant_state.as_deref().is_some_and(choose::is_suspended) {
        format!("{status} (tenant suspended)")
    } else {
        status.to_owned()
    }
}

fn table(namespaces: &[ListedNamespace]) -> String {
    let rows: Vec<[String; 4]> = namespaces
        .iter()
        .map(|it| {
            [
                it.namespace.name.clone(),
                it.tenant.clone(),
                status(it),
                it.namespace.created_at.to_string(),
            ]
        })
        .collect();
    output::columns(["NAME", "TENANT", "STATUS", "SINCE"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(is_owner: bool, workspace: bool) -> TenantInfo {
        TenantInfo {
            name: "solar".to_owned(),
            api_group: "tenant-broker.io".to_owned(),
            state: "Active".to_owned(),
            is_owner,
            roles: Vec::new(),
            namespace_count: 0,
            namespace_quota: None,
            workspace: workspace.then_some(uuid::Uuid::nil()),
            conditions: Vec::new(),
        }
    }

    #[test]
    fn an_empty_list_says_what_the_person_can_do() {
        for (named, tenants, expected) in [
            (None, vec![tenant(true, false)], "create one: kubectl tenant namespaces create NAME"),
            (None, vec![tenant(false, true)], "an owner creates one"),
            (None, vec![tenant(false, false)], "kubectl tenant namespaces --tenant NAME"),
            (None, vec![], "no Tenant names you; ask an administrator"),
            (Some("solar"), vec![tenant(false, false)], "in tenant solar; an owner creates one"),
        ] {
            let text = nothing_listed(named, tenants, &AccountFlags::default());
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn a_namespace_of_a_suspended_tenant_is_marked() {
        let listed = |state: Option<&str>| ListedNamespace {
            tenant: "solar".to_owned(),
            tenant_state: state.map(str::to_owned),
            namespace: TenantNamespace {
                name: "solar-a".to_owned(),
                status: "active".to_owned(),
                made_by: None,
                created_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            },
        };
        assert_eq!(status(&listed(Some("Suspended"))), "active (tenant suspended)");
        for state in [None, Some("Active"), Some("Degraded")] {
            assert_eq!(status(&listed(state)), "active");
        }
    }
}
