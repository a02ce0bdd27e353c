//! Where the plugin keeps its files: the XDG base directories, each with its own folder.

use std::path::PathBuf;

use crate::{error::Error, world::Env};

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

    /// The cached Kubernetes tokens.
    pub(crate) fn tokens(&self) -> PathBuf {
        self.cache.join("tokens")
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
    tenant_cached_token::folder(&|name| env.get(name), variable, default).ok_or_else(|| {
        Error::other("there is no home folder: HOME is not set")
            .hint(format!("set HOME or {variable} to an absolute path"))
    })
}
