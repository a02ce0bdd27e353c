//! The commands `suspend` and `resume`: the kill switch for a workspace, and the way back.

use std::time::Duration;

use tenant_shared::{Step, StepResult, Suspension, Workspace, WorkspaceStatus};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    account::Account,
    broker::Broker,
    cli::Suspend,
    error::{Error, Kind},
    output, runtime,
    store::Choice,
    workspace,
    world::World,
};

/// How often the broker is asked how far it is.
const PAUSE: Duration = Duration::from_secs(1);

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Suspend,
    Resume,
}

impl Wish {
    fn verb(self) -> &'static str {
        match self {
            Self::Suspend => "suspend",
            Self::Resume => "resume",
        }
    }

    fn goal(self) -> WorkspaceStatus {
        match self {
            Self::Suspend => WorkspaceStatus::Suspended,
            Self::Resume => WorkspaceStatus::Provisioned,
        }
    }

    fn way(self) -> WorkspaceStatus {
        match self {
            Self::Suspend => WorkspaceStatus::Suspending,
            Self::Resume => WorkspaceStatus::Resuming,
        }
    }

    /// What holds from the moment of the decision on, whatever is open.
    fn decided(self) -> &'static str {
        match self {
            Self::Suspend => "Nothing is issued for it any more",
            Self::Resume => "It is to be given back",
        }
    }

    fn done(self, id: Uuid) -> String {
        match self {
            Self::Suspend => format!("Workspace {id} is suspended: its tokens work no more."),
            Self::Resume => format!("Workspace {id} works again; tokens from before stay dead."),
        }
    }
}

/// Runs `suspend`.
pub(crate) fn suspend(choice: &Choice, options: &Suspend, world: &mut World) -> Result<(), Error> {
    run(choice, options, Wish::Suspend, world)
}

/// Runs `resume`.
pub(crate) fn resume(choice: &Choice, options: &Suspend, world: &mut World) -> Result<(), Error> {
    run(choice, options, Wish::Resume, world)
}

fn run(choice: &Choice, options: &Suspend, wish: Wish, world: &mut World) -> Result<(), Error> {
    let account = Account::open(choice, world)?;
    // The answer may take its time, and then comes the waiting.
    let deadline = Instant::now() + Duration::from_secs(options.wait.into());
    let broker = account.broker.until(deadline + crate::http::WHOLE);
    let id = runtime::block_on(workspace::named(&broker, Some(&options.workspace)))??;
    let asked = broker.set_workspace(id, wish.verb(), options.reason.as_deref());
    match runtime::block_on(asked)? {
        Ok(answer) => {
            output::show(world, options.shown.output, &answer, table)?;
            if answer.status == wish.goal() && open(&answer.steps).is_empty() {
                world.say(wish.done(id));
                return Ok(());
            }
            world.say(format!(
                "{}, but these steps are open: {}. The broker goes on with them by itself.",
                wish.decided(),
                open(&answer.steps).join(", ")
            ));
            for step in &answer.steps {
                if let Some(detail) = &step.detail {
                    world.say(format!("{}: {detail}", step.step));
                }
            }
        }
        // A cluster that is silent makes the answer late; the decision may stand all the same.
        Err(error) if error.kind == Kind::Unreachable => {
            let workspace = runtime::block_on(broker.workspace(id))?;
            if !workspace.is_ok_and(|it| it.status == wish.goal() || it.status == wish.way()) {
                return Err(error);
            }
            world.say(format!("{}; the broker is at work.", wish.decided()));
        }
        Err(error) => return Err(error),
    }
    match runtime::block_on(wait(&broker, id, wish, deadline, world))?? {
        None => {
            world.say(wish.done(id));
            Ok(())
        }
        Some(last) => Err(Error::unreachable(format!(
            "the workspace is {}, not {}; open: {}",
            last.status.as_str(),
            wish.goal().as_str(),
            steps_of(&last).join(", ")
        ))
        .hint("the broker goes on by itself: kubectl tenant workspaces --all shows how far it is")),
    }
}

/// Waits until the broker is through; gives the workspace as it was last if it is not in time.
async fn wait(
    broker: &Broker,
    id: Uuid,
    wish: Wish,
    deadline: Instant,
    world: &World,
) -> Result<Option<Workspace>, Error> {
    let mut said = Vec::new();
    loop {
        let workspace = broker.workspace(id).await?;
        if workspace.status == wish.goal() {
            return Ok(None);
        }
        let open = steps_of(&workspace);
        if open != said {
            world.say(format!("{}: open: {}", workspace.status.as_str(), open.join(", ")));
            said = open;
        }
        // Somebody decided otherwise meanwhile, or it cannot be done.
        let is_under_way = workspace.unfinished.is_some();
        if !is_under_way || Instant::now() + PAUSE > deadline {
            return Ok(Some(workspace));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn open(steps: &[Step]) -> Vec<&str> {
    steps
        .iter()
        .filter(|step| step.result == StepResult::Open)
        .map(|step| step.step.as_str())
        .collect()
}

fn steps_of(workspace: &Workspace) -> Vec<String> {
    workspace.unfinished.as_ref().map(|it| it.open_steps.clone()).unwrap_or_default()
}

fn table(answer: &Suspension) -> String {
    let rows: Vec<[String; 3]> = answer
        .steps
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
