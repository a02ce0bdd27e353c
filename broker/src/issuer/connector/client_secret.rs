//! The secret of the broker as a client of a provider.

use std::path::PathBuf;

use secrecy::SecretString;

use crate::base::reload::{FileError, FileSource, Files, Loaded, Reloaded, Reloader};

/// Location of the client secret.
#[derive(Clone, Debug)]
pub enum ClientSecret {
    /// In the configuration itself.
    Text(SecretString),
    /// In a file, without the white space at its beginning and end.
    File(PathBuf),
}

impl ClientSecret {
    /// Reads the secret; `table` is the configuration's table of the connector.
    pub(super) fn load(
        &self,
        table: &str,
        reloader: &Reloader,
    ) -> Result<Reloaded<SecretString>, FileError> {
        match self {
            Self::Text(secret) => Ok(Reloaded::fixed(secret.clone())),
            Self::File(path) => {
                reloader.load(&format!("{table}.client_secret_file"), SecretFile(path.clone()))
            }
        }
    }
}

/// A file with a secret.
struct SecretFile(PathBuf);

impl FileSource for SecretFile {
    type Value = SecretString;
    type Error = FileError;

    const ADVICE: &'static str = "write the secret that the provider knows into the file \
                                  (client_secret_file); it is read again by itself";

    fn load(&self, files: &mut Files) -> Result<Loaded<SecretString>, FileError> {
        files.read_text(&self.0).map(Loaded::without_end)
    }
}
