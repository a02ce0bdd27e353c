//! The command `namespaces`: lists, creates, deletes and moves the namespaces of tenants.

use serde::Serialize;
use tenant_shared::{CreateNamespaceRequest, TenantNamespace};

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
    let items = runtime::block_on(read(&broker, options.tenant.as_deref()))??;
    let found = NamespaceList { items };
    output::show(world, options.shown.output, &found, |it| table(&it.items))?;
    if found.items.is_empty() {
        world.print_message(
            "there is no namespace yet; create one: kubectl tenant namespaces create NAME",
        );
    }
    Ok(())
}

/// The namespaces of a tenant, or of all tenants of the person.
async fn read(broker: &Broker, tenant: Option<&str>) -> Result<Vec<ListedNamespace>, Error> {
    let tenants = if let Some(name) = tenant {
        vec![name.to_owned()]
    } else {
        let own = choose::own_tenants(broker.tenants().await?.items);
        own.into_iter().map(|it| it.name).collect()
    };
    let mut items = Vec::new();
    for tenant in tenants {
        let found = broker.tenant_namespaces(&tenant).await?.items;
        items.extend(
            found
                .into_iter()
                .map(|namespace| ListedNamespace { tenant: tenant.clone(), namespace }),
        );
    }
    Ok(items)
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
        Ok::<_, Error>(ListedNamespace { tenant, namespace })
    })??;
    output::show(world, options.shown.output, &created, |it| table(std::slice::from_ref(it)))?;
    world.print_message(format!(
        "to use it with kubectl: kubectl tenant use {} --namespace {}",
        created.tenant, created.namespace.name
    ));
    Ok(())
}

fn table(namespaces: &[ListedNamespace]) -> String {
    let rows: Vec<[String; 4]> = namespaces
        .iter()
        .map(|it| {
            [
                it.namespace.name.clone(),
                it.tenant.clone(),
                it.namespace.status.clone(),
                it.namespace.created_at.to_string(),
            ]
        })
        .collect();
    output::columns(["NAME", "TENANT", "STATUS", "SINCE"], &rows)
}
