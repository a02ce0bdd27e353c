//! `tenant-broker audit`: what an auditor does, offline.

use std::{
    fs::File,
    io::{BufReader, IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};

use super::{Output, Settable, print};
use crate::{
    app,
    audit::{self, chain},
    config::Config,
    db::{Db, Location},
    signing::PublicKeys,
};

/// Exit code where nothing could be said: no database, no file, no keys.
const COULD_NOT_LOOK: u8 = 2;
/// Rows of a page of an export.
const PAGE: u32 = 1000;
/// After how long a person is told how far it is, and how often.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Find out whether somebody changed the trail: exit code 0 if not, 1 if so, 2 if it cannot be
    /// read
    Verify(Verify),
    /// Print the trail as JSON Lines, in the order of its chain
    Export {
        #[command(flatten)]
        settable: Settable,
        /// Only what comes after this row
        #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
        after: i64,
        /// Wait for more, until Ctrl-C
        #[arg(long)]
        follow: bool,
    },
    /// Say who a credential was issued to; the cluster's audit log names it in
    /// authentication.kubernetes.io/credential-id
    Who {
        #[command(flatten)]
        settable: Settable,
        /// The identifier, with or without JTI=
        credential_id: String,
        /// How to print it
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Print the public keys that checkpoints are verified with (JSON Web Key Set)
    Keys(Settable),
}

#[derive(Debug, Args)]
pub(super) struct Verify {
    #[command(flatten)]
    settable: Settable,
    /// An export, instead of the database of the configuration
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Public keys as `audit keys` prints them, instead of those of the configuration
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// A head that an earlier run printed: the trail must still contain it
    #[arg(long, value_name = "SEQUENCE:HASH")]
    expect: Option<chain::Expected>,
    /// The file begins after this row on purpose
    #[arg(long, value_name = "SEQUENCE", requires = "file")]
    after: Option<i64>,
    /// How to print what was found
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(super) async fn run(command: AuditCommand) -> anyhow::Result<ExitCode> {
    match command {
        AuditCommand::Verify(arguments) => match verify(arguments).await {
            Ok(code) => return Ok(code),
            Err(error) => {
                tell(&format!("error: {error:#}\n"));
                return Ok(ExitCode::from(COULD_NOT_LOOK));
            }
        },
        AuditCommand::Export { settable, after, follow } => {
            let db = open(&settable.load()?).await?;
            export(&db, after, follow).await?;
            db.close().await;
        }
        AuditCommand::Who { settable, credential_id, output } => {
            let db = open(&settable.load()?).await?;
            let found = audit::who(&db, &credential_id).await.context("the database failed")??;
            db.close().await;
            let Some(issuance) = found else {
                bail!(
                    "no credential {credential_id} is on the ledger of this broker: it was issued by \
                     another one, or not by a broker at all"
                );
            };
            print(&match output {
                Output::Table => issuance.to_string(),
                Output::Json => serde_json::to_string_pretty(&issuance)? + "\n",
            })?;
        }
        AuditCommand::Keys(settable) => {
            let keys = app::audit_keys(&settable.load()?)?.known;
            print(&(serde_json::to_string_pretty(&keys.set())? + "\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The database as it is: an auditor changes nothing, and makes no new file.
async fn open(config: &Config) -> anyhow::Result<Db> {
    if let Location::Sqlite(path) = &config.database
        && !path.exists()
    {
        bail!("there is no database {} (database.url)", path.display());
    }
    Db::connect(&config.database)
        .await
        .context("cannot open the database (database.url); is it running and may we in?")
}

async fn verify(arguments: Verify) -> anyhow::Result<ExitCode> {
    let Verify { settable, file, keys, expect, after, output } = arguments;
    let keys = match keys {
        Some(path) => {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read the keys {}", path.display()))?;
            PublicKeys::parse(&text).with_context(|| format!("{} (--keys)", path.display()))?
        }
        None => app::audit_keys(&settable.load()?)?.known,
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
        let db = open(&settable.load()?).await?;
        let outcome = chain::verify_database(&db, &keys, expect, |rows| progress.at(rows));
        let outcome = outcome.await.context(
            "cannot read the audit trail; `tenant-broker migrate` brings tables to this version",
        )?;
        db.close().await;
        outcome
    };
    progress.end();
    print(&match output {
        Output::Table => outcome.to_string(),
        Output::Json => serde_json::to_string_pretty(&outcome)? + "\n",
    })?;
    Ok(if outcome.intact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn export(db: &Db, mut after: i64, follow: bool) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(PATIENCE);
    let out = std::io::stdout();
    loop {
        match audit::page(db, after, PAGE).await.context("cannot read the audit trail")? {
            Some(page) => {
                let text = page.to_json_lines()?;
                match out.lock().write_all(text.as_bytes()) {
                    // Whoever reads has enough (`| head`).
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

/// Says on stderr how far it is, if it takes long.
struct Progress {
    began: Instant,
    said: Option<Instant>,
}

impl Progress {
    fn new() -> Self {
        Self { began: Instant::now(), said: None }
    }

    fn at(&mut self, rows: u64) {
        if self.said.unwrap_or(self.began).elapsed() < PATIENCE {
            return;
        }
        self.said = Some(Instant::now());
        // On one line where somebody looks on.
        let end = if std::io::stderr().is_terminal() { "\r" } else { "\n" };
        tell(&format!("{rows} rows are as they were sealed …{end}"));
    }

    fn end(&self) {
        if self.said.is_some() && std::io::stderr().is_terminal() {
            tell("\n");
        }
    }
}

fn tell(text: &str) {
    // Nobody to tell is no failure.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
