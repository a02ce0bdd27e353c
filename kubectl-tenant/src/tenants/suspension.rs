//! The commands `tenants suspend` (the kill switch for a tenant) and `tenants resume`.

use std::time::Duration;

use tenant_shared::{RoleBindingName, TenantSuspension};
use tokio::time::Instant;

use crate::{
    account::Account,
    broker::Broker,
    cli::tenants::SuspendTenant,
    error::Error,
    http::TOTAL_TIMEOUT,
    output, runtime,
    store::AccountFlags,
    suspension::{POLL_INTERVAL, open_steps, report_open_steps, steps_table},
    world::World,
};

/// RoleBindings that a message names.
const MAX_NAMED_BINDINGS: usize = 10;

/// The operation of the command.
#[derive(Clone, Copy)]
enum Operation {
    Suspend,
    Resume,
}

impl Operation {
    fn verb(self) -> &'static str {
        match self {
            Self::Suspend => "suspend",
            Self::Resume => "resume",
        }
    }

    /// Whether a tenant in this state has reached the end of the operation.
    fn is_reached(self, state: &str) -> bool {
        match self {
            Self::Suspend => state == "Suspended",
            // `Degraded`: the tenant works, but the broker cannot carry out all of it.
            Self::Resume => matches!(state, "Active" | "Degraded"),
        }
    }

    /// The effect that holds as soon as the decision is recorded, even with open steps.
    fn decided_text(self) -> &'static str {
        match self {
            Self::Suspend => "No credentials are issued to members of it any more",
            Self::Resume => "The resumption is recorded",
        }
    }

    fn done_text(self, tenant: &str) -> String {
        match self {
            Self::Suspend => {
                format!("Tenant {tenant} is suspended: nobody has rights in its namespaces.")
            }
            Self::Resume => format!(
                "Tenant {tenant} works again; tokens from before the suspension remain invalid."
            ),
        }
    }
}

/// Runs `tenants suspend`.
pub(super) fn suspend(
    flags: &AccountFlags,
    options: &SuspendTenant,
    world: &mut World,
) -> Result<(), Error> {
    run(flags, options, Operation::Suspend, world)
}

/// Runs `tenants resume`.
pub(super) fn resume(
    flags: &AccountFlags,
    options: &SuspendTenant,
    world: &mut World,
) -> Result<(), Error> {
    run(flags, options, Operation::Resume, world)
}

fn run(
    flags: &AccountFlags,
    options: &SuspendTenant,
    operation: Operation,
    world: &mut World,
) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let tenant = &options.tenant;
    let deadline = Instant::now() + Duration::from_secs(options.wait.into());
    let broker = account.broker.with_deadline(deadline + TOTAL_TIMEOUT);
    let request = broker.set_tenant(tenant, operation.verb(), options.reason.text.as_deref());
    let response = runtime::block_on(request)??;
    output::show(world, options.shown.output, &response, |it| steps_table(&it.steps))?;
    report_bindings(&response.bindings_not_restored, world);
    if !is_complete(&response, operation) {
        report_open_steps(operation.decided_text(), &response.steps, world);
        let wait = wait_for_completion(&broker, tenant, operation, deadline, flags, world);
        runtime::block_on(wait)??;
        if response.bindings_not_restored.is_empty() && matches!(operation, Operation::Resume) {
            // Only a response to a complete resumption has them. The request is idempotent, and the
            // resumption is complete whatever becomes of it.
            match runtime::block_on(broker.set_tenant(tenant, operation.verb(), None))? {
                Ok(complete) => report_bindings(&complete.bindings_not_restored, world),
                Err(error) => world.print_message(format!(
                    "cannot read which RoleBindings of owners were deleted: {error}; repeat the command"
                )),
            }
        }
    }
    world.print_message(operation.done_text(tenant));
    Ok(())
}

/// Names the RoleBindings that a resumption does not restore.
fn report_bindings(bindings: &[RoleBindingName], world: &World) {
    if bindings.is_empty() {
        return;
    }
    let named = bindings.iter().take(MAX_NAMED_BINDINGS);
    let named: Vec<String> = named.map(|it| format!("{}/{}", it.namespace, it.name)).collect();
    let further = match bindings.len() - named.len() {
        0 => String::new(),
        further => format!(" and {further} more (-o json shows them)"),
    };
    world.print_message(format!(
        "The suspension deleted RoleBindings of owners, who have to make them again: {}{further}.",
        named.join(", ")
    ));
}

/// Whether the response shows that the operation has no open steps.
fn is_complete(response: &TenantSuspension, operation: Operation) -> bool {
    operation.is_reached(&response.state) && open_steps(&response.steps).is_empty()
}

/// Polls until the state of the tenant shows that the operation is complete.
async fn wait_for_completion(
    broker: &Broker,
    tenant: &str,
    operation: Operation,
    deadline: Instant,
    flags: &AccountFlags,
    world: &World,
) -> Result<(), Error> {
    let mut reported = String::new();
    loop {
        let state = broker.tenant(tenant).await?.state;
        if operation.is_reached(&state) {
            return Ok(());
        }
        if Instant::now() + POLL_INTERVAL > deadline {
            return Err(Error::unreachable(format!(
                "the tenant is still {state}; the operation is not complete"
            ))
            .hint(format!(
                "the broker continues by itself: {} shows the state",
                flags.command(&format!("tenants get {tenant}"))
            )));
        }
        if state != reported {
            world.print_message(format!("Waiting; the tenant is {state}"));
            reported = state;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
