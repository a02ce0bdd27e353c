//! The commands `suspend` (the kill switch for a workspace) and `resume`.

use std::time::Duration;

use tenant_shared::{Name, Step, StepResult, Suspension, Workspace, WorkspaceStatus};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    account::Account,
    broker::Broker,
    cli::workspaces::Suspend,
    error::{Error, Kind},
    lookup::{self, Found},
    output, runtime,
    store::AccountFlags,
    world::World,
};

/// Interval at which the broker is asked for the progress.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The operation of the command.
#[derive(Clone, Copy, PartialEq, Eq)]
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

    fn target_status(self) -> WorkspaceStatus {
        match self {
            Self::Suspend => WorkspaceStatus::Suspended,
            Self::Resume => WorkspaceStatus::Provisioned,
        }
    }

    fn transitional_status(self) -> WorkspaceStatus {
        match self {
            Self::Suspend => WorkspaceStatus::Suspending,
            Self::Resume => WorkspaceStatus::Resuming,
        }
    }

    /// The effect that holds as soon as the decision is recorded, even with open steps.
    fn decided_text(self) -> &'static str {
        match self {
            Self::Suspend => "No credentials are issued for it any more",
            Self::Resume => "The resumption is recorded",
        }
    }

    fn done_text(self, title: &str) -> String {
        match self {
            Self::Suspend => format!("{title} is suspended: its tokens are invalid."),
            Self::Resume => {
                format!("{title} works again; tokens from before the suspension remain invalid.")
            }
        }
    }

    /// What an administrator may have meant by the name of a person with several workspaces.
    fn advice_for_person(self, name: &Name, flags: &AccountFlags) -> String {
        let advice = match self {
            Self::Suspend => "the person with everything",
            Self::Resume => "to let the person sign in again",
        };
        format!("{advice}: {}", flags.command(&format!("users {} {name}", self.verb())))
    }
}

/// The workspace of the operation.
struct Target {
    id: Uuid,
    title: String,
}

impl Target {
    async fn find(
        broker: &Broker,
        name: &Name,
        operation: Operation,
        flags: &AccountFlags,
    ) -> Result<Self, Error> {
        match lookup::find(broker, name).await? {
            Found::One(found) => Ok(Self { id: found.id, title: lookup::title(&found) }),
            Found::Identifier(id) => Ok(Self { id, title: format!("Workspace {id}") }),
            Found::Several(several) => Err(lookup::ambiguous(name, &several)
                .also_hint(&operation.advice_for_person(name, flags))),
        }
    }
}

/// Runs `suspend`.
pub(crate) fn suspend(
    flags: &AccountFlags,
    options: &Suspend,
    world: &mut World,
) -> Result<(), Error> {
    run(flags, options, Operation::Suspend, world)
}

/// Runs `resume`.
pub(crate) fn resume(
    flags: &AccountFlags,
    options: &Suspend,
    world: &mut World,
) -> Result<(), Error> {
    run(flags, options, Operation::Resume, world)
}

fn run(
    flags: &AccountFlags,
    options: &Suspend,
    operation: Operation,
    world: &mut World,
) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    // The request itself may take long, and the polling comes after it.
    let deadline = Instant::now() + Duration::from_secs(options.wait.into());
    let broker = account.broker.with_deadline(deadline + crate::http::TOTAL_TIMEOUT);
    let Target { id, title } =
        runtime::block_on(Target::find(&broker, &options.workspace, operation, flags))??;
    let request = broker.set_workspace(id, operation.verb(), options.reason.text.as_deref());
    match runtime::block_on(request)? {
        Ok(response) => {
            output::show(world, options.shown.output, &response, |it| steps_table(&it.steps))?;
            if is_complete(&response, operation) {
                let is_noop = operation == Operation::Resume && response.steps.is_empty();
                world.print_message(if is_noop {
                    format!("{title} was active already; nothing was done.")
                } else {
                    operation.done_text(&title)
                });
                return Ok(());
            }
            report_open_steps(operation.decided_text(), &response.steps, world);
        }
        // A cluster that does not answer delays the response, but the decision may be recorded all
        // the same.
        Err(error) if error.kind == Kind::Unreachable => {
            if !is_recorded(&broker, id, operation)? {
                return Err(error);
            }
            world.print_message(format!(
                "{}; the broker is still working on it.",
                operation.decided_text()
            ));
        }
        Err(error) => return Err(error),
    }
    match runtime::block_on(wait_for_completion(&broker, id, operation, deadline, world))?? {
        None => {
            world.print_message(operation.done_text(&title));
            Ok(())
        }
        Some(last) => Err(incomplete(&last, operation, flags)),
    }
}

