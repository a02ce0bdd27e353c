//! Folders of the plugin: one in each XDG base directory.

use std::path::PathBuf;

use crate::{environment::Env, error::Error};

/// The folders; they need not exist.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// Folder of `profiles.json`.
    pub(crate) config: PathBuf,
    /// Folder of sessions, locks and cached failures.
    pub(crate) state: PathBuf,
    /// Folder of Kubernetes tokens; everything in it can be recreated.
    pub(crate) cache: PathBuf,
}

impl Paths {
    /// Folders in `XDG_CONFIG_HOME`, `XDG_STATE_HOME` and `XDG_CACHE_HOME`, else in their defaults
    /// below `HOME`. A relative value is ignored, as the XDG base directory specification demands.
    pub(crate) fn from_env(env: &Env) -> Result<Self, Error> {
        Ok(Self {
            config: xdg_folder(env, "XDG_CONFIG_HOME", ".config")?,
            state: xdg_folder(env, "XDG_STATE_HOME", ".local/state")?,
            cache: xdg_folder(env, "XDG_CACHE_HOME", ".cache")?,
        })
    }

    /// Folder of the cached Kubernetes tokens.
    pub(crate) fn tokens(&self) -> PathBuf {
        self.cache.join("tokens")
    }

    /// Folder of the candidates of the last completions.
    pub(crate) fn completions(&self) -> PathBuf {
        self.cache.join("completions")
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

fn xdg_folder(env: &Env, variable: &str, default: &str) -> Result<PathBuf, Error> {
    tenant_cached_token::xdg_folder(&|name| env.get(name), variable, default).ok_or_else(|| {
        Error::other("there is no home folder: HOME is not set")
            .hint(format!("set HOME or {variable} to an absolute path"))
    })
}
