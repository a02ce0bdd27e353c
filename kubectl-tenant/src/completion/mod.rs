//! Completion: scripts for shells, and the completions that kubectl asks for.
//!
//! kubectl completes `kubectl tenant …` by running the program `kubectl_complete-tenant` with the
//! words of the command line, and reads one candidate per line, then a directive, as in cobra's
//! completion protocol. That program is a script, which runs `kubectl-tenant __complete`. The
//! scripts for `kubectl-tenant …` itself are static: they know commands, flags and fixed values.

mod cache;
mod candidate;
mod command_line;
mod install;
mod values;

use std::{ffi::OsString, io};

use clap::{Arg, CommandFactory, ValueHint};
use clap_complete::Shell;

pub(crate) use cache::clear as clear_cache;

use self::{
    candidate::Candidate,
    command_line::{CommandLine, Expected},
};
use crate::{
    cli::{Cli, CompletionAction},
    error::Error,
    keyring::Keyring,
    world::{Messages, World},
};

/// First argument of a call that asks for completions; the words of the command line follow.
pub(crate) const COMPLETE_ARGUMENT: &str = "__complete";

/// The program that kubectl runs to complete `kubectl tenant …`.
const KUBECTL_SCRIPT: &str = "#!/bin/sh\nexec kubectl-tenant __complete \"$@\"\n";

/// cobra's `ShellCompDirectiveDefault`: the shell completes file names if there is no candidate.
const COMPLETE_FILES: &str = ":0";
/// cobra's `ShellCompDirectiveNoFileComp`: do not complete file names.
const NO_FILES: &str = ":4";
/// cobra's `ShellCompDirectiveFilterDirs`: the shell completes names of folders.
const COMPLETE_FOLDERS: &str = ":16";

/// Runs `completion`.
pub(crate) fn completion(action: &CompletionAction, world: &mut World) -> Result<(), Error> {
    let shell = match action {
        CompletionAction::Bash => Shell::Bash,
        CompletionAction::Zsh => Shell::Zsh,
        CompletionAction::Fish => Shell::Fish,
        CompletionAction::Kubectl => return world.print(KUBECTL_SCRIPT),
        CompletionAction::Install { folder } => return install::install(folder.as_deref(), world),
    };
    let mut text = Vec::new();
    let mut command = Cli::command().bin_name(tenant_shared::PLUGIN_COMMAND);
    clap_complete::generate(shell, &mut command, tenant_shared::PLUGIN_COMMAND, &mut text);
    world.print(&String::from_utf8_lossy(&text))
}

/// Answers kubectl: `words` is the command line after `kubectl tenant`, and the last word is the one
/// that is being typed. Prints one candidate per line, with a description after a tab where there
/// is one, and cobra's directive. There is no message and no question, whatever fails.
pub(crate) fn complete(words: &[OsString], world: &mut World) -> Result<(), Error> {
    world.stderr = Messages::to(io::sink());
    // A keyring may ask the person for its password.
    world.keyring = Keyring::None;
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let (typed, before) = words.split_last().unwrap_or((&"", &[]));
    let mut command = Cli::command();
    command.build();
    let line = CommandLine::parse(&command, before, typed);
    let mut candidates = Vec::new();
    let argument = match line.expected {
        Expected::Flag => {
            candidates.extend(flags(&line));
            None
        }
        Expected::Value(argument) => Some(argument),
        Expected::Word { subcommands, positional } => {
            if subcommands {
                candidates.extend(subcommands_of(&line));
            }
            positional
        }
    };
    if let Some(argument) = argument {
        candidates.extend(values::candidates(argument, &line, world));
    }
    candidates.retain(|candidate| candidate.value.starts_with(line.typed));
    let mut text: String = candidates.iter().map(Candidate::line).collect();
    text.extend([argument.map_or(NO_FILES, directive), "\n"]);
    world.print(&text)
}

/// Long flags of the command.
fn flags(line: &CommandLine<'_>) -> Vec<Candidate> {
    let shown = line.command.get_arguments().filter(|argument| !argument.is_hide_set());
    shown.filter_map(Arg::get_long).map(|long| Candidate::plain(format!("--{long}"))).collect()
}

/// Names of the command's subcommands.
fn subcommands_of(line: &CommandLine<'_>) -> Vec<Candidate> {
    let shown = line.command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(|command| Candidate::plain(command.get_name())).collect()
}

/// What the shell completes by itself for an argument.
fn directive(argument: &Arg) -> &'static str {
    match argument.get_value_hint() {
        ValueHint::FilePath => COMPLETE_FILES,
        ValueHint::DirPath => COMPLETE_FOLDERS,
        _ => NO_FILES,
    }
}
