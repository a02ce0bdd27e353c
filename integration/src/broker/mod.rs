//! The broker's process, with its settings and its state.

mod settings;

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use url::Url;
use uuid::Uuid;

pub use settings::Settings;

use crate::http_client::http_client;
use crate::kubectl::Kubectl;
use crate::pod::Pod;
use crate::port;
use crate::probe::{self, Probe};
use crate::process::{Finished, Process, Program};
use crate::scratch::write_private;

/// Time limit for the broker to become ready, its migrations included.
const READY_TIMEOUT: Duration = Duration::from_secs(40);
/// Time limit for the drain after SIGTERM; the broker's own limit is 20 s.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of one command of the broker's program.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(2);
/// Number of attempts with other ports.
const MAX_PORT_ATTEMPTS: u32 = 5;
/// Paths where packages install libfaketime, by architecture.
const FAKETIME: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
];

/// One broker. Clones refer to the same broker, so that a fault rule can kill it; the process ends
/// with the last clone.
#[derive(Clone, Debug)]
pub struct Broker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    name: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    program: PathBuf,
    settings: Settings,
    /// Offset of the broker's clock from the machine's.
    clock_ahead: Duration,
    /// The pod that its program runs in.
    pod: Option<Pod>,
    process: Option<Process>,
}

impl Broker {
    /// Creates a broker with these settings on free ports of its own (or `port` for the API). Its
    /// public URL is its own unless `public_url` is set. Its configuration, state and log are in
    /// `folder`. It is not started yet.
    ///
    /// # Errors
    /// No port is free.
    pub fn new(
        program: PathBuf,
        folder: PathBuf,
        name: &str,
        mut settings: Settings,
        port: Option<u16>,
    ) -> Result<Self> {
        settings.set("state_dir", folder.join("state").display().to_string());
        settings.take_ports(port)?;
        let state =
            State { program, settings, clock_ahead: Duration::ZERO, pod: None, process: None };
        Ok(Self(Arc::new(Inner { folder, name: name.to_owned(), state: Mutex::new(state) })))
    }

    /// Replaces the program, for example with a newer version; effective from the next start or
    /// command.
    pub fn use_program(&self, program: PathBuf) {
        self.lock().program = program;
    }

    /// Sets the broker's clock ahead of the machine's from the next start on, with libfaketime.
    pub fn set_clock_ahead(&self, by: Duration) {
        self.lock().clock_ahead = by;
    }

    /// Runs the broker's program in this pod from the next start or command on.
    pub fn run_in(&self, pod: Pod) {
        self.lock().pod = Some(pod);
    }

    /// Starts the broker and waits until it is ready.
    ///
    /// # Errors
    /// It runs already, exits, or does not become ready; the end of its log is in the message.
    pub async fn start(&self) -> Result<()> {
        for _ in 0..MAX_PORT_ATTEMPTS {
            let (process, ready_url) = self.spawn()?;
            let result = self.until_ready(&process, ready_url).await;
            let taken = process.status().is_some() && port::is_taken(&process.log_tail(20));
            match result {
                Ok(()) => {
                    let mut state = self.lock();
                    state.process = Some(process);
                    state.settings.keep_ports();
                    return Ok(());
                }
                // Another process may have taken the port meanwhile. A port that was requested, or
                // that clients already know, is not replaced.
                Err(error) if !(taken && self.lock().settings.other_ports()?) => return Err(error),
                Err(_) => {}
            }
        }
        bail!("every port that was free was taken before the broker could listen on it")
    }

    fn spawn(&self) -> Result<(Process, Url)> {
        let state = self.lock();
        if state.process.as_ref().is_some_and(|process| process.status().is_none()) {
            bail!("{} runs already", self.0.name);
        }
        let ready_url = state.settings.operator_url()?.join("readyz").context("make a URL")?;
        drop(state);
        self.write_settings()?;
        let process = self
            .serving()?
            .stop_with(rustix::process::Signal::TERM, Duration::from_secs(4))
            .spawn_logged(&self.log_file())?;
        Ok((process, ready_url))
    }

