//! The command line of `tenant-broker`.

mod audit;

use std::{
    io::{BufRead as _, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use secrecy::SecretString;
use tenant_shared::Role;

use self::audit::AuditCommand;
use crate::{
    app::{self, App},
    clock::Clock,
    cluster::Cluster,
    config::{BrokerUser, Config, Settings},
    doctor,
    identity::Identity,
    install::{self, Administrator, Parameters},
    telemetry::{self, Metrics},
};

/// Gives each person a safe corner of a Kubernetes cluster.
#[derive(Debug, Parser)]
#[command(name = "tenant-broker", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the broker until SIGTERM or Ctrl-C, then finish what is under way
    Serve(Settable),
    /// Bring the database's tables to this version (serve does it too)
    Migrate(Settable),
    /// Manage local accounts
    #[command(subcommand)]
    User(UserCommand),
    /// Give the broker its rights and the admission policies that hold it; prints them by default
    Install(InstallArgs),
    /// Try with the broker's own credential what must work and what must not; changes nothing
    Doctor {
        #[command(flatten)]
        settable: Settable,
        /// How to print what was found
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Verify, export and search the audit trail
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Check the configuration, report every fault, and say what is in force
    CheckConfig(Settable),
    /// Print the OpenAPI document of the HTTP API
    Openapi,
}

/// How data is printed.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Output {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
}

/// Where settings come from.
#[derive(Debug, Args)]
struct Settable {
    /// TOML file with the settings; docs/configuration.md lists them
    #[arg(long, value_name = "FILE", env = "TENANT_BROKER_CONFIG")]
    config: Option<PathBuf>,
    /// Set one setting, for example --set log.level=debug; wins over file and environment
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum UserCommand {
    /// Make a local account; prints its identifier
    Create {
        #[command(flatten)]
        settable: Settable,
        /// The e-mail address to sign in with
        #[arg(long)]
        email: String,
        /// An administrator: sees, suspends and resumes every workspace
        #[arg(long)]
        admin: bool,
        /// Read the password from the first line of standard input (it is never an argument,
        /// for those are seen by everybody on the machine)
        #[arg(long, required = true)]
        password_stdin: bool,
    },
}

#[derive(Debug, Args)]
struct InstallArgs {
    #[command(flatten)]
    settable: Settable,
    #[command(flatten)]
    mode: InstallMode,
    /// Add flow schemas: lanes of the API server for the broker, one of them for suspensions
    #[arg(long, conflicts_with = "uninstall")]
    flow_schema: bool,
    /// An administrator's kubeconfig; by default the one that kubectl would take
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// A context of it
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// After applying, write a kubeconfig for the broker with a certificate that the cluster signs;
    /// again before its days are over
    #[arg(long, value_name = "FILE", requires = "apply")]
    credential: Option<PathBuf>,
    /// How long that certificate is asked to live
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u16).range(1..=3650))]
    credential_days: u16,
}

/// What `install` does; without any it prints.
#[derive(Debug, Args)]
#[group(multiple = false)]
#[expect(clippy::struct_excessive_bools, reason = "clap excludes all but one")]
struct InstallMode {
    /// Print the manifest, for `kubectl apply --server-side -f -`
    #[arg(long)]
    print: bool,
    /// Apply it with an administrator's rights (server-side apply)
    #[arg(long)]
    apply: bool,
    /// Show what applying would change; the exit code is 1 if anything
    #[arg(long)]
    diff: bool,
    /// Delete what install made; tenants' namespaces stay
    #[arg(long)]
    uninstall: bool,
}

