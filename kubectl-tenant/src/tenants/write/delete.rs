//! The command `tenants delete`.

use tenant_shared::{NamespacesOnDelete, TenantDeletion};
use tokio::time::Instant;

use crate::{
    account::Account, cli::tenants::DeleteTenant, error::Error, http::TOTAL_TIMEOUT, output,
    runtime, store::AccountFlags, tenants::calls::DeletionFlags, terminal, world::World,
};

/// Bytes of the answer to the question.
const MAX_ANSWER_BYTES: u64 = 256;

/// Runs `tenants delete`.
pub(in crate::tenants) fn delete(
    flags: &AccountFlags,
    options: &DeleteTenant,
    world: &mut World,
) -> Result<(), Error> {
    let name = &options.tenant;
    let can_ask = (world.stdin_is_terminal)();
    if !options.yes && !options.dry_run && !can_ask {
        return Err(Error::usage("the deletion of a Tenant has to be confirmed")
            .hint("standard input is no terminal; confirm with --yes"));
    }
    let broker = Account::open(flags, world)?.broker;
    let mut wanted = DeletionFlags {
        namespaces: NamespacesOnDelete::from(options.namespaces),
        uid: None,
        dry_run: true,
        reason: options.reason.text.as_deref(),
    };
    // Refuses early, and says which object and which namespaces the confirmation is about.
    let expected = runtime::block_on(broker.delete_tenant(name, &wanted))??;
    if options.dry_run {
        return show(&expected, options, world);
    }
    if !options.yes && !confirm(&expected, world) {
        world.print_message("Nothing was deleted.");
        return Ok(());
    }
    // The time for an answer does not count.
    let broker = broker.with_deadline(Instant::now() + TOTAL_TIMEOUT);
    wanted.dry_run = false;
    wanted.uid = Some(&expected.uid);
    let deleted = runtime::block_on(broker.delete_tenant(name, &wanted))??;
    show(&deleted, options, world)?;
    if deleted.is_terminating {
        world.print_message("the Tenant still exists, because finalizers of others hold it");
    }
    for namespace in &deleted.kept_namespaces {
        world.print_message(format!(
            "namespace {namespace} stays; nobody has rights of the tenant in it"
        ));
    }
    Ok(())
}

fn show(deletion: &TenantDeletion, options: &DeleteTenant, world: &mut World) -> Result<(), Error> {
    output::show(world, options.shown.output, deletion, |it| {
        let dry_run = if it.dry_run { " (server dry run)" } else { "" };
        format!("tenant {} deleted{dry_run}\n", it.name)
    })
}

/// Asks for the name of the tenant.
fn confirm(expected: &TenantDeletion, world: &World) -> bool {
    let name = terminal::sanitize(&expected.name);
    let kept = expected.kept_namespaces.len();
    let namespaces =
        if kept == 0 { String::new() } else { format!(", and {kept} namespaces stay") };
    world.stderr.write(&format!(
        "Everybody loses the rights that tenant {name} gives{namespaces}. Its name, to delete it: "
    ));
    world.stdin.line(MAX_ANSWER_BYTES).trim() == expected.name
}
