//! The server process and its data folder.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use sqlx::{Connection, PgConnection};
use tokio::sync::Mutex;
use url::Url;

use super::programs;
use crate::probe::{self, Probe};
use crate::process::{Account, Process, Program};
use crate::scratch::{Scratch, write_private};
use crate::{machine, port, random};

/// PostgreSQL's refusal to start while a process of the same data is alive.
const STILL_IN_USE: &str = "is still in use";
/// Time limit until the server accepts connections, including the recovery after a crash.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// Number of attempts with another port.
const MAX_PORT_ATTEMPTS: u32 = 5;
/// Name of the server's superuser.
const USER: &str = "tenant";

#[derive(Debug)]
pub(super) struct Server {
    // Dropped before its folder.
    process: Mutex<Option<Process>>,
    programs: PathBuf,
    port: u16,
    password: String,
    account: Option<Account>,
    scratch: Scratch,
}

impl Server {
    pub(super) async fn start(folder: Option<&Path>) -> Result<Self> {
        let account = machine::unprivileged_account()?;
        // Not inside another temporary folder, because the account of the server cannot enter
        // those.
        let scratch = match folder {
            Some(folder) => Scratch::kept(folder)?,
            None => Scratch::new("postgres")?,
        };
        let programs = programs::folder(scratch.path(), account.is_some()).await?;
        own(scratch.path(), account)?;
        let password_file = scratch.path().join("password");
        if !scratch.path().join("data/PG_VERSION").exists() {
            write_private(&password_file, random::hex(16)?)?;
            own(&password_file, account)?;
            initialize(&programs, scratch.path(), account).await?;
        }
        let password = fs::read_to_string(&password_file).context("read the password")?;
        let mut server = Self {
            process: Mutex::new(None),
            programs,
            port: port::free()?,
            password,
            account,
            scratch,
        };
        for _ in 0..MAX_PORT_ATTEMPTS {
            let process = server.spawn()?;
            match server.ready(&process).await {
                Ok(()) => {
                    server.process = Mutex::new(Some(process));
                    return Ok(server);
                }
                Err(_) if process.status().is_some() && port::is_taken(&process.log_tail(20)) => {
                    server.port = port::free()?;
                }
                Err(error) => return Err(error),
            }
        }
        bail!("every port that was free was taken before PostgreSQL could listen on it")
    }

    pub(super) fn url(&self) -> Result<Url> {
        let Self { password, port, .. } = self;
        format!("postgres://{USER}:{password}@127.0.0.1:{port}/postgres")
            .parse()
            .context("make the server's URL")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.scratch.path().join("postgres.log")
    }

    pub(super) async fn kill(&self) {
        if let Some(process) = self.process.lock().await.take() {
            process.kill();
            process.wait().await;
        }
    }

    pub(super) async fn restart(&self) -> Result<()> {
        let mut running = self.process.lock().await;
        if running.is_none() {
            // The backends of a killed server end by themselves a moment later, in groups of their own.
            let start = probe::until("the end of the killed server", READY_TIMEOUT, || async {
                let process = self.spawn()?;
                match self.ready(&process).await {
                    Ok(()) => Ok(Probe::Ready(process)),
                    Err(error) if format!("{error:#}").contains(STILL_IN_USE) => {
                        Ok(Probe::NotYet(format!("{error:#}")))
                    }
                    Err(error) => Err(error),
                }
            });
            *running = Some(start.await?);
        }
        Ok(())
    }

    fn spawn(&self) -> Result<Process> {
        Program::new(self.programs.join("postgres"))
            .arg("-D")
            .arg(self.scratch.path().join("data"))
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="])
            .args(["-c", "max_connections=200", "-p"])
            .arg(self.port.to_string())
            .as_account(self.account)
            .in_folder(self.scratch.path())
            .env("HOME", self.scratch.path())
            // Fast shutdown: connections are cut, the data is written.
            .stop_with(Signal::INT, Duration::from_secs(5))
            .spawn_logged(&self.log())
    }

    async fn ready(&self, process: &Process) -> Result<()> {
        let url = self.url()?;
        probe::until("PostgreSQL to take connections", READY_TIMEOUT, || async {
            process.still_running()?;
            Ok(match PgConnection::connect(url.as_str()).await {
                Ok(_) => Probe::Ready(()),
                Err(error) => Probe::NotYet(error.to_string()),
            })
        })
        .await
        .with_context(|| process.log_tail(20))
    }
}

/// Creates the data folder: every connection needs a password, text is UTF-8.
async fn initialize(programs: &Path, folder: &Path, account: Option<Account>) -> Result<()> {
    Program::new(programs.join("initdb"))
        .args(["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--username", USER])
        // The new files need not survive a power failure; the server's later writes do.
        .arg("--no-sync")
        .arg("--pgdata")
        .arg(folder.join("data"))
        .arg("--pwfile")
        .arg(folder.join("password"))
        .as_account(account)
        .in_folder(folder)
        .env("HOME", folder)
        .run(Duration::from_mins(1))
        .await?
        .success()
        .with_context(|| {
            format!("initialize PostgreSQL in {}; can its account enter that?", folder.display())
        })?;
    Ok(())
}

/// Gives a file or folder to the account that the server runs as, and lets that account pass
/// through the parent folder.
fn own(path: &Path, account: Option<Account>) -> Result<()> {
    let Some(account) = account else { return Ok(()) };
    chown(path, Some(account.uid), Some(account.gid))
        .with_context(|| format!("give {} to the server's account", path.display()))?;
    let Some(above) = path.parent() else { return Ok(()) };
    let mut mode = fs::metadata(above)?.permissions();
    if mode.mode() & 0o777 == 0o700 {
        mode.set_mode(0o711);
        fs::set_permissions(above, mode).with_context(|| format!("open {}", above.display()))?;
    }
    Ok(())
}
