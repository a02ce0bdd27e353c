//! A place as the broker sees it: its files below a temporary folder, its environment and its user.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use integration::binaries::Binaries;
use integration::http_client::http_client;
use integration::port;
use integration::probe::{self, Probe};
use integration::process::{Account, Finished, Process, Program};
use integration::scratch::Scratch;

/// The user that the broker runs as in all places where its number is fixed.
pub(crate) const USER: Account = Account { uid: 65532, gid: 65532 };
/// Path of the broker in all places.
pub(crate) const PROGRAM: &str = "/usr/bin/tenant-broker";
/// Absolute paths that occur in the files of `deploy/`. None contains another one.
const PATHS: [&str; 5] =
    ["/etc/tenant-broker", "/var/lib/tenant-broker", "/run/secrets", "/run/credentials", PROGRAM];

/// Time limit for the broker to become ready, its migrations included.
const READY_TIMEOUT: Duration = Duration::from_secs(40);
/// Time limit for the drain after SIGTERM; the longest of the places is `drain_seconds` = 20.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of one command of the broker's program.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(40);
/// Number of starts, because every place starts a process again that ends early: the API server may
/// not know a new permission yet, or a port may be taken.
const MAX_STARTS: u32 = 5;

/// Who may read a file. The owner matters only if the tests run as root; otherwise every file is
/// ours.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    /// Mode 0600 of root.
    Root,
    /// Mode 0400 of the broker's user.
    Broker,
    /// Mode 0440 of root and the broker's group.
    Group,
    /// Mode 0444 of root.
    Everybody,
}

/// The files of a place.
#[derive(Debug)]
pub(crate) struct Place {
    scratch: Scratch,
    /// The broker's user, if we may choose it.
    account: Option<Account>,
}

/// An environment, in the order of its definition.
pub(crate) type Environment = Vec<(String, String)>;

