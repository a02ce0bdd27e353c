//! `completion install`: puts the program that kubectl runs for completions on `PATH`.
//!
//! Packages contain that program. This command is for the other ways to install the plugin, such as
//! krew, which puts nothing but the plugin itself on `PATH`.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use tenant_shared::PLUGIN_COMMAND;

use super::{COMPLETE_ARGUMENT, KUBECTL_SCRIPT};
use crate::{environment::Env, error::Error, world::World};

/// File name of the program, by which kubectl finds it on `PATH`.
const PROGRAM: &str = "kubectl_complete-tenant";
const FOLDER_HINT: &str =
    "name another folder of your PATH: kubectl tenant completion install --dir DIR";

/// Runs `completion install`. It replaces a file of this program and no other, and creates the folder
/// if it is missing.
pub(super) fn install(folder: Option<&Path>, world: &World) -> Result<(), Error> {
    let folder = match folder {
        Some(folder) => {
            std::path::absolute(folder).map_err(|error| Error::file("find", folder, &error))?
        }
        None => plugin_folder(&world.env)?,
    };
    let path = folder.join(PROGRAM);
    match fs::read(&path) {
        Ok(existing) if !is_ours(&existing) => {
            return Err(Error::other(format!(
                "{} exists and was not written by {PLUGIN_COMMAND}",
                path.display()
            ))
            .hint(format!("delete it: rm {}; or {FOLDER_HINT}", path.display())));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::file("read", &path, &error).hint(FOLDER_HINT));
        }
        _ => {}
    }
    fs::create_dir_all(&folder)
        .map_err(|error| Error::file("create the folder", &folder, &error).hint(FOLDER_HINT))?;
    write_program(&folder, &path).map_err(|error| {
        // The error of the temporary file names that file.
        Error::file("write", &path, &error.kind().into()).hint(FOLDER_HINT)
    })?;
    world.print_message(format!("kubectl completes `kubectl tenant …` with {}", path.display()));
    if !folders_of_path(&world.env).any(|known| known == folder) {
        world.print_message(format!(
            "warning: {} is not on your PATH, so kubectl does not find it yet",
            folder.display()
        ));
    }
    Ok(())
}

/// Writes the program, executable for everybody, by replacing the file at once.
fn write_program(folder: &Path, path: &Path) -> io::Result<()> {
    let mut temporary =
        tempfile::Builder::new().prefix(".kubectl_complete-").tempfile_in(folder)?;
    temporary.write_all(KUBECTL_SCRIPT.as_bytes())?;
    temporary.as_file().set_permissions(fs::Permissions::from_mode(0o755))?;
    temporary.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Whether this program wrote a file: every version of the script runs this command.
fn is_ours(bytes: &[u8]) -> bool {
    let call = format!("{PLUGIN_COMMAND} {COMPLETE_ARGUMENT}");
    bytes.windows(call.len()).any(|part| part == call.as_bytes())
}

/// The first folder of `PATH` with the plugin. The path of this process is not used, because it may
/// lead into a folder of one version, as with krew and Homebrew.
fn plugin_folder(env: &Env) -> Result<PathBuf, Error> {
    folders_of_path(env).find(|folder| folder.join(PLUGIN_COMMAND).is_file()).ok_or_else(|| {
        Error::other(format!("{PLUGIN_COMMAND} is not on your PATH")).hint(FOLDER_HINT)
    })
}

/// The absolute folders of `PATH`.
fn folders_of_path(env: &Env) -> impl Iterator<Item = PathBuf> {
    let path = env.get("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.into_iter().filter(|folder| folder.is_absolute())
}
