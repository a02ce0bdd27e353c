//! All artifacts, made once for the tests of this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use integration::binaries::Binaries;
use integration::machine;
use integration::process::Program;
use integration::scratch::Scratch;
use release::artifacts::{self, Report};
use release::compile::Programs;
use release::plugin_files::PluginFiles;
use release::source::Source;
use release::target::{self, Target};
use release::{BROKER, PLUGIN};
use tokio::sync::OnceCell;

/// Time limit of a program that edits or unpacks a file.
pub(crate) const TOOL_TIMEOUT: Duration = Duration::from_mins(2);

/// The artifacts of the programs that the harness builds, without their debugging symbols.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) source: Source,
    pub(crate) target: Target,
    pub(crate) report: Report,
    programs: Programs,
    plugin_files: PluginFiles,
    scratch: Scratch,
}

impl Release {
    /// Returns the artifacts that all tests share.
    pub(crate) async fn shared() -> Arc<Self> {
        static SHARED: OnceCell<Arc<Release>> = OnceCell::const_new();
        let made = SHARED.get_or_try_init(|| async { Self::make().await.map(Arc::new) }).await;
        Arc::clone(made.unwrap())
    }

    async fn make() -> Result<Self> {
        let scratch = Scratch::new("release")?;
        let binaries = Binaries::shared().await?;
        let folder = scratch.folder("programs")?;
        strip(&binaries.tenant_broker(), &folder.join(BROKER)).await?;
        strip(&binaries.kubectl_tenant(), &folder.join(PLUGIN)).await?;
        let target = Target::by_triple(&target::host().await?)?;
        let programs = Programs::read(&folder, target)?;
        let plugin_files = PluginFiles::print(&programs.plugin_file).await?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("find the workspace")?;
        let source = Source::read(root, None, true).await?;
        let artifacts = scratch.folder("artifacts")?;
        let made = std::slice::from_ref(&programs);
        let report = artifacts::write(&source, made, &plugin_files, &artifacts).await?;
        Ok(Self { source, target, report, programs, plugin_files, scratch })
    }

    /// Makes the artifacts again, in another folder, and returns it.
    pub(crate) async fn make_again(&self) -> PathBuf {
        let folder = self.scratch.folder("again").unwrap();
        let made = std::slice::from_ref(&self.programs);
        artifacts::write(&self.source, made, &self.plugin_files, &folder).await.unwrap();
        folder
    }

    /// Folder of the artifacts.
    pub(crate) fn folder(&self) -> PathBuf {
        self.scratch.path().join("artifacts")
    }

    /// The bytes of an artifact.
    pub(crate) fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.folder().join(file)).unwrap()
    }

    /// The beginning of the name of a program's artifacts, for example
    /// `tenant-broker_0.1.0_linux_amd64`.
    pub(crate) fn stem(&self, name: &str) -> String {
        format!("{name}_{}_{}", self.source.version, self.target.platform())
    }

    /// An empty folder for a test. It is removed with all others.
    pub(crate) fn work_folder(&self, name: &str) -> PathBuf {
        self.scratch.folder(name).unwrap()
    }

    /// The plugin as it is in the artifacts.
    pub(crate) fn plugin(&self) -> &[u8] {
        &self.programs.plugin
    }

    /// The broker as it is in the artifacts.
    pub(crate) fn broker(&self) -> &[u8] {
        self.programs.broker.as_ref().unwrap()
    }
}

/// Copies a program without its symbols, which are most of a program of the profile `dev`.
async fn strip(program: &Path, stripped: &Path) -> Result<()> {
    let strip = tool("strip", "binutils")?;
    let run = Program::new(strip).arg("-o").arg(stripped).arg(program).run(TOOL_TIMEOUT).await?;
    run.success()?;
    Ok(())
}

/// Returns a program of the machine.
pub(crate) fn tool(name: &str, package: &str) -> Result<PathBuf> {
    machine::find(name)
        .with_context(|| format!("{name} is not on PATH; install it: apt-get install {package}"))
}
