//! The commands `models install`, `models status` and `models delete`.

use std::time::Duration;

use tenant_shared::{
    Code, DISTRIBUTION_NAME, DistributionStatus, InstallDistributionRequest, InstallModel,
    is_dns_label,
};
use tokio::time::Instant;

use super::target::CommandTarget;
use crate::{
    cli::models::{DeleteDistribution, InNamespace, InstallModels},
    error::{Error, Kind},
    output, runtime,
    store::AccountFlags,
    world::World,
};

/// Interval at which the broker is asked for the phase.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Runs `models install`.
pub(super) fn install(
    flags: &AccountFlags,
    options: &InstallModels,
    world: &mut World,
) -> Result<(), Error> {
    let wait = options.wait.unwrap_or_default();
    let target = CommandTarget::open_for(flags, &options.place.namespace, wait, world)?;
    let model = |name: &String| InstallModel { model_name: name.clone(), is_maas_model: false };
    let request = InstallDistributionRequest { models: options.models.iter().map(model).collect() };
    let namespace = &target.namespace;
    let installed = runtime::block_on(target.broker.install_distribution(namespace, &request))?
        .map_err(|error| explain_unknown_model(error, namespace, flags))
        .map_err(|error| explain_existing(error, namespace, flags))?;
    output::show(world, options.place.shown.output, &installed, |it| {
        format!("LlamaStackDistribution {} created in {}\n", it.data.name, target.namespace)
    })?;
    if options.wait.is_none() {
        world.print_message(format!("to see its phase: {}", status_command(namespace, flags)));
        return Ok(());
    }
    let deadline = Instant::now() + wait;
    runtime::block_on(wait_until_ready(&target, &installed.data.name, deadline, flags, world))?
}

/// The command that shows the phase.
fn status_command(namespace: &str, flags: &AccountFlags) -> String {
    flags.command(&format!("models status -n {namespace}"))
}

/// Adds the namespace to the error for an unknown model.
fn explain_unknown_model(error: Error, namespace: &str, flags: &AccountFlags) -> Error {
    if error.code != Some(Code::NotFound) {
        return error;
    }
    Error { message: format!("{} in namespace {namespace}", error.message), ..error }
        .hint(format!("its models: {}", flags.command(&format!("models -n {namespace}"))))
}

/// Adds the command that deletes the Llama Stack to the error for one that is there already.
fn explain_existing(error: Error, namespace: &str, flags: &AccountFlags) -> Error {
    let Some(name) = existing_name(&error.message) else { return error };
    let name = if name == DISTRIBUTION_NAME { String::new() } else { format!(" {name}") };
    let command = flags.command(&format!("models delete{name} -n {namespace}"));
    error.hint(format!("to delete it: {command}"))
}

/// Name of the Llama Stack in the broker's text that one is there already and can be deleted; `None`
/// also if it is no DNS subdomain, because it becomes a part of a command that people copy.
fn existing_name(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(" already, ")?;
    let (name, _) = rest.split_once("; delete it first")?;
    name.split('.').all(is_dns_label).then_some(name)
}

/// The error for a Llama Stack that does not exist, or that others made.
fn explain_unknown_distribution(
    error: Error,
    namespace: &str,
    name: &str,
    flags: &AccountFlags,
) -> Error {
    if error.code != Some(Code::NotFound) {
        return error;
    }
    let message = format!(
        "namespace {namespace} has no LlamaStackDistribution {name} that `kubectl tenant models \
         install` made, and others are not deleted"
    );
    Error { message, ..error }
        .hint(format!("see which there is: {}", status_command(namespace, flags)))
}

/// The end of the wait for a phase.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// It serves.
    Ready,
    /// It is on its way, in this phase.
    Waiting(String),
    /// It does not become ready, for this reason.
    Ended(Error),
}

