//! The commands `namespaces adopt` and `namespaces transfer`: an administrator moves a namespace into
//! a tenant.
//!
//! The broker plans and announces the move, and its own credential may not carry it out. Therefore
//! the labels are written with kubectl and the credential of the administrator's kubeconfig.

use std::{
    fmt::Write as _,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tenant_shared::{
    MoveNamespaceRequest, NamespaceMovePlan, POD_SECURITY, TENANT_LABEL, TENANT_UID_LABEL,
    is_stricter_pod_security,
};
use tokio::time::Instant;

use crate::{
    account::Account,
    broker::Broker,
    cli::namespaces::{AdoptNamespace, MoveFlags, TransferNamespace},
    error::Error,
    http::TOTAL_TIMEOUT,
    output, runtime,
    store::AccountFlags,
    terminal,
    world::World,
};

/// Interval at which the broker is asked whether the namespace arrived.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Status of a namespace in which the members of its tenant have their rights.
const ACTIVE: &str = "active";
/// Hint of a request that the rights of the kubeconfig may not suffice for.
const ADMINISTRATOR_HINT: &str =
    "name a kubeconfig of an administrator of the cluster: --kubeconfig, --context";
/// Bytes of an answer to a question.
const MAX_ANSWER_BYTES: u64 = 64;

/// A move that a person asked for.
struct RequestedMove<'a> {
    namespace: &'a str,
    to: &'a str,
    /// Whether another tenant has the namespace.
    is_transfer: bool,
    flags: &'a MoveFlags,
}

/// Runs `namespaces adopt`.
pub(super) fn adopt(
    flags: &AccountFlags,
    options: &AdoptNamespace,
    world: &mut World,
) -> Result<(), Error> {
    let AdoptNamespace { namespace, tenant: to, flags: move_flags } = options;
    run(flags, &RequestedMove { namespace, to, is_transfer: false, flags: move_flags }, world)
}

/// Runs `namespaces transfer`.
pub(super) fn transfer(
    flags: &AccountFlags,
    options: &TransferNamespace,
    world: &mut World,
) -> Result<(), Error> {
    let TransferNamespace { namespace, to, flags: move_flags } = options;
    run(flags, &RequestedMove { namespace, to, is_transfer: true, flags: move_flags }, world)
}

fn run(
    flags: &AccountFlags,
    requested: &RequestedMove<'_>,
    world: &mut World,
) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let (namespace, to) = (requested.namespace, requested.to);
    let plan = runtime::block_on(account.broker.move_plan(to, namespace))??;
    output::show(world, requested.flags.shown.output, &plan, text)?;
    check(requested, &plan)?;
    check_answer(requested, &plan)?;
    check_level(requested.flags, &plan)?;
    // The API server decides on the rights of the kubeconfig before anything is announced.
    kubectl_patch(requested.flags, &plan, true)?;
    if requested.flags.dry_run {
        world.print_message("Dry run: nothing was changed.");
        return Ok(());
    }
    confirm(requested, world)?;
    let request = MoveNamespaceRequest {
        namespace_uid: plan.namespace_uid.clone(),
        from: plan.from.clone(),
        reason: requested.flags.reason.text.clone(),
    };
    // The time for an answer does not count.
    let deadline = Instant::now() + Duration::from_secs(requested.flags.timeout.into());
    let broker = account.broker.with_deadline(deadline + TOTAL_TIMEOUT);
    let announced = runtime::block_on(broker.announce_move(to, namespace, &request))??;
    if announced.labels != plan.labels {
        return Err(
            Error::refused("the Tenant changed since the plan was made").hint("run it again")
        );
    }
    kubectl_patch(requested.flags, &plan, false)?;
    world.print_message(format!("Namespace {namespace} goes to tenant {to} …"));
    runtime::block_on(wait(&broker, requested, deadline))??;
    world.print_message(format!("Namespace {namespace} is one of tenant {to}."));
    Ok(())
}

/// Checks that the move is possible, and that the command fits.
fn check(requested: &RequestedMove<'_>, plan: &NamespaceMovePlan) -> Result<(), Error> {
    let (namespace, to) = (requested.namespace, requested.to);
    if !plan.refusals.is_empty() {
        let reasons = plan.refusals.join("; ");
        return Err(Error::refused(format!("namespace {namespace} cannot be moved: {reasons}")));
    }
    match (&plan.from, requested.is_transfer) {
        (Some(from), false) => {
            Err(Error::refused(format!("namespace {namespace} is one of tenant {from}"))
                .hint(format!("kubectl tenant namespaces transfer {namespace} --to {to}")))
        }
        (None, true) => Err(Error::refused(format!("namespace {namespace} is no tenant's"))
            .hint(format!("kubectl tenant namespaces adopt {namespace} --tenant {to}"))),
        _ => Ok(()),
    }
}

