//! Completion: scripts for shells, and the completions that kubectl asks for.

use std::ffi::OsString;

use clap::CommandFactory;
use clap_complete::Shell as Generated;

use crate::{
    cli::{Cli, Shell},
    error::Error,
    paths::Paths,
    store::Profiles,
    world::{Messages, World},
};

/// kubectl completes a plugin by running `kubectl_complete-NAME` from `PATH`.
const KUBECTL_SCRIPT: &str = "#!/bin/sh\nexec kubectl-tenant __complete \"$@\"\n";

/// cobra's `ShellCompDirectiveNoFileComp`: do not complete file names.
const NO_FILE_COMPLETION: &str = ":4";

/// Runs `completion`.
pub(crate) fn script(shell: Shell, world: &mut World) -> Result<(), Error> {
    let generated = match shell {
        Shell::Kubectl => return world.print(KUBECTL_SCRIPT),
        Shell::Bash => Generated::Bash,
        Shell::Zsh => Generated::Zsh,
        Shell::Fish => Generated::Fish,
        Shell::Powershell => Generated::PowerShell,
    };
    let mut text = Vec::new();
    let mut command = Cli::command().bin_name(tenant_shared::PLUGIN_COMMAND);
    clap_complete::generate(generated, &mut command, tenant_shared::PLUGIN_COMMAND, &mut text);
    world.print(&String::from_utf8_lossy(&text))
}

/// Runs `__complete`: the last word is the one being typed. Prints one candidate per line and
/// cobra's directive.
pub(crate) fn complete(words: &[OsString], world: &mut World) -> Result<(), Error> {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let (typed, before) = words.split_last().unwrap_or((&"", &[]));
    let mut command = Cli::command();
    command.build();
    let mut level = &command;
    for word in before {
        level = level.find_subcommand(word).unwrap_or(level);
    }
    let expected = before.last().and_then(|flag| {
        level.get_arguments().find(|argument| {
            argument.get_long().is_some_and(|long| *flag == format!("--{long}"))
                || argument.get_short().is_some_and(|short| *flag == format!("-{short}"))
        })
    });
    let expected = expected.filter(|argument| argument.get_action().takes_values());
    let mut candidates: Vec<String> = Vec::new();
    let positional = || level.get_positionals().next();
    if let Some(argument) = expected.or_else(positional) {
        if argument.get_id() == "profile" || before.ends_with(&["profiles", "use"]) {
            candidates.extend(profile_names(world));
        }
        candidates
            .extend(argument.get_possible_values().iter().map(|value| value.get_name().to_owned()));
    }
    if expected.is_none() {
        let subcommands = level.get_subcommands().filter(|command| !command.is_hide_set());
        candidates.extend(subcommands.map(|command| command.get_name().to_owned()));
        if typed.starts_with('-') {
            let flags = level.get_arguments().filter_map(|argument| argument.get_long());
            candidates.extend(flags.map(|long| format!("--{long}")));
        }
    }
    candidates.retain(|candidate| candidate.starts_with(typed));
    candidates.push(NO_FILE_COMPLETION.to_owned());
    world.print(&(candidates.join("\n") + "\n"))
}

/// Names of the accounts on this machine. Errors are ignored, because a completion cannot show
/// them.
fn profile_names(world: &World) -> Vec<String> {
    let discard = Messages::to(std::io::sink());
    Paths::from_env(&world.env)
        .and_then(|paths| Profiles::read(&paths.config, &discard))
        .map(|profiles| profiles.all().map(|it| it.name().to_owned()).collect())
        .unwrap_or_default()
}