/// What a status says about the distribution of this name.
fn progress(status: Option<&DistributionStatus>, name: &str) -> Progress {
    match status.filter(|status| status.name == name) {
        None => Progress::Ended(Error::refused(format!("{name} was deleted meanwhile"))),
        Some(status) => match status.phase.as_str() {
            "Ready" => Progress::Ready,
            "Failed" => {
                Progress::Ended(Error::other(format!("{name} failed")).hint(format!(
                    "its conditions: kubectl describe llamastackdistribution {name}"
                )))
            }
            "Terminating" => Progress::Ended(Error::refused(format!("{name} is being deleted"))),
            "" => Progress::Waiting("not yet seen by its operator".to_owned()),
            phase => Progress::Waiting(phase.to_owned()),
        },
    }
}

/// Polls until the distribution is ready, and reports each new phase. A broker that cannot answer
/// for a moment is asked again.
async fn wait_until_ready(
    target: &CommandTarget,
    name: &str,
    deadline: Instant,
    flags: &AccountFlags,
    world: &World,
) -> Result<(), Error> {
    let mut reported = String::new();
    loop {
        let mut pause = POLL_INTERVAL;
        let seen = match target.broker.distribution_status(&target.namespace).await {
            Ok(answer) => match progress(answer.data.as_ref(), name) {
                Progress::Ready => {
                    world.print_message(format!("{name}: Ready"));
                    return Ok(());
                }
                Progress::Ended(error) => return Err(error),
                Progress::Waiting(phase) => phase,
            },
            Err(error) if error.kind == Kind::Unreachable => {
                pause = error.retry_after.unwrap_or_default().max(pause);
                error.message
            }
            Err(error) => return Err(error),
        };
        if seen != reported {
            world.print_message(format!("{name}: {seen}"));
            reported = seen;
        }
        if Instant::now() + pause > deadline {
            return Err(Error::unreachable(format!("{name} is not ready yet: {reported}")).hint(
                format!(
                    "the cluster continues by itself: {}; a pod that a quota refuses never starts: \
                     kubectl get events -n {}",
                    status_command(&target.namespace, flags),
                    target.namespace
                ),
            ));
        }
        tokio::time::sleep(pause).await;
    }
}

/// Runs `models status`.
pub(super) fn status(
    flags: &AccountFlags,
    options: &InNamespace,
    world: &mut World,
) -> Result<(), Error> {
    let CommandTarget { broker, namespace } =
        CommandTarget::open(flags, &options.namespace, world)?;
    let found = runtime::block_on(broker.distribution_status(&namespace))??;
    output::show(world, options.shown.output, &found, |it| table(it.data.as_slice()))?;
    if found.data.is_none() {
        world.print_message(format!(
            "there is no Llama Stack in {namespace}; install one: {}",
            flags.command(&format!("models install MODEL -n {namespace}"))
        ));
    }
    Ok(())
}

fn table(distributions: &[DistributionStatus]) -> String {
    let rows: Vec<[String; 4]> = distributions
        .iter()
        .map(|it| {
            // The operator of Llama Stack sets all of them.
            let or_none = |text: &str| if text.is_empty() { "<none>" } else { text }.to_owned();
            let distribution = &it.distribution_config.active_distribution;
            [it.name.clone(), or_none(&it.phase), or_none(&it.version), or_none(distribution)]
        })
        .collect();
    output::columns(["NAME", "PHASE", "VERSION", "DISTRIBUTION"], &rows)
}

/// Runs `models delete`.
pub(super) fn delete(
    flags: &AccountFlags,
    options: &DeleteDistribution,
    world: &mut World,
) -> Result<(), Error> {
    let CommandTarget { broker, namespace } =
        CommandTarget::open(flags, &options.place.namespace, world)?;
    let deleted = runtime::block_on(broker.delete_distribution(&namespace, &options.name))?
        .map_err(|error| explain_unknown_distribution(error, &namespace, &options.name, flags))?;
    output::show(world, options.place.shown.output, &deleted, |_| {
        format!("LlamaStackDistribution {} deleted in {namespace}\n", options.name)
    })
}

#[cfg(test)]
mod tests {
    use tenant_shared::DistributionConfig;

    use super::*;

