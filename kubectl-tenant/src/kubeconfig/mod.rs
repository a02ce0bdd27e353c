//! Kubeconfig merge: adds a context and preserves everything that this program does not know.
//!
//! Under client-go's lock the file is read and merged twice: as YAML values ([`merge`]) and as text
//! ([`splice`]). If the text parses to the same values it is written; else the values are written
//! and a warning says that comments are lost. The file is replaced by a rename, so that a crash
//! leaves the old file or the new one.

mod entries;
mod file;
mod merge;
mod splice;

use std::path::{Path, PathBuf};

pub(crate) use entries::{Entries, EntryChoices};
use serde_norway::Value;

use tenant_shared::{CLUSTER_NAME, CONTEXT_NAME, SERVICE_ACCOUNT_NAME};

use crate::{account_key::AccountKey, error::Error, world::World};

/// Result of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installed {
    /// Path of the file, as given in `KUBECONFIG`.
    pub(crate) path: PathBuf,
    /// Name of the context in the file.
    pub(crate) context: String,
}

/// Merges entries into the text of a kubeconfig. Also returns whether comments and layout were
/// preserved.
fn merge_text(text: &str, entries: &Entries, use_context: bool) -> Result<(String, bool), Error> {
    let original: Value = serde_norway::from_str(text).map_err(|error| {
        Error::other(format!("it is not a YAML document: {error}"))
            .hint("repair it, or name another file in KUBECONFIG")
    })?;
    let wanted = merge::merge(&original, entries, use_context)?;
    if let Some(text) = splice::splice(text, entries, use_context)
        && serde_norway::from_str::<Value>(&text).is_ok_and(|value| value == wanted)
    {
        return Ok((text, true));
    }
    let text = serde_norway::to_string(&wanted)
        .map_err(|error| Error::other(format!("it cannot be written: {error}")))?;
    Ok((text, false))
}

/// Merges entries into the person's kubeconfig. With `dry_run` the new text is printed to stdout
/// instead.
pub(crate) async fn install(
    entries: &Entries,
    use_context: bool,
    dry_run: bool,
    world: &mut World,
) -> Result<Installed, Error> {
    let path = file::target_path(&world.env)?;
    let installed = Installed { path: path.clone(), context: entries.context().to_owned() };
    let in_file = |error: Error| Error {
        message: format!("the kubeconfig {} was not changed: {}", path.display(), error.message),
        ..error
    };
    let _lock =
        if dry_run { None } else { Some(file::FileLock::acquire(&path, &world.stderr).await?) };
    let real = file::resolve(&path)?;
    let old = file::read(&real)?;
    let (new, layout_kept) = merge_text(&old, entries, use_context).map_err(in_file)?;
    if dry_run {
        world.print(&new)?;
        return Ok(installed);
    }
    if new != old {
        if !layout_kept {
            world.print_message(format!(
                "warning: {} is not in block style and was rewritten: its comments are lost",
                path.display()
            ));
        }
        file::replace(&real, &new)?;
    }
    Ok(installed)
}

/// Warns of a path of this plugin that does not exist here. The kubeconfig may be for another machine.
pub(crate) fn warn_of_missing_command(command: Option<&str>, world: &World) {
    if let Some(path) = command.filter(|path| !Path::new(path).is_file()) {
        world.print_message(format!(
            "warning: there is no file {path} on this machine; kubectl needs it to get a token"
        ));
    }
}

/// Checks before a sign-in that no foreign entry has a name that will be written: the one name of
/// all three entries, or the broker's names.
pub(crate) fn check_no_conflict(
    name: Option<&str>,
    account: &AccountKey,
    world: &World,
) -> Result<(), Error> {
    let names = name.map_or([CLUSTER_NAME, CONTEXT_NAME, SERVICE_ACCOUNT_NAME], |name| [name; 3]);
    let path = file::target_path(&world.env)?;
    let text = file::read(&file::resolve(&path)?)?;
    let document: Value = serde_norway::from_str(&text).map_err(|error| {
        Error::other(format!("the kubeconfig {} is not a YAML document: {error}", path.display()))
            .hint("repair it, or name another file in KUBECONFIG")
    })?;
    merge::check_no_conflict(&document, names, account).map_err(|error| {
        Error::other(format!("the kubeconfig {} cannot be changed: {error}", path.display())).hint(
            format!(
                "nobody was signed in yet; choose another name for all three entries: {}",
                account.command("login --context NAME")
            ),
        )
    })
}

#[cfg(test)]
mod tests;