    async fn until_ready(&self, process: &Process, ready_url: Url) -> Result<()> {
        let http = http_client(None)?;
        probe::until("the broker to be ready", READY_TIMEOUT, || async {
            process.still_running()?;
            Ok(match http.get(ready_url.clone()).send().await {
                Ok(answer) if answer.status().is_success() => Probe::Ready(()),
                Ok(answer) => Probe::NotYet(format!(
                    "/readyz answers {}: {}",
                    answer.status(),
                    answer.text().await.unwrap_or_default()
                )),
                Err(error) => Probe::NotYet(error.to_string()),
            })
        })
        .await
        .with_context(|| process.log_tail(30))
    }

    /// Sends SIGTERM and waits until the broker has drained.
    ///
    /// # Errors
    /// It does not run, or had to be killed.
    pub async fn stop(&self) -> Result<ExitStatus> {
        let process = self.lock().process.take();
        let process = process.with_context(|| format!("{} does not run", self.0.name))?;
        process.stop(STOP_TIMEOUT).await
    }

    /// Kills the broker at once, as a crash would. Does not wait, so that a hook of the fault proxy
    /// can call it; [`Broker::start`] restarts it on the same state.
    pub fn kill(&self) {
        if let Some(process) = &self.lock().process {
            process.kill();
        }
    }

    /// Kills the broker, waits for its end and starts it again on the same state and ports.
    ///
    /// # Errors
    /// It does not start again.
    pub async fn crash_and_restart(&self) -> Result<()> {
        self.kill();
        let process = self.lock().process.take();
        if let Some(process) = process {
            process.wait().await;
        }
        self.start().await
    }

