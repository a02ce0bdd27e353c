//! The command `tenants apply`.

use serde::Serialize;
use tenant_shared::{ApplyTenantRequest, TenantWrite};

use super::{
    create::warn_of_metadata,
    manifest::{self, Manifest},
    report,
};
use crate::{
    account::Account,
    broker::Broker,
    cli::tenants::{ApplyTenants, DryRun},
    error::{Error, Kind},
    output::{self, Format},
    runtime,
    store::AccountFlags,
    tenants::calls::ApplyFlags,
    terminal,
    world::World,
};

/// Output of `tenants apply`.
#[derive(Serialize)]
struct WriteList {
    items: Vec<TenantWrite>,
}

/// Runs `tenants apply`. A Tenant that is refused does not keep the others from being applied.
pub(in crate::tenants) fn apply(
    flags: &AccountFlags,
    options: &ApplyTenants,
    world: &mut World,
) -> Result<(), Error> {
    let manifests = manifest::read(&options.file, &world.stdin)?;
    for manifest in &manifests {
        warn_of_metadata(manifest, world);
    }
    if options.dry_run == DryRun::Client {
        let lines = manifests.iter().map(|it| format!("tenant {} applied (dry run)\n", it.name));
        let lines: String = lines.collect();
        return world.print(&lines);
    }
    let account = Account::open(flags, world)?;
    let flags =
        ApplyFlags { dry_run: options.dry_run == DryRun::Server, force: options.force_conflicts };
    let (mut written, mut refused) = (Vec::new(), Vec::new());
    for manifest in manifests {
        let name = manifest.name.clone();
        match apply_one(&account.broker, manifest, options.reason.text.clone(), flags) {
            Ok(write) => {
                if options.shown.output == Format::Table {
                    world.print(&terminal::sanitize_lines(&report::line(&write)))?;
                }
                report::details(&write, world);
                written.push(write);
            }
            Err(error) if error.kind == Kind::Refused => refused.push((name, error)),
            // The next one would fail, too.
            Err(error) => {
                show_list(written, options.shown.output, world)?;
                return Err(Error {
                    message: format!("tenant {name}: {}", error.message),
                    ..error
                });
            }
        }
    }
    show_list(written, options.shown.output, world)?;
    match refused.as_slice() {
        [] => Ok(()),
        [(name, error)] => {
            Err(Error { message: format!("tenant {name}: {}", error.message), ..error.clone() })
        }
        several => {
            for (name, error) in several {
                world.print_message(format!("error: tenant {name}: {}", error.message));
            }
            let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
            Err(Error::refused(format!("Tenants that were not applied: {}", names.join(", "))))
        }
    }
}

fn show_list(items: Vec<TenantWrite>, format: Format, world: &mut World) -> Result<(), Error> {
    if format == Format::Table {
        return Ok(());
    }
    output::show(world, format, &WriteList { items }, |_| String::new())
}

fn apply_one(
    broker: &Broker,
    manifest: Manifest,
    reason: Option<String>,
    flags: ApplyFlags,
) -> Result<TenantWrite, Error> {
    let request =
        ApplyTenantRequest { spec: manifest.spec, reason, ..ApplyTenantRequest::default() };
    runtime::block_on(broker.apply_tenant(&manifest.name, &request, flags))?
}
