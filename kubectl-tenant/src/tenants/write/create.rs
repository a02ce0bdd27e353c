//! The command `tenants create`.

use serde_json::{Value, json};
use tenant_shared::CreateTenantRequest;

use super::{manifest, report};
use crate::{
    account::Account,
    cli::tenants::{CreateTenant, DryRun},
    error::Error,
    output::{self, Format},
    runtime,
    store::AccountFlags,
    world::World,
};

/// Runs `tenants create`.
pub(in crate::tenants) fn create(
    flags: &AccountFlags,
    options: &CreateTenant,
    world: &mut World,
) -> Result<(), Error> {
    let requests = requests(options, world)?;
    let format = options.shown.output;
    if options.dry_run == DryRun::Client {
        return print_manifests(&requests, format, world);
    }
    let account = Account::open(flags, world)?;
    let dry_run = options.dry_run == DryRun::Server;
    for request in &requests {
        let write = runtime::block_on(account.broker.create_tenant(request, dry_run))??;
        output::show(world, format, &write, report::line)?;
        report::details(&write, world);
    }
    Ok(())
}

/// The Tenants of the flags or of the file.
fn requests(options: &CreateTenant, world: &World) -> Result<Vec<CreateTenantRequest>, Error> {
    let request = |name: String, spec: Value| CreateTenantRequest {
        name,
        spec,
        reason: options.reason.text.clone(),
    };
    match (&options.file, &options.name) {
        (Some(file), _) => {
            let manifests = manifest::read(file, &world.stdin)?;
            for manifest in &manifests {
                warn_of_metadata(manifest, world);
            }
            Ok(manifests.into_iter().map(|it| request(it.name, it.spec)).collect())
        }
        (None, Some(name)) => Ok(vec![request(name.clone(), spec_of(options)?)]),
        (None, None) => Err(Error::usage("a Tenant has a name, or comes from a file: -f FILE")),
    }
}

/// Warns of metadata in a file that the broker does not write.
pub(super) fn warn_of_metadata(manifest: &manifest::Manifest, world: &World) {
    if !manifest.not_written.is_empty() {
        world.print_message(format!(
            "warning: {}: the broker writes spec only; use kubectl for {}",
            manifest.name,
            manifest.not_written.join(", ")
        ));
    }
}

fn spec_of(options: &CreateTenant) -> Result<Value, Error> {
    let owner = |kind: &'static str| move |name: &String| json!({"kind": kind, "name": name});
    let accounts = options.owner_service_accounts.iter().map(|(namespace, name)| {
        let name = format!("system:serviceaccount:{namespace}:{name}");
        json!({"kind": "ServiceAccount", "name": name})
    });
    let owners: Vec<Value> = options
        .owners
        .iter()
        .map(owner("User"))
        .chain(options.owner_groups.iter().map(owner("Group")))
        .chain(accounts)
        .collect();
    if owners.is_empty() {
        return Err(Error::usage("a Tenant has at least one owner")
            .hint("--owner USER, --owner-group GROUP or --owner-service-account NAMESPACE:NAME"));
    }
    let mut spec = json!({"owners": owners});
    if let Some(quota) = options.quota {
        spec["namespaceOptions"] = json!({"quota": quota});
    }
    if let Some(tier) = &options.tier {
        spec["tier"] = json!(tier);
    }
    Ok(spec)
}

/// Prints the Tenants, for kubectl or a GitOps tool.
fn print_manifests(
    requests: &[CreateTenantRequest],
    format: Format,
    world: &mut World,
) -> Result<(), Error> {
    let texts = requests.iter().map(|request| match format {
        Format::Table => Ok(format!("tenant {} created (dry run)\n", request.name)),
        Format::Yaml => manifest::print(&request.name, &request.spec),
        Format::Json => manifest::print_json(&request.name, &request.spec),
    });
    let texts: Vec<String> = texts.collect::<Result<_, Error>>()?;
    let separator = if format == Format::Yaml { "---\n" } else { "" };
    world.print(&texts.join(separator))
}