/// Checks that the broker asks for nothing but the move, because the labels are written with the
/// rights of an administrator of the cluster, which the broker does not have.
fn check_answer(requested: &RequestedMove<'_>, plan: &NamespaceMovePlan) -> Result<(), Error> {
    let is_expected = |(label, value): (&String, &String)| match label.as_str() {
        TENANT_LABEL => value == requested.to,
        TENANT_UID_LABEL => !value.is_empty(),
        POD_SECURITY => matches!(value.as_str(), "baseline" | "restricted"),
        _ => false,
    };
    let has_both = [TENANT_LABEL, TENANT_UID_LABEL].iter().all(|it| plan.labels.contains_key(*it));
    // kubectl changes whatever namespace it finds if these are empty.
    let is_about_it = plan.namespace == requested.namespace
        && plan.to == requested.to
        && !plan.namespace_uid.is_empty()
        && !plan.resource_version.is_empty();
    if is_about_it && has_both && plan.labels.iter().all(is_expected) {
        Ok(())
    } else {
        Err(Error::other(
            "the broker asks for labels that the move does not need; nothing was changed",
        ))
    }
}

/// Checks that the plan weakens no Pod Security level. The patch is refused if the namespace changes
/// after this, because it has the same `resourceVersion`.
fn check_level(flags: &MoveFlags, plan: &NamespaceMovePlan) -> Result<(), Error> {
    let Some(level) = plan.labels.get(POD_SECURITY) else { return Ok(()) };
    let mut command = kubectl(flags);
    command.args(["get", "namespace", &plan.namespace, "-o", "json"]);
    let live = run_kubectl(command, "did not return the namespace")
        .map_err(|error| error.hint(ADMINISTRATOR_HINT))?;
    let live: Value = serde_json::from_slice(&live)
        .map_err(|error| Error::other(format!("kubectl did not return a namespace: {error}")))?;
    let metadata = &live["metadata"];
    if metadata["uid"] != plan.namespace_uid.as_str()
        || metadata["resourceVersion"] != plan.resource_version.as_str()
    {
        return Err(Error::refused(
            "the namespace changed since the plan was made, or is one of another cluster",
        )
        .hint("run it again, with the kubeconfig of the broker's cluster"));
    }
    if is_stricter_pod_security(Some(level), metadata["labels"][POD_SECURITY].as_str()) {
        Ok(())
    } else {
        Err(Error::other("the broker asks for a weaker Pod Security level; nothing was changed"))
    }
}

/// Asks the person, unless they said yes already.
fn confirm(requested: &RequestedMove<'_>, world: &World) -> Result<(), Error> {
    if requested.flags.yes {
        return Ok(());
    }
    if !(world.stdin_is_terminal)() {
        return Err(Error::usage("nobody can be asked here; --yes moves the namespace"));
    }
    let question =
        format!("Move namespace {} into tenant {}? [y/N] ", requested.namespace, requested.to);
    world.stderr.write(&question);
    let answer = world.stdin.line(MAX_ANSWER_BYTES);
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Error::other("nothing was changed"))
    }
}

/// Sets the labels of a plan with the administrator's kubeconfig, if the namespace is still as it was
/// planned.
fn kubectl_patch(
    flags: &MoveFlags,
    plan: &NamespaceMovePlan,
    is_dry_run: bool,
) -> Result<(), Error> {
    let metadata = json!({
        "uid": plan.namespace_uid,
        "resourceVersion": plan.resource_version,
        "labels": plan.labels,
    });
    let patch = json!({ "metadata": metadata }).to_string();
    let mut command = kubectl(flags);
    command.args(["patch", "namespace", &plan.namespace, "--type=merge", "-o", "name"]);
    command.arg(format!("--patch={patch}"));
    if is_dry_run {
        command.arg("--dry-run=server");
    }
    let hint = if is_dry_run {
        ADMINISTRATOR_HINT
    } else {
        "nothing moves without the labels; run the command again"
    };
    let labelled = run_kubectl(command, "did not label the namespace");
    labelled.map(drop).map_err(|error| error.hint(hint))
}

/// kubectl with the kubeconfig of the administrator.
fn kubectl(flags: &MoveFlags) -> Command {
    let mut command = Command::new("kubectl");
    for (flag, value) in [("--kubeconfig", &flags.kubeconfig), ("--context", &flags.context)] {
        if let Some(value) = value {
            command.arg(format!("{flag}={value}"));
        }
    }
    command
}

/// Runs kubectl, and returns its output. `failure` says what it did not do.
fn run_kubectl(mut command: Command, failure: &str) -> Result<Vec<u8>, Error> {
    let finished = command.stdin(Stdio::null()).output().map_err(|error| {
        Error::other(format!("cannot run kubectl: {error}; it has to be on PATH"))
    })?;
    if finished.status.success() {
        return Ok(finished.stdout);
    }
    let said = String::from_utf8_lossy(&finished.stderr);
    let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Err(Error::refused(format!("kubectl {failure}: {}", said.join("; "))))
}

