//! The workspace's own programs, freshly built.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Deserialize;
use tokio::sync::OnceCell;

use crate::process::{Captured, Program};
use crate::progress::print_message;
use crate::scratch::Scratch;

/// Time limit of a build; a first one compiles every dependency.
const BUILD_TIMEOUT: Duration = Duration::from_hours(1);

const BROKER: &str = "tenant-broker";
const PLUGIN: &str = "kubectl-tenant";
/// The programs that a person or a test runs.
const PROGRAMS: [&str; 5] = [BROKER, PLUGIN, "headless-sign-in", "time-one", "flood"];

/// The cargo profile of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Fast to build, with debug assertions.
    Dev,
    /// As it is shipped.
    Release,
}

impl Profile {
    /// Returns the profile that this harness was compiled with, so that both share what is
    /// compiled.
    pub fn own() -> Self {
        if cfg!(debug_assertions) { Self::Dev } else { Self::Release }
    }
}

/// The programs, copied into a folder of their own: a concurrent build does not change them under a
/// running test.
#[derive(Debug)]
pub struct Binaries {
    folder: PathBuf,
    compiled: usize,
    _scratch: Scratch,
}

/// The fields of cargo's message about one compiled target; other messages lack them.
#[derive(Deserialize)]
struct Artifact {
    executable: Option<PathBuf>,
    fresh: bool,
}

impl Binaries {
    /// Builds the programs, with the cargo that runs us or the one on `PATH`, into this folder or
    /// into a temporary one. Nothing is compiled if they are up to date. `broker` replaces the
    /// workspace's own broker, which then is not built.
    ///
    /// # Errors
    /// cargo is missing or fails (its output is in the message), or `broker` cannot be read.
    pub async fn build(
        profile: Profile,
        folder: Option<&Path>,
        broker: Option<&Path>,
    ) -> Result<Self> {
        // With the features of the whole workspace: those of fewer packages would compile the
        // dependencies a second time.
        let built: Vec<&str> =
            PROGRAMS.into_iter().filter(|name| broker.is_none() || *name != BROKER).collect();
        let mut artifacts = compile(profile, &["--workspace"], &built).await?;
        if profile == Profile::Release {
            // The measured plugin is the one that `cargo install` makes, with its own features
            // only.
            let plugin = compile(profile, &["--package", PLUGIN], &[PLUGIN]).await?;
            artifacts.splice(0..0, plugin);
        }
        let scratch = match folder {
            Some(folder) => Scratch::kept(folder)?,
            None => Scratch::new("bin")?,
        };
        let folder = scratch.path().to_owned();
        for name in PROGRAMS {
            let program = broker
                .filter(|_| name == BROKER)
                .or_else(|| {
                    let mut programs =
                        artifacts.iter().filter_map(|made| made.executable.as_deref());
                    programs.find(|program| program.file_name().is_some_and(|file| file == name))
                })
                .with_context(|| format!("cargo did not say where it put {name}"))?;
            let copy = folder.join(name);
            // The copy of an earlier run in a kept folder.
            let _ = std::fs::remove_file(&copy);
            // A hard link costs nothing, but cannot cross file systems.
            if std::fs::hard_link(program, &copy).is_err() {
                std::fs::copy(program, &copy)
                    .with_context(|| format!("copy {} to {}", program.display(), copy.display()))?;
            }
        }
        let compiled = artifacts.iter().filter(|artifact| !artifact.fresh).count();
        Ok(Self { folder, compiled, _scratch: scratch })
    }

    /// Returns the programs that the tests of one process share, in the harness's own profile.
    ///
    /// # Errors
    /// As [`Binaries::build`]; the next caller tries again.
    pub async fn shared() -> Result<Arc<Self>> {
        static SHARED: OnceCell<Arc<Binaries>> = OnceCell::const_new();
        SHARED
            .get_or_try_init(|| async {
                Self::build(Profile::own(), None, None).await.map(Arc::new)
            })
            .await
            .cloned()
    }

    /// Returns the folder to put in front of `PATH`; kubectl finds its plugin there.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the number of compilation units that were not up to date.
    pub fn compiled(&self) -> usize {
        self.compiled
    }

    /// Path of the broker.
    pub fn tenant_broker(&self) -> PathBuf {
        self.folder.join(BROKER)
    }

    /// Path of the plugin.
    pub fn kubectl_tenant(&self) -> PathBuf {
        self.folder.join(PLUGIN)
    }

    /// Path of the program that measures one other process.
    pub fn time_one(&self) -> PathBuf {
        self.folder.join("time-one")
    }

    /// Path of the flooding client.
    pub fn flood(&self) -> PathBuf {
        self.folder.join("flood")
    }

    /// Path of the program to set as `BROWSER`.
    pub fn headless_sign_in(&self) -> PathBuf {
        self.folder.join("headless-sign-in")
    }
}

/// Compiles these programs with the features that these packages need.
async fn compile(profile: Profile, packages: &[&str], programs: &[&str]) -> Result<Vec<Artifact>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("find the workspace")?;
    let mut build = Program::new(cargo)
        .arg("build")
        .args(packages.iter().copied())
        .args(programs.iter().flat_map(|name| ["--bin", *name]))
        .arg("--message-format=json-render-diagnostics")
        .in_folder(root);
    if profile == Profile::Release {
        build = build.arg("--release");
    }
    let stdout = run_cargo(build).await?;
    Ok(stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Runs a build with cargo to its end, prints its progress, and returns its standard output.
///
/// # Errors
/// cargo is missing or fails; its output is in the message.
pub(crate) async fn run_cargo(mut build: Program) -> Result<String> {
    // Build scripts read these variables, and here they describe the harness.
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| is_cargo_variable(&name.to_string_lossy()))
    {
        build = build.without_env(name);
    }
    let build = build.spawn_captured()?;
    report(&build).await?;
    let finished = build.finish(Duration::ZERO).await?;
    if !finished.status.success() {
        anyhow::bail!("cargo build failed with {}\n{}", finished.status, finished.stderr);
    }
    Ok(finished.stdout)
}

/// Prints the progress of the build every ten seconds.
async fn report(build: &Captured) -> Result<()> {
    let start = Instant::now();
    while tokio::time::timeout(Duration::from_secs(10), build.process().wait()).await.is_err() {
        if start.elapsed() > BUILD_TIMEOUT {
            break;
        }
        // The last line says what is compiled, or that another cargo has to finish first.
        let output = build.stderr()?;
        let last = output.lines().next_back().unwrap_or("cargo build").trim();
        let crates = output.lines().filter(|line| line.trim().starts_with("Compiling")).count();
        let seconds = start.elapsed().as_secs();
        print_message(&format!("  cargo: {crates} crates after {seconds} s, last line: {last}"));
    }
    Ok(())
}

/// Whether cargo set this variable for the program that it runs.
fn is_cargo_variable(name: &str) -> bool {
    let exact = [
        "CARGO_BIN_NAME",
        "CARGO_CRATE_NAME",
        "CARGO_MANIFEST_DIR",
        "CARGO_MANIFEST_LINKS",
        "CARGO_MANIFEST_PATH",
        "CARGO_PRIMARY_PACKAGE",
        "CARGO_TARGET_TMPDIR",
        "OUT_DIR",
    ];
    exact.contains(&name) || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_BIN_EXE_")
}