    /// Sends a signal, for example SIGSTOP.
    ///
    /// # Errors
    /// It does not run, or the signal is not allowed.
    pub fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let state = self.lock();
        state.process.as_ref().context("the broker does not run")?.signal(signal)
    }

    /// Whether the process runs.
    pub fn is_running(&self) -> bool {
        self.lock().process.as_ref().is_some_and(|process| process.status().is_none())
    }

    /// Returns the process id, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.lock().process.as_ref().filter(|one| one.status().is_none()).map(Process::pid)
    }

    /// Name of the broker, for example `broker-1`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Waits until the process that runs now has ended. Returns `None` at once if none was started.
    pub async fn wait(&self) -> Option<ExitStatus> {
        let waiting = self.lock().process.as_ref().map(Process::wait);
        waiting?.await
    }

    /// Changes a setting by its dotted key; effective from the next start.
    pub fn set(&self, key: &str, value: impl Into<toml::Value>) {
        self.lock().settings.set(key, value);
    }

    /// Points the broker at the cluster with another kubeconfig, for example the fault proxy's;
    /// effective from the next start.
    pub fn use_kubeconfig(&self, kubeconfig: &Path) {
        self.set("cluster.kubeconfig", kubeconfig.display().to_string());
    }

    /// Returns the address that this replica listens on, `http://127.0.0.1:PORT/`.
    ///
    /// # Errors
    /// The setting is no address.
    pub fn url(&self) -> Result<Url> {
        self.lock().settings.url()
    }

    /// Returns the URL that people use and that is the issuer of its tokens; replicas share one.
    ///
    /// # Errors
    /// The setting is no URL.
    pub fn public_url(&self) -> Result<Url> {
        self.lock().settings.public_url()
    }

    /// Returns the address of health and metrics.
    ///
    /// # Errors
    /// The setting is no address.
    pub fn operator_url(&self) -> Result<Url> {
        self.lock().settings.operator_url()
    }

    /// Returns all metrics in the Prometheus text format.
    ///
    /// # Errors
    /// The broker does not respond.
    pub async fn metrics(&self) -> Result<String> {
        let url = self.operator_url()?.join("metrics").context("make a URL")?;
        let answer = http_client(None)?.get(url).send().await?.error_for_status()?;
        Ok(answer.text().await?)
    }

    /// Returns the value of one series of the metrics, for example `NAME{label="value"}` with the
    /// labels in the order of `/metrics`; 0 if there is none.
    ///
    /// # Errors
    /// The broker does not respond, or the value is no number.
    pub async fn metric(&self, series: &str) -> Result<f64> {
        let text = self.metrics().await?;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(Ok(0.0), |value| value.parse().with_context(|| format!("parse {series}")))
    }

    /// Path of the log file, which covers all starts.
    pub fn log_file(&self) -> PathBuf {
        self.0.folder.join(format!("{}.log", self.0.name))
    }

    /// Returns the log so far, of all starts.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn log(&self) -> Result<String> {
        let bytes = std::fs::read(self.log_file()).context("read the broker's log")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The folder with the SQLite database and the generated keys.
    pub fn state_dir(&self) -> PathBuf {
        self.0.folder.join("state")
    }

    /// Creates a local account with `tenant-broker user create` and returns its id. Works whether
    /// the broker runs or not.
    ///
    /// # Errors
    /// The broker refuses, for example because the account exists.
    pub async fn create_user(&self, email: &str, password: &str, admin: bool) -> Result<Uuid> {
        let mut args = vec!["user", "create", "--email", email, "--password-stdin"];
        if admin {
            args.push("--admin");
        }
        let created = self.run_with_input(&args, format!("{password}\n")).await?.success()?;
        created.stdout.trim().parse().context("read the user id that user create printed")
    }

    /// Runs a command of the broker's program with its configuration, for example `migrate`.
    ///
    /// # Errors
    /// The command cannot be started or does not end.
    pub async fn run(&self, args: &[&str]) -> Result<Finished> {
        self.run_with_input(args, "").await
    }

    async fn run_with_input(&self, args: &[&str], input: impl Into<Vec<u8>>) -> Result<Finished> {
        self.write_settings()?;
        self.program(args).input(input).run(COMMAND_TIMEOUT).await
    }

    fn program(&self, args: &[&str]) -> Program {
        let folder = &self.0.folder;
        let state = self.lock();
        let mut program = match &state.pod {
            Some(pod) => pod.program(&state.program),
            None => Program::new(&state.program),
        };
        drop(state);
        program = program
            .args(args)
            .arg("--config")
            .arg(self.settings_file())
            .clear_env()
            .env("HOME", folder)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        // Path that a coverage build writes to.
        if let Some(profile) = std::env::var_os("LLVM_PROFILE_FILE") {
            program = program.env("LLVM_PROFILE_FILE", profile);
        }
        program
    }

    fn serving(&self) -> Result<Program> {
        let (serve, ahead) = (self.program(&["serve"]), self.lock().clock_ahead);
        if ahead.is_zero() {
            return Ok(serve);
        }
        let library = FAKETIME.iter().map(Path::new).find(|path| path.exists()).context(
            "libfaketime is not there, with which a clock is set ahead; install it: \
             apt-get install faketime",
        )?;
        // Only the time of day differs; monotonic waits take as long as they do.
        Ok(serve
            .env("LD_PRELOAD", library)
            .env("FAKETIME", format!("+{}s", ahead.as_secs()))
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1"))
    }

    fn settings_file(&self) -> PathBuf {
        self.0.folder.join(format!("{}.toml", self.0.name))
    }

    fn write_settings(&self) -> Result<()> {
        let text = self.lock().settings.to_toml()?;
        write_private(&self.settings_file(), text)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Grants the broker's identity its rights in the cluster and installs the admission policies: what
/// `tenant-broker install --apply` does for an administrator, with these settings (`key=value`).
/// Returns once the policies are in force.
///
/// # Errors
/// The API server refuses.
pub async fn install(
    program: &Path,
    user: &str,
    settings: &[String],
    admin: &Kubectl,
    broker: &Kubectl,
) -> Result<()> {
    admin
        .other(program)
        .args(["install", "--apply", "--set"])
        .arg(format!("cluster.identity={user}"))
        .args(settings.iter().map(|setting| format!("--set={setting}")))
        .run(COMMAND_TIMEOUT)
        .await?
        .success()
        .context("apply what the broker needs with tenant-broker install")?;
    // The API server reloads policies once a second; the broker's own policies were created last.
    probe::until("the policies to be in force", READY_TIMEOUT, || async {
        let tried = broker
            .run([
                "create",
                "serviceaccount",
                "sa-tenant-admin",
                "-n",
                "default",
                "--dry-run=server",
            ])
            .await?;
        let fenced_in = tried.stderr.contains("tenant-broker-fence-outside");
        Ok(if fenced_in { Probe::Ready(()) } else { Probe::NotYet(tried.stderr) })
    })
    .await
}
