//! The command line of `tenant-broker`.

mod audit;
mod backup;
mod health;
mod migrate;
mod output;

use std::{io::BufRead as _, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use secrecy::SecretString;
use tenant_shared::Role;

use self::{
    audit::AuditCommand,
    backup::{BackupArgs, RestoreArgs},
    migrate::MigrateArgs,
    output::{Output, print, print_unchanged, print_warning},
};
use crate::{
    app::{self, App},
    base::{
        clock::Clock,
        db::{Db, Location},
        reload::Reloader,
        telemetry::{self, Metrics},
    },
    cluster::{Cluster, KubernetesUser},
    config::{Config, Settings},
    doctor::{self, Check},
    identity::Identity,
    install::{self, Administrator, Parameters, Report},
};

pub use output::print_error;

/// Gives each person an isolated namespace of a Kubernetes cluster.
#[derive(Debug, Parser)]
#[command(name = "tenant-broker", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the broker until SIGTERM or Ctrl-C, then finish requests in flight
    Serve(ConfigArgs),
    /// Migrate the database to this version (serve does it too), or check whether it has to be
    Migrate(MigrateArgs),
    /// Copy the database and the signing keys into a new folder, while the broker runs
    Backup(BackupArgs),
    /// Restore a backup into a new, empty database; ends all sessions and tokens
    Restore(RestoreArgs),
    /// Manage local accounts
    #[command(subcommand)]
    User(UserCommand),
    /// Install the ClusterRole of the broker and the admission policies; prints them by default
    Install(InstallArgs),
    /// Check the cluster with the broker's own credential; changes nothing
    Doctor {
        #[command(flatten)]
        config_args: ConfigArgs,
        /// Output format of the report
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Verify, export and search the audit trail
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Check the configuration: report all faults, or print the main settings
    CheckConfig(ConfigArgs),
    /// Ask the running broker whether it is ready (/readyz at the operator's address): exit code 0
    /// if it is, 1 if not
    Health(ConfigArgs),
    /// Print the OpenAPI document of the HTTP API
    Openapi,
}

/// The arguments with settings.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// TOML file with the settings; docs/configuration.md lists them
    #[arg(long, value_name = "FILE", env = "TENANT_BROKER_CONFIG")]
    config: Option<PathBuf>,
    /// Override a setting of file and environment, for example --set log.level=debug
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum UserCommand {
    /// Create a local account; prints its identifier
    Create {
        #[command(flatten)]
        config_args: ConfigArgs,
        /// The e-mail address to sign in with
        #[arg(long)]
        email: String,
        /// Make it an administrator, who can see, suspend and resume every workspace
        #[arg(long)]
        admin: bool,
        /// Read the password from the first line of standard input (it is never an argument,
        /// because everybody on the machine can see arguments)
        #[arg(long, required = true)]
        password_stdin: bool,
    },
}

#[derive(Debug, Args)]
struct InstallArgs {
    #[command(flatten)]
    config_args: ConfigArgs,
    #[command(flatten)]
    mode: InstallMode,
    /// Add priority levels of the API server (API Priority and Fairness) for the broker, one of
    /// them for suspensions
    #[arg(long, conflicts_with = "uninstall")]
    flow_schema: bool,
    /// Serve Tenants in the API group of Capsule (capsule.clastix.io/v1beta2), too, so that files
    /// for it can be applied; needs the setting tenants.enabled
    #[arg(long, conflicts_with = "uninstall")]
    capsule_api: bool,
    /// Add ClusterRoles that let everybody with the role view, edit or admin of a namespace see the
    /// models of KServe and use Llama Stack there
    #[arg(long, conflicts_with = "uninstall")]
    model_services: bool,
    /// An administrator's kubeconfig; by default the one that kubectl would use
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// A context of that kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// After applying, write a kubeconfig for the broker with a certificate that the cluster signs;
    /// renew it in time
    #[arg(long, value_name = "FILE", requires = "apply")]
    credential: Option<PathBuf>,
    /// Requested lifetime of that certificate
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u16).range(1..=3650))]
    credential_days: u16,
}

/// The mode of `install`; the default is to print.
#[derive(Debug, Args)]
#[group(multiple = false)]
#[expect(clippy::struct_excessive_bools, reason = "clap excludes all but one")]
struct InstallMode {
    /// Print the manifest, for `kubectl apply --server-side -f -`
    #[arg(long)]
    print: bool,
    /// Apply it with an administrator's credential (server-side apply)
    #[arg(long)]
    apply: bool,
    /// Show what applying would change; the exit code is 1 if there are changes
    #[arg(long)]
    diff: bool,
    /// Delete all installed objects; tenants' namespaces stay, and so do definitions of Tenants
    /// that have objects
    #[arg(long)]
    uninstall: bool,
}

impl ConfigArgs {
    fn load(&self) -> anyhow::Result<Config> {
        Ok(Config::from_settings(self.settings()?)?)
    }

    /// The settings of all sources, before they are validated.
    fn settings(&self) -> anyhow::Result<Settings> {
        let file = match &self.config {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the configuration {}", path.display()))?;
                if !Settings::are_in(&text) {
                    print_warning(&format!(
                        "{} has no settings, so each has its default or the value of its \
                         environment variable",
                        path.display()
                    ));
                }
                Some((path.display().to_string(), text))
            }
            None => None,
        };
        let file = file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
        // TENANT_BROKER_CONFIG names the file; the others are variables of the plugin and of
        // people.
        let other_variables = [
            "TENANT_BROKER_CONFIG",
            "TENANT_BROKER_URL",
            "TENANT_BROKER_URLS",
            "TENANT_BROKER_CA",
            "TENANT_BROKER_KUBECONFIG",
            "TENANT_BROKER_LOG",
        ];
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| !other_variables.contains(&name.as_str()));
        Ok(Settings::load(file, environment, &self.set)?)
    }
}

