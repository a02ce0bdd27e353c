//! Environment variables: their values, and names of the plugin's own. `reference` lists all that
//! the program reads, for the help text.

use std::{collections::HashMap, ffi::OsString};

/// Environment variable with the name of the account, if `--profile` does not name it.
pub(crate) const PROFILE_ENV: &str = "TENANT_PROFILE";
/// Environment variable that says where the session is stored, if `--storage` does not say.
pub(crate) const STORAGE_ENV: &str = "TENANT_STORAGE";
/// Environment variable with the workspace of a machine, by identifier or namespace.
pub(crate) const WORKSPACE_ENV: &str = "TENANT_WORKSPACE";
/// Environment variable with the path of a PEM file whose certificates are trusted besides the
/// system's.
pub(crate) const CA_ENV: &str = "TENANT_BROKER_CA";
/// Environment variable: `1` lets `get-token` open a browser when kubectl says that a person is at
/// the terminal.
pub(crate) const AUTO_LOGIN_ENV: &str = "TENANT_AUTO_LOGIN";

/// Environment variables: of this process, or fixed ones in tests.
#[derive(Clone, Debug)]
pub enum Env {
    /// The variables of this process.
    Process,
    /// Exactly these variables.
    Fixed(HashMap<OsString, OsString>),
}

impl Env {
    /// Value of a variable; an empty one counts as not set.
    pub fn get(&self, name: &str) -> Option<OsString> {
        match self {
            Self::Process => std::env::var_os(name),
            Self::Fixed(map) => map.get(std::ffi::OsStr::new(name)).cloned(),
        }
        .filter(|value| !value.is_empty())
    }

    /// Value of a variable as text; [`None`] if it is not set or not UTF-8.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(|value| value.into_string().ok())
    }
}