/// Whether the response shows that the operation has no open steps.
fn is_complete(response: &Suspension, operation: Operation) -> bool {
    response.status == operation.target_status() && open_steps(&response.steps).is_empty()
}

/// Reports the steps that the broker still has to do, and the details of all steps.
/// `decided` is the effect that holds already.
pub(crate) fn report_open_steps(decided: &str, steps: &[Step], world: &World) {
    world.print_message(format!(
        "{decided}, but these steps are open: {}. The broker continues with them by itself.",
        open_steps(steps).join(", ")
    ));
    for step in steps {
        if let Some(detail) = &step.detail {
            world.print_message(format!("{}: {detail}", step.step));
        }
    }
}

/// Asks the broker whether it recorded the operation. If the workspace cannot be read, it did not.
fn is_recorded(broker: &Broker, id: Uuid, operation: Operation) -> Result<bool, Error> {
    let workspace = runtime::block_on(broker.workspace(id))?;
    Ok(workspace.is_ok_and(|it| {
        it.status == operation.target_status() || it.status == operation.transitional_status()
    }))
}

/// The error of an operation that is not complete at the deadline.
fn incomplete(last: &Workspace, operation: Operation, flags: &AccountFlags) -> Error {
    Error::unreachable(format!(
        "the workspace is {}, not {}; open: {}",
        last.status.as_str(),
        operation.target_status().as_str(),
        unfinished_steps(last).join(", ")
    ))
    .hint(format!(
        "the broker continues by itself: {} shows how far it is",
        flags.command("workspaces --all")
    ))
}

/// Polls until the operation is complete. After the deadline it returns the last state of the
/// workspace.
async fn wait_for_completion(
    broker: &Broker,
    id: Uuid,
    operation: Operation,
    deadline: Instant,
    world: &World,
) -> Result<Option<Workspace>, Error> {
    let mut reported = Vec::new();
    loop {
        let workspace = broker.workspace(id).await?;
        if workspace.status == operation.target_status() {
            return Ok(None);
        }
        let open = unfinished_steps(&workspace);
        if open != reported {
            world.print_message(format!(
                "{}: open: {}",
                workspace.status.as_str(),
                open.join(", ")
            ));
            reported = open;
        }
        // The operation was replaced by another one meanwhile, or it failed.
        let is_under_way = workspace.unfinished.is_some();
        if !is_under_way || Instant::now() + POLL_INTERVAL > deadline {
            return Ok(Some(workspace));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Names of the steps that are not done.
pub(crate) fn open_steps(steps: &[Step]) -> Vec<&str> {
    steps
        .iter()
        .filter(|step| step.result == StepResult::Open)
        .map(|step| step.step.as_str())
        .collect()
}

fn unfinished_steps(workspace: &Workspace) -> Vec<String> {
    workspace.unfinished.as_ref().map(|it| it.open_steps.clone()).unwrap_or_default()
}

/// Renders the steps of an operation; nothing if there are none.
pub(crate) fn steps_table(steps: &[Step]) -> String {
    if steps.is_empty() {
        return String::new();
    }
    let rows: Vec<[String; 3]> = steps
        .iter()
        .map(|step| {
            let result = match step.result {
                StepResult::Done => "done",
                StepResult::Open => "open",
            };
            [step.step.clone(), result.to_owned(), format!("{:.0} ms", step.duration_ms)]
        })
        .collect();
    output::columns(["STEP", "RESULT", "TIME"], &rows)
}
