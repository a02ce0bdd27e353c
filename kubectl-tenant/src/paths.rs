//! Where the plugin keeps its files: the XDG base directories, each with its own folder.

use std::path::{Path, PathBuf};

use crate::{error::Error, world::Env};

/// Name of our folder in each base directory.
const FOLDER: &str = "kubectl-tenant";

/// The folders; none of them need exist.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// `profiles.json`.
    pub(crate) config: PathBuf,
    /// Sessions, locks, and what failed last.
    pub(crate) state: PathBuf,
    /// Kubernetes tokens: all of it can be made again.
    pub(crate) cache: PathBuf,
}

impl Paths {
    /// `XDG_CONFIG_HOME`, `XDG_STATE_HOME`, `XDG_CACHE_HOME`, else their defaults in `HOME`.
    /// A relative value is ignored, as the XDG base directory specification asks.
    pub(crate) fn of(env: &Env) -> Result<Self, Error> {
        Ok(Self {
            config: base(env, "XDG_CONFIG_HOME", ".config")?,
            state: base(env, "XDG_STATE_HOME", ".local/state")?,
            cache: base(env, "XDG_CACHE_HOME", ".cache")?,
        })
    }

    /// Only the folder of tokens: all that a cache hit needs.
    pub(crate) fn tokens(env: &Env) -> Result<PathBuf, Error> {
        Ok(base(env, "XDG_CACHE_HOME", ".cache")?.join("tokens"))
    }

    pub(crate) fn locks(&self) -> PathBuf {
        self.state.join("locks")
    }

    pub(crate) fn failures(&self) -> PathBuf {
        self.state.join("failures")
    }

    pub(crate) fn sessions(&self) -> PathBuf {
        self.state.join("sessions")
    }
}

fn base(env: &Env, variable: &str, default: &str) -> Result<PathBuf, Error> {
    if let Some(folder) = env.get(variable)
        && Path::new(&folder).is_absolute()
    {
        return Ok(Path::new(&folder).join(FOLDER));
    }
    let home = env.get("HOME").ok_or_else(|| {
        Error::other("there is no home folder: HOME is not set")
            .hint(format!("set HOME or {variable} to an absolute path"))
    })?;
    Ok(Path::new(&home).join(default).join(FOLDER))
}
