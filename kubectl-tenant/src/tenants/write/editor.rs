//! The editor of `tenants edit`, and the file that it opens.

use std::{
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::{
    environment::Env, error::Error, private_file, shell_words::split_words, tenants::input_file,
    world::Input,
};

/// Variables with the command line of the editor; the first one that is set counts, as for kubectl.
const VARIABLES: [&str; 2] = ["KUBE_EDITOR", "EDITOR"];
const DEFAULT_EDITOR: &str = "vi";

/// A file in a folder that only this user can read.
pub(super) struct EditedFile {
    folder: TempDir,
    path: PathBuf,
}

impl EditedFile {
    /// A new file, which does not exist yet.
    pub(super) fn new(name: &str) -> Result<Self, Error> {
        let folder = tempfile::Builder::new()
            .prefix("kubectl-tenant-edit-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(|error| Error::file("write in", &std::env::temp_dir(), &error))?;
        let path = folder.path().join(format!("{name}.yaml"));
        Ok(Self { folder, path })
    }

    /// Opens a text in the editor, and returns it as the person saved it.
    pub(super) fn edit(&self, env: &Env, text: &str) -> Result<String, Error> {
        private_file::write(&self.path, text.as_bytes())?;
        run(env, &self.path)?;
        input_file::read(&self.path, &Input::Process)
    }

    /// The text of the file as it is now.
    pub(super) fn text(&self) -> io::Result<String> {
        std::fs::read_to_string(&self.path)
    }

    /// Keeps the file, for a text that was not accepted.
    pub(super) fn keep(self) -> PathBuf {
        let _ = self.folder.keep();
        self.path
    }
}

/// Runs the editor, and waits for its end.
fn run(env: &Env, path: &Path) -> Result<(), Error> {
    let line = VARIABLES.iter().find_map(|name| env.text(name));
    let line = line.unwrap_or_else(|| DEFAULT_EDITOR.to_owned());
    let mut words = split_words(&line).into_iter();
    let program = words.next().unwrap_or_default();
    let failed = |error: io::Error| {
        Error::other(format!("cannot run the editor {program}: {error}"))
            .hint("set KUBE_EDITOR or EDITOR to the command line of your editor")
    };
    let status = Command::new(&program).args(words).arg(path).status().map_err(failed)?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::other(format!("the editor {program} failed: {status}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_user_can_open_the_folder() {
        let file = EditedFile::new("solar").unwrap();
        let mode = file.folder.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
