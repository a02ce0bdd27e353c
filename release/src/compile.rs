//! Builds of the programs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use bytes::Bytes;

use crate::cargo::Build;
use crate::profile_guided;
use crate::source::Source;
use crate::target::{Os, Target};
use crate::{BROKER, PLUGIN};

/// The programs for one target.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The target.
    pub target: Target,
    /// The broker; it is built for Linux only.
    pub broker: Option<Bytes>,
    /// The plugin.
    pub plugin: Bytes,
    /// File of the plugin on this machine.
    pub plugin_file: PathBuf,
    /// Whether the broker was optimized with a profile of its own work.
    pub profile_guided: bool,
}

impl Programs {
    /// Reads programs that were built before, from one folder.
    ///
    /// # Errors
    /// One of them is missing.
    pub fn read(folder: &Path, target: Target) -> Result<Self> {
        let plugin_file = folder.join(PLUGIN);
        let broker = (target.os == Os::Linux).then(|| read(&folder.join(BROKER))).transpose()?;
        let plugin = read(&plugin_file)?;
        Ok(Self { target, broker, plugin, plugin_file, profile_guided: false })
    }

    /// Builds the programs with cargo: each with its own features only, as `cargo install` does,
    /// without paths of this machine, and with `profile_guided` if the broker runs on this machine.
    ///
    /// # Errors
    /// A build fails; its output is on standard error.
    pub async fn build(
        source: &Source,
        target: Target,
        host: &str,
        profile_guided: bool,
    ) -> Result<Self> {
        let build = Build::new(source, target, host)?;
        let profile_guided = profile_guided && target.os == Os::Linux && target.runs_on(host);
        if profile_guided {
            profile_guided::build_broker(&build).await?;
        } else if target.os == Os::Linux {
            build.cargo(BROKER).await?;
        }
        build.cargo(PLUGIN).await?;
        Ok(Self { profile_guided, ..Self::read(&build.programs(), target)? })
    }
}

fn read(program: &Path) -> Result<Bytes> {
    let bytes = std::fs::read(program).with_context(|| format!("read {}", program.display()))?;
    Ok(bytes.into())
}