/// Polls until the new tenant has the namespace with all rights.
async fn wait(
    broker: &Broker,
    requested: &RequestedMove<'_>,
    deadline: Instant,
) -> Result<(), Error> {
    loop {
        let namespaces = broker.tenant_namespaces(requested.to).await?.items;
        let found = namespaces.iter().find(|it| it.name == requested.namespace);
        if found.is_some_and(|it| it.status == ACTIVE) {
            return Ok(());
        }
        if Instant::now() + POLL_INTERVAL > deadline {
            let status = found.map_or("not the tenant's yet", |it| it.status.as_str());
            return Err(Error::unreachable(format!(
                "namespace {} is {status}; the move is not complete",
                requested.namespace
            ))
            .hint(format!(
                "the broker continues by itself: kubectl tenant namespaces --tenant {to} and \
                 kubectl tenant tenants get {to} show the state",
                to = requested.to
            )));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A plan for people.
fn text(plan: &NamespaceMovePlan) -> String {
    let was = match (&plan.from, &plan.former) {
        (Some(from), _) => format!("tenant {from}"),
        (None, Some(former)) => format!("no tenant (until its deletion {former})"),
        (None, None) => "no tenant".to_owned(),
    };
    let head = format!("namespace {}: {was} -> tenant {}", plan.namespace, plan.to);
    let mut text = format!("{}\n", terminal::sanitize(&head));
    for (title, lines) in [("changes", &plan.changes), ("refused", &plan.refusals)] {
        if !lines.is_empty() {
            let _ = writeln!(text, "{title}:");
        }
        for line in lines {
            let _ = writeln!(text, "- {}", terminal::sanitize(line));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::error::Kind;

    fn plan(from: Option<&str>, refusals: &[&str]) -> NamespaceMovePlan {
        NamespaceMovePlan {
            namespace: "solar-a".to_owned(),
            namespace_uid: "n-1".to_owned(),
            resource_version: "7".to_owned(),
            from: from.map(str::to_owned),
            former: None,
            to: "lunar".to_owned(),
            labels: BTreeMap::new(),
            changes: vec!["RoleBindings that are deleted: own\u{1b}[2J".to_owned()],
            refusals: refusals.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    #[test]
    fn a_plan_is_printed_without_control_characters() {
        let printed = text(&plan(Some("solar"), &["it is suspended"]));
        let expected = "namespace solar-a: tenant solar -> tenant lunar\nchanges:\n- RoleBindings \
                        that are deleted: own";
        assert!(printed.starts_with(expected), "{printed:?}");
        assert!(printed.ends_with("refused:\n- it is suspended\n"), "{printed:?}");
        assert!(!printed.contains('\u{1b}'), "{printed:?}");
    }

    /// A broker that somebody took over must not use the rights of the administrator.
    #[test]
    fn only_the_labels_of_the_move_are_written() {
        let flags = MoveFlags::default();
        let requested =
            RequestedMove { namespace: "solar-a", to: "lunar", is_transfer: true, flags: &flags };
        let labels = |more: &[(&str, &str)]| -> BTreeMap<String, String> {
            [(TENANT_LABEL, "lunar"), (TENANT_UID_LABEL, "t-1")]
                .iter()
                .chain(more)
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        let good = |more: &[(&str, &str)]| NamespaceMovePlan {
            labels: labels(more),
            ..plan(Some("solar"), &[])
        };
        assert!(check_answer(&requested, &good(&[])).is_ok());
        assert!(check_answer(&requested, &good(&[(POD_SECURITY, "restricted")])).is_ok());
        for bad in [
            good(&[(POD_SECURITY, "privileged")]),
            good(&[("tenant-broker.io/home", "true")]),
            good(&[(TENANT_LABEL, "mars")]),
            NamespaceMovePlan { namespace: "kube-system".to_owned(), ..good(&[]) },
            NamespaceMovePlan { namespace: "--kubeconfig=x".to_owned(), ..good(&[]) },
            NamespaceMovePlan { to: "mars".to_owned(), ..good(&[]) },
            NamespaceMovePlan { namespace_uid: String::new(), ..good(&[]) },
            NamespaceMovePlan { resource_version: String::new(), ..good(&[]) },
            plan(Some("solar"), &[]),
        ] {
            assert!(check_answer(&requested, &bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_command_has_to_fit_the_plan() {
        let flags = MoveFlags::default();
        let requested = |is_transfer| RequestedMove {
            namespace: "solar-a",
            to: "lunar",
            is_transfer,
            flags: &flags,
        };
        assert!(check(&requested(true), &plan(Some("solar"), &[])).is_ok());
        assert!(check(&requested(false), &plan(None, &[])).is_ok());
        for (is_transfer, plan, text) in [
            (false, plan(Some("solar"), &[]), "namespaces transfer solar-a --to lunar"),
            (true, plan(None, &[]), "namespaces adopt solar-a --tenant lunar"),
            (true, plan(Some("solar"), &["tenant solar is suspended"]), "solar is suspended"),
        ] {
            let error = check(&requested(is_transfer), &plan).unwrap_err();
            assert_eq!(error.kind, Kind::Refused);
            let all = format!("{error} {}", error.hint.clone().unwrap_or_default());
            assert!(all.contains(text), "{all}");
        }
    }
}
