//! `tenant-broker audit`: verify, export and search the audit trail without a running broker.

use std::{
    fs::File,
    io::{BufReader, IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};

use super::{
    ConfigArgs, open_database,
    output::{Output, print_error, print_json, print_to_stderr},
};
use crate::{
    audit::{AuditKeyFiles, AuditTrail, WholeTrail, chain},
    base::{
        db::Db,
        reload::{FileSource as _, Files},
        signing::PublicKeys,
    },
    config::Config,
    credential,
};

/// Exit code if nothing could be verified: no database, file or keys.
const EXIT_UNREADABLE: u8 = 2;
/// Number of rows that an export reads at a time.
const PAGE_SIZE: u32 = 1000;
/// Time after which progress is reported, and interval of the reports.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which `export --follow` looks for new rows.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Verify that nobody changed the trail: exit code 0 if it is intact, 1 if not, 2 if it cannot
    /// be read
    Verify(VerifyArgs),
    /// Print the trail as JSON Lines, in the order of its chain
    Export {
        #[command(flatten)]
        config_args: ConfigArgs,
        /// Only rows after this sequence
        #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
        after: i64,
        /// Wait for new rows until Ctrl-C
        #[arg(long)]
        follow: bool,
    },
    /// Print to whom a credential was issued; the cluster's audit log has its identifier in
    /// authentication.kubernetes.io/credential-id
    Who {
        #[command(flatten)]
        config_args: ConfigArgs,
        /// The identifier of the credential, with or without JTI=
        credential_id: String,
        /// Output format
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Print the public keys that verify checkpoints (JSON Web Key Set)
    Keys(ConfigArgs),
}

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    config_args: ConfigArgs,
    /// An export, instead of the database of the configuration
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Public keys as `audit keys` prints them, instead of those of the configuration
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// A head that an earlier run printed: the trail must still contain it
    #[arg(long, value_name = "SEQUENCE:HASH")]
    expect: Option<chain::Head>,
    /// The sequence after which the file begins, if it is a partial export
    #[arg(long, value_name = "SEQUENCE", requires = "file")]
    after: Option<i64>,
    /// Output format of the report
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(super) async fn run(command: AuditCommand) -> anyhow::Result<ExitCode> {
    match command {
        AuditCommand::Verify(arguments) => match verify(arguments).await {
            Ok(code) => return Ok(code),
            Err(error) => {
                print_error(&error);
                return Ok(ExitCode::from(EXIT_UNREADABLE));
            }
        },
        AuditCommand::Export { config_args, after, follow } => {
            let db = open_database(&config_args.load()?).await?;
            export(&db, after, follow).await?;
            db.close().await;
        }
        AuditCommand::Who { config_args, credential_id, output } => {
            let db = open_database(&config_args.load()?).await?;
            let found = credential::resolve_credential(&db, &credential_id)
                .await
                .context("the database failed")??;
            db.close().await;
            let Some(issuance) = found else {
                bail!(
                    "credential {credential_id} is not on the ledger of this broker: it was issued by \
                     another broker, or not by a broker"
                );
            };
            output.print(&issuance)?;
        }
        AuditCommand::Keys(config_args) => {
            let keys = known_keys(config_args.load()?)?;
            print_json(&keys.to_jwks())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The public keys of the configuration.
fn known_keys(config: Config) -> anyhow::Result<PublicKeys> {
    Ok(AuditKeyFiles(config.audit).load(&mut Files::default())?.value.known)
}

async fn verify(arguments: VerifyArgs) -> anyhow::Result<ExitCode> {
    let VerifyArgs { config_args, file, keys, expect, after, output } = arguments;
    let keys = match keys {
        Some(path) => {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read the keys {}", path.display()))?;
            PublicKeys::parse(&text).with_context(|| format!("{} (--keys)", path.display()))?
        }
        None => known_keys(config_args.load()?)?,
    };
    let mut progress = Progress::new();
    let outcome = if let Some(path) = file {
        let lines = File::open(&path)
            .with_context(|| format!("cannot read the export {}", path.display()))?;
        let start = after.map_or(chain::Start::Whole, chain::Start::After);
        let lines = BufReader::new(lines);
        chain::verify_file(lines, &keys, start, expect, |rows| progress.at(rows))
            .with_context(|| format!("cannot read the export {}", path.display()))?
    } else {
        let db = open_database(&config_args.load()?).await?;
        let outcome = chain::verify_database(&db, &keys, expect, |rows| progress.at(rows));
        let outcome = outcome.await.context(
            "cannot read the audit trail; `tenant-broker migrate` migrates the database to this version",
        )?;
        db.close().await;
        outcome
    };
    progress.end();
    output.print(&outcome)?;
    Ok(if outcome.intact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn export(db: &Db, mut after: i64, follow: bool) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(FOLLOW_INTERVAL);
    let out = std::io::stdout();
    let trail = AuditTrail::new(db.clone());
    loop {
        match trail
            .export_page(WholeTrail::for_operator(), after, PAGE_SIZE)
            .await
            .context("cannot read the audit trail")?
        {
            Some(page) => {
                let text = page.to_json_lines()?;
                match out.lock().write_all(text.as_bytes()) {
                    // The reader closed the pipe (`| head`).
                    Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                    written => written?,
                }
                after = page.next;
            }
            None if follow => drop(ticks.tick().await),
            None => return Ok(()),
        }
    }
}

/// Reports the progress of a long verification on stderr.
struct Progress {
    began: Instant,
    reported_at: Option<Instant>,
}

impl Progress {
    fn new() -> Self {
        Self { began: Instant::now(), reported_at: None }
    }

    fn at(&mut self, rows: u64) {
        if self.reported_at.unwrap_or(self.began).elapsed() < PROGRESS_INTERVAL {
            return;
        }
        self.reported_at = Some(Instant::now());
        // A terminal shows the progress on one line.
        let end = if std::io::stderr().is_terminal() { "\r" } else { "\n" };
        print_to_stderr(&format!("{rows} rows are intact …{end}"));
    }

    fn end(&self) {
        if self.reported_at.is_some() && std::io::stderr().is_terminal() {
            print_to_stderr("\n");
        }
    }
}
