//! The workspace's own programs, freshly built.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Deserialize;
use tokio::sync::OnceCell;

use crate::process::{Captured, Program};
use crate::progress::say;
use crate::scratch::Scratch;

/// How long a build may take; a first one compiles every dependency.
const LIMIT: Duration = Duration::from_hours(1);

const BROKER: &str = "tenant-broker";
/// Those that a person or a test runs.
const PROGRAMS: [&str; 5] = [BROKER, "kubectl-tenant", "headless-sign-in", "time-one", "flood"];

/// How the programs are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Fast to build, with checks.
    Dev,
    /// As it is shipped.
    Release,
}

impl Profile {
    /// The profile that this harness was compiled with, so that both share what is compiled.
    pub fn own() -> Self {
        if cfg!(debug_assertions) { Self::Dev } else { Self::Release }
    }
}

/// The programs, in a folder of their own: a build that somebody starts meanwhile does not change
/// them under a running test.
#[derive(Debug)]
pub struct Binaries {
    folder: PathBuf,
    compiled: usize,
    _scratch: Scratch,
}

/// What cargo reports of one compiled target; other messages lack these fields.
#[derive(Deserialize)]
struct Artifact {
    executable: Option<PathBuf>,
    fresh: bool,
}

impl Binaries {
    /// Builds them, with the cargo that runs us or the one on `PATH`, into this folder or into a
    /// temporary one. Nothing is compiled if they are up to date. `broker` takes the place of the
    /// workspace's own.
    ///
    /// # Errors
    /// cargo is missing or fails; what it said is in the message. `broker` cannot be read.
    pub async fn build(
        profile: Profile,
        folder: Option<&Path>,
        broker: Option<&Path>,
    ) -> Result<Self> {
        // All binaries of the workspace at once: a narrower choice would turn other features of the
        // dependencies on, and compile them a second time.
        let mut artifacts = compile(profile, &["--workspace"]).await?;
        if profile == Profile::Release {
            // What is measured is what `cargo install` makes: the plugin with its own features.
            let plugin = compile(profile, &["--package", "kubectl-tenant"]).await?;
            artifacts.splice(0..0, plugin);
        }
        let scratch = match folder {
            Some(folder) => Scratch::kept(folder)?,
            None => Scratch::new("bin")?,
        };
        let folder = scratch.path().to_owned();
        for name in PROGRAMS {
            let program = artifacts
                .iter()
                .filter_map(|artifact| artifact.executable.as_ref())
                .find(|program| program.file_name().is_some_and(|file| file == name))
                .with_context(|| format!("cargo did not say where it put {name}"))?;
            let program = broker.filter(|_| name == BROKER).unwrap_or(program);
            let copy = folder.join(name);
            // One of an earlier run in a kept folder.
            let _ = std::fs::remove_file(&copy);
            // A second name for the file costs nothing, but cannot cross file systems.
            if std::fs::hard_link(program, &copy).is_err() {
                std::fs::copy(program, &copy)
                    .with_context(|| format!("copy {} to {}", program.display(), copy.display()))?;
            }
        }
        let compiled = artifacts.iter().filter(|artifact| !artifact.fresh).count();
        Ok(Self { folder, compiled, _scratch: scratch })
    }

    /// The programs that the tests of one process share, in the harness's own profile.
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

    /// The folder to put in front of a `PATH`; kubectl finds its plugin there.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How many compilation units were not up to date.
    pub fn compiled(&self) -> usize {
        self.compiled
    }

    /// The broker.
    pub fn tenant_broker(&self) -> PathBuf {
        self.folder.join(BROKER)
    }

    /// The plugin.
    pub fn kubectl_tenant(&self) -> PathBuf {
        self.folder.join("kubectl-tenant")
    }

    /// The program that measures one other process.
    pub fn time_one(&self) -> PathBuf {
        self.folder.join("time-one")
    }

    /// The program of a tenant who floods the gateway.
    pub fn flood(&self) -> PathBuf {
        self.folder.join("flood")
    }

    /// The program to set as `BROWSER`.
    pub fn headless_sign_in(&self) -> PathBuf {
        self.folder.join("headless-sign-in")
    }
}

/// Compiles the binaries of these packages.
async fn compile(profile: Profile, packages: &[&str]) -> Result<Vec<Artifact>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("find the workspace")?;
    let mut build = Program::new(cargo)
        .arg("build")
        .args(packages.iter().copied())
        .args(["--bins", "--message-format=json-render-diagnostics"])
        .in_folder(root);
    if profile == Profile::Release {
        build = build.arg("--release");
    }
    // Build scripts look at these; as they are here, they are about us.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_about_us(&name.to_string_lossy())) {
        build = build.without_env(name);
    }
    let build = build.spawn_captured()?;
    report(&build).await?;
    let finished = build.finish(Duration::ZERO).await?;
    if !finished.status.success() {
        anyhow::bail!("cargo build failed with {}\n{}", finished.status, finished.stderr);
    }
    Ok(finished.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Says how far the build is, every ten seconds.
async fn report(build: &Captured) -> Result<()> {
    let start = Instant::now();
    while tokio::time::timeout(Duration::from_secs(10), build.process().wait()).await.is_err() {
        if start.elapsed() > LIMIT {
            break;
        }
        // What is compiled, or that another cargo has to finish first.
        let told = build.stderr()?;
        let now = told.lines().next_back().unwrap_or("cargo build").trim();
        say(&format!("  after {} s: {now}", start.elapsed().as_secs()));
    }
    Ok(())
}

/// Whether cargo set this variable for the program that it runs.
fn is_about_us(name: &str) -> bool {
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
