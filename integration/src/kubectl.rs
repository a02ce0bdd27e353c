//! kubectl, as one person runs it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::control_plane::prerequisites;
use crate::machine;
use crate::probe::{self, Probe};
use crate::process::{Captured, Finished, Program};

/// Time limit of one command.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(3);
/// Time limit until the API server's authorizer follows new roles and bindings.
const RIGHTS_TIMEOUT: Duration = Duration::from_mins(1);

/// kubectl with a home and a kubeconfig of its own, and nothing of the harness's environment.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    env: Vec<(OsString, OsString)>,
}

/// Returns every kubectl of this machine: `kubectl` on `PATH`, and other versions that some
/// packages install next to it, for example `kubectl.1.28`.
///
/// # Errors
/// There is no kubectl.
pub fn all_versions() -> Result<Vec<PathBuf>> {
    let first = machine::find("kubectl").context("kubectl is not on PATH")?;
    let first = first.canonicalize().context("resolve the path of kubectl")?;
    let folder = first.parent().context("kubectl is in no folder")?;
    let mut found = vec![first.clone()];
    for entry in std::fs::read_dir(folder).context("look beside kubectl")? {
        let entry = entry.context("look beside kubectl")?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with("kubectl.1.")) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the oldest and the newest of [`all_versions`] by the names `kubectl.1.MINOR`; the kubectl on
/// `PATH` if there is no other.
///
/// # Errors
/// There is no kubectl.
pub fn oldest_and_newest() -> Result<Vec<PathBuf>> {
    let all = all_versions()?;
    let minor = |program: &Path| -> Option<u32> {
        program.file_name()?.to_str()?.strip_prefix("kubectl.1.")?.parse().ok()
    };
    let mut numbered: Vec<_> =
        all.iter().filter_map(|program| Some((minor(program)?, program.clone()))).collect();
    numbered.sort();
    if numbered.len() > 2 {
        numbered.drain(1..numbered.len() - 1);
    }
    let numbered: Vec<_> = numbered.into_iter().map(|(_, program)| program).collect();
    Ok(if numbered.is_empty() { all } else { numbered })
}

impl Kubectl {
    /// Returns the kubectl on `PATH`, with this home and this kubeconfig. It finds its plugins in
    /// `plugins`, then on `PATH`.
    ///
    /// # Errors
    /// There is no kubectl; the message has the install command.
    pub fn new(home: &Path, kubeconfig: &Path, plugins: Option<&Path>) -> Result<Self> {
        let program = machine::find("kubectl").context(prerequisites::NO_KUBECTL)?;
        let ours = std::env::var_os("PATH").unwrap_or_default();
        let search = plugins.map(Path::to_owned).into_iter().chain(std::env::split_paths(&ours));
        let search = std::env::join_paths(search).context("put the plugin's folder on PATH")?;
        let temporary = std::env::temp_dir().into_os_string();
        let env = [
            ("PATH", search),
            ("HOME", home.into()),
            ("KUBECONFIG", kubeconfig.into()),
            ("TMPDIR", temporary),
            ("LANG", "C.UTF-8".into()),
            // Without garbage collection a kubectl needs a quarter less CPU, and few end after more than
            // a hundred milliseconds.
            ("GOGC", "off".into()),
        ];
        let env = env.into_iter().map(|(name, value)| (name.into(), value)).collect();
        Ok(Self { program, env })
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Replaces the program, for example with an older kubectl.
    #[must_use]
    pub fn with_program(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// Path of the kubectl that is run.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns the command unstarted, so that the caller can change it.
    pub fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Program {
        self.other(&self.program).args(args)
    }

    /// Returns another program in the same environment, for example the plugin itself.
    pub fn other(&self, program: &Path) -> Program {
        self.env.iter().fold(Program::new(program).clear_env(), |program, (name, value)| {
            program.env(name, value)
        })
    }

    /// Runs kubectl to its end, at most a minute. A failure exit status is no error here.
    ///
    /// # Errors
    /// kubectl cannot be started or does not end.
    pub async fn run<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Finished> {
        self.command(args).run(COMMAND_TIMEOUT).await
    }

    /// Runs kubectl with this standard input, for example for `apply -f -`.
    ///
    /// # Errors
    /// kubectl cannot be started or does not end.
    pub async fn run_with_input<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        input: impl Into<Vec<u8>>,
    ) -> Result<Finished> {
        self.command(args).input(input).run(COMMAND_TIMEOUT).await
    }

    /// Runs kubectl with `-o json` and parses its output.
    ///
    /// # Errors
    /// kubectl fails, or prints something else.
    pub async fn json<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<serde_json::Value> {
        let finished =
            self.command(args).args(["-o", "json"]).run(COMMAND_TIMEOUT).await?.success()?;
        serde_json::from_str(&finished.stdout).context("read the JSON that kubectl printed")
    }

    /// Waits until the API server allows something: `kubectl auth can-i` with these arguments says
    /// yes. The authorizer follows a role or binding a moment after it is stored.
    ///
    /// # Errors
    /// kubectl cannot be run, or says no until the time limit.
    pub async fn until_allowed(&self, args: &[&str]) -> Result<()> {
        probe::until("a right", RIGHTS_TIMEOUT, || async {
            let review = self.run(["auth", "can-i"].iter().chain(args)).await?;
            let is_allowed = review.stdout.trim() == "yes";
            Ok(if is_allowed { Probe::Ready(()) } else { Probe::NotYet(review.stderr) })
        })
        .await
    }

    /// Starts kubectl and leaves it running, for example `get -w`. It ends when the value is
    /// dropped.
    ///
    /// # Errors
    /// kubectl cannot be started.
    pub fn spawn<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<Captured> {
        self.command(args).spawn_captured()
    }
}