impl Settable {
    fn load(&self) -> anyhow::Result<Config> {
        let file = match &self.config {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the configuration {}", path.display()))?;
                Some((path.display().to_string(), text))
            }
            None => None,
        };
        let file = file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
        // TENANT_BROKER_CONFIG names the file; URL and CA are what the plugin and people set.
        let not_ours = [
            "TENANT_BROKER_CONFIG",
            "TENANT_BROKER_URL",
            "TENANT_BROKER_URLS",
            "TENANT_BROKER_CA",
            "TENANT_BROKER_KUBECONFIG",
            "TENANT_BROKER_LOG",
        ];
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| !not_ours.contains(&name.as_str()));
        let settings = Settings::load(file, environment, &self.set)?;
        Ok(Config::from_settings(settings)?)
    }
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// What failed and what to do.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Serve(settable) => {
                let config = settable.load()?;
                config.check_files()?;
                Box::pin(serve(config)).await?;
            }
            Command::Migrate(settable) => {
                app::open_database(&settable.load()?).await?.close().await;
            }
            Command::User(UserCommand::Create { settable, email, admin, password_stdin: _ }) => {
                let role = if admin { Role::Admin } else { Role::User };
                create_user(&settable.load()?, &email, role).await?;
            }
            Command::Install(args) => return Box::pin(install(args)).await,
            Command::Doctor { settable, output } => {
                return Box::pin(doctor(&settable.load()?, output)).await;
            }
            Command::Audit(command) => return Box::pin(audit::run(command)).await,
            Command::CheckConfig(settable) => {
                let config = settable.load()?;
                config.check_files()?;
                check_config(&config)?;
            }
            Command::Openapi => print(&app::document())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let filter = telemetry::log_filter(&config.log_level).map_err(anyhow::Error::msg)?;
    telemetry::start_logging(filter, config.log_format);
    let stop = stop_signal()?;
    Box::pin(App::start(config, Clock::system()).await?.serve(stop)).await
}

/// Resolves at the first SIGTERM or Ctrl-C.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

async fn create_user(config: &Config, email: &str, role: Role) -> anyhow::Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("cannot read the password from stdin")?;
    let password = SecretString::from(line.trim_end_matches(['\r', '\n']).to_owned());
    let db = app::open_database(config).await?;
    let identity =
        Identity::new(db.clone(), Clock::system(), Metrics::default(), config.browser.clone());
    let id = identity.create_user(email, password, role).await?;
    db.close().await;
    print(&format!("{id}\n"))
}

async fn install(args: InstallArgs) -> anyhow::Result<ExitCode> {
    let parameters = Parameters::new(&args.settable.load()?);
    let mut manifest = install::manifest(&parameters);
    if args.flow_schema {
        manifest += &install::flow_control(&parameters);
    }
    let InstallMode { print: _, apply, diff, uninstall } = args.mode;
    if !(apply || diff || uninstall) {
        print(&manifest)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before anything is applied.
    let credential = match (&args.credential, &parameters.broker) {
        (None, _) => None,
        (Some(file), BrokerUser::User(user)) => Some((file, user)),
        (Some(_), BrokerUser::ServiceAccount { .. }) => bail!(
            "--credential: cluster.identity is a ServiceAccount, whose credential its pod is given; \
             leave cluster.kubeconfig out there"
        ),
    };
    let administrator = Administrator::connect(args.kubeconfig.as_deref(), args.context).await?;
    let report = if apply {
        let mut report = administrator.apply(&manifest).await?;
        if let Some((file, user)) = credential {
            let clock = Clock::system();
            report +=
                &administrator.write_credential(user, args.credential_days, file, &clock).await?;
        }
        report
    } else if diff {
        administrator.diff(&manifest).await?
    } else {
        administrator.uninstall().await?
    };
    print(&report)?;
    let differs = diff && !report.is_empty();
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn doctor(config: &Config, output: Output) -> anyhow::Result<ExitCode> {
    let clock = Clock::system();
    let cluster = Cluster::connect(&config.cluster, clock.clone(), Metrics::default()).await?;
    let report = doctor::examine(&cluster, &Parameters::new(config), &clock).await;
    print(&match output {
        Output::Table => report.to_string(),
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
    })?;
    Ok(if report.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_config(config: &Config) -> anyhow::Result<()> {
    print(&format!(
        "the configuration is sound\n  listen           {}\n  operator_listen  {}\n  \
         public_url       {}\n  database         {}\n  cluster          {}\n  tiers            {}\n",
        config.listen,
        config.operator_listen,
        config.public_url,
        match &config.database {
            crate::db::Location::Postgres(options) =>
                format!("PostgreSQL at {}:{}", options.get_host(), options.get_port()),
            crate::db::Location::Sqlite(path) => format!("SQLite in {}", path.display()),
        },
        config.cluster.name,
        config.tiers.names().join(", "),
    ))
}

/// Data goes to stdout; one that is closed early (`| head`) is no failure.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
