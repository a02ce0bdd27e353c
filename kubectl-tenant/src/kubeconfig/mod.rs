//! Merging a context into the kubeconfig without losing what this program does not know.
//!
//! Under client-go's lock the file is read, merged as values ([`merge`]), then as text
//! ([`splice`]); if the text means what the values say it is written, else the values are, and the
//! person is told that comments went. The file is replaced by a rename, so that a crash leaves the
//! old one or the new one.

mod entries;
mod file;
mod merge;
mod splice;

use std::path::PathBuf;

pub(crate) use entries::Entries;
use serde_norway::Value;

use tenant_shared::{CLUSTER_NAME, CONTEXT_NAME, SERVICE_ACCOUNT_NAME};

use crate::{error::Error, identity::Identity, world::World};

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installed {
    /// The file, as the person names it.
    pub(crate) path: PathBuf,
    /// The context in it.
    pub(crate) context: String,
}

/// The new text of a kubeconfig, and whether comments and layout are still in it.
fn merged(text: &str, entries: &Entries, use_context: bool) -> Result<(String, bool), Error> {
    let original: Value = serde_norway::from_str(text).map_err(|error| {
        Error::other(format!("it is no YAML document: {error}"))
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

/// Merges entries into the person's kubeconfig. With `dry_run` the new text goes to stdout instead.
pub(crate) async fn install(
    entries: &Entries,
    use_context: bool,
    dry_run: bool,
    world: &mut World,
) -> Result<Installed, Error> {
    let path = file::target(&world.env)?;
    let installed = Installed { path: path.clone(), context: entries.context().to_owned() };
    let in_file = |error: Error| Error {
        message: format!("the kubeconfig {} was not changed: {}", path.display(), error.message),
        ..error
    };
    let _lock =
        if dry_run { None } else { Some(file::FileLock::take(&path, &world.stderr).await?) };
    let real = file::resolve(&path)?;
    let old = file::read(&real)?;
    let (new, layout_kept) = merged(&old, entries, use_context).map_err(in_file)?;
    if dry_run {
        world.print(&new)?;
        return Ok(installed);
    }
    if new != old {
        if !layout_kept {
            world.say(format!(
                "warning: {} is not in block style and was written anew: its comments are gone",
                path.display()
            ));
        }
        file::replace(&real, &new)?;
    }
    Ok(installed)
}

/// Looks for entries in the way before a person signs in: with the name that all three will have, or
/// with the broker's names.
pub(crate) fn check_free(
    name: Option<&str>,
    identity: &Identity,
    world: &World,
) -> Result<(), Error> {
    let names = name.map_or([CLUSTER_NAME, CONTEXT_NAME, SERVICE_ACCOUNT_NAME], |name| [name; 3]);
    let path = file::target(&world.env)?;
    let text = file::read(&file::resolve(&path)?)?;
    let document: Value = serde_norway::from_str(&text).map_err(|error| {
        Error::other(format!("the kubeconfig {} is no YAML document: {error}", path.display()))
            .hint("repair it, or name another file in KUBECONFIG")
    })?;
    merge::check_free(&document, names, identity).map_err(|error| {
        Error::other(format!("the kubeconfig {} cannot be changed: {error}", path.display())).hint(
            "nobody was signed in yet; choose another name for all three entries: \
             kubectl tenant login --context NAME",
        )
    })
}

/// Whether a name may be given to entries: text that every YAML reader takes for text.
pub(crate) fn check_name(name: &str) -> Result<String, String> {
    const WORDS: [&str; 10] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"];
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic());
    let plain = name.chars().all(|character| {
        character.is_ascii_alphanumeric() || ['-', '_', '.', '/', '@'].contains(&character)
    });
    if !starts_well || !plain || name.len() > 253 || WORDS.contains(&name.to_lowercase().as_str()) {
        return Err(
            "a name begins with a letter and holds letters, digits and - _ . / @".to_owned()
        );
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests;