impl Place {
    /// Creates a place with the program and an empty folder for the broker's state.
    pub(crate) fn new(binaries: &Binaries) -> Result<Self> {
        let scratch = Scratch::new("place")?;
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o711))
            .context("let the broker's user pass")?;
        let account = rustix::process::geteuid().is_root().then_some(USER);
        let place = Self { scratch, account };
        let program = place.path(PROGRAM);
        place.make_parent(&program)?;
        // The folder of the shared programs is ours alone.
        if std::fs::hard_link(binaries.tenant_broker(), &program).is_err() {
            std::fs::copy(binaries.tenant_broker(), &program).context("copy the broker")?;
        }
        let state = place.path("/var/lib/tenant-broker");
        place.make_parent(&state)?;
        std::fs::create_dir(&state).context("make the folder of the state")?;
        place.own(&state, 0o700, USER)?;
        Ok(place)
    }

    /// Returns where a path of the place is on this machine.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.scratch.path().join(path.trim_start_matches('/'))
    }

    /// Replaces all paths of the place in a text.
    pub(crate) fn mapped(&self, text: &str) -> String {
        PATHS.iter().fold(text.to_owned(), |text, path| {
            text.replace(path, &self.path(path).display().to_string())
        })
    }

    /// Writes a file of the place, and replaces an existing one.
    pub(crate) fn write(
        &self,
        path: &str,
        contents: impl AsRef<[u8]>,
        access: Access,
    ) -> Result<()> {
        let file = self.path(path);
        self.make_parent(&file)?;
        let _ = std::fs::remove_file(&file);
        std::fs::write(&file, contents).with_context(|| format!("write {path}"))?;
        let root = Account { uid: 0, gid: 0 };
        let (mode, owner) = match access {
            Access::Root => (0o600, root),
            Access::Broker => (0o400, USER),
            Access::Group => (0o440, Account { gid: USER.gid, ..root }),
            Access::Everybody => (0o444, root),
        };
        self.own(&file, mode, owner)
    }

    /// Makes the folder of a file, which everybody may enter.
    fn make_parent(&self, file: &Path) -> Result<()> {
        let folder = file.parent().context("a file is in a folder")?;
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        for folder in folder.ancestors().take_while(|folder| *folder != self.scratch.path()) {
            std::fs::set_permissions(folder, Permissions::from_mode(0o755))
                .with_context(|| format!("open {}", folder.display()))?;
        }
        Ok(())
    }

    fn own(&self, path: &Path, mode: u32, owner: Account) -> Result<()> {
        std::fs::set_permissions(path, Permissions::from_mode(mode))
            .with_context(|| format!("set the mode of {}", path.display()))?;
        if self.account.is_some() {
            chown(path, Some(owner.uid), Some(owner.gid))
                .with_context(|| format!("set the owner of {}", path.display()))?;
        }
        Ok(())
    }

    /// Runs a command of the place to its end: its program, arguments and environment.
    pub(crate) async fn run(&self, command: &[&str], env: &Environment) -> Result<Finished> {
        self.program(command, env)?.run(COMMAND_TIMEOUT).await
    }

    /// Starts a command of the place that serves, and waits until `/readyz` responds with 200.
    pub(crate) async fn serve(self, command: &[&str], env: &Environment) -> Result<Serving> {
        let log = self.scratch.path().join("broker.log");
        for _ in 0..MAX_STARTS {
            let port = port::free()?;
            let operator_port = port::free()?;
            let mut env = env.clone();
            for (name, port) in [("LISTEN", port), ("OPERATOR_LISTEN", operator_port)] {
                env.push((format!("TENANT_BROKER_{name}"), format!("127.0.0.1:{port}")));
            }
            let process = self.program(command, &env)?.spawn_logged(&log)?;
            match until_ready(&process, operator_port).await {
                Ok(()) => return Ok(Serving { process, place: self, env, port }),
                Err(_) if process.status().is_some() => {}
                Err(error) => return Err(error),
            }
        }
        bail!("the broker ended {MAX_STARTS} times before it was ready:\n{}", tail(&log))
    }

    fn program(&self, command: &[&str], env: &Environment) -> Result<Program> {
        let (program, args) = command.split_first().context("a command has a program")?;
        let program = Program::new(self.mapped(program))
            .args(args.iter().map(|arg| self.mapped(arg)))
            .clear_env()
            .as_account(self.account)
            .in_folder(self.scratch.path());
        Ok(env.iter().fold(program, |program, (name, value)| program.env(name, self.mapped(value))))
    }
}

/// A broker that serves in a place. It ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    // Dropped before its folder.
    process: Process,
    place: Place,
    env: Environment,
    port: u16,
}

impl Serving {
    /// Runs another command with the environment of the broker.
    pub(crate) async fn run(&self, command: &[&str]) -> Result<Finished> {
        self.place.run(command, &self.env).await
    }

    /// The folder with the files of the place.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the issuer of the broker's discovery document, read over TLS if a CA is given.
    pub(crate) async fn issuer(&self, authority: Option<&str>) -> Result<String> {
        let scheme = if authority.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{}/.well-known/openid-configuration", self.port);
        let response = http_client(authority)?.get(url).send().await?.error_for_status()?;
        let document: serde_json::Value = response.json().await?;
        Ok(document["issuer"].as_str().context("the document names no issuer")?.to_owned())
    }

    /// Asks the broker to stop and waits until it has drained.
    pub(crate) async fn stop(&self) -> Result<()> {
        let status = self.process.stop(STOP_TIMEOUT).await?;
        if !status.success() {
            bail!("the broker ended with {status}\n{}", self.process.log_tail(20));
        }
        Ok(())
    }
}

async fn until_ready(process: &Process, operator_port: u16) -> Result<()> {
    let http = http_client(None)?;
    let url = format!("http://127.0.0.1:{operator_port}/readyz");
    probe::until("the broker to be ready", READY_TIMEOUT, || async {
        process.still_running()?;
        Ok(match http.get(&url).send().await {
            Ok(answer) if answer.status().is_success() => Probe::Ready(()),
            Ok(answer) => Probe::NotYet(format!("/readyz responds with {}", answer.status())),
            Err(error) => Probe::NotYet(error.to_string()),
        })
    })
    .await
    .with_context(|| process.log_tail(20))
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}
