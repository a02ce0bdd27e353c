//! kubectl as one person runs it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::machine;
use crate::process::{Captured, Finished, Program};

/// How long one command may take.
const LIMIT: Duration = Duration::from_mins(1);

/// kubectl with a home and a kubeconfig of its own, and nothing of the environment of whoever runs
/// the harness.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    env: Vec<(OsString, OsString)>,
}

/// Every kubectl of this machine: `kubectl` on `PATH`, and those of other versions that some packages
/// put beside it, for example `kubectl.1.28`.
///
/// # Errors
/// There is none.
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

impl Kubectl {
    /// The kubectl on `PATH`, in this home and with this kubeconfig. It finds its plugins in
    /// `plugins`, and behind that on `PATH`.
    ///
    /// # Errors
    /// There is no kubectl; the message has the install line.
    pub fn new(home: &Path, kubeconfig: &Path, plugins: Option<&Path>) -> Result<Self> {
        let program = machine::find("kubectl").context(
            "kubectl is not on PATH. Install it:\n    \
             Debian, Ubuntu: apt-get install kubectl, from the Kubernetes repository (Debian's own \
             kubernetes-client is older than 1.22 and cannot run credential plugins)\n    \
             macOS: brew install kubernetes-cli",
        )?;
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
        ];
        let env = env.into_iter().map(|(name, value)| (name.into(), value)).collect();
        Ok(Self { program, env })
    }

    /// The same with one more variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// The same with another kubectl, for example an older one.
    #[must_use]
    pub fn with_program(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// The kubectl that is run.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The command, for whoever wants to change it before it runs.
    pub fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Program {
        self.other(&self.program).args(args)
    }

    /// Another program in the same environment, for example the plugin itself.
    pub fn other(&self, program: &Path) -> Program {
        self.env.iter().fold(Program::new(program).clear_env(), |program, (name, value)| {
            program.env(name, value)
        })
    }

    /// Runs it to its end, at most a minute. A failure exit status is no error here.
    ///
    /// # Errors
    /// It cannot be started or does not end.
    pub async fn run<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Finished> {
        self.command(args).run(LIMIT).await
    }

    /// Runs it with this on its standard input, for example for `apply -f -`.
    ///
    /// # Errors
    /// It cannot be started or does not end.
    pub async fn run_with_input<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        input: impl Into<Vec<u8>>,
    ) -> Result<Finished> {
        self.command(args).input(input).run(LIMIT).await
    }

    /// Runs it with `-o json` and reads what it prints.
    ///
    /// # Errors
    /// It fails, or prints something else.
    pub async fn json<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<serde_json::Value> {
        let finished = self.command(args).args(["-o", "json"]).run(LIMIT).await?.success()?;
        serde_json::from_str(&finished.stdout).context("read the JSON that kubectl printed")
    }

    /// Starts it and leaves it running, for example `get -w`. It ends with the value.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<Captured> {
        self.command(args).spawn_captured()
    }
}