    fn status(phase: &str) -> DistributionStatus {
        DistributionStatus {
            name: "lsd".to_owned(),
            phase: phase.to_owned(),
            version: "0.3.5".to_owned(),
            distribution_config: DistributionConfig {
                active_distribution: "rh-dev".to_owned(),
                ..DistributionConfig::empty()
            },
        }
    }

    #[test]
    fn a_phase_ends_the_wait_or_not() {
        let kind = |phase: &str| match progress(Some(&status(phase)), "lsd") {
            Progress::Ended(error) => Some(error.kind),
            _ => None,
        };
        assert_eq!(progress(Some(&status("Ready")), "lsd"), Progress::Ready);
        for phase in ["Pending", "Initializing", "Later"] {
            let waiting = Progress::Waiting(phase.to_owned());
            assert_eq!(progress(Some(&status(phase)), "lsd"), waiting);
        }
        assert!(matches!(progress(Some(&status("")), "lsd"), Progress::Waiting(_)));
        assert_eq!(kind("Failed"), Some(Kind::Other));
        assert_eq!(kind("Terminating"), Some(Kind::Refused));
        for gone in [None, Some(status("Ready"))] {
            let ended = progress(gone.as_ref(), "other");
            assert!(matches!(ended, Progress::Ended(_)), "{ended:?}");
        }
    }

    #[test]
    fn what_does_not_exist_has_its_namespace_and_a_command() {
        let not_found =
            |message: &str| Error { code: Some(Code::NotFound), ..Error::refused(message) };
        let text = |error: Error| format!("{error}\n{}", error.hint.clone().unwrap_or_default());
        let flags = AccountFlags::default();
        let model = explain_unknown_model(
            not_found("there is no InferenceService and no LLMInferenceService named llama"),
            "team-a",
            &flags,
        );
        let unknown = not_found("there is no x of this service");
        let distribution = explain_unknown_distribution(unknown, "team-a", "x", &flags);
        insta::assert_snapshot!(format!("{}\n{}", text(model), text(distribution)), @r"
        there is no InferenceService and no LLMInferenceService named llama in namespace team-a
        its models: kubectl tenant models -n team-a
        namespace team-a has no LlamaStackDistribution x that `kubectl tenant models install` made, and others are not deleted
        see which there is: kubectl tenant models status -n team-a
        ");
        let other = Error::refused("there already");
        assert_eq!(explain_unknown_model(other.clone(), "team-a", &flags), other);
        assert_eq!(explain_unknown_distribution(other.clone(), "team-a", "x", &flags), other);
    }

    #[test]
    fn a_llama_stack_that_is_there_already_has_the_command_that_deletes_it() {
        let flags = AccountFlags { profile: Some("work".to_owned()), ..AccountFlags::default() };
        for (name, arguments) in [(DISTRIBUTION_NAME, "-n team-a"), ("other", "other -n team-a")] {
            let error = Error::refused(format!(
                "there is a LlamaStackDistribution already, {name}; delete it first to install \
                 another one"
            ));
            let hint = explain_existing(error, "team-a", &flags).hint.unwrap();
            let command = format!("kubectl tenant models delete {arguments} --profile work");
            assert_eq!(hint, format!("to delete it: {command}"));
        }
        let other = Error::refused("there is a LlamaStackDistribution x; delete it with kubectl");
        assert_eq!(explain_existing(other.clone(), "team-a", &flags), other);
        for name in ["x$(id)", "x y", "", "a..b"] {
            let text = format!("there is a thing already, {name}; delete it first to go on");
            let error = Error::refused(text);
            assert_eq!(explain_existing(error.clone(), "team-a", &flags), error, "{name}");
        }
    }

    #[test]
    fn a_status_is_one_row() {
        let new = DistributionStatus { version: String::new(), ..status("") };
        insta::assert_snapshot!(table(&[status("Ready"), new]), @r"
        NAME   PHASE    VERSION   DISTRIBUTION
        lsd    Ready    0.3.5     rh-dev
        lsd    <none>   <none>    rh-dev
        ");
    }
}