impl Cli {
    /// Runs the command and returns its exit code.
    ///
    /// # Errors
    /// The command failed; the text says what to do.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Serve(config_args) => {
                let config = config_args.load()?;
                config.check_files()?;
                Box::pin(serve(config)).await?;
            }
            Command::Migrate(args) => return Box::pin(migrate::run(args)).await,
            Command::Backup(args) => Box::pin(backup::back_up(args)).await?,
            Command::Restore(args) => Box::pin(backup::restore(args)).await?,
            Command::User(UserCommand::Create { config_args, email, admin, password_stdin: _ }) => {
                let role = if admin { Role::Admin } else { Role::User };
                create_user(&config_args.load()?, &email, role).await?;
            }
            Command::Install(args) => return Box::pin(install(args)).await,
            Command::Doctor { config_args, output } => {
                return Box::pin(doctor(&config_args.load()?, output)).await;
            }
            Command::Audit(command) => return Box::pin(audit::run(command)).await,
            Command::CheckConfig(config_args) => {
                let config = config_args.load()?;
                config.check_files()?;
                check_config(&config)?;
            }
            Command::Health(config_args) => {
                health::check(Config::operator_listen(config_args.settings()?)?).await?;
                print("ready\n")?;
            }
            Command::Openapi => print_unchanged(&app::document())?,
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
    let config = args.config_args.load()?;
    if args.capsule_api && !config.tenants.enabled {
        bail!(
            "--capsule-api: the configuration has no tenants; set tenants.enabled = true, or leave \
             the flag out"
        );
    }
    let parameters = Parameters { capsule_api: args.capsule_api, ..config.install_parameters() };
    let mut manifest = install::manifest(&parameters);
    if args.flow_schema {
        manifest += &install::flow_schemas(&parameters);
    }
    if args.model_services {
        manifest += &install::model_roles();
    }
    let groups = parameters.tenant_groups();
    manifest += &install::tenant_definitions(groups);
    let InstallMode { print: _, apply, diff, uninstall } = args.mode;
    if !(apply || diff || uninstall) {
        print_unchanged(&manifest)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Checked before anything is applied.
    let credential = match (&args.credential, &parameters.broker) {
        (None, _) => None,
        (Some(file), KubernetesUser::User(user)) => Some((file, user)),
        (Some(_), KubernetesUser::ServiceAccount { .. }) => bail!(
            "--credential: cluster.identity is a ServiceAccount, whose pod gets its credential from \
             Kubernetes; run the broker there without cluster.kubeconfig"
        ),
    };
    let administrator = Administrator::connect(args.kubeconfig.as_deref(), args.context).await?;
    if (apply || diff)
        && let Some(warning) = administrator.check_audiences(&parameters.audiences).await
    {
        print_warning(&warning);
    }
    let mut write = |line: &str| print(line);
    let mut report = Report::new(&mut write);
    if diff {
        let differences = administrator.diff(&manifest).await?;
        print(&differences)?;
        return Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if uninstall {
        administrator.uninstall(&mut report).await?;
        return Ok(ExitCode::SUCCESS);
    }
    administrator.apply(&manifest, &mut report).await?;
    if let Some((file, user)) = credential {
        let clock = Clock::system();
        let written =
            administrator.write_credential(user, args.credential_days, file, &clock).await?;
        print(&written)?;
    }
    administrator.report_tenants(groups, &mut report).await?;
    if !groups.is_empty() {
        administrator.report_homes(&mut report).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The parameters of the objects in the cluster.
async fn doctor(config: &Config, output: Output) -> anyhow::Result<ExitCode> {
    let (clock, metrics) = (Clock::system(), Metrics::default());
    let reloader = Reloader::new(clock.clone(), metrics.clone());
    let cluster = Cluster::connect(&config.cluster, clock.clone(), metrics, &reloader).await?;
    let parameters = config.install_parameters();
    let mut report = doctor::examine(&cluster, &parameters, &clock).await;
    // Before the first start of the broker there is no database.
    if database_exists(config) {
        report.checks.extend(check_database(config, &cluster).await);
    }
    output.print(&report)?;
    Ok(if report.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks the database, and compares the cluster with it.
async fn check_database(config: &Config, cluster: &Cluster) -> Vec<Check> {
    match open_database(config).await {
        Ok(db) => {
            let checks = doctor::check_database(cluster, &db).await;
            db.close().await;
            checks
        }
        Err(error) => vec![doctor::unreachable_database(&format!("{error:#}"))],
    }
}

fn check_config(config: &Config) -> anyhow::Result<()> {
    print(&format!(
        "the configuration is valid\n  listen           {}\n  operator_listen  {}\n  \
         public_url       {}\n  database         {}\n  cluster          {}\n  tiers            {}\n",
        config.listen,
        config.operator_listen,
        config.public_url,
        match &config.database {
            Location::Postgres(options) =>
                format!("PostgreSQL at {}:{}", options.get_host(), options.get_port()),
            Location::Sqlite(path) => format!("SQLite in {}", path.display()),
        },
        config.cluster.name,
        config.tiers.names().join(", "),
    ))
}

/// Whether the database can exist: a SQLite file does.
fn database_exists(config: &Config) -> bool {
    match &config.database {
        Location::Sqlite(path) => path.exists(),
        Location::Postgres(_) => true,
    }
}

/// Opens the database without migrating it and without creating a new file.
async fn open_database(config: &Config) -> anyhow::Result<Db> {
    if let Location::Sqlite(path) = &config.database
        && !database_exists(config)
    {
        bail!("there is no database {} (database.url)", path.display());
    }
    Db::connect(&config.database).await.with_context(|| config.database.connect_failed())
}
