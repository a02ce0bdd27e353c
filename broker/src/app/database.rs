//! Opening of the database.

use std::{os::unix::fs::DirBuilderExt as _, path::Path};

use anyhow::Context as _;

use crate::{
    base::{
        clock::Clock,
        db::{ConnectionShares, Db, Location},
        telemetry::Metrics,
    },
    config::Config,
};

/// Offset between this machine's clock and the database's from which on a warning is logged, in
/// milliseconds.
const MAX_CLOCK_OFFSET_MS: i64 = 2_000;

/// Compares this machine's clock with the database's, which all replicas share. Where clocks
/// differ, a replica notices suspensions and sessions of other replicas later.
pub(super) async fn compare_clocks(
    db: &Db,
    clock: &Clock,
    metrics: &Metrics,
) -> anyhow::Result<()> {
    let before = clock.now_ms();
    let Some(theirs) = db.clock_ms().await.context("cannot read the database's clock")? else {
        return Ok(());
    };
    let offset_ms = i64::midpoint(before, clock.now_ms()) - theirs;
    metrics.clock_offset(offset_ms);
    if offset_ms.abs() > MAX_CLOCK_OFFSET_MS {
        tracing::warn!(
            offset_ms,
            "this machine's clock differs from the database's; synchronise both (NTP), because \
             replicas notice each other's suspensions later otherwise"
        );
    }
    Ok(())
}

/// Opens the database and migrates it to this version.
///
/// # Errors
/// The database does not answer, or its schema is of a later version.
pub async fn open_database(config: &Config) -> anyhow::Result<Db> {
    make_database_folder(config)?;
    let db = Db::connect(&config.database).await.context(NO_DATABASE)?;
    migrate(&db).await?;
    Ok(db)
}

/// Opens and migrates the database like [`open_database`], with connections divided into shares.
pub(super) async fn open_shares(config: &Config) -> anyhow::Result<ConnectionShares> {
    make_database_folder(config)?;
    let shares = ConnectionShares::connect(&config.database).await.context(NO_DATABASE)?;
    migrate(&shares.signed_in).await?;
    Ok(shares)
}

const NO_DATABASE: &str =
    "cannot open the database (database.url); is it running, and are user and password right?";

fn make_database_folder(config: &Config) -> anyhow::Result<()> {
    if let Location::Sqlite(path) = &config.database
        && let Some(folder) = path.parent()
    {
        private_folder(folder)?;
    }
    Ok(())
}

async fn migrate(db: &Db) -> anyhow::Result<()> {
    db.migrate().await.context("cannot bring the database's tables to this version")
}

/// Creates a folder with mode 0700 unless it exists.
pub(super) fn private_folder(path: &Path) -> anyhow::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot make the folder {} (state_dir)", path.display()))
}
