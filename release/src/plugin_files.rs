//! The files that the plugin prints about itself: completion scripts and manual pages. They are the
//! same for every platform, so the plugin of this machine prints them for all.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use integration::process::Program;

/// Time limit of one command of the plugin.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// Completion scripts and manual pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginFiles {
    /// Completion of bash.
    pub bash: Bytes,
    /// Completion of zsh.
    pub zsh: Bytes,
    /// Completion of fish.
    pub fish: Bytes,
    /// The program `kubectl_complete-tenant`, which kubectl runs for `kubectl tenant …`.
    pub kubectl: Bytes,
    /// Manual pages of section 1 by file name, sorted.
    pub manual: Vec<(String, Bytes)>,
}

impl PluginFiles {
    /// Runs the plugin at this path to print its files.
    ///
    /// # Errors
    /// The plugin cannot be run, or refuses.
    pub async fn print(plugin: &Path) -> Result<Self> {
        let home = tempfile::tempdir().context("make a home for the plugin")?;
        let script = async |shell: &str| -> Result<Bytes> {
            let printed = run(plugin, home.path(), &["completion", shell]).await?;
            ensure!(!printed.is_empty(), "{} completion {shell} prints nothing", plugin.display());
            Ok(printed.into())
        };
        Ok(Self {
            bash: script("bash").await?,
            zsh: script("zsh").await?,
            fish: script("fish").await?,
            kubectl: script("kubectl").await?,
            manual: manual(plugin, home.path()).await?,
        })
    }
}

async fn manual(plugin: &Path, home: &Path) -> Result<Vec<(String, Bytes)>> {
    let folder = home.join("manual");
    let argument = folder.to_str().context("TMPDIR is not UTF-8")?;
    run(plugin, home, &["man", argument]).await?;
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(&folder).context("list the manual pages")? {
        let path = entry.context("list the manual pages")?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let page = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        pages.push((name, page.into()));
    }
    ensure!(!pages.is_empty(), "{} man writes no page", plugin.display());
    pages.sort();
    Ok(pages)
}

/// Runs the plugin without the environment, profile and sessions of whoever makes the release.
async fn run(plugin: &Path, home: &Path, args: &[&str]) -> Result<String> {
    let program = Program::new(plugin).args(args).clear_env().env("HOME", home);
    let done = program.run(COMMAND_TIMEOUT).await?.success();
    Ok(done.with_context(|| format!("kubectl-tenant {}", args.join(" ")))?.stdout)
}
